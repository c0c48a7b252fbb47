// Launchers that must not become a plan; each for one reason.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

// What the headers of the system, which are not offered, would declare.
extern "C" long syscall(long number, ...);
extern "C" long write(int descriptor, const void *data, size_t bytes);
extern "C" int close(int descriptor);
extern "C" int pause();
constexpr long SYS_fork = 57;

typedef __nv_bfloat16 bf16;
#define ARGUMENTS const bf16 *A, const bf16 *B, bf16 *C, int M, int N, int K, void *workspace, cudaStream_t stream
#define LAUNCHER(name) extern "C" int name(ARGUMENTS)

__constant__ CUtensorMap constant_map;
__device__ float table[16];

__global__ void kernel(const bf16 *a, bf16 *c, int n) { c[0] = a[n]; }
__global__ void __launch_bounds__(128) bounded(bf16 *c) { c[0] = c[1]; }
__global__ void static_tile(bf16 *c) { __shared__ bf16 tile[65536]; tile[threadIdx.x] = c[1]; __syncthreads(); c[0] = tile[threadIdx.x ^ 1]; }
__global__ void __cluster_dims__(2, 1, 1) compiled_cluster(bf16 *c) { c[0] = c[1]; }
__global__ void with_map(const __grid_constant__ CUtensorMap map, bf16 *c) { asm volatile("prefetch.tensormap [%0];" ::"l"(&map)); c[0] = c[1]; }
__global__ void use_table(bf16 *c) { asm volatile("prefetch.tensormap [%0];" ::"l"(&constant_map)); c[0] = (bf16)table[threadIdx.x]; }

struct MapArguments {
    CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    cuuint64_t dims[2], strides[1];
    cuuint32_t box[2] = {64, 64}, steps[2] = {1, 1};
    CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
    CUtensorMapFloatOOBfill fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
    MapArguments(int rows, int columns) : dims{(cuuint64_t)columns, (cuuint64_t)rows}, strides{(cuuint64_t)columns * 2} {}
    CUresult encode(CUtensorMap *map, const void *base) const {
        return cuTensorMapEncodeTiled(map, type, 2, (void *)base, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                                      CU_TENSOR_MAP_L2_PROMOTION_NONE, fill);
    }
    int launch_on(const void *base, bf16 *c, cudaStream_t stream) const {
        CUtensorMap map;
        CUresult error = encode(&map, base);
        with_map<<<1, 32, 0, stream>>>(map, c);
        return error;
    }
};

static int launch_ex(cudaLaunchAttribute attribute, dim3 grid, const bf16 *a, bf16 *c, cudaStream_t stream) {
    cudaLaunchConfig_t config = {};
    config.gridDim = grid; config.blockDim = 32; config.stream = stream; config.attrs = &attribute; config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, a, c, 1);
}
static cudaLaunchAttribute cluster_of(unsigned size) {
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension; attribute.val.clusterDim = {size, 1, 1};
    return attribute;
}

LAUNCHER(launch) { kernel<<<1, 32, 0, stream>>>(A, C, N); return 0; }

// Not a function of the sizes.
LAUNCHER(counts_calls) { static int calls = 0; kernel<<<++calls, 32, 0, stream>>>(A, C, N); return 0; }
LAUNCHER(counts_in_argument) { static int calls = 0; kernel<<<1, 32, 0, stream>>>(A, C, ++calls); return 0; }
LAUNCHER(works_once) { static bool done = false; if (!done) kernel<<<1, 32, 0, stream>>>(A, C, N); done = true; kernel<<<2, 32, 0, stream>>>(A, C, N); return 0; }
LAUNCHER(looks_at_pointer) { kernel<<<(uintptr_t)A % 512 ? 1 : 2, 32, 0, stream>>>(A, C, N); return 0; }
LAUNCHER(looks_at_process) { kernel<<<1, 32, 0, stream>>>(A, C, (int)((uintptr_t)&stream >> 12)); return 0; }
LAUNCHER(passes_host_pointer) { static float host[4]; kernel<<<1, 32, 0, stream>>>((const bf16 *)host, C, N); return 0; }
LAUNCHER(copies_once) {
    static bool done = false; float values[4] = {1, 2, 3, 4};
    if (!done) cudaMemcpyToSymbolAsync(table, values, sizeof values, 0, cudaMemcpyHostToDevice, stream);
    done = true; use_table<<<1, 4, 0, stream>>>(C); return 0;
}
LAUNCHER(keeps_map) {
    static CUtensorMap map; static bool done = false;
    if (!done) MapArguments(M, K).encode(&map, A);
    done = true; with_map<<<1, 32, 0, stream>>>(map, C); return 0;
}
LAUNCHER(keeps_pointer) { static const bf16 *kept = A; kernel<<<1, 32, 0, stream>>>(kept, C, N); return 0; }
LAUNCHER(launches_nothing) { return 0; }
LAUNCHER(only_fills) { return cudaMemsetAsync(C, 0, 16, stream); }

// Impossible launches.
LAUNCHER(too_much_shared) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 300 * 1024);
    kernel<<<1, 32, 300 * 1024, stream>>>(A, C, N); return 0;
}
LAUNCHER(checks_shared) { return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 300 * 1024); }
LAUNCHER(forgets_attribute) { kernel<<<1, 32, 64 * 1024, stream>>>(A, C, N); return 0; }
LAUNCHER(large_static) { static_tile<<<1, 32, 0, stream>>>(C); return 0; }
LAUNCHER(block_too_large) { kernel<<<1, 2048, 0, stream>>>(A, C, N); return 0; }
LAUNCHER(beyond_bounds) { bounded<<<1, 256, 0, stream>>>(C); return 0; }
LAUNCHER(empty_grid) { kernel<<<dim3(1, 0), 32, 0, stream>>>(A, C, N); return 0; }
LAUNCHER(grid_no_multiple) { return launch_ex(cluster_of(4), dim3(6), A, C, stream); }
LAUNCHER(cluster_too_large) { return launch_ex(cluster_of(32), dim3(32), A, C, stream); }
LAUNCHER(cluster_not_portable) { return launch_ex(cluster_of(16), dim3(32), A, C, stream); }
LAUNCHER(compiled_grid) { compiled_cluster<<<3, 32, 0, stream>>>(C); return 0; }
LAUNCHER(uses_freed) { void *p; cudaMalloc(&p, 64); cudaFree(p); kernel<<<1, 32, 0, stream>>>((bf16 *)p, C, N); return 0; }
LAUNCHER(allocates_too_much) { void *p = nullptr; cudaMalloc(&p, 1ull << 40); kernel<<<1, 32, 0, stream>>>((bf16 *)p, C, N); return 0; }
LAUNCHER(fills_beyond) { cudaMemsetAsync(C, 0, (size_t)M * N * 4, stream); kernel<<<1, 32, 0, stream>>>(A, C, N); return 0; }
LAUNCHER(fills_input) { cudaMemsetAsync((void *)A, 0, 16, stream); kernel<<<1, 32, 0, stream>>>(A, C, N); return 0; }
LAUNCHER(copies_beyond_symbol) { float v[32] = {}; cudaMemcpyToSymbolAsync(table, v, sizeof v, 0, cudaMemcpyHostToDevice, stream); use_table<<<1, 1, 0, stream>>>(C); return 0; }
LAUNCHER(cooperative_too_large) { int n = 1; void *arguments[] = {&A, &C, &n}; return cudaLaunchCooperativeKernel((void *)kernel, dim3(100000), dim3(1024), arguments, 0, stream); }

// Tensor maps.
LAUNCHER(map_swizzle) { MapArguments m(M, K); m.box[0] = 128; return m.launch_on(A, C, stream); }
LAUNCHER(map_stride) { MapArguments m(M, K); m.strides[0] = K * 2 + 2; return m.launch_on(A, C, stream); }
LAUNCHER(map_address) { return MapArguments(M, K).launch_on(A + 1, C, stream); }
LAUNCHER(map_box) { MapArguments m(M, K); m.box[1] = 512; return m.launch_on(A, C, stream); }
LAUNCHER(map_inner_box) { MapArguments m(M, K); m.box[0] = 4; return m.launch_on(A, C, stream); }
LAUNCHER(map_fill) { MapArguments m(M, K); m.type = CU_TENSOR_MAP_DATA_TYPE_UINT16; m.fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA; return m.launch_on(A, C, stream); }
LAUNCHER(map_beyond) { return MapArguments(M + 1, K).launch_on(A, C, stream); }
LAUNCHER(map_offset_beyond) { return MapArguments(M, K).launch_on(A + 8, C, stream); }
LAUNCHER(map_nowhere) { return MapArguments(M, K).launch_on(nullptr, C, stream); }
LAUNCHER(map_unaligned_object) { alignas(64) char space[256]; return MapArguments(M, K).encode((CUtensorMap *)(space + 16), A); }
LAUNCHER(map_changed) {
    CUtensorMap map; MapArguments(M, K).encode(&map, A); map.opaque[5] = 1;
    with_map<<<1, 32, 0, stream>>>(map, C); return 0;
}

// Streams.
LAUNCHER(never_joined) {
    cudaStream_t side; cudaEvent_t event; cudaStreamCreate(&side); cudaEventCreate(&event);
    cudaEventRecord(event, stream); cudaStreamWaitEvent(side, event, 0);
    kernel<<<1, 32, 0, side>>>(A, C, N); return 0;
}
LAUNCHER(never_forked) { cudaStream_t side; cudaStreamCreate(&side); kernel<<<1, 32, 0, side>>>(A, C, N); cudaStreamSynchronize(side); return 0; }
LAUNCHER(wild_stream) { kernel<<<1, 32, 0, (cudaStream_t)0x1234>>>(A, C, N); return 0; }

// Unsupported calls.
LAUNCHER(reads_device) { bf16 value; cudaMemcpyAsync(&value, A, 2, cudaMemcpyDeviceToHost, stream); kernel<<<1, 32, 0, stream>>>(A, C, N); return 0; }
LAUNCHER(reads_default) { bf16 value; cudaMemcpy(&value, A, 2, cudaMemcpyDefault); kernel<<<1, 32, 0, stream>>>(A, C, N); return 0; }
LAUNCHER(dereferences) { kernel<<<1, 32, 0, stream>>>(A, C, *(const short *)A); return 0; }
LAUNCHER(asks_entry_point) {
    void *found; cudaDriverEntryPointQueryResult status;
    cudaGetDriverEntryPointByVersion("cuModuleLoadData", &found, 12000, cudaEnableDefault, &status);
    kernel<<<1, 32, 0, stream>>>(A, C, N); return 0;
}
LAUNCHER(access_policy) { cudaLaunchAttribute a = {}; a.id = cudaLaunchAttributeAccessPolicyWindow; return launch_ex(a, dim3(1), A, C, stream); }
LAUNCHER(unknown_attribute) { cudaLaunchAttribute a = {}; a.id = (cudaLaunchAttributeID)77; return launch_ex(a, dim3(1), A, C, stream); }
LAUNCHER(unknown_device_attribute) { int v; cudaDeviceGetAttribute(&v, cudaDevAttrPciBusId, 0); kernel<<<1, 32, 0, stream>>>(A, C, v); return 0; }

// Endings.
LAUNCHER(returns_error) { return cudaErrorInvalidValue; }
LAUNCHER(returns_nonsense) { return -7; }
LAUNCHER(ends_after_error) { if (cudaMemsetAsync((void *)8, 0, 4, stream)) exit(1); return 0; }
LAUNCHER(exits) { exit(3); }
LAUNCHER(exits_at_once) { _Exit(0); }
LAUNCHER(aborts) { abort(); }
LAUNCHER(crashes) { *(volatile int *)8 = 1; return 0; }
LAUNCHER(throws) { throw std::runtime_error("no such shape"); }
static int deep(volatile char *above) { char here[4096]; here[0] = above[0]; return deep(here) + here[0]; }
LAUNCHER(overflows_stack) { char here[1] = {0}; return deep(here); }
LAUNCHER(loops) { for (volatile int i = 0;; i++) {} }
LAUNCHER(sleeps) { for (;;) pause(); }
LAUNCHER(forks) { return (int)syscall(SYS_fork); }
LAUNCHER(takes_memory) { for (;;) { char *p = (char *)malloc(1 << 24); if (p) memset(p, 1, 1 << 24); } }
LAUNCHER(launches_forever) { for (;;) kernel<<<1, 32, 0, stream>>>(A, C, N); }

// Hostile: writes into every descriptor it can find.
static void write_everywhere(const char *text) { for (int fd = 1; fd < 256; fd++) { write(fd, text, strlen(text)); } }
LAUNCHER(writes_garbage) { write_everywhere("garbage\n"); kernel<<<1, 32, 0, stream>>>(A, C, N); return 0; }
LAUNCHER(closes_everything) { for (int fd = 0; fd < 256; fd++) close(fd); kernel<<<1, 32, 0, stream>>>(A, C, N); return 0; }
LAUNCHER(floods) { for (;;) write_everywhere("{\"event\":\"loaded\"}\n"); }
LAUNCHER(forges_done) { write_everywhere("{\"event\":\"done\"}\n"); _Exit(0); }

// Reads the request again to learn how many calls are wanted, and then writes a whole recording itself.
extern "C" long read(int descriptor, void *data, size_t bytes);
extern "C" long lseek(int descriptor, long offset, int whence);
static void forge(const char *nodes) {
    static char request[1 << 16], line[4096];
    lseek(0, 0, 0);
    request[read(0, request, sizeof request - 1)] = 0;
    int calls = 0;
    for (const char *at = request; (at = strstr(at, "\ncall ")); ++at) ++calls;
    snprintf(line, sizeof line, "{\"event\":\"returned\",\"code\":0,\"code_name\":\"cudaSuccess\",\"workspace\":0,\"nodes\":[%s],\"joined\":[0],"
             "\"allocations\":[],\"symbols\":[],\"maps\":[]}\n", nodes);
    for (int fd = 3; fd < 256; ++fd) {
        for (int i = 0; i < calls; ++i) write(fd, line, strlen(line));
        write(fd, "{\"event\":\"done\"}\n", 17);
    }
    _Exit(0);
}
#define KERNEL(name, parameters, after) \
    "{\"op\":\"kernel\",\"kernel\":\"" name "\",\"grid\":[1,1,1],\"block\":[1,1,1],\"cluster\":[0,0,0],\"dynamic_shared\":0,\"parameters\":\"" parameters "\"," \
    "\"cooperative\":false,\"programmatic\":false,\"max_dynamic_shared\":-1,\"non_portable_cluster\":false,\"after\":[" after "],\"freed\":[]}"
#define FILL(to, width) "{\"op\":\"memset\",\"to\":" to ",\"value\":0,\"width\":" width ",\"count\":1,\"after\":[],\"freed\":[]}"
LAUNCHER(forges_own_kernel) { forge(KERNEL("_Z7boundedP13__nv_bfloat16", "0000000000000000", "")); return 0; }
LAUNCHER(forges_foreign_kernel) { forge(KERNEL("stolen", "", "")); return 0; }
LAUNCHER(forges_parameters) { forge(KERNEL("_Z7boundedP13__nv_bfloat16", "00", "")); return 0; }
LAUNCHER(forges_order) { forge(KERNEL("_Z7boundedP13__nv_bfloat16", "0000000000000000", "0")); return 0; }
LAUNCHER(forges_address) { forge(FILL("12345", "1")); return 0; }
LAUNCHER(forges_width) { forge(FILL("12345", "3")); return 0; }
LAUNCHER(forges_field) { forge("{\"op\":\"peek\"}"); return 0; }
