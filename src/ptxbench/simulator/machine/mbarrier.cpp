// mbarrier.*: arrival counts, transaction counts and phases.
//
// arrive: operands = state or none, address, count or none, tx bytes or none; attributes = space, drop, no_complete,
//         relaxed
// expect_tx, complete_tx: operands = address, bytes; attribute = space
// wait: operands = predicate, address, state or parity; attributes = space, parity, blocking, relaxed
#include "mbarrier.hpp"

#include <cstring>

#include "races.hpp"
#include "waits.hpp"

namespace ptx {
namespace {

constexpr u64 kSignature = 0x6d62617272696572ull;  // what the word of a live barrier holds, xor its offset
constexpr u32 kMaxCount = (1u << 20) - 1;
constexpr i64 kMaxTx = (1 << 20) - 1;

[[noreturn]] void misused(const Place& place, u32 address, const std::string& what, const char* advice) {
  fail(place, FaultKind::kIllegalInstruction, format("The mbarrier at shared address 0x%x %s", address, what.c_str()),
       advice);
}

void advance_if_complete(const Place& place, u32 address, MBarrier& barrier) {
  if (barrier.pending || barrier.tx) return;
  ++barrier.phase;
  barrier.pending = barrier.expected;
  if (Races* races = place.warp->cta->cluster->races.get()) races->mbarrier(address).complete();
}

// Reports an mbarrier whose initialisation was not made visible to the async proxy and to other CTAs. Compilers leave the
// fence out where there is one CTA only, so there it is a finding of the strict check.
void check_visible(const Place& place, const MBarrier& barrier, const char* how) {
  const Cluster& cluster = *place.warp->cta->cluster;
  const bool visible = cluster.races ? cluster.races->sees_init_fence(*place.warp, *barrier.maker, barrier.made)
                                     : barrier.maker->init_fence > barrier.made || cluster.ctas.size() == 1;
  if (visible) return;
  place.warp->run->hazard(HazardKind::kMissingInitFence, {barrier.maker, barrier.made_at, 0}, [&] {
    return format("is followed by no fence in time, but %s (PTX line %u) uses the mbarrier %s", place.insn->text.c_str(),
                  place.insn->ptx_line, how);
  });
}

// What a warp that arrives hands on: if relaxed, what it had done at its last fence.
void release_to(const Place& place, u32 address, bool relaxed) {
  Races* races = place.warp->cta->cluster->races.get();
  if (!races) return;
  Clock& arriving = races->mbarrier(address).arriving;
  if (relaxed)
    arriving.merge(races->fenced(*place.warp));
  else
    races->release(*place.warp, arriving);
}

// A wait by parity is for the current phase or the one before it (PTX ISA, mbarrier.test_wait). While the phase before the
// awaited one is still current, the one before that answers: the warp has to know that it is over.
void check_parity(const Place& place, u32 address, const MBarrier& barrier) {
  Races& races = *place.warp->cta->cluster->races;
  if (races.clock(*place.warp).of(races.engine(Engine::kPhase, address)) + 1 >= barrier.phase) return;
  place.warp->run->hazard(HazardKind::kUnknownPhase, place, [&] {
    return format("waits by parity for phase %llu of the mbarrier at shared byte %u, but nothing tells %s that phase %llu is "
                  "over, and until then the wait passes at once",
                  (unsigned long long)barrier.phase - 1, (address & kOffsetMask) - kReservedShared,
                  place.warp->name().c_str(), (unsigned long long)barrier.phase - 2);
  });
}

// The warp knows that the last phase is over, but not what lies before its end.
void knows_phase(const Place& place, u32 address, const MBarrier& barrier) {
  Races* races = place.warp->cta->cluster->races.get();
  if (races) races->clock(*place.warp).reach(races->engine(Engine::kPhase, address), u32(barrier.phase));
}

// What a warp learns that has seen a phase complete; if relaxed, only that it is over.
void acquire_from(const Place& place, u32 address, const MBarrier& barrier, bool relaxed) {
  Races* races = place.warp->cta->cluster->races.get();
  if (!races) return;
  Clock& clock = races->clock(*place.warp);
  const u32 work = races->engine(Engine::kMbarrier, address), phase = u32(barrier.phase);
  if (place.insn->attr[1] && clock.of(work) + 1 < phase) check_parity(place, address, barrier);
  if (relaxed) return knows_phase(place, address, barrier);
  ++place.warp->meeting;
  clock.merge(races->mbarrier(address).released);
  clock.reach(work, phase);
}

void check_word(const Place& place, u32 address, RaceKind kind) {
  if (place.warp->cta->cluster->races) check_race(place, shared_at(place, address, 8, 8, Scope::kCluster), 8, kind);
}

void add_tx(const Place& place, u32 address, MBarrier& barrier, i64 bytes) {
  barrier.tx += bytes;
  if (barrier.tx > kMaxTx || barrier.tx < -kMaxTx)
    misused(place, address, format("has a transaction count of %lld, outside +-(2^20-1)", (long long)barrier.tx),
         "Make the bytes of expect_tx equal to what the copies of the phase deliver.");
}

// A phase token: pending count in the low 20 bits, phase above.
u64 token_of(const MBarrier& barrier) { return barrier.phase << 20 | barrier.pending; }

Scope scope_of(const Insn& insn) { return Space(insn.attr[0]) == Space::kSharedCta ? Scope::kCta : Scope::kCluster; }

Step init(Warp& warp, const Insn& insn, u32 mask) {
  for_lanes(mask, [&](u32 lane) {
    const Place place{&warp, &insn, lane};
    const u32 address = shared_address(place, insn.ops[0], Space(insn.attr[0])),
              count = warp.row(insn.ops[1].slot)[lane];
    const Location word = shared_at(place, address, 8, 8, Scope::kCta);
    if (!count || count > kMaxCount)
      misused(place, address, format("cannot expect %u arrivals", count), "Use a count from 1 to 2^20-1.");
    u16& index = word.cta->mbarrier_index[word.offset / 8];
    if (!index) {
      word.cta->mbarriers.emplace_back();
      index = u16(word.cta->mbarriers.size());
    }
    word.cta->mbarriers[index - 1u] = {count, count, 0, 0, true, &warp, &insn, warp.run->proxy_clock};
    if (Races* races = warp.cta->cluster->races.get()) races->renew_mbarrier(address);
    check_word(place, address, RaceKind::kWrite);
    const u64 signature = kSignature ^ word.offset;
    std::memcpy(word.data, &signature, 8);
    word.cta->wrote_generic(word.offset, 8, warp);
  });
  warp.run->event();
  return Step::kNext;
}

Step inval(Warp& warp, const Insn& insn, u32 mask) {
  for_lanes(mask, [&](u32 lane) {
    const Place place{&warp, &insn, lane};
    const u32 address = shared_address(place, insn.ops[0], Space(insn.attr[0]));
    mbarrier_at(place, address, Scope::kCta).valid = false;
    check_word(place, address, RaceKind::kWrite);
    const Location word = shared_at(place, address, 8, 8, Scope::kCta);
    word.cta->wrote_generic(word.offset, 8, warp);
    word.cta->set_valid(word.offset, 8, false);
  });
  warp.run->event();
  return Step::kNext;
}

Step arrive(Warp& warp, const Insn& insn, u32 mask) {
  const bool drop = insn.attr[1], no_complete = insn.attr[2], relaxed = insn.attr[3];
  for_lanes(mask, [&](u32 lane) {
    const Place place{&warp, &insn, lane};
    const u32 address = shared_address(place, insn.ops[1], Space(insn.attr[0]));
    MBarrier& barrier = mbarrier_at(place, address, scope_of(insn));
    const u32 count = insn.ops[2].kind == Operand::kNone ? 1 : warp.row(insn.ops[2].slot)[lane];
    if (insn.ops[0].kind == Operand::kRow64) warp.row64(insn.ops[0].slot)[lane] = token_of(barrier);
    if (insn.ops[3].kind != Operand::kNone) add_tx(place, address, barrier, i64(warp.row(insn.ops[3].slot)[lane]));
    if (no_complete && count >= barrier.pending)
      misused(place, address, "would complete its phase by an arrival with .noComplete",
           "Drop .noComplete or arrive with a smaller count.");
    if (drop) {
      if (count > barrier.expected)
        misused(place, address, "has fewer expected arrivals than are dropped", "Check the counts.");
      barrier.expected -= count;
    }
    check_word(place, address, RaceKind::kStrongRead);
    release_to(place, address, relaxed);
    const u64 phase = barrier.phase;
    const bool alone = count == barrier.expected;
    mbarrier_arrive(place, address, scope_of(insn), count);
    if (alone && barrier.phase != phase) knows_phase(place, address, barrier);
  });
  warp.signal();
  return Step::kNext;
}

Step expect_tx(Warp& warp, const Insn& insn, u32 mask) {
  for_lanes(mask, [&](u32 lane) {
    const Place place{&warp, &insn, lane};
    mbarrier_expect_tx(place, shared_address(place, insn.ops[0], Space(insn.attr[0])), scope_of(insn),
                       i64(warp.row(insn.ops[1].slot)[lane]));
  });
  return Step::kNext;
}

Step complete_tx(Warp& warp, const Insn& insn, u32 mask) {
  for_lanes(mask, [&](u32 lane) {
    const Place place{&warp, &insn, lane};
    mbarrier_complete_tx(place, shared_address(place, insn.ops[0], Space(insn.attr[0])), scope_of(insn),
                         i64(warp.row(insn.ops[1].slot)[lane]));
  });
  return Step::kNext;
}

bool phase_done(Warp& warp, const Insn& insn, const MBarrier& barrier, u32 lane) {
  if (!insn.attr[1]) return barrier.phase != warp.row64(insn.ops[2].slot)[lane] >> 20;
  return (barrier.phase & 1) != (warp.row(insn.ops[2].slot)[lane] & 1);
}

// test_wait and try_wait. A try_wait suspends its lanes until one of them is satisfied, or until the scheduler lets it
// give up.
Step wait(Warp& warp, const Insn& insn, u32 mask) {
  u32 done = 0;
  for_lanes(mask, [&](u32 lane) {
    const Place place{&warp, &insn, lane};
    const u32 address = shared_address(place, insn.ops[1], Space(insn.attr[0]));
    const MBarrier& barrier = mbarrier_at(place, address, Scope::kCta);
    check_word(place, address, RaceKind::kStrongRead);
    if (!phase_done(warp, insn, barrier, lane)) return;
    done |= 1u << lane;
    acquire_from(place, address, barrier, insn.attr[3]);
  });
  if (!done && insn.attr[2]) {
    if (!warp.timed_out) return Step::kBlock;
    warp.timed_out = false;
  }
  if (done != mask && !insn.attr[2]) warp.yield();
  warp.set_pred(insn.ops[0], mask, done);
  return Step::kNext;
}

Step pending_count(Warp& warp, const Insn& insn, u32 mask) {
  for_lanes(mask,
            [&](u32 lane) { warp.row(insn.ops[0].slot)[lane] = u32(warp.row64(insn.ops[1].slot)[lane]) & kMaxCount; });
  return Step::kNext;
}

bool starves(Warp& warp, const Insn& insn, u32 mask) {
  const Place place{&warp, &insn, u32(__builtin_ctz(mask))};
  return mbarrier_at(place, shared_address(place, insn.ops[1], Space(insn.attr[0])), Scope::kCta).tx > 0;
}

std::string describe_wait(Warp& warp, const Insn& insn, u32 mask) {
  const u32 lane = u32(__builtin_ctz(mask));
  const Place place{&warp, &insn, lane};
  const u32 address = shared_address(place, insn.ops[1], Space(insn.attr[0]));
  const MBarrier& barrier = mbarrier_at(place, address, Scope::kCta);
  const u64 wanted = insn.attr[1] ? warp.row(insn.ops[2].slot)[lane] & 1 : warp.row64(insn.ops[2].slot)[lane] >> 20;
  return format(
      "for %s %llu of the mbarrier at shared byte %u (0x%x), which is in phase %llu with %u of %u arrivals "
      "pending and %lld transaction bytes outstanding",
      insn.attr[1] ? "the phase of parity" : "phase", (unsigned long long)wanted,
      (address & kOffsetMask) - kReservedShared, address, (unsigned long long)barrier.phase, barrier.pending,
      barrier.expected, (long long)barrier.tx);
}

constexpr NamedHandler kTable[] = {
    {"mbarrier.init", init},
    {"mbarrier.inval", inval},
    {"mbarrier.arrive", arrive},
    {"mbarrier.expect_tx", expect_tx},
    {"mbarrier.complete_tx", complete_tx},
    {"mbarrier.wait", wait},
    {"mbarrier.pending_count", pending_count},
};
constexpr Waiter kWaiters[] = {{wait, describe_wait, true, starves}};

}  // namespace

MBarrier& mbarrier_at(const Place& place, u32 address, Scope scope) {
  const Location word = shared_at(place, address, 8, 8, scope);
  const u16 index = word.cta->mbarrier_index[word.offset / 8];
  if (!index || !word.cta->mbarriers[index - 1u].valid)
    misused(place, address, "was never initialised (or was invalidated)",
         "Run mbarrier.init and make it visible (fence.mbarrier_init, then a CTA or cluster barrier) before any other "
         "use.");
  u64 content;
  std::memcpy(&content, word.data, 8);
  if (content != (kSignature ^ word.offset))
    misused(place, address, "was overwritten by an ordinary store or a copy",
         "Keep data out of the barrier's eight bytes.");
  return word.cta->mbarriers[index - 1u];
}

void mbarrier_arrive(const Place& place, u32 address, Scope scope, u32 count, bool async) {
  MBarrier& barrier = mbarrier_at(place, address, scope);
  if (async)
    check_visible(place, barrier, "through the async proxy");
  else if (address >> kRankShift != place.warp->cta->rank)
    check_visible(place, barrier, "from another CTA");
  if (count > barrier.pending)
    misused(place, address,
         format("gets %u arrivals but only %u of %u are pending in this phase", count, barrier.pending,
                barrier.expected),
         "Make the count of mbarrier.init equal to the number of arrivals in a phase.");
  barrier.pending -= count;
  advance_if_complete(place, address, barrier);
  place.warp->run->event();
}

void mbarrier_expect_tx(const Place& place, u32 address, Scope scope, i64 bytes) {
  MBarrier& barrier = mbarrier_at(place, address, scope);
  add_tx(place, address, barrier, bytes);
  place.warp->run->event();
}

void mbarrier_complete_tx(const Place& place, u32 address, Scope scope, i64 bytes) {
  MBarrier& barrier = mbarrier_at(place, address, scope);
  check_visible(place, barrier, "through the async proxy");
  add_tx(place, address, barrier, -bytes);
  advance_if_complete(place, address, barrier);
  place.warp->run->event();
}

std::span<const NamedHandler> mbarrier_handlers() { return kTable; }
std::span<const Waiter> mbarrier_waiters() { return kWaiters; }

}  // namespace ptx
