// Wrong on purpose: hands the work to cuBLAS. A candidate is judged on its own kernels.
#include <cuda_bf16.h>

extern "C" int cublasCreate_v2(void** handle);
extern "C" int cublasSetStream_v2(void* handle, cudaStream_t stream);
extern "C" int cublasGemmEx(void* handle, int op_a, int op_b, int m, int n, int k, const void* alpha, const void* a,
                            int type_a, int lda, const void* b, int type_b, int ldb, const void* beta, void* c,
                            int type_c, int ldc, int compute_type, int algorithm);

extern "C" int launch(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int M, int N, int K,
                      void* workspace, cudaStream_t stream) {
    constexpr int BF16 = 14, COMPUTE_F32 = 68, TRANSPOSED = 1, NORMAL = 0, DEFAULT = -1;
    static void* handle = nullptr;
    if (handle == nullptr) cublasCreate_v2(&handle);
    cublasSetStream_v2(handle, stream);
    const float one = 1, zero = 0;
    // Column-major C^T[N,M] = B[N,K] * A[M,K]^T is row-major C.
    return cublasGemmEx(handle, TRANSPOSED, NORMAL, N, M, K, &one, B, BF16, K, A, BF16, K, &zero, C, BF16, N,
                        COMPUTE_F32, DEFAULT);
}
