// The machine's own encoding of a tensor map: what a CUtensorMap holds, readable. tensormap.py writes it.
#pragma once
#include "matrix.hpp"
#include "reductions.hpp"

namespace ptx {

constexpr u32 kTensorMapMagic = 0x50414d54;
constexpr u32 kTensorMapBytes = 128;
constexpr u32 kMaxRank = 5;

// How a map was made. Values of the encoding; tensormap.py mirrors them. Im2col maps have the dimensions C, W, H, D, N,
// without D and H in those of fewer dimensions.
enum class MapMode : u8 { kTiled, kIm2col, kIm2colW, kIm2colW128 };

struct TensorMap {
  u32 magic;
  u8 rank;
  u8 element_bytes;
  u8 swizzle;      // Swizzle
  u8 nan_fill;     // out-of-bounds elements are NaN instead of zero
  u8 reduce_type;  // AtomicType of reductions
  u8 steps[kMaxRank];  // elements from one that is loaded to the next, by dimension; 1 in the innermost
  MapMode mode;
  u8 to_tf32;      // loads round 32-bit elements
  u64 base;
  u64 dims[kMaxRank];         // elements, innermost first
  u64 strides[kMaxRank - 1];  // bytes, of dimensions 1..
  u16 box[kMaxRank];          // elements; of im2col maps channels and pixels
  i16 lower[kMaxRank - 2];    // of im2col maps: corners of the bounding box along W, H, D; the upper one counted from
  i16 upper[kMaxRank - 2];    // the tensor's last element

  // Elements that a box has in shared memory along a dimension.
  u32 extent(u32 dimension) const { return (box[dimension] + steps[dimension] - 1u) / steps[dimension]; }
  u32 pixels() const { return mode == MapMode::kIm2colW128 ? 128 : box[1]; }
  u64 rows() const {
    if (mode != MapMode::kTiled) return pixels();
    u64 rows = 1;
    for (u32 d = 1; d < rank; ++d) rows *= extent(d);
    return rows;
  }
  u32 row_bytes() const { return box[0] * element_bytes; }
  u64 box_bytes() const { return rows() * row_bytes(); }  // what a copy moves
  // In shared memory every row of a swizzled box begins a span of its own, however narrow it is: what lies behind it is left
  // alone (an H200, tests/oracles).
  u32 row_pitch() const { return swizzle ? span_of(Swizzle(swizzle)) : row_bytes(); }
  u64 tile_bytes() const { return rows() * row_pitch(); }
};
static_assert(sizeof(TensorMap) <= kTensorMapBytes);

}  // namespace ptx
