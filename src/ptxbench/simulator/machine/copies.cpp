// Groups of bulk copies, and cp.async (the non-bulk asynchronous copy).
//
// cp.async: operands = shared destination, global source, source bytes or none, ignore-source predicate or none;
//           attributes = space, bytes
#include "copies.hpp"

#include <algorithm>
#include <cstring>

#include "lanes.hpp"
#include "mbarrier.hpp"
#include "races.hpp"

namespace ptx {

CopyState& copies_of(Warp& warp) {
  if (!warp.copies) warp.copies = std::make_unique<CopyState>();
  return *warp.copies;
}

namespace {

void finish_read(BulkStore& store) {
  if (store.read) std::exchange(store.read, nullptr)();
}

void finish(BulkStore& store) {
  finish_read(store);
  if (store.write) std::exchange(store.write, nullptr)();
  store.place.warp->run->event();
}

}  // namespace

void issue_bulk_store(BulkStore store) {
  Warp& warp = *store.place.warp;
  if (!warp.run->late(Deferred::kCopy)) finish(store);
  warp.run->hold_pending();
  copies_of(warp).bulk[store.place.lane].open.push_back(std::move(store));
}

void leave_bulk_stores(Warp& warp) {
  if (!warp.copies) return;
  const auto leave = [&](std::vector<BulkStore>& stores, const char* how) {
    for (BulkStore& store : stores) {
      if (!store.read_waited) warp.run->hazard(HazardKind::kUnwaitedBulkStore, store.place, [&] { return how; });
      finish(store);
    }
  };
  for (auto& [lane, groups] : warp.copies->bulk) {
    for (auto& group : groups.committed) leave(group, "was committed but not waited for when its thread exited");
    leave(groups.open, "was neither committed nor waited for when its thread exited");
  }
}

namespace {

// bulk.commit
Step bulk_commit(Warp& warp, const Insn&, u32 mask) {
  for_lanes(mask, [&](u32 lane) {
    BulkGroups& groups = copies_of(warp).bulk[lane];
    warp.run->hold_pending();
    groups.committed.push_back(std::move(groups.open));
    groups.open.clear();
    if (Races* races = warp.cta->cluster->races.get()) ++races->steps(Engine::kBulk, lane_number(warp, lane));
  });
  return Step::kNext;
}

// bulk.wait: attributes = groups that may stay pending, only reads
Step bulk_wait(Warp& warp, const Insn& insn, u32 mask) {
  const size_t pending = size_t(insn.attr[0]);
  const bool reads = insn.attr[1];
  for_lanes(mask, [&](u32 lane) {
    auto& committed = copies_of(warp).bulk[lane].committed;
    const size_t done = committed.size() - std::min(pending, committed.size());
    if (Races* races = warp.cta->cluster->races.get()) {
      const u32 group = races->steps(Engine::kBulk, lane_number(warp, lane));
      waited_for(warp, Engine::kBulk, lane_number(warp, lane), group - u32(std::min<size_t>(pending, group)));
    }
    for (size_t i = 0; i < done; ++i)
      for (BulkStore& store : committed[i]) {
        store.read_waited = true;
        reads ? finish_read(store) : finish(store);
      }
    if (!reads) committed.erase(committed.begin(), committed.begin() + std::ptrdiff_t(done));
  });
  return Step::kNext;
}

void perform(AsyncCopy& copy, u32 lane) {
  Place place = copy.place;
  place.lane = lane;
  const Location to = shared_at(place, copy.to[lane], copy.bytes, copy.bytes, Scope::kCta);
  const u32 source_bytes = copy.source_bytes[lane];
  std::memset(to.data + source_bytes, 0, copy.bytes - source_bytes);
  if (source_bytes)
    std::memcpy(to.data, global_at(place, copy.from[lane], source_bytes, copy.bytes, Access::kRead), source_bytes);
  to.cta->wrote_generic(to.offset, copy.bytes, *place.warp);
  check_engine(place, Engine::kAsyncCopy, place.warp->number(), copy.group[lane] + 1, to, copy.bytes, RaceKind::kWrite);
  copy.pending &= ~(1u << lane);
  place.warp->run->event();
}

// Completes the copies of the lanes in `mask` whose group number is below `limit[lane]`.
void complete_groups(Warp& warp, u32 mask, const u32* limit) {
  auto& copies = copies_of(warp).async;
  for (AsyncCopy& copy : copies)
    for_lanes(copy.pending & mask, [&](u32 lane) {
      if (copy.group[lane] < limit[lane]) perform(copy, lane);
    });
  std::erase_if(copies, [](const AsyncCopy& copy) { return !copy.pending; });
}

// Takes the copies of the lanes in `mask` whose group number is below `limit[lane]` from those that were not waited for.
// What a lane waits for itself is there for this lane only (PTX ISA, cp.async.wait_group), as if it wrote it now: the
// other lanes have to meet it. An mbarrier (`alone` is false) brings them together.
void note_waited(Warp& warp, u32 mask, const u32* limit, bool alone) {
  Races* races = warp.cta->cluster->races.get();
  if (!races) return;
  auto& copies = copies_of(warp).unwaited;
  for (AsyncCopy& copy : copies)
    for_lanes(copy.pending & mask, [&](u32 lane) {
      if (copy.group[lane] >= limit[lane]) return;
      copy.pending &= ~(1u << lane);
      if (!alone) return;
      const Place place{&warp, copy.place.insn, lane};
      const Location to = shared_at(place, copy.to[lane], copy.bytes, copy.bytes, Scope::kCta);
      races->lanes(*to.cta).access(place, to.offset, copy.bytes, RaceKind::kWrite);
    });
  std::erase_if(copies, [](const AsyncCopy& copy) { return !copy.pending; });
}

Step cp_async(Warp& warp, const Insn& insn, u32 mask) {
  AsyncCopy copy;
  copy.place = {&warp, &insn, 0};
  copy.pending = mask;
  copy.bytes = u32(insn.attr[1]);
  CopyState& state = copies_of(warp);
  for_lanes(mask, [&](u32 lane) {
    const Place place{&warp, &insn, lane};
    copy.to[lane] = shared_address(place, insn.ops[0], Space(insn.attr[0]));
    copy.from[lane] = address_of(warp, insn.ops[1], lane);
    copy.group[lane] = state.group[lane];
    u32 source_bytes = insn.ops[2].kind == Operand::kNone ? copy.bytes : warp.row(insn.ops[2].slot)[lane];
    if (source_bytes > copy.bytes)
      warp.illegal(insn, format("source size %u exceeds the copy size %u", source_bytes, copy.bytes));
    if (insn.ops[3].kind == Operand::kPred && (warp.pred(insn.ops[3]) >> lane & 1)) source_bytes = 0;
    copy.source_bytes[lane] = source_bytes;
  });
  warp.run->site(copy.place).bytes += u64(copy.bytes) * u32(__builtin_popcount(mask));
  if (warp.cta->cluster->races) state.unwaited.push_back(copy);
  if (!warp.run->late(Deferred::kCopy)) for_lanes(mask, [&](u32 lane) { perform(copy, lane); });
  if (copy.pending) warp.run->hold_pending(), state.async.push_back(copy);
  return Step::kNext;
}

Step async_commit(Warp& warp, const Insn&, u32 mask) {
  for_lanes(mask, [&](u32 lane) { ++copies_of(warp).group[lane]; });
  return Step::kNext;
}

// async.wait: attribute = groups that may stay pending, or -1 for wait_all
Step async_wait(Warp& warp, const Insn& insn, u32 mask) {
  CopyState& state = copies_of(warp);
  u32 limit[kLanes];
  for (u32 lane = 0; lane < kLanes; ++lane) {
    const u32 pending = u32(std::max(insn.attr[0], 0)), open = state.group[lane];
    limit[lane] = insn.attr[0] < 0 ? open + 1 : open - std::min(pending, open);
  }
  complete_groups(warp, mask, limit);
  note_waited(warp, mask, limit, true);
  waited_for(warp, Engine::kAsyncCopy, warp.number(), *std::min_element(limit, limit + kLanes));
  return Step::kNext;
}

// async.arrive: an mbarrier arrives when the thread's earlier cp.async have completed. Operand: address;
// attributes = space, noinc
Step async_arrive(Warp& warp, const Insn& insn, u32 mask) {
  for_lanes(mask, [&](u32 lane) {
    const Place place{&warp, &insn, lane};
    const u32 address = shared_address(place, insn.ops[0], Space(insn.attr[0]));
    if (!insn.attr[1]) ++mbarrier_at(place, address, Scope::kCta).pending;
    u32 limit[kLanes];
    std::fill_n(limit, kLanes, copies_of(warp).group[lane] + 1);
    note_waited(warp, 1u << lane, limit, false);
    if (Races* races = warp.cta->cluster->races.get()) races->release(warp, races->mbarrier(address).arriving);
    warp.run->defer({Deferred::kCopy, place, true, [=, &warp] {
                       complete_groups(warp, 1u << lane, limit);
                       if (Races* races = warp.cta->cluster->races.get())
                         races->mbarrier(address).arriving.reach(races->engine(Engine::kAsyncCopy, warp.number()), limit[lane]);
                       mbarrier_arrive(place, address, Scope::kCta);
                     }});
    ++copies_of(warp).group[lane];
  });
  return Step::kNext;
}

constexpr NamedHandler kTable[] = {
    {"bulk.commit", bulk_commit},   {"bulk.wait", bulk_wait},   {"cp.async", cp_async},
    {"async.commit", async_commit}, {"async.wait", async_wait}, {"async.arrive", async_arrive},
};

}  // namespace

void leave_async_copies(Warp& warp) {
  if (!warp.copies) return;
  u32 limit[kLanes];
  std::fill_n(limit, kLanes, ~0u);
  for (const AsyncCopy& copy : warp.copies->async)
    warp.run->hazard(HazardKind::kUnwaitedAsyncCopy, copy.place,
                     [] { return "was not waited for when its thread exited"; });
  complete_groups(warp, kFullMask, limit);
}

std::span<const NamedHandler> copy_handlers() { return kTable; }

}  // namespace ptx
