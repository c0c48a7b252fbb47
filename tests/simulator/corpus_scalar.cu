// Scalar code as kernels contain it: every kernel here is only compiled, never run.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cstdint>

__constant__ float weights[4] = {0.5f, -1.25f, 3.0f, 1e-3f};
__constant__ int* pointer_table[2];
__device__ int counters[3] = {1, -2, 3};
__device__ double scale = 0.125;
__device__ __half halves[2];

template <class T> __device__ T twice(T x) { return x + x; }

extern "C" __global__ void integers(const int* a, const unsigned* b, long long* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int x = a[i];
  unsigned y = b[i];
  long long z = (long long)x * y + (x << (y & 7)) - (x >> 3);
  z += __popc(y) + __clz(x) + __ffs(x) + __brev(y) + __popcll(z) + __clzll(z);
  z ^= __byte_perm(x, y, 0x3210 + x) + __funnelshift_l(x, y, 5) + __funnelshift_rc(x, y, x);
  z += x / 7 + y % 13 + z / (y | 1) + __mulhi(x, 3) + __umulhi(y, 3) + __mul64hi(z, z);
  z += min(x, 5) + max(y, 6u) + abs(x) + __sad(x, 3, y) + __dp4a(x, x, 1) + __dp4a(y, y, 2u) + __dp2a_lo(x, x, 3);
  z += (short)x * (short)y + (unsigned char)y + (signed char)x + (z > 5 ? x : y);
  z += __vadd2(x, y) + __viaddmax_s32(x, x, 3) + __mul24(x, x) + __umul24(y, y);
  __int128 wide = (__int128)z * z + y;
  out[i] = (long long)(wide >> 40) + counters[i % 3];
  atomicAdd(&counters[1], 1);
}

extern "C" __global__ void floats(const float* a, float* out, double* doubles, int n) {
  int i = threadIdx.x;
  float x = a[i], y = a[i + 1];
  float z = x * y + weights[i & 3] + sinf(x) + expf(y) + logf(x) + tanhf(y) + rsqrtf(x) + sqrtf(y) + x / y;
  z += __expf(x) + __logf(y) + __sinf(x) + __fdividef(x, y) + exp2f(x) + powf(x, y) + cosf(y) + erff(x);
  z += __fadd_rz(x, y) + __fmul_ru(x, y) + __fmaf_rd(x, y, z) + __frcp_rn(x) + __fsqrt_rz(y) + __fdiv_ru(x, y);
  z += fminf(x, y) + fmaxf(x, y) + fabsf(x) + copysignf(x, y) + truncf(x) + floorf(y) + rintf(x) + (isnan(x) ? 1 : 0);
  z += (int)x + (unsigned)y + (float)(long long)x + __float2int_rn(x) + __float_as_int(y) + __saturatef(x) + fmodf(x, y);
  double d = x;
  d = d * y + scale + sqrt(d) + 1.0 / d + floor(d) + exp(d) + __dadd_rz(d, d) + (double)i;
  doubles[i] = d + (long long)d + (int)d;
  out[i] = twice(z) + (float)d;
}

extern "C" __global__ void half_precision(const __half2* a, const __nv_bfloat162* b, __half2* c, __nv_bfloat162* d, float* f) {
  int i = threadIdx.x;
  __half2 x = a[i], y = a[i + 1];
  __nv_bfloat162 u = b[i], v = b[i + 1];
  c[i] = __hfma2(x, y, __hadd2(x, __hmul2(y, x)));
  d[i] = __hfma2(u, v, __hsub2(u, __hmax2(v, u)));
  c[i] = __hmax2(c[i], h2exp2(__habs2(x)));
  d[i] = __floats2bfloat162_rn(f[i], f[i + 1]);
  f[i] = __half2float(__low2half(x)) + __bfloat162float(__high2bfloat16(u)) + (__hlt(__low2half(x), __high2half(y)) ? 1.f : 2.f);
  f[i + 1] = __half2int_rn(__low2half(x)) + (float)__float2half_rn(f[i]) + (float)__int2half_rn(i) + __bfloat162float(__hneg(__low2bfloat16(u)));
  halves[0] = __hadd(__low2half(x), __high2half(y));
}

extern "C" __global__ void fp8(const float2* a, __nv_fp8x2_storage_t* out, __half2* back) {
  int i = threadIdx.x;
  out[i] = __nv_cvt_float2_to_fp8x2(a[i], __NV_SATFINITE, __NV_E4M3);
  out[i] += __nv_cvt_float2_to_fp8x2(a[i], __NV_SATFINITE, __NV_E5M2);
  __half2_raw raw = __nv_cvt_fp8x2_to_halfraw2(out[i], __NV_E4M3);
  back[i] = *reinterpret_cast<__half2*>(&raw);
}

extern "C" __global__ void warps(int* data, float* f) {
  int x = data[threadIdx.x];
  x += __shfl_xor_sync(~0u, x, 16) + __shfl_down_sync(~0u, x, 4) + __shfl_up_sync(~0u, x, 1, 8) + __shfl_sync(~0u, x, 3);
  x += __ballot_sync(~0u, x > 3) + __all_sync(~0u, x) + __any_sync(~0u, x) + __match_any_sync(~0u, x) + __activemask();
  x += __reduce_add_sync(~0u, x) + __reduce_max_sync(~0u, x) + __reduce_or_sync(~0u, x);
  int pred;
  x += __match_all_sync(~0u, x, &pred) + pred;
  f[threadIdx.x] = __shfl_xor_sync(~0u, f[threadIdx.x], 1);
  data[threadIdx.x] = x + clock() + (int)clock64();
  __nanosleep(20);
  __syncwarp();
}

__device__ __noinline__ float outlined(float x, int n) {
  float s = 0;
  for (int i = 0; i < n; ++i) s = s * x + i;
  return s;
}

extern "C" __global__ void control(int* data, int n) {
  __shared__ int tile[64];
  extern __shared__ __align__(1024) unsigned char dynamic[];
  int local[16];
  for (int i = 0; i < 16; ++i) local[i] = data[i] * i;
  switch (data[threadIdx.x]) {
    case 0: n += 1; break;
    case 1: n *= 3; break;
    case 2: n -= 7; break;
    case 3: n ^= 9; break;
    case 4: n = local[n & 15]; break;
    case 5: n = -n; break;
    default: n = 0;
  }
  tile[threadIdx.x] = n;
  __syncthreads();
  if (n > 1000) __trap();
  dynamic[threadIdx.x] = (unsigned char)tile[63 - threadIdx.x];
  __syncthreads();
  data[threadIdx.x] = dynamic[threadIdx.x ^ 1] + local[threadIdx.x & 15] + *pointer_table[0];
}

extern "C" __global__ void calls(float* data) { data[threadIdx.x] = outlined(data[threadIdx.x], threadIdx.x); }

extern "C" __global__ void inline_assembly(uint32_t* out, uint64_t address) {
  uint32_t x = threadIdx.x, y, z;
  asm volatile("{\n\t.reg .pred p, q;\n\t.reg .b32 t<3>;\n\t"
               "setp.lt.and.u32 p|q, %1, 16, 1;\n\t"
               "@p mov.b32 t0, 3;\n\t@!p mov.b32 t0, 4;  // a comment; with a semicolon\n\t"
               "add.cc.u32 t1, %1, 0xffffffffU; addc.u32 t2, t1, 0; /* another */\n\t"
               "selp.b32 %0, t0, t2, q;\n\t}" : "=r"(y) : "r"(x));
  asm volatile("{\n\t.reg .b32 t;\n\t.reg .pred P;\n\tlop3.b32 t, %1, %2, 0b1010, 0x96;\n\tprmt.b32.ecl %0, t, %1, 2;\n\t"
               "DONE: mov.b32 t, (16*4+(1<<3))/2-1;\n\tsetp.ne.b32 P, %3, 0;\n\t@!P bra SKIP;\n\tadd.u32 %0, %0, t;\n\tSKIP:\n\t}"
               : "=r"(z) : "r"(x), "r"(y), "r"(1));
  out[x] = y + z;
}
