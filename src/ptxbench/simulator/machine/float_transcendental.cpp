// The approximate functions: ex2, lg2, sin, cos, tanh, rsqrt. Hardware's results are within a few units in the last
// place of the true value (PTX ISA, "Floating Point Instructions"); these are the true values, rounded.
#include <algorithm>

#include "float_lanes.hpp"

namespace ptx {
namespace {

// A polynomial, highest coefficient first.
template <class... Coefficients>
inline f64 horner(f64 x, Coefficients... coefficients) {
  f64 sum = 0;
  ((sum = sum * x + coefficients), ...);
  return sum;
}

// 2^x = 2^n * 2^r with |r| <= 1/2. The Taylor polynomial of 2^r up to r^10 is within 2^-40, far below f32's precision.
// All steps are branch-free, so that the lanes vectorise.
struct Ex2 {
  f32 operator()(f32 a) const {
    constexpr f64 kLn2 = 0.693147180559945309417;
    const f64 x = a > 200.0f ? 200.0 : a < -200.0f ? -200.0 : f64(a);
    // Adding and subtracting 1.5 * 2^52 rounds to an integer, whose low bits then stand in the pattern.
    constexpr f64 kMagic = 0x1.8p52;
    const f64 shifted = x + kMagic, r = (x - (shifted - kMagic)) * kLn2;
    const f64 sum = horner(r, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24,
                           1.0 / 6, 0.5, 1.0, 1.0);
    const u64 scale = (bits_of(shifted) + 1023) << 52;
    const f32 result = f32(sum * std::bit_cast<f64>(scale));
    return a != a ? float_of(kCanonicalNan) : result;
  }
};

struct Lg2 { f32 operator()(f32 a) const { return f32(std::log2(f64(a))); } };
struct Sin { f32 operator()(f32 a) const { return f32(std::sin(f64(a))); } };
struct Cos { f32 operator()(f32 a) const { return f32(std::cos(f64(a))); } };
struct Tanh { f32 operator()(f32 a) const { return f32(std::tanh(f64(a))); } };
struct Rsqrt {
  f32 operator()(f32 a) const { return f32(1.0 / std::sqrt(f64(a))); }
  f64 operator()(f64 a) const { return 1.0 / std::sqrt(a); }
};

// The gross approximations in double precision read and write the upper words of f64 only (PTX ISA, rcp.approx.ftz.f64):
// 20 bits of mantissa, subnormals flushed.
template <bool Root>
struct Gross {
  f64 operator()(f64 a) const {
    const u64 bits = bits_of(a) >> 32 << 32;
    const f64 x = std::bit_cast<f64>(bits >> 52 & 0x7ff ? bits : bits & u64(1) << 63);
    const u64 result = bits_of(1.0 / (Root ? std::sqrt(x) : x));
    const u64 upper = (result + 0x80000000) >> 32 << 32;
    if (!(upper >> 52 & 0x7ff)) return std::bit_cast<f64>(upper & u64(1) << 63);
    return x != x || (Root && x < 0) ? std::bit_cast<f64>(u64(0x7fffffff) << 32) : std::bit_cast<f64>(upper);
  }
};

// Halves are computed in f32, whose result then loses its low bits, as on an H200; the ISA allows an error of about one
// unit in the last place.
template <class T>
inline T cut(f32 value) {
  const u32 bits = bits_of(value), magnitude = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
  const bool nan = magnitude > 0x7f800000;
  if constexpr (std::is_same_v<T, bf16>) return {u16(nan ? 0x7fff : bits >> 16)};
  const u32 normal = (magnitude - (112u << 23)) >> 13;
  const u32 subnormal = u32(std::min(1.0f, float_of(magnitude)) * 0x1p24f);
  const u32 finite = magnitude < 0x38800000 ? subnormal : normal;
  const u32 result = magnitude >= 0x47800000 ? 0x7c00 : finite;
  return {u16(nan ? 0x7fff : result | sign)};
}

// ex2 of bf16 has .ftz in all its forms.
template <class Function, class T>
inline T half_of(T a) {
  const f32 value = Function{}(to_f32(a));
  return cut<T>(std::is_same_v<Function, Ex2> && std::is_same_v<T, bf16> ? flush(value) : value);
}

template <class Function, class T>
Step half_function(Warp& warp, const Insn& insn, u32 mask) {
  return map_lanes<T, T>(warp, insn, mask, [](T a) { return half_of<Function>(a); });
}
template <class Function, class T>
Step packed_function(Warp& warp, const Insn& insn, u32 mask) {
  return map_lanes<u32, u32>(warp, insn, mask, [](u32 a) {
    const T low = half_of<Function>(T{u16(a)}), high = half_of<Function>(T{u16(a >> 16)});
    return low.bits | u32(high.bits) << 16;
  });
}

#define PTX_HALVES(name, F)                                                               \
  {name ".f16", half_function<F, f16>}, {name ".bf16", half_function<F, bf16>},           \
  {name ".f16x2", packed_function<F, f16>}, {name ".bf16x2", packed_function<F, bf16>}

constexpr NamedHandler kTable[] = {
    {"ex2.f32", float_lanes<Ex2, f32, f32>},
    {"lg2.f32", float_lanes<Lg2, f32, f32>},
    {"sin.f32", float_lanes<Sin, f32, f32>},
    {"cos.f32", float_lanes<Cos, f32, f32>},
    {"tanh.f32", float_lanes<Tanh, f32, f32>},
    {"rsqrt.f32", float_lanes<Rsqrt, f32, f32>},
    {"rsqrt.f64", float_lanes<Rsqrt, f64, f64>},
    {"rcp.gross.f64", lanewise<Gross<false>, f64, f64>},
    {"rsqrt.gross.f64", lanewise<Gross<true>, f64, f64>},
    PTX_HALVES("ex2", Ex2),
    PTX_HALVES("tanh", Tanh),
};

}  // namespace

std::span<const NamedHandler> transcendental_handlers() { return kTable; }

}  // namespace ptx
