// As NVIDIA's programming guide writes it: cuda::barrier and the bulk copies of libcu++ instead of inline PTX, but for the
// products.
#include <cuda.h>
#include <cuda_bf16.h>

#include <cuda/barrier>

#include <ptxbench/ptx/address.cuh>
#include <ptxbench/ptx/descriptors.cuh>
#include <ptxbench/ptx/tensor_map.cuh>
#include <ptxbench/ptx/wgmma.cuh>

using barrier = cuda::barrier<cuda::thread_scope_block>;
namespace cde = cuda::device::experimental;

constexpr int TILE_M = 64, TILE_N = 64, TILE_K = 64, STAGES = 2;

__global__ void __launch_bounds__(128)
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, __nv_bfloat16* C, int N, int K) {
    __shared__ alignas(1024) __nv_bfloat16 a[STAGES][TILE_M * TILE_K];
    __shared__ alignas(1024) __nv_bfloat16 b[STAGES][TILE_N * TILE_K];
#pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ barrier full[STAGES];
    const int m0 = blockIdx.x * TILE_M, n0 = blockIdx.y * TILE_N, steps = K / TILE_K;
    if (threadIdx.x == 0) {
        for (auto& stage : full) init(&stage, blockDim.x);
        cde::fence_proxy_async_shared_cta();
    }
    __syncthreads();

    barrier::arrival_token tokens[STAGES];
    const auto load = [&](int k, int stage) {
        if (threadIdx.x == 0) {
            cde::cp_async_bulk_tensor_2d_global_to_shared(a[stage], &map_a, k * TILE_K, m0, full[stage]);
            cde::cp_async_bulk_tensor_2d_global_to_shared(b[stage], &map_b, k * TILE_K, n0, full[stage]);
            tokens[stage] = cuda::device::barrier_arrive_tx(full[stage], 1, sizeof(a[0]) + sizeof(b[0]));
        } else {
            tokens[stage] = full[stage].arrive();
        }
    };
    float acc[TILE_N / 2] = {};
    load(0, 0);
    for (int k = 0; k < steps; ++k) {
        const int stage = k % STAGES;
        if (k + 1 < steps) load(k + 1, (k + 1) % STAGES);
        full[stage].wait(cuda::std::move(tokens[stage]));
        const uint64_t first = ptx::wgmma_descriptor_k128(ptx::shared_address(a[stage]));
        const uint64_t second = ptx::wgmma_descriptor_k128(ptx::shared_address(b[stage]));
        ptx::wgmma_fence();
        for (int step = 0; step < TILE_K / 16; ++step)
            ptx::wgmma_m64n64k16_bf16_ss(acc, first + 2 * step, second + 2 * step, true);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
        __syncthreads();
    }
    const int row = m0 + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = n0 + threadIdx.x % 4 * 2;
    for (int i = 0; i < TILE_N / 2; i += 2)
        *reinterpret_cast<__nv_bfloat162*>(C + size_t(row + i / 2 % 2 * 8) * N + column + i / 4 * 8) =
            __floats2bfloat162_rn(acc[i], acc[i + 1]);
}

extern "C" int launch(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int M, int N, int K,
                      void* workspace, cudaStream_t stream) {
    CUtensorMap map_a, map_b;
    if (int error = ptx::encode_matrix_bf16(&map_a, A, M, K, TILE_M, TILE_K)) return error;
    if (int error = ptx::encode_matrix_bf16(&map_b, B, N, K, TILE_N, TILE_K)) return error;
    gemm<<<dim3(M / TILE_M, N / TILE_N), 128, 0, stream>>>(map_a, map_b, C, N, K);
    return cudaGetLastError();
}
