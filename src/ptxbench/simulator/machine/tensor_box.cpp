#include "tensor_box.hpp"

#include <bit>
#include <cstring>

namespace ptx {
namespace {

constexpr u32 kMaxBox = 256, kMaxPixels = 1024;
constexpr u64 kMaxExtent = u64(1) << 32;
constexpr i64 kBoxAlign = 16;

// A program may write anything where a map is expected, so every field that is used later is checked.
bool is_sound(const TensorMap& map) {
  const bool tiled = map.mode == MapMode::kTiled;
  if (map.magic != kTensorMapMagic || map.rank < (tiled ? 1 : 3) || map.rank > kMaxRank) return false;
  if (map.mode > MapMode::kIm2colW128) return false;
  if (map.element_bytes > 8 || std::popcount(map.element_bytes) != 1) return false;
  if (map.to_tf32 && map.element_bytes != sizeof(f32)) return false;
  if (map.swizzle > u8(Swizzle::k128) || map.reduce_type > u8(AtomicType::kF32Flushed)) return false;
  for (u32 d = 0; d < map.rank; ++d)
    if (map.dims[d] > kMaxExtent || !map.steps[d]) return false;
  for (u32 d = 0; d < (tiled ? map.rank : 2u); ++d)
    if (map.box[d] < 1 || map.box[d] > (tiled || !d ? kMaxBox : kMaxPixels)) return false;
  return map.steps[0] == 1;
}

const char* name_of(MapMode mode) {
  constexpr const char* kNames[] = {"cuTensorMapEncodeTiled", "cuTensorMapEncodeIm2col",
                                    "cuTensorMapEncodeIm2colWide in mode W", "cuTensorMapEncodeIm2colWide in mode W128"};
  return kNames[size_t(mode)];
}

MapMode map_mode(CopyMode mode) {
  switch (mode) {
    case CopyMode::kIm2col:
    case CopyMode::kIm2colNoOffsets: return MapMode::kIm2col;
    case CopyMode::kIm2colW: return MapMode::kIm2colW;
    case CopyMode::kIm2colW128: return MapMode::kIm2colW128;
    default: return MapMode::kTiled;
  }
}

// A store must not leave the tensor along D, H and W.
void check_store(const Place& place, const TensorMap& map) {
  for (u32 d = 0; d + 2 < map.rank; ++d)
    if (map.lower[d] < 0 || map.upper[d] > 0)
      place.warp->illegal(*place.insn, format("the bounding box of the tensor map leaves the tensor: its corners are %d and "
                                              "%d along dimension %u",
                                              map.lower[d], map.upper[d], d + 1));
}

// A box begins at a multiple of 16 bytes: an H200 takes other innermost coordinates for illegal instructions.
void check_alignment(const Place& place, const TensorMap& map, i64 innermost) {
  if (innermost * map.element_bytes % kBoxAlign)
    place.warp->illegal(*place.insn, format("coordinate %lld along dimension 0 is %lld bytes into a row, which is no multiple "
                                            "of %lld",
                                            (long long)innermost, (long long)(innermost * map.element_bytes),
                                            (long long)kBoxAlign));
}

// Along W, H and D a column begins in the bounding box: an H200 takes another base for an illegal instruction.
void check_base(const Place& place, const TensorMap& map, const Coordinates& at) {
  for (u32 d = 1; d + 1 < map.rank; ++d) {
    const i64 first = map.lower[d - 1], last = i64(map.dims[d]) - 1 + map.upper[d - 1];
    if (at[d] < first || at[d] > last)
      place.warp->illegal(*place.insn, format("coordinate %lld along dimension %u is outside the bounding box of the tensor "
                                              "map, %lld to %lld",
                                              (long long)at[d], d, (long long)first, (long long)last));
  }
}

}  // namespace

TensorMap read_map(const Place& place, const Operand& operand, u32 rank, CopyMode mode) {
  TensorMap map;
  const u64 address = address_of(*place.warp, operand, place.lane);
  std::memcpy(&map, global_at(place, address, kTensorMapBytes, 64, Access::kRead), sizeof map);
  const auto illegal = [&](const std::string& what) { place.warp->illegal(*place.insn, what); };
  if (!is_sound(map))
    illegal(format("address 0x%llx holds no tensor map made by cuTensorMapEncodeTiled", (unsigned long long)address));
  check_tensor_map(place, address, kTensorMapBytes);
  if (map.rank != rank) illegal(format("the tensor map has %u dimensions, the instruction %u", map.rank, rank));
  if (map.mode != map_mode(mode))
    illegal(format("the tensor map was made by %s, the mode of the instruction needs %s", name_of(map.mode),
                   name_of(map_mode(mode))));
  if (map.row_bytes() > map.row_pitch())
    illegal(format("rows of the box have %u bytes, and its swizzle allows %u", map.row_bytes(), map.row_pitch()));
  if (mode == CopyMode::kIm2colNoOffsets) check_store(place, map);
  return map;
}

Boxes read_coordinates(const Place& place, size_t first, const TensorMap& map, CopyMode mode) {
  const auto word = [&](size_t i) { return place.warp->row(place.insn->ops[first + i].slot)[place.lane]; };
  const auto coordinate = [&](u32 d) { return i64(i32(word(d))); };
  const auto offset = [&](u32 i) { return i64(word(map.rank + i) & 0xffff); };
  check_alignment(place, map, coordinate(0));
  Boxes boxes;
  if (mode == CopyMode::kRows) {
    if (map.box[1] != 1)
      place.warp->illegal(*place.insn, format("the box of the tensor map has %u rows, not 1", map.box[1]));
    boxes.count = 4;
    for (u32 row = 0; row < boxes.count; ++row) boxes.at[row] = {coordinate(0), coordinate(1 + row)};
    return boxes;
  }
  for (u32 d = 0; d < map.rank; ++d) boxes.at[0][d] = coordinate(d);
  if (map.mode == MapMode::kIm2col) check_base(place, map, boxes.at[0]);
  if (mode == CopyMode::kIm2col)
    for (u32 i = 0; i + 2 < map.rank; ++i) boxes.offsets[i] = offset(i);
  if (mode == CopyMode::kIm2colW || mode == CopyMode::kIm2colW128) {
    if (offset(0)) place.warp->unsupported(*place.insn, format("a halo of %u pixels is not supported", u32(offset(0))));
    boxes.offsets[0] = offset(1);
  }
  return boxes;
}

}  // namespace ptx
