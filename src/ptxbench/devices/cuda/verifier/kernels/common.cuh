// What all kernels of the verifier share. Every kernel has one parameter: a struct of 8-byte fields.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

using i64 = long long;
using u64 = unsigned long long;
using u32 = unsigned int;
using u16 = unsigned short;

constexpr int kThreads = 256;
constexpr int kWarp = 32;

// Element types, numbered as in `arrays.py`.
enum Type : i64 { kBf16, kF16, kF32, kF64 };

template <class T>
__device__ T load_as(const void* base, i64 index, i64 type) {
  switch (type) {
    case kBf16: return T(__bfloat162float(static_cast<const __nv_bfloat16*>(base)[index]));
    case kF16: return T(__half2float(static_cast<const __half*>(base)[index]));
    case kF32: return T(static_cast<const float*>(base)[index]);
    default: return T(static_cast<const double*>(base)[index]);
  }
}

// Rounds to nearest, ties to even.
__device__ inline void store_as(void* base, i64 index, i64 type, float value) {
  switch (type) {
    case kBf16: static_cast<__nv_bfloat16*>(base)[index] = __float2bfloat16_rn(value); break;
    case kF16: static_cast<__half*>(base)[index] = __float2half_rn(value); break;
    case kF32: static_cast<float*>(base)[index] = value; break;
    default: static_cast<double*>(base)[index] = value;
  }
}

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const { return a + b; }
};

// The greater; NaN if either is NaN.
struct Greater {
  template <class T>
  __device__ T operator()(T a, T b) const { return a > b || a != a ? a : b; }
};

struct Lesser {
  template <class T>
  __device__ T operator()(T a, T b) const { return a < b ? a : b; }
};

// Combines one value per thread of a block of kThreads; every thread gets the result. Ends with a barrier.
template <class T, class Combine>
__device__ T block_reduce(T value, Combine combine) {
  __shared__ T partial[kThreads / kWarp];
  for (int step = kWarp / 2; step > 0; step /= 2) value = combine(value, __shfl_xor_sync(~0u, value, step));
  if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = value;
  __syncthreads();
  T result = partial[0];
  for (int warp = 1; warp < kThreads / kWarp; ++warp) result = combine(result, partial[warp]);
  __syncthreads();
  return result;
}

// The RMS error of rounding to `type` at the magnitude of `value`: its spacing there over sqrt(12), squared.
__device__ inline double rounding_variance(double value, i64 type) {
  const int bits = type == kBf16 ? 7 : type == kF16 ? 10 : 23;
  const int smallest = type == kF16 ? -14 : -126;
  const int own = int(__double_as_longlong(value) >> 52 & 0x7ff) - 1023;
  const int exponent = own > smallest ? own : smallest;
  const double spacing = __longlong_as_double(i64(exponent - bits + 1023) << 52);
  return spacing * spacing / 12.0;
}
