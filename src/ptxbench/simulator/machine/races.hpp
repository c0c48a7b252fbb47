// The happens-before check (option `races`): two accesses to the same bytes of shared memory or cells of tensor memory, of
// which one writes, have to be ordered by synchronisation, whatever order this run happened to take.
//
// Vector clocks. Actors are warps, mbarriers and the asynchronous engines of a warp. A warp's own clock advances when it
// releases. What an mbarrier completes carries the number of its phase; what an engine does carries the number of the
// copy group, product or load, and a warp learns of it by the wait that belongs to the engine. Barriers and mbarriers pass
// clocks on. Lanes of one warp are one actor here (lanes.hpp looks at them), and the scope of a release is not looked at.
#pragma once
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "machine.hpp"

namespace ptx {

// Strong accesses do not race with each other. A rewrite stores what is there already: several warps may do the same work,
// so it races with reads, but not with writes.
enum class RaceKind : u8 { kRead, kWrite, kRewrite, kStrongRead, kStrongWrite };

// What an actor knows of every other: the last of its steps that lies before now.
class Clock {
 public:
  u32 of(u32 actor) const { return actor < steps_.size() ? steps_[actor] : 0; }
  void reach(u32 actor, u32 step);
  void merge(const Clock& other);
  void step_back(u32 actor) { --steps_[actor]; }

 private:
  std::vector<u32> steps_;
};

// Engines of a warp (those of bulk copies: of a lane). wgmma belongs to the warpgroup: to its first warp. What an mbarrier
// completes is an engine's work; its phases alone are what a relaxed wait learns of.
enum class Engine : u8 { kWarp, kBulk, kAsyncCopy, kWgmma, kTensorPipe, kTensorLoad, kTensorStore, kMbarrier, kPhase };

class LaneExchange;

// An access by an actor at one of its steps; `seen` is what lies before it. The accesses of an actor follow one another,
// but not those of the copies that complete on one mbarrier.
struct Actor {
  u32 id;
  u32 step;
  const Clock* seen;
  bool serial = true;
};

// What lies before the issue of asynchronous work: null unless races are checked.
using Issue = std::shared_ptr<const Clock>;

class Races {
 public:
  explicit Races(Cluster& cluster);
  ~Races();

  Clock& clock(const Warp& warp) { return clocks_[warp.number()]; }
  Actor warp_actor(const Warp& warp);
  // The id of an engine. `number` tells the engines of a kind apart.
  u32 engine(Engine kind, u64 number);
  // What the completion of a warp's asynchronous work hands on: what the warp had seen, but not what it did since its
  // last release.
  Issue seen_by(const Warp& warp) const;
  // Gives what the warp has done to `to`, and begins its next step.
  void release(const Warp& warp, Clock& to);

  // Checks and notes an access to bytes of a CTA's shared memory, or columns of its tensor memory (`windows`: a bit for
  // every 16 lanes).
  void access_shared(const Place& place, const Actor& actor, const Location& at, u32 bytes, RaceKind kind);
  void access_tensor(const Place& place, const Actor& actor, const Cta& cta, u32 column, u32 columns, u32 windows,
                     RaceKind kind);
  void forget_tensor(const Cta& cta, u32 column, u32 columns);
  // A warp ends. With the last one of a CTA its shared memory does: what other CTAs did there has to lie before that.
  void leave(const Warp& warp);

  struct Sync {
    Clock arriving;  // of the current generation or phase
    Clock released;  // by the last one that completed
    void complete() { released = arriving; }
  };
  Sync cluster_barrier;
  Sync& barrier(const Cta& cta, const NamedBarrier& which);
  // Of the mbarrier at a shared-window address, and a new one there.
  Sync& mbarrier(u32 address) { return mbarriers_[address]; }
  void renew_mbarrier(u32 address);
  // Whether `user` comes after a fence that `maker` ran later than `made`, a value of the proxy clock, and that makes the
  // initialisation of an mbarrier visible.
  bool sees_init_fence(const Warp& user, const Warp& maker, u64 made);
  // What the warp had done at its last fence, which later relaxed arrivals hand on.
  Clock& fenced(const Warp& warp) { return fenced_[warp.number()]; }
  // Checks that data the lanes of one warp exchange is synchronised (lanes.hpp).
  LaneExchange& lanes(const Cta& cta) { return *lanes_[cta.rank]; }
  // A flag in memory: what strong accesses to an address pass on.
  Clock& flag(u64 address) { return flags_[address]; }
  // Steps of an engine that have begun: copy groups that were committed, loads and stores that were issued.
  u32& steps(Engine kind, u64 number) { return steps_[{kind, number}]; }

 private:
  struct Entry {
    u32 actor, step, position;
    u16 mask, warp;
    RaceKind kind;
  };
  using Cell = std::vector<Entry>;
  void access(const Place& place, const Actor& actor, Cell& cell, u16 mask, RaceKind kind, HazardKind hazard,
              const char* where, u32 number);
  void report(const Place& place, const Entry& other, RaceKind kind, HazardKind hazard, const char* where, u32 number);

  Cluster& cluster_;
  std::vector<Clock> clocks_, fenced_;
  std::vector<Clock> ends_;  // by rank: what lies before the end of its warps
  u32 actors_;
  std::map<std::pair<Engine, u64>, u32> engines_;
  std::vector<std::vector<Cell>> shared_;  // by rank and 16-byte granule
  std::vector<std::vector<Cell>> tensor_;  // by rank and column
  std::vector<std::unique_ptr<LaneExchange>> lanes_;  // by rank
  std::map<std::pair<u32, const NamedBarrier*>, Sync> barriers_;
  std::unordered_map<u32, Sync> mbarriers_;
  std::unordered_map<u64, Clock> flags_;
  std::map<std::pair<Engine, u64>, u32> steps_;
};

// The chunks of an operand tile, which an engine reads (matrix.hpp).
struct OperandTile;
void check_tile(const Place& place, Engine engine, u64 number, u32 step, Cta& cta, const OperandTile& tile);

// A fence that makes the initialisation of mbarriers visible.
void fence_init(Warp& warp, u64 now);

// The functions below do nothing unless races are checked.

// An access by the warp itself; `at` may be outside shared memory.
void check_race(const Place& place, const Location& at, u32 bytes, RaceKind kind);
// Strong accesses of the lanes in `mask`.
void acquire_flags(Warp& warp, const Insn& insn, u32 mask, const Operand& address, Space space);
void release_flags(Warp& warp, const Insn& insn, u32 mask, const Operand& address, Space space);

Issue issue_of(const Warp& warp);
// An access by an asynchronous copy that completes on the mbarrier at a shared address, in its current phase.
void check_delivery(const Place& place, const Issue& issue, const Location& at, u32 bytes, u32 barrier, RaceKind kind);

// An engine's step, by a warp: what it reads or writes now, and that the warp has waited for it.
void check_engine(const Place& place, Engine engine, u64 number, u32 step, const Location& at, u32 bytes, RaceKind kind);
void check_engine_cells(const Place& place, Engine engine, u64 number, u32 step, const Cta& cta, u32 column, u32 columns,
                        u32 windows, RaceKind kind);
void waited_for(const Warp& warp, Engine engine, u64 number, u32 step);
inline u64 lane_number(const Warp& warp, u32 lane) { return u64(warp.number()) * kLanes + lane; }
// What a bulk store of the lane reads.
void check_bulk_read(const Place& place, const Location& at, u32 bytes);

}  // namespace ptx
