// The descriptors of tcgen05.mma.
#include "tensor_product.hpp"

namespace ptx {
namespace {

Element element_of(const Place& place, TensorKind kind, u32 code) {
  if (kind == kKindF16 && code == 0) return Element::kF16;
  if (kind == kKindF16 && code == 1) return Element::kBf16;
  if (kind == kKindTf32 && code == 2) return Element::kTf32;
  if (kind == kKindI8 && code == 0) return Element::kU8;
  if (kind == kKindI8 && code == 1) return Element::kS8;
  if (is_packed(kind) && code == 1) return Element::kE2m1;
  if (kind == kKindF8f6f4 || kind == kKindMxf8f6f4) switch (code) {
      case 0: return Element::kE4m3;
      case 1: return Element::kE5m2;
      case 3: return Element::kE2m3;
      case 4: return Element::kE3m2;
      case 5: return Element::kE2m1;
    }
  place.warp->illegal(*place.insn,
                      format("element format %u of the instruction descriptor does not exist for this kind", code));
}

bool is_valid_m(u32 group, bool stationary, u32 m) {
  if (stationary) return m == 32 || m == 64 || m == 128;
  return group == 1 ? m == 64 || m == 128 : m == 128 || m == 256;
}

}  // namespace

InstructionDescriptor decode_instruction(const Place& place, TensorKind kind, u32 group, bool stationary,
                                         u32 bits) {
  const auto refuse = [&](const char* what) {
    place.warp->illegal(*place.insn, format("instruction descriptor 0x%08x: %s", bits, what));
  };
  constexpr Accumulators kFormats[] = {Accumulators::kF16, Accumulators::kF32, Accumulators::kS32, Accumulators::kF32};
  InstructionDescriptor shape{bits,
                              (bits >> 24 & 31) * 16,
                              (bits >> 17 & 63) * 8,
                              element_of(place, kind, bits >> 7 & 7),
                              element_of(place, kind, bits >> 10 & 7),
                              kFormats[bits >> 4 & 3],
                              (bits >> 13 & 1) != (bits >> 14 & 1),
                              bool(bits >> 15 & 1),
                              bool(bits >> 16 & 1),
                              bool(bits >> 3 & 1)};
  if (bits >> 2 & 1) place.warp->unsupported(*place.insn, "sparse products are not supported");
  if ((bits >> 4 & 3) == 3 || (kind == kKindI8) != (shape.d == Accumulators::kS32) ||
      (kind == kKindTf32 && shape.d != Accumulators::kF32))
    refuse("the accumulator format is not valid for this kind");
  if (bits & 0x20800040u) refuse("reserved bits are set");
  if (kind == kKindI8 ? bits >> 13 & 3 : shape.saturate) refuse("negation is for floats, saturation for integers");
  if (!is_valid_m(group, stationary, shape.m)) refuse("M is not valid for this CTA group");
  const u32 step = group == 2 ? 32 : stationary || shape.m != 64 ? 16 : 8;
  const bool valid_n = shape.n && shape.n <= kMaxTensorColumns && shape.n % step == 0;
  if (!valid_n || (stationary && shape.n != 64 && shape.n != 128 && shape.n != 256)) refuse("N is not valid for this M");
  if (kind == kKindTf32 && (shape.a_mn_major || shape.b_mn_major))
    place.warp->unsupported(*place.insn, "MN-major tf32 is not supported");
  return shape;
}

// The descriptor of block-scaled products.
InstructionDescriptor decode_scaled(const Place& place, TensorKind kind, u32 group, u32 scales, u32 bits) {
  const auto refuse = [&](const char* what) {
    place.warp->illegal(*place.insn, format("instruction descriptor 0x%08x: %s", bits, what));
  };
  InstructionDescriptor shape{bits,
                              (bits >> 27 & 3) * 128,
                              (bits >> 17 & 63) * 8,
                              element_of(place, kind, bits >> 7 & 7),
                              element_of(place, kind, bits >> 10 & 7),
                              Accumulators::kF32,
                              (bits >> 13 & 1) != (bits >> 14 & 1),
                              bool(bits >> 15 & 1),
                              bool(bits >> 16 & 1),
                              false,
                              bits >> 29 & 3,
                              bits >> 4 & 3,
                              bool(bits >> 23 & 1)};
  if (bits >> 2 & 1) place.warp->unsupported(*place.insn, "sparse products are not supported");
  if (bits & 0x8700004bu) refuse("reserved bits are set");
  if (shape.m != 128 * group) {
    if (group == 2 && shape.m == 128)
      place.warp->unsupported(*place.insn, "block-scaled products of a CTA pair with M=128 are not supported");
    refuse("M is not valid for this CTA group");
  }
  if (!shape.n || shape.n > kMaxTensorColumns || shape.n % (16 * group)) refuse("N is not valid for this M");
  if (is_packed(kind) && (shape.a_mn_major || shape.b_mn_major)) refuse("4-bit operands are K-major");
  if (kind != kKindMxf4nvf4 && !shape.exponent_scales) refuse("the scale factors of this kind are ue8m0");
  if (scales != 1 && (shape.a_scale_id % scales || shape.b_scale_id % scales)) refuse("a scale factor ID is not valid");
  return shape;
}

// Each of the 128 / M sub-masks begins with a span of columns that are used or of zeros, without its first `start` columns;
// then such spans take turns. In the ISA's examples "use span" counts columns that are used; its table of fields says the
// opposite.
ColumnMask decode_column_mask(const Place& place, const InstructionDescriptor& shape, u64 bits) {
  const auto refuse = [&](const char* what) {
    place.warp->illegal(*place.insn, format("zero-column mask descriptor 0x%llx: %s", (unsigned long long)bits, what));
  };
  ColumnMask mask;
  mask.shift = bits >> 56 & 63;
  const u32 limit = shape.bits >> 30 ? 4u << (shape.bits >> 30) : 0;
  if (bits & 0xc000007000000000) refuse("reserved bits are set");
  if (mask.shift > limit || mask.shift > (shape.m == 32 ? 16u : 32u)) refuse("the shift exceeds its maximum");
  if (!(bits >> 39 & 1)) return mask;
  const u32 used = u32(bits >> 48 & 255) + 1, zeros = u32(bits >> 40 & 255) + 1, columns = shape.n / (128 / shape.m);
  for (u32 column = 0; column < shape.n; ++column) {
    const u32 part = column / columns, start = bits >> (8 * part) & 255;
    const bool zeros_first = bits >> (32 + part) & 1;
    const u32 first = zeros_first ? zeros : used;
    if (start >= first) place.warp->unsupported(*place.insn, "a start count beyond its span is not supported");
    const u32 at = (column % columns + start) % (used + zeros);
    mask.zero[column] = zeros_first == (at < first);
  }
  return mask;
}

}  // namespace ptx
