// A launcher that does nothing worth mentioning, for attempts to misuse: one kernel that copies an element.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using bf16 = __nv_bfloat16;

__global__ void copy(const bf16* from, bf16* to, int n) { to[threadIdx.x] = from[threadIdx.x + n % 2]; }

//[declarations
//]

//[signature
extern "C" int launch(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, void* workspace, cudaStream_t stream) {
//]
    //[body
    copy<<<1, 32, 0, stream>>>(A, C, N);
    //]
    return 0;
}
