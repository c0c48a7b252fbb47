// cvt.rs: two f32 to packed halves, rounded by random bits.
//
// cvt.rs.<packed>.f32: operands = d, high, low, random bits; attribute = flags
//
// Random bits are added to the discarded bits of the magnitude, and the carry rounds away from zero. Those of the low
// element are the lowest 13 (f16) or 16 (bf16) bits of the operand, those of the high element begin at bit 16.
#include "float_format.hpp"
#include "units.hpp"

namespace ptx {
namespace {

constexpr u32 kInfinity = 0x7f800000;

// The bits of a magnitude below infinity in units of the last place of f16, 13 bits behind the point. Subnormals have the
// spacing of the smallest normal numbers.
u32 scaled_half(u32 magnitude) {
  const u32 exponent = magnitude >> 23, mantissa = (magnitude & 0x7fffff) | 0x800000;
  if (exponent >= 113) return magnitude - (112u << 23);
  return exponent >= 90 ? mantissa >> (113 - exponent) : 0;
}

template <bool kHalf>
u32 convert(f32 value, u32 random, i32 flags) {
  constexpr u32 kDiscarded = kHalf ? 13 : 16, kLargest = kHalf ? kF16.largest : kBf16.largest;
  const u32 bits = bits_of(value), magnitude = bits & 0x7fffffff;
  if (magnitude > kInfinity) return 0x7fff;
  if ((flags & kRelu) && bits >> 31) return 0;
  const u32 scaled = kHalf ? scaled_half(magnitude) : magnitude;
  const u32 rounded = (scaled + (random & ((1u << kDiscarded) - 1))) >> kDiscarded;
  const bool finite = magnitude < kInfinity && rounded <= kLargest;
  return (bits >> 16 & 0x8000) | (finite ? rounded : flags & kSatfinite ? kLargest : kLargest + 1);
}

template <bool kHalf>
Step stochastic(Warp& warp, const Insn& insn, u32 mask) {
  const i32 flags = insn.attr[0];
  return map_lanes<u32, f32, f32, u32>(warp, insn, mask, [=](f32 high, f32 low, u32 random) {
    return convert<kHalf>(high, random >> 16, flags) << 16 | convert<kHalf>(low, random, flags);
  });
}

constexpr NamedHandler kTable[] = {{"cvt.rs.f16x2.f32", stochastic<true>}, {"cvt.rs.bf16x2.f32", stochastic<false>}};

}  // namespace

std::span<const NamedHandler> convert_stochastic_handlers() { return kTable; }

}  // namespace ptx
