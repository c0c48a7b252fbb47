// What one tensor copy moves, row after row: a box of a tensor, or a column of pixels of a batch of images.
#pragma once
#include <algorithm>
#include <array>

#include "machine.hpp"
#include "tensor_map.hpp"

namespace ptx {

using Coordinates = std::array<i64, kMaxRank>;

// What the coordinates of an instruction mean. Attribute values; lower/asynchronous.py mirrors them.
enum class CopyMode : u8 { kTile, kRows, kIm2col, kIm2colNoOffsets, kIm2colW, kIm2colW128 };

// Where the boxes of one instruction begin: one box, or four rows that are named one by one. `offsets` are those of im2col
// copies along W, H and D.
struct Boxes {
  std::array<Coordinates, 4> at{};
  u32 count = 1;
  std::array<i64, kMaxRank - 2> offsets{};
};

// The map that an operand names, checked; its kind and its number of dimensions have to be the instruction's.
TensorMap read_map(const Place& place, const Operand& operand, u32 rank, CopyMode mode);

// The coordinates, and behind them the offsets, which are the operands from `first` on.
Boxes read_coordinates(const Place& place, size_t first, const TensorMap& map, CopyMode mode);

// One row along the innermost dimension. Bytes [begin, end) of it lie inside the tensor.
struct BoxRow {
  u64 address;  // of the row's byte 0, valid for [begin, end) only
  u32 offset;   // of the row in the box, before swizzling
  u32 begin, end;
};

// The rows of a box of a tiled map.
template <class Visit>
void for_tile_rows(const TensorMap& map, const Coordinates& at, BoxRow first, Visit visit) {
  const u32 rows = u32(map.rows());
  std::array<u32, kMaxRank> extent{}, step{};  // along each dimension: steps, and the row's
  for (u32 d = 1; d < map.rank; ++d) extent[d] = map.extent(d);
  for (u32 number = 0; number < rows; ++number) {
    BoxRow row = first;
    row.offset = number * map.row_pitch();
    bool inside = true;
    for (u32 d = 1; d < map.rank; ++d) {
      const i64 index = at[d] + i64(step[d]) * map.steps[d];
      inside &= index >= 0 && index < i64(map.dims[d]);
      row.address += u64(index) * map.strides[d - 1];
    }
    if (!inside) row.begin = row.end = 0;
    visit(row);
    for (u32 d = 1; d < map.rank && ++step[d] == extent[d]; ++d) step[d] = 0;
  }
}

// The pixels of a column (PTX ISA, im2col mode): from the base on in the bounding box, W first, then H, D and the next
// image. Every pixel lies `offsets` from its place in the bounding box. In the modes along W only W is traversed before the
// next image.
template <class Visit>
void for_pixels(const TensorMap& map, const Boxes& boxes, BoxRow first, Visit visit) {
  Coordinates at = boxes.at[0];
  const u32 images = map.rank - 1u, traversed = map.mode == MapMode::kIm2col ? images : 2;
  for (u32 pixel = 0; pixel < map.pixels(); ++pixel) {
    BoxRow row = first;
    row.offset = pixel * map.row_pitch();
    bool inside = true;
    for (u32 d = 1; d < map.rank; ++d) {
      const i64 index = at[d] + (d < images ? boxes.offsets[d - 1] : 0);
      inside &= index >= 0 && index < i64(map.dims[d]);
      row.address += u64(index) * map.strides[d - 1];
    }
    if (!inside) row.begin = row.end = 0;
    visit(row);
    u32 d = 1;
    for (; d < traversed; ++d) {
      at[d] += map.steps[d];
      if (at[d] <= i64(map.dims[d]) - 1 + map.upper[d - 1]) break;
      at[d] = map.lower[d - 1];
    }
    if (d == traversed) at[images] += map.steps[images];
  }
}

// The rows of box number `number`.
template <class Visit>
void for_rows(const TensorMap& map, const Boxes& boxes, u32 number, Visit visit) {
  const Coordinates& at = boxes.at[number];
  const i64 left = std::clamp<i64>(-at[0], 0, map.box[0]),
            right = std::clamp<i64>(i64(map.dims[0]) - at[0], 0, map.box[0]);
  BoxRow first{map.base + u64(at[0] * map.element_bytes), 0, u32(left) * map.element_bytes,
               u32(right) * map.element_bytes};
  if (left >= right) first.begin = first.end = 0;
  if (map.mode == MapMode::kTiled)
    for_tile_rows(map, at, first, visit);
  else
    for_pixels(map, boxes, first, visit);
}

}  // namespace ptx
