// Fences, and the instructions around them that concern registers and launches.
#include "machine.hpp"
#include "races.hpp"
#include "waits.hpp"

namespace ptx {
namespace {

// fence.proxy.async: orders the warp's earlier ordinary stores before async-proxy accesses.
// Attributes: of shared memory, of global memory.
Step proxy_async(Warp& warp, const Insn& insn, u32) {
  const u64 now = ++warp.run->proxy_clock;
  if (insn.attr[0]) warp.proxy_fence = now, fence_init(warp, now);
  if (insn.attr[1] && warp.launch->kernel->reads_global_async) warp.launch->global_fences[warp.grid_number()] = now;
  return Step::kNext;
}

// Handlers run one after another on one memory, so memory fences order nothing that could be out of order. The check of
// races learns what later relaxed arrivals hand on.
Step memory_fence(Warp& warp, const Insn&, u32) {
  if (Races* races = warp.cta->cluster->races.get()) races->release(warp, races->fenced(warp));
  return Step::kNext;
}

// fence.mbarrier_init, and fences of memory whose scope holds the cluster: the initialisation becomes visible to it.
Step init_fence(Warp& warp, const Insn& insn, u32 mask) {
  fence_init(warp, ++warp.run->proxy_clock);
  return memory_fence(warp, insn, mask);
}

// fence.proxy.tensormap::generic.acquire: operand = address of the map.
Step tensor_map_fence(Warp& warp, const Insn& insn, u32 mask) {
  const u64 now = ++warp.run->proxy_clock;
  for_lanes(mask, [&](u32 lane) { warp.cta->tensor_map_fences[address_of(warp, insn.ops[0], lane)] = now; });
  return Step::kNext;
}

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
    {"fence.init", init_fence},
    {"fence", memory_fence},
    {"fence.tensormap", tensor_map_fence},
    {"setmaxnreg", setmaxnreg},
};

constexpr Waiter kWaiters[] = {{setmaxnreg, describe_registers}};

}  // namespace

std::span<const NamedHandler> fence_handlers() { return kTable; }
std::span<const Waiter> fence_waiters() { return kWaiters; }

}  // namespace ptx
