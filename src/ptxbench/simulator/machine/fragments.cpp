// ldmatrix, stmatrix, movmatrix and mma.sync: matrix fragments of one warp.
//
// ldmatrix: operands = destinations, address; attributes = space, matrices, transposed
// stmatrix: operands = address, sources; attributes as ldmatrix
// movmatrix: operands = destination, source
// mma.sync: operands = D, A, B, C registers; attributes = depth, element of A, element of B, accumulators of D, of C,
//           saturate
#include <algorithm>
#include <cstring>

#include "matrix.hpp"
#include "races.hpp"

namespace ptx {
namespace {

// Element (row, column) of an 8x8 matrix of 16-bit elements: its lane and half of the register.
struct Spot {
  u32 lane, half;
};
Spot spot_of(u32 row, u32 column, bool transposed) {
  return transposed ? Spot{column * 4 + row / 2, row % 2} : Spot{row * 4 + column / 2, column % 2};
}

Step ldmatrix(Warp& warp, const Insn& insn, u32 mask) {
  if (mask != warp.live) return Step::kConverge;
  const u32 count = u32(insn.attr[1]);
  u32 registers[4][kLanes] = {};
  for (u32 matrix = 0; matrix < count; ++matrix)
    for (u32 row = 0; row < 8; ++row) {
      const Place place{&warp, &insn, matrix * 8 + row};
      const Location from = locate(place, insn.ops[count], Space(insn.attr[0]), 16, 16, Access::kRead);
      if (from.cta) from.cta->check_initialised(place, from.offset, 16), check_race(place, from, 16, RaceKind::kRead);
      u16 elements[8];
      std::memcpy(elements, from.data, 16);
      for (u32 column = 0; column < 8; ++column) {
        const Spot spot = spot_of(row, column, insn.attr[2]);
        registers[matrix][spot.lane] |= u32(elements[column]) << (16 * spot.half);
      }
    }
  for (u32 matrix = 0; matrix < count; ++matrix)
    if (insn.ops[matrix].kind == Operand::kRow)
      std::memcpy(warp.row(insn.ops[matrix].slot), registers[matrix], sizeof registers[matrix]);
  return Step::kNext;
}

Step stmatrix(Warp& warp, const Insn& insn, u32 mask) {
  if (mask != warp.live) return Step::kConverge;
  const u32 count = u32(insn.attr[1]);
  for (u32 matrix = 0; matrix < count; ++matrix)
    for (u32 row = 0; row < 8; ++row) {
      const Place place{&warp, &insn, matrix * 8 + row};
      const Location to = locate(place, insn.ops[0], Space(insn.attr[0]), 16, 16, Access::kWrite);
      const u32* registers = warp.row(insn.ops[1 + matrix].slot);
      u16 elements[8];
      for (u32 column = 0; column < 8; ++column) {
        const Spot spot = spot_of(row, column, insn.attr[2]);
        elements[column] = u16(registers[spot.lane] >> (16 * spot.half));
      }
      std::memcpy(to.data, elements, 16);
      if (to.cta) to.cta->wrote_generic(to.offset, 16, warp), check_race(place, to, 16, RaceKind::kWrite);
    }
  warp.run->event();
  return Step::kNext;
}

void gather(Warp& warp, const Insn& insn, size_t first, u32 count, u32* out) {
  for (u32 i = 0; i < count; ++i) std::memcpy(out + i * kLanes, warp.row(insn.ops[first + i].slot), kLanes * 4);
}

// B: register q of lane l holds column l/4, rows from (l%4 + 4q) * e. Written with interleaved columns.
void decode_right(Element element, const u32* registers, u32 count, float* out) {
  const u32 per_register = 4 / bytes_of(element), bits = 8 * bytes_of(element);
  for (u32 q = 0; q < count; ++q)
    for (u32 lane = 0; lane < kLanes; ++lane)
      for (u32 i = 0; i < per_register; ++i) {
        const u32 column = lane / 4, k = (lane % 4 + q * 4) * per_register + i;
        out[k * 8 + (column & 1) * 4 + column / 2] = element_value(element, registers[q * kLanes + lane] >> (bits * i));
      }
}

void scatter(Warp& warp, const Insn& insn, u32 count, const u32* from) {
  for (u32 i = 0; i < count; ++i) std::memcpy(warp.row(insn.ops[i].slot), from + i * kLanes, kLanes * 4);
}

// d += the products of elements k and k + 1 of each four along K, from `first` on.
void multiply_pairs(const float* a, const float* b, float* const* d, u32 depth, u32 first) {
  for (u32 k = first; k < depth; k += 4) multiply_fragments(a + k * 2 * kLanes, b + k * 8, d, 8, 2);
}

// 8-bit floats. For sm_90a and sm_100a ptxas widens them to f16, multiplies the first pairs of all registers, then the
// second ones, and adds C last; each step rounds to the type of D.
void multiply_float8(const float* a, const float* b, float* const* d, u32 depth, bool halves) {
  float c[4 * kLanes];
  std::copy(d[0], d[0] + 4 * kLanes, c);
  std::fill(d[0], d[0] + 4 * kLanes, 0.0f);
  for (u32 first : {0u, 2u}) {
    multiply_pairs(a, b, d, depth, first);
    for (u32 i = 0; halves && i < 4 * kLanes; ++i) d[0][i] = to_f32(to_f16(d[0][i]));
  }
  for (u32 i = 0; i < 4 * kLanes; ++i) d[0][i] += c[i];
}

Step mma(Warp& warp, const Insn& insn, u32 mask) {
  if (mask != warp.live) return Step::kConverge;
  const u32 depth = u32(insn.attr[0]);
  const Element left = Element(insn.attr[1]), right = Element(insn.attr[2]);
  const Accumulators to = Accumulators(insn.attr[3]), from = Accumulators(insn.attr[4]);
  const u32 d_count = to == Accumulators::kF16 ? 2 : 4, c_count = from == Accumulators::kF16 ? 2 : 4;
  const u32 a_count = 16 * depth * bytes_of(left) / (4 * kLanes), b_count = a_count / 2;
  u32 registers[4 * kLanes];
  alignas(64) float a[32 * 2 * kLanes], b[32 * 8 + kPanelPadding], d[4 * kLanes] = {};
  float* const d_rows[] = {d, d + kLanes, d + 2 * kLanes, d + 3 * kLanes};
  gather(warp, insn, d_count, a_count, registers);
  spread_fragment(left, registers, a_count, a);
  gather(warp, insn, d_count + a_count, b_count, registers);
  decode_right(right, registers, b_count, b);
  gather(warp, insn, d_count + a_count + b_count, c_count, registers);
  if (from == Accumulators::kF32) std::memcpy(d, registers, sizeof d);
  if (from == Accumulators::kF16)
    for (u32 i = 0; i < c_count; ++i) unpack_half(registers + i * kLanes, i, d);
  if (left == Element::kE4m3 || left == Element::kE5m2)
    multiply_float8(a, b, d_rows, depth, to == Accumulators::kF16);
  else
    multiply_fragments(a, b, d_rows, 8, depth);
  if (to == Accumulators::kF32) std::memcpy(registers, d, sizeof d);
  for (u32 i = 0; i < d_count; ++i)
    if (to == Accumulators::kF16)
      pack_half(d, i, registers + i * kLanes);
    else if (to == Accumulators::kS32)
      add_integers(d_rows[i], kLanes, true, insn.attr[5], registers + i * kLanes);
  scatter(warp, insn, d_count, registers);
  Site& site = warp.run->site({&warp, &insn, 0});
  site.flops += 2ull * 16 * 8 * depth;
  site.dtype = name_of(left);
  return Step::kNext;
}

Step movmatrix(Warp& warp, const Insn& insn, u32 mask) {
  if (mask != warp.live) return Step::kConverge;
  const u32* from = warp.row(insn.ops[1].slot);
  u32 results[kLanes] = {};
  for (u32 row = 0; row < 8; ++row)
    for (u32 column = 0; column < 8; ++column) {
      const Spot source = spot_of(row, column, false), target = spot_of(row, column, true);
      results[target.lane] |= (from[source.lane] >> (16 * source.half) & 0xffff) << (16 * target.half);
    }
  u32* to = warp.row(insn.ops[0].slot);
  for_lanes(mask, [&](u32 lane) { to[lane] = results[lane]; });
  return Step::kNext;
}

constexpr NamedHandler kTable[] = {
    {"ldmatrix", ldmatrix}, {"stmatrix", stmatrix}, {"movmatrix", movmatrix}, {"mma.sync", mma}};

}  // namespace

std::span<const NamedHandler> fragment_handlers() { return kTable; }

}  // namespace ptx
