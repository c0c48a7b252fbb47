// Device properties, attributes, versions and occupancy.

#include "device.hpp"

#include <cuda_occupancy.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "launch_api.hpp"

namespace ptxbench::record {

namespace {

constexpr int kSharedReservedPerBlock = 1024;
constexpr int kMaxBlocksPerMultiprocessor = 32;
constexpr int kWarpSize = 32;

int figure(std::string_view name) { return static_cast<int>(recorder().sheet.find(name)->second); }

}  // namespace

std::optional<int> device_attribute(int attribute) {
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock: return figure("max_threads_per_block");
        case cudaDevAttrMaxBlockDimX:
        case cudaDevAttrMaxBlockDimY: return 1024;
        case cudaDevAttrMaxBlockDimZ: return 64;
        case cudaDevAttrMaxGridDimX: return 0x7fffffff;
        case cudaDevAttrMaxGridDimY:
        case cudaDevAttrMaxGridDimZ: return 65535;
        case cudaDevAttrMaxSharedMemoryPerBlock: return kDefaultSharedBytes;
        case cudaDevAttrTotalConstantMemory: return 65536;
        case cudaDevAttrWarpSize: return kWarpSize;
        case cudaDevAttrMaxPitch: return 0x7fffffff;
        case cudaDevAttrMaxRegistersPerBlock:
        case cudaDevAttrMaxRegistersPerMultiprocessor: return figure("registers_per_sm");
        case cudaDevAttrClockRate: return 1000 * figure("max_clock_mhz");
        case cudaDevAttrMultiProcessorCount: return figure("sm_count");
        case cudaDevAttrL2CacheSize: return figure("l2_bytes");
        case cudaDevAttrMaxThreadsPerMultiProcessor: return figure("max_threads_per_sm");
        case cudaDevAttrComputeCapabilityMajor: return figure("compute_major");
        case cudaDevAttrComputeCapabilityMinor: return figure("compute_minor");
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return figure("shared_bytes_per_sm");
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: return figure("shared_bytes_per_block_optin");
        case cudaDevAttrReservedSharedMemoryPerBlock: return kSharedReservedPerBlock;
        case cudaDevAttrMaxBlocksPerMultiprocessor: return kMaxBlocksPerMultiprocessor;
        case cudaDevAttrConcurrentKernels:
        case cudaDevAttrUnifiedAddressing:
        case cudaDevAttrStreamPrioritiesSupported:
        case cudaDevAttrGlobalL1CacheSupported:
        case cudaDevAttrLocalL1CacheSupported:
        case cudaDevAttrCooperativeLaunch:
        case cudaDevAttrMemoryPoolsSupported:
        case cudaDevAttrClusterLaunch:
        case CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED: return 1;
        case cudaDevAttrKernelExecTimeout:
        case cudaDevAttrIntegrated:
        case cudaDevAttrComputeMode:
        case cudaDevAttrManagedMemory: return 0;
        default: return std::nullopt;
    }
}

int resident_blocks(const Kernel& kernel, int block_threads, std::size_t dynamic_shared) {
    cudaOccDeviceProp device;
    device.computeMajor = figure("compute_major");
    device.computeMinor = figure("compute_minor");
    device.maxThreadsPerBlock = figure("max_threads_per_block");
    device.maxThreadsPerMultiprocessor = figure("max_threads_per_sm");
    device.regsPerBlock = device.regsPerMultiprocessor = figure("registers_per_sm");
    device.warpSize = kWarpSize;
    device.sharedMemPerBlock = kDefaultSharedBytes;
    device.sharedMemPerMultiprocessor = static_cast<std::size_t>(figure("shared_bytes_per_sm"));
    device.numSms = figure("sm_count");
    device.sharedMemPerBlockOptin = static_cast<std::size_t>(figure("shared_bytes_per_block_optin"));
    device.reservedSharedMemPerBlock = kSharedReservedPerBlock;
    cudaOccFuncAttributes function;
    function.maxThreadsPerBlock = kernel.max_threads;
    function.numRegs = kernel.registers;
    function.sharedSizeBytes = static_cast<std::size_t>(kernel.static_shared);
    function.partitionedGCConfig = PARTITIONED_GC_OFF;
    function.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    function.maxDynamicSharedSizeBytes = static_cast<std::size_t>(max_dynamic_shared(kernel));
    function.numBlockBarriers = 1;
    const cudaOccDeviceState state;
    cudaOccResult result;
    const cudaOccError error =
        cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &function, &state, block_threads, dynamic_shared);
    return error == CUDA_OCC_SUCCESS ? result.activeBlocksPerMultiprocessor : 0;
}

}  // namespace ptxbench::record

using namespace ptxbench::record;

namespace {

int threads(const dim3& block) { return static_cast<int>(block.x * block.y * block.z); }

cudaError_t no_kernel(const char* api) {
    return recorder().fail(api, cudaErrorInvalidDeviceFunction, "the function is no kernel of this source");
}

cudaError_t no_device(const char* api) {
    return recorder().fail(api, cudaErrorInvalidDevice, "there is one device, number 0");
}

}  // namespace

PTXBENCH_API cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}

PTXBENCH_API cudaError_t cudaGetDeviceCount(int* count) {
    *count = 1;
    return cudaSuccess;
}

PTXBENCH_API cudaError_t cudaSetDevice(int device) {
    return device == 0 ? cudaSuccess : no_device("cudaSetDevice");
}

PTXBENCH_API cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }

PTXBENCH_API cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    if (device != 0) return no_device("cudaDeviceGetAttribute");
    const std::optional<int> known = device_attribute(attribute);
    if (!known) recorder().refuse("cudaDeviceGetAttribute", "attribute " + std::to_string(attribute));
    *value = *known;
    return cudaSuccess;
}

PTXBENCH_API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    if (device != 0) return no_device("cudaGetDeviceProperties");
    const auto value = [](int attribute) { return device_attribute(attribute).value_or(0); };
    *properties = {};
    recorder().device_name.copy(properties->name, sizeof properties->name - 1);
    properties->totalGlobalMem = static_cast<std::size_t>(recorder().sheet["memory_bytes"]);
    properties->sharedMemPerBlock = static_cast<std::size_t>(value(cudaDevAttrMaxSharedMemoryPerBlock));
    properties->sharedMemPerBlockOptin = static_cast<std::size_t>(value(cudaDevAttrMaxSharedMemoryPerBlockOptin));
    properties->sharedMemPerMultiprocessor =
        static_cast<std::size_t>(value(cudaDevAttrMaxSharedMemoryPerMultiprocessor));
    properties->reservedSharedMemPerBlock = static_cast<std::size_t>(value(cudaDevAttrReservedSharedMemoryPerBlock));
    properties->regsPerBlock = value(cudaDevAttrMaxRegistersPerBlock);
    properties->regsPerMultiprocessor = value(cudaDevAttrMaxRegistersPerMultiprocessor);
    properties->warpSize = value(cudaDevAttrWarpSize);
    properties->memPitch = static_cast<std::size_t>(value(cudaDevAttrMaxPitch));
    properties->maxThreadsPerBlock = value(cudaDevAttrMaxThreadsPerBlock);
    properties->maxThreadsPerMultiProcessor = value(cudaDevAttrMaxThreadsPerMultiProcessor);
    properties->maxBlocksPerMultiProcessor = value(cudaDevAttrMaxBlocksPerMultiprocessor);
    for (int axis = 0; axis < 3; ++axis) {
        properties->maxThreadsDim[axis] = value(cudaDevAttrMaxBlockDimX + axis);
        properties->maxGridSize[axis] = value(cudaDevAttrMaxGridDimX + axis);
    }
    properties->totalConstMem = static_cast<std::size_t>(value(cudaDevAttrTotalConstantMemory));
    properties->major = value(cudaDevAttrComputeCapabilityMajor);
    properties->minor = value(cudaDevAttrComputeCapabilityMinor);
    properties->multiProcessorCount = value(cudaDevAttrMultiProcessorCount);
    properties->l2CacheSize = value(cudaDevAttrL2CacheSize);
    properties->concurrentKernels = properties->unifiedAddressing = properties->cooperativeLaunch = 1;
    properties->streamPrioritiesSupported = properties->clusterLaunch = properties->memoryPoolsSupported = 1;
    properties->globalL1CacheSupported = properties->localL1CacheSupported = 1;
    return cudaSuccess;
}

PTXBENCH_API cudaError_t cudaDriverGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

PTXBENCH_API cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }

PTXBENCH_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function,
                                                                                int block_threads,
                                                                                std::size_t dynamic_shared, unsigned) {
    const Kernel* kernel = recorder().kernel(function);
    if (kernel == nullptr) return no_kernel("cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    *blocks = resident_blocks(*kernel, block_threads, dynamic_shared);
    return cudaSuccess;
}

PTXBENCH_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function,
                                                                       int block_threads, std::size_t dynamic_shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_threads, dynamic_shared, 0);
}

PTXBENCH_API cudaError_t cudaOccupancyMaxPotentialClusterSize(int* cluster_size, const void* function,
                                                              const cudaLaunchConfig_t* config) {
    const Kernel* kernel = recorder().kernel(function);
    if (kernel == nullptr) return no_kernel("cudaOccupancyMaxPotentialClusterSize");
    const bool fits = resident_blocks(*kernel, threads(config->blockDim), config->dynamicSmemBytes) > 0;
    *cluster_size = fits ? max_cluster_size(*kernel) : 0;
    return cudaSuccess;
}

// How multiprocessors are grouped is no public figure, so this is the bound from their number alone; a device may hold
// a little less at once.
PTXBENCH_API cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void* function,
                                                        const cudaLaunchConfig_t* config) {
    const Kernel* kernel = recorder().kernel(function);
    if (kernel == nullptr) return no_kernel("cudaOccupancyMaxActiveClusters");
    const LaunchShape shape = shape_of(*config);
    const int size = std::max(1, threads(shape.cluster));
    if (size > max_cluster_size(*kernel)) {
        return recorder().fail("cudaOccupancyMaxActiveClusters", cudaErrorInvalidClusterSize,
                               "the cluster is too large");
    }
    const int blocks = resident_blocks(*kernel, threads(shape.block), shape.dynamic_shared);
    *clusters = blocks * static_cast<int>(recorder().sheet["sm_count"]) / size;
    return cudaSuccess;
}
