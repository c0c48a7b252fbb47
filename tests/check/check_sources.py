"""Sources that the tests of this room check."""

REVERSE = """#include <cuda_bf16.h>
using bf16 = __nv_bfloat16;
__global__ void reverse(const bf16* a, float* out, int n, float f) {
  __shared__ float block[256];
  const int t = threadIdx.x, i = blockIdx.x * 256 + t;
  block[t] = i < n ? float(a[i]) * f : 0.f;
  BARRIER
  if (i < n) out[i] = block[255 - t];
}
void go(float* out, const bf16* __restrict__ a, float f, size_t n, cudaStream_t stream) {
  reverse<<<(n + 255) / 256, 256, 0, stream>>>(a, out, int(n), f);
}
"""
RIGHT = REVERSE.replace("BARRIER", "__syncthreads();")
RACY = REVERSE.replace("BARRIER", "")
RACY_LINE = 8

PTX = """.version 9.0
.target sm_90a
.address_size 64
.visible .entry reverse(.param .u64 a, .param .u64 out, .param .u32 n)
{
.reg .pred %p<4>;
.reg .b32 %r<16>;
.reg .b64 %rd<8>;
.shared .align 4 .b8 block[1024];
ld.param.u64 %rd1, [a];
ld.param.u64 %rd2, [out];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd3, %r1, 4;
add.u64 %rd4, %rd1, %rd3;
add.u64 %rd5, %rd2, %rd3;
ld.global.u32 %r2, [%rd4];
mov.u32 %r3, block;
mad.lo.u32 %r4, %r1, 4, %r3;
st.shared.u32 [%r4], %r2;
BARRIER
ld.param.u32 %r7, [n];
sub.u32 %r5, %r7, %r1;
mad.lo.u32 %r6, %r5, 4, %r3;
ld.shared.u32 %r8, [%r6+-4];
st.global.u32 [%rd5], %r8;
ret;
}
"""
LAUNCH = """grid = [1]
block = ["N"]
parameters = [{buffer = "a"}, {buffer = "out"}, {value = "N"}]
[sizes]
N = 256
[buffers]
a = "f32[N] in"
out = "f32[N] out"
"""
