// tcgen05.cp: copies from shared memory to tensor memory.
//
// tcgen05.cp: operands = tensor address, descriptor; attributes = CTA group, rows, 16-byte chunks of a row, placement
#include <cstring>

#include "races.hpp"
#include "tensor_memory.hpp"

namespace ptx {
namespace {

// Where row r goes, counted from the lane of the address. Attribute values; lower/matrix.py mirrors them.
enum Placement : i32 {
  kRows,        // lane r
  kQuarters,    // lane 32 r: one row to each warp's lanes
  kTwice0213,   // lanes r and r + 64
  kTwice0123,   // rows 0 to 31 to lanes r and r + 32, rows 32 to 63 to lanes r + 32 and r + 64
  kFourTimes,   // lanes r, r + 32, r + 64 and r + 96
};

// Lanes of a row as a mask over the four warps' windows, and the lane within them.
struct Lanes {
  u32 lane, windows;
};
Lanes lanes_of(Placement placement, u32 row) {
  switch (placement) {
    case kRows: return {row % 32, 1u << row / 32};
    case kQuarters: return {0, 1u << row};
    case kTwice0213: return {row % 32, 5u << row / 32};
    case kTwice0123: return {row % 32, row < 32 ? 3u : 12u};
    case kFourTimes: return {row % 32, 15u};
  }
  return {};
}

struct TensorCopy {
  Place place;
  TensorAddress to;
  MatrixDescriptor from;
  u32 rows, chunks;
  Placement placement;
  u32 columns() const { return chunks * 4; }
};

void perform(const TensorCopy& copy, Cta& cta) {
  TensorMemory& memory = tensor_columns(copy.place, cta, copy.to.column, copy.columns());
  u32 values[8];
  for (u32 row = 0; row < copy.rows; ++row) {
    read_row(copy.place, cta, copy.from, row, copy.chunks, reinterpret_cast<u8*>(values));
    const Lanes lanes = lanes_of(copy.placement, row);
    for_lanes(lanes.windows, [&](u32 window) {
      const size_t at = size_t(copy.to.lane + window * 32 + lanes.lane) * kTensorColumns + copy.to.column;
      std::memcpy(memory.cells.data() + at, values, copy.columns() * 4);
      std::memset(&memory.valid[at], 1, copy.columns());
    });
  }
}

Step copy(Warp& warp, const Insn& insn, u32 mask) {
  const u32 group = u32(insn.attr[0]);
  check_pair(warp, insn, group);
  for_lanes(mask, [&](u32 lane) {
    const Place place{&warp, &insn, lane};
    const TensorCopy work{place,
                          TensorAddress(u32(address_of(warp, insn.ops[0], lane))),
                          decode_tensor_descriptor(place, warp.row64(insn.ops[1].slot)[lane]),
                          u32(insn.attr[1]),
                          u32(insn.attr[2]),
                          Placement(insn.attr[3])};
    if (work.to.lane && (work.placement != kQuarters || work.to.lane >= 32))
      warp.illegal(insn, format("starts at lane %u of tensor memory, not at 0", work.to.lane));
    warp.run->site(place).bytes += u64(work.rows) * work.chunks * 16 * group;
    const auto run = [work, group, &warp] {
      for (u32 number = 0; number < group; ++number) perform(work, pair_cta(*warp.cta, group, number));
    };
    const u32 step = u32(warp.cta->tensor_memory->issued()) + 1;
    for (u32 number = 0; number < group; ++number)
      check_tile(place, Engine::kTensorPipe, warp.number(), step, pair_cta(*warp.cta, group, number),
                 {work.from, true, Element::kU8, 0, work.rows, work.chunks * 16});
    start_tensor_work({place, run, {work.to.column, work.columns()}, {}, group});
  });
  return Step::kNext;
}

constexpr NamedHandler kTable[] = {{"tcgen05.cp", copy}};

}  // namespace

std::span<const NamedHandler> tensor_copy_handlers() { return kTable; }

}  // namespace ptx
