// Launchers as people write them; each must become a plan.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <vector>

typedef __nv_bfloat16 bf16;
#define ARGUMENTS const bf16 *A, const bf16 *B, bf16 *C, int M, int N, int K, void *workspace, cudaStream_t stream
#define CHECK(call) do { cudaError_t e_ = (call); if (e_ != cudaSuccess) { fprintf(stderr, "%s\n", cudaGetErrorString(e_)); return (int)e_; } } while (0)

struct Parameters { const bf16 *a; char tag; double alpha; bf16 *c; int m; };
struct Maps { int count; CUtensorMap a, c; };

__constant__ CUtensorMap constant_map;
__device__ float table[64];
__device__ float *table_pointer;

__global__ void plain(const bf16 *a, const bf16 *b, bf16 *c, int m, int n, int k) {
    if (threadIdx.x < m) c[threadIdx.x] = a[threadIdx.x] + b[n] + (bf16)(float)k;
}
__global__ void by_struct(Parameters p) { if (threadIdx.x < p.m) p.c[threadIdx.x] = p.a[p.tag] * (bf16)(float)p.alpha; }
__global__ void with_map(const __grid_constant__ CUtensorMap map, bf16 *c) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map)); c[0] = c[1];
}
__global__ void with_maps(const __grid_constant__ Maps maps, bf16 *c) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&maps.a)); asm volatile("prefetch.tensormap [%0];" ::"l"(&maps.c)); c[0] = c[maps.count];
}
__global__ void with_constant_map(bf16 *c) { asm volatile("prefetch.tensormap [%0];" ::"l"(&constant_map)); c[0] = c[1]; }
__global__ void with_map_array(const CUtensorMap *maps, bf16 *c) { c[0] = ((const bf16 *)maps)[threadIdx.x]; }
__global__ void split(const bf16 *a, float *partial, int k) { partial[blockIdx.x] = (float)a[k]; }
__global__ void reduce(const float *partial, bf16 *c, int n) { c[threadIdx.x] = (bf16)partial[n]; }
__global__ void use_table(bf16 *c) { c[0] = (bf16)(table[threadIdx.x] + *table_pointer); }
__global__ void clustered(const bf16 *a, bf16 *c) { extern __shared__ float s[]; s[threadIdx.x] = (float)a[0]; c[0] = (bf16)s[0]; }
__global__ void __cluster_dims__(2, 1, 1) compiled_cluster(bf16 *c) { c[blockIdx.x] = c[0]; }
__global__ void whole_grid(bf16 *c) { c[0] = c[1]; }

typedef CUresult (*Encode)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                           const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static CUresult encode(CUtensorMap *map, const void *base, int rows, int columns) {
    static Encode function = nullptr;
    if (!function) {
        cudaDriverEntryPointQueryResult status;
        void *found = nullptr;
        if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &status)) return CUDA_ERROR_NOT_FOUND;
        function = (Encode)found;
    }
    cuuint64_t dims[2] = {(cuuint64_t)columns, (cuuint64_t)rows}, strides[1] = {(cuuint64_t)columns * 2};
    cuuint32_t box[2] = {64, 128}, steps[2] = {1, 1};
    return function(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void *)base, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                    CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

extern "C" size_t workspace_bytes(int M, int N, int K) { return (size_t)M * N * 4; }

extern "C" int launch(ARGUMENTS) {
    printf("launching\n");
    plain<<<dim3(M / 128, N / 128), 256, 1024, stream>>>(A, B, C + 5, M, N, K);
    return cudaGetLastError();
}

extern "C" int padded_struct(ARGUMENTS) {
    Parameters p;
    p.a = A + 3; p.tag = 'x'; p.alpha = 0.5; p.c = C; p.m = M;
    by_struct<<<1, 128, 0, stream>>>(p);
    return 0;
}

extern "C" int cluster_attribute(ARGUMENTS) {
    static bool ready = false;
    if (!ready) { CHECK(cudaFuncSetAttribute(clustered, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 * 1024)); ready = true; }
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(M / 64); config.blockDim = 128; config.dynamicSmemBytes = 200 * 1024; config.stream = stream;
    cudaLaunchAttribute attributes[2];
    attributes[0].id = cudaLaunchAttributeClusterDimension; attributes[0].val.clusterDim = {2, 1, 1};
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization; attributes[1].val.programmaticStreamSerializationAllowed = 1;
    config.attrs = attributes; config.numAttrs = 2;
    CHECK(cudaLaunchKernelEx(&config, clustered, A, C));
    return 0;
}

extern "C" int cluster_of_one(ARGUMENTS) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(M / 64); config.blockDim = 128; config.stream = stream;
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension; attribute.val.clusterDim = {1, 1, 1};
    config.attrs = &attribute; config.numAttrs = 1;
    CHECK(cudaLaunchKernelEx(&config, clustered, A, C));
    return 0;
}

extern "C" int cluster_compiled(ARGUMENTS) { compiled_cluster<<<4, 32, 0, stream>>>(C); return 0; }

extern "C" int cooperative(ARGUMENTS) {
    int blocks = 0; cudaDeviceProp properties;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, whole_grid, 256, 0));
    CHECK(cudaGetDeviceProperties(&properties, 0));
    void *arguments[] = {&C};
    CHECK(cudaLaunchCooperativeKernel((void *)whole_grid, dim3(blocks * properties.multiProcessorCount), dim3(256), arguments, 0, stream));
    return 0;
}

extern "C" int map_by_value(ARGUMENTS) {
    CUtensorMap map;
    if (CUresult error = encode(&map, A, M, K)) return error;
    with_map<<<1, 32, 0, stream>>>(map, C);
    return 0;
}

extern "C" int maps_in_struct(ARGUMENTS) {
    Maps maps;
    maps.count = N;
    if (encode(&maps.a, A, M, K) || encode(&maps.c, C, M, N)) return 1;
    with_maps<<<1, 32, 0, stream>>>(maps, C);
    return 0;
}

extern "C" int map_in_constant(ARGUMENTS) {
    CUtensorMap map;
    if (encode(&map, B, N, K)) return 1;
    CHECK(cudaMemcpyToSymbolAsync(constant_map, &map, sizeof map, 0, cudaMemcpyHostToDevice, stream));
    with_constant_map<<<1, 32, 0, stream>>>(C);
    return 0;
}

extern "C" int maps_in_workspace(ARGUMENTS) {
    static std::vector<CUtensorMap> maps(3);
    if (encode(&maps[0], A, M, K) || encode(&maps[1], B, N, K) || encode(&maps[2], C, M, N)) return 1;
    CHECK(cudaMemcpyAsync((char *)workspace + 1024, maps.data(), sizeof(CUtensorMap) * 3, cudaMemcpyHostToDevice, stream));
    with_map_array<<<1, 32, 0, stream>>>((const CUtensorMap *)((char *)workspace + 1024), C);
    return 0;
}

extern "C" int split_k(ARGUMENTS) {
    CHECK(cudaMemsetAsync(workspace, 0, (size_t)M * N * 4, stream));
    split<<<K / 64, 128, 0, stream>>>(A, (float *)workspace, K);
    reduce<<<M / 128, 128, 0, stream>>>((const float *)workspace, C, N);
    return cudaGetLastError();
}

extern "C" int fork_join(ARGUMENTS) {
    static cudaStream_t side = nullptr; static cudaEvent_t forked, joined;
    if (!side) {
        CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
        CHECK(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
        CHECK(cudaEventCreate(&joined));
    }
    split<<<1, 32, 0, stream>>>(A, (float *)workspace, 0);
    CHECK(cudaEventRecord(forked, stream));
    CHECK(cudaStreamWaitEvent(side, forked, 0));
    split<<<2, 32, 0, side>>>(B, (float *)workspace, 1);
    split<<<3, 32, 0, stream>>>(A, (float *)workspace, 2);
    CHECK(cudaEventRecord(joined, side));
    CHECK(cudaStreamWaitEvent(stream, joined, 0));
    reduce<<<1, 32, 0, stream>>>((const float *)workspace, C, 0);
    return 0;
}

extern "C" int kept_allocation(ARGUMENTS) {
    static float *partial = nullptr; static float *unused = nullptr;
    if (!partial) { CHECK(cudaMalloc(&unused, 4096)); CHECK(cudaMalloc(&partial, (size_t)M * N * 4)); }
    split<<<K / 64, 128, 0, stream>>>(A, partial + 16, K);
    reduce<<<M / 128, 128, 0, stream>>>(partial + 16, C, N);
    return 0;
}

extern "C" int fresh_allocation(ARGUMENTS) {
    float *partial = nullptr;
    CHECK(cudaMallocAsync(&partial, 1024, stream));
    split<<<1, 128, 0, stream>>>(A, partial, K);
    reduce<<<1, 128, 0, stream>>>(partial, C, N);
    CHECK(cudaFreeAsync(partial, stream));
    return 0;
}

extern "C" int symbols(ARGUMENTS) {
    float values[4] = {1, 2, 3, 4}; void *address = nullptr; size_t bytes = 0;
    CHECK(cudaMemcpyToSymbol(table, values, sizeof values, 16));
    CHECK(cudaGetSymbolAddress(&address, table));
    CHECK(cudaGetSymbolSize(&bytes, table));
    float *second = (float *)address + 1;
    CHECK(cudaMemcpyToSymbolAsync(table_pointer, &second, sizeof second, 0, cudaMemcpyHostToDevice, stream));
    use_table<<<1, (int)bytes / 8, 0, stream>>>(C);
    return 0;
}

extern "C" int default_stream(ARGUMENTS) {
    split<<<1, 32, 0, stream>>>(A, (float *)workspace, 0);
    split<<<1, 32>>>(A, (float *)workspace, 1);
    reduce<<<1, 32, 0, stream>>>((const float *)workspace, C, 0);
    return 0;
}

extern "C" int host_waits(ARGUMENTS) {
    cudaStream_t side;
    CHECK(cudaStreamCreate(&side));
    CHECK(cudaStreamSynchronize(stream));
    split<<<1, 32, 0, side>>>(A, (float *)workspace, 0);
    CHECK(cudaDeviceSynchronize());
    reduce<<<1, 32, 0, stream>>>((const float *)workspace, C, 0);
    CHECK(cudaStreamDestroy(side));
    return 0;
}

extern "C" int driver_launch(ARGUMENTS) {
    cudaFunction_t function;
    CHECK(cudaGetFuncBySymbol(&function, (const void *)plain));
    const bf16 *a = A; void *arguments[] = {&a, &B, &C, &M, &N, &K};
    return cuLaunchKernel(function, 1, 2, 3, 32, 1, 1, 0, stream, arguments, nullptr);
}

extern "C" int end_pointer(ARGUMENTS) {
    plain<<<1, 32, 0, stream>>>(A + (size_t)M * K, B - 8, C, M, N, K);
    return 0;
}

extern "C" int waits_after_each(ARGUMENTS) {
    static cudaStream_t side = nullptr;
    if (!side) CHECK(cudaStreamCreate(&side));
    for (int i = 0; i < 3; ++i) {
        CHECK(cudaStreamSynchronize(stream));
        split<<<1, 32, 0, side>>>(A, (float *)workspace, i);
        CHECK(cudaStreamSynchronize(side));
        split<<<1, 32, 0, stream>>>(A, (float *)workspace, i);
    }
    return 0;
}
