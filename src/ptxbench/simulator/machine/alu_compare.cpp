// Comparisons (setp, set) and selections (selp, slct).
#include "float_format.hpp"

namespace ptx {
namespace {

struct Eq { template <class T> bool operator()(T a, T b) const { return a == b; } };
struct Lt { template <class T> bool operator()(T a, T b) const { return a < b; } };
struct Le { template <class T> bool operator()(T a, T b) const { return a <= b; } };
struct Gt { template <class T> bool operator()(T a, T b) const { return a > b; } };
struct Ge { template <class T> bool operator()(T a, T b) const { return a >= b; } };
struct NeInteger { template <class T> bool operator()(T a, T b) const { return a != b; } };
// Comparisons of floats are false for NaN, those with u are true.
struct NeFloat { template <class T> bool operator()(T a, T b) const { return (a < b) | (a > b); } };
struct Equ { template <class T> bool operator()(T a, T b) const { return !((a < b) | (a > b)); } };
struct Neu { template <class T> bool operator()(T a, T b) const { return a != b; } };
struct Ltu { template <class T> bool operator()(T a, T b) const { return !(a >= b); } };
struct Leu { template <class T> bool operator()(T a, T b) const { return !(a > b); } };
struct Gtu { template <class T> bool operator()(T a, T b) const { return !(a <= b); } };
struct Geu { template <class T> bool operator()(T a, T b) const { return !(a < b); } };
struct Num { template <class T> bool operator()(T a, T b) const { return (a == a) & (b == b); } };
struct Nan { template <class T> bool operator()(T a, T b) const { return (a != a) | (b != b); } };

// What a type is compared as.
template <class T>
inline T comparable(T value, bool) { return value; }
inline f32 comparable(f32 value, bool ftz) { return ftz ? flush(value) : value; }
inline f32 comparable(bf16 value, bool) { return to_f32(value); }
inline f32 comparable(f16 value, bool ftz) {
  return to_f32(ftz && !(value.bits & 0x7c00) ? f16{u16(value.bits & 0x8000)} : value);
}

template <class Compare, class T>
inline u32 compare_lanes(Warp& warp, const Operand& first, const Operand& second, bool ftz) {
  const Word<T> *a = words<T>(warp, first), *b = words<T>(warp, second);
  return lane_mask([=](int l) {
    return Compare{}(comparable(from_word<T>(a[l]), ftz), comparable(from_word<T>(b[l]), ftz));
  });
}

inline u32 combine(Warp& warp, const Operand& operand, i32 boolean, u32 bits) {
  switch (boolean) {
    case 1: return bits & warp.pred(operand);
    case 2: return bits | warp.pred(operand);
    case 3: return bits ^ warp.pred(operand);
    default: return bits;
  }
}

// p, q, a, b, c: p = (a ? b) op c, q = !(a ? b) op c.
template <class Compare, class T>
Step setp(Warp& warp, const Insn& insn, u32 mask) {
  const u32 bits = compare_lanes<Compare, T>(warp, insn.ops[2], insn.ops[3], insn.attr[1]);
  const u32 p = combine(warp, insn.ops[4], insn.attr[0], bits), q = combine(warp, insn.ops[4], insn.attr[0], ~bits);
  warp.set_pred(insn.ops[0], mask, p);
  warp.set_pred(insn.ops[1], mask, q);
  return Step::kNext;
}

// d, a, b, c: d = attribute 2 or 0.
template <class Compare, class T>
Step set(Warp& warp, const Insn& insn, u32 mask) {
  if (insn.ops[0].kind == Operand::kNone) return Step::kNext;
  const u32 bits = compare_lanes<Compare, T>(warp, insn.ops[1], insn.ops[2], insn.attr[1]);
  const u32 result = combine(warp, insn.ops[3], insn.attr[0], bits), yes = u32(insn.attr[2]);
  write_lanes<u32>(warp.row(insn.ops[0].slot), mask, [=](int l) { return result >> l & 1 ? yes : 0; });
  return Step::kNext;
}

// Packed halves: p is the comparison of the low halves, q that of the high ones.
template <class Compare, class T>
Step setp_packed(Warp& warp, const Insn& insn, u32 mask) {
  const u32 *a = warp.row(insn.ops[2].slot), *b = warp.row(insn.ops[3].slot);
  const bool ftz = insn.attr[1];
  const auto half = [=](int shift) {
    return lane_mask([=](int l) {
      return Compare{}(comparable(T{u16(a[l] >> shift)}, ftz), comparable(T{u16(b[l] >> shift)}, ftz));
    });
  };
  const u32 p = combine(warp, insn.ops[4], insn.attr[0], half(0));
  const u32 q = combine(warp, insn.ops[4], insn.attr[0], half(16));
  warp.set_pred(insn.ops[0], mask, p);
  warp.set_pred(insn.ops[1], mask, q);
  return Step::kNext;
}

// The same with a result a half: attribute 2 or 0.
template <class Compare, class T>
Step set_packed(Warp& warp, const Insn& insn, u32 mask) {
  const bool ftz = insn.attr[1];
  const i32 boolean = insn.attr[0];
  const u32 yes = u32(insn.attr[2]), third = boolean ? warp.pred(insn.ops[3]) : 0;
  if (insn.ops[0].kind == Operand::kNone) return Step::kNext;
  const u32 *a = warp.row(insn.ops[1].slot), *b = warp.row(insn.ops[2].slot);
  const auto half = [=](int l, int shift) {
    const bool result = Compare{}(comparable(T{u16(a[l] >> shift)}, ftz), comparable(T{u16(b[l] >> shift)}, ftz));
    const bool c = third >> l & 1;
    return (boolean == 1 ? result & c : boolean == 2 ? result | c : result ^ c) ? yes << shift : 0;
  };
  write_lanes<u32>(warp.row(insn.ops[0].slot), mask, [=](int l) { return half(l, 0) | half(l, 16); });
  return Step::kNext;
}

template <class T>
Step selp(Warp& warp, const Insn& insn, u32 mask) {
  if (insn.ops[0].kind == Operand::kNone) return Step::kNext;
  const Word<T> *a = words<T>(warp, insn.ops[1]), *b = words<T>(warp, insn.ops[2]);
  const u32 p = warp.pred(insn.ops[3]);
  write_lanes<T>(words<T>(warp, insn.ops[0]), mask, [=](int l) { return from_word<T>(p >> l & 1 ? a[l] : b[l]); });
  return Step::kNext;
}

template <class T, class C>
Step slct(Warp& warp, const Insn& insn, u32 mask) {
  const bool ftz = insn.attr[0];
  return map_lanes<T, T, T, C>(warp, insn, mask, [ftz](T a, T b, C c) { return comparable(c, ftz) >= C(0) ? a : b; });
}

#define PTX_COMPARE(name, F, tag, T) {"setp." name "." tag, setp<F, T>}, {"set." name "." tag, set<F, T>}
#define PTX_EQUALITY(name, F) \
  PTX_COMPARE(name, F, "b16", u16), PTX_COMPARE(name, F, "b32", u32), PTX_COMPARE(name, F, "b64", u64)
#define PTX_ORDER(name, F)                                                                                      \
  PTX_COMPARE(name, F, "u16", u16), PTX_COMPARE(name, F, "u32", u32), PTX_COMPARE(name, F, "u64", u64),         \
      PTX_COMPARE(name, F, "s16", i16), PTX_COMPARE(name, F, "s32", i32), PTX_COMPARE(name, F, "s64", i64)
#define PTX_FLOAT(name, F)                                                                                      \
  PTX_COMPARE(name, F, "f32", f32), PTX_COMPARE(name, F, "f64", f64), PTX_COMPARE(name, F, "f16", f16),         \
      PTX_COMPARE(name, F, "bf16", bf16), {"setp." name ".f16x2", setp_packed<F, f16>},                         \
      {"setp." name ".bf16x2", setp_packed<F, bf16>}, {"set." name ".f16x2", set_packed<F, f16>},               \
      {"set." name ".bf16x2", set_packed<F, bf16>}
#define PTX_SLCT(tag, T) {"slct." tag ".s32", slct<T, i32>}, {"slct." tag ".f32", slct<T, f32>}

constexpr NamedHandler kTable[] = {
    PTX_EQUALITY("eq", Eq),
    PTX_EQUALITY("ne", NeInteger),
    PTX_ORDER("lt", Lt),
    PTX_ORDER("le", Le),
    PTX_ORDER("gt", Gt),
    PTX_ORDER("ge", Ge),
    PTX_FLOAT("eq", Eq),
    PTX_FLOAT("ne", NeFloat),
    PTX_FLOAT("lt", Lt),
    PTX_FLOAT("le", Le),
    PTX_FLOAT("gt", Gt),
    PTX_FLOAT("ge", Ge),
    PTX_FLOAT("equ", Equ),
    PTX_FLOAT("neu", Neu),
    PTX_FLOAT("ltu", Ltu),
    PTX_FLOAT("leu", Leu),
    PTX_FLOAT("gtu", Gtu),
    PTX_FLOAT("geu", Geu),
    PTX_FLOAT("num", Num),
    PTX_FLOAT("nan", Nan),
    {"selp.b16", selp<u16>},
    {"selp.b32", selp<u32>},
    {"selp.b64", selp<u64>},
    PTX_SLCT("b16", u16),
    PTX_SLCT("b32", u32),
    PTX_SLCT("b64", u64),
};

}  // namespace

std::span<const NamedHandler> compare_handlers() { return kTable; }

}  // namespace ptx
