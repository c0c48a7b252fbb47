// cp.async.bulk.tensor and relatives: boxes of a tensor, described by a tensor map.
//
// tensor.load:     operands = shared destination, map, mbarrier, CTA mask or none, coordinates;
//                  attributes = rank, multicast, CTA pair, rows named one by one
// tensor.store:    operands = map, shared source, coordinates; attributes = rank, operation, rows named one by one
// tensor.reduce:   the same
// tensor.prefetch: operands = map, coordinates; attribute = rank
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>

#include "copies.hpp"
#include "mbarrier.hpp"
#include "races.hpp"
#include "tensor_map.hpp"

namespace ptx {
namespace {

constexpr u32 kTileAlign = 128;
constexpr u32 kMaxBox = 256;
constexpr u64 kRowsAhead = 24;  // of a box that the host fetches early
constexpr u64 kMaxExtent = u64(1) << 32;
using Coordinates = std::array<i64, kMaxRank>;

// A program may write anything where a map is expected, so every field that is used later is checked.
bool is_sound(const TensorMap& map) {
  if (map.magic != kTensorMapMagic || map.rank < 1 || map.rank > kMaxRank) return false;
  if (map.element_bytes > 8 || std::popcount(map.element_bytes) != 1) return false;
  if (map.swizzle > u8(Swizzle::k128) || map.reduce_type > u8(AtomicType::kF64)) return false;
  for (u32 d = 0; d < map.rank; ++d)
    if (map.box[d] < 1 || map.box[d] > kMaxBox || map.dims[d] > kMaxExtent || !map.steps[d]) return false;
  return map.steps[0] == 1;
}

TensorMap read_map(const Place& place, const Operand& operand, u32 rank) {
  TensorMap map;
  const u64 address = address_of(*place.warp, operand, place.lane);
  std::memcpy(&map, global_at(place, address, kTensorMapBytes, 64, Access::kRead), sizeof map);
  const auto illegal = [&](const std::string& what) { place.warp->illegal(*place.insn, what); };
  if (!is_sound(map))
    illegal(format("address 0x%llx holds no tensor map made by cuTensorMapEncodeTiled", (unsigned long long)address));
  check_tensor_map(place, address, kTensorMapBytes);
  if (map.rank != rank) illegal(format("the tensor map has %u dimensions, the instruction %u", map.rank, rank));
  return map;
}

u32 checked_bytes(const Place& place, const TensorMap& map) {
  if (map.box_bytes() > kOffsetMask)
    place.warp->illegal(*place.insn, format("a box of %llu bytes does not fit into shared memory",
                                            (unsigned long long)map.box_bytes()));
  return u32(map.box_bytes());
}

// Where the boxes of one instruction begin: one box, or four rows that are named one by one.
struct Boxes {
  std::array<Coordinates, 4> at{};
  u32 count = 1;
};

// `rows` says that the coordinates are a column and four rows of a two-dimensional tensor.
Boxes read_coordinates(const Place& place, size_t first, const TensorMap& map, bool rows) {
  const auto coordinate = [&](u32 d) { return i64(i32(place.warp->row(place.insn->ops[first + d].slot)[place.lane])); };
  Boxes boxes;
  if (!rows) {
    for (u32 d = 0; d < map.rank; ++d) boxes.at[0][d] = coordinate(d);
    return boxes;
  }
  if (map.box[1] != 1)
    place.warp->illegal(*place.insn, format("the box of the tensor map has %u rows, not 1", map.box[1]));
  boxes.count = 4;
  for (u32 row = 0; row < boxes.count; ++row) boxes.at[row] = {coordinate(0), coordinate(1 + row)};
  return boxes;
}

// One row of the box along the innermost dimension. Bytes [begin, end) of it lie inside the tensor.
struct BoxRow {
  u64 address;  // of the row's byte 0, valid for [begin, end) only
  u32 offset;   // of the row in the box, before swizzling
  u32 begin, end;
};

template <class Visit>
void for_rows(const TensorMap& map, const Coordinates& at, Visit visit) {
  const u32 row_bytes = map.box[0] * u32(map.element_bytes);
  u32 rows = 1;
  for (u32 d = 1; d < map.rank; ++d) rows *= map.extent(d);
  const i64 left = std::clamp<i64>(-at[0], 0, map.box[0]),
            right = std::clamp<i64>(i64(map.dims[0]) - at[0], 0, map.box[0]);
  for (u32 number = 0; number < rows; ++number) {
    BoxRow row{map.base + u64(at[0] * map.element_bytes), number * row_bytes, u32(left) * map.element_bytes,
               u32(right) * map.element_bytes};
    u32 rest = number;
    bool inside = left < right;
    for (u32 d = 1; d < map.rank; ++d) {
      const i64 index = at[d] + i64(rest % map.extent(d)) * map.steps[d];
      rest /= map.extent(d);
      inside &= index >= 0 && index < i64(map.dims[d]);
      row.address += u64(index) * map.strides[d - 1];
    }
    if (!inside) row.begin = row.end = 0;
    visit(row);
  }
}

// Bytes [begin, end) of a row in pieces that do not cross a 16-byte chunk: piece(offset in the row, swizzled offset,
// bytes). The number of bytes of a whole chunk is a constant, so that its copy is one move.
template <class Piece>
void for_chunks(u32 base, const BoxRow& row, u32 begin, u32 end, Swizzle swizzle, Piece piece) {
  const u32 start = base + row.offset;
  const auto part = [&](u32 bytes) { piece(begin, swizzled(start + begin, swizzle), bytes), begin += bytes; };
  if (begin < end && (start + begin) % 16) part(std::min(end - begin, 16 - (start + begin) % 16));
  for (; begin + 16 <= end; begin += 16)
    piece(begin, swizzled(start + begin, swizzle), std::integral_constant<u32, 16>{});
  if (begin < end) part(end - begin);
}

// The value of elements outside the tensor.
void fill(u8* to, u32 bytes, const TensorMap& map) {
  std::memset(to, 0, bytes);
  if (map.nan_fill) std::memset(to, 0xff, bytes);
}

// `barrier` is the one that the CTA of the destination waits on.
void load_box(const Place& place, const Issue& issue, const TensorMap& map, const Coordinates& at, u32 destination,
              u32 align, u32 barrier) {
  const u32 bytes = checked_bytes(place, map);
  const Location to = shared_at(place, destination, bytes, align, Scope::kCluster);
  check_delivery(place, issue, to, bytes, barrier, RaceKind::kWrite);
  u8* window = to.data - to.offset;
  const u32 row_bytes = map.box[0] * u32(map.element_bytes);
  const Swizzle swizzle = Swizzle(map.swizzle);
  // Rows lie far apart, so the host cannot guess the next ones.
  const u64 ahead = map.rank > 1 ? kRowsAhead * map.strides[0] * map.steps[1] : 0;
  for_rows(map, at, [&](const BoxRow& row) {
    if (row.begin < row.end) {
      const u8* from = global_at(place, row.address + row.begin, row.end - row.begin, 1, Access::kRead) - row.begin;
      check_global_async_read(place, row.address + row.begin, row.end - row.begin);
      for (u32 byte = row.begin; ahead && byte < row.end; byte += 64) __builtin_prefetch(from + ahead + byte);
      for_chunks(to.offset, row, row.begin, row.end, swizzle,
                 [&](u32 begin, u32 offset, auto count) { std::memcpy(window + offset, from + begin, count); });
    }
    const auto outside = [&](u32, u32 offset, u32 count) { fill(window + offset, count, map); };
    for_chunks(to.offset, row, 0, row.begin, swizzle, outside);
    for_chunks(to.offset, row, row.end, row_bytes, swizzle, outside);
  });
  to.cta->wrote_async(to.offset, bytes);
}

// Boxes lie one behind the other.
void load_boxes(const Place& place, const Issue& issue, const TensorMap& map, const Boxes& boxes, u32 destination,
                u32 barrier) {
  for (u32 i = 0; i < boxes.count; ++i)
    load_box(place, issue, map, boxes.at[i], destination + i * u32(map.box_bytes()), i ? 1 : kTileAlign, barrier);
}

Step load(Warp& warp, const Insn& insn, u32 mask) {
  const u32 rank = u32(insn.attr[0]);
  const bool multicast = insn.attr[1], pair = insn.attr[2], rows = insn.attr[3];
  for_lanes(mask, [&](u32 lane) {
    const Place place{&warp, &insn, lane};
    const u32 destination = cluster_address(place, insn.ops[0]), barrier = cluster_address(place, insn.ops[2]);
    const TensorMap map = read_map(place, insn.ops[1], rank);
    const Boxes boxes = read_coordinates(place, 4, map, rows);
    const u64 bytes = boxes.count * map.box_bytes();
    const u32 own = rank_of(place, destination), barrier_rank = rank_of(place, barrier);
    const u32 ranks = multicast ? warp.row(insn.ops[3].slot)[lane] & 0xffff : 1u << own;
    if (!multicast && (pair ? own / 2 != barrier_rank / 2 : own != barrier_rank))
      warp.illegal(insn, format("the mbarrier is in CTA rank %u but the destination in rank %u", barrier_rank, own));
    warp.run->site(place).bytes += bytes;
    const Issue issue = issue_of(warp);
    warp.run->defer({Deferred::kCopy, place, true, [=] {
                       for_lanes(ranks, [&](u32 target) {
                         // A CTA pair may signal the barrier of its even or odd CTA, as the operand says.
                         const u32 signal = pair ? (target & ~1u) | (barrier_rank & 1) : target;
                         const u32 own_barrier = (barrier & kOffsetMask) | signal << kRankShift;
                         load_boxes(place, issue, map, boxes, (destination & kOffsetMask) | target << kRankShift,
                                    own_barrier);
                         mbarrier_complete_tx(place, own_barrier, Scope::kCluster, i64(bytes));
                       });
                     }});
  });
  return Step::kNext;
}

// Reads the part of the box that lies inside the tensor, row after row.
void read_box(const Place& place, const TensorMap& map, const Coordinates& at, u32 source, u32 align,
              std::vector<u8>& staged) {
  const Location from = shared_at(place, source, checked_bytes(place, map), align, Scope::kCta);
  const u8* window = from.data - from.offset;
  size_t end = staged.size();
  staged.resize(end + map.box_bytes());
  for_rows(map, at, [&](const BoxRow& row) {
    for_chunks(from.offset, row, row.begin, row.end, Swizzle(map.swizzle), [&](u32, u32 offset, auto count) {
      if (!from.cta->is_clean(offset & ~15u)) from.cta->check_async_read(place, offset, count);
      std::memcpy(&staged[end], window + offset, count);
      end += count;
    });
  });
  staged.resize(end);
}

// Returns what is behind the bytes it wrote.
template <bool kReduce>
const u8* write_box(const Place& place, const TensorMap& map, const Coordinates& at, const u8* from) {
  for_rows(map, at, [&](const BoxRow& row) {
    const u32 bytes = row.end - row.begin;
    if (!bytes) return;
    u8* to = global_at(place, row.address + row.begin, bytes, 1, Access::kWrite);
    if (kReduce)
      reduce_into(AtomicOp(place.insn->attr[1]), AtomicType(map.reduce_type), to, from, bytes);
    else
      std::memcpy(to, from, bytes);
    from += bytes;
  });
  return from;
}

template <bool kReduce>
Step store(Warp& warp, const Insn& insn, u32 mask) {
  const u32 rank = u32(insn.attr[0]);
  const bool rows = insn.attr[2];
  for_lanes(mask, [&](u32 lane) {
    const Place place{&warp, &insn, lane};
    const TensorMap map = read_map(place, insn.ops[0], rank);
    const u32 source = cluster_address(place, insn.ops[1]);
    const Boxes boxes = read_coordinates(place, 2, map, rows);
    warp.run->site(place).bytes += boxes.count * map.box_bytes();
    auto staged = std::make_shared<std::vector<u8>>();
    const u32 bytes = boxes.count * checked_bytes(place, map);
    check_bulk_read(place, shared_at(place, source, bytes, kTileAlign, Scope::kCta), bytes);
    const auto read = [=] {
      for (u32 i = 0; i < boxes.count; ++i)
        read_box(place, map, boxes.at[i], source + i * u32(map.box_bytes()), i ? 1 : kTileAlign, *staged);
    };
    const auto write = [=] {
      const u8* from = staged->data();
      for (u32 i = 0; i < boxes.count; ++i) from = write_box<kReduce>(place, map, boxes.at[i], from);
    };
    issue_bulk_store({place, read, write});
  });
  return Step::kNext;
}

Step prefetch(Warp& warp, const Insn& insn, u32 mask) {
  for_lanes(mask, [&](u32 lane) { read_map({&warp, &insn, lane}, insn.ops[0], u32(insn.attr[0])); });
  return Step::kNext;
}

constexpr NamedHandler kTable[] = {
    {"tensor.load", load},
    {"tensor.store", store<false>},
    {"tensor.reduce", store<true>},
    {"tensor.prefetch", prefetch},
};

}  // namespace

std::span<const NamedHandler> tma_handlers() { return kTable; }

}  // namespace ptx
