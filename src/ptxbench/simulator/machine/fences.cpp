// Fences, and the instructions around them that concern registers and launches.
#include "machine.hpp"
#include "waits.hpp"

namespace ptx {
namespace {

// fence.proxy.async (generic or shared memory): orders the warp's earlier ordinary stores before async-proxy accesses.
Step proxy_async(Warp& warp, const Insn&, u32) {
  warp.proxy_fence = ++warp.run->proxy_clock;
  return Step::kNext;
}

// Handlers run one after another on one memory, so memory fences order nothing that could be out of order.
Step memory_fence(Warp&, const Insn&, u32) { return Step::kNext; }

// setmaxnreg: attributes = increase, registers. Registers move between the CTA's pool and the warp.
Step setmaxnreg(Warp& warp, const Insn& insn, u32 mask) {
  if (mask != warp.live) return Step::kConverge;
  if (!warp.registers) return Step::kNext;
  const bool increase = insn.attr[0];
  const u32 wanted = u32(insn.attr[1]);
  if (increase ? wanted < warp.registers : wanted > warp.registers)
    warp.illegal(insn, format("asks for %u registers a thread while the warp has %u", wanted, warp.registers));
  const u32 change = increase ? wanted - warp.registers : warp.registers - wanted;
  if (increase && warp.cta->register_pool < change) return Step::kBlock;
  warp.cta->register_pool += increase ? 0 - change : change;
  warp.registers = wanted;
  warp.run->event();
  return Step::kNext;
}

std::string describe_registers(Warp& warp, const Insn& insn, u32) {
  return format("for %u more registers a thread, of which the other warps have given back %u",
                u32(insn.attr[1]) - warp.registers, warp.cta->register_pool);
}

constexpr NamedHandler kTable[] = {
    {"fence.proxy.async", proxy_async},
    {"fence", memory_fence},
    {"setmaxnreg", setmaxnreg},
};

constexpr Waiter kWaiters[] = {{setmaxnreg, describe_registers}};

}  // namespace

std::span<const NamedHandler> fence_handlers() { return kTable; }
std::span<const Waiter> fence_waiters() { return kWaiters; }

}  // namespace ptx
