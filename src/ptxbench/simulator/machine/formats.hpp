// Number formats of matrix operands.
#pragma once
#include <cstring>

#include "float_format.hpp"

namespace ptx {

// Attribute values; lower/matrix.py mirrors them.
enum class Element : u8 { kF16, kBf16, kTf32, kE4m3, kE5m2, kS8, kU8, kE2m3, kE3m2, kE2m1 };

// Of an operand in memory, where 6- and 4-bit elements take a byte each with their padding.
constexpr u32 bytes_of(Element element) {
  return element == Element::kTf32 ? 4 : element >= Element::kE4m3 ? 1 : 2;
}
// Of the 16 bytes that hold 16 bytes' worth of elements, those without the padding behind 6- and 4-bit elements.
constexpr u32 packed_bytes(Element element) {
  return element == Element::kE2m1 ? 8 : element == Element::kE2m3 || element == Element::kE3m2 ? 12 : 16;
}
constexpr const char* name_of(Element element) {
  constexpr const char* kNames[] = {"f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8", "e2m3", "e3m2", "e2m1"};
  return kNames[size_t(element)];
}

// One element in the low bits of `value`. The low 13 bits of a tf32 operand are ignored.
float element_value(Element element, u32 value);

// The eight f16 or bf16 elements of 16 bytes.
template <class T>
inline void decode_halves(const u8* bytes, float* out) {
  u16 halves[8];
  std::memcpy(halves, bytes, 16);
  for (u32 i = 0; i < 8; ++i) out[i] = to_f32(T{halves[i]});
}

// The elements of 16 bytes; 6- and 4-bit elements are packed at the front (b6x16_p32, b4x16_p64).
void decode_chunk(Element element, const u8* bytes, float* out);

}  // namespace ptx
