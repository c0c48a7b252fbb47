// cp.async.bulk and cp.reduce.async.bulk: contiguous copies through the async proxy.
//
// bulk.load:    operands = shared destination, global source, bytes, mbarrier, CTA mask or none; attribute = multicast
// bulk.share:   operands = shared destination, shared source, bytes, mbarrier (shared::cta to shared::cluster)
// bulk.store:   operands = global destination, shared source, bytes, mask of the bytes of every 16 that are copied or none
// bulk.reduce, bulk.share.reduce: as store without a mask, and share; attributes = operation, type
// st.async:     operands = shared destination, mbarrier, values; attribute = bytes of a value
// red.async:    operands = shared destination, mbarrier, value; attributes = operation, type
#include <array>
#include <cstring>
#include <memory>

#include "copies.hpp"
#include "mbarrier.hpp"
#include "races.hpp"
#include "reductions.hpp"

namespace ptx {
namespace {

constexpr u32 kBulkAlign = 16;

u32 value_of(const Warp& warp, const Operand& operand, u32 lane) { return warp.row(operand.slot)[lane]; }

u32 checked_size(const Place& place, const Operand& operand) {
  const u32 bytes = value_of(*place.warp, operand, place.lane);
  if (!bytes || bytes % kBulkAlign)
    place.warp->illegal(*place.insn, format("size %u is not a positive multiple of 16", bytes));
  return bytes;
}

// Copies within a cluster are illegal instructions in a launch without clusters (an H200).
void check_cluster(Warp& warp, const Insn& insn) {
  if (!warp.launch->explicit_cluster)
    warp.illegal(insn, "the launch has no clusters; ask for them, of one CTA if need be (__cluster_dims__, or the launch "
                       "attribute)");
}

u32 at_rank(u32 address, u32 rank) { return (address & kOffsetMask) | rank << kRankShift; }

// Copies the bytes of every 16 whose bit is set.
void copy_masked(u8* to, const u8* from, u32 bytes, u32 mask) {
  if (mask == 0xffff) std::memcpy(to, from, bytes);
  for (u32 at = 0; mask != 0xffff && at < bytes; ++at)
    if (mask >> at % kBulkAlign & 1) to[at] = from[at];
}

void count_bytes(const Place& place, u64 bytes) { place.warp->run->site(place).bytes += bytes; }

// Copies into one CTA and signals its mbarrier.
void deliver(const Place& place, const Issue& issue, const u8* source, u32 destination, u32 bytes, u32 barrier) {
  const Location to = shared_at(place, destination, bytes, kBulkAlign, Scope::kCluster);
  std::memcpy(to.data, source, bytes);
  check_delivery(place, issue, to, bytes, barrier, RaceKind::kWrite);
  to.cta->wrote_async(to.offset, bytes);
  mbarrier_complete_tx(place, barrier, Scope::kCluster, bytes);
}

Step load(Warp& warp, const Insn& insn, u32 mask) {
  for_lanes(mask, [&](u32 lane) {
    const Place place{&warp, &insn, lane};
    const u32 destination = cluster_address(place, insn.ops[0]), barrier = cluster_address(place, insn.ops[3]);
    const u64 source = address_of(warp, insn.ops[1], lane);
    const u32 bytes = checked_size(place, insn.ops[2]);
    const u32 ranks = insn.attr[0] ? value_of(warp, insn.ops[4], lane) & 0xffff : 1u << rank_of(place, destination);
    count_bytes(place, bytes);
    check_global_async_read(place, source, bytes);
    const Issue issue = issue_of(warp);
    warp.run->defer({Deferred::kCopy, place, true, [=] {
                       const u8* data = global_at(place, source, bytes, kBulkAlign, Access::kRead);
                       for_lanes(ranks, [&](u32 rank) {
                         deliver(place, issue, data, at_rank(destination, rank), bytes, at_rank(barrier, rank));
                       });
                     }});
  });
  return Step::kNext;
}

template <bool kReduce>
Step share(Warp& warp, const Insn& insn, u32 mask) {
  if (mask) check_cluster(warp, insn);
  for_lanes(mask, [&](u32 lane) {
    const Place place{&warp, &insn, lane};
    const u32 destination = cluster_address(place, insn.ops[0]), source = cluster_address(place, insn.ops[1]);
    const u32 bytes = checked_size(place, insn.ops[2]), barrier = cluster_address(place, insn.ops[3]);
    count_bytes(place, bytes);
    const Issue issue = issue_of(warp);
    warp.run->defer({Deferred::kCopy, place, true, [=, &insn] {
                       const Location from = shared_at(place, source, bytes, kBulkAlign, Scope::kCta);
                       from.cta->check_async_read(place, from.offset, bytes);
                       check_delivery(place, issue, from, bytes, barrier, RaceKind::kRead);
                       std::vector<u8> data(from.data, from.data + bytes);
                       if (kReduce) {
                         const Location to = shared_at(place, destination, bytes, kBulkAlign, Scope::kCluster);
                         std::vector<u8> sum(to.data, to.data + bytes);
                         reduce_into(AtomicOp(insn.attr[0]), AtomicType(insn.attr[1]), sum.data(), data.data(), bytes);
                         data = std::move(sum);
                       }
                       deliver(place, issue, data.data(), destination, bytes, barrier);
                     }});
  });
  return Step::kNext;
}

template <bool kReduce>
Step store(Warp& warp, const Insn& insn, u32 mask) {
  for_lanes(mask, [&](u32 lane) {
    const Place place{&warp, &insn, lane};
    const u64 destination = address_of(warp, insn.ops[0], lane);
    const u32 source = cluster_address(place, insn.ops[1]), bytes = checked_size(place, insn.ops[2]);
    const bool masked = !kReduce && insn.ops[3].kind != Operand::kNone;
    const u32 copied = masked ? value_of(warp, insn.ops[3], lane) & 0xffff : 0xffff;
    count_bytes(place, u64(bytes) / kBulkAlign * u32(__builtin_popcount(copied)));
    auto staged = std::make_shared<std::vector<u8>>();
    check_bulk_read(place, shared_at(place, source, bytes, kBulkAlign, Scope::kCta), bytes);
    issue_bulk_store({place,
                      [=] {
                        const Location from = shared_at(place, source, bytes, kBulkAlign, Scope::kCta);
                        from.cta->check_async_read(place, from.offset, bytes);
                        staged->assign(from.data, from.data + bytes);
                      },
                      [=, &insn] {
                        u8* to = global_at(place, destination, bytes, kBulkAlign, Access::kWrite);
                        if (kReduce)
                          reduce_into(AtomicOp(insn.attr[0]), AtomicType(insn.attr[1]), to, staged->data(), bytes);
                        else
                          copy_masked(to, staged->data(), bytes, copied);
                      }});
  });
  return Step::kNext;
}

// A prefetch: the range has to be mapped.
Step prefetch(Warp& warp, const Insn& insn, u32 mask) {
  for_lanes(mask, [&](u32 lane) {
    const Place place{&warp, &insn, lane};
    global_at(place, address_of(warp, insn.ops[0], lane), checked_size(place, insn.ops[1]), kBulkAlign, Access::kRead);
  });
  return Step::kNext;
}

// st.async and red.async deliver registers to another CTA's shared memory and signal its mbarrier.
template <bool kReduce>
Step remote(Warp& warp, const Insn& insn, u32 mask) {
  const u32 element = kReduce ? bytes_of(AtomicType(insn.attr[1])) : u32(insn.attr[0]);
  const u32 count = u32(insn.ops.size()) - 2, bytes = element * count;
  if (mask) check_cluster(warp, insn);
  for_lanes(mask, [&](u32 lane) {
    const Place place{&warp, &insn, lane};
    const u32 destination = cluster_address(place, insn.ops[0]), barrier = cluster_address(place, insn.ops[1]);
    std::array<u64, 4> values{};
    for (u32 i = 0; i < count; ++i) {
      const Operand& operand = insn.ops[2 + i];
      values[i] = operand.kind == Operand::kRow64 ? warp.row64(operand.slot)[lane] : warp.row(operand.slot)[lane];
    }
    const Issue issue = issue_of(warp);
    warp.run->defer({Deferred::kCopy, place, true, [=, &insn] {
                       const Location to = shared_at(place, destination, bytes, bytes, Scope::kCluster);
                       check_delivery(place, issue, to, bytes, barrier, RaceKind::kStrongWrite);
                       for (u32 i = 0; i < count; ++i) {
                         u64 value = values[i];
                         if (kReduce) {
                           u64 old = 0;
                           std::memcpy(&old, to.data, element);
                           value = atomic_result(AtomicOp(insn.attr[0]), AtomicType(insn.attr[1]), old, value);
                         }
                         std::memcpy(to.data + i * element, &value, element);
                       }
                       to.cta->wrote_async(to.offset, bytes);
                       mbarrier_complete_tx(place, barrier, Scope::kCluster, bytes);
                     }});
  });
  return Step::kNext;
}

constexpr NamedHandler kTable[] = {
    {"bulk.load", load},          {"bulk.share", share<false>}, {"bulk.share.reduce", share<true>},
    {"bulk.store", store<false>}, {"bulk.reduce", store<true>}, {"bulk.prefetch", prefetch},
    {"st.async", remote<false>},  {"red.async", remote<true>},
};

}  // namespace

std::span<const NamedHandler> bulk_handlers() { return kTable; }

}  // namespace ptx
