// Vectors of floats, of the widest kind that the host has.
#pragma once
#include <cstring>

#include "insn.hpp"

namespace ptx {

#ifdef __AVX512F__
constexpr u32 kWidth = 16;
#else
constexpr u32 kWidth = 8;
#endif
using Vec = float __attribute__((vector_size(kWidth * 4)));
using Index = int __attribute__((vector_size(kWidth * 4)));
using Vec8 = float __attribute__((vector_size(32)));
using Index8 = int __attribute__((vector_size(32)));

template <class Value = Vec>
inline Value load(const float* from) {
  Value value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class Value>
inline void store(float* to, Value value) {
  std::memcpy(to, &value, sizeof value);
}
template <class Value>
inline void add_to(float* to, Value value) {
  store(to, load<Value>(to) + value);
}

// Four elements of a vector, from 4i on, repeated.
inline Vec repeat_four(Vec values, u32 i) {
  Index pattern;
  for (u32 l = 0; l < kWidth; ++l) pattern[l] = int(4 * i + l % 4);
  return __builtin_shuffle(values, pattern);
}

// In every four elements, the one with number i.
inline Vec repeat_in_fours(Vec values, u32 i) {
  Index pattern;
  for (u32 l = 0; l < kWidth; ++l) pattern[l] = int(l / 4 * 4 + i);
  return __builtin_shuffle(values, pattern);
}

// Transposes eight rows of eight elements: result i holds element i of every row.
inline void transpose(Vec8 (&rows)[8]) {
  Vec8 pairs[8], fours[8];
  for (u32 i = 0; i < 8; i += 2) {
    pairs[i] = __builtin_shuffle(rows[i], rows[i + 1], Index8{0, 8, 1, 9, 4, 12, 5, 13});
    pairs[i + 1] = __builtin_shuffle(rows[i], rows[i + 1], Index8{2, 10, 3, 11, 6, 14, 7, 15});
  }
  for (u32 i = 0; i < 8; i += 4)
    for (u32 j = 0; j < 2; ++j) {
      fours[i + 2 * j] = __builtin_shuffle(pairs[i + j], pairs[i + j + 2], Index8{0, 1, 8, 9, 4, 5, 12, 13});
      fours[i + 2 * j + 1] = __builtin_shuffle(pairs[i + j], pairs[i + j + 2], Index8{2, 3, 10, 11, 6, 7, 14, 15});
    }
  for (u32 i = 0; i < 4; ++i) {
    rows[i] = __builtin_shuffle(fours[i], fours[i + 4], Index8{0, 1, 2, 3, 8, 9, 10, 11});
    rows[i + 4] = __builtin_shuffle(fours[i], fours[i + 4], Index8{4, 5, 6, 7, 12, 13, 14, 15});
  }
}

}  // namespace ptx
