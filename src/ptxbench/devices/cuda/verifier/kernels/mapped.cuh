// Tensors under a map, and the poison of outputs.
#pragma once

#include "common.cuh"

// A tensor [groups, rows, columns] whose every axis is rearranged: a table per axis has the source position of each
// position, and in its top bit whether the sign changes. Fewer than 2^31 elements.
struct Map {
  const u32* group;
  const u32* row;
  const u32* column;
  i64 rows, columns, count;
};

struct Source {
  u32 index;     // of the source element, row-major
  u32 outer;     // 1 if group and row together change the sign
  u32 negative;  // 1 if all three do
};

constexpr u32 kPosition = 0x7fffffff;

__device__ inline Source source_at(const Map& map, u32 group, u32 row, u32 column) {
  const u32 g = map.group[group], r = map.row[row], c = map.column[column];
  const u32 index = ((g & kPosition) * u32(map.rows) + (r & kPosition)) * u32(map.columns) + (c & kPosition);
  const u32 outer = (g ^ r) >> 31;
  return {index, outer, outer ^ c >> 31};
}

__device__ inline Source source_of(const Map& map, u32 index) {
  const u32 line = index / u32(map.columns), column = index % u32(map.columns);
  return source_at(map, line / u32(map.rows), line % u32(map.rows), column);
}

// Finite values of either sign and magnitude 1 to 16 that differ from element to element (as in the room `judge`; a
// salt shifts them).
__device__ inline u32 poison_bits(i64 index, i64 type, u64 salt) {
  u64 word = (u64(index) + 1 + salt) * 0x9E3779B97F4A7C15ull;
  word ^= word >> 30;
  word *= 0xBF58476D1CE4E5B9ull;
  word = (word ^ word >> 27) >> 16;
  const u32 significand = type == kBf16 ? 7 : type == kF16 ? 10 : 23, bias = type == kF16 ? 15 : 127;
  const u32 bits = type == kF32 ? 32 : 16;
  return u32(word & 1) << (bits - 1) | u32(bias + (word >> 1 & 3)) << significand |
         (u32(word >> 8) & ((1u << significand) - 1));
}
