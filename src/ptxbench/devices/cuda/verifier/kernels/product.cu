// Matrix products in one precision: c = scale * change(a) . change(b), any strides, any element types.
//
// Products of two bf16 or fp16 numbers are exact in both precisions. The fp64 form is the truth: its sums are good to
// 2^-53 per step, against 2^-9 of an output's rounding. The fp32 form is the honest algorithm: fp32 accumulation.
#include "common.cuh"

namespace product {

enum Change : i64 { kAsIs, kMagnitude, kSquare };

// What is known to be zero or unwanted: nothing; tiles of c above the diagonal; a[row, inner] for inner > row; the same
// of a transposed.
enum Triangle : i64 { kFull, kLowerResult, kLowerOperand, kUpperOperand };

struct Product {
  const void* a;
  const void* b;
  void* c;
  i64 a_type, a_batch, a_row, a_inner, a_change;
  i64 b_type, b_batch, b_inner, b_column, b_change;
  i64 c_batch, rows, columns, inner, triangle;
  double scale;
};

__device__ float widened(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ float widened(__half value) { return __half2float(value); }
__device__ float widened(float value) { return value; }
__device__ double widened(double value) { return value; }

template <class T>
__device__ T changed(T value, i64 change) {
  return change == kAsIs ? value : change == kSquare ? value * value : value < T(0) ? -value : value;
}

constexpr int kDepth = 16;

// One side of a tile: kDepth x Extent elements, brought from memory through registers.
template <class T, int Extent>
struct Side {
  static constexpr int kEach = Extent * kDepth / kThreads;
  static constexpr int kPitch = Extent + 16 / int(sizeof(T));

  const void* base;
  i64 type, start, along, inner_step, change, extent, limit;
  T kept[kEach];

  // Where this thread's j-th element lies: threads follow the contiguous direction.
  __device__ void place(int j, int& position, int& k) const {
    const int element = threadIdx.x + kThreads * j;
    if (inner_step == 1) {
      k = element % kDepth;
      position = element / kDepth;
    } else {
      position = element % Extent;
      k = element / Extent;
    }
  }

  __device__ void fetch(i64 from, i64 depth) {
    switch (type) {
      case kBf16: return fetch_as<__nv_bfloat16>(from, depth);
      case kF16: return fetch_as<__half>(from, depth);
      case kF32: return fetch_as<float>(from, depth);
      default: return fetch_as<double>(from, depth);
    }
  }

  // All loads are under way before the first is used.
  template <class Stored>
  __device__ void fetch_as(i64 from, i64 depth) {
    Stored raw[kEach];
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      int position, k;
      place(j, position, k);
      const bool inside = from + position < extent && depth + k < limit;
      const i64 index = start + (from + position) * along + (depth + k) * inner_step;
      raw[j] = inside ? static_cast<const Stored*>(base)[index] : Stored(0.0f);
    }
#pragma unroll
    for (int j = 0; j < kEach; ++j) kept[j] = changed(T(widened(raw[j])), change);
  }

  __device__ void put(T* shared) const {
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      int position, k;
      place(j, position, k);
      shared[k * kPitch + position] = kept[j];
    }
  }
};

// A thread's N positions of 16 * N: chunks of 16 bytes, 16 threads side by side.
template <class T, int N>
struct Fragment {
  static constexpr int kVector = 16 / int(sizeof(T));
  struct alignas(16) Vector {
    T of[kVector];
  };
  T of[N];

  static __device__ int position(int thread, int i) { return (i / kVector * 16 + thread) * kVector + i % kVector; }

  __device__ void read(const T* line, int thread) {
#pragma unroll
    for (int i = 0; i < N; i += kVector) {
      const Vector vector = *reinterpret_cast<const Vector*>(line + position(thread, i));
#pragma unroll
      for (int v = 0; v < kVector; ++v) of[i + v] = vector.of[v];
    }
  }
};

template <class T, int Tall, int Wide>
__device__ void multiply(Product p) {
  constexpr int kRows = 16 * Tall, kColumns = 16 * Wide;
  using Left = Side<T, kRows>;
  using Right = Side<T, kColumns>;
  __shared__ alignas(16) T left_tile[kDepth * Left::kPitch];
  __shared__ alignas(16) T right_tile[kDepth * Right::kPitch];

  const i64 row = i64(blockIdx.y) * kRows, column = i64(blockIdx.x) * kColumns, batch = blockIdx.z;
  if (p.triangle == kLowerResult && column >= row + kRows) return;
  const i64 begin = p.triangle == kUpperOperand ? row : 0;
  const i64 limit = p.triangle == kLowerOperand && row + kRows < p.inner ? row + kRows : p.inner;

  Left left{p.a, p.a_type, batch * p.a_batch, p.a_row, p.a_inner, p.a_change, p.rows, limit, {}};
  Right right{p.b, p.b_type, batch * p.b_batch, p.b_column, p.b_inner, p.b_change, p.columns, limit, {}};
  const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
  T sums[Tall][Wide] = {};

  left.fetch(row, begin);
  right.fetch(column, begin);
  for (i64 depth = begin; depth < limit; depth += kDepth) {
    left.put(left_tile);
    right.put(right_tile);
    __syncthreads();
    if (depth + kDepth < limit) {
      left.fetch(row, depth + kDepth);
      right.fetch(column, depth + kDepth);
    }
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      Fragment<T, Tall> a;
      Fragment<T, Wide> b;
      a.read(left_tile + k * Left::kPitch, ty);
      b.read(right_tile + k * Right::kPitch, tx);
#pragma unroll
      for (int i = 0; i < Tall; ++i)
#pragma unroll
        for (int j = 0; j < Wide; ++j) sums[i][j] += a.of[i] * b.of[j];
    }
    __syncthreads();
  }

  T* c = static_cast<T*>(p.c) + batch * p.c_batch;
#pragma unroll
  for (int i = 0; i < Tall; ++i) {
    const i64 at_row = row + Fragment<T, Tall>::position(ty, i);
#pragma unroll
    for (int j = 0; j < Wide; ++j) {
      const i64 at_column = column + Fragment<T, Wide>::position(tx, j);
      if (at_row < p.rows && at_column < p.columns) c[at_row * p.columns + at_column] = T(p.scale) * sums[i][j];
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, 2) product_f64(Product p) { multiply<double, 8, 4>(p); }

extern "C" __global__ void __launch_bounds__(kThreads, 2) product_f32(Product p) { multiply<float, 8, 8>(p); }

}  // namespace product
