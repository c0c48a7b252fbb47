// Number formats of matrix operands.
#pragma once
#include "float_format.hpp"

namespace ptx {

// Attribute values; lower/matrix.py mirrors them.
enum class Element : u8 { kF16, kBf16, kTf32, kE4m3, kE5m2, kS8, kU8 };

constexpr u32 bytes_of(Element element) {
  return element == Element::kTf32 ? 4 : element >= Element::kE4m3 ? 1 : 2;
}
constexpr const char* name_of(Element element) {
  constexpr const char* kNames[] = {"f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8"};
  return kNames[size_t(element)];
}

// One element in the low bits of `value`. The low 13 bits of a tf32 operand are ignored.
float element_value(Element element, u32 value);

// The elements of 16 bytes.
void decode_chunk(Element element, const u8* bytes, float* out);

}  // namespace ptx
