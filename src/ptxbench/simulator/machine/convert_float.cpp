// cvt between floats, and between floats and integers. Attributes: rounding, flags, bits of the destination register.
#include <algorithm>

#include "float_format.hpp"

namespace ptx {
namespace {

inline f32 widen(f16 value) { return to_f32(value); }
inline f32 widen(bf16 value) { return to_f32(value); }
inline f32 widen(f32 value) { return value; }
inline f64 widen(f64 value) { return value; }

template <class T>
inline T round_integral(T value, i32 rounding) {
  switch (rounding & 3) {
    case kNearest: return std::nearbyint(value);
    case kToZero: return std::trunc(value);
    case kDown: return std::floor(value);
    default: return std::ceil(value);
  }
}

// Every integer that f64 cannot hold has its last bits replaced by one sticky bit, so that a later rounding is right.
inline f64 odd_f64(u64 magnitude) {
  if (magnitude >> 53) return f64(magnitude >> 11 | ((magnitude & 0x7ff) != 0)) * 0x1p11;
  return f64(magnitude);
}
template <class S>
inline f64 odd_f64_of(S value) {
  if constexpr (std::is_signed_v<S>)
    if (value < 0) return -odd_f64(u64(0) - u64(i64(value)));
  return odd_f64(u64(value));
}

template <class D, class S>
Step integer_to_float(Warp& warp, const Insn& insn, u32 mask) {
  const i32 rounding = insn.attr[0];
  const bool saturate = insn.attr[1] & kSat;
  if constexpr (sizeof(D) == 2) {
    return map_lanes<D, S>(warp, insn, mask, [=](S a) {
      const f64 value = odd_f64_of(a);
      return D{u16(encode(saturate ? saturate_unit(value) : value, kFormat<D>, rounding, false))};
    });
  } else {
    const RoundingScope scope(rounding);
    return map_lanes<D, S>(warp, insn, mask, [=](S a) { return saturate ? saturate_unit(D(a)) : D(a); });
  }
}

// Out of range gives the nearest integer of the type. NaN gives 0, or the top bit alone where f64 or a 64-bit integer
// takes part (PTX ISA, cvt).
template <class D, class S>
inline D to_integer(S value, i32 rounding) {
  using Limits = std::numeric_limits<D>;
  if (value != value) return sizeof(S) == 8 || sizeof(D) == 8 ? D(u64(1) << (8 * sizeof(D) - 1)) : D(0);
  const S rounded = round_integral(value, rounding);
  // One above the largest value is a power of two, which every source type holds.
  const S above = std::ldexp(S(1), Limits::digits);
  if (rounded >= above) return Limits::max();
  if (rounded <= S(Limits::lowest())) return Limits::lowest();
  return D(rounded);
}

template <class D, class S>
Step float_to_integer(Warp& warp, const Insn& insn, u32 mask) {
  const i32 rounding = insn.attr[0];
  const bool ftz = insn.attr[1] & kFtz;
  const auto value = [=](S a) {
    auto wide = widen(a);
    if constexpr (std::is_same_v<S, f32>) wide = ftz ? flush(wide) : wide;
    return to_integer<D>(wide, rounding);
  };
  if constexpr (sizeof(D) < 4) {
    const u32 keep = insn.attr[2] < 32 ? (1u << insn.attr[2]) - 1 : kFullMask;
    return map_lanes<u32, S>(warp, insn, mask, [=](S a) { return u32(i32(value(a))) & keep; });
  } else {
    return map_lanes<D, S>(warp, insn, mask, value);
  }
}

// To f32 or f64; the host rounds.
template <class D, class S>
Step float_to_wide(Warp& warp, const Insn& insn, u32 mask) {
  const i32 rounding = insn.attr[0], flags = insn.attr[1];
  const bool ftz = flags & kFtz, saturate = flags & kSat, integral = rounding & kIntegral;
  const RoundingScope scope(integral ? i32(kNearest) : rounding);
  if (!flags && !integral) return map_lanes<D, S>(warp, insn, mask, [](S a) { return D(widen(a)); });
  return map_lanes<D, S>(warp, insn, mask, [=](S a) {
    auto value = widen(a);
    if constexpr (std::is_same_v<S, f32>) value = ftz ? flush(value) : value;
    D result = D(integral ? round_integral(value, rounding) : value);
    if constexpr (std::is_same_v<D, f32>) result = ftz ? flush(result) : result;
    return saturate ? saturate_unit(result) : result;
  });
}

// To f16 or bf16. A subnormal f32 keeps its value with .ftz too, against the PTX ISA: ptxas leaves .ftz out, and an
// H200 rounds 2^-140 to the least f16 in cvt.rp.ftz.f16.f32.
template <class D, class S>
Step float_to_half(Warp& warp, const Insn& insn, u32 mask) {
  const i32 rounding = insn.attr[0], flags = insn.attr[1];
  if constexpr (std::is_same_v<S, f32>) {
    if (rounding == kNearest && flags == 0)
      return map_lanes<D, S>(warp, insn, mask, [](f32 a) { return narrow<D>(a); });
  }
  const bool integral = rounding & kIntegral;
  return map_lanes<D, S>(warp, insn, mask, [=](S a) {
    f64 value = f64(widen(a));
    if (integral) value = round_integral(value, rounding);
    if (flags & kSat) value = saturate_unit(value);
    const D result{u16(encode(value, kFormat<D>, integral ? i32(kNearest) : rounding, flags & kSatfinite))};
    return flags & kRelu ? relu(result) : result;
  });
}

// To tf32: 10 mantissa bits in the place of 23. NaN is as on an H200: rn and rz give one NaN for all, whereas rna cuts
// off its low bits, and satfinite then takes the pattern below, which of infinity is the largest number.
Step float_to_tf32(Warp& warp, const Insn& insn, u32 mask) {
  const i32 rounding = insn.attr[0], flags = insn.attr[1];
  constexpr u32 kDropped = 0x1fff, kInfinity = 0x7f800000;
  return map_lanes<u32, u32>(warp, insn, mask, [=](u32 a) {
    const u32 sign = a & 0x80000000, magnitude = a & 0x7fffffff;
    const u32 half = rounding == kToZero ? 0 : rounding == kNearestAway ? 0x1000 : 0xfff + (magnitude >> 13 & 1);
    if (magnitude > kInfinity && rounding != kNearestAway) return kCanonicalNan & ~kDropped;
    u32 result = (magnitude < kInfinity ? magnitude + half : magnitude) & ~kDropped;
    if ((flags & kSatfinite) && result >= kInfinity) result -= kDropped + 1;
    return (flags & kRelu) && sign ? 0 : sign | result;
  });
}

#define PTX_FROM_INTEGER(tag, D)                                                                             \
  {"cvt." tag ".u8", integer_to_float<D, u8>}, {"cvt." tag ".s8", integer_to_float<D, i8>},                  \
  {"cvt." tag ".u16", integer_to_float<D, u16>}, {"cvt." tag ".s16", integer_to_float<D, i16>},              \
  {"cvt." tag ".u32", integer_to_float<D, u32>}, {"cvt." tag ".s32", integer_to_float<D, i32>},              \
  {"cvt." tag ".u64", integer_to_float<D, u64>}, {"cvt." tag ".s64", integer_to_float<D, i64>}
#define PTX_TO_INTEGER(tag, D)                                                                               \
  {"cvt." tag ".f16", float_to_integer<D, f16>}, {"cvt." tag ".bf16", float_to_integer<D, bf16>},            \
  {"cvt." tag ".f32", float_to_integer<D, f32>}, {"cvt." tag ".f64", float_to_integer<D, f64>}
#define PTX_FLOATS(CONVERT, tag, D)                                                                          \
  {"cvt." tag ".f16", CONVERT<D, f16>}, {"cvt." tag ".bf16", CONVERT<D, bf16>},                              \
  {"cvt." tag ".f32", CONVERT<D, f32>}, {"cvt." tag ".f64", CONVERT<D, f64>}

constexpr NamedHandler kTable[] = {
    PTX_FROM_INTEGER("f16", f16),
    PTX_FROM_INTEGER("bf16", bf16),
    PTX_FROM_INTEGER("f32", f32),
    PTX_FROM_INTEGER("f64", f64),
    PTX_TO_INTEGER("u8", u8),
    PTX_TO_INTEGER("s8", i8),
    PTX_TO_INTEGER("u16", u16),
    PTX_TO_INTEGER("s16", i16),
    PTX_TO_INTEGER("u32", u32),
    PTX_TO_INTEGER("s32", i32),
    PTX_TO_INTEGER("u64", u64),
    PTX_TO_INTEGER("s64", i64),
    PTX_FLOATS(float_to_half, "f16", f16),
    PTX_FLOATS(float_to_half, "bf16", bf16),
    PTX_FLOATS(float_to_wide, "f32", f32),
    PTX_FLOATS(float_to_wide, "f64", f64),
    {"cvt.tf32.f32", float_to_tf32},
};

}  // namespace

std::span<const NamedHandler> convert_float_handlers() { return kTable; }

}  // namespace ptx
