// cp.async.bulk.tensor and relatives: boxes of a tensor, described by a tensor map.
//
// tensor.load:     operands = shared destination, map, mbarrier, CTA mask or none, coordinates;
//                  attributes = rank, multicast, CTA pair, mode (CopyMode)
// tensor.store:    operands = map, shared source, coordinates; attributes = rank, operation, mode
// tensor.reduce:   the same
// tensor.prefetch: operands = map, coordinates; attributes = rank, mode
// The offsets of im2col copies follow the coordinates.
#include <algorithm>
#include <cstring>
#include <memory>

#include "copies.hpp"
#include "mbarrier.hpp"
#include "races.hpp"
#include "tensor_box.hpp"

namespace ptx {
namespace {

constexpr u32 kTileAlign = 128;
constexpr u64 kRowsAhead = 24;  // of a box that the host fetches early

// What a box takes in shared memory.
u32 checked_bytes(const Place& place, const TensorMap& map) {
  if (map.tile_bytes() > kOffsetMask)
    place.warp->illegal(*place.insn, format("a box of %llu bytes does not fit into shared memory",
                                            (unsigned long long)map.tile_bytes()));
  return u32(map.tile_bytes());
}

// The pieces of shared memory that hold elements of a box: all of it at once, unless there are gaps behind its rows.
template <class Visit>
void for_pieces(const TensorMap& map, const Location& tile, Visit visit) {
  const auto piece = [&](u32 offset, u32 bytes) { visit(Location{nullptr, tile.cta, offset}, bytes); };
  if (map.row_bytes() == map.row_pitch()) return piece(tile.offset, u32(map.tile_bytes()));
  for (u32 row = 0; row < map.rows(); ++row)
    for (u32 byte = 0; byte < map.row_bytes(); byte += 16)
      piece(swizzled(tile.offset + row * map.row_pitch() + byte, Swizzle(map.swizzle)),
            std::min(16u, map.row_bytes() - byte));
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

// A whole row of 16-byte chunks into shared memory. The chunks of a 128-byte line are permuted alike.
void copy_row(u8* window, u32 start, const u8* from, u32 bytes, Swizzle swizzle) {
  constexpr u32 kLine = 128;
  u32 done = 0;
  if (start % kLine == 0)
    for (; done + kLine <= bytes; done += kLine) {
      u8* line = window + start + done;
      const u32 permutation = swizzled(start + done, swizzle) % kLine;
#pragma GCC unroll 8
      for (u32 chunk = 0; chunk < kLine; chunk += 16) std::memcpy(line + (chunk ^ permutation), from + done + chunk, 16);
    }
  for (; done < bytes; done += 16) std::memcpy(window + swizzled(start + done, swizzle), from + done, 16);
}

// The segment in which all rows of a box lie that are inside the tensor, if no kernel has stored to it; otherwise nullptr,
// and each row has to be looked at.
const Segment* plain_source(const Place& place, const TensorMap& map, const Coordinates& at) {
  if (map.mode != MapMode::kTiled) return nullptr;
  u64 low = map.base;
  unsigned __int128 bytes = map.element_bytes;
  for (u32 d = 0; d < map.rank; ++d) {
    const i64 last_step = i64(map.extent(d) - 1) * map.steps[d];
    const i64 first = std::max<i64>(at[d], 0), last = std::min(at[d] + last_step, i64(map.dims[d]) - 1);
    if (first > last) return nullptr;
    const u64 stride = d ? map.strides[d - 1] : map.element_bytes;
    low += u64(first) * stride;
    bytes += static_cast<unsigned __int128>(last - first) * stride;
  }
  const Segment* segment = bytes >> 63 ? nullptr : place.warp->run->memory.find(low, u64(bytes));
  return segment && segment->written.empty() ? segment : nullptr;
}

// The value of elements outside the tensor. NaN is the same two bytes for every type (an H200).
void fill(u8* window, u32 offset, u32 bytes, const TensorMap& map) {
  std::memset(window + offset, 0, bytes);
  if (map.nan_fill)
    for (u32 at = offset; at < offset + bytes; ++at) window[at] = u8(kOutsideNan >> at % 2 * 8);
}

// Copies elements into shared memory as the map's data type asks.
void copy_elements(u8* to, const u8* from, u32 bytes, bool rounded) {
  std::memcpy(to, from, bytes);
  if (!rounded) return;
  for (u32 at = 0; at < bytes; at += 4) {
    u32 word;
    std::memcpy(&word, from + at, 4);
    word = to_tf32(word);
    std::memcpy(to + at, &word, 4);
  }
}

// `barrier` is the one that the CTA of the destination waits on.
void load_box(const Place& place, const Issue& issue, const TensorMap& map, const Boxes& boxes, u32 number,
              u32 destination, u32 barrier) {
  const u32 bytes = checked_bytes(place, map);
  const Location to = shared_at(place, destination, bytes, number ? 1 : kTileAlign, Scope::kCluster);
  for_pieces(map, to, [&](const Location& piece, u32 count) {
    check_delivery(place, issue, piece, count, barrier, RaceKind::kWrite);
  });
  u8* window = to.data - to.offset;
  const u32 row_bytes = map.row_bytes();
  const Swizzle swizzle = Swizzle(map.swizzle);
  // Rows lie far apart, so the host cannot guess the next ones.
  const u64 ahead = map.rank > 1 ? kRowsAhead * map.strides[0] * map.steps[1] : 0;
  const Segment* plain = plain_source(place, map, boxes.at[number]);
  const bool whole_chunks = row_bytes % 16 == 0 && to.offset % 16 == 0 && !map.to_tf32;
  const auto source_of = [&](const BoxRow& row) -> const u8* {
    if (plain) return plain->host + (row.address - plain->base);
    const u8* from = global_at(place, row.address + row.begin, row.end - row.begin, 1, Access::kRead) - row.begin;
    check_global_async_read(place, row.address + row.begin, row.end - row.begin);
    return from;
  };
  for_rows(map, boxes, number, [&](const BoxRow& row) {
    if (row.begin < row.end) {
      const u8* from = source_of(row);
      for (u32 byte = row.begin; ahead && byte < row.end; byte += 64) __builtin_prefetch(from + ahead + byte);
      if (whole_chunks && row.end - row.begin == row_bytes)
        return copy_row(window, to.offset + row.offset, from, row_bytes, swizzle);
      for_chunks(to.offset, row, row.begin, row.end, swizzle, [&](u32 begin, u32 offset, auto count) {
        copy_elements(window + offset, from + begin, count, map.to_tf32);
      });
    }
    const auto outside = [&](u32, u32 offset, u32 count) { fill(window, offset, count, map); };
    for_chunks(to.offset, row, 0, row.begin, swizzle, outside);
    for_chunks(to.offset, row, row.end, row_bytes, swizzle, outside);
  });
  for_pieces(map, to, [](const Location& piece, u32 count) { piece.cta->wrote_async(piece.offset, count); });
}

// Boxes lie one behind the other.
void load_boxes(const Place& place, const Issue& issue, const TensorMap& map, const Boxes& boxes, u32 destination,
                u32 barrier) {
  for (u32 i = 0; i < boxes.count; ++i)
    load_box(place, issue, map, boxes, i, destination + i * u32(map.tile_bytes()), barrier);
}

Step load(Warp& warp, const Insn& insn, u32 mask) {
  const u32 rank = u32(insn.attr[0]);
  const bool multicast = insn.attr[1], pair = insn.attr[2];
  const CopyMode mode = CopyMode(insn.attr[3]);
  for_lanes(mask, [&](u32 lane) {
    const Place place{&warp, &insn, lane};
    const u32 destination = cluster_address(place, insn.ops[0]), barrier = cluster_address(place, insn.ops[2]);
    const TensorMap map = read_map(place, insn.ops[1], rank, mode);
    const Boxes boxes = read_coordinates(place, 4, map, mode);
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
void read_box(const Place& place, const TensorMap& map, const Boxes& boxes, u32 number, u32 source,
              std::vector<u8>& staged) {
  const Location from = shared_at(place, source, checked_bytes(place, map), number ? 1 : kTileAlign, Scope::kCta);
  const u8* window = from.data - from.offset;
  size_t end = staged.size();
  staged.resize(end + map.box_bytes());
  for_rows(map, boxes, number, [&](const BoxRow& row) {
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
const u8* write_box(const Place& place, const TensorMap& map, const Boxes& boxes, u32 number, const u8* from) {
  for_rows(map, boxes, number, [&](const BoxRow& row) {
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

// A box that is stored begins nowhere before the tensor: an H200 takes negative coordinates for an illegal instruction.
void check_stored(const Place& place, const TensorMap& map, const Boxes& boxes, CopyMode mode) {
  if (mode == CopyMode::kRows) return;
  for (u32 d = 0; d < map.rank; ++d)
    if (boxes.at[0][d] < 0)
      place.warp->illegal(*place.insn, format("coordinate %lld along dimension %u: stores begin in the tensor or behind it",
                                              (long long)boxes.at[0][d], d));
}

void check_reduction(const Place& place, const TensorMap& map) {
  if (!copies_reduce(AtomicOp(place.insn->attr[1]), AtomicType(map.reduce_type)))
    place.warp->illegal(*place.insn, "there is no such reduction of elements of the tensor map's type");
}

template <bool kReduce>
Step store(Warp& warp, const Insn& insn, u32 mask) {
  const u32 rank = u32(insn.attr[0]);
  const CopyMode mode = CopyMode(insn.attr[2]);
  for_lanes(mask, [&](u32 lane) {
    const Place place{&warp, &insn, lane};
    const TensorMap map = read_map(place, insn.ops[0], rank, mode);
    const u32 source = cluster_address(place, insn.ops[1]);
    const Boxes boxes = read_coordinates(place, 2, map, mode);
    check_stored(place, map, boxes, mode);
    if (kReduce) check_reduction(place, map);
    warp.run->site(place).bytes += boxes.count * map.box_bytes();
    auto staged = std::make_shared<std::vector<u8>>();
    Location from = shared_at(place, source, boxes.count * checked_bytes(place, map), kTileAlign, Scope::kCta);
    for (u32 i = 0; i < boxes.count; ++i, from.offset += u32(map.tile_bytes()))
      for_pieces(map, from, [&](const Location& piece, u32 bytes) { check_bulk_read(place, piece, bytes); });
    const auto read = [=] {
      for (u32 i = 0; i < boxes.count; ++i)
        read_box(place, map, boxes, i, source + i * u32(map.tile_bytes()), *staged);
    };
    const auto write = [=] {
      const u8* from = staged->data();
      for (u32 i = 0; i < boxes.count; ++i) from = write_box<kReduce>(place, map, boxes, i, from);
    };
    issue_bulk_store({place, read, write});
  });
  return Step::kNext;
}

Step prefetch(Warp& warp, const Insn& insn, u32 mask) {
  for_lanes(mask, [&](u32 lane) {
    const Place place{&warp, &insn, lane};
    const CopyMode mode = CopyMode(insn.attr[1]);
    read_coordinates(place, 1, read_map(place, insn.ops[0], u32(insn.attr[0]), mode), mode);
  });
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
