#include "races.hpp"

#include <algorithm>

#include "lanes.hpp"
#include "matrix.hpp"
#include "mbarrier.hpp"
#include "tensor_memory.hpp"

namespace ptx {
namespace {

constexpr bool is_write(RaceKind kind) {
  return kind == RaceKind::kWrite || kind == RaceKind::kRewrite || kind == RaceKind::kStrongWrite;
}
constexpr bool is_strong(RaceKind kind) { return kind == RaceKind::kStrongRead || kind == RaceKind::kStrongWrite; }

Races* races_of(const Warp& warp) { return warp.cta->cluster->races.get(); }

u64 flag_address(const Place& place, const Operand& operand, Space space) {
  const u64 address = address_of(*place.warp, operand, place.lane);
  return space == Space::kSharedCta || space == Space::kSharedCluster ? kSharedWindow | u32(address) : address;
}

// Bytes that the async proxy overwrites must not have been written by an ordinary store without a fence since then.
void check_overwritten(const Place& place, const Location& at, u32 bytes) {
  const Cluster& cluster = *at.cta->cluster;
  for (u32 granule = at.offset >> 4; granule <= (at.offset + bytes - 1) >> 4; ++granule) {
    const u64 stamp = at.cta->dirty[granule], written = stamp >> 16;
    if (!stamp || place.warp->proxy_fence > written) continue;
    const Warp& writer = at.cta->cluster->warp_of(u32(stamp & 0xffff) - 1);
    if (writer.proxy_fence > written) continue;
    cluster.launch->run->hazard(HazardKind::kMissingProxyFence, place, [&] {
      return format("overwrites shared byte %u through the async proxy; %s wrote it with an ordinary store and no "
                    "fence.proxy.async followed",
                    granule * 16 - kReservedShared, writer.name().c_str());
    });
    return;
  }
}

}  // namespace

void Clock::reach(u32 actor, u32 step) {
  if (actor >= steps_.size()) steps_.resize(actor + 1);
  steps_[actor] = std::max(steps_[actor], step);
}

void Clock::merge(const Clock& other) {
  if (other.steps_.size() > steps_.size()) steps_.resize(other.steps_.size());
  for (size_t i = 0; i < other.steps_.size(); ++i) steps_[i] = std::max(steps_[i], other.steps_[i]);
}

Races::Races(Cluster& cluster)
    : cluster_(cluster),
      clocks_(cluster.launch->ctas_per_cluster() * cluster.launch->warps_per_cta()),
      fenced_(clocks_.size()),
      ends_(cluster.ctas.size()),
      actors_(u32(clocks_.size())) {
  for (u32 warp = 0; warp < clocks_.size(); ++warp) clocks_[warp].reach(warp, 1);
  for (const auto& cta : cluster.ctas) {
    shared_.emplace_back(cta->dirty.size());
    tensor_.emplace_back(cta->tensor_memory ? kTensorColumns : 0);
    lanes_.push_back(std::make_unique<LaneExchange>(cta->shared_bytes));
  }
}

Races::~Races() = default;

Actor Races::warp_actor(const Warp& warp) {
  const u32 number = warp.number();
  return {number, clocks_[number].of(number), &clocks_[number]};
}

u32 Races::engine(Engine kind, u64 number) {
  const auto [found, fresh] = engines_.try_emplace({kind, number}, actors_);
  if (fresh) ++actors_;
  return found->second;
}

Issue Races::seen_by(const Warp& warp) const {
  auto seen = std::make_shared<Clock>(clocks_[warp.number()]);
  seen->step_back(warp.number());
  return seen;
}

void Races::release(const Warp& warp, Clock& to) {
  const u32 number = warp.number();
  to.merge(clocks_[number]);
  clocks_[number].reach(number, clocks_[number].of(number) + 1);
}

bool Races::sees_init_fence(const Warp& user, const Warp& maker, u64 made) {
  const auto& fences = maker.init_fences;
  const auto first = std::upper_bound(fences.begin(), fences.end(), std::pair(made, ~0u));
  return first != fences.end() && clock(user).of(maker.number()) >= first->second;
}

void Races::renew_mbarrier(u32 address) {
  engines_.erase({Engine::kMbarrier, address});
  engines_.erase({Engine::kPhase, address});
  mbarriers_[address] = {};
}

Races::Sync& Races::barrier(const Cta& cta, const NamedBarrier& which) { return barriers_[{cta.rank, &which}]; }

void Races::report(const Place& place, const Entry& other, RaceKind kind, HazardKind hazard, const char* where,
                   u32 number) {
  place.warp->run->hazard(hazard, place, [&] {
    const Insn& insn = place.warp->launch->kernel->code[other.position];
    return format("%s %s %u while nothing orders it after %s (PTX line %u) of %s, which %s there",
                  is_write(kind) ? "writes" : "reads", where, number, insn.text.c_str(), insn.ptx_line,
                  cluster_.warp_of(other.warp).name().c_str(), is_write(other.kind) ? "writes" : "reads");
  });
}

void Races::access(const Place& place, const Actor& actor, Cell& cell, u16 mask, RaceKind kind, HazardKind hazard,
                   const char* where, u32 number) {
  const bool write = is_write(kind);
  bool noted = false;
  for (Entry& entry : cell) {
    if (!(entry.mask & mask)) continue;
    const bool ordered = (entry.actor == actor.id && actor.serial) || actor.seen->of(entry.actor) >= entry.step;
    if (!ordered && kind == RaceKind::kRewrite && is_write(entry.kind)) return;
    if (!ordered && (write || is_write(entry.kind)) && !(is_strong(kind) && is_strong(entry.kind)))
      report(place, entry, kind, hazard, where, number);
    // A write stands for everything before it, a read for earlier reads that it follows.
    if (write || (ordered && !is_write(entry.kind) && !is_strong(entry.kind))) entry.mask &= u16(~mask);
  }
  for (Entry& entry : cell)
    if (entry.mask && entry.actor == actor.id && entry.step == actor.step && entry.kind == kind &&
        entry.position == place.insn->position)
      entry.mask |= mask, noted = true;
  std::erase_if(cell, [](const Entry& entry) { return !entry.mask; });
  if (!noted) cell.push_back({actor.id, actor.step, place.insn->position, mask, u16(place.warp->number()), kind});
}

void Races::access_shared(const Place& place, const Actor& actor, const Location& at, u32 bytes, RaceKind kind) {
  auto& cells = shared_[at.cta->rank];
  for (u32 begin = at.offset, end = at.offset + bytes; begin < end;) {
    const u32 granule = begin / 16, stop = std::min(end, granule * 16 + 16);
    const u32 mask = (1u << (stop - granule * 16)) - (1u << (begin - granule * 16));
    access(place, actor, cells[granule], u16(mask), kind, HazardKind::kSharedRace, "shared byte",
           begin - kReservedShared);
    begin = stop;
  }
}

void Races::access_tensor(const Place& place, const Actor& actor, const Cta& cta, u32 column, u32 columns, u32 windows,
                          RaceKind kind) {
  for (u32 i = column; i < column + columns; ++i)
    access(place, actor, tensor_[cta.rank][i], u16(windows), kind, HazardKind::kTensorRace, "tensor memory column", i);
}

void Races::leave(const Warp& warp) {
  const u32 rank = warp.cta->rank, warps = cluster_.launch->warps_per_cta();
  ends_[rank].merge(clock(warp));
  if (warp.cta->live_warps || cluster_.ctas.size() == 1) return;
  for (const Cell& cell : shared_[rank])
    for (const Entry& entry : cell) {
      if (entry.warp / warps == rank || ends_[rank].of(entry.actor) >= entry.step) continue;
      Warp& other = cluster_.warp_of(entry.warp);
      const Insn& insn = cluster_.launch->kernel->code[entry.position];
      warp.run->hazard(HazardKind::kSharedRace, {&other, &insn, 0}, [&] {
        return format("%s shared byte %u of CTA rank %u while nothing orders it before the end of that CTA",
                      is_write(entry.kind) ? "writes" : "reads",
                      u32(&cell - shared_[rank].data()) * 16 + u32(__builtin_ctz(entry.mask)) - kReservedShared, rank);
      });
    }
}

void Races::forget_tensor(const Cta& cta, u32 column, u32 columns) {
  for (u32 i = column; i < column + columns; ++i) tensor_[cta.rank][i].clear();
}

void check_race(const Place& place, const Location& at, u32 bytes, RaceKind kind) {
  Races* races = races_of(*place.warp);
  if (!races || !at.cta) return;
  races->access_shared(place, races->warp_actor(*place.warp), at, bytes, kind);
  races->lanes(*at.cta).access(place, at.offset, bytes, kind);
}

void acquire_flags(Warp& warp, const Insn& insn, u32 mask, const Operand& address, Space space) {
  Races& races = *races_of(warp);
  ++warp.meeting;
  for_lanes(mask, [&](u32 lane) { races.clock(warp).merge(races.flag(flag_address({&warp, &insn, lane}, address, space))); });
}

void release_flags(Warp& warp, const Insn& insn, u32 mask, const Operand& address, Space space) {
  Races& races = *races_of(warp);
  for_lanes(mask, [&](u32 lane) { races.flag(flag_address({&warp, &insn, lane}, address, space)).merge(races.clock(warp)); });
  Clock nowhere;
  races.release(warp, nowhere);
}

void fence_init(Warp& warp, u64 now) {
  warp.init_fence = now;
  if (Races* races = races_of(warp)) warp.init_fences.emplace_back(now, races->warp_actor(warp).step);
}

Issue issue_of(const Warp& warp) {
  Races* races = races_of(warp);
  return races ? std::make_shared<const Clock>(races->clock(warp)) : nullptr;
}

void check_delivery(const Place& place, const Issue& issue, const Location& at, u32 bytes, u32 barrier, RaceKind kind) {
  if (!issue) return;
  Races& races = *races_of(*place.warp);
  const MBarrier& target = mbarrier_at(place, barrier, Scope::kCluster);
  const Actor actor{races.engine(Engine::kMbarrier, barrier), u32(target.phase) + 1, issue.get(), false};
  races.access_shared(place, actor, at, bytes, kind);
  if (kind == RaceKind::kWrite) check_overwritten(place, at, bytes);
}

void check_engine(const Place& place, Engine engine, u64 number, u32 step, const Location& at, u32 bytes, RaceKind kind) {
  Races* races = races_of(*place.warp);
  if (races) races->access_shared(place, {races->engine(engine, number), step, &races->clock(*place.warp)}, at, bytes, kind);
}

void check_tile(const Place& place, Engine engine, u64 number, u32 step, Cta& cta, const OperandTile& tile) {
  Races* races = races_of(*place.warp);
  if (!races) return;
  const Actor actor{races->engine(engine, number), step, &races->clock(*place.warp)};
  for (const u32 offset : chunks_of(tile)) {
    if (offset < kReservedShared || offset + 16 > cta.shared_bytes) continue;
    races->access_shared(place, actor, {nullptr, &cta, offset}, 16, RaceKind::kRead);
    if (engine == Engine::kTensorPipe) races->lanes(cta).issue(place, offset, 16);
  }
}

void check_engine_cells(const Place& place, Engine engine, u64 number, u32 step, const Cta& cta, u32 column, u32 columns,
                        u32 windows, RaceKind kind) {
  Races* races = races_of(*place.warp);
  if (!races) return;
  const Actor actor{races->engine(engine, number), step, &races->clock(*place.warp)};
  races->access_tensor(place, actor, cta, column, columns, windows, kind);
}

void check_bulk_read(const Place& place, const Location& at, u32 bytes) {
  const Warp& warp = *place.warp;
  Races* races = races_of(warp);
  if (!races) return;
  const u64 lane = lane_number(warp, place.lane);
  check_engine(place, Engine::kBulk, lane, races->steps(Engine::kBulk, lane) + 1, at, bytes, RaceKind::kRead);
  races->lanes(*at.cta).issue(place, at.offset, bytes);
}

void waited_for(const Warp& warp, Engine engine, u64 number, u32 step) {
  if (Races* races = races_of(warp)) races->clock(warp).reach(races->engine(engine, number), step);
}

}  // namespace ptx
