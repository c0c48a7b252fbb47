// ldmatrix and stmatrix of elements of 8 bits and less (sm_100a).
//
// ldmatrix.bytes: operands = destinations, address; attributes = space, matrices, rows of a matrix, bits of an element in
//                 memory
// stmatrix.bytes: operands = address, sources; attributes = space, matrices
//
// A row is 16 elements, 16 bytes with the padding behind narrower ones. Of matrices of 8 rows a lane holds four elements
// that lie side by side; those of 16 rows are transposed: register r of a lane holds four rows of column l/4 + 8r.
#include <cstring>

#include "races.hpp"
#include "units.hpp"

namespace ptx {
namespace {

constexpr u32 kRowBytes = 16;

u32 element(const u8* row, u32 i, u32 bits) {
  const u32 bit = i * bits;
  u32 word = row[bit / 8];
  if (bit % 8 + bits > 8) word |= u32(row[bit / 8 + 1]) << 8;
  return word >> bit % 8 & ((1u << bits) - 1);
}

Step load(Warp& warp, const Insn& insn, u32 mask) {
  if (mask != warp.live) return Step::kConverge;
  const Space space = Space(insn.attr[0]);
  const u32 matrices = u32(insn.attr[1]), rows = u32(insn.attr[2]), bits = u32(insn.attr[3]);
  const u32 registers_each = rows / 8, count = matrices * registers_each, read = kRowBytes * bits / 8;
  u32 registers[4][kLanes] = {};
  for (u32 lane = 0; lane < matrices * rows; ++lane) {
    const Place place{&warp, &insn, lane};
    const Location from = locate(place, insn.ops[count], space, kRowBytes, kRowBytes, Access::kRead);
    if (from.cta) from.cta->check_initialised(place, from.offset, read), check_race(place, from, read, RaceKind::kRead);
    const u32 matrix = lane / rows, row = lane % rows;
    for (u32 column = 0; column < kRowBytes; ++column) {
      const u32 value = element(from.data, column, bits);
      if (rows == 8)
        registers[matrix][row * 4 + column / 4] |= value << (8 * (column % 4));
      else
        registers[matrix * 2 + column / 8][column % 8 * 4 + row / 4] |= value << (8 * (row % 4));
    }
  }
  for (u32 i = 0; i < count; ++i)
    if (insn.ops[i].kind == Operand::kRow) std::memcpy(warp.row(insn.ops[i].slot), registers[i], sizeof registers[i]);
  return Step::kNext;
}

// The matrix of 16 rows and 8 columns is stored column after column: a lane holds two columns, 2(l%4) and the next, of the
// rows l/4 and l/4 + 8.
Step store(Warp& warp, const Insn& insn, u32 mask) {
  if (mask != warp.live) return Step::kConverge;
  const Space space = Space(insn.attr[0]);
  const u32 matrices = u32(insn.attr[1]);
  for (u32 lane = 0; lane < matrices * 8; ++lane) {
    const Place place{&warp, &insn, lane};
    const Location to = locate(place, insn.ops[0], space, kRowBytes, kRowBytes, Access::kWrite);
    const u32 *registers = warp.row(insn.ops[1 + lane / 8].slot), column = lane % 8;
    for (u32 row = 0; row < kRowBytes; ++row)
      to.data[row] = u8(registers[row % 8 * 4 + column / 2] >> (8 * (row / 8 * 2 + column % 2)));
    if (to.cta)
      to.cta->wrote_generic(to.offset, kRowBytes, warp), check_race(place, to, kRowBytes, RaceKind::kWrite);
  }
  warp.run->event();
  return Step::kNext;
}

constexpr NamedHandler kTable[] = {{"ldmatrix.bytes", load}, {"stmatrix.bytes", store}};

}  // namespace

std::span<const NamedHandler> matrix_byte_handlers() { return kTable; }

}  // namespace ptx
