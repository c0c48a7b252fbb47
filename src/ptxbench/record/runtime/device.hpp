// What a launcher may ask about the device, answered from the target's data sheet.
#pragma once

#include <cstddef>
#include <optional>

#include "recorder.hpp"

namespace ptxbench::record {

// The value of a cudaDeviceAttr (or CUdevice_attribute: the numbers agree); empty if the recorder does not know it.
std::optional<int> device_attribute(int attribute);

// Blocks of `kernel` that fit on one multiprocessor at once, by the toolkit's own calculator; 0 if none fits.
int resident_blocks(const Kernel& kernel, int block_threads, std::size_t dynamic_shared);

// The largest cluster a launch may ask for: 8 CTAs, or 16 after opting in (CUDA C++ Programming Guide).
inline int max_cluster_size(const Kernel& kernel) { return kernel.non_portable_cluster ? 16 : 8; }

}  // namespace ptxbench::record
