// How warps share the machine.
#pragma once
#include <memory>
#include <random>
#include <vector>

#include "machine.hpp"

namespace ptx {

// Fills the constant rows of a new warp.
void fill_constants(Warp& warp);

// Reports what a warp or a cluster leaves behind when it ends, and completes it.
void leave_warp(Warp& warp);
void leave_cluster(Cluster& cluster);

enum class SliceEnd : u8 {
  kIdle,       // nothing could execute
  kBlocked,    // executed, then blocked
  kYielded,    // polls something
  kExhausted,  // the time slice ended
};

// Runs one warp for at most `budget` instructions, the lowest program counter first.
SliceEnd run_slice(Warp& warp, u32 budget);

// Whether a warp's split waits in mbarrier.try_wait, which may give up after a time.
bool waits_with_timeout(const Warp& warp);

// Every warp that cannot proceed, and what it waits for.
Fault deadlock_report(const std::vector<Warp*>& warps, u64 started, u64 clusters);

// Runs a launch: clusters start in grid order, one more whenever all the active ones wait or poll without progress.
class Scheduler {
 public:
  Scheduler(Run& run, Launch& launch, u32 resident_clusters);
  void run_all();

 private:
  struct Round {
    bool progress = false;       // something happened that others may see, or a warp is still computing
    bool provably_stuck = true;  // nothing will happen without an external change
  };
  void admit();
  void order_warps();
  Round run_round();
  void observe(Warp& warp, SliceEnd end, Round& round);
  void resolve_stall(bool provably_stuck);
  Deferred take_deferred(Cluster& cluster);
  bool complete_deferred();
  bool release_lanes();
  void expire_waits();
  void retire_finished();
  void check_limits() const;

  Run& run_;
  Launch& launch_;
  u32 resident_clusters_;
  std::vector<std::unique_ptr<Cluster>> active_;
  std::vector<Warp*> warps_;
  std::mt19937_64 random_;
  u32 quiet_rounds_ = 0;
  u64 stall_hash_ = 0;
  u64 stall_event_ = ~0ull;
};

}  // namespace ptx
