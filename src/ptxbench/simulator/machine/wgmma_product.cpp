// The arithmetic of wgmma. Each warp computes its 16 rows of the 64.
#include <algorithm>
#include <cstring>

#include "races.hpp"
#include "wgmma.hpp"

namespace ptx {

MatrixDescriptor decode_wgmma_descriptor(const Place& place, u64 bits) {
  constexpr Swizzle kModes[] = {Swizzle::kNone, Swizzle::k128, Swizzle::k64, Swizzle::k32};
  if (bits >> 49 & 7)
    place.warp->unsupported(*place.insn, "matrix descriptors with a base offset are not supported");
  if (bits >> 62 == 0 && (bits >> 52 & 0x3ff))
    place.warp->illegal(*place.insn,
                        format("matrix descriptor 0x%llx has reserved bits set", (unsigned long long)bits));
  return {u32(bits & 0x3fff) << 4, u32(bits >> 16 & 0x3fff) << 4, u32(bits >> 32 & 0x3fff) << 4, kModes[bits >> 62]};
}

namespace {

constexpr u32 kMaxColumns = 256;
constexpr u32 kMaxDepth = 32;

OperandTile left_tile(const WgmmaProduct& product, const WgmmaForm& form) {
  const u32 first = product.place.warp->index % kWarpsOfGroup * 16;
  return {decode_wgmma_descriptor(product.place, product.a_descriptor), !form.a_mn_major, form.a, first, 16, form.depth};
}

OperandTile right_tile(const WgmmaProduct& product, const WgmmaForm& form) {
  return {decode_wgmma_descriptor(product.place, product.b_descriptor), !form.b_mn_major, form.b, 0, form.columns, form.depth};
}

// B as [depth][columns], columns interleaved. The warps of a group, and groups that share B, read the same panel.
const float* read_right(const WgmmaProduct& product, const WgmmaForm& form) {
  Cta& cta = *product.place.warp->cta;
  const PanelKey key{product.b_descriptor, form.columns, form.b, form.b_mn_major};
  const OperandTile tile = right_tile(product, form);
  const size_t size = form.columns * form.depth + kPanelPadding;
  return cta.panels->find_or_read(cta, key, extent_of(tile), size, [&](float* out) {
    return read_tile(product.place, cta, tile, {1, form.columns, true}, out);
  });
}

// The warp's 16 rows of A, as multiply_fragments takes them.
void read_left(const WgmmaProduct& product, const WgmmaForm& form, float* out) {
  const Warp& warp = *product.place.warp;
  if (form.a_in_registers) {
    spread_fragment(form.a, product.a_fragment.data(), 4, out);
  } else {
    alignas(64) float columns[kMaxDepth * 16];
    read_tile(product.place, *warp.cta, left_tile(product, form), {1, 16}, columns);
    spread_columns(columns, form.depth, out);
  }
  const float scale = (form.negate ? -1.0f : 1.0f) * warp.run->options.perturbation;
  if (scale != 1.0f) std::for_each_n(out, 2 * kLanes * form.depth, [=](float& value) { value *= scale; });
}

}  // namespace

void check_wgmma_reads(const WgmmaProduct& product, u32 step) {
  Warp& warp = *product.place.warp;
  if (!warp.cta->cluster->races) return;
  const WgmmaForm form(*product.place.insn);
  const auto check = [&](const OperandTile& tile) {
    check_tile(product.place, Engine::kWgmma, group_number(warp), step, *warp.cta, tile);
  };
  if (!form.a_in_registers) check(left_tile(product, form));
  check(right_tile(product, form));
}

void compute_wgmma(const WgmmaProduct& product) {
  const WgmmaForm form(*product.place.insn);
  if (form.bits) return compute_wgmma_bits(product);
  alignas(64) float a[2 * kLanes * kMaxDepth], sums[kMaxColumns / 2 * kLanes];
  read_left(product, form, a);
  const float* b = read_right(product, form);
  const u32 count = form.columns / 2;
  const bool in_place = form.kind == Accumulators::kF32;
  float* rows[kMaxColumns / 2];
  for (u32 i = 0; i < count; ++i) rows[i] = in_place ? reinterpret_cast<float*>(product.row(i)) : sums + i * kLanes;
  if (form.kind == Accumulators::kF16 && product.accumulate)
    for (u32 i = 0; i < form.registers; ++i) unpack_half(product.row(i), i, sums);
  else if (form.kind == Accumulators::kS32 || !product.accumulate)
    for (u32 i = 0; i < count; ++i) std::fill_n(rows[i], kLanes, 0.0f);
  multiply_fragments(a, b, rows, form.columns, form.depth);
  if (form.kind == Accumulators::kF16)
    for (u32 i = 0; i < form.registers; ++i) pack_half(sums, i, product.row(i));
  else if (form.kind == Accumulators::kS32)
    for (u32 i = 0; i < count; ++i) add_integers(rows[i], kLanes, product.accumulate, form.saturate, product.row(i));
}

}  // namespace ptx
