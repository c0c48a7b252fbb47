// Arithmetic of f32, f64 and packed f32x2: add, sub, mul, fma, div, rcp, sqrt, min, max, abs, neg, copysign, testp.
#include "float_lanes.hpp"

namespace ptx {
namespace {

struct Add { template <class T> T operator()(T a, T b) const { return a + b; } };
struct Sub { template <class T> T operator()(T a, T b) const { return a - b; } };
struct Mul { template <class T> T operator()(T a, T b) const { return a * b; } };
struct Fma { template <class T> T operator()(T a, T b, T c) const { return std::fma(a, b, c); } };
struct Div { template <class T> T operator()(T a, T b) const { return a / b; } };
struct Rcp { template <class T> T operator()(T a) const { return T(1) / a; } };
struct Sqrt { template <class T> T operator()(T a) const { return std::sqrt(a); } };

// Packed pairs of f32, low half first.
template <class Function, class... S>
struct Pairwise {
  u64 operator()(S... s) const {
    const u32 low = bits_of(Function{}(float_of(u32(s))...)), high = bits_of(Function{}(float_of(u32(s >> 32))...));
    return low | u64(high) << 32;
  }
};
template <class Function>
struct Flushed {
  template <class... T>
  f32 operator()(T... t) const { return flush(Function{}(flush(t)...)); }
};

template <class Function, class... S>
Step pair_lanes(Warp& warp, const Insn& insn, u32 mask) {
  const RoundingScope rounding(insn.attr[0]);
  if (insn.attr[1] & kFtz) return map_lanes<u64, S...>(warp, insn, mask, Pairwise<Flushed<Function>, S...>{});
  return map_lanes<u64, S...>(warp, insn, mask, Pairwise<Function, S...>{});
}

template <class T>
using Pattern = std::conditional_t<sizeof(T) == 8, u64, u32>;
template <class T>
constexpr Pattern<T> kSign = Pattern<T>(1) << (8 * sizeof(T) - 1);

template <class T>
inline bool sign_of(T value) { return std::bit_cast<Pattern<T>>(value) & kSign<T>; }

// The smaller or larger of two: a NaN loses unless `Nan`; -0 is less than +0.
template <bool Max, bool Nan, class T>
inline T extreme(T a, T b) {
  const bool equal_first = (a == b) & (sign_of(a) != Max), a_first = (Max ? a > b : a < b) | equal_first;
  T result = a_first | (b != b) ? a : b;
  const bool any = (a != a) | (b != b), both = (a != a) & (b != b);
  if constexpr (sizeof(T) == 4)
    result = (Nan ? any : both) ? float_of(kCanonicalNan) : result;
  return result;
}

// An operand of min or max.
template <bool Ftz, bool Magnitude>
inline f32 operand_of(f32 a) {
  const f32 value = Ftz ? flush(a) : a;
  return Magnitude ? std::fabs(value) : value;
}

template <bool Max, bool Nan, bool Ftz>
Step extreme_lanes(Warp& warp, const Insn& insn, u32 mask) {
  const auto map = [&](auto two) {
    if (insn.ops.size() == 4)
      return map_lanes<f32, f32, f32, f32>(warp, insn, mask, [=](f32 a, f32 b, f32 c) { return two(two(a, b), c); });
    return map_lanes<f32, f32, f32>(warp, insn, mask, two);
  };
  if (insn.attr[1] & kXorsign)
    return map_lanes<f32, f32, f32>(warp, insn, mask, [](f32 a, f32 b) {
      const u32 sign = (bits_of(a) ^ bits_of(b)) & kSign<f32>;
      const f32 magnitude = extreme<Max, Nan>(operand_of<Ftz, true>(a), operand_of<Ftz, true>(b));
      return float_of((bits_of(magnitude) & ~kSign<f32>) | sign);
    });
  if (insn.attr[1] & kAbs)
    return map([](f32 a, f32 b) { return extreme<Max, Nan>(operand_of<Ftz, true>(a), operand_of<Ftz, true>(b)); });
  return map([](f32 a, f32 b) { return extreme<Max, Nan>(operand_of<Ftz, false>(a), operand_of<Ftz, false>(b)); });
}

// Attribute 1: ftz, NaN, abs, xorsign.abs (the sign is the exclusive or of the signs, the magnitude that of the
// magnitudes).
template <bool Max>
Step extreme_f32(Warp& warp, const Insn& insn, u32 mask) {
  switch (insn.attr[1] & (kNan | kFtz)) {
    case 0: return extreme_lanes<Max, false, false>(warp, insn, mask);
    case kNan: return extreme_lanes<Max, true, false>(warp, insn, mask);
    case kFtz: return extreme_lanes<Max, false, true>(warp, insn, mask);
    default: return extreme_lanes<Max, true, true>(warp, insn, mask);
  }
}

template <bool Max>
Step extreme_f64(Warp& warp, const Insn& insn, u32 mask) {
  return map_lanes<f64, f64, f64>(warp, insn, mask, [](f64 a, f64 b) { return extreme<Max, false>(a, b); });
}

struct Abs { template <class T> T operator()(T a) const { return std::fabs(a); } };
struct Neg { template <class T> T operator()(T a) const { return -a; } };

// The magnitude of b with the sign of a.
struct Copysign {
  template <class T>
  T operator()(T a, T b) const {
    using P = Pattern<T>;
    return std::bit_cast<T>(P((std::bit_cast<P>(b) & P(~kSign<T>)) | (std::bit_cast<P>(a) & kSign<T>)));
  }
};

// In the order of the lowering's attribute.
enum Property : i32 { kFinite, kInfinite, kNumber, kNotANumber, kNormal, kSubnormal };

template <class T>
bool has_property(T value, i32 property) {
  switch (property) {
    case kFinite: return std::isfinite(value);
    case kInfinite: return std::isinf(value);
    case kNumber: return !std::isnan(value);
    case kNotANumber: return std::isnan(value);
    case kNormal: return std::isnormal(value) || value == 0;
    default: return std::fpclassify(value) == FP_SUBNORMAL;
  }
}

template <class T>
Step testp(Warp& warp, const Insn& insn, u32 mask) {
  const Word<T>* a = words<T>(warp, insn.ops[1]);
  warp.set_pred(insn.ops[0], mask, lane_mask([&](int l) { return has_property(from_word<T>(a[l]), insn.attr[0]); }));
  return Step::kNext;
}

#define PTX_FLOAT1(name, F) {name ".f32", float_lanes<F, f32, f32>}, {name ".f64", float_lanes<F, f64, f64>}
#define PTX_FLOAT2(name, F) {name ".f32", float_lanes<F, f32, f32, f32>}, {name ".f64", float_lanes<F, f64, f64, f64>}

constexpr NamedHandler kTable[] = {
    PTX_FLOAT2("add", Add),
    PTX_FLOAT2("sub", Sub),
    PTX_FLOAT2("mul", Mul),
    PTX_FLOAT2("div", Div),
    {"fma.f32", float_lanes<Fma, f32, f32, f32, f32>},
    {"fma.f64", float_lanes<Fma, f64, f64, f64, f64>},
    PTX_FLOAT1("rcp", Rcp),
    PTX_FLOAT1("sqrt", Sqrt),
    PTX_FLOAT1("abs", Abs),
    PTX_FLOAT1("neg", Neg),
    PTX_FLOAT2("copysign", Copysign),
    {"add.f32x2", pair_lanes<Add, u64, u64>},
    {"sub.f32x2", pair_lanes<Sub, u64, u64>},
    {"mul.f32x2", pair_lanes<Mul, u64, u64>},
    {"fma.f32x2", pair_lanes<Fma, u64, u64, u64>},
    {"min.f32", extreme_f32<false>},
    {"max.f32", extreme_f32<true>},
    {"min.f64", extreme_f64<false>},
    {"max.f64", extreme_f64<true>},
    {"testp.f32", testp<f32>},
    {"testp.f64", testp<f64>},
};

}  // namespace

std::span<const NamedHandler> float_handlers() { return kTable; }

}  // namespace ptx
