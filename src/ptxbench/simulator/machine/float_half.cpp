// Arithmetic of f16 and bf16, scalar and packed in pairs. Sums and products are computed in f32 and rounded once more,
// which is right because f32 has more than twice their precision; fma needs an exact intermediate.
#include "float_format.hpp"

namespace ptx {
namespace {

struct Add { template <class T> T operator()(T a, T b) const { return narrow<T>(to_f32(a) + to_f32(b)); } };
struct Sub { template <class T> T operator()(T a, T b) const { return narrow<T>(to_f32(a) - to_f32(b)); } };
struct Mul { template <class T> T operator()(T a, T b) const { return narrow<T>(to_f32(a) * to_f32(b)); } };
struct Fma {
  template <class T>
  T operator()(T a, T b, T c) const {
    return narrow<T>(f32_to_odd(add_to_odd(f64(to_f32(a)) * f64(to_f32(b)), f64(to_f32(c)))));
  }
};
// .oob: an element from outside a tensor makes the result zero.
struct FmaOutside {
  template <class T>
  T operator()(T a, T b, T c) const {
    const auto outside = [](T value) { return (value.bits & 0x7fff) == kOutsideNan; };
    return outside(a) || outside(b) ? T{0} : Fma{}(a, b, c);
  }
};
struct Neg { template <class T> T operator()(T a) const { return T{u16(a.bits ^ 0x8000)}; } };
struct Abs { template <class T> T operator()(T a) const { return T{u16(a.bits & 0x7fff)}; } };

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
  if (flags & kRelu) value = relu(value);
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

// A NaN wins with `nan`; with xorsign the magnitudes are compared.
template <bool Max>
struct Extreme {
  i32 flags;
  template <class T>
  T operator()(T a, T b) const {
    const u16 sign = (a.bits ^ b.bits) & 0x8000;
    if (flags & kFtz) a = flush_half(a), b = flush_half(b);
    if (flags & kXorsign) a = Abs{}(a), b = Abs{}(b);
    const T result = (flags & kNan) && (is_nan(a) || is_nan(b)) ? T{0x7fff} : extreme_half<Max>(a, b);
    return flags & kXorsign ? T{u16((result.bits & 0x7fff) | sign)} : result;
  }
};

// Both halves of the words.
template <class T, class... S, class Function>
Step map_packed(Warp& warp, const Insn& insn, u32 mask, Function function) {
  return map_lanes<u32, S...>(warp, insn, mask, [function](S... s) {
    const T low = function(T{u16(s)}...), high = function(T{u16(s >> 16)}...);
    return low.bits | u32(high.bits) << 16;
  });
}

// Arithmetic, scalar and packed; without flags the loop vectorises.
template <class Function, class T, class... S>
Step scalar(Warp& warp, const Insn& insn, u32 mask) {
  if (!insn.attr[1]) return map_lanes<T, S...>(warp, insn, mask, Function{});
  return map_lanes<T, S...>(warp, insn, mask, Arithmetic<Function>{insn.attr[1]});
}
template <class Function, class T, class... S>
Step packed(Warp& warp, const Insn& insn, u32 mask) {
  if (!insn.attr[1]) return map_packed<T, S...>(warp, insn, mask, Function{});
  return map_packed<T, S...>(warp, insn, mask, Arithmetic<Function>{insn.attr[1]});
}

template <bool Max, class T>
Step extreme(Warp& warp, const Insn& insn, u32 mask) {
  return map_lanes<T, T, T>(warp, insn, mask, Extreme<Max>{insn.attr[1]});
}
template <bool Max, class T>
Step extreme_packed(Warp& warp, const Insn& insn, u32 mask) {
  return map_packed<T, u32, u32>(warp, insn, mask, Extreme<Max>{insn.attr[1]});
}

#define PTX_UNARY(name, F)                                                                                  \
  {name ".f16", scalar<F, f16, f16>}, {name ".bf16", scalar<F, bf16, bf16>},                                \
  {name ".f16x2", packed<F, f16, u32>}, {name ".bf16x2", packed<F, bf16, u32>}
#define PTX_BINARY(name, F)                                                                                 \
  {name ".f16", scalar<F, f16, f16, f16>}, {name ".bf16", scalar<F, bf16, bf16, bf16>},                     \
  {name ".f16x2", packed<F, f16, u32, u32>}, {name ".bf16x2", packed<F, bf16, u32, u32>}
#define PTX_TERNARY(name, F)                                                                                \
  {name ".f16", scalar<F, f16, f16, f16, f16>}, {name ".bf16", scalar<F, bf16, bf16, bf16, bf16>},          \
  {name ".f16x2", packed<F, f16, u32, u32, u32>}, {name ".bf16x2", packed<F, bf16, u32, u32, u32>}
#define PTX_EXTREME(name, MAX)                                                                              \
  {name ".f16", extreme<MAX, f16>}, {name ".bf16", extreme<MAX, bf16>},                                     \
  {name ".f16x2", extreme_packed<MAX, f16>}, {name ".bf16x2", extreme_packed<MAX, bf16>}

constexpr NamedHandler kTable[] = {
    PTX_BINARY("add", Add),
    PTX_BINARY("sub", Sub),
    PTX_BINARY("mul", Mul),
    PTX_TERNARY("fma", Fma),
    PTX_TERNARY("fma.oob", FmaOutside),
    PTX_UNARY("neg", Neg),
    PTX_UNARY("abs", Abs),
    PTX_EXTREME("min", false),
    PTX_EXTREME("max", true),
};

}  // namespace

std::span<const NamedHandler> half_handlers() { return kTable; }

}  // namespace ptx
