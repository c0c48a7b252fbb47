// One warp's time slice: divergence, reconvergence and the effect of each step.
//
// Lanes at the same program counter run together; of several groups the lowest program counter runs first, so that
// groups meet again where control flow joins. A group that waits keeps the groups behind it waiting, as on hardware,
// until nothing else can proceed; then every group may run on its own (independent thread scheduling).
#include <algorithm>
#include <utility>

#include "scheduler.hpp"
#include "tensor_loads.hpp"
#include "wgmma.hpp"

namespace ptx {
namespace {

void merge_splits(Warp& warp) {
  auto& splits = warp.splits;
  for (size_t i = 0; i < splits.size(); ++i)
    for (size_t j = i + 1; j < splits.size();)
      if (splits[i].pc == splits[j].pc) {
        splits[i].mask |= splits[j].mask;
        splits[i].state = Split::kReady;
        splits.erase(splits.begin() + std::ptrdiff_t(j));
      } else {
        ++j;
      }
  if (splits.size() == 1) warp.independent = false;
}

// The split to run next, or -1.
int pick_split(const Warp& warp) {
  int best = -1;
  for (size_t i = 0; i < warp.splits.size(); ++i) {
    const Split& split = warp.splits[i];
    const bool skip = warp.independent ? split.state != Split::kReady : split.state == Split::kConverging;
    if (!skip && (best < 0 || split.pc < warp.splits[size_t(best)].pc)) best = int(i);
  }
  return best >= 0 && warp.splits[size_t(best)].state == Split::kReady ? best : -1;
}

class SplitRunner {
 public:
  SplitRunner(Warp& warp, size_t number, u32& budget)
      : warp_(warp),
        number_(number),
        budget_(budget),
        code_(warp.launch->kernel->code),
        sites_(*warp.launch->sites),
        pc_(warp.splits[number].pc),
        active_(warp.splits[number].mask) {
    for (const Split& other : warp.splits)
      if (other.pc > pc_) meet_ = std::min(meet_, other.pc);
  }

  // Runs until the split blocks, meets another, jumps among others, or the budget ends. Says whether anything executed.
  bool run() {
    bool executed = false;
    while (budget_) {
      const Insn& insn = code_[pc_];
      u32 mask = active_;
      if (insn.guard >= 0) {
        const u32 bits = warp_.row(insn.guard)[0];
        mask &= insn.guard_negated ? ~bits : bits;
      }
      if (mask) {
        if (warp_.tensor_loads) warp_.tensor_loads->touch(warp_, insn);
        warp_.meeting += insn.converges;
        if (insn.touches_products && warp_.wgmma) use_registers(warp_, insn);
        const Step step = insn.handler(warp_, insn, mask);
        if (step == Step::kBlock || step == Step::kConverge) {
          store(step == Step::kBlock ? Split::kBlocked : Split::kConverging);
          return executed;
        }
        if (step == Step::kPoll) {
          store(Split::kYielded);
          warp_.splits[number_].polled = i64(pc_);
          return executed;
        }
        count(insn, mask);
        executed = true;
        if (step == Step::kJump ? jump(mask) : step == Step::kExit ? leave(mask) : false) return true;
        if (step != Step::kJump) ++pc_;
      } else {
        ++pc_;
      }
      if (warp_.pause != Pause::kNone) {
        const Pause why = std::exchange(warp_.pause, Pause::kNone);
        if (why == Pause::kPoll) {
          store(Split::kYielded);
          warp_.splits[number_].polled = i64(pc_) - 1;
          return executed;
        }
        budget_ = 0;
      }
      if (pc_ >= meet_) break;
    }
    store(Split::kReady);
    return executed;
  }

 private:
  void store(Split::State state) {
    Split& split = warp_.splits[number_];
    split.pc = pc_, split.mask = active_, split.state = state;
  }

  void count(const Insn& insn, u32 mask) {
    --budget_;
    ++warp_.run->steps;
    ++warp_.executed;
    Site& site = sites_[pc_];
    ++site.executed;
    site.threads += u32(__builtin_popcount(mask));
    const u64 heavy = site.flops / kUnitFlops + site.bytes / kUnitBytes;
    warp_.run->work += 1 + insn.ops.size() / kUnitOperands + heavy - std::exchange(site.weighed, heavy);
    if (warp_.run->work > warp_.run->options.step_limit) [[unlikely]] budget_ = 0;  // the scheduler ends the run
  }

  // Takes a branch; true if the split has to be chosen anew.
  bool jump(u32 mask) {
    const u32 taken = warp_.jump_mask, stay = mask & ~taken, fall = active_ & ~mask;
    if (!stay && !fall) {
      pc_ = warp_.jump_target;
      if (warp_.splits.size() == 1) return false;
      store(Split::kReady);
      return true;
    }
    warp_.splits[number_] = {warp_.jump_target, taken};
    if (stay) warp_.splits.push_back({pc_, stay});
    if (fall) warp_.splits.push_back({pc_ + 1, fall});
    return true;
  }

  bool leave(u32 mask) {
    warp_.live &= ~mask;
    active_ &= ~mask;
    warp_.run->event();
    if (active_) return false;
    warp_.splits.erase(warp_.splits.begin() + std::ptrdiff_t(number_));
    return true;
  }

  Warp& warp_;
  size_t number_;
  u32& budget_;
  const std::vector<Insn>& code_;
  std::vector<Site>& sites_;
  u32 pc_;
  u32 active_;
  u32 meet_ = ~0u;
};

}  // namespace

SliceEnd run_slice(Warp& warp, u32 budget) {
  for (Split& split : warp.splits) split.state = Split::kReady;
  bool executed = false;
  while (budget && !warp.splits.empty()) {
    if (warp.splits.size() > 1) merge_splits(warp);
    const int number = pick_split(warp);
    if (number < 0) break;
    executed |= SplitRunner(warp, size_t(number), budget).run();
  }
  if (warp.splits.empty()) {
    leave_warp(warp);
    return SliceEnd::kBlocked;
  }
  if (!budget) return SliceEnd::kExhausted;
  const bool yielded = std::any_of(warp.splits.begin(), warp.splits.end(),
                                   [](const Split& split) { return split.state == Split::kYielded; });
  return yielded ? SliceEnd::kYielded : executed ? SliceEnd::kBlocked : SliceEnd::kIdle;
}

}  // namespace ptx
