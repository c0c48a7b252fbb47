// Arithmetic of f16 and bf16, scalar and packed in pairs. Sums and products are computed in f32 and rounded once more,
// which is right because f32 has more than twice their precision; fma needs an exact intermediate.
#include "float_format.hpp"

namespace ptx {
namespace {

template <class T>
constexpr const Format& kFormat = kF16;
template <>
constexpr const Format& kFormat<bf16> = kBf16;

struct Add { template <class T> T operator()(T a, T b) const { return narrow<T>(to_f32(a) + to_f32(b)); } };
struct Sub { template <class T> T operator()(T a, T b) const { return narrow<T>(to_f32(a) - to_f32(b)); } };
struct Mul { template <class T> T operator()(T a, T b) const { return narrow<T>(to_f32(a) * to_f32(b)); } };
struct Fma {
  template <class T>
  T operator()(T a, T b, T c) const {
    const f64 exact = add_to_odd(f64(to_f32(a)) * f64(to_f32(b)), f64(to_f32(c)));
    return T{u16(encode(exact, kFormat<T>, kNearest, false))};
  }
};
struct Neg { template <class T> T operator()(T a) const { return T{u16(a.bits ^ 0x8000)}; } };
struct Abs { template <class T> T operator()(T a) const { return T{u16(a.bits & 0x7fff)}; } };

template <class T>
inline bool is_nan(T value) { return (value.bits & 0x7fff) > kFormat<T>.largest + 1; }

template <class T>
inline T flush_half(T value) {
  constexpr u16 exponent = std::is_same_v<T, f16> ? 0x7c00 : 0x7f80;
  return value.bits & exponent ? value : T{u16(value.bits & 0x8000)};
}

// What flags ask of a result.
template <class T>
inline T finish(T value, i32 flags) {
  if (flags & kFtz) value = flush_half(value);
  if (flags & kSat) value = narrow<T>(saturate_unit(to_f32(value)));
  if (flags & kRelu) value = is_nan(value) ? T{0x7fff} : value.bits & 0x8000 ? T{0} : value;
  return value;
}

template <class Function>
struct Arithmetic {
  i32 flags;
  template <class... T>
  auto operator()(T... t) const {
    if (flags & kFtz) return finish(Function{}(flush_half(t)...), flags);
    return finish(Function{}(t...), flags);
  }
};

// A NaN loses unless `nan`; -0 is less than +0; with xorsign the magnitudes are compared.
template <bool Max>
struct Extreme {
  i32 flags;
  template <class T>
  T operator()(T a, T b) const {
    const u16 sign = (a.bits ^ b.bits) & 0x8000;
    if (flags & kFtz) a = flush_half(a), b = flush_half(b);
    if (flags & kXorsign) a = Abs{}(a), b = Abs{}(b);
    const bool nan_a = is_nan(a), nan_b = is_nan(b);
    const f32 x = to_f32(a), y = to_f32(b);
    const bool a_first = Max ? x > y || (x == y && !(a.bits & 0x8000)) : x < y || (x == y && (a.bits & 0x8000));
    T result = nan_b || (a_first && !nan_a) ? a : b;
    if ((nan_a && nan_b) || ((nan_a || nan_b) && (flags & kNan))) result = T{0x7fff};
    return flags & kXorsign ? T{u16((result.bits & 0x7fff) | sign)} : result;
  }
};

template <class Function, class T>
Step unary(Warp& warp, const Insn& insn, u32 mask) {
  return map_lanes<T, T>(warp, insn, mask, Function{insn.attr[1]});
}
template <class Function, class T>
Step binary(Warp& warp, const Insn& insn, u32 mask) {
  return map_lanes<T, T, T>(warp, insn, mask, Function{insn.attr[1]});
}
template <class Function, class T>
Step ternary(Warp& warp, const Insn& insn, u32 mask) {
  return map_lanes<T, T, T, T>(warp, insn, mask, Function{insn.attr[1]});
}

// Both halves of the words.
template <class Function, class T, class... S>
Step packed(Warp& warp, const Insn& insn, u32 mask) {
  const Function function{insn.attr[1]};
  return map_lanes<u32, S...>(warp, insn, mask, [function](S... s) {
    const T low = function(T{u16(s)}...), high = function(T{u16(s >> 16)}...);
    return low.bits | u32(high.bits) << 16;
  });
}

#define PTX_UNARY(name, F)                                                                                   \
  {name ".f16", unary<F, f16>}, {name ".bf16", unary<F, bf16>}, {name ".f16x2", packed<F, f16, u32>},        \
  {name ".bf16x2", packed<F, bf16, u32>}
#define PTX_BINARY(name, F)                                                                                  \
  {name ".f16", binary<F, f16>}, {name ".bf16", binary<F, bf16>}, {name ".f16x2", packed<F, f16, u32, u32>}, \
  {name ".bf16x2", packed<F, bf16, u32, u32>}
#define PTX_TERNARY(name, F)                                          \
  {name ".f16", ternary<F, f16>}, {name ".bf16", ternary<F, bf16>},   \
  {name ".f16x2", packed<F, f16, u32, u32, u32>}, {name ".bf16x2", packed<F, bf16, u32, u32, u32>}

constexpr NamedHandler kTable[] = {
    PTX_BINARY("add", Arithmetic<Add>),
    PTX_BINARY("sub", Arithmetic<Sub>),
    PTX_BINARY("mul", Arithmetic<Mul>),
    PTX_TERNARY("fma", Arithmetic<Fma>),
    PTX_UNARY("neg", Arithmetic<Neg>),
    PTX_UNARY("abs", Arithmetic<Abs>),
    PTX_BINARY("min", Extreme<false>),
    PTX_BINARY("max", Extreme<true>),
};

}  // namespace

std::span<const NamedHandler> half_handlers() { return kTable; }

}  // namespace ptx
