// Branches and ends.
#include "machine.hpp"

namespace ptx {
namespace {

Step bra(Warp& warp, const Insn& insn, u32 mask) {
  warp.jump_target = u32(insn.ops[0].imm);
  warp.jump_mask = mask;
  return Step::kJump;
}

// brx.idx: the lanes of one target jump; the others execute the instruction again.
Step brx(Warp& warp, const Insn& insn, u32 mask) {
  const u32* index = warp.row(insn.ops[0].slot);
  const u32 first = index[__builtin_ctz(mask)];
  if (first >= insn.ops.size() - 1) warp.illegal(insn, format("index %u is outside the list of branch targets", first));
  warp.jump_target = u32(insn.ops[first + 1].imm);
  warp.jump_mask = 0;
  for_lanes(mask, [&](u32 lane) { warp.jump_mask |= u32(index[lane] == first) << lane; });
  return Step::kJump;
}

Step exit_lanes(Warp&, const Insn&, u32) { return Step::kExit; }

Step trap(Warp& warp, const Insn& insn, u32 mask) {
  fail({&warp, &insn, u32(__builtin_ctz(mask))}, FaultKind::kTrap, "The kernel stopped itself: trap executed",
       "Look at the check of the kernel that failed.");
}

constexpr NamedHandler kTable[] = {{"bra", bra}, {"brx", brx}, {"exit", exit_lanes}, {"trap", trap}};

}  // namespace

std::span<const NamedHandler> control_handlers() { return kTable; }

}  // namespace ptx
