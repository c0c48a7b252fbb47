// Matrix operands in shared memory, and the products of fragments.
#pragma once
#include "panels.hpp"
#include "machine.hpp"

namespace ptx {

// What the accumulators of wgmma and mma.sync are. Attribute values; lower/matrix.py mirrors them.
enum class Accumulators : u8 { kF32, kF16, kS32 };

// Swizzle of a shared-memory tile: 16-byte chunks are permuted within rows of `span` bytes.
enum class Swizzle : u8 { kNone, k32, k64, k128 };

constexpr u32 span_of(Swizzle swizzle) { return 16u << u32(swizzle); }

// Where the 16-byte chunk that belongs at `offset` is stored: bits 4.. are xored with bits 7...
constexpr u32 swizzled(u32 offset, Swizzle swizzle) { return offset ^ ((offset >> 3) & (span_of(swizzle) - 16)); }

// A matrix descriptor of wgmma or tcgen05, decoded. Offsets in bytes.
struct MatrixDescriptor {
  u32 start = 0, leading = 0, stride = 0;
  Swizzle swizzle = Swizzle::kNone;
};

// An operand tile: `rows` along M or N from row `first`, `depth` along K.
struct OperandTile {
  MatrixDescriptor descriptor;
  bool k_major = true;
  Element element = Element::kBf16;
  u32 first = 0, rows = 0, depth = 0;
};

// Reads a tile through the async proxy as floats: element (row, k) goes to out[row_index(row) * row_pitch + k *
// k_pitch], with rows counted from the tile's first; one of the pitches is 1. Checks bounds, initialisation and proxy
// fences; says whether every warp of the CTA would find the same.
struct PanelLayout {
  u32 row_pitch, k_pitch;
  bool interleave_columns = false;  // rows of a group of eight in the order 0 2 4 6 1 3 5 7 (accumulator fragments)
};
bool read_tile(const Place& place, Cta& cta, const OperandTile& tile, const PanelLayout& layout, float* out);

// The first and last byte of shared memory between which a tile lies.
std::pair<u32, u32> extent_of(const OperandTile& tile);

// The shared-memory offset of every 16-byte chunk of a tile.
std::vector<u32> chunks_of(const OperandTile& tile);

// One row of a K-major tile of 16-byte chunks, through the async proxy.
void read_row(const Place& place, Cta& cta, const MatrixDescriptor& descriptor, u32 row, u32 chunks, u8* out);

// D[m][n] += sum over k of A[m][k] * B[k][n]: the sum by fused multiply-adds in fp32 with k ascending, then one addition
// to D. Tensor cores add D and all products of an instruction at once and never round D between them (Khattak and
// Mikaitis, "Accurate models of NVIDIA tensor cores", 2025), so a long sum of equal products loses half an ulp per
// instruction at most. N is a multiple of 8. A is [m][k]; m is a multiple of 8.
struct RowProduct {
  const float* a;
  const float* b;
  u32 b_pitch;
  float* d;
  u32 d_pitch, m, n, k;
};
void multiply_rows(const RowProduct& product);

// The same for 16 rows held as accumulator fragments: element l of row d[4j+2h+p] is D[l/4 + 8h][8j + 2(l%4) + p].
// `a` is [k][2][32] (row l/4 + 8h for lane l), `b` is [k][n] with interleaved columns and kPanelPadding
// elements behind that may be read, `d` has n/2 rows.
constexpr u32 kPanelPadding = 8;
void multiply_fragments(const float* a, const float* b, float* const* d, u32 n, u32 k);

// A as multiply_fragments takes it. Of a fragment in registers, register q of lane l holds row l/4 + 8(q%2), columns from
// (l%4 + 4(q/2)) * e, where e is the elements of a register; `registers` are [count][32]. `columns` are [k][16].
void spread_fragment(Element element, const u32* registers, u32 count, float* out);
void spread_columns(const float* columns, u32 k, float* out);

// f16 accumulators: register 2j+h packs columns 8j + 2(l%4) and the next of row l/4 + 8h; as floats they are two rows of
// `rows`, which are [n/2][32].
void unpack_half(const u32* packed, u32 number, float* rows);
void pack_half(const float* rows, u32 number, u32* packed);

// s32 accumulators: adds sums, which are exact in fp32 for products of 8-bit integers. Wraps around or saturates.
void add_integers(const float* sums, u32 count, bool accumulate, bool saturate, u32* to);

}  // namespace ptx
