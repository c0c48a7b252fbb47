#include "formats.hpp"

#include <array>
#include <cstring>

namespace ptx {
namespace {

using Float8Table = std::array<float, 256>;  // by pattern, of narrower formats too

Float8Table make_table(const Format& format) {
  const u32 mask = (2u << (format.exponent + format.mantissa)) - 1;
  Float8Table table;
  for (u32 pattern = 0; pattern < 256; ++pattern) table[pattern] = float(decode(pattern & mask, format));
  return table;
}

const Float8Table& float8_table(Element element) {
  static const Float8Table e4m3 = make_table(kE4m3), e5m2 = make_table(kE5m2), e2m3 = make_table(kE2m3),
                           e3m2 = make_table(kE3m2), e2m1 = make_table(kE2m1);
  switch (element) {
    case Element::kE4m3: return e4m3;
    case Element::kE2m3: return e2m3;
    case Element::kE3m2: return e3m2;
    case Element::kE2m1: return e2m1;
    default: return e5m2;
  }
}

float tf32_value(u32 bits) { return float_of(bits & 0xffffe000u); }

}  // namespace

float element_value(Element element, u32 value) {
  switch (element) {
    case Element::kBf16: return to_f32(bf16{u16(value)});
    case Element::kF16: return to_f32(f16{u16(value)});
    case Element::kTf32: return tf32_value(value);
    case Element::kS8: return float(i8(value));
    case Element::kU8: return float(u8(value));
    default: return float8_table(element)[value & 0xff];
  }
}

void decode_chunk(Element element, const u8* bytes, float* out) {
  u32 words[4];
  std::memcpy(words, bytes, 16);
  switch (element) {
    case Element::kBf16: decode_halves<bf16>(bytes, out); break;
    case Element::kF16: decode_halves<f16>(bytes, out); break;
    case Element::kTf32:
      for (u32 i = 0; i < 4; ++i) out[i] = tf32_value(words[i]);
      break;
    case Element::kS8:
      for (u32 i = 0; i < 16; ++i) out[i] = float(i8(bytes[i]));
      break;
    case Element::kU8:
      for (u32 i = 0; i < 16; ++i) out[i] = float(bytes[i]);
      break;
    case Element::kE2m3:
    case Element::kE3m2:
      for (u32 i = 0; i < 16; ++i) {
        const u32 bit = 6 * i, word = bytes[bit / 8] | u32(bytes[bit / 8 + 1]) << 8;
        out[i] = float8_table(element)[word >> bit % 8 & 0x3f];
      }
      break;
    case Element::kE2m1:
      for (u32 i = 0; i < 16; ++i) out[i] = float8_table(element)[bytes[i / 2] >> (i % 2 * 4) & 0xf];
      break;
    default:
      for (u32 i = 0; i < 16; ++i) out[i] = float8_table(element)[bytes[i]];
  }
}

}  // namespace ptx
