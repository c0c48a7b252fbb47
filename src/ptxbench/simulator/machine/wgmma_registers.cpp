// The registers of wgmma: accumulators in flight, moves of them, and what wgmma.fence orders.
#include <algorithm>
#include <cstring>
#include <utility>

#include "wgmma.hpp"

namespace ptx {
namespace {

// What the last fence saw in a register; null before the first fence, and while the register itself holds it.
u32* fenced_row(Warp& warp, i32 slot) {
  WgmmaState& state = *warp.wgmma;
  auto& fenced = state.fenced_rows;
  return !state.fenced || state.intact ? nullptr : &fenced[size_t(warp.launch->kernel->wgmma_row_index[size_t(slot)]) * kLanes];
}

// Writes a row of results to its register; what a product leaves there counts as fenced.
void write_result(Warp& warp, i32 slot, const u32* from) {
  std::memcpy(warp.row(slot), from, kLanes * 4);
  if (u32* fenced = fenced_row(warp, slot)) std::memcpy(fenced, from, kLanes * 4);
}

// The accumulator in flight that the registers of `insn` name, or null. From now on these are its only names.
WgmmaAccumulator* find_in_flight(WgmmaState& state, const Insn& insn, u32 count) {
  for (WgmmaAccumulator& accumulator : state.in_flight) {
    const auto& moved_to = accumulator.moved_to;
    const auto names = [&](u32 i) {
      const i32 slot = insn.ops[i].slot;
      return accumulator.slots[i] == slot ||
             std::find(moved_to.begin(), moved_to.end(), std::pair(slot, i)) != moved_to.end();
    };
    u32 i = 0;
    while (i < count && accumulator.slots.size() == count && names(i)) ++i;
    if (i < count) continue;
    for (i = 0; i < count; ++i) accumulator.slots[i] = insn.ops[i].slot;
    accumulator.moved_to.clear();
    return &accumulator;
  }
  return nullptr;
}

bool holds_poison(const u32* row) {
  return std::all_of(row, row + kLanes, [](u32 word) { return word == kPoison; });
}

// Lets `to` name the row of an accumulator in flight that `from` names, if it does.
bool rename(WgmmaState& state, i32 from, i32 to) {
  for (WgmmaAccumulator& accumulator : state.in_flight) {
    auto& slots = accumulator.slots;
    auto& moved_to = accumulator.moved_to;
    auto row = u32(std::find(slots.begin(), slots.end(), from) - slots.begin());
    if (row < slots.size()) {
      moved_to.emplace_back(from, row);
    } else {
      const auto found = std::find_if(moved_to.begin(), moved_to.end(), [&](auto& name) { return name.first == from; });
      if (found == moved_to.end()) continue;
      row = found->second;
    }
    std::erase_if(moved_to, [&](auto& name) { return name.first == to; });
    slots[row] = to;
    return true;
  }
  return false;
}

// The ISA wants a fence behind every use of the registers that a product writes. Only the strict check asks for one where
// the product does not read them.
void check_uses(const WgmmaProduct& product) {
  const Warp& warp = *product.place.warp;
  if (warp.wgmma->used.empty()) return;
  for (u32 i = 0; i < WgmmaForm(*product.place.insn).registers; ++i) {
    const i32 slot = product.place.insn->ops[i].slot;
    if (!warp.wgmma->used[size_t(warp.launch->kernel->wgmma_row_index[size_t(slot)])]) continue;
    warp.run->hazard(HazardKind::kMissingWgmmaFence, product.place,
                     [] { return "writes registers that were used after the last wgmma.fence"; });
    return;
  }
}

}  // namespace

void hold_accumulators(WgmmaProduct& product) {
  Warp& warp = *product.place.warp;
  const Insn& insn = *product.place.insn;
  WgmmaState& state = *warp.wgmma;
  const u32 count = WgmmaForm(insn).registers;
  product.accumulator = find_in_flight(state, insn, count);
  check_fence(product);
  if (!warp.run->late(Deferred::kProduct)) return;
  if (!product.accumulator) {
    save_registers(warp);
    WgmmaAccumulator& accumulator = state.in_flight.emplace_back();
    accumulator.rows.resize(size_t(count) * kLanes);
    for (u32 i = 0; i < count; ++i) {
      u32* row = warp.row(insn.ops[i].slot);
      std::memcpy(&accumulator.rows[size_t(i) * kLanes], row, kLanes * 4);
      std::fill_n(row, kLanes, kPoison);
      accumulator.slots.push_back(insn.ops[i].slot);
    }
    product.accumulator = &accumulator;
  }
  ++product.accumulator->products;
}

// A register that was moved from may have got another value meanwhile.
void retire_accumulators(const WgmmaProduct& product) {
  Warp& warp = *product.place.warp;
  WgmmaAccumulator* accumulator = product.accumulator;
  if (!accumulator || --accumulator->products) return;
  const u32* rows = accumulator->rows.data();
  for (size_t i = 0; i < accumulator->slots.size(); ++i) write_result(warp, accumulator->slots[i], rows + i * kLanes);
  for (const auto& [slot, i] : accumulator->moved_to)
    if (holds_poison(warp.row(slot))) write_result(warp, slot, rows + size_t(i) * kLanes);
  warp.wgmma->in_flight.remove_if([&](const WgmmaAccumulator& other) { return &other == accumulator; });
}

void fence_registers(Warp& warp) {
  WgmmaState& state = *warp.wgmma;
  state.fenced = state.intact = true;
  std::fill(state.used.begin(), state.used.end(), 0);
}

// A move is no use: see `move_register`.
void use_registers(Warp& warp, const Insn& insn) {
  save_registers(warp);
  if (!warp.cta->cluster->races || insn.text.starts_with("mov.")) return;
  const Kernel& kernel = *warp.launch->kernel;
  auto& used = warp.wgmma->used;
  used.resize(kernel.wgmma_rows.size());
  for (const Operand& operand : insn.ops)
    if (operand.slot >= 0 && kernel.wgmma_row_index[size_t(operand.slot)] >= 0)
      used[size_t(kernel.wgmma_row_index[size_t(operand.slot)])] = 1;
}

void save_registers(Warp& warp) {
  WgmmaState& state = *warp.wgmma;
  if (!std::exchange(state.intact, false)) return;
  const auto& rows = warp.launch->kernel->wgmma_rows;
  state.fenced_rows.resize(rows.size() * kLanes);
  for (size_t i = 0; i < rows.size(); ++i) std::memcpy(&state.fenced_rows[i * kLanes], warp.row(rows[i]), kLanes * 4);
}

void check_fence(const WgmmaProduct& product) {
  const Place& place = product.place;
  Warp& warp = *place.warp;
  if (!warp.wgmma->fenced) {
    warp.run->hazard(HazardKind::kMissingWgmmaFence, place,
                     [] { return "is the first product of the warp and no wgmma.fence precedes it"; });
    return;
  }
  if (warp.wgmma->intact) return;
  check_uses(product);
  const WgmmaForm form(*place.insn);
  const u32 first = product.accumulate && !product.accumulator ? 0 : form.registers;
  const u32 last = form.registers + (form.a_in_registers ? 4 : 0);
  for (u32 i = first; i < last; ++i) {
    const i32 slot = place.insn->ops[i].slot;
    if (!std::memcmp(warp.row(slot), fenced_row(warp, slot), kLanes * 4)) continue;
    warp.run->hazard(HazardKind::kMissingWgmmaFence, place, [&] {
      return std::string(i < form.registers ? "accumulates onto registers" : "reads A from registers") +
             " that were written after the last wgmma.fence";
    });
    return;
  }
}

void keep_results(const WgmmaProduct& product) {
  Warp& warp = *product.place.warp;
  if (warp.wgmma->intact) return;
  const u32 count = WgmmaForm(*product.place.insn).registers;
  for (u32 i = 0; i < count; ++i)
    if (u32* fenced = fenced_row(warp, product.place.insn->ops[i].slot))
      std::memcpy(fenced, product.row(i), kLanes * 4);
}

// The compiler moves accumulators and puts constants into them where it likes, also between a fence and the products and
// while products run; ptxas renames the registers or adds what is missing. So a move is no access: an accumulator in
// flight gets another name, and what was fenced before the move is fenced after it.
Step move_register(Warp& warp, const Insn& insn, u32 mask) {
  const i32 to = insn.ops[0].slot, from = insn.ops[1].slot;
  u32 *target = warp.row(to), *source = warp.row(from);
  if (warp.wgmma && mask == kFullMask && rename(*warp.wgmma, from, to)) {
    save_registers(warp);
    std::fill_n(target, kLanes, kPoison);
    return Step::kNext;
  }
  for_lanes(mask, [&](u32 lane) { target[lane] = source[lane]; });
  u32* fenced = warp.wgmma ? fenced_row(warp, to) : nullptr;
  if (!fenced) return Step::kNext;
  const bool constant = warp.launch->kernel->wgmma_row_index[size_t(from)] < 0;
  const u32* fenced_source = constant ? source : fenced_row(warp, from);
  for_lanes(mask, [&](u32 lane) {
    if (source[lane] == fenced_source[lane]) fenced[lane] = source[lane];
  });
  return Step::kNext;
}

}  // namespace ptx
