#include "matrix.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace ptx {

namespace {

constexpr u32 kMaxChunk = 16;  // elements of 16 bytes

// The widest vector of the host.
#ifdef __AVX512F__
constexpr u32 kWidth = 16;
#else
constexpr u32 kWidth = 8;
#endif
using Vec = float __attribute__((vector_size(kWidth * 4)));
using Index = int __attribute__((vector_size(kWidth * 4)));
using Vec8 = float __attribute__((vector_size(32)));
using Index8 = int __attribute__((vector_size(32)));

template <class Value = Vec>
inline Value load(const float* from) {
  Value value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class Value>
inline void store(float* to, Value value) {
  std::memcpy(to, &value, sizeof value);
}

// Offset of the chunk at (row, k) from the descriptor's start: the canonical layouts of the PTX ISA (matrix
// descriptors).
u32 chunk_offset(const OperandTile& tile, u32 row, u32 k, u32 element_bytes) {
  const MatrixDescriptor& d = tile.descriptor;
  const u32 span = span_of(d.swizzle);
  if (tile.k_major) {
    const u32 at = k * element_bytes;
    const u32 within = d.swizzle == Swizzle::kNone ? at / 16 * d.leading : at;
    return row / 8 * d.stride + row % 8 * span + within;
  }
  if (d.swizzle == Swizzle::kNone) return row * element_bytes / 16 * d.stride + k / 8 * d.leading + k % 8 * 16;
  const u32 at = row * element_bytes;
  return at / span * d.leading + k / 8 * d.stride + k % 8 * span + at % span;
}

[[noreturn]] void outside(const Place& place, Cta& cta, u32 offset) {
  fail(place, FaultKind::kIllegalAddress,
       format("Out of bounds: a matrix descriptor leads to shared byte %lld, but CTA (%u,%u,%u) has %u bytes",
              (long long)offset - kReservedShared, cta.id[0], cta.id[1], cta.id[2], cta.shared_bytes - kReservedShared),
       "Check start address, leading and stride offsets of the descriptor.");
}

// The 16-byte chunk at an offset, of which the first `bytes` are read.
const u8* chunk_at(const Place& place, Cta& cta, u32 offset, u32 bytes = 16) {
  if (offset < kReservedShared || offset + 16 > cta.shared_bytes) outside(place, cta, offset);
  u64 flags[2];
  std::memcpy(flags, &cta.valid[offset], 16);
  constexpr u64 kAll = 0x0101010101010101ull;
  if ((flags[0] & flags[1]) != kAll || cta.dirty[offset / 16]) cta.check_async_read(place, offset, bytes);
  return cta.shared_data(offset);
}

constexpr u32 interleaved(u32 row) { return (row & ~7u) | (row & 1) << 2 | (row >> 1 & 3); }

// Transposes eight rows of eight elements: result i holds element i of every row.
void transpose(Vec8 (&rows)[8]) {
  Vec8 pairs[8], fours[8];
  for (u32 i = 0; i < 8; i += 2) {
    pairs[i] = __builtin_shuffle(rows[i], rows[i + 1], Index8{0, 8, 1, 9, 4, 12, 5, 13});
    pairs[i + 1] = __builtin_shuffle(rows[i], rows[i + 1], Index8{2, 10, 3, 11, 6, 14, 7, 15});
  }
  for (u32 i = 0; i < 8; i += 4)
    for (u32 j = 0; j < 2; ++j) {
      fours[i + 2 * j] = __builtin_shuffle(pairs[i + j], pairs[i + j + 2], Index8{0, 1, 8, 9, 4, 5, 12, 13});
      fours[i + 2 * j + 1] = __builtin_shuffle(pairs[i + j], pairs[i + j + 2], Index8{2, 3, 10, 11, 6, 7, 14, 15});
    }
  for (u32 i = 0; i < 4; ++i) {
    rows[i] = __builtin_shuffle(fours[i], fours[i + 4], Index8{0, 1, 2, 3, 8, 9, 10, 11});
    rows[i + 4] = __builtin_shuffle(fours[i], fours[i + 4], Index8{4, 5, 6, 7, 12, 13, 14, 15});
  }
}

class TileReader {
 public:
  TileReader(const Place& place, Cta& cta, const OperandTile& tile) : place_(place), cta_(cta), tile_(tile) {}

  // The elements of the chunk at (row, k), counted from the tile's first row.
  void read(u32 row, u32 k, float* out) const {
    const u32 offset = tile_.descriptor.start + chunk_offset(tile_, tile_.first + row, k, bytes_of(tile_.element));
    const u32 at = swizzled(offset, tile_.descriptor.swizzle);
    decode_chunk(tile_.element, chunk_at(place_, cta_, at, packed_bytes(tile_.element)), out);
  }

 private:
  const Place& place_;
  Cta& cta_;
  const OperandTile& tile_;
};

// A K-major tile turned into [k][row]: eight rows and eight elements along K at a time.
void read_transposed(const TileReader& reader, const OperandTile& tile, const PanelLayout& layout, float* out) {
  const u32 per_chunk = 16 / bytes_of(tile.element);
  alignas(32) float values[8][kMaxChunk] = {};
  for (u32 row = 0; row < tile.rows; row += 8)
    for (u32 k = 0; k < tile.depth; k += per_chunk) {
      for (u32 r = 0; r < 8; ++r)
        reader.read(row + r, k, values[layout.interleave_columns ? interleaved(r) : r]);
      for (u32 part = 0; part < per_chunk; part += 8) {
        Vec8 block[8];
        for (u32 r = 0; r < 8; ++r) block[r] = load<Vec8>(&values[r][part]);
        transpose(block);
        for (u32 i = 0; i < std::min(per_chunk, 8u); ++i) store(out + (k + part + i) * layout.k_pitch + row, block[i]);
      }
    }
}

}  // namespace

void read_tile(const Place& place, Cta& cta, const OperandTile& tile, const PanelLayout& layout, float* out) {
  const TileReader reader(place, cta, tile);
  if (tile.k_major && layout.row_pitch == 1) return read_transposed(reader, tile, layout, out);
  const u32 per_chunk = 16 / bytes_of(tile.element);
  const u32 row_step = tile.k_major ? 1 : per_chunk, k_step = tile.k_major ? per_chunk : 1;
  float values[kMaxChunk];
  for (u32 row = 0; row < tile.rows; row += row_step)
    for (u32 k = 0; k < tile.depth; k += k_step) {
      reader.read(row, k, values);
      for (u32 i = 0; i < per_chunk; ++i) {
        const u32 r = tile.k_major ? row : row + i, c = tile.k_major ? k + i : k;
        out[(layout.interleave_columns ? interleaved(r) : r) * layout.row_pitch + c * layout.k_pitch] = values[i];
      }
    }
}

std::vector<u32> chunks_of(const OperandTile& tile) {
  const u32 per_chunk = 16 / bytes_of(tile.element);
  const u32 row_step = tile.k_major ? 1 : per_chunk, k_step = tile.k_major ? per_chunk : 1;
  std::vector<u32> offsets;
  for (u32 row = 0; row < tile.rows; row += row_step)
    for (u32 k = 0; k < tile.depth; k += k_step)
      offsets.push_back(swizzled(tile.descriptor.start + chunk_offset(tile, tile.first + row, k, bytes_of(tile.element)),
                                 tile.descriptor.swizzle));
  return offsets;
}

void read_row(const Place& place, Cta& cta, const MatrixDescriptor& descriptor, u32 row, u32 chunks, u8* out) {
  const OperandTile tile{descriptor, true, Element::kU8};
  for (u32 chunk = 0; chunk < chunks; ++chunk) {
    const u32 offset = descriptor.start + chunk_offset(tile, row, chunk * 16, 1);
    std::memcpy(out + chunk * 16, chunk_at(place, cta, swizzled(offset, descriptor.swizzle)), 16);
  }
}

// Contraction is wanted here: one rounding a step, as the comment in the header promises.
[[gnu::optimize("fp-contract=fast")]]
void multiply_rows(const RowProduct& product) {
  const auto& [a, b, b_pitch, d, d_pitch, m, n, k] = product;
  for (u32 row = 0; row < m; row += 4) {
    const float* left = a + row * size_t(k);
    float* out = d + row * size_t(d_pitch);
    u32 column = 0;
    for (; column + 2 * kWidth <= n; column += 2 * kWidth) {
      Vec sum[4][2];
      for (u32 r = 0; r < 4; ++r)
        for (u32 h = 0; h < 2; ++h) sum[r][h] = load(out + r * size_t(d_pitch) + column + kWidth * h);
      for (u32 step = 0; step < k; ++step) {
        const float* from = b + step * size_t(b_pitch) + column;
        const Vec right[2] = {load(from), load(from + kWidth)};
        for (u32 r = 0; r < 4; ++r)
          for (u32 h = 0; h < 2; ++h) sum[r][h] += left[r * k + step] * right[h];
      }
      for (u32 r = 0; r < 4; ++r)
        for (u32 h = 0; h < 2; ++h) store(out + r * size_t(d_pitch) + column + kWidth * h, sum[r][h]);
    }
    for (; column < n; column += 8)
      for (u32 r = 0; r < 4; ++r) {
        Vec8 sum = load<Vec8>(out + r * size_t(d_pitch) + column);
        for (u32 step = 0; step < k; ++step)
          sum += left[r * k + step] * load<Vec8>(b + step * size_t(b_pitch) + column);
        store(out + r * size_t(d_pitch) + column, sum);
      }
  }
}

void decode_fragment(Element element, const u32* registers, u32 count, u32 depth, float* rows) {
  const u32 per_register = 4 / bytes_of(element), bits = 8 * bytes_of(element);
  for (u32 q = 0; q < count; ++q)
    for (u32 lane = 0; lane < kLanes; ++lane)
      for (u32 i = 0; i < per_register; ++i) {
        const u32 row = lane / 4 + 8 * (q % 2), column = (lane % 4 + q / 2 * 4) * per_register + i;
        rows[row * depth + column] = element_value(element, registers[q * kLanes + lane] >> (bits * i));
      }
}

void unpack_half(const u32* packed, u32 number, float* rows) {
  float* low = rows + (number / 2 * 4 + number % 2 * 2) * kLanes;
  for (int lane = 0; lane < kLanes; ++lane) {
    low[lane] = to_f32(f16{u16(packed[lane])});
    low[kLanes + lane] = to_f32(f16{u16(packed[lane] >> 16)});
  }
}

void pack_half(const float* rows, u32 number, u32* packed) {
  const float* low = rows + (number / 2 * 4 + number % 2 * 2) * kLanes;
  for (int lane = 0; lane < kLanes; ++lane)
    packed[lane] = to_f16(low[lane]).bits | u32(to_f16(low[kLanes + lane]).bits) << 16;
}

void add_integers(const float* sums, u32 count, bool accumulate, bool saturate, u32* to) {
  for (u32 i = 0; i < count; ++i) {
    const i64 sum = (accumulate ? i64(i32(to[i])) : 0) + std::lrint(sums[i]);
    to[i] = u32(saturate ? std::clamp<i64>(sum, INT32_MIN, INT32_MAX) : sum);
  }
}

void spread_rows(const float* rows, u32 k, float* out) {
  for (u32 step = 0; step < k; ++step)
    for (u32 half = 0; half < 2; ++half)
      for (u32 lane = 0; lane < kLanes; ++lane)
        out[(step * 2 + half) * kLanes + lane] = rows[(lane / 4 + 8 * half) * k + step];
}

namespace {

// Blocks of four columns that a vector holds, and vectors of a row of lanes.
constexpr u32 kVectorBlocks = kWidth / 4, kVectors = kLanes / kWidth;
// Rows of a block whose sums the vector registers hold at a time.
constexpr u32 kHalves = kWidth == 16 ? 2 : 1;

// Four elements of a vector, from 4i on, repeated.
inline Vec repeat(Vec values, u32 i) {
  Index pattern;
  for (u32 l = 0; l < kWidth; ++l) pattern[l] = int(4 * i + l % 4);
  return __builtin_shuffle(values, pattern);
}

// D for kBlocks blocks from `block` on and rows 8h + ... of halves from `half` on. A block is four columns of one
// parity, in rows 4j+p and 4j+2+p of D. Contraction as in multiply_rows.
template <u32 kBlocks>
[[gnu::optimize("fp-contract=fast")]]
void multiply_blocks(const float* a, const float* b, float* const* d, u32 n, u32 k, u32 block, u32 half) {
  Vec sum[kBlocks][kHalves][kVectors];
  float* rows[kBlocks][kHalves];
  for (u32 i = 0; i < kBlocks; ++i)
    for (u32 h = 0; h < kHalves; ++h) {
      rows[i][h] = d[(block + i) / 2 * 4 + 2 * (half + h) + (block + i) % 2];
      for (u32 v = 0; v < kVectors; ++v) sum[i][h][v] = load(rows[i][h] + kWidth * v);
    }
  for (u32 step = 0; step < k; ++step) {
    const Vec columns = load(b + step * n + block * 4);
    const float* left = a + (step * 2 + half) * kLanes;
    for (u32 i = 0; i < kBlocks; ++i) {
      const Vec right = repeat(columns, i);
      for (u32 h = 0; h < kHalves; ++h)
        for (u32 v = 0; v < kVectors; ++v) sum[i][h][v] += load(left + h * kLanes + v * kWidth) * right;
    }
  }
  for (u32 i = 0; i < kBlocks; ++i)
    for (u32 h = 0; h < kHalves; ++h)
      for (u32 v = 0; v < kVectors; ++v) store(rows[i][h] + kWidth * v, sum[i][h][v]);
}

}  // namespace

void multiply_fragments(const float* a, const float* b, float* const* d, u32 n, u32 k) {
  for (u32 half = 0; half < 2; half += kHalves) {
    u32 block = 0;
    for (; block + kVectorBlocks <= n / 4; block += kVectorBlocks)
      multiply_blocks<kVectorBlocks>(a, b, d, n, k, block, half);
    for (; block < n / 4; block += 2) multiply_blocks<2>(a, b, d, n, k, block, half);
  }
}

}  // namespace ptx
