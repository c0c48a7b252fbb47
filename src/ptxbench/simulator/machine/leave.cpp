// What warps, CTAs and clusters leave behind when they end.
#include "copies.hpp"
#include "races.hpp"
#include "scheduler.hpp"
#include "tensor_memory.hpp"
#include "wgmma.hpp"

namespace ptx {

void leave_warp(Warp& warp) {
  Cluster& cluster = *warp.cta->cluster;
  leave_bulk_stores(warp);
  leave_async_copies(warp);
  leave_wgmma(warp);
  // The cluster barrier waits for warps that have not exited, so a warp that exits takes its arrival with it.
  if (warp.cluster_arrived && warp.cluster_generation == cluster.barrier_generation) --cluster.barrier_arrived;
  --warp.cta->live_warps;
  --cluster.live_warps;
  if (cluster.races) cluster.races->leave(warp);
  warp.run->event();
}

void leave_cluster(Cluster& cluster) {
  while (!cluster.deferred.empty()) {
    const Deferred work = std::move(cluster.deferred.front());
    cluster.deferred.pop_front();
    if (work.matters && work.kind == Deferred::kCopy)
      cluster.launch->run->hazard(HazardKind::kUnfinishedCopy, work.place,
                                  [] { return "had not completed when the last CTA of its cluster exited"; });
    work.complete();
  }
  for (auto& cta : cluster.ctas) leave_tensor_memory(*cta);
}

}  // namespace ptx
