// tcgen05: allocation of tensor memory, and moves between it and registers.
//
// tcgen05.alloc:   operands = shared address, columns; attributes = space, CTA group
// tcgen05.dealloc: operands = tensor address, columns
// tcgen05.ld:      operands = destinations, tensor address; attributes = shape, registers, packed, second-half offset
// tcgen05.st:      operands = tensor address, sources; attributes as tcgen05.ld
#include "tensor_memory.hpp"

#include <algorithm>
#include <cstring>

#include "races.hpp"
#include "waits.hpp"

namespace ptx {
namespace {

constexpr u32 kAllWindows = 0xff;

// Attribute values; lower/matrix.py mirrors them.
enum Shape : i32 { k32x32b, k16x64b, k16x128b, k16x256b, k16x32bx2 };

TensorMemory& memory_of(Warp& warp, const Insn& insn) {
  if (!warp.cta->tensor_memory) warp.illegal(insn, "the target has no tensor memory");
  return *warp.cta->tensor_memory;
}

u32 checked_columns(Warp& warp, const Insn& insn, const Operand& operand) {
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
  warp.run->event();
  return Step::kNext;
}

Step relinquish(Warp& warp, const Insn& insn, u32 mask) {
  if (mask != warp.live) return Step::kConverge;
  memory_of(warp, insn).relinquished = true;
  return Step::kNext;
}

// The cell, counted from the base address, that register `i` of a lane moves.
struct Cell {
  u32 lane, column;
};
Cell cell_of(Shape shape, u32 lane, u32 i, u32 second_half) {
  switch (shape) {
    case k32x32b: return {lane, i};
    case k16x64b: return {lane / 4 + lane / 2 % 2 * 8, i * 2 + lane % 2};
    case k16x128b: return {lane / 4 + i % 2 * 8, i / 2 * 4 + lane % 4};
    case k16x256b: return {lane / 4 + i / 2 % 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2};
    case k16x32bx2: return {lane % 16, i + lane / 16 * second_half};
  }
  return {lane, i};
}

// Registers of an instruction laid out on tensor memory: visit(register, lane, index of the cell).
struct Transfer {
  TensorMemory& memory;
  TensorAddress base;
  Shape shape;
  u32 cells;  // 32-bit cells a lane; packed moves take two a register
  bool packed;
  u32 second_half;
  u32 columns = 0;
  u32 windows;

  Transfer(Warp& warp, const Insn& insn, const Operand& address)
      : memory(memory_of(warp, insn)),
        base(u32(address_of(warp, address, u32(__builtin_ctz(warp.live))))),
        shape(Shape(insn.attr[0])),
        cells(u32(insn.attr[1]) << insn.attr[2]),
        packed(insn.attr[2]),
        second_half(u32(insn.attr[3])) {
    for (u32 lane = 0; lane < kLanes; ++lane)
      if (warp.live >> lane & 1 && u32(address_of(warp, address, lane)) != (base.lane << 16 | base.column))
        warp.illegal(insn, "the tensor memory address differs between the lanes of the warp");
    const u32 window = warp.index % 4 * kLanes, height = shape == k32x32b ? 32 : 16;
    if (base.lane < window || base.lane + height > window + kLanes)
      warp.illegal(insn, format("warp %u of its warpgroup reaches lanes %u to %u of tensor memory, not %u to %u",
                                warp.index % 4, window, window + kLanes - 1, base.lane, base.lane + height - 1));
    windows = (height == 32 ? 3u : 1u) << base.lane / 16;
    for (u32 lane = 0; lane < kLanes; ++lane)
      columns = std::max(columns, cell_of(shape, lane, cells - 1, second_half).column + 1);
    tensor_columns({&warp, &insn, 0}, *warp.cta, base.column, columns);
  }
  size_t index(u32 lane, u32 i) const {
    const Cell cell = cell_of(shape, lane, i, second_half);
    return size_t(base.lane + cell.lane) * kTensorColumns + base.column + cell.column;
  }
};

void check_transfer(const Place& place, const Transfer& transfer, Engine engine, RaceKind kind) {
  Cta& cta = *place.warp->cta;
  touch_tensor(place, cta, transfer.base.column, transfer.columns, transfer.windows, false);
  if (Races* races = cta.cluster->races.get()) {
    const u64 number = place.warp->number();
    check_engine_cells(place, engine, number, ++races->steps(engine, number), cta, transfer.base.column,
                       transfer.columns, transfer.windows, kind);
  }
}

// The warp has waited for all its loads, or stores.
void complete_transfers(Warp& warp, Engine engine) {
  const u64 number = warp.number();
  if (Races* races = warp.cta->cluster->races.get()) waited_for(warp, engine, number, races->steps(engine, number));
}

void load(const Transfer& transfer, const Place& place, u32 registers) {
  Warp& warp = *place.warp;
  const u32* cells = transfer.memory.cells.data();
  bool valid = true;
  for (u32 i = 0; i < registers; ++i) {
    if (place.insn->ops[i].kind == Operand::kNone) continue;
    u32* row = warp.row(place.insn->ops[i].slot);
    for_lanes(warp.live, [&](u32 lane) {
      const size_t low = transfer.index(lane, transfer.packed ? 2 * i : i);
      const size_t high = transfer.packed ? transfer.index(lane, 2 * i + 1) : low;
      valid &= transfer.memory.valid[low] && transfer.memory.valid[high];
      row[lane] = transfer.packed ? (cells[low] & 0xffff) | cells[high] << 16 : cells[low];
    });
  }
  if (!valid)
    warp.run->hazard(HazardKind::kUninitialisedTensorMemory, place, [&] {
      return format("reads cells from column %u on that nothing has written", transfer.base.column);
    });
}

// Reads at once, or in a late schedule when the warp waits or uses a register.
Step tensor_load(Warp& warp, const Insn& insn, u32 mask) {
  if (mask != warp.live) return Step::kConverge;
  const u32 registers = u32(insn.attr[1]);
  const Transfer transfer(warp, insn, insn.ops[registers]);
  const Place place{&warp, &insn, 0};
  const bool late = warp.run->late(Deferred::kProduct);
  check_transfer(place, transfer, Engine::kTensorLoad, RaceKind::kRead);
  for (u32 i = 0; i < registers; ++i) {
    if (insn.ops[i].kind == Operand::kNone) continue;
    warp.watch(insn.ops[i].slot);
  }
  if (late)
    warp.tensor_loads.push_back([=] { load(transfer, place, registers); });
  else
    load(transfer, place, registers);
  return Step::kNext;
}

Step tensor_store(Warp& warp, const Insn& insn, u32 mask) {
  if (mask != warp.live) return Step::kConverge;
  const u32 registers = u32(insn.attr[1]);
  const Transfer transfer(warp, insn, insn.ops[0]);
  check_transfer({&warp, &insn, 0}, transfer, Engine::kTensorStore, RaceKind::kWrite);
  u32* cells = transfer.memory.cells.data();
  for (u32 i = 0; i < registers; ++i) {
    const u32* row = warp.row(insn.ops[1 + i].slot);
    for_lanes(mask, [&](u32 lane) {
      for (u32 part = 0; part <= u32(transfer.packed); ++part) {
        const size_t at = transfer.index(lane, transfer.packed ? 2 * i + part : i);
        cells[at] = transfer.packed ? row[lane] >> (16 * part) & 0xffff : row[lane];
        transfer.memory.valid[at] = 1;
      }
    });
  }
  warp.tensor_store = {&warp, &insn, 0};
  warp.run->event();
  return Step::kNext;
}

Step wait_load(Warp& warp, const Insn&, u32 mask) {
  if (mask != warp.live) return Step::kConverge;
  warp.finish_tensor_loads();
  warp.unwatch();
  complete_transfers(warp, Engine::kTensorLoad);
  return Step::kNext;
}

Step wait_store(Warp& warp, const Insn&, u32 mask) {
  if (mask != warp.live) return Step::kConverge;
  warp.tensor_store = {};
  complete_transfers(warp, Engine::kTensorStore);
  return Step::kNext;
}

// tcgen05.fence::before_thread_sync hands over what was stored, so the stores have to be complete.
Step fence_before(Warp& warp, const Insn&, u32) {
  if (warp.tensor_store.insn)
    warp.run->hazard(HazardKind::kUnwaitedTensorStore, warp.tensor_store,
                     [] { return "was not waited for before tcgen05.fence::before_thread_sync"; });
  warp.tensor_store = {};
  warp.tensor_before = ++warp.run->proxy_clock;
  return Step::kNext;
}

Step fence_after(Warp& warp, const Insn&, u32) {
  warp.tensor_after = ++warp.run->proxy_clock;
  return Step::kNext;
}

std::string describe_alloc(Warp& warp, const Insn& insn, u32) {
  return format("for %u free columns of tensor memory", warp.row(insn.ops[1].slot)[__builtin_ctz(warp.live)]);
}

constexpr NamedHandler kTable[] = {
    {"tcgen05.alloc", alloc},        {"tcgen05.dealloc", dealloc},           {"tcgen05.relinquish", relinquish},
    {"tcgen05.ld", tensor_load},     {"tcgen05.st", tensor_store},           {"tcgen05.wait.ld", wait_load},
    {"tcgen05.wait.st", wait_store}, {"tcgen05.fence.before", fence_before},
    {"tcgen05.fence.after", fence_after},
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

void Warp::finish_tensor_loads() {
  for (const auto& load : tensor_loads) load();
  tensor_loads.clear();
}

std::span<const NamedHandler> tensor_memory_handlers() { return kTable; }
std::span<const Waiter> tensor_memory_waiters() { return kWaiters; }

}  // namespace ptx
