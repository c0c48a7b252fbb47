// Kernels whose results the test recomputes: calls, switches, local and shared arrays, wide integers, library functions.
#include <cassert>
#include <cstdint>
#include <cstdio>

__constant__ int table[5] = {3, 1, 4, 1, 5};
__device__ int counters[2] = {100, 200};

struct Pair {
  float x;
  int n;
};

__device__ __noinline__ Pair step(Pair p, int n) {
  if (n == 0) return p;
  for (int i = 0; i < n; ++i) p.x = p.x * 0.5f + i;
  p.n += n;
  return p;
}
__device__ __noinline__ float outer(float x, int n) {
  Pair p = step({x, 1}, n);
  Pair q = step({p.x, p.n}, n & 3);
  return q.x + q.n;
}

extern "C" __global__ void calls(float* data) {
  int i = threadIdx.x;
  if (i % 3) data[i] = outer(data[i], i % 7);
  if (data[i] < -1e30f) printf("never %f\n", data[i]);
  assert(data[i] > -1e30f);
}

extern "C" __global__ void control(int* data, int n) {
  __shared__ int tile[64];
  extern __shared__ __align__(1024) unsigned char dynamic[];
  int i = threadIdx.x, local[8];
  for (int k = 0; k < 8; ++k) local[k] = data[(i + k) % 64] * k;
  int x = data[i], y = n;
  switch (x % 7) {
    case 0: y += 1; break;
    case 1: y *= 3; break;
    case 2: y -= 7; break;
    case 3: y ^= 9; break;
    case 4: y = local[x & 7]; break;
    case 5: y = table[x % 5]; break;
    default: y = -y;
  }
  tile[i] = y;
  __syncthreads();
  dynamic[i] = (unsigned char)tile[63 - i];
  __syncthreads();
  data[i] = dynamic[i ^ 1] + y + counters[i & 1];
}

extern "C" __global__ void wide(const uint64_t* a, uint64_t* out) {
  int i = threadIdx.x;
  unsigned __int128 p = (unsigned __int128)a[i] * a[(i + 1) % 64] + a[(i + 2) % 64];
  out[i] = (uint64_t)(p >> 64) ^ (uint64_t)p ^ (a[i] / (a[(i + 3) % 64] | 1)) ^ (a[i] % 1000003);
}

extern "C" __global__ void functions(const float* a, float* out) {
  float x = a[threadIdx.x];
  out[threadIdx.x] = sinf(x) + expf(x) * logf(fabsf(x) + 1.0f) + tanhf(x) + powf(fabsf(x), 1.5f) + erff(x) + fmodf(x, 0.7f) + cbrtf(x);
}
