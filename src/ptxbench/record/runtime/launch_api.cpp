// Registration of fat binaries, kernels and variables, kernel launches, and attributes of kernels.

#include "launch_api.hpp"

#include <string>

namespace ptxbench::record {

namespace {

struct CallConfiguration {
    dim3 grid;
    dim3 block;
    std::size_t dynamic_shared;
    cudaStream_t stream;
};

std::vector<CallConfiguration>& call_configurations() {
    static auto* stack = new std::vector<CallConfiguration>;
    return *stack;
}

}  // namespace

bool apply_launch_attribute(LaunchShape& shape, const cudaLaunchAttribute& attribute) {
    switch (static_cast<int>(attribute.id)) {
        case cudaLaunchAttributeIgnore:
        case cudaLaunchAttributePriority:
        case cudaLaunchAttributePreferredSharedMemoryCarveout:  // hints without an effect on the result
            return true;
        case cudaLaunchAttributeCooperative:
            shape.cooperative = attribute.val.cooperative != 0;
            return true;
        case cudaLaunchAttributeClusterDimension:
            shape.cluster = dim3(attribute.val.clusterDim.x, attribute.val.clusterDim.y, attribute.val.clusterDim.z);
            return true;
        case cudaLaunchAttributeProgrammaticStreamSerialization:
            shape.programmatic = attribute.val.programmaticStreamSerializationAllowed != 0;
            return true;
        case cudaLaunchAttributeClusterSchedulingPolicyPreference:
            return attribute.val.clusterSchedulingPolicyPreference == cudaClusterSchedulingPolicyDefault;
        default:
            return false;
    }
}

std::string launch_attribute_name(int id) {
    switch (id) {
        case cudaLaunchAttributeAccessPolicyWindow: return "launch attribute access policy window";
        case cudaLaunchAttributeSynchronizationPolicy: return "launch attribute synchronization policy";
        case cudaLaunchAttributeClusterSchedulingPolicyPreference: return "launch attribute cluster scheduling policy";
        case cudaLaunchAttributeProgrammaticEvent: return "launch attribute programmatic event";
        case cudaLaunchAttributeMemSyncDomainMap: return "launch attribute memory sync domain map";
        case cudaLaunchAttributeMemSyncDomain: return "launch attribute memory sync domain";
        case cudaLaunchAttributePreferredClusterDimension: return "launch attribute preferred cluster dimension";
        case cudaLaunchAttributeLaunchCompletionEvent: return "launch attribute launch completion event";
        case cudaLaunchAttributeDeviceUpdatableKernelNode: return "launch attribute device-updatable kernel node";
        default: return "launch attribute " + std::to_string(id);
    }
}

LaunchShape shape_of(const cudaLaunchConfig_t& config) {
    LaunchShape shape;
    shape.grid = config.gridDim;
    shape.block = config.blockDim;
    shape.dynamic_shared = config.dynamicSmemBytes;
    for (unsigned i = 0; i < config.numAttrs; ++i) {
        if (!apply_launch_attribute(shape, config.attrs[i])) {
            recorder().refuse("cudaLaunchKernelExC", launch_attribute_name(config.attrs[i].id));
        }
    }
    return shape;
}

cudaError_t set_kernel_attribute(std::string_view api, Kernel* kernel, int attribute, int value) {
    if (kernel == nullptr) {
        return recorder().fail(api, cudaErrorInvalidDeviceFunction, "the function is no kernel of this source");
    }
    switch (attribute) {
        case cudaFuncAttributeMaxDynamicSharedMemorySize: {
            const std::int64_t limit = recorder().sheet["shared_bytes_per_block_optin"] - kernel->static_shared;
            if (value < 0 || value > limit) {
                return recorder().fail(api, cudaErrorInvalidValue,
                                       std::to_string(value) +
                                           " bytes of dynamic shared memory were asked for, and the device allows this "
                                           "kernel " +
                                           std::to_string(limit));
            }
            kernel->max_dynamic_shared = value;
            return cudaSuccess;
        }
        case cudaFuncAttributeNonPortableClusterSizeAllowed:
            kernel->non_portable_cluster = value != 0;
            return cudaSuccess;
        case cudaFuncAttributePreferredSharedMemoryCarveout:
            return cudaSuccess;  // a hint
        default:
            recorder().refuse(api, "kernel attribute " + std::to_string(attribute));
    }
}

}  // namespace ptxbench::record

using namespace ptxbench::record;

PTXBENCH_API void** __cudaRegisterFatBinary(void* binary) { return static_cast<void**>(binary); }

PTXBENCH_API void __cudaRegisterFatBinaryEnd(void**) {}

PTXBENCH_API void __cudaUnregisterFatBinary(void**) {}

PTXBENCH_API char __cudaInitModule(void**) { return 0; }

PTXBENCH_API void __cudaRegisterFunction(void**, const char* host_function, char*, const char* device_name, int, uint3*,
                                         uint3*, dim3*, dim3*, int*) {
    recorder().register_kernel(host_function, device_name);
}

PTXBENCH_API void __cudaRegisterVar(void**, char* host_variable, char*, const char* device_name, int, std::size_t bytes,
                                    int, int) {
    recorder().register_symbol(host_variable, device_name, bytes);
}

PTXBENCH_API void __cudaRegisterManagedVar(void**, void**, char*, const char* device_name, int, std::size_t, int, int) {
    recorder().refuse("__managed__", device_name);
}

PTXBENCH_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t dynamic_shared, void* stream) {
    call_configurations().push_back({grid, block, dynamic_shared, static_cast<cudaStream_t>(stream)});
    return 0;
}

PTXBENCH_API cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* dynamic_shared,
                                                    void* stream) {
    if (call_configurations().empty()) return cudaErrorMissingConfiguration;
    const CallConfiguration& top = call_configurations().back();
    *grid = top.grid;
    *block = top.block;
    *dynamic_shared = top.dynamic_shared;
    *static_cast<cudaStream_t*>(stream) = top.stream;
    call_configurations().pop_back();
    return cudaSuccess;
}

PTXBENCH_API cudaError_t __cudaGetKernel(cudaKernel_t* handle, const void* host_function) {
    *handle = reinterpret_cast<cudaKernel_t>(recorder().kernel(host_function));
    return *handle == nullptr ? cudaErrorInvalidDeviceFunction : cudaSuccess;
}

PTXBENCH_API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                                            std::size_t dynamic_shared, cudaStream_t stream) {
    return recorder().launch("<<<>>>", kernel, {.grid = grid, .block = block, .dynamic_shared = dynamic_shared},
                             arguments, stream);
}

PTXBENCH_API cudaError_t cudaGetKernel(cudaKernel_t* handle, const void* host_function) {
    return __cudaGetKernel(handle, host_function);
}

PTXBENCH_API cudaError_t cudaGetFuncBySymbol(cudaFunction_t* handle, const void* host_function) {
    *handle = reinterpret_cast<cudaFunction_t>(recorder().kernel(host_function));
    return *handle == nullptr ? cudaErrorInvalidDeviceFunction : cudaSuccess;
}

PTXBENCH_API cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                                          std::size_t dynamic_shared, cudaStream_t stream) {
    return recorder().launch("cudaLaunchKernel", function,
                             {.grid = grid, .block = block, .dynamic_shared = dynamic_shared}, arguments, stream);
}

PTXBENCH_API cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                                                     std::size_t dynamic_shared, cudaStream_t stream) {
    return recorder().launch(
        "cudaLaunchCooperativeKernel", function,
        {.grid = grid, .block = block, .dynamic_shared = dynamic_shared, .cooperative = true}, arguments, stream);
}

PTXBENCH_API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void** arguments) {
    if (config == nullptr) {
        return recorder().fail("cudaLaunchKernelExC", cudaErrorInvalidValue, "the configuration is null");
    }
    return recorder().launch("cudaLaunchKernelExC", function, shape_of(*config), arguments, config->stream);
}

PTXBENCH_API cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
    return set_kernel_attribute("cudaFuncSetAttribute", recorder().kernel(function), attribute, value);
}

PTXBENCH_API cudaError_t cudaFuncSetCacheConfig(const void*, cudaFuncCache) { return cudaSuccess; }

PTXBENCH_API cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
    const Kernel* kernel = recorder().kernel(function);
    if (kernel == nullptr) {
        return recorder().fail("cudaFuncGetAttributes", cudaErrorInvalidDeviceFunction,
                               "the function is no kernel of this source");
    }
    const int capability = static_cast<int>(10 * recorder().sheet["compute_major"] + recorder().sheet["compute_minor"]);
    *attributes = {};
    attributes->sharedSizeBytes = static_cast<std::size_t>(kernel->static_shared);
    attributes->localSizeBytes = static_cast<std::size_t>(kernel->local);
    attributes->maxThreadsPerBlock = kernel->max_threads;
    attributes->numRegs = kernel->registers;
    attributes->ptxVersion = attributes->binaryVersion = capability;
    attributes->maxDynamicSharedSizeBytes = max_dynamic_shared(*kernel);
    attributes->preferredShmemCarveout = -1;
    attributes->nonPortableClusterSizeAllowed = kernel->non_portable_cluster;
    return cudaSuccess;
}

PTXBENCH_API cudaError_t cudaFuncGetName(const char** name, const void* function) {
    const Kernel* kernel = recorder().kernel(function);
    if (kernel == nullptr || name == nullptr) {
        return recorder().fail("cudaFuncGetName", cudaErrorInvalidValue, "no such kernel");
    }
    *name = kernel->name.c_str();
    return cudaSuccess;
}
