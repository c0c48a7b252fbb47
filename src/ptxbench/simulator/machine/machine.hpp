// The state of a run: warps, CTAs, clusters, and what they share. Handlers see a `Warp` and reach everything from it.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "hazards.hpp"
#include "insn.hpp"
#include "memory.hpp"
#include "module.hpp"

namespace ptx {

struct Cta;
struct Cluster;
struct Launch;
struct Run;
struct WgmmaState;
struct CopyState;
struct TensorMemory;
class TensorLoads;
class PanelCache;
class Races;

// NaN as bf16, f16, f32 and f64: what registers, shared memory and tensor memory hold before they are written.
constexpr u32 kPoison = 0x7fd57fd5u;

// Executed counts of one static instruction.
struct Site {
  u64 executed = 0;
  u64 threads = 0;
  u64 flops = 0;
  u64 bytes = 0;
  const char* dtype = "";
  u64 weighed = 0;  // units of work that the run has counted for `flops` and `bytes`
};

// A unit of work is what a warp instruction costs. Runs are limited in it, so it must be worth at most about a
// microsecond whatever a kernel does: accesses to memory and small products cost that, arithmetic less by far, large
// products 0.2 us for so many FLOPs, copies 0.03 us and reductions 1 us for so many bytes, 0.3 us for so many operands.
constexpr u64 kUnitFlops = 8192, kUnitBytes = 512, kUnitOperands = 8;
// For what the host keeps until a kernel waits for it, so that its memory suffices.
constexpr u64 kUnitsOfPending = 8;

// Lanes of a warp that are at the same instruction.
struct Split {
  enum State : u8 { kReady, kBlocked, kConverging, kYielded };
  u32 pc;
  u32 mask;
  State state = kReady;
  i64 polled = -1;  // the last instruction that yielded here
};

// Memory of 64-byte aligned 32-bit words.
class AlignedWords {
 public:
  AlignedWords() = default;
  explicit AlignedWords(size_t words, u32 fill);
  u32* data() const { return words_.get(); }
  size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(u32* p) const;
  };
  std::unique_ptr<u32[], Free> words_;
  size_t size_ = 0;
};

// A place in the program: who executes what, for faults and hazards. Asynchronous work keeps the place of its issue.
struct Place {
  Warp* warp = nullptr;
  const Insn* insn = nullptr;
  u32 lane = 0;
};

// Why a warp's time slice ends early.
enum class Pause : u8 { kNone, kPoll, kSignal };

// Ends the run with a fault at a place. `message` is a sentence without its end.
[[noreturn]] void fail(const Place& place, FaultKind kind, std::string message, std::string advice);

struct Warp {
  Warp(Cta& cta, u32 index, u32 lanes);
  ~Warp();
  Warp(const Warp&) = delete;
  Warp& operator=(const Warp&) = delete;

  u32* row(i32 slot) { return rows + size_t(slot) * kLanes; }
  const u32* row(i32 slot) const { return rows + size_t(slot) * kLanes; }
  u64* row64(i32 slot) { return reinterpret_cast<u64*>(row(slot)); }

  // The predicate of every lane as a mask, negation applied.
  u32 pred(const Operand& operand) const {
    const u32 bits = row(operand.slot)[0];
    return operand.imm ? ~bits : bits;
  }
  // Writes the predicate of the lanes in `mask`; a sink is ignored.
  void set_pred(const Operand& operand, u32 mask, u32 value) {
    if (operand.kind != Operand::kPred) return;
    u32& bits = row(operand.slot)[0];
    bits = (bits & ~mask) | (value & mask);
  }

  // Ends the run because the instruction cannot be executed like this; `message` says why.
  [[noreturn]] void illegal(const Insn& insn, const std::string& message);
  // Ends the run because the target may execute this and the machine cannot; `message` is a clause that says what.
  [[noreturn]] void unsupported(const Insn& insn, std::string message);

  // Simulated time: one cycle a warp instruction of the whole run.
  u64 clock() const;
  // Ends the warp's time slice after this instruction: it polls something that another warp changes.
  void yield() { pause = Pause::kPoll; }
  // The same after a signal to other warps, in schedules that let them act on it before the warp goes on.
  void signal();

  u64 state_hash() const;
  u64 state_bytes() const { return u64(rows_count) * kLanes * 4 + local.size(); }
  // A mask of the lanes at `pc`, for messages.
  std::string name() const;
  // Numbers within the cluster and within the grid.
  u32 number() const;
  u64 grid_number() const;

  u32* rows = nullptr;
  u32 live = 0;
  u32 lanes;
  u32 index;
  u32 rows_count;
  u32 jump_target = 0;  // set by a handler that returns kJump
  u32 jump_mask = 0;
  Pause pause = Pause::kNone;
  bool poll_ready = false;   // the next polling load may read
  bool independent = false;  // lanes behind a blocked lane may go on (set when nothing else can proceed)
  bool timed_out = false;    // a blocked try_wait gives up once
  bool spinning = false;     // proved: repeats the same states until something else changes
  u64 executed = 0;
  u32 meeting = 0;  // how often something has brought the lanes together
  Cta* cta;
  Launch* launch;
  Run* run;
  std::vector<Split> splits;
  std::vector<u8> local;  // local_bytes a lane
  u32 registers = 0;      // a thread, as setmaxnreg counts them; 0 if not tracked
  // Values of the run's proxy clock at the last fence of a kind.
  u64 proxy_fence = 0;     // fence.proxy.async
  u64 init_fence = 0;      // what makes the initialisation of an mbarrier visible to the cluster and the async proxy
  std::vector<std::pair<u64, u32>> init_fences;  // all of them, with the warp's step; empty unless races are checked
  u64 tensor_before = 0;   // tcgen05.fence::before_thread_sync
  u64 tensor_after = 0;    // tcgen05.fence::after_thread_sync

  // Progress of blocking instructions that are retried.
  bool barrier_arrived = false;
  u32 barrier_generation = 0;
  u32 barrier_bits = 0;
  u32 cluster_generation = 0;
  bool cluster_arrived = false;

  Place tensor_store;  // the last tcgen05.st that was not waited for; its insn is null if there is none
  std::unique_ptr<TensorLoads> tensor_loads;

  std::unique_ptr<WgmmaState> wgmma;
  std::unique_ptr<CopyState> copies;

  // Cycle detection (Brent) on state hashes at the end of time slices.
  u64 saved_hash = 0;
  u64 saved_event = ~0ull;
  u32 cycle_power = 1;
  u32 cycle_length = 0;

 private:
  AlignedWords storage_;
};

struct NamedBarrier {
  u32 arrived = 0;   // threads, in whole warps
  u32 expected = 0;  // of the current generation; 0 before the first arrival
  u32 generation = 0;
  u32 any = 0, all = 1, count = 0;  // reduction in progress
  u32 result_any = 0, result_all = 0, result_count = 0;
};

struct MBarrier {
  u32 expected = 0;
  u32 pending = 0;
  i64 tx = 0;
  u64 phase = 0;
  bool valid = false;
  // Who initialised it, where, and at which value of the proxy clock.
  Warp* maker = nullptr;
  const Insn* made_at = nullptr;
  u64 made = 0;
};

// Work that takes effect when something waits for it. `matters` says that ending the kernel before it is a finding.
struct Deferred {
  enum Kind : u8 { kCopy, kProduct };
  Kind kind;
  Place place;
  bool matters;
  std::function<void()> complete;
};

constexpr u32 kVersionBlock = 1024;

struct Cta {
  Cta(Cluster& cluster, u32 rank);
  ~Cta();

  // Shared memory of this CTA. Offsets count from the start of the window; the first KiB belongs to the system.
  u8* shared_data(u32 offset) { return reinterpret_cast<u8*>(shared.data()) + offset; }
  void wrote_generic(u32 offset, u32 bytes, const Warp& writer);
  void wrote_async(u32 offset, u32 bytes);
  bool check_initialised(const Place& place, u32 offset, u32 bytes);
  // A read through the async proxy: initialised, and no generic write that a proxy fence does not separate. Says whether
  // it is right whichever warp reads.
  bool check_async_read(const Place& place, u32 offset, u32 bytes);
  // Whether every byte near these is initialised, and through the async proxy.
  bool is_clean(u32 first, u32 last) const { return !std::memchr(&clean[first / 16], 0, last / 16 - first / 16 + 1); }
  bool is_clean(u32 offset) const { return clean[offset / 16]; }
  // Makes bytes uninitialised, or initialised by something that is no ordinary store.
  void set_valid(u32 offset, u32 bytes, bool to);
  // Notes that bytes change.
  void touch(u32 offset, u32 bytes) {
    ++shared_version;
    for (u32 block = offset / kVersionBlock; block <= (offset + bytes - 1) / kVersionBlock; ++block)
      block_version[block] = shared_version;
  }
  // The value of `shared_version` at the last change of these bytes, or of bytes near them.
  u64 last_write(u32 first, u32 last) const {
    u64 found = 0;
    const u32 end = std::min(last / kVersionBlock, u32(block_version.size()) - 1);
    for (u32 block = first / kVersionBlock; block <= end; ++block) found = std::max(found, block_version[block]);
    return found;
  }
  u32 warps_alive() const;

  Cluster* cluster;
  u32 rank;
  u32 id[3];
  u32 shared_bytes;  // including the reserved KiB
  AlignedWords shared;
  u64 shared_version = 0;           // counts writes
  std::vector<u64> block_version;   // of the last write, one a kVersionBlock
  std::vector<u8> valid;            // one a byte
  std::vector<u8> clean;            // one a 16-byte granule: all valid, and not dirty
  std::vector<u64> dirty;           // one a 16-byte granule: proxy clock << 16 | writer + 1, or 0
  std::vector<u16> mbarrier_index;  // one an 8-byte granule: index into mbarriers plus one
  std::vector<MBarrier> mbarriers;
  std::vector<NamedBarrier> barriers;
  // By address of a tensor map: value of the proxy clock at the last fence that acquired it.
  std::unordered_map<u64, u64> tensor_map_fences;
  std::vector<std::unique_ptr<Warp>> warps;
  std::unique_ptr<TensorMemory> tensor_memory;
  std::unique_ptr<PanelCache> panels;
  u32 live_warps = 0;
  u32 register_pool = 0;  // registers a thread, summed over warps, that setmaxnreg.inc may take
};

struct Cluster {
  Cluster(Launch& launch, u64 index);
  ~Cluster();
  bool finished() const { return live_warps == 0; }
  Warp& warp_of(u32 cluster_warp) { return *warps[cluster_warp]; }

  Launch* launch;
  u64 index;
  u32 origin[3];  // CTA coordinates of rank 0
  std::vector<std::unique_ptr<Cta>> ctas;
  std::vector<Warp*> warps;  // by CTA rank * warps per CTA + index
  std::deque<Deferred> deferred;
  u32 barrier_arrived = 0;  // warps
  u32 barrier_generation = 0;
  u32 live_warps = 0;
  std::unique_ptr<Races> races;  // null unless the option is set
};

struct Dim3 {
  u32 x, y, z;
  u64 count() const { return u64(x) * y * z; }
};

// One kernel launch.
struct Launch {
  Run* run;
  const Kernel* kernel;
  Dim3 grid, block, cluster;
  u32 dynamic_shared;
  u32 registers;  // a thread at the start, 0 if setmaxnreg has no effect
  std::vector<Site>* sites;
  bool cooperative;
  bool explicit_cluster;  // the launch or the kernel asks for clusters, be it of one CTA
  // By number of the warp in the grid: value of the proxy clock at its last fence of global memory for the async proxy.
  std::unordered_map<u64, u64> global_fences = {};
  u64 global_fence(u64 warp) const {
    const auto found = global_fences.find(warp);
    return found == global_fences.end() ? 0 : found->second;
  }
  u32 threads() const { return u32(block.count()); }
  u32 warps_per_cta() const { return (threads() + kLanes - 1) / kLanes; }
  u32 ctas_per_cluster() const { return u32(cluster.count()); }
  u64 clusters() const { return grid.count() / cluster.count(); }
  Dim3 origin(u64 number) const;  // coordinates of the first CTA of a cluster
  u64 next_cluster = 0;           // to be launched, or taken over by a running one
};

struct Options {
  bool late_copies = false;    // copies take effect when nothing else can proceed, not even a product
  bool late_products = false;  // products take effect when no warp can proceed
  bool reverse = false;        // descending order of warps, and a warp pauses after each signal
  u64 seed = 0;
  bool races = false;          // check that accesses happen one before the other
  float perturbation = 1.0f;
  u64 step_limit = 0;
  double time_limit_s = 0;
  // Limits of the target.
  u32 sm_count = 1;
  u32 tensor_memory_columns = 0;
};

// One replay of a plan: memory, options, what was seen. Nothing is shared between runs but the immutable module.
struct Run {
  Run(const Module& module, const Options& options, const std::atomic<int>& cancel);

  // Any change that a waiting warp may see.
  void event() { ++events; }
  void hold_pending() { work += kUnitsOfPending; }
  // Completes work now, or leaves it to the scheduler if the schedule completes that kind late.
  void defer(Deferred work);
  bool late(Deferred::Kind kind) const { return kind == Deferred::kCopy ? options.late_copies : options.late_products; }
  template <class Detail>
  void hazard(HazardKind kind, const Place& place, Detail detail) {
    Hazard& found = find_hazard(kind, place);
    if (!found.occurrences++) found.detail = detail();
  }
  Hazard& find_hazard(HazardKind kind, const Place& place);
  Site& site(const Place& place) { return (*place.warp->launch->sites)[place.insn->position]; }

  const Module& module;
  Options options;
  const std::atomic<int>& cancel;
  GlobalMemory memory;
  std::vector<u64> global_addresses;  // of the module's variables
  std::map<std::pair<u32, u64>, Hazard> hazards;
  std::vector<std::vector<Site>> sites;  // by kernel
  u64 events = 0;
  u64 proxy_clock = 1;
  u64 steps = 0;
  u64 work = 0;  // the steps, weighed
  u64 peak_bytes = 0;  // of host memory, of the clusters that were resident at once, at most
  std::chrono::steady_clock::time_point deadline;
};

inline u64 Warp::clock() const { return run->steps; }
inline u32 Warp::number() const { return cta->rank * launch->warps_per_cta() + index; }
inline u64 Warp::grid_number() const {
  return u64(cta->cluster->index) * launch->ctas_per_cluster() * launch->warps_per_cta() + number();
}
inline void Cta::wrote_generic(u32 offset, u32 bytes, const Warp& writer) {
  touch(offset, bytes);
  std::memset(&valid[offset], 1, bytes);
  const u64 stamp = writer.run->proxy_clock << 16 | (writer.number() + 1);
  for (u32 granule = offset >> 4; granule <= (offset + bytes - 1) >> 4; ++granule)
    dirty[granule] = stamp, clean[granule] = 0;
}
inline void Warp::signal() {
  if (run->options.reverse) pause = Pause::kSignal;
}

// Runs a launch to its end; throws `Fault`.
void run_launch(Run& run, Launch& launch, u32 resident_ctas);

template <class Body>
inline void for_lanes(u32 mask, Body body) {
  while (mask) {
    const u32 lane = __builtin_ctz(mask);
    mask &= mask - 1;
    body(lane);
  }
}

}  // namespace ptx
