// Integer arithmetic. Unsigned types wrap, so results that do not depend on signedness are computed in them.
#include <algorithm>
#include <limits>

#include "alu_lanes.hpp"

namespace ptx {
namespace {

using i128 = __int128;
using u128 = unsigned __int128;

// The type that holds a product of two T.
template <class T> struct WideOf;
template <> struct WideOf<u16> { using type = u32; };
template <> struct WideOf<i16> { using type = i32; };
template <> struct WideOf<u32> { using type = u64; };
template <> struct WideOf<i32> { using type = i64; };
template <> struct WideOf<u64> { using type = u128; };
template <> struct WideOf<i64> { using type = i128; };
template <class T>
using Wide = typename WideOf<T>::type;

template <class T>
inline T mul_high(T a, T b) {
  return T(Wide<T>(a) * Wide<T>(b) >> (8 * sizeof(T)));
}

// 16-bit operands promote to int, whose overflow is undefined: multiply as 32-bit unsigned.
template <class T>
inline T mul_low(T a, T b) {
  return T(Word<T>(a) * Word<T>(b));
}

inline i32 saturate(i64 value) { return i32(std::clamp<i64>(value, INT32_MIN, INT32_MAX)); }

struct Add { template <class T> T operator()(T a, T b) const { return T(a + b); } };
struct Sub { template <class T> T operator()(T a, T b) const { return T(a - b); } };
struct AddSat { i32 operator()(i32 a, i32 b) const { return saturate(i64(a) + b); } };
struct SubSat { i32 operator()(i32 a, i32 b) const { return saturate(i64(a) - b); } };
struct Neg {
  template <class T>
  T operator()(T a) const {
    using U = std::make_unsigned_t<T>;
    return T(U(U(0) - U(a)));
  }
};
struct Abs { template <class T> T operator()(T a) const { return a < 0 ? Neg{}(a) : a; } };
struct MulLo { template <class T> T operator()(T a, T b) const { return mul_low(a, b); } };
struct MulHi { template <class T> T operator()(T a, T b) const { return mul_high(a, b); } };
struct MulWide { template <class T> Wide<T> operator()(T a, T b) const { return Wide<T>(a) * Wide<T>(b); } };
struct MadLo { template <class T> T operator()(T a, T b, T c) const { return T(mul_low(a, b) + c); } };
struct MadHi {
  template <class T>
  T operator()(T a, T b, T c) const {
    using U = std::make_unsigned_t<T>;
    return T(U(U(mul_high(a, b)) + U(c)));
  }
};
struct MadHiSat { i32 operator()(i32 a, i32 b, i32 c) const { return saturate(i64(mul_high(a, b)) + c); } };
struct MadWide {
  template <class T>
  Wide<T> operator()(T a, T b, Wide<T> c) const {
    using U = std::make_unsigned_t<Wide<T>>;
    return Wide<T>(U(Wide<T>(a) * Wide<T>(b)) + U(c));
  }
};

template <class T>
inline i64 low24(T a) {
  return std::is_signed_v<T> ? i64(i32(u32(a) << 8) >> 8) : i64(u32(a) & 0xffffff);
}
struct Mul24Lo { template <class T> T operator()(T a, T b) const { return T(low24(a) * low24(b)); } };
struct Mul24Hi { template <class T> T operator()(T a, T b) const { return T(low24(a) * low24(b) >> 16); } };
struct Mad24Lo { template <class T> T operator()(T a, T b, T c) const { return T(u32(Mul24Lo{}(a, b)) + u32(c)); } };
struct Mad24Hi { template <class T> T operator()(T a, T b, T c) const { return T(u32(Mul24Hi{}(a, b)) + u32(c)); } };
struct Mad24HiSat { i32 operator()(i32 a, i32 b, i32 c) const { return saturate(i64(Mul24Hi{}(a, b)) + c); } };

// Division by zero is unspecified in PTX; hardware returns all ones, and the dividend as remainder. The quotient of the
// smallest value by -1 wraps.
struct Div {
  template <class T>
  T operator()(T a, T b) const {
    if (b == 0) return T(~T(0));
    if (std::is_signed_v<T> && b == T(-1)) return Neg{}(a);
    return T(a / b);
  }
};
struct Rem {
  template <class T>
  T operator()(T a, T b) const {
    if (b == 0) return a;
    if (std::is_signed_v<T> && b == T(-1)) return 0;
    return T(a % b);
  }
};

struct Sad {
  template <class T>
  T operator()(T a, T b, T c) const {
    using U = std::make_unsigned_t<T>;
    return T(U(c) + (a < b ? U(b) - U(a) : U(a) - U(b)));
  }
};

// min and max; attribute 0: negative results become 0.
template <bool Max, class T>
Step extreme(Warp& warp, const Insn& insn, u32 mask) {
  const T floor = insn.attr[0] ? T(0) : std::numeric_limits<T>::lowest();
  return map_lanes<T, T, T>(warp, insn, mask,
                            [floor](T a, T b) { return std::max(Max ? std::max(a, b) : std::min(a, b), floor); });
}

// Two 16-bit halves of a word.
template <class T, class Function>
inline u32 halves(u32 a, u32 b, Function function) {
  const u16 low = u16(function(T(a), T(b))), high = u16(function(T(a >> 16), T(b >> 16)));
  return low | u32(high) << 16;
}
struct Add16x2 { u32 operator()(u32 a, u32 b) const { return halves<u16>(a, b, Add{}); } };
struct Sub16x2 { u32 operator()(u32 a, u32 b) const { return halves<u16>(a, b, Sub{}); } };

template <bool Max, class T>
Step extreme16x2(Warp& warp, const Insn& insn, u32 mask) {
  const T floor = insn.attr[0] ? T(0) : std::numeric_limits<T>::lowest();
  return map_lanes<u32, u32, u32>(warp, insn, mask, [floor](u32 a, u32 b) {
    return halves<T>(a, b, [floor](T x, T y) { return std::max(Max ? std::max(x, y) : std::min(x, y), floor); });
  });
}

// The lanes of a carry operand, or those of an absent one.
inline u32 carry_in(Warp& warp, const Operand& operand, u32 absent = 0) {
  return operand.kind == Operand::kNone ? absent : warp.pred(operand);
}

// d = a + b + carry: d, a, b, carry in, carry out. Subtraction adds ~b, so that its carry is the absence of a borrow.
// The PTX ISA calls the carry of sub.cc and subc a borrow; an H200 adds 1 in `sub.cc.u32 d, 2, 1; addc.u32 d, 0, 0`.
template <bool Subtract, class T>
Step add_carry(Warp& warp, const Insn& insn, u32 mask) {
  const T *a = words<T>(warp, insn.ops[1]), *b = words<T>(warp, insn.ops[2]);
  const u32 carry = carry_in(warp, insn.ops[3], Subtract ? kFullMask : 0);
  const auto value = [=](int l) { return T(a[l] + (Subtract ? T(~b[l]) : b[l]) + (carry >> l & 1)); };
  const u32 out = lane_mask([=](int l) {
    const T sum = value(l);
    return sum < a[l] || ((carry >> l & 1) && sum == a[l]);
  });
  if (insn.ops[0].kind != Operand::kNone) write_lanes<T>(words<T>(warp, insn.ops[0]), mask, value);
  warp.set_pred(insn.ops[4], mask, out);
  return Step::kNext;
}

// d = low or high half of a * b, plus c, plus carry: d, a, b, c, carry in, carry out.
template <bool High, class T>
Step mad_carry(Warp& warp, const Insn& insn, u32 mask) {
  using U = std::make_unsigned_t<T>;
  const U *a = words<U>(warp, insn.ops[1]), *b = words<U>(warp, insn.ops[2]), *c = words<U>(warp, insn.ops[3]);
  const u32 carry = carry_in(warp, insn.ops[4]);
  const auto product = [=](int l) { return High ? U(mul_high(T(a[l]), T(b[l]))) : U(a[l] * b[l]); };
  const auto sum = [=](int l) { return u128(product(l)) + c[l] + (carry >> l & 1); };
  const u32 out = lane_mask([=](int l) { return (sum(l) >> (8 * sizeof(U))) != 0; });
  if (insn.ops[0].kind != Operand::kNone)
    write_lanes<U>(words<U>(warp, insn.ops[0]), mask, [=](int l) { return U(sum(l)); });
  warp.set_pred(insn.ops[5], mask, out);
  return Step::kNext;
}

// Byte dot products: signedness of a and of b.
template <bool Signed>
inline i32 byte_of(u32 word, int index) {
  return Signed ? i32(i8(word >> (8 * index))) : i32(u8(word >> (8 * index)));
}
template <bool Signed>
inline i32 half_of(u32 word, int index) {
  return Signed ? i32(i16(word >> (16 * index))) : i32(u16(word >> (16 * index)));
}
template <bool SignedA, bool SignedB>
struct Dp4a {
  u32 operator()(u32 a, u32 b, u32 c) const {
    for (int i = 0; i < 4; ++i) c += u32(byte_of<SignedA>(a, i) * byte_of<SignedB>(b, i));
    return c;
  }
};
template <bool SignedA, bool SignedB, bool High>
struct Dp2a {
  u32 operator()(u32 a, u32 b, u32 c) const {
    for (int i = 0; i < 2; ++i) c += u32(half_of<SignedA>(a, i) * byte_of<SignedB>(b, i + 2 * High));
    return c;
  }
};

// Table rows for every type of a group.
#define PTX_ROW1(name, F, tag, T) {name "." tag, lanewise<F, T, T>}
#define PTX_ROW2(name, F, tag, T) {name "." tag, lanewise<F, T, T, T>}
#define PTX_ROW3(name, F, tag, T) {name "." tag, lanewise<F, T, T, T, T>}
#define PTX_BITS(ROW, name, F) ROW(name, F, "b16", u16), ROW(name, F, "b32", u32), ROW(name, F, "b64", u64)
#define PTX_SIGNED(ROW, name, F) ROW(name, F, "s16", i16), ROW(name, F, "s32", i32), ROW(name, F, "s64", i64)
#define PTX_TYPED(ROW, name, F) \
  ROW(name, F, "u16", u16), ROW(name, F, "u32", u32), ROW(name, F, "u64", u64), PTX_SIGNED(ROW, name, F)
#define PTX_WORD(ROW, name, F) ROW(name, F, "u32", u32), ROW(name, F, "s32", i32)
#define PTX_EXTREME(name, MAX)                                                                          \
  {name ".u16", extreme<MAX, u16>}, {name ".u32", extreme<MAX, u32>}, {name ".u64", extreme<MAX, u64>}, \
  {name ".s16", extreme<MAX, i16>}, {name ".s32", extreme<MAX, i32>}, {name ".s64", extreme<MAX, i64>}, \
  {name ".u16x2", extreme16x2<MAX, u16>}, {name ".s16x2", extreme16x2<MAX, i16>}
#define PTX_WIDE(tag, T)                                             \
  {"mul.wide." tag, lanewise<MulWide, Wide<T>, T, T>}, {"mad.wide." tag, lanewise<MadWide, Wide<T>, T, T, Wide<T>>}
#define PTX_DP(tag, A, B)                                                                              \
  {"dp4a." tag, lanewise<Dp4a<A, B>, u32, u32, u32, u32>},                                             \
  {"dp2a.lo." tag, lanewise<Dp2a<A, B, false>, u32, u32, u32, u32>},                                   \
  {"dp2a.hi." tag, lanewise<Dp2a<A, B, true>, u32, u32, u32, u32>}

constexpr NamedHandler kTable[] = {
    PTX_BITS(PTX_ROW2, "add", Add),
    PTX_BITS(PTX_ROW2, "sub", Sub),
    PTX_BITS(PTX_ROW1, "neg", Neg),
    PTX_BITS(PTX_ROW2, "mul.lo", MulLo),
    PTX_BITS(PTX_ROW3, "mad.lo", MadLo),
    PTX_SIGNED(PTX_ROW1, "abs", Abs),
    PTX_TYPED(PTX_ROW2, "mul.hi", MulHi),
    PTX_TYPED(PTX_ROW3, "mad.hi", MadHi),
    PTX_TYPED(PTX_ROW2, "div", Div),
    PTX_TYPED(PTX_ROW2, "rem", Rem),
    PTX_TYPED(PTX_ROW3, "sad", Sad),
    PTX_EXTREME("min", false),
    PTX_EXTREME("max", true),
    PTX_WIDE("u16", u16),
    PTX_WIDE("s16", i16),
    PTX_WIDE("u32", u32),
    PTX_WIDE("s32", i32),
    PTX_WORD(PTX_ROW2, "mul24.lo", Mul24Lo),
    PTX_WORD(PTX_ROW2, "mul24.hi", Mul24Hi),
    PTX_WORD(PTX_ROW3, "mad24.lo", Mad24Lo),
    PTX_WORD(PTX_ROW3, "mad24.hi", Mad24Hi),
    {"add.sat.s32", lanewise<AddSat, i32, i32, i32>},
    {"sub.sat.s32", lanewise<SubSat, i32, i32, i32>},
    {"mad.hi.sat.s32", lanewise<MadHiSat, i32, i32, i32, i32>},
    {"mad24.hi.sat.s32", lanewise<Mad24HiSat, i32, i32, i32, i32>},
    {"add.b16x2", lanewise<Add16x2, u32, u32, u32>},
    {"sub.b16x2", lanewise<Sub16x2, u32, u32, u32>},
    {"addc.b32", add_carry<false, u32>},
    {"addc.b64", add_carry<false, u64>},
    {"subc.b32", add_carry<true, u32>},
    {"subc.b64", add_carry<true, u64>},
    {"madc.lo.b32", mad_carry<false, u32>},
    {"madc.lo.b64", mad_carry<false, u64>},
    {"madc.hi.u32", mad_carry<true, u32>},
    {"madc.hi.s32", mad_carry<true, i32>},
    {"madc.hi.u64", mad_carry<true, u64>},
    {"madc.hi.s64", mad_carry<true, i64>},
    PTX_DP("u32.u32", false, false),
    PTX_DP("u32.s32", false, true),
    PTX_DP("s32.u32", true, false),
    PTX_DP("s32.s32", true, true),
};

}  // namespace

std::span<const NamedHandler> integer_handlers() { return kTable; }

}  // namespace ptx
