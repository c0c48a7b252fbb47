// The report of a run in which nothing can proceed any more.
#include <algorithm>
#include <array>
#include <compare>
#include <map>
#include <tuple>

#include "scheduler.hpp"
#include "waits.hpp"

namespace ptx {
namespace {

constexpr size_t kMostLines = 64;

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
    return format("for lanes %08x of the warp, which are elsewhere", warp.live & ~split.mask);
  const Waiter* waiter = waiter_of(insn);
  return waiter && mask ? waiter->describe(warp, insn, mask) : "for a value that nobody will change";
}

// Where a split waits: at its instruction, or at the one it polls with in a loop.
u32 waiting_at(const Warp& warp, const Split& split) {
  const bool polls =
      split.polled >= 0 && split.state != Split::kConverging && !waiter_of(warp.launch->kernel->code[split.pc]);
  return polls ? u32(split.polled) : split.pc;
}

// Warps of several CTAs that wait for the same, with the same lanes at the same instruction.
struct Group {
  u32 pc, mask;
  std::vector<u32> warps;
  std::string what;
  u32 rank;  // how much it tells: less is more
  auto operator<=>(const Group&) const = default;
};

using CtaId = std::array<u32, 3>;  // z, y, x: in the order of the grid

// Missing bytes are a cause. Else threads that wait on an mbarrier tell most, above all few of them: a producer.
u32 rank_of(Warp& warp, const Split& split, const Insn& insn) {
  const Waiter* waiter = waiter_of(insn);
  const u32 mask = executing(warp, split, insn);
  if (!waiter || !mask || split.state == Split::kConverging) return 3;
  return waiter->starves && waiter->starves(warp, insn, mask) ? 0 : waiter->timeout ? 1 : 2;
}

// The waiting warps of a CTA by what they wait for.
std::vector<Group> groups_of(Cta& cta, const Kernel& kernel) {
  std::vector<Group> groups;
  for (auto& warp : cta.warps)
    for (const Split& split : warp->splits) {
      const u32 pc = waiting_at(*warp, split);
      const Insn& insn = kernel.code[pc];
      const Group group{pc, split.mask, {}, describe(*warp, split, insn), rank_of(*warp, split, insn)};
      const auto same = [&](const Group& other) {
        return other.pc == pc && other.mask == split.mask && other.what == group.what;
      };
      auto found = std::find_if(groups.begin(), groups.end(), same);
      if (found == groups.end()) found = groups.insert(groups.end(), group);
      found->warps.push_back(warp->index);
    }
  return groups;
}

std::string name_of(const Group& group, const std::vector<CtaId>& ctas) {
  std::string warps;
  for (const u32 warp : group.warps) warps += (warps.empty() ? "" : ", ") + std::to_string(warp);
  const auto& [z, y, x] = ctas.front();
  std::string rest = group.mask == kFullMask ? "" : format("lanes %08x", group.mask);
  if (ctas.size() > 1) rest += format("%sand in %zu more CTAs", rest.empty() ? "" : ", ", ctas.size() - 1);
  const std::string name = format("CTA (%u,%u,%u) warp%s ", x, y, z, group.warps.size() > 1 ? "s" : "") + warps;
  return rest.empty() ? name : name + " (" + rest + ")";
}

}  // namespace

bool waits_with_timeout(const Warp& warp) {
  for (const Split& split : warp.splits) {
    const Waiter* waiter = waiter_of(warp.launch->kernel->code[split.pc]);
    if (waiter && waiter->timeout) return true;
  }
  return false;
}

Fault deadlock_report(const std::vector<Warp*>& warps, u64 started, u64 clusters) {
  const Kernel& kernel = *warps.front()->launch->kernel;
  std::map<CtaId, Cta*> ctas;
  size_t waiting = 0;
  for (Warp* warp : warps) {
    if (!warp->live) continue;
    ++waiting;
    ctas[{warp->cta->id[2], warp->cta->id[1], warp->cta->id[0]}] = warp->cta;
  }
  std::map<Group, std::vector<CtaId>> groups;
  for (const auto& [id, cta] : ctas)
    for (const Group& group : groups_of(*cta, kernel)) groups[group].push_back(id);
  std::vector<const std::pair<const Group, std::vector<CtaId>>*> order;
  for (const auto& entry : groups) order.push_back(&entry);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    const auto key = [](const Group& group) {
      return std::pair(group.rank, group.warps.size() * size_t(__builtin_popcount(group.mask)));
    };
    return key(a->first) < key(b->first);
  });
  Fault fault{FaultKind::kDeadlock, format("Deadlock: %zu %s for ever", waiting, waiting == 1 ? "warp waits" : "warps wait"),
              "Check parities, arrival counts, expected bytes and thread counts of the barriers that are waited for.",
              i64(kernel.index)};
  if (started < clusters)
    fault.message += format(", and only %llu of %llu clusters have started", (unsigned long long)started,
                            (unsigned long long)clusters);
  for (const auto* entry : order) {
    const auto& [group, ids] = *entry;
    if (fault.position < 0) fault.position = group.pc;
    fault.detail.push_back({group.pc, name_of(group, ids), group.what, group.warps.size() > 1});
    if (fault.detail.size() == kMostLines) break;
  }
  return fault;
}

}  // namespace ptx
