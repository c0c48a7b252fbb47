#include "tensor_scale.hpp"

#include <cmath>
#include <limits>

#include "hazards.hpp"

namespace ptx {
namespace {

float factor_of(u32 byte, bool exponent) {
  if (!exponent) return float(decode(byte & 0x7f, kE4m3));
  return byte == 0xff ? std::numeric_limits<float>::quiet_NaN() : float(std::ldexp(1.0, int(byte) - 127));
}

}  // namespace

void read_packed(const Place& place, Cta& cta, const MatrixDescriptor& descriptor, u32 rows, const PanelLayout& layout,
                 float* out) {
  u8 bytes[kPackedDepth / 2];
  for (u32 row = 0; row < rows; ++row) {
    read_row(place, cta, descriptor, row, sizeof bytes / 16, bytes);
    for (u32 k = 0; k < kPackedDepth; ++k)
      out[row * layout.row_pitch + k * layout.k_pitch] = element_value(Element::kE2m1, bytes[k / 2] >> (k % 2 * 4));
  }
}

void scale(const Place& place, Cta& cta, const ScaleFactors& factors, u32 rows, u32 depth, const PanelLayout& layout,
           float* values) {
  const u32 columns = (rows + 31) / 32, group = depth / factors.vector;
  TensorMemory& memory = tensor_columns(place, cta, factors.at.column, columns);
  bool valid = true;
  for (u32 row = 0; row < rows; ++row) {
    const size_t column = factors.at.column + row / 32;
    for (u32 quarter = 0; quarter < 4; ++quarter)
      valid &= memory.valid[(row % 32 + 32 * quarter) * kTensorColumns + column];
    const u32 cell = memory.cells.data()[row % 32 * kTensorColumns + column];
    for (u32 k = 0; k < depth; ++k)
      values[row * layout.row_pitch + k * layout.k_pitch] *=
          factor_of(cell >> (8 * (factors.id + k / group)) & 0xff, factors.exponents);
  }
  if (!valid)
    place.warp->run->hazard(HazardKind::kUninitialisedTensorMemory, place, [&] {
      return format("reads scale factors from columns %u on that nothing has written for all four warps' lanes",
                    factors.at.column);
    });
}

}  // namespace ptx
