// tcgen05: allocation of tensor memory, and moves between it and registers.
//
// tcgen05.alloc:   operands = shared address, columns; attributes = space, CTA group
// tcgen05.dealloc: operands = tensor address, columns
#include "tensor_memory.hpp"

#include <algorithm>
#include <cstring>

#include "races.hpp"
#include "uniform.hpp"
#include "waits.hpp"

namespace ptx {
namespace {

constexpr u32 kAllWindows = 0xff;

u32 checked_columns(Warp& warp, const Insn& insn, const Operand& operand) {
  check_uniform({&warp, &insn, 0}, operand, warp.live, "number of columns");
  const u32 columns = warp.row(operand.slot)[__builtin_ctz(warp.live)];
  if (columns < kAllocationUnit || columns > kTensorColumns || (columns & (columns - 1)))
    warp.illegal(insn, format("%u columns: the number must be a power of two from 32 to 512", columns));
  return columns;
}

// First column of a free range, or -1.
int find_free(const TensorMemory& memory, u32 columns) {
  const u32 units = columns / kAllocationUnit;
  u32 run = 0;
  for (u32 unit = 0; unit < memory.owner.size(); ++unit) {
    run = memory.owner[unit] ? 0 : run + 1;
    if (run == units) return int((unit + 1 - units) * kAllocationUnit);
  }
  return -1;
}

Step alloc(Warp& warp, const Insn& insn, u32 mask) {
  if (mask != warp.live) return Step::kConverge;
  TensorMemory& memory = memory_of(warp, insn);
  if (memory.relinquished) warp.illegal(insn, "the CTA has given up its permit with tcgen05.relinquish_alloc_permit");
  const u32 columns = checked_columns(warp, insn, insn.ops[1]);
  const int first = find_free(memory, columns);
  if (first < 0) return Step::kBlock;
  memory.prepare();
  std::fill_n(memory.owner.begin() + first / int(kAllocationUnit), columns / kAllocationUnit, u32(first) + 1);
  const Place place{&warp, &insn, u32(__builtin_ctz(mask))};
  check_uniform(place, insn.ops[0], mask, "address");
  const Location to = locate(place, insn.ops[0], Space(insn.attr[0]), 4, 4, Access::kWrite);
  const u32 address = u32(first);
  std::memcpy(to.data, &address, 4);
  if (to.cta) to.cta->wrote_async(to.offset, 4);
  check_race(place, to, 4, RaceKind::kWrite);
  warp.run->event();
  return Step::kNext;
}

Step dealloc(Warp& warp, const Insn& insn, u32 mask) {
  if (mask != warp.live) return Step::kConverge;
  TensorMemory& memory = memory_of(warp, insn);
  const u32 columns = checked_columns(warp, insn, insn.ops[1]);
  check_uniform({&warp, &insn, 0}, insn.ops[0], mask, "address");
  const TensorAddress at(warp.row(insn.ops[0].slot)[__builtin_ctz(mask)]);
  const u32 unit = at.column / kAllocationUnit, units = columns / kAllocationUnit;
  const bool whole = at.lane == 0 && at.column % kAllocationUnit == 0 && unit + units <= memory.owner.size() &&
                     std::all_of(memory.owner.begin() + unit, memory.owner.begin() + unit + units,
                                 [&](u32 owner) { return owner == at.column + 1; }) &&
                     (unit + units == memory.owner.size() || memory.owner[unit + units] != at.column + 1);
  if (!whole) warp.illegal(insn, format("columns %u to %u are not one allocation", at.column, at.column + columns - 1));
  if (Races* races = warp.cta->cluster->races.get()) {
    const Place place{&warp, &insn, u32(__builtin_ctz(mask))};
    races->access_tensor(place, races->warp_actor(warp), *warp.cta, at.column, columns, kAllWindows, RaceKind::kWrite);
    races->forget_tensor(*warp.cta, at.column, columns);
    std::fill_n(memory.touched.begin() + at.column, columns, TensorTouch{});
  }
  std::fill_n(memory.owner.begin() + unit, units, 0);
  for (u32 lane = 0; lane < kTensorLanes; ++lane)
    std::fill_n(memory.valid.begin() + lane * kTensorColumns + at.column, columns, 0);
  memory.known = {};
  warp.run->event();
  return Step::kNext;
}

Step relinquish(Warp& warp, const Insn& insn, u32 mask) {
  if (mask != warp.live) return Step::kConverge;
  memory_of(warp, insn).relinquished = true;
  return Step::kNext;
}

std::string describe_alloc(Warp& warp, const Insn& insn, u32) {
  return format("for %u free columns of tensor memory", warp.row(insn.ops[1].slot)[__builtin_ctz(warp.live)]);
}

constexpr NamedHandler kTable[] = {
    {"tcgen05.alloc", alloc},        {"tcgen05.dealloc", dealloc},           {"tcgen05.relinquish", relinquish},
};
constexpr Waiter kWaiters[] = {{alloc, describe_alloc}};

}  // namespace

void TensorMemory::prepare() {
  if (cells.size()) return;
  cells = AlignedWords(size_t(kTensorLanes) * kTensorColumns, kPoison);
  valid.assign(size_t(kTensorLanes) * kTensorColumns, 0);
  touched.resize(kTensorColumns);
}

void touch_tensor(const Place& place, Cta& cta, u32 column, u32 columns, u32 windows, bool piped) {
  Warp& warp = *place.warp;
  if (!cta.cluster->races) return;
  auto& touched = tensor_columns(place, cta, column, columns).touched;
  const u64 now = ++warp.run->proxy_clock;
  for (u32 unit = column / 8; unit <= (column + columns - 1) / 8; ++unit)
    for_lanes(windows, [&](u32 window) {
      TensorTouch& last = touched[unit * 8 + window];
      if (last.warp && last.warp != &warp) {
        const auto told = [&](const Insn& insn, const Warp& other) {
          return format("touches tensor memory columns from %u on, as does %s (PTX line %u) of %s, and %%s", unit * 8,
                        insn.text.c_str(), insn.ptx_line, other.name().c_str());
        };
        if (warp.tensor_after <= last.when)
          warp.run->hazard(HazardKind::kMissingTensorFenceAfter, place, [&] {
            return format(told(*last.insn, *last.warp).c_str(), "no tcgen05.fence::after_thread_sync lies before it");
          });
        else if (!last.piped && last.warp->tensor_before <= last.when)
          warp.run->hazard(HazardKind::kMissingTensorFenceBefore, {last.warp, last.insn, 0}, [&] {
            return format(told(*place.insn, warp).c_str(), "no tcgen05.fence::before_thread_sync follows");
          });
      }
      last = {&warp, place.insn, now, piped};
    });
}

bool TensorMemory::allocated(u32 column, u32 count) const {
  if (!count || column + count > kTensorColumns) return false;
  for (u32 unit = column / kAllocationUnit; unit <= (column + count - 1) / kAllocationUnit; ++unit)
    if (!owner[unit]) return false;
  return true;
}

TensorMemory& memory_of(Warp& warp, const Insn& insn) {
  if (!warp.cta->tensor_memory) warp.illegal(insn, "the target has no tensor memory");
  return *warp.cta->tensor_memory;
}

TensorMemory& tensor_columns(const Place& place, Cta& cta, u32 column, u32 count) {
  if (!cta.tensor_memory || !cta.tensor_memory->allocated(column, count))
    fail(place, FaultKind::kIllegalAddress,
         format("Not allocated: tensor memory columns %u to %u of CTA (%u,%u,%u)", column, column + count - 1, cta.id[0],
                cta.id[1], cta.id[2]),
         "Allocate the columns with tcgen05.alloc and add offsets to the address it returns.");
  return *cta.tensor_memory;
}

void leave_tensor_memory(Cta& cta) {
  if (!cta.tensor_memory) return;
  TensorMemory& memory = *cta.tensor_memory;
  Run& run = *cta.cluster->launch->run;
  for (const TensorWork& work : memory.pipe)
    run.hazard(HazardKind::kUnfinishedProduct, work.place,
               [] { return "was not committed to an mbarrier before its CTA exited"; });
  const auto leaked = std::find_if(memory.owner.begin(), memory.owner.end(), [](u32 owner) { return owner != 0; });
  if (leaked == memory.owner.end()) return;
  const Kernel& kernel = *cta.cluster->launch->kernel;
  const auto site =
      std::find_if(kernel.code.begin(), kernel.code.end(), [](const Insn& insn) { return insn.handler == alloc; });
  run.hazard(HazardKind::kTensorMemoryLeak, {cta.warps[0].get(), &*site, 0}, [&] {
    return format("allocated columns from %u on that CTA (%u,%u,%u) never gave back", *leaked - 1, cta.id[0], cta.id[1],
                  cta.id[2]);
  });
}

std::span<const NamedHandler> tensor_memory_handlers() { return kTable; }
std::span<const Waiter> tensor_memory_waiters() { return kWaiters; }

}  // namespace ptx
