// What the runtime API and the driver API share about launches and kernel attributes.
#pragma once

#include <string>
#include <string_view>

#include "recorder.hpp"

namespace ptxbench::record {

// Static and dynamic shared memory together that a block gets without asking (CUDA C++ Programming Guide).
constexpr int kDefaultSharedBytes = 48 * 1024;

inline int max_dynamic_shared(const Kernel& kernel) {
    return kernel.max_dynamic_shared >= 0 ? kernel.max_dynamic_shared : kDefaultSharedBytes - kernel.static_shared;
}

// False for an attribute that a plan cannot express.
bool apply_launch_attribute(LaunchShape& shape, const cudaLaunchAttribute& attribute);
std::string launch_attribute_name(int id);
LaunchShape shape_of(const cudaLaunchConfig_t& config);

// `attribute` is a cudaFuncAttribute; the driver API's numbers are the same.
cudaError_t set_kernel_attribute(std::string_view api, Kernel* kernel, int attribute, int value);

}  // namespace ptxbench::record
