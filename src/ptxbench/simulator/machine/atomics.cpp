// atom and red.
//
// atom: operands = destinations (or none, one per element), address, b per element, c or none;
//       attributes = space, operation, type, elements
#include <bit>
#include <cstring>

#include "lane_access.hpp"
#include "lane_values.hpp"
#include "races.hpp"
#include "reductions.hpp"

namespace ptx {
namespace {

// red.add.f32 of the whole warp on global memory. Says whether anything changed.
bool add_floats(const Warp& warp, const Operand& source, u32 mask, const GlobalLanes& to) {
  const u32* row = warp.row(source.slot);
  bool changed = false;
  for_lanes(mask, [&](u32 lane) {
    u32 old;
    std::memcpy(&old, to.at(lane), 4);
    const u32 sum = bits_of(flushed_sum_of(float_of(old), float_of(row[lane])));
    std::memcpy(to.at(lane), &sum, 4);
    changed |= sum != old;
    to.wrote(lane, 4);
  });
  return changed;
}

Step atom(Warp& warp, const Insn& insn, u32 mask) {
  const Space space = Space(insn.attr[0]);
  const AtomicOp op = AtomicOp(insn.attr[1]);
  const AtomicType type = AtomicType(insn.attr[2]);
  const u32 count = u32(insn.attr[3]), element = bytes_of(type);
  bool changed = false;
  if (warp.cta->cluster->races) acquire_flags(warp, insn, mask, insn.ops[count], space);
  const GlobalLanes lanes(warp, insn.ops[count], space, mask, element * count, Access::kWrite);
  if (lanes && type == AtomicType::kF32 && op == AtomicOp::kAdd && count == 1 && insn.ops[0].kind == Operand::kNone)
    changed = add_floats(warp, insn.ops[2], mask, lanes), mask = 0;
  for_lanes(mask, [&](u32 lane) {
    const Place place{&warp, &insn, lane};
    const Location at = lanes ? Location{lanes.at(lane)}
                              : locate(place, insn.ops[count], space, element * count, element * count, Access::kWrite);
    if (at.cta) at.cta->check_initialised(place, at.offset, element * count);
    // Sums of f32 in global memory flush subnormals, those in shared memory do not (PTX ISA, atom).
    const AtomicType here = type == AtomicType::kF32 && !at.cta ? AtomicType::kF32Flushed : type;
    u64 before[8] = {};  // destinations are written last: they may be sources as well
    for (u32 i = 0; i < count; ++i) {
      u64& old = before[i];
      std::memcpy(&old, at.data + i * element, element);
      const Operand& c = insn.ops[2 * count + 1];
      const u64 value = atomic_result(op, here, old, value_of(warp, insn.ops[count + 1 + i], lane),
                                      c.kind == Operand::kNone ? 0 : value_of(warp, c, lane));
      std::memcpy(at.data + i * element, &value, element);
      changed |= value != old;
    }
    for (u32 i = 0; i < count; ++i) {
      const Operand& destination = insn.ops[i];
      if (destination.kind == Operand::kRow64)
        warp.row64(destination.slot)[lane] = before[i];
      else if (destination.kind == Operand::kRow)
        warp.row(destination.slot)[lane] = u32(before[i]);
    }
    if (at.cta)
      at.cta->wrote_generic(at.offset, element * count, warp), check_race(place, at, element * count, RaceKind::kStrongWrite);
    else
      wrote_global(place, address_of(warp, insn.ops[count], lane), element * count);
  });
  if (warp.cta->cluster->races) release_flags(warp, insn, mask, insn.ops[count], space);
  // An atomic that changes nothing polls; one on an integer may be a signal.
  if (!changed) {
    warp.yield();
  } else {
    warp.run->event();
    if (type <= AtomicType::kS64) warp.signal();
  }
  return Step::kNext;
}

constexpr NamedHandler kTable[] = {{"atom", atom}};

}  // namespace

std::span<const NamedHandler> atomic_handlers() { return kTable; }

}  // namespace ptx
