// The asynchronous work of tcgen05: its order, and its completion by tcgen05.commit.
//
// tcgen05.commit: operands = mbarrier, CTA mask or none; attributes = CTA group, multicast
//
// Work runs in the order of issue here. The ISA promises less (memory consistency model of tcgen05): products follow
// each other only on the same accumulator with the same shape and kind, and products follow earlier copies of the same
// CTA group. FlashAttention-4 relies on more, and works: the products of one thread and one CTA group run in order, so that
// a later one may overwrite what an earlier one reads or writes. Anything else that overlaps has to be separated by a
// commit that was waited for.
#include <algorithm>

#include "mbarrier.hpp"
#include "races.hpp"
#include "tensor_memory.hpp"

namespace ptx {
namespace {

bool is_ordered(const TensorWork& earlier, const TensorWork& later) {
  return later.pipeline && earlier.group == later.group && (!earlier.pipeline || earlier.pipeline == later.pipeline);
}

bool only_overwrites(const TensorWork& earlier, const TensorWork& later) {
  const bool same_thread = earlier.place.warp == later.place.warp && earlier.place.lane == later.place.lane;
  const bool reads = later.reads.overlaps(earlier.writes) || (later.accumulates && later.writes.overlaps(earlier.writes));
  return later.pipeline && earlier.pipeline && earlier.group == later.group && same_thread && !reads;
}

void check_order(const std::vector<TensorWork>& pipe, const TensorWork& later) {
  for (const TensorWork& earlier : pipe) {
    if (is_ordered(earlier, later) || only_overwrites(earlier, later)) continue;
    const bool written = later.writes.overlaps(earlier.writes), read = later.writes.overlaps(earlier.reads);
    if (!written && !read && !later.reads.overlaps(earlier.writes)) continue;
    later.place.warp->run->hazard(HazardKind::kUnorderedTensorWork, later.place, [&] {
      return format("%s tensor memory columns from %u on while %s (PTX line %u), which %s them, may still be in flight",
                    written || read ? "writes" : "reads", (written || read ? later.writes : later.reads).column,
                    earlier.place.insn->text.c_str(), earlier.place.insn->ptx_line, read ? "reads" : "writes");
    });
    return;
  }
}

// Completes the CTA's work in order of issue, up to the given number.
void complete_pipe(Cta& cta, size_t count) {
  auto& pipe = cta.tensor_memory->pipe;
  for (size_t i = 0; i < count; ++i)
    if (pipe[i].run) pipe[i].run();
  pipe.erase(pipe.begin(), pipe.begin() + std::ptrdiff_t(count));
}

Step commit(Warp& warp, const Insn& insn, u32 mask) {
  check_pair(warp, insn, u32(insn.attr[0]));
  for_lanes(mask, [&](u32 lane) {
    const Place place{&warp, &insn, lane};
    const u32 barrier = cluster_address(place, insn.ops[0]);
    const u32 ranks = insn.attr[1] ? warp.row(insn.ops[1].slot)[lane] & 0xffff : 1u << rank_of(place, barrier);
    const u64 issued = warp.cta->tensor_memory->issued();
    Races* races = warp.cta->cluster->races.get();
    const Issue seen = races ? races->seen_by(warp) : nullptr;
    warp.run->defer({Deferred::kProduct, place, false, [=, &warp] {
                       TensorMemory& memory = *warp.cta->tensor_memory;
                       complete_pipe(*warp.cta, size_t(issued - std::min(issued, memory.completed)));
                       memory.completed = std::max(memory.completed, issued);
                       for_lanes(ranks, [&](u32 rank) {
                         const u32 target = (barrier & kOffsetMask) | rank << kRankShift;
                         if (races) {
                           races->mbarrier(target).arriving.merge(*seen);
                           races->mbarrier(target).arriving.reach(races->engine(Engine::kTensorPipe, warp.number()), u32(issued));
                         }
                         mbarrier_arrive(place, target, Scope::kCluster, 1, true);
                       });
                     }});
  });
  return Step::kNext;
}

constexpr NamedHandler kTable[] = {{"tcgen05.commit", commit}};

}  // namespace

void start_tensor_work(TensorWork work) {
  Warp& warp = *work.place.warp;
  auto& pipe = warp.cta->tensor_memory->pipe;
  check_order(pipe, work);
  const u32 step = u32(warp.cta->tensor_memory->issued()) + 1;
  for (u32 number = 0; number < work.group; ++number) {
    Cta& cta = pair_cta(*warp.cta, work.group, number);
    for (const TensorRegion* region : {&work.reads, &work.writes}) {
      if (!region->columns) continue;
      touch_tensor(work.place, cta, region->column, region->columns, windows_of(*region), true);
      check_engine_cells(work.place, Engine::kTensorPipe, warp.number(), step, cta, region->column, region->columns,
                         windows_of(*region), region == &work.writes ? RaceKind::kWrite : RaceKind::kRead);
    }
  }
  if (!warp.run->late(Deferred::kProduct)) std::exchange(work.run, nullptr)();
  warp.run->hold_pending();
  pipe.push_back(std::move(work));
  warp.run->event();
}

Cta& pair_cta(Cta& cta, u32 group, u32 number) {
  return group == 1 ? cta : *cta.cluster->ctas[(cta.rank & ~1u) + number];
}

void check_pair(Warp& warp, const Insn& insn, u32 group) {
  if (!warp.cta->tensor_memory) warp.illegal(insn, "the target has no tensor memory");
  if (group == 2 && (warp.cta->rank | 1) >= warp.cta->cluster->ctas.size())
    warp.illegal(insn, "cta_group::2 needs a cluster with an even number of CTAs");
}

MatrixDescriptor decode_tensor_descriptor(const Place& place, u64 bits) {
  const auto refuse = [&](const char* what) {
    place.warp->illegal(*place.insn, format("matrix descriptor 0x%llx: %s", (unsigned long long)bits, what));
  };
  if ((bits >> 46 & 7) != 1) refuse("bits 46 to 48 must be 1");
  constexpr int kModes[] = {0, -1, 3, -1, 2, -1, 1, -1};  // Swizzle by bits 61 to 63
  const int mode = kModes[bits >> 61];
  Warp& warp = *place.warp;
  if (bits >> 49 & 7) warp.unsupported(*place.insn, "matrix descriptors with a base offset are not supported");
  if (bits >> 52 & 1) warp.unsupported(*place.insn, "an absolute leading dimension is not supported");
  if (bits >> 61 == 1) warp.unsupported(*place.insn, "128-byte swizzle of 32-byte chunks is not supported");
  if (mode < 0) refuse("the swizzle mode does not exist");
  return {u32(bits & 0x3fff) << 4, u32(bits >> 16 & 0x3fff) << 4, u32(bits >> 32 & 0x3fff) << 4, Swizzle(mode)};
}

std::span<const NamedHandler> tensor_pipe_handlers() { return kTable; }

}  // namespace ptx
