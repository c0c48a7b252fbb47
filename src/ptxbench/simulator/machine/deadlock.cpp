// The report of a run in which nothing can proceed any more.
#include <map>
#include <tuple>

#include "scheduler.hpp"
#include "waits.hpp"

namespace ptx {
namespace {

const Waiter* waiter_of(const Insn& insn) {
  for (const auto table :
       {barrier_waiters(), mbarrier_waiters(), fence_waiters(), wgmma_waiters(), tensor_memory_waiters()})
    for (const Waiter& waiter : table)
      if (waiter.handler == insn.handler) return &waiter;
  return nullptr;
}

u32 executing(const Warp& warp, const Split& split, const Insn& insn) {
  if (insn.guard < 0) return split.mask;
  const u32 bits = warp.row(insn.guard)[0];
  return split.mask & (insn.guard_negated ? ~bits : bits);
}

std::string describe(Warp& warp, const Split& split, const Insn& insn) {
  const u32 mask = executing(warp, split, insn);
  if (split.state == Split::kConverging)
    return insn.text +
           format(": lanes %08x wait for the other live lanes (%08x) of the warp", split.mask, warp.live & ~split.mask);
  const Waiter* waiter = waiter_of(insn);
  if (waiter && mask) return insn.text + ": " + waiter->describe(warp, insn, mask);
  return insn.text + ": polls a value that nobody will change";
}

// Where a split waits: at its instruction, or at the one it polls with in a loop.
u32 waiting_at(const Warp& warp, const Split& split) {
  const bool polls =
      split.polled >= 0 && split.state != Split::kConverging && !waiter_of(warp.launch->kernel->code[split.pc]);
  return polls ? u32(split.polled) : split.pc;
}

std::string numbers(const std::vector<u32>& values) {
  std::string text;
  for (const u32 value : values) text += (text.empty() ? "" : ", ") + std::to_string(value);
  return text;
}

}  // namespace

bool waits_with_timeout(const Warp& warp) {
  for (const Split& split : warp.splits) {
    const Waiter* waiter = waiter_of(warp.launch->kernel->code[split.pc]);
    if (waiter && waiter->timeout) return true;
  }
  return false;
}

Fault deadlock_report(const std::vector<Warp*>& warps, u32 started, u32 clusters) {
  std::map<std::tuple<u32, u32, u32, u32, u32, std::string>, std::vector<u32>> groups;
  const Kernel* kernel = nullptr;
  size_t waiting = 0;
  for (Warp* warp : warps) {
    if (!warp->live) continue;
    ++waiting;
    kernel = warp->launch->kernel;
    const u32* id = warp->cta->id;
    for (const Split& split : warp->splits) {
      const u32 pc = waiting_at(*warp, split);
      groups[{id[2], id[1], id[0], pc, split.mask, describe(*warp, split, kernel->code[pc])}].push_back(warp->index);
    }
  }
  Fault fault{FaultKind::kDeadlock, "",
              "Check parities, arrival counts, expected bytes and the number of threads of each barrier in the list.",
              kernel ? i64(kernel->index) : -1};
  for (const auto& [key, members] : groups) {
    const auto& [z, y, x, pc, mask, text] = key;
    if (fault.position < 0) fault.position = pc;
    fault.detail.push_back({pc, format("CTA (%u,%u,%u) warp%s %s, lanes %08x: %s", x, y, z,
                                       members.size() > 1 ? "s" : "", numbers(members).c_str(), mask, text.c_str())});
    if (fault.detail.size() == 64) break;
  }
  fault.message = format("deadlock: %zu warps wait for ever (%u of %u clusters started)", waiting, started, clusters);
  return fault;
}

}  // namespace ptx
