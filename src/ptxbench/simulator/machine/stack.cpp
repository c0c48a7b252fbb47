// alloca, stacksave and stackrestore, and st.bulk, which fills shared memory.
//
// stack.allocate: operands = destination, bytes, stack pointer; attributes = alignment, first byte of the stack in local
//                 memory, its bytes
// stack.save:     operands = destination, stack pointer
// stack.restore:  operands = source, stack pointer; attributes = first byte, bytes
// st.bulk:        operands = address, bytes; attribute = space
//
// The stack pointer is a row that begins with the address of the lane's stack. Stacks grow upwards.
#include <cstring>

#include "lane_values.hpp"
#include "races.hpp"
#include "units.hpp"

namespace ptx {
namespace {

Step allocate(Warp& warp, const Insn& insn, u32 mask) {
  const u64 align = u64(insn.attr[0]), end = kLocalWindow + u64(insn.attr[1]) + u64(insn.attr[2]);
  for_lanes(mask, [&](u32 lane) {
    u64& pointer = warp.row64(insn.ops[2].slot)[lane];
    const u64 bytes = value_of(warp, insn.ops[1], lane), at = (pointer + align - 1) / align * align;
    if (at > end || bytes > end - at)
      warp.unsupported(insn, format("more than %d bytes of a thread's stack are not supported", insn.attr[2]));
    pointer = at + bytes;
    set_value(warp, insn.ops[0], lane, at);
  });
  return Step::kNext;
}

Step save(Warp& warp, const Insn& insn, u32 mask) {
  for_lanes(mask, [&](u32 lane) { set_value(warp, insn.ops[0], lane, warp.row64(insn.ops[1].slot)[lane]); });
  return Step::kNext;
}

Step restore(Warp& warp, const Insn& insn, u32 mask) {
  const u64 first = kLocalWindow + u64(insn.attr[0]), bytes = u64(insn.attr[1]);
  for_lanes(mask, [&](u32 lane) {
    const u64 saved = value_of(warp, insn.ops[0], lane);
    const u64 pointer = insn.ops[0].kind == Operand::kRow64 ? saved : kLocalWindow | saved;
    if (pointer < first || pointer - first > bytes)
      warp.illegal(insn, format("0x%llx is not a stack pointer that stacksave returned", (unsigned long long)saved));
    warp.row64(insn.ops[1].slot)[lane] = pointer;
  });
  return Step::kNext;
}

// Zeros, by ordinary stores.
Step fill(Warp& warp, const Insn& insn, u32 mask) {
  constexpr u32 kAlign = 8, kMost = 1u << 24;
  const Space space = Space(insn.attr[0]);
  for_lanes(mask, [&](u32 lane) {
    const Place place{&warp, &insn, lane};
    const u64 bytes = value_of(warp, insn.ops[1], lane);
    if (bytes % kAlign || bytes > kMost)
      warp.illegal(insn, format("size %llu is not a multiple of 8 up to 2^24", (unsigned long long)bytes));
    if (!bytes) return;
    const u64 address = address_of(warp, insn.ops[0], lane);
    if (space != Space::kGeneric && address >> 32)
      warp.illegal(insn, format("0x%llx is not a shared memory address", (unsigned long long)address));
    const u32 shared = space == Space::kGeneric ? shared_address(place, insn.ops[0], space) : u32(address);
    const Location to = shared_at(place, shared, u32(bytes), kAlign, Scope::kCta);
    std::memset(to.data, 0, bytes);
    to.cta->wrote_generic(to.offset, u32(bytes), warp);
    check_race(place, to, u32(bytes), RaceKind::kWrite);
    warp.run->site(place).bytes += bytes;
  });
  warp.run->event();
  return Step::kNext;
}

constexpr NamedHandler kTable[] = {
    {"stack.allocate", allocate}, {"stack.save", save}, {"stack.restore", restore}, {"st.bulk", fill}};

}  // namespace

std::span<const NamedHandler> stack_handlers() { return kTable; }

}  // namespace ptx
