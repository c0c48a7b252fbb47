#include "scheduler.hpp"

#include <algorithm>

#include "tensor_memory.hpp"

namespace ptx {
namespace {

constexpr u32 kSliceInstructions = 1024;
// Rounds without any visible change after which warps that poll count as waiting.
constexpr u32 kQuietRounds = 16;
// Host memory that the clusters resident at once may take.
constexpr u64 kMemoryBudget = u64(2) << 30;

// Brent's cycle detection on the states at the ends of time slices: while nothing visible changes, a warp that comes
// back to an earlier state repeats itself for ever.
bool repeats(Warp& warp, u64 events) {
  const u64 hash = warp.state_hash();
  warp.run->work += warp.state_bytes() / kUnitBytes;
  if (warp.saved_event != events) {
    warp.saved_event = events;
    warp.saved_hash = hash;
    warp.cycle_power = 1;
    warp.cycle_length = 0;
    return false;
  }
  if (warp.saved_hash == hash) return true;
  if (++warp.cycle_length == warp.cycle_power) {
    warp.saved_hash = hash;
    warp.cycle_power *= 2;
    warp.cycle_length = 0;
  }
  return false;
}

// Host bytes of the register files, shared, tensor and local memory of a cluster, with what is known of them; roughly.
u64 cluster_bytes(const Launch& launch) {
  const Kernel& kernel = *launch.kernel;
  const u64 warp = u64(kernel.rows) * kLanes * 4 + u64(kernel.local_bytes) * kLanes;
  const u64 shared = 3 * (u64(kernel.dynamic_offset()) + launch.dynamic_shared);
  const u64 tensor = launch.run->options.tensor_memory_columns ? 5 * kTensorLanes * kTensorColumns : 0;
  return launch.ctas_per_cluster() * (launch.warps_per_cta() * warp + shared + tensor);
}

}  // namespace

Scheduler::Scheduler(Run& run, Launch& launch, u32 resident_clusters)
    : run_(run),
      launch_(launch),
      random_(run.options.seed) {
  const u64 needed = cluster_bytes(launch), fitting = kMemoryBudget / needed;
  if (!fitting)
    throw Fault{FaultKind::kUnsupported,
                format("one cluster needs %llu MiB of host memory, more than %llu MiB", (unsigned long long)(needed >> 20),
                       (unsigned long long)(kMemoryBudget >> 20)),
                "", launch.kernel->index};
  resident_clusters_ = u32(std::min<u64>(std::max(resident_clusters, 1u), fitting));
}

void Scheduler::admit() {
  run_.work += cluster_bytes(launch_) / kUnitBytes;
  auto cluster = std::make_unique<Cluster>(launch_, launch_.next_cluster++);
  for (auto& cta : cluster->ctas)
    for (auto& warp : cta->warps) fill_constants(*warp);
  active_.push_back(std::move(cluster));
  run_.peak_bytes = std::max(run_.peak_bytes, active_.size() * cluster_bytes(launch_));
  order_warps();
}

void Scheduler::order_warps() {
  warps_.clear();
  for (auto& cluster : active_)
    for (auto& cta : cluster->ctas)
      for (auto& warp : cta->warps)
        if (warp->live) warps_.push_back(warp.get());
  if (run_.options.reverse) std::reverse(warps_.begin(), warps_.end());
}

void Scheduler::run_all() {
  while (launch_.next_cluster < launch_.clusters() || !active_.empty()) {
    if (active_.empty()) admit();
    if (run_.options.seed) std::shuffle(warps_.begin(), warps_.end(), random_);
    const Round round = run_round();
    retire_finished();
    if (!round.progress && !active_.empty()) resolve_stall(round.provably_stuck);
  }
}

Scheduler::Round Scheduler::run_round() {
  Round round;
  const u64 before = run_.events;
  for (Warp* warp : warps_) {
    if (!warp->live) continue;
    check_limits();
    const u32 budget = run_.options.seed ? u32(random_() % kSliceInstructions) + 1 : kSliceInstructions;
    observe(*warp, run_slice(*warp, budget), round);
  }
  quiet_rounds_ = run_.events == before ? quiet_rounds_ + 1 : 0;
  if (run_.events != before) round.progress = true;
  return round;
}

void Scheduler::observe(Warp& warp, SliceEnd end, Round& round) {
  if (end == SliceEnd::kIdle) return;
  // Hashing is dear: only when nothing has happened for a while.
  if (end != SliceEnd::kBlocked && quiet_rounds_ >= 2 && repeats(warp, run_.events)) return;
  round.provably_stuck = false;
  if (end != SliceEnd::kYielded || quiet_rounds_ < kQuietRounds) round.progress = true;
}

void Scheduler::retire_finished() {
  const size_t before = active_.size();
  std::erase_if(active_, [](const std::unique_ptr<Cluster>& cluster) {
    if (!cluster->finished()) return false;
    leave_cluster(*cluster);
    return true;
  });
  if (active_.size() != before) order_warps();
}

void Scheduler::resolve_stall(bool provably_stuck) {
  if (complete_deferred() || release_lanes()) return;
  if (launch_.next_cluster < launch_.clusters() && active_.size() < resident_clusters_) {
    admit();
    return;
  }
  if (provably_stuck) expire_waits();
}

// The next piece of deferred work. Products come first: copies are late for them too. A reversed schedule completes the
// last copy first, and the products of the warp that asked last, so that it runs ahead of the others; a shuffled one
// takes anything. The products of one warp complete in order.
Deferred Scheduler::take_deferred(Cluster& cluster) {
  auto& queue = cluster.deferred;
  const auto is_product = [](const Deferred& work) { return work.kind == Deferred::kProduct; };
  auto pick = run_.options.reverse ? queue.end() - 1 : queue.begin();
  if (run_.options.seed)
    pick = queue.begin() + std::ptrdiff_t(random_() % queue.size());
  else if (!is_product(*pick))
    for (auto at = queue.begin(); at != queue.end(); ++at)
      if (is_product(*at) && (run_.options.reverse || !is_product(*pick))) pick = at;
  if (is_product(*pick))
    pick = std::find_if(queue.begin(), pick, [&](const Deferred& work) {
      return is_product(work) && work.place.warp == pick->place.warp;
    });
  Deferred work = std::move(*pick);
  queue.erase(pick);
  return work;
}

bool Scheduler::complete_deferred() {
  bool any = false;
  for (auto& cluster : active_) {
    if (cluster->deferred.empty()) continue;
    const Deferred work = take_deferred(*cluster);
    work.complete();
    run_.event();
    any = true;
  }
  return any;
}

bool Scheduler::release_lanes() {
  bool any = false;
  for (Warp* warp : warps_)
    if (warp->live && warp->splits.size() > 1 && !warp->independent) any = warp->independent = true;
  return any;
}

// Lets every blocked try_wait give up once. If that leads to the same stall again, nothing will ever change.
void Scheduler::expire_waits() {
  u64 hash = 0;
  bool any = false;
  for (Warp* warp : warps_) {
    if (!warp->live) continue;
    hash = (hash ^ warp->state_hash()) * 0x9e3779b97f4a7c15ull;
    if (waits_with_timeout(*warp)) any = warp->timed_out = true;
  }
  const bool same = stall_event_ == run_.events && stall_hash_ == hash;
  if (!any || same) throw deadlock_report(warps_, launch_.next_cluster, launch_.clusters());
  stall_event_ = run_.events;
  stall_hash_ = hash;
}

void Scheduler::check_limits() const {
  if (run_.cancel.load(std::memory_order_relaxed)) throw Fault{FaultKind::kCancelled, "cancelled", ""};
  if (run_.work > run_.options.step_limit)
    throw Fault{FaultKind::kTimeLimit,
                format("Step limit: the run exceeded %llu warp instructions, with products and copies weighed by their size",
                       (unsigned long long)run_.options.step_limit),
                "Look for a loop that does not end, or use smaller sizes.", launch_.kernel->index};
  if (std::chrono::steady_clock::now() > run_.deadline)
    throw Fault{FaultKind::kTimeLimit, format("Time limit: the run exceeded %g s", run_.options.time_limit_s),
                "Look for a loop that does not end, or use smaller sizes.", launch_.kernel->index};
}

void run_launch(Run& run, Launch& launch, u32 resident_clusters) {
  Scheduler(run, launch, resident_clusters).run_all();
}

}  // namespace ptx
