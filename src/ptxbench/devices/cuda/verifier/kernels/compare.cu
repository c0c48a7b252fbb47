// Outputs against the truth, one block of threads per block of the output.
#include "mapped.cuh"

namespace compare {

// What is found of a block, in 8-byte words; `arrays.py` has the same list.
struct Found {
  double sum_squares, largest;
  u64 bad, first_bad, unwritten, not_finite;
};

struct Compare {
  const void* output;
  const double* truth;
  const float* scale;
  const double* bounds;  // the yardstick's largest error of each block of the truth, or null
  Found* found;
  Map map;
  i64 type, block_rows, block_columns, poisoned;
  u64 salt;
  double bad_above;
};

constexpr u32 kNone = ~0u;

// What one thread has seen.
struct Tally {
  double limit;
  double squares = 0, largest = 0;
  u32 bad = 0, first = kNone, untouched = 0, odd = 0;

  __device__ void store(Found* found) {
    squares = block_reduce(squares, Sum());
    largest = block_reduce(largest, Greater());
    bad = block_reduce(bad, Sum());
    first = block_reduce(first, Lesser());
    untouched = block_reduce(untouched, Sum());
    odd = block_reduce(odd, Sum());
    if (threadIdx.x == 0) *found = {squares, largest, bad, first == kNone ? ~0ull : u64(first), untouched, odd};
  }
};

struct Extent {
  u32 row, column, rows, columns, number;
};

__device__ Extent extent_of(const Compare& p) {
  const u32 row = blockIdx.y * u32(p.block_rows), column = blockIdx.x * u32(p.block_columns);
  const u32 rows = u32(p.map.rows) - row, columns = u32(p.map.columns) - column;
  return {row, column, rows < p.block_rows ? rows : u32(p.block_rows),
          columns < p.block_columns ? columns : u32(p.block_columns),
          (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x};
}

// Whole blocks of the truth stay together under a map, so that the first element names the source.
__device__ double limit_of(const Compare& p, const Extent& block) {
  if (p.bounds == nullptr) return INFINITY;
  const u32 group = p.map.group[blockIdx.z] & kPosition;
  const u32 row = (p.map.row[block.row] & kPosition) / u32(p.block_rows);
  const u32 column = (p.map.column[block.column] & kPosition) / u32(p.block_columns);
  return p.bad_above * p.bounds[(group * gridDim.y + row) * gridDim.x + column];
}

template <i64 kType>
struct Stored {
  using Word = u16;
};

template <>
struct Stored<kF32> {
  using Word = u32;
};

template <i64 kType>
__device__ float value_of(u32 bits) {
  if (kType == kBf16) return __uint_as_float(bits << 16);
  if (kType == kF16) return __half2float(__ushort_as_half(u16(bits)));
  return __uint_as_float(bits);
}

// An element that a thread has loaded.
struct Element {
  u32 index, bits, negative;
  double truth;
  float scale;
};

template <i64 kType>
__device__ void add(Tally& tally, const Compare& p, const Element& element) {
  const float value = value_of<kType>(element.bits);
  const double error = fabs(double(value) - (element.negative ? -element.truth : element.truth)) / double(element.scale);
  const bool finite = isfinite(value);
  const double counted = finite ? error : double(INFINITY);
  tally.squares += counted * counted;
  tally.largest = Greater()(counted, tally.largest);
  tally.odd += !finite;
  if (counted > tally.limit) {
    ++tally.bad;
    tally.first = Lesser()(element.index, tally.first);
    if (p.poisoned) tally.untouched += element.bits == poison_bits(element.index, kType, p.salt);
  }
}

// Threads stand side by side along a row, and each takes a few rows at a time, so that many loads are under way.
template <i64 kType>
__device__ void add_block(Tally& tally, const Compare& p, const Extent& block) {
  constexpr u32 kBatch = 4;
  const auto* output = static_cast<const typename Stored<kType>::Word*>(p.output);
  const u32 wide = p.block_columns < kThreads ? u32(p.block_columns) : kThreads, tall = kThreads / wide;
  const u32 own_row = threadIdx.x / wide;
  if (own_row >= tall) return;
  for (u32 column = block.column + threadIdx.x % wide; column < block.column + block.columns; column += wide) {
    for (u32 first = own_row; first < block.rows; first += kBatch * tall) {
      Element elements[kBatch];
#pragma unroll
      for (u32 i = 0; i < kBatch; ++i) {
        const u32 inside = first + i * tall < block.rows ? first + i * tall : first, row = block.row + inside;
        const Source source = source_at(p.map, blockIdx.z, row, column);
        const u32 index = (blockIdx.z * u32(p.map.rows) + row) * u32(p.map.columns) + column;
        elements[i] = {index, output[index], source.negative, p.truth[source.index], p.scale[source.index]};
      }
#pragma unroll
      for (u32 i = 0; i < kBatch; ++i)
        if (first + i * tall < block.rows) add<kType>(tally, p, elements[i]);
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) compare_output(Compare p) {
  const Extent block = extent_of(p);
  Tally tally{limit_of(p, block)};
  switch (p.type) {
    case kBf16: add_block<kBf16>(tally, p, block); break;
    case kF16: add_block<kF16>(tally, p, block); break;
    default: add_block<kF32>(tally, p, block);
  }
  tally.store(p.found + block.number);
}

}  // namespace compare
