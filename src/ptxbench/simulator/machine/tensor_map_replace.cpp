// tensormap.replace and tensormap.cp_fenceproxy: tensor maps that a kernel writes itself.
//
// tensormap.replace: operands = address, value; attributes = space, field, dimension
// tensormap.copy:    operands = global destination, shared source
#include <cstring>

#include "machine.hpp"
#include "tensor_map.hpp"
#include "units.hpp"

namespace ptx {
namespace {

// Attribute values; lower/tensormap.py mirrors them.
enum Field : i32 { kBase, kRank, kBox, kDims, kStride, kStep, kElementType, kSwizzle, kFill };

// The bytes of an element, the type of reductions and whether loads round to tf32, as one value.
constexpr u32 kReduceShift = 8, kRoundedShift = 16;

void set(TensorMap& map, Field field, u32 dimension, u64 value) {
  map.magic = kTensorMapMagic;
  switch (field) {
    case kBase: map.base = value; break;
    case kRank: map.rank = u8(value + 1); break;  // the instruction takes the rank minus one
    case kBox: map.box[dimension] = u16(value); break;
    case kDims: map.dims[dimension] = u32(value); break;
    case kStride: map.strides[dimension] = value; break;
    case kStep: map.steps[dimension] = u8(value); break;
    case kElementType:
      map.element_bytes = u8(value);
      map.reduce_type = u8(value >> kReduceShift);
      map.to_tf32 = u8(value >> kRoundedShift);
      break;
    case kSwizzle: map.swizzle = u8(value); break;
    case kFill: map.nan_fill = u8(value); break;
  }
}

Step replace(Warp& warp, const Insn& insn, u32 mask) {
  const Operand& value = insn.ops[1];
  for_lanes(mask, [&](u32 lane) {
    const Place place{&warp, &insn, lane};
    const Location at = locate(place, insn.ops[0], Space(insn.attr[0]), kTensorMapBytes, kTensorMapBytes, Access::kWrite);
    TensorMap map;
    std::memcpy(&map, at.data, sizeof map);
    set(map, Field(insn.attr[1]), u32(insn.attr[2]),
        value.kind == Operand::kRow64 ? warp.row64(value.slot)[lane] : warp.row(value.slot)[lane]);
    std::memcpy(at.data, &map, sizeof map);
    if (at.cta)
      at.cta->wrote_generic(at.offset, kTensorMapBytes, warp);
    else
      wrote_global(place, address_of(warp, insn.ops[0], lane), kTensorMapBytes);
  });
  warp.run->event();
  return Step::kNext;
}

// All lanes name the same object.
Step copy(Warp& warp, const Insn& insn, u32 mask) {
  const Place place{&warp, &insn, u32(__builtin_ctz(mask))};
  const Location from = locate(place, insn.ops[1], Space::kSharedCta, kTensorMapBytes, kTensorMapBytes, Access::kRead);
  from.cta->check_initialised(place, from.offset, kTensorMapBytes);
  const Location to = locate(place, insn.ops[0], Space::kGlobal, kTensorMapBytes, kTensorMapBytes, Access::kWrite);
  std::memcpy(to.data, from.data, kTensorMapBytes);
  wrote_global(place, address_of(warp, insn.ops[0], place.lane), kTensorMapBytes);
  warp.run->event();
  return Step::kNext;
}

constexpr NamedHandler kTable[] = {
    {"tensormap.replace", replace},
    {"tensormap.copy", copy},
};

}  // namespace

std::span<const NamedHandler> tensor_map_handlers() { return kTable; }

}  // namespace ptx
