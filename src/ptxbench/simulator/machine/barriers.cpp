// Barriers of a CTA (bar, barrier), of a warp (bar.warp) and of a cluster (barrier.cluster).
//
// bar.sync, bar.arrive: operands = barrier, thread count or none
// cluster.arrive: attribute = relaxed
// bar.red: operands = destination, barrier, thread count or none, predicate; attribute = 0 popc, 1 and, 2 or
#include "machine.hpp"
#include "races.hpp"
#include "uniform.hpp"
#include "waits.hpp"

namespace ptx {
namespace {

NamedBarrier& barrier_of(Warp& warp, const Insn& insn, const Operand& operand) {
  check_uniform({&warp, &insn, 0}, operand, warp.live, "barrier");
  const u32 id = warp.row(operand.slot)[__builtin_ctz(warp.live)];
  if (id >= warp.cta->barriers.size()) warp.illegal(insn, format("barrier %u does not exist (0 to 15)", id));
  return warp.cta->barriers[id];
}

// Threads the barrier waits for: the given number, or all threads of the CTA that have not exited.
u32 expected_threads(Warp& warp, const Insn& insn, const Operand& count) {
  if (count.kind == Operand::kNone) return warp.cta->live_warps * kLanes;
  check_uniform({&warp, &insn, 0}, count, warp.live, "thread count");
  const u32 threads = warp.row(count.slot)[__builtin_ctz(warp.live)];
  if (!threads || threads % kLanes)
    warp.illegal(insn, format("thread count %u is not a positive multiple of 32", threads));
  if (threads > warp.launch->warps_per_cta() * kLanes)
    warp.illegal(insn, format("thread count %u exceeds the CTA's %u threads", threads, warp.launch->threads()));
  return threads;
}

void arrive(Warp& warp, const Insn& insn, NamedBarrier& barrier, u32 expected) {
  if (barrier.arrived && barrier.expected != expected)
    warp.illegal(insn, format("arrives with thread count %u at a barrier that others joined with %u", expected,
                              barrier.expected));
  barrier.expected = expected;
  barrier.arrived += kLanes;
  if (Races* races = warp.cta->cluster->races.get()) races->release(warp, races->barrier(*warp.cta, barrier).arriving);
  warp.run->event();
}

void complete_if_full(Warp& warp, const Insn& insn, NamedBarrier& barrier, u32 expected) {
  if (!barrier.arrived || barrier.arrived < expected) return;
  if (barrier.arrived > expected)
    warp.illegal(insn, format("%u threads arrived at a barrier of %u", barrier.arrived, expected));
  barrier.arrived = 0;
  ++barrier.generation;
  barrier.result_any = barrier.any, barrier.result_all = barrier.all, barrier.result_count = barrier.count;
  barrier.any = 0, barrier.all = 1, barrier.count = 0;
  if (Races* races = warp.cta->cluster->races.get()) races->barrier(*warp.cta, barrier).complete();
  warp.run->event();
}

// Arrives once, then says whether the barrier's generation has completed.
bool passed(Warp& warp, const Insn& insn, NamedBarrier& barrier, const Operand& count, u32 predicate) {
  const u32 expected = expected_threads(warp, insn, count);
  if (!warp.barrier_arrived) {
    arrive(warp, insn, barrier, expected);
    barrier.any |= (predicate & warp.live) != 0;
    barrier.all &= (predicate & warp.live) == warp.live;
    barrier.count += u32(__builtin_popcount(predicate & warp.live));
    warp.barrier_arrived = true;
    warp.barrier_generation = barrier.generation;
  }
  if (barrier.generation == warp.barrier_generation) complete_if_full(warp, insn, barrier, expected);
  if (barrier.generation == warp.barrier_generation) return false;
  warp.barrier_arrived = false;
  if (Races* races = warp.cta->cluster->races.get())
    races->clock(warp).merge(races->barrier(*warp.cta, barrier).released);
  return true;
}

Step bar_sync(Warp& warp, const Insn& insn, u32 mask) {
  if (mask != warp.live) return Step::kConverge;
  NamedBarrier& barrier = barrier_of(warp, insn, insn.ops[0]);
  return passed(warp, insn, barrier, insn.ops[1], 0) ? Step::kNext : Step::kBlock;
}

Step bar_arrive(Warp& warp, const Insn& insn, u32 mask) {
  if (mask != warp.live) return Step::kConverge;
  NamedBarrier& barrier = barrier_of(warp, insn, insn.ops[0]);
  const u32 expected = expected_threads(warp, insn, insn.ops[1]);
  arrive(warp, insn, barrier, expected);
  complete_if_full(warp, insn, barrier, expected);
  warp.signal();
  return Step::kNext;
}

Step bar_red(Warp& warp, const Insn& insn, u32 mask) {
  if (mask != warp.live) return Step::kConverge;
  NamedBarrier& barrier = barrier_of(warp, insn, insn.ops[1]);
  if (!passed(warp, insn, barrier, insn.ops[2], warp.pred(insn.ops[3]))) return Step::kBlock;
  if (insn.attr[0] == 0) {
    for_lanes(mask, [&](u32 lane) { warp.row(insn.ops[0].slot)[lane] = barrier.result_count; });
  } else {
    warp.set_pred(insn.ops[0], mask, (insn.attr[0] == 1 ? barrier.result_all : barrier.result_any) ? kFullMask : 0);
  }
  return Step::kNext;
}

// bar.warp.sync: operand = member mask.
Step bar_warp(Warp& warp, const Insn& insn, u32 mask) {
  const u32 members = warp.row(insn.ops[0].slot)[__builtin_ctz(mask)];
  return members & warp.live & ~mask ? Step::kConverge : Step::kNext;
}

Step cluster_arrive(Warp& warp, const Insn& insn, u32 mask) {
  if (mask != warp.live) return Step::kConverge;
  Cluster& cluster = *warp.cta->cluster;
  if (warp.cluster_arrived) warp.illegal(insn, "arrives twice without barrier.cluster.wait in between");
  warp.cluster_arrived = true;
  warp.cluster_generation = cluster.barrier_generation;
  ++cluster.barrier_arrived;
  const bool relaxed = insn.attr[0];
  if (!relaxed) fence_init(warp, ++warp.run->proxy_clock);
  if (Races* races = cluster.races.get()) {
    if (relaxed)
      races->cluster_barrier.arriving.merge(races->fenced(warp));
    else
      races->release(warp, races->cluster_barrier.arriving);
  }
  warp.run->event();
  warp.signal();
  return Step::kNext;
}

Step cluster_wait(Warp& warp, const Insn& insn, u32 mask) {
  if (mask != warp.live) return Step::kConverge;
  if (!warp.cluster_arrived) warp.illegal(insn, "waits without barrier.cluster.arrive before it");
  Cluster& cluster = *warp.cta->cluster;
  if (cluster.barrier_generation == warp.cluster_generation) {
    if (cluster.barrier_arrived < cluster.live_warps) return Step::kBlock;
    cluster.barrier_arrived = 0;
    ++cluster.barrier_generation;
    if (cluster.races) cluster.races->cluster_barrier.complete();
    warp.run->event();
  }
  if (cluster.races) cluster.races->clock(warp).merge(cluster.races->cluster_barrier.released);
  warp.cluster_arrived = false;
  return Step::kNext;
}

std::string describe_barrier(Warp& warp, const Insn& insn, u32) {
  const bool reduces = insn.handler == bar_red;
  const u32 id = warp.row(insn.ops[reduces].slot)[__builtin_ctz(warp.live)];
  const NamedBarrier& barrier = warp.cta->barriers[id & 15];
  const bool all = insn.ops[reduces + 1].kind == Operand::kNone;
  return format("at barrier %u, which has %u of %u threads", id, barrier.arrived,
                all ? warp.cta->live_warps * kLanes : barrier.expected);
}

std::string describe_cluster(Warp& warp, const Insn&, u32) {
  const Cluster& cluster = *warp.cta->cluster;
  return format("at the cluster barrier, where %u of %u warps have arrived", cluster.barrier_arrived, cluster.live_warps);
}

constexpr NamedHandler kTable[] = {
    {"bar.sync", bar_sync}, {"bar.arrive", bar_arrive},         {"bar.red", bar_red},
    {"bar.warp", bar_warp}, {"cluster.arrive", cluster_arrive}, {"cluster.wait", cluster_wait},
};
constexpr Waiter kWaiters[] = {
    {bar_sync, describe_barrier}, {bar_red, describe_barrier}, {cluster_wait, describe_cluster}};

}  // namespace

std::span<const NamedHandler> barrier_handlers() { return kTable; }
std::span<const Waiter> barrier_waiters() { return kWaiters; }

}  // namespace ptx
