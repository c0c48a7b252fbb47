// cvt to and from packed pairs of narrow floats. Attributes: rounding, flags.
#include "float_format.hpp"

namespace ptx {
namespace {

// How a packed type lies in its register: the format of an element and the distance between the two.
struct Packed {
  Format format;
  int shift;
};
constexpr Packed kF16x2{kF16, 16}, kBf16x2{kBf16, 16}, kE4m3x2{kE4m3, 8}, kE5m2x2{kE5m2, 8}, kE3m2x2{kE3m2, 8},
    kE2m3x2{kE2m3, 8}, kE2m1x2{kE2m1, 4};

inline u32 element(u32 word, const Packed& packed, int index) {
  return word >> (index * packed.shift) & ((1u << packed.shift) - 1);
}

inline u32 encode_element(f64 value, const Format& format, i32 rounding, i32 flags) {
  if ((flags & kRelu) && value < 0) value = 0;
  const u32 bits = encode(value, format, rounding, flags & kSatfinite);
  return (flags & kRelu) && value == 0 ? 0 : bits;
}

// d, high, low from two f32.
template <const Packed& To>
Step from_f32(Warp& warp, const Insn& insn, u32 mask) {
  const i32 rounding = insn.attr[0], flags = insn.attr[1];
  return map_lanes<u32, f32, f32>(warp, insn, mask, [=](f32 high, f32 low) {
    return encode_element(high, To.format, rounding, flags) << To.shift |
           encode_element(low, To.format, rounding, flags);
  });
}

// The common case of the 16-bit formats: to nearest, no flags.
template <class T, const Packed& To>
Step halves_from_f32(Warp& warp, const Insn& insn, u32 mask) {
  if (insn.attr[0] != kNearest || insn.attr[1]) return from_f32<To>(warp, insn, mask);
  return map_lanes<u32, f32, f32>(warp, insn, mask, [](f32 high, f32 low) {
    return u32(narrow<T>(high).bits) << 16 | narrow<T>(low).bits;
  });
}

// d, a from a packed pair.
template <const Packed& To, const Packed& From>
Step repack(Warp& warp, const Insn& insn, u32 mask) {
  const i32 rounding = insn.attr[0], flags = insn.attr[1];
  return map_lanes<u32, u32>(warp, insn, mask, [=](u32 a) {
    const auto one = [=](int index) {
      return encode_element(decode(element(a, From, index), From.format), To.format, rounding, flags);
    };
    return one(1) << To.shift | one(0);
  });
}

// ue8m0 holds the exponent of a magnitude: towards zero drops the rest, upwards rounds to the next power of two.
u32 exponent_of(f32 value, i32 rounding, i32 flags) {
  const u32 magnitude = bits_of(value) & 0x7fffffff, rest = magnitude & 0x7fffff;
  if (magnitude > 0x7f800000) return 0xff;
  const bool up = rounding == kUp && rest && magnitude > 0x400000 && magnitude < 0x7f800000;
  const u32 exponent = (magnitude >> 23) + up;
  return (flags & kSatfinite) && exponent == 0xff ? 0xfe : exponent;
}

Step exponents_from_f32(Warp& warp, const Insn& insn, u32 mask) {
  const i32 rounding = insn.attr[0], flags = insn.attr[1];
  return map_lanes<u32, f32, f32>(warp, insn, mask, [=](f32 high, f32 low) {
    return exponent_of(high, rounding, flags) << 8 | exponent_of(low, rounding, flags);
  });
}

Step exponents_from_bf16(Warp& warp, const Insn& insn, u32 mask) {
  const i32 rounding = insn.attr[0], flags = insn.attr[1];
  return map_lanes<u32, u32>(warp, insn, mask, [=](u32 pair) {
    return exponent_of(float_of(pair & 0xffff0000), rounding, flags) << 8 | exponent_of(float_of(pair << 16), rounding, flags);
  });
}

// 2^(e - 127); the smallest is subnormal, 255 is NaN.
u32 power_of(u32 exponent) { return exponent == 0xff ? kBf16.nan : exponent ? exponent << 7 : 0x40; }

Step bf16_from_exponents(Warp& warp, const Insn& insn, u32 mask) {
  return map_lanes<u32, u32>(warp, insn, mask,
                             [](u32 pair) { return power_of(pair >> 8 & 0xff) << 16 | power_of(pair & 0xff); });
}

#define PTX_NARROW(tag, TYPE)                                                            \
  {"cvt." tag ".f32", from_f32<TYPE>}, {"cvt." tag ".f16x2", repack<TYPE, kF16x2>},      \
  {"cvt.f16x2." tag, repack<kF16x2, TYPE>}

constexpr NamedHandler kTable[] = {
    {"cvt.f16x2.f32", halves_from_f32<f16, kF16x2>},
    {"cvt.bf16x2.f32", halves_from_f32<bf16, kBf16x2>},
    PTX_NARROW("e4m3x2", kE4m3x2),
    PTX_NARROW("e5m2x2", kE5m2x2),
    PTX_NARROW("e3m2x2", kE3m2x2),
    PTX_NARROW("e2m3x2", kE2m3x2),
    PTX_NARROW("e2m1x2", kE2m1x2),
    {"cvt.ue8m0x2.f32", exponents_from_f32},
    {"cvt.ue8m0x2.bf16x2", exponents_from_bf16},
    {"cvt.bf16x2.ue8m0x2", bf16_from_exponents},
};

}  // namespace

std::span<const NamedHandler> convert_packed_handlers() { return kTable; }

}  // namespace ptx
