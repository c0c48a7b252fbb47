// mma.sync on f64, on integers that fragments.cpp does not have, and on bits.
//
// mma.f64:     operands = D, A, B, C registers; attributes = rows, depth, rounding
// mma.integer: operands the same; attributes = rows, depth, kind of A, of B, saturate
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "float_format.hpp"
#include "units.hpp"

namespace ptx {
namespace {

// Attribute values; lower/warp_matrix.py mirrors them. The kinds of bits say how two of them are combined.
enum Kind : i32 { kS8, kU8, kS4, kU4, kAnd, kXor };

constexpr u32 kColumns = 8, kMaxRows = 16, kMaxDepth = 16, kMaxWords = 8;

u32 bits_of(Kind kind) { return kind <= kU8 ? 8 : kind <= kU4 ? 4 : 1; }
const char* name_of(Kind kind) {
  constexpr const char* kNames[] = {"s8", "u8", "s4", "u4", "b1", "b1"};
  return kNames[kind];
}

i32 element(u32 word, u32 bits, u32 i, bool is_signed) {
  const u32 shifted = word << (32 - bits - bits * i);
  return is_signed ? i32(shifted) >> (32 - bits) : i32(shifted >> (32 - bits));
}

// The products of a register's elements, summed.
i64 multiply(u32 a, u32 b, Kind a_kind, Kind b_kind) {
  if (a_kind == kAnd) return std::popcount(a & b);
  if (a_kind == kXor) return std::popcount(a ^ b);
  const u32 bits = bits_of(a_kind);
  i64 sum = 0;
  for (u32 i = 0; i < 32 / bits; ++i)
    sum += element(a, bits, i, a_kind == kS8 || a_kind == kS4) * element(b, bits, i, b_kind == kS8 || b_kind == kS4);
  return sum;
}

void count(Warp& warp, const Insn& insn, u32 rows, u32 depth, const char* dtype) {
  Site& site = warp.run->site({&warp, &insn, 0});
  site.flops += 2ull * rows * kColumns * depth;
  site.dtype = dtype;
}

// Where registers of a fragment lie: register q of lane l of A holds row l/4 + 8(q%2) of four places along K that begin
// at 4(q/2), of fragments of eight rows row l/4 at 4q; B column l/4 at 4q. Each register of D and C holds one element.
u32 row_of(u32 lane, u32 q, u32 rows) { return lane / 4 + (rows == 16 ? q % 2 * 8 : 0); }
u32 step_of(u32 lane, u32 q, u32 rows) { return lane % 4 + (rows == 16 ? q / 2 : q) * 4; }

template <class Word>
const Word* register_of(Warp& warp, const Operand& operand) {
  return reinterpret_cast<const Word*>(warp.row(operand.slot));
}

// D = C + A * B, element by element: sum(c, row of A, column of B), each `steps` words.
template <class Word, u32 kSteps, class Sum>
Step multiply_fragments(Warp& warp, const Insn& insn, u32 mask, u32 rows, u32 steps, Sum sum) {
  if (mask != warp.live) return Step::kConverge;
  const u32 d_count = rows / 4, a_count = rows * steps / kLanes, b_count = kColumns * steps / kLanes;
  Word a[kMaxRows][kSteps], b[kColumns][kSteps], results[kMaxRows / 4][kLanes];
  for (u32 q = 0; q < a_count; ++q) {
    const Word* from = register_of<Word>(warp, insn.ops[d_count + q]);
    for (u32 l = 0; l < kLanes; ++l) a[row_of(l, q, rows)][step_of(l, q, rows)] = from[l];
  }
  for (u32 q = 0; q < b_count; ++q) {
    const Word* from = register_of<Word>(warp, insn.ops[d_count + a_count + q]);
    for (u32 l = 0; l < kLanes; ++l) b[l / 4][l % 4 + 4 * q] = from[l];
  }
  for (u32 q = 0; q < d_count; ++q) {
    const Word* c = register_of<Word>(warp, insn.ops[d_count + a_count + b_count + q]);
    for (u32 l = 0; l < kLanes; ++l) results[q][l] = sum(c[l], a[l / 4 + q / 2 * 8], b[l % 4 * 2 + q % 2]);
  }
  for (u32 q = 0; q < d_count; ++q)
    std::copy_n(results[q], kLanes, reinterpret_cast<Word*>(warp.row(insn.ops[q].slot)));
  return Step::kNext;
}

// Fused multiply-adds with k ascending.
Step doubles(Warp& warp, const Insn& insn, u32 mask) {
  const u32 rows = u32(insn.attr[0]), depth = u32(insn.attr[1]);
  const RoundingScope rounding(insn.attr[2]);
  const Step step = multiply_fragments<f64, kMaxDepth>(
      warp, insn, mask, rows, depth, [=](f64 c, const f64* a, const f64* b) {
        for (u32 k = 0; k < depth; ++k) c = std::fma(a[k], b[k], c);
        return c;
      });
  if (step == Step::kNext) count(warp, insn, rows, depth, "f64");
  return step;
}

Step integers(Warp& warp, const Insn& insn, u32 mask) {
  const u32 rows = u32(insn.attr[0]), depth = u32(insn.attr[1]);
  const Kind a_kind = Kind(insn.attr[2]), b_kind = Kind(insn.attr[3]);
  const bool saturate = insn.attr[4];
  const u32 words = depth * bits_of(a_kind) / 32;
  const Step step = multiply_fragments<u32, kMaxWords>(
      warp, insn, mask, rows, words, [=](u32 c, const u32* a, const u32* b) {
        i64 sum = i32(c);
        for (u32 w = 0; w < words; ++w) sum += multiply(a[w], b[w], a_kind, b_kind);
        return u32(saturate ? std::clamp<i64>(sum, std::numeric_limits<i32>::min(), std::numeric_limits<i32>::max()) : sum);
      });
  if (step == Step::kNext) count(warp, insn, rows, depth, name_of(a_kind));
  return step;
}

constexpr NamedHandler kTable[] = {{"mma.f64", doubles}, {"mma.integer", integers}};

}  // namespace

std::span<const NamedHandler> fragment_product_handlers() { return kTable; }

}  // namespace ptx
