// atom on 128 bits.
//
// atom.b128: operands = destination or none, address, b, c or none; attributes = space, operation (exchange or compare and
//            swap)
#include <array>
#include <cstring>

#include "races.hpp"
#include "reductions.hpp"
#include "units.hpp"

namespace ptx {
namespace {

using Words = std::array<u64, 2>;
constexpr u32 kBytes = sizeof(Words);

Words read(const Warp& warp, const Operand& operand, u32 lane) {
  const u64* low = reinterpret_cast<const u64*>(warp.row(operand.slot));
  return {low[lane], low[kLanes + lane]};
}

void write(Warp& warp, const Operand& operand, u32 lane, const Words& value) {
  if (operand.kind == Operand::kNone) return;
  warp.row64(operand.slot)[lane] = value[0];
  warp.row64(operand.slot + 2)[lane] = value[1];
}

Step atom(Warp& warp, const Insn& insn, u32 mask) {
  const Space space = Space(insn.attr[0]);
  const bool compares = AtomicOp(insn.attr[1]) == AtomicOp::kCas;
  bool changed = false;
  if (warp.cta->cluster->races) acquire_flags(warp, insn, mask, insn.ops[1], space);
  for_lanes(mask, [&](u32 lane) {
    const Place place{&warp, &insn, lane};
    const Location at = locate(place, insn.ops[1], space, kBytes, kBytes, Access::kWrite);
    const u64 address = address_of(warp, insn.ops[1], lane);  // the destination may be its register
    if (at.cta) at.cta->check_initialised(place, at.offset, kBytes);
    Words old;
    std::memcpy(&old, at.data, kBytes);
    const Words b = read(warp, insn.ops[2], lane);
    const Words value = !compares ? b : old == b ? read(warp, insn.ops[3], lane) : old;
    std::memcpy(at.data, &value, kBytes);
    changed |= value != old;
    write(warp, insn.ops[0], lane, old);
    if (at.cta)
      at.cta->wrote_generic(at.offset, kBytes, warp), check_race(place, at, kBytes, RaceKind::kStrongWrite);
    else
      wrote_global(place, address, kBytes);
  });
  if (warp.cta->cluster->races) release_flags(warp, insn, mask, insn.ops[1], space);
  if (changed)
    warp.run->event(), warp.signal();
  else
    warp.yield();
  return Step::kNext;
}

constexpr NamedHandler kTable[] = {{"atom.b128", atom}};

}  // namespace

std::span<const NamedHandler> wide_atomic_handlers() { return kTable; }

}  // namespace ptx
