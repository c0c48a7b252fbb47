// mov: copies, packing and unpacking, clocks.
#include "alu_lanes.hpp"

namespace ptx {
namespace {

struct Copy { template <class T> T operator()(T a) const { return a; } };

Step mov_pred(Warp& warp, const Insn& insn, u32 mask) {
  warp.set_pred(insn.ops[0], mask, warp.pred(insn.ops[1]));
  return Step::kNext;
}

Step mov128(Warp& warp, const Insn& insn, u32 mask) {
  if (insn.ops[0].kind == Operand::kNone) return Step::kNext;
  for (int half = 0; half < 2; ++half) {
    u64* out = warp.row64(insn.ops[0].slot + 2 * half);
    const u64* in = warp.row64(insn.ops[1].slot + 2 * half);
    write_lanes<u64>(out, mask, [=](int l) { return in[l]; });
  }
  return Step::kNext;
}

// d, elements: d holds the elements, lowest first; attribute 0: bits of an element.
template <class T>
Step pack(Warp& warp, const Insn& insn, u32 mask) {
  if (insn.ops[0].kind == Operand::kNone) return Step::kNext;
  const u32 bits = u32(insn.attr[0]), low = bits < 32 ? (1u << bits) - 1 : kFullMask;
  T value[kLanes] = {};
  for (size_t i = 1; i < insn.ops.size(); ++i) {
    const u32* element = warp.row(insn.ops[i].slot);
    const u32 shift = u32(i - 1) * bits;
    for (int l = 0; l < kLanes; ++l) value[l] = T(value[l] | T(T(element[l] & low) << shift));
  }
  write_lanes<T>(words<T>(warp, insn.ops[0]), mask, [&](int l) { return value[l]; });
  return Step::kNext;
}

// a, elements: the reverse.
template <class T>
Step unpack(Warp& warp, const Insn& insn, u32 mask) {
  const u32 bits = u32(insn.attr[0]), low = bits < 32 ? (1u << bits) - 1 : kFullMask;
  // An element may be the source itself.
  Word<T> source[kLanes];
  for (int l = 0; l < kLanes; ++l) source[l] = words<T>(warp, insn.ops[0])[l];
  for (size_t i = 1; i < insn.ops.size(); ++i) {
    if (insn.ops[i].kind == Operand::kNone) continue;
    const u32 shift = u32(i - 1) * bits;
    write_lanes<u32>(warp.row(insn.ops[i].slot), mask, [&](int l) { return u32(source[l] >> shift) & low; });
  }
  return Step::kNext;
}

Step pack128(Warp& warp, const Insn& insn, u32 mask) {
  if (insn.ops[0].kind == Operand::kNone) return Step::kNext;
  const u32 parts = u32(insn.ops.size()) - 1;
  for (u32 half = 0; half < 2; ++half) {
    u64 value[kLanes];
    for (int l = 0; l < kLanes; ++l) {
      if (parts == 2)
        value[l] = warp.row64(insn.ops[1 + half].slot)[l];
      else
        value[l] = warp.row(insn.ops[1 + 2 * half].slot)[l] | u64(warp.row(insn.ops[2 + 2 * half].slot)[l]) << 32;
    }
    write_lanes<u64>(warp.row64(insn.ops[0].slot + 2 * i32(half)), mask, [&](int l) { return value[l]; });
  }
  return Step::kNext;
}

Step unpack128(Warp& warp, const Insn& insn, u32 mask) {
  const u32 parts = u32(insn.ops.size()) - 1;
  for (u32 i = 0; i < parts; ++i) {
    const Operand& out = insn.ops[1 + i];
    if (out.kind == Operand::kNone) continue;
    const u64* half = warp.row64(insn.ops[0].slot + (i * 2 / parts ? 2 : 0));
    if (parts == 2)
      write_lanes<u64>(warp.row64(out.slot), mask, [=](int l) { return half[l]; });
    else
      write_lanes<u32>(warp.row(out.slot), mask, [=](int l) { return u32(half[l] >> (i & 1 ? 32 : 0)); });
  }
  return Step::kNext;
}

// The run's simulated time; attribute 0: right shift.
template <class T>
Step clock(Warp& warp, const Insn& insn, u32 mask) {
  if (insn.ops[0].kind == Operand::kNone) return Step::kNext;
  const T now = T(warp.clock() >> insn.attr[0]);
  write_lanes<T>(words<T>(warp, insn.ops[0]), mask, [=](int) { return now; });
  return Step::kNext;
}

Step nop(Warp&, const Insn&, u32) { return Step::kNext; }

constexpr NamedHandler kTable[] = {
    {"mov.pred", mov_pred},
    {"mov.b16", lanewise<Copy, u16, u16>},
    {"mov.b32", lanewise<Copy, u32, u32>},
    {"mov.b64", lanewise<Copy, u64, u64>},
    {"mov.b128", mov128},
    {"pack.b16", pack<u16>},
    {"pack.b32", pack<u32>},
    {"pack.b64", pack<u64>},
    {"pack.b128", pack128},
    {"unpack.b16", unpack<u16>},
    {"unpack.b32", unpack<u32>},
    {"unpack.b64", unpack<u64>},
    {"unpack.b128", unpack128},
    {"nop", nop},
    {"clock.b32", clock<u32>},
    {"clock.b64", clock<u64>},
};

}  // namespace

std::span<const NamedHandler> move_handlers() { return kTable; }

}  // namespace ptx
