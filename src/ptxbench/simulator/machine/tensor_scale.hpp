// Operands of block-scaled tcgen05.mma: packed 4-bit elements, and scale factors in tensor memory.
#pragma once
#include "tensor_memory.hpp"

namespace ptx {

// One scale factor for each of `vector` groups of elements along K. `id` is the first of their bytes in a cell.
struct ScaleFactors {
  TensorAddress at;
  u32 vector, id;
  bool exponents;  // ue8m0, else ue4m3
};

constexpr u32 kPackedDepth = 64;  // elements of 4 bits along K

// `rows` rows of a K-major tile of e2m1 elements, two a byte: element (row, k) goes to out[row * row_pitch + k * k_pitch].
void read_packed(const Place& place, Cta& cta, const MatrixDescriptor& descriptor, u32 rows, const PanelLayout& layout,
                 float* out);

// Multiplies element (row, k) by its scale factor. Row r's factors are in lane r % 32 of column r / 32, the same in all
// four quarters of the lanes.
void scale(const Place& place, Cta& cta, const ScaleFactors& factors, u32 rows, u32 depth, const PanelLayout& layout,
           float* values);

}  // namespace ptx
