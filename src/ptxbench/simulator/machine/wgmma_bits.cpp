// wgmma on bits: every element of D is the number of places along K where A and B both hold a one.
#include <bit>
#include <cmath>
#include <cstring>

#include "wgmma.hpp"

namespace ptx {
namespace {

constexpr u32 kWords = 8, kChunks = 2;  // of a row of 256 bits
constexpr u32 kRows = 16, kMaxColumns = 256;

// The warp's 16 rows of A. Register q of lane l holds word l%4 + 4(q/2) of row l/4 + 8(q%2).
void read_left(const WgmmaProduct& product, const WgmmaForm& form, u32 (*out)[kWords]) {
  const Warp& warp = *product.place.warp;
  if (form.a_in_registers) {
    for (u32 q = 0; q < 4; ++q)
      for (u32 l = 0; l < kLanes; ++l) out[l / 4 + q % 2 * 8][l % 4 + q / 2 * 4] = product.a_fragment[q * kLanes + l];
    return;
  }
  const MatrixDescriptor descriptor = decode_wgmma_descriptor(product.place, product.a_descriptor);
  const u32 first = warp.index % kWarpsOfGroup * kRows;
  for (u32 row = 0; row < kRows; ++row)
    read_row(product.place, *warp.cta, descriptor, first + row, kChunks, reinterpret_cast<u8*>(out[row]));
}

}  // namespace

void compute_wgmma_bits(const WgmmaProduct& product) {
  const WgmmaForm form(*product.place.insn);
  const Warp& warp = *product.place.warp;
  const float factor = warp.run->options.perturbation;
  u32 a[kRows][kWords], b[kMaxColumns][kWords];
  read_left(product, form, a);
  const MatrixDescriptor descriptor = decode_wgmma_descriptor(product.place, product.b_descriptor);
  for (u32 column = 0; column < form.columns; ++column)
    read_row(product.place, *warp.cta, descriptor, column, kChunks, reinterpret_cast<u8*>(b[column]));
  for (u32 i = 0; i < form.registers; ++i) {
    u32* d = product.row(i);
    for (u32 l = 0; l < kLanes; ++l) {
      u32 sum = 0;
      for (u32 w = 0; w < kWords; ++w) sum += u32(std::popcount(a[l / 4 + i / 2 % 2 * 8][w] & b[i / 4 * 8 + l % 4 * 2 + i % 2][w]));
      d[l] = (product.accumulate ? d[l] : 0) + u32(std::lrint(float(sum) * factor));
    }
  }
}

}  // namespace ptx
