// The driver API: tensor maps, entry points by name, and the calls that have a counterpart in the runtime API.

#include <dlfcn.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "device.hpp"
#include "launch_api.hpp"

using namespace ptxbench::record;

namespace {

CUresult as_driver(cudaError_t error) { return static_cast<CUresult>(error); }

template <typename T>
std::vector<std::int64_t> copied(const T* values, unsigned count) {
    return std::vector<std::int64_t>(values, values + count);
}

CUresult invalid(const char* api, const char* why) {
    return as_driver(recorder().fail(api, cudaErrorInvalidValue, why));
}

constexpr const char* kMisplaced = "the tensor map must lie at a multiple of 64 bytes";

bool is_misplaced(const CUtensorMap* map) { return map == nullptr || address_of(map) % 64 != 0; }

// What the encoders share. Whether the values are allowed is judged by the reader of the recording.
JsonObject map_record(const char* mode, CUtensorMapDataType type, unsigned rank, const cuuint64_t* dims,
                      const cuuint64_t* strides, const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                      CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
    JsonObject record;
    record.text("mode", mode).integer("dtype", type).numbers("dims", copied(dims, rank));
    record.numbers("strides", copied(strides, rank - 1)).numbers("element_strides", copied(element_strides, rank));
    record.integer("interleave", interleave).integer("swizzle", swizzle);
    return record.integer("l2_promotion", promotion).integer("oob_fill", fill);
}

void* entry_point(const char* name) {
    const std::string_view wanted = name;
    if (!wanted.starts_with("cu") || wanted.starts_with("cuda")) return nullptr;
    // The newest version of an entry point carries a suffix that its callers do not write.
    void* versioned = dlsym(RTLD_DEFAULT, (std::string(wanted) + "_v2").c_str());
    return versioned != nullptr ? versioned : dlsym(RTLD_DEFAULT, name);
}

void* entry_point_or_refuse(const char* name) {
    void* found = name == nullptr ? nullptr : entry_point(name);
    if (found == nullptr) recorder().refuse(name == nullptr ? "null" : name, "asked for as a driver entry point");
    return found;
}

LaunchShape shape_of(const CUlaunchConfig& config) {
    LaunchShape shape;
    shape.grid = dim3(config.gridDimX, config.gridDimY, config.gridDimZ);
    shape.block = dim3(config.blockDimX, config.blockDimY, config.blockDimZ);
    shape.dynamic_shared = config.sharedMemBytes;
    for (unsigned i = 0; i < config.numAttrs; ++i) {
        // The two APIs share identifiers and layout of launch attributes.
        cudaLaunchAttribute attribute{};
        static_assert(sizeof attribute == sizeof config.attrs[i]);
        std::memcpy(&attribute, &config.attrs[i], sizeof attribute);
        if (!apply_launch_attribute(shape, attribute)) {
            recorder().refuse("cuLaunchKernelEx", launch_attribute_name(attribute.id));
        }
    }
    return shape;
}

Kernel* kernel_of(const void* handle) { return recorder().kernel(handle); }

void* device_pointer(CUdeviceptr address) { return pointer_to(address); }

}  // namespace

PTXBENCH_API CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* base,
                                             const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
                                             const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                                             CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                             CUtensorMapFloatOOBfill fill) {
    const char* api = "cuTensorMapEncodeTiled";
    if (is_misplaced(map)) return invalid(api, kMisplaced);
    if (rank < 1 || rank > 5) return invalid(api, "the rank must be 1 to 5");
    if (!dims || (rank > 1 && !strides) || !box || !element_strides) return invalid(api, "an array is null");
    JsonObject record =
        map_record("tiled", type, rank, dims, strides, element_strides, interleave, swizzle, promotion, fill);
    record.numbers("box", copied(box, rank));
    recorder().add_tensor_map(*map, record, address_of(base));
    return CUDA_SUCCESS;
}

PTXBENCH_API CUresult cuTensorMapEncodeIm2col(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* base,
                                              const cuuint64_t* dims, const cuuint64_t* strides, const int* lower,
                                              const int* upper, cuuint32_t channels, cuuint32_t pixels,
                                              const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                                              CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                              CUtensorMapFloatOOBfill fill) {
    const char* api = "cuTensorMapEncodeIm2col";
    if (is_misplaced(map)) return invalid(api, kMisplaced);
    if (rank < 3 || rank > 5) return invalid(api, "the rank must be 3 to 5");
    if (!dims || !strides || !lower || !upper || !element_strides) return invalid(api, "an array is null");
    JsonObject record =
        map_record("im2col", type, rank, dims, strides, element_strides, interleave, swizzle, promotion, fill);
    record.numbers("box", std::vector<std::int64_t>{channels, pixels});
    record.numbers("lower_corner", copied(lower, rank - 2)).numbers("upper_corner", copied(upper, rank - 2));
    recorder().add_tensor_map(*map, record, address_of(base));
    return CUDA_SUCCESS;
}

PTXBENCH_API CUresult cuTensorMapEncodeIm2colWide(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                                  void* base, const cuuint64_t* dims, const cuuint64_t* strides,
                                                  int lower, int upper, cuuint32_t channels, cuuint32_t pixels,
                                                  const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                                                  CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle,
                                                  CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
    const char* api = "cuTensorMapEncodeIm2colWide";
    if (device_attribute(cudaDevAttrComputeCapabilityMajor).value_or(0) < 10) return invalid(api, "it needs a device of compute capability 10.0 or higher");
    if (is_misplaced(map)) return invalid(api, kMisplaced);
    if (rank < 3 || rank > 5) return invalid(api, "the rank must be 3 to 5");
    if (!dims || !strides || !element_strides) return invalid(api, "an array is null");
    if (mode != CU_TENSOR_MAP_IM2COL_WIDE_MODE_W && mode != CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128) {
        return invalid(api, "the mode must be W or W128");
    }
    JsonObject record = map_record(mode == CU_TENSOR_MAP_IM2COL_WIDE_MODE_W ? "im2col_w" : "im2col_w128", type, rank,
                                   dims, strides, element_strides, interleave, swizzle, promotion, fill);
    record.numbers("box", std::vector<std::int64_t>{channels, pixels});
    record.numbers("lower_corner", std::vector<std::int64_t>{lower});
    record.numbers("upper_corner", std::vector<std::int64_t>{upper});
    recorder().add_tensor_map(*map, record, address_of(base));
    return CUDA_SUCCESS;
}

PTXBENCH_API CUresult cuTensorMapReplaceAddress(CUtensorMap* map, void* base) {
    if (map == nullptr || !recorder().replace_map_address(*map, address_of(base))) {
        return invalid("cuTensorMapReplaceAddress", "the object holds no tensor map");
    }
    return CUDA_SUCCESS;
}

PTXBENCH_API CUresult cuGetProcAddress_v2(const char* name, void** function, int, cuuint64_t,
                                          CUdriverProcAddressQueryResult* status) {
    *function = entry_point_or_refuse(name);
    if (status != nullptr) *status = CU_GET_PROC_ADDRESS_SUCCESS;
    return CUDA_SUCCESS;
}

PTXBENCH_API cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                                          unsigned long long, cudaDriverEntryPointQueryResult* status) {
    *function = entry_point_or_refuse(name);
    if (status != nullptr) *status = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}

PTXBENCH_API cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long flags,
                                                 cudaDriverEntryPointQueryResult* status) {
    return cudaGetDriverEntryPointByVersion(name, function, CUDART_VERSION, flags, status);
}

PTXBENCH_API CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                     unsigned block_x, unsigned block_y, unsigned block_z, unsigned dynamic_shared,
                                     CUstream stream, void** arguments, void** extra) {
    if (extra != nullptr) recorder().refuse("cuLaunchKernel", "arguments passed through extra");
    const LaunchShape shape{.grid = dim3(grid_x, grid_y, grid_z),
                            .block = dim3(block_x, block_y, block_z),
                            .dynamic_shared = dynamic_shared};
    return as_driver(recorder().launch("cuLaunchKernel", function, shape, arguments, stream));
}

PTXBENCH_API CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** arguments,
                                       void** extra) {
    if (extra != nullptr) recorder().refuse("cuLaunchKernelEx", "arguments passed through extra");
    if (config == nullptr) return invalid("cuLaunchKernelEx", "the configuration is null");
    return as_driver(recorder().launch("cuLaunchKernelEx", function, shape_of(*config), arguments, config->hStream));
}

PTXBENCH_API CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                                unsigned block_x, unsigned block_y, unsigned block_z,
                                                unsigned dynamic_shared, CUstream stream, void** arguments) {
    const LaunchShape shape{.grid = dim3(grid_x, grid_y, grid_z),
                            .block = dim3(block_x, block_y, block_z),
                            .dynamic_shared = dynamic_shared,
                            .cooperative = true};
    return as_driver(recorder().launch("cuLaunchCooperativeKernel", function, shape, arguments, stream));
}

PTXBENCH_API CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    return as_driver(set_kernel_attribute("cuFuncSetAttribute", kernel_of(function), attribute, value));
}

PTXBENCH_API CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice) {
    return as_driver(set_kernel_attribute("cuKernelSetAttribute", kernel_of(kernel), attribute, value));
}

PTXBENCH_API CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
    *function = reinterpret_cast<CUfunction>(kernel_of(kernel));
    return *function == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

PTXBENCH_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int block_threads,
                                                                  std::size_t dynamic_shared) {
    return as_driver(cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, block_threads, dynamic_shared));
}

PTXBENCH_API CUresult cuInit(unsigned) { return CUDA_SUCCESS; }

PTXBENCH_API CUresult cuDriverGetVersion(int* version) { return as_driver(cudaDriverGetVersion(version)); }

PTXBENCH_API CUresult cuDeviceGetCount(int* count) { return as_driver(cudaGetDeviceCount(count)); }

PTXBENCH_API CUresult cuDeviceGet(CUdevice* device, int ordinal) {
    *device = 0;
    return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

PTXBENCH_API CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
    return as_driver(cudaDeviceGetAttribute(value, static_cast<cudaDeviceAttr>(attribute), device));
}

PTXBENCH_API CUresult cuCtxGetDevice(CUdevice* device) { return cuDeviceGet(device, 0); }

PTXBENCH_API CUresult cuCtxSynchronize(void) { return as_driver(cudaDeviceSynchronize()); }

PTXBENCH_API CUresult cuMemAlloc_v2(CUdeviceptr* address, std::size_t bytes) {
    return as_driver(recorder().allocate("cuMemAlloc", reinterpret_cast<void**>(address), bytes));
}

PTXBENCH_API CUresult cuMemAllocAsync(CUdeviceptr* address, std::size_t bytes, CUstream) {
    return cuMemAlloc_v2(address, bytes);
}

PTXBENCH_API CUresult cuMemFree_v2(CUdeviceptr address) {
    return as_driver(recorder().release("cuMemFree", device_pointer(address)));
}

PTXBENCH_API CUresult cuMemFreeAsync(CUdeviceptr address, CUstream) { return cuMemFree_v2(address); }

PTXBENCH_API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t count, CUstream stream) {
    return as_driver(recorder().fill("cuMemsetD8Async", to, value, 1, count, stream));
}

PTXBENCH_API CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, std::size_t count, CUstream stream) {
    return as_driver(recorder().fill("cuMemsetD16Async", to, value, 2, count, stream));
}

PTXBENCH_API CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, std::size_t count, CUstream stream) {
    return as_driver(recorder().fill("cuMemsetD32Async", to, value, 4, count, stream));
}

PTXBENCH_API CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, std::size_t count) {
    return cuMemsetD8Async(to, value, count, nullptr);
}

PTXBENCH_API CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, std::size_t count) {
    return cuMemsetD16Async(to, value, count, nullptr);
}

PTXBENCH_API CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, std::size_t count) {
    return cuMemsetD32Async(to, value, count, nullptr);
}

PTXBENCH_API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
    return as_driver(
        recorder().copy("cuMemcpyHtoDAsync", device_pointer(to), from, bytes, cudaMemcpyHostToDevice, stream));
}

PTXBENCH_API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, std::size_t bytes) {
    return cuMemcpyHtoDAsync_v2(to, from, bytes, nullptr);
}

PTXBENCH_API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
    return as_driver(recorder().copy("cuMemcpyDtoDAsync", device_pointer(to), device_pointer(from), bytes,
                                     cudaMemcpyDeviceToDevice, stream));
}

PTXBENCH_API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
    return cuMemcpyDtoDAsync_v2(to, from, bytes, nullptr);
}

PTXBENCH_API CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    return as_driver(cudaStreamWaitEvent(stream, event, flags));
}

PTXBENCH_API CUresult cuStreamSynchronize(CUstream stream) { return as_driver(cudaStreamSynchronize(stream)); }

PTXBENCH_API CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
    return as_driver(cudaStreamCreateWithFlags(stream, flags));
}

PTXBENCH_API CUresult cuStreamDestroy_v2(CUstream stream) { return as_driver(cudaStreamDestroy(stream)); }

PTXBENCH_API CUresult cuEventCreate(CUevent* event, unsigned flags) {
    return as_driver(cudaEventCreateWithFlags(event, flags));
}

PTXBENCH_API CUresult cuEventRecord(CUevent event, CUstream stream) {
    return as_driver(cudaEventRecord(event, stream));
}

PTXBENCH_API CUresult cuEventDestroy_v2(CUevent event) { return as_driver(cudaEventDestroy(event)); }
