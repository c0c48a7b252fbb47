// cvt between integers. Attributes: bits and signedness of the result type, bits of the destination register,
// saturation. The result is extended to the register by its own signedness.
#include <algorithm>

#include "alu_lanes.hpp"

namespace ptx {
namespace {

using i128 = __int128;

inline u64 low_bits(i32 bits) { return bits < 64 ? (u64(1) << bits) - 1 : ~u64(0); }

struct Result {
  i32 bits;
  bool is_signed;
  u64 in_register;  // mask

  explicit Result(const Insn& insn)
      : bits(insn.attr[0]), is_signed(insn.attr[1]), in_register(low_bits(insn.attr[2])) {}

  u64 extend(u64 value) const {
    const i32 shift = 64 - bits;
    return is_signed ? u64(i64(value << shift) >> shift) & in_register : value & low_bits(bits);
  }
  i128 lowest() const { return is_signed ? -(i128(1) << (bits - 1)) : 0; }
  i128 highest() const { return (i128(1) << (is_signed ? bits - 1 : bits)) - 1; }
};

template <class D, class S>
Step convert(Warp& warp, const Insn& insn, u32 mask) {
  const Result result(insn);
  if (insn.attr[3]) {
    const i128 low = result.lowest(), high = result.highest();
    return map_lanes<D, S>(warp, insn, mask,
                           [=](S a) { return D(result.extend(u64(std::clamp<i128>(i128(a), low, high)))); });
  }
  if (!result.is_signed || low_bits(result.bits) == result.in_register) {
    const D keep = D(low_bits(result.bits));
    return map_lanes<D, S>(warp, insn, mask, [keep](S a) { return D(D(a) & keep); });
  }
  return map_lanes<D, S>(warp, insn, mask, [=](S a) { return D(result.extend(u64(a))); });
}

// cvt.pack: saturates two signed 32-bit integers to n bits; below 16 bits, c moves up by 2n. Operands d, a, b, c.
Step convert_pack(Warp& warp, const Insn& insn, u32 mask) {
  if (insn.ops[0].kind == Operand::kNone) return Step::kNext;
  const i32 bits = insn.attr[0];
  const bool is_signed = insn.attr[1];
  const i32 low = is_signed ? -(1 << (bits - 1)) : 0, high = (1 << (is_signed ? bits - 1 : bits)) - 1;
  const u32 keep = u32(low_bits(bits));
  const u32 *a = warp.row(insn.ops[1].slot), *b = warp.row(insn.ops[2].slot);
  const u32* c = insn.ops.size() > 3 ? warp.row(insn.ops[3].slot) : nullptr;
  write_lanes<u32>(warp.row(insn.ops[0].slot), mask, [=](int l) {
    const u32 upper = u32(std::clamp(i32(a[l]), low, high)) & keep;
    const u32 lower = u32(std::clamp(i32(b[l]), low, high)) & keep;
    return upper << bits | lower | (c ? c[l] << (2 * bits) : 0);
  });
  return Step::kNext;
}

#define PTX_CONVERT(tag, S) {"cvt.i32." tag, convert<u32, S>}, {"cvt.i64." tag, convert<u64, S>}

constexpr NamedHandler kTable[] = {
    PTX_CONVERT("u8", u8),   PTX_CONVERT("s8", i8),   PTX_CONVERT("u16", u16), PTX_CONVERT("s16", i16),
    PTX_CONVERT("u32", u32), PTX_CONVERT("s32", i32), PTX_CONVERT("u64", u64), PTX_CONVERT("s64", i64),
    {"cvt.pack", convert_pack},
};

}  // namespace

std::span<const NamedHandler> convert_integer_handlers() { return kTable; }

}  // namespace ptx
