// tcgen05.ld and tcgen05.st: tensor memory to and from the registers of a warp; their waits, and the fences.
//
// tcgen05.ld: operands = destinations, tensor address; attributes = shape, registers, packed, second-half offset
// tcgen05.st: operands = tensor address, sources; attributes as tcgen05.ld
#include <algorithm>
#include <cstring>

#include "races.hpp"
#include "tensor_loads.hpp"
#include "tensor_memory.hpp"
#include "vectors.hpp"

namespace ptx {
namespace {

// Attribute values; lower/matrix.py mirrors them.
enum Shape : i32 { k32x32b, k16x64b, k16x128b, k16x256b, k16x32bx2 };

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
    for (u32 lane = 0; lane < kLanes; lane += shape == k32x32b ? kLanes : 1)
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

// Eight registers of eight lanes at a time: a lane's registers lie side by side in tensor memory.
template <class Move>
void for_squares(u32 registers, Move move) {
  for (u32 first = 0; first < registers; first += 8)
    for (u32 lane = 0; lane < kLanes; lane += 8) move(first, lane);
}

void load_rows(const Transfer& transfer, Warp& warp, const Operand* to, u32 registers) {
  const float* cells = reinterpret_cast<const float*>(transfer.memory.cells.data());
  for_squares(registers, [&](u32 first, u32 lane) {
    Vec8 square[8];
    for (u32 l = 0; l < 8; ++l) square[l] = load<Vec8>(cells + transfer.index(lane + l, first));
    transpose(square);
    for (u32 i = 0; i < 8; ++i) store(reinterpret_cast<float*>(warp.row(to[first + i].slot)) + lane, square[i]);
  });
}

void store_rows(const Transfer& transfer, const Warp& warp, const Operand* from, u32 registers) {
  float* cells = reinterpret_cast<float*>(transfer.memory.cells.data());
  for_squares(registers, [&](u32 first, u32 lane) {
    Vec8 square[8];
    for (u32 i = 0; i < 8; ++i)
      square[i] = load<Vec8>(reinterpret_cast<const float*>(warp.row(from[first + i].slot)) + lane);
    transpose(square);
    for (u32 l = 0; l < 8; ++l) store(cells + transfer.index(lane + l, first), square[l]);
  });
}

// Whether every lane moves whole squares of registers to or from columns of its own.
bool moves_squares(const Transfer& transfer, const Warp& warp, const Operand* operands, u32 registers) {
  return transfer.shape == k32x32b && !transfer.packed && registers % 8 == 0 && warp.live == kFullMask &&
         std::all_of(operands, operands + registers, [](const Operand& it) { return it.kind == Operand::kRow; });
}

void load(const Transfer& transfer, const Place& place, u32 registers) {
  Warp& warp = *place.warp;
  const u32* cells = transfer.memory.cells.data();
  const bool squares = moves_squares(transfer, warp, place.insn->ops.data(), registers);
  bool valid = true;
  if (squares) {
    load_rows(transfer, warp, place.insn->ops.data(), registers);
    const bool known = transfer.memory.known.holds({transfer.base.lane, kLanes, transfer.base.column, registers});
    for (u32 lane = 0; lane < kLanes && !known; ++lane)
      valid &= !std::memchr(&transfer.memory.valid[transfer.index(lane, 0)], 0, registers);
  }
  for (u32 i = 0; i < registers && !squares; ++i) {
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
  if (!late) load(transfer, place, registers);
  if (!warp.tensor_loads) warp.tensor_loads = std::make_unique<TensorLoads>(warp.rows_count);
  std::function<void()> run;
  if (late) run = [=] { load(transfer, place, registers); };
  warp.tensor_loads->issue(warp, insn, registers, std::move(run));
  return Step::kNext;
}

Step tensor_store(Warp& warp, const Insn& insn, u32 mask) {
  if (mask != warp.live) return Step::kConverge;
  const u32 registers = u32(insn.attr[1]);
  const Transfer transfer(warp, insn, insn.ops[0]);
  check_transfer({&warp, &insn, 0}, transfer, Engine::kTensorStore, RaceKind::kWrite);
  u32* cells = transfer.memory.cells.data();
  const bool squares = moves_squares(transfer, warp, insn.ops.data() + 1, registers);
  if (squares) {
    store_rows(transfer, warp, insn.ops.data() + 1, registers);
    for (u32 lane = 0; lane < kLanes; ++lane) std::memset(&transfer.memory.valid[transfer.index(lane, 0)], 1, registers);
  }
  for (u32 i = 0; i < registers && !squares; ++i) {
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
  if (warp.tensor_loads) warp.tensor_loads->complete(warp);
  return Step::kNext;
}

Step wait_store(Warp& warp, const Insn&, u32 mask) {
  if (mask != warp.live) return Step::kConverge;
  warp.tensor_store = {};
  const u64 number = warp.number();
  if (Races* races = warp.cta->cluster->races.get())
    waited_for(warp, Engine::kTensorStore, number, races->steps(Engine::kTensorStore, number));
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

constexpr NamedHandler kTable[] = {
    {"tcgen05.ld", tensor_load},     {"tcgen05.st", tensor_store},           {"tcgen05.wait.ld", wait_load},
    {"tcgen05.wait.st", wait_store}, {"tcgen05.fence.before", fence_before}, {"tcgen05.fence.after", fence_after},
};

}  // namespace

std::span<const NamedHandler> tensor_transfer_handlers() { return kTable; }

}  // namespace ptx
