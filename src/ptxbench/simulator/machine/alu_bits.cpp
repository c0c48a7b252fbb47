// Bit operations: logic, shifts, fields, permutations, counts.
#include <algorithm>

#include "alu_lanes.hpp"

namespace ptx {
namespace {

template <class T>
constexpr u32 kBits = 8 * sizeof(T);

struct And { template <class T> T operator()(T a, T b) const { return T(a & b); } };
struct Or { template <class T> T operator()(T a, T b) const { return T(a | b); } };
struct Xor { template <class T> T operator()(T a, T b) const { return T(a ^ b); } };
struct Not { template <class T> T operator()(T a) const { return T(~a); } };
struct Cnot { template <class T> T operator()(T a) const { return T(a == 0); } };

// Shift amounts are clamped to the width.
struct Shl {
  template <class T>
  T operator()(T a, u32 n) const { return n < kBits<T> ? T(a << (n & (kBits<T> - 1))) : T(0); }
};
struct Shr {
  template <class T>
  T operator()(T a, u32 n) const {
    if constexpr (std::is_signed_v<T>)
      return T(a >> std::min(n, kBits<T> - 1));
    else
      return n < kBits<T> ? T(a >> (n & (kBits<T> - 1))) : T(0);
  }
};

template <bool Left, bool Clamp>
struct Funnel {
  u32 operator()(u32 a, u32 b, u32 n) const {
    n = Clamp ? std::min(n, 32u) : n & 31;
    const u64 both = u64(b) << 32 | a;
    return Left ? u32(both << n >> 32) : u32(both >> n);
  }
};

// Start or length of a bit field. The PTX ISA takes the low 8 bits; that holds for fields of 32 bits, whereas those of
// 64 bits, for which ptxas shifts and masks, have all 32 (measured on an H200).
template <class T>
inline u32 extent(u32 bits) {
  return sizeof(T) == 8 ? bits : bits & 0xff;
}

struct Bfe {
  template <class T>
  T operator()(T a, u32 start, u32 length) const {
    using U = std::make_unsigned_t<T>;
    start = extent<T>(start), length = std::min(extent<T>(length), kBits<T>);
    const u32 last = std::min(std::min(start, kBits<T>) + length - 1, kBits<T> - 1);
    const bool sign = std::is_signed_v<T> && length && (U(a) >> last & 1);
    const U field = start < kBits<T> ? U(U(a) >> start) : U(0);
    const u32 valid = start < kBits<T> ? std::min(length, kBits<T> - start) : 0;
    const U low = valid < kBits<T> ? U((U(1) << valid) - 1) : U(~U(0));
    return T(sign ? (field & low) | U(~low) : field & low);
  }
};

struct Bfi {
  template <class T>
  T operator()(T a, T b, u32 start, u32 length) const {
    start = extent<T>(start), length = std::min(extent<T>(length), kBits<T>);
    if (start >= kBits<T> || length == 0) return b;
    const T field = T((length < kBits<T> ? T((T(1) << length) - 1) : T(~T(0))) << start);
    return T((b & ~field) | (T(a << start) & field));
  }
};

// The position of the most significant bit that differs from the sign; attribute 0: as a shift amount.
template <class T>
Step bfind(Warp& warp, const Insn& insn, u32 mask) {
  const bool shift_amount = insn.attr[0];
  return map_lanes<u32, T>(warp, insn, mask, [shift_amount](T a) {
    const u64 bits = u64(std::make_unsigned_t<T>(a < 0 ? T(~a) : a));
    if (!bits) return kFullMask;
    const u32 position = 63 - u32(std::countl_zero(bits));
    return shift_amount ? kBits<T> - 1 - position : position;
  });
}

// The n-th set bit of a mask from a base position, forward or backward.
struct Fns {
  u32 operator()(u32 bits, u32 base, i32 offset) const {
    if (base > 31) return kFullMask;
    if (offset == 0) return bits >> base & 1 ? base : kFullMask;
    const int step = offset > 0 ? 1 : -1;
    i64 left = offset > 0 ? i64(offset) : -i64(offset);
    for (int at = int(base); at >= 0 && at < 32; at += step)
      if ((bits >> at & 1) && --left == 0) return u32(at);
    return kFullMask;
  }
};

struct Popc { template <class T> u32 operator()(T a) const { return u32(std::popcount(a)); } };
struct Clz { template <class T> u32 operator()(T a) const { return u32(std::countl_zero(a)); } };

inline u32 reverse(u32 a) {
  a = __builtin_bswap32(a);
  a = (a >> 4 & 0x0f0f0f0f) | (a & 0x0f0f0f0f) << 4;
  a = (a >> 2 & 0x33333333) | (a & 0x33333333) << 2;
  return (a >> 1 & 0x55555555) | (a & 0x55555555) << 1;
}
struct Brev32 { u32 operator()(u32 a) const { return reverse(a); } };
struct Brev64 { u64 operator()(u64 a) const { return u64(reverse(u32(a))) << 32 | reverse(u32(a >> 32)); } };

enum class Permute { kIndex, kForward4, kBackward4, kReplicate8, kEdgeLeft, kEdgeRight, kReplicate16 };

// The byte selectors of a mode: byte i of the result is byte (selector i & 7) of b:a; bit 3 replicates its sign.
template <Permute Mode>
inline u32 selector(u32 control, u32 i) {
  const u32 n = control & 3;
  switch (Mode) {
    case Permute::kIndex: return control >> (4 * i) & 15;
    case Permute::kForward4: return n + i;
    case Permute::kBackward4: return (n - i) & 7;
    case Permute::kReplicate8: return n;
    case Permute::kEdgeLeft: return std::max(n, i);
    case Permute::kEdgeRight: return std::min(n, i);
    case Permute::kReplicate16: return (n & 1) * 2 + (i & 1);
  }
  return 0;
}

template <Permute Mode>
struct Prmt {
  u32 operator()(u32 a, u32 b, u32 control) const {
    const u64 both = u64(b) << 32 | a;
    u32 result = 0;
    for (u32 i = 0; i < 4; ++i) {
      const u32 select = selector<Mode>(control, i);
      u32 byte = u32(both >> (8 * (select & 7))) & 0xff;
      if (select & 8) byte = byte & 0x80 ? 0xff : 0;
      result |= byte << (8 * i);
    }
    return result;
  }
};


// Any function of three bits; attributes: table, combination of (d != 0) with q into p.
Step lop3(Warp& warp, const Insn& insn, u32 mask) {
  const u32 table = u32(insn.attr[0]);
  const u32 *a = warp.row(insn.ops[1].slot), *b = warp.row(insn.ops[2].slot), *c = warp.row(insn.ops[3].slot);
  u32 value[kLanes];
  for (int l = 0; l < kLanes; ++l) value[l] = 0;
  for (u32 i = 0; i < 8; ++i) {
    if (!(table >> i & 1)) continue;
    const u32 flip_a = i & 4 ? 0 : kFullMask, flip_b = i & 2 ? 0 : kFullMask, flip_c = i & 1 ? 0 : kFullMask;
    for (int l = 0; l < kLanes; ++l) value[l] |= (a[l] ^ flip_a) & (b[l] ^ flip_b) & (c[l] ^ flip_c);
  }
  if (insn.attr[1]) {
    const u32 nonzero = lane_mask([&](int l) { return value[l] != 0; }), q = warp.pred(insn.ops[5]);
    warp.set_pred(insn.ops[4], mask, insn.attr[1] == 1 ? nonzero & q : nonzero | q);
  }
  if (insn.ops[0].kind != Operand::kNone)
    write_lanes<u32>(warp.row(insn.ops[0].slot), mask, [&](int l) { return value[l]; });
  return Step::kNext;
}

// Sign- or zero-extends the low b bits of a.
template <bool Clamp>
struct Szext {
  template <class T>
  T operator()(T a, T amount) const {
    const u32 n = Clamp ? std::min(u32(amount), 32u) : u32(amount) & 31;
    if (n == 0) return 0;
    return T(T(u32(a) << (32 - n)) >> (32 - n));
  }
};

template <bool Clamp>
struct Bmsk {
  u32 operator()(u32 start, u32 length) const {
    start = Clamp ? std::min(start, 32u) : start & 31;
    length = Clamp ? std::min(length, 32u) : length & 31;
    return u32((((u64(1) << length) - 1) << start));
  }
};

// Predicate registers: one word for all lanes.
template <class Function>
Step logic_pred(Warp& warp, const Insn& insn, u32 mask) {
  warp.set_pred(insn.ops[0], mask, Function{}(warp.pred(insn.ops[1]), warp.pred(insn.ops[2])));
  return Step::kNext;
}
Step not_pred(Warp& warp, const Insn& insn, u32 mask) {
  warp.set_pred(insn.ops[0], mask, ~warp.pred(insn.ops[1]));
  return Step::kNext;
}

#define PTX_LOGIC(name, F)                                                                    \
  {name ".pred", logic_pred<F>}, {name ".b16", lanewise<F, u16, u16, u16>},                   \
  {name ".b32", lanewise<F, u32, u32, u32>}, {name ".b64", lanewise<F, u64, u64, u64>}
#define PTX_UNARY(name, F) \
  {name ".b16", lanewise<F, u16, u16>}, {name ".b32", lanewise<F, u32, u32>}, {name ".b64", lanewise<F, u64, u64>}
#define PTX_SHIFT(name, F, tag, T) {name "." tag, lanewise<F, T, T, u32>}
#define PTX_PRMT(tag, MODE) {"prmt." tag, lanewise<Prmt<Permute::MODE>, u32, u32, u32, u32>}

constexpr NamedHandler kTable[] = {
    PTX_LOGIC("and", And),
    PTX_LOGIC("or", Or),
    PTX_LOGIC("xor", Xor),
    PTX_UNARY("not", Not),
    {"not.pred", not_pred},
    PTX_UNARY("cnot", Cnot),
    PTX_SHIFT("shl", Shl, "b16", u16),
    PTX_SHIFT("shl", Shl, "b32", u32),
    PTX_SHIFT("shl", Shl, "b64", u64),
    PTX_SHIFT("shr", Shr, "b16", u16),
    PTX_SHIFT("shr", Shr, "b32", u32),
    PTX_SHIFT("shr", Shr, "b64", u64),
    PTX_SHIFT("shr", Shr, "s16", i16),
    PTX_SHIFT("shr", Shr, "s32", i32),
    PTX_SHIFT("shr", Shr, "s64", i64),
    {"shf.l.clamp", lanewise<Funnel<true, true>, u32, u32, u32, u32>},
    {"shf.l.wrap", lanewise<Funnel<true, false>, u32, u32, u32, u32>},
    {"shf.r.clamp", lanewise<Funnel<false, true>, u32, u32, u32, u32>},
    {"shf.r.wrap", lanewise<Funnel<false, false>, u32, u32, u32, u32>},
    {"bfe.u32", lanewise<Bfe, u32, u32, u32, u32>},
    {"bfe.s32", lanewise<Bfe, i32, i32, u32, u32>},
    {"bfe.u64", lanewise<Bfe, u64, u64, u32, u32>},
    {"bfe.s64", lanewise<Bfe, i64, i64, u32, u32>},
    {"bfi.b32", lanewise<Bfi, u32, u32, u32, u32, u32>},
    {"bfi.b64", lanewise<Bfi, u64, u64, u64, u32, u32>},
    {"bfind.u32", bfind<u32>},
    {"bfind.s32", bfind<i32>},
    {"bfind.u64", bfind<u64>},
    {"bfind.s64", bfind<i64>},
    {"fns.b32", lanewise<Fns, u32, u32, u32, i32>},
    {"popc.b32", lanewise<Popc, u32, u32>},
    {"popc.b64", lanewise<Popc, u32, u64>},
    {"clz.b32", lanewise<Clz, u32, u32>},
    {"clz.b64", lanewise<Clz, u32, u64>},
    {"brev.b32", lanewise<Brev32, u32, u32>},
    {"brev.b64", lanewise<Brev64, u64, u64>},
    PTX_PRMT("index", kIndex),
    PTX_PRMT("f4e", kForward4),
    PTX_PRMT("b4e", kBackward4),
    PTX_PRMT("rc8", kReplicate8),
    PTX_PRMT("ecl", kEdgeLeft),
    PTX_PRMT("ecr", kEdgeRight),
    PTX_PRMT("rc16", kReplicate16),
    {"lop3", lop3},
    {"szext.clamp.u32", lanewise<Szext<true>, u32, u32, u32>},
    {"szext.clamp.s32", lanewise<Szext<true>, i32, i32, i32>},
    {"szext.wrap.u32", lanewise<Szext<false>, u32, u32, u32>},
    {"szext.wrap.s32", lanewise<Szext<false>, i32, i32, i32>},
    {"bmsk.clamp", lanewise<Bmsk<true>, u32, u32, u32>},
    {"bmsk.wrap", lanewise<Bmsk<false>, u32, u32, u32>},
};

}  // namespace

std::span<const NamedHandler> bit_handlers() { return kTable; }

}  // namespace ptx
