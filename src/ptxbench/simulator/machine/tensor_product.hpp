// tcgen05.mma: what one product is, decoded.
#pragma once
#include <array>

#include "tensor_scale.hpp"

namespace ptx {

constexpr u32 kMaxTensorColumns = 256;  // of B and D

// Attribute values; lower/matrix.py mirrors them.
enum TensorKind : i32 { kKindF16, kKindTf32, kKindF8f6f4, kKindI8, kKindMxf8f6f4, kKindMxf4, kKindMxf4nvf4 };
constexpr bool is_packed(TensorKind kind) { return kind == kKindMxf4 || kind == kKindMxf4nvf4; }

struct InstructionDescriptor {
  u32 bits, m, n;
  Element a, b;
  Accumulators d;
  bool negate, a_mn_major, b_mn_major, saturate;
  u32 a_scale_id = 0, b_scale_id = 0;
  bool exponent_scales = false;
};

// Which columns of B are zeros, and how far its first column lies behind the one that the descriptor names.
struct ColumnMask {
  u32 shift = 0;
  std::array<bool, kMaxTensorColumns> zero{};
};

struct TensorProduct {
  Place place;
  TensorKind kind;
  u32 group;  // CTAs
  TensorAddress d;
  bool a_in_tensor_memory;
  TensorAddress a_address;
  MatrixDescriptor a, b;
  InstructionDescriptor shape;
  bool accumulate;
  u32 scales;  // factors of a row; 0 for products that are not scaled
  TensorAddress a_scales, b_scales;
  bool stationary;  // .ws
  ColumnMask columns;
  float input_scale;  // of D before the products are added
  std::array<u32, 8> disabled;  // lanes of D, 4 words for each CTA
  u32 depth() const { return is_packed(kind) ? kPackedDepth : 32 / bytes_of(shape.a); }
  u32 rows() const { return shape.m / group; }
  bool is_enabled(u32 number, u32 lane) const { return !(disabled[number * 4 + lane / 32] >> lane % 32 & 1); }
};

// The instruction descriptors of plain, weight-stationary (.ws) and block-scaled products.
InstructionDescriptor decode_instruction(const Place& place, TensorKind kind, u32 group, bool stationary, u32 bits);
InstructionDescriptor decode_scaled(const Place& place, TensorKind kind, u32 group, u32 scales, u32 bits);

// A zero-column mask descriptor.
ColumnMask decode_column_mask(const Place& place, const InstructionDescriptor& shape, u64 bits);

}  // namespace ptx
