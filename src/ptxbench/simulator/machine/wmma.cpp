// wmma: fragments whose layout the ISA leaves open, of 16x16x16 products. They lie here like those of two mma.sync.
//
// wmma.load:  operands = destinations, address, elements from line to line; attributes = space, matrix, column-major,
//             element, registers
// wmma.store: operands = address, sources, elements from line to line; attributes the same
// wmma.mma:   operands = D, A, B, C registers; attributes = element of A and B, of D, of C
#include <cstring>

#include "matrix.hpp"
#include "races.hpp"
#include "uniform.hpp"
#include "units.hpp"

namespace ptx {
namespace {

constexpr u32 kEdge = 16;

// Attribute values; lower/warp_matrix.py mirrors them.
enum Matrix : i32 { kA, kB, kC };
enum Type : i32 { kHalf, kBfloat, kFloat };

constexpr u32 size_of(Type type) { return type == kFloat ? 4 : 2; }
// Fragments of f16 operands hold every element twice.
constexpr u32 operand_registers(Type type) { return type == kHalf ? 8 : 4; }
constexpr u32 sum_registers(Type type) { return type == kHalf ? 4 : 8; }

struct Spot {
  u32 row, column;
};

// The element in a register of a lane; `part` tells the halves of a word apart.
Spot spot_of(Matrix matrix, Type type, u32 q, u32 lane, u32 part) {
  const u32 line = lane / 4, pair = lane % 4 * 2;
  switch (matrix) {
    case kA: return {line + q % 2 * 8, pair + q % 4 / 2 * 8 + part};
    case kB: return {pair + q % 2 * 8 + part, line + q % 4 / 2 * 8};
    case kC: break;
  }
  if (type == kFloat) return {line + q % 4 / 2 * 8, q / 4 * 8 + pair + q % 2};
  return {line + q % 2 * 8, q / 2 * 8 + pair + part};
}

// visit(row, column, word of the register, shift): the elements of a fragment of `count` registers from operand `first` on.
template <class Visit>
void for_elements(Warp& warp, const Insn& insn, size_t first, u32 count, Matrix matrix, Type type, Visit visit) {
  for (u32 q = 0; q < count; ++q) {
    const Operand& operand = insn.ops[first + q];
    if (operand.kind == Operand::kNone) continue;
    u32* row = warp.row(operand.slot);
    for (u32 lane = 0; lane < kLanes; ++lane)
      for (u32 part = 0; part < 4 / size_of(type); ++part) {
        const Spot spot = spot_of(matrix, type, q, lane, part);
        visit(spot.row, spot.column, row[lane], 16 * part);
      }
  }
}

// visit(location, line, address) for the lines of a matrix in memory, which all lanes name alike.
template <class Visit>
void for_lines(Warp& warp, const Insn& insn, u32 mask, size_t address, size_t pitch, Access access, Visit visit) {
  const Place place{&warp, &insn, u32(__builtin_ctz(mask))};
  const u32 bytes = kEdge * size_of(Type(insn.attr[3]));
  check_uniform(place, insn.ops[address], mask, "address");
  const bool given = insn.ops[pitch].kind != Operand::kNone;
  if (given) check_uniform(place, insn.ops[pitch], mask, "stride");
  const u64 elements = given ? warp.row(insn.ops[pitch].slot)[place.lane] : kEdge;
  for (u32 line = 0; line < kEdge; ++line) {
    Operand at = insn.ops[address];
    at.imm += i64(line * elements * size_of(Type(insn.attr[3])));
    visit(place, locate(place, at, Space(insn.attr[0]), bytes, size_of(Type(insn.attr[3])), access), line, at, bytes);
  }
}

Step load(Warp& warp, const Insn& insn, u32 mask) {
  if (mask != warp.live) return Step::kConverge;
  const Matrix matrix = Matrix(insn.attr[1]);
  const bool transposed = insn.attr[2];
  const Type type = Type(insn.attr[3]);
  const u32 count = u32(insn.attr[4]), size = size_of(type);
  u8 lines[kEdge][kEdge * 4];
  for_lines(warp, insn, mask, count, count + 1, Access::kRead,
            [&](const Place& place, const Location& from, u32 line, const Operand&, u32 bytes) {
              if (from.cta)
                from.cta->check_initialised(place, from.offset, bytes), check_race(place, from, bytes, RaceKind::kRead);
              std::memcpy(lines[line], from.data, bytes);
            });
  for_elements(warp, insn, 0, count, matrix, type, [&](u32 row, u32 column, u32& word, u32 shift) {
    u32 value = 0;
    std::memcpy(&value, transposed ? lines[column] + row * size : lines[row] + column * size, size);
    word = size == 4 ? value : (word & ~(0xffffu << shift)) | value << shift;
  });
  return Step::kNext;
}

Step store(Warp& warp, const Insn& insn, u32 mask) {
  if (mask != warp.live) return Step::kConverge;
  const bool transposed = insn.attr[2];
  const Type type = Type(insn.attr[3]);
  const u32 count = u32(insn.attr[4]), size = size_of(type);
  u8 lines[kEdge][kEdge * 4];
  for_elements(warp, insn, 1, count, kC, type, [&](u32 row, u32 column, u32& word, u32 shift) {
    const u32 value = word >> shift;
    std::memcpy(transposed ? lines[column] + row * size : lines[row] + column * size, &value, size);
  });
  for_lines(warp, insn, mask, 0, count + 1, Access::kWrite,
            [&](const Place& place, const Location& to, u32 line, const Operand& at, u32 bytes) {
              if (to.cta)
                to.cta->wrote_generic(to.offset, bytes, warp), check_race(place, to, bytes, RaceKind::kWrite);
              else
                wrote_global(place, address_of(warp, at, place.lane), bytes);
              std::memcpy(to.data, lines[line], bytes);
            });
  warp.run->event();
  return Step::kNext;
}

float decode(Type type, u32 word, u32 shift) {
  const u16 half = u16(word >> shift);
  return type == kHalf ? to_f32(f16{half}) : type == kBfloat ? to_f32(bf16{half}) : float_of(word);
}

Step mma(Warp& warp, const Insn& insn, u32 mask) {
  if (mask != warp.live) return Step::kConverge;
  const Type operand = Type(insn.attr[0]), to = Type(insn.attr[1]), from = Type(insn.attr[2]);
  const u32 d_count = sum_registers(to), ab_count = operand_registers(operand);
  alignas(64) float a[kEdge * kEdge], b[kEdge * kEdge], d[kEdge * kEdge];
  const auto gather = [&](size_t first, u32 count, Matrix matrix, Type type, float* out) {
    for_elements(warp, insn, first, count, matrix, type, [&](u32 row, u32 column, u32 word, u32 shift) {
      out[row * kEdge + column] = decode(type, word, shift);
    });
  };
  gather(d_count, ab_count, kA, operand, a);
  gather(d_count + ab_count, ab_count, kB, operand, b);
  gather(d_count + 2 * ab_count, sum_registers(from), kC, from, d);
  multiply_rows({a, b, kEdge, d, kEdge, kEdge, kEdge, kEdge});
  for_elements(warp, insn, 0, d_count, kC, to, [&](u32 row, u32 column, u32& word, u32 shift) {
    const float value = d[row * kEdge + column];
    word = to == kFloat ? bits_of(value) : (word & ~(0xffffu << shift)) | u32(to_f16(value).bits) << shift;
  });
  Site& site = warp.run->site({&warp, &insn, 0});
  site.flops += 2ull * kEdge * kEdge * kEdge;
  site.dtype = operand == kHalf ? "f16" : "bf16";
  return Step::kNext;
}

constexpr NamedHandler kTable[] = {{"wmma.load", load}, {"wmma.store", store}, {"wmma.mma", mma}};

}  // namespace

std::span<const NamedHandler> wmma_handlers() { return kTable; }

}  // namespace ptx
