#include "matrix.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "vectors.hpp"

namespace ptx {

namespace {

// Rows whose sums the vector registers hold at a time, beside two vectors of columns.
constexpr u32 kRows = kWidth == 16 ? 8 : 4;

// A block of kRows rows and kVectors vectors of columns. Contraction is wanted here: one rounding a product, as the comment
// in the header promises.
template <class Value, u32 kVectors>
[[gnu::optimize("fp-contract=fast")]]
void multiply_block(const RowProduct& product, u32 row, u32 column) {
  constexpr u32 kElements = sizeof(Value) / 4;
  const float* left = product.a + row * size_t(product.k);
  const float* right = product.b + column;
  float* out = product.d + row * size_t(product.d_pitch) + column;
  for (u32 r = 0; r < kRows; ++r) __builtin_prefetch(out + r * size_t(product.d_pitch), 1);
  Value sum[kRows][kVectors] = {};
  for (u32 step = 0; step < product.k; ++step, right += product.b_pitch) {
    Value columns[kVectors];
    for (u32 v = 0; v < kVectors; ++v) columns[v] = load<Value>(right + v * kElements);
    for (u32 r = 0; r < kRows; ++r)
      for (u32 v = 0; v < kVectors; ++v) sum[r][v] += left[r * size_t(product.k) + step] * columns[v];
  }
  for (u32 r = 0; r < kRows; ++r)
    for (u32 v = 0; v < kVectors; ++v) add_to(out + r * size_t(product.d_pitch) + v * kElements, sum[r][v]);
}

}  // namespace

void multiply_rows(const RowProduct& product) {
  for (u32 row = 0; row < product.m; row += kRows) {
    u32 column = 0;
    for (; column + 2 * kWidth <= product.n; column += 2 * kWidth) multiply_block<Vec, 2>(product, row, column);
    for (; column < product.n; column += 8) multiply_block<Vec8, 1>(product, row, column);
  }
}

namespace {

// One element of every lane's register.
void decode_lanes(Element element, const u32* registers, u32 shift, float* out) {
  switch (element) {
    case Element::kBf16:
      for (int l = 0; l < kLanes; ++l) out[l] = to_f32(bf16{u16(registers[l] >> shift)});
      break;
    case Element::kF16:
      for (int l = 0; l < kLanes; ++l) out[l] = to_f32(f16{u16(registers[l] >> shift)});
      break;
    default:
      for (int l = 0; l < kLanes; ++l) out[l] = element_value(element, registers[l] >> shift);
  }
}

}  // namespace

void spread_fragment(Element element, const u32* registers, u32 count, float* out) {
  const u32 per_register = 4 / bytes_of(element), bits = 8 * bytes_of(element);
  alignas(64) float values[kLanes];
  for (u32 q = 0; q < count; ++q)
    for (u32 i = 0; i < per_register; ++i) {
      decode_lanes(element, registers + q * kLanes, bits * i, values);
      for (u32 column = 0; column < 4; ++column) {
        float* to = out + (((q / 2 * 4 + column) * per_register + i) * 2 + q % 2) * kLanes;
        for (u32 v = 0; v < kLanes; v += kWidth) store(to + v, repeat_in_fours(load(values + v), column));
      }
    }
}

void spread_columns(const float* columns, u32 k, float* out) {
  constexpr u32 kRows = kWidth / 4;  // of a vector
  for (u32 step = 0; step < k; ++step)
    for (u32 v = 0; v < 2 * kLanes / kWidth; ++v) {
      Index pattern;
      for (u32 l = 0; l < kWidth; ++l) pattern[l] = int(v * kRows % kWidth + l / 4);
      const Vec rows = load(columns + step * 16 + v * kRows / kWidth * kWidth);
      store(out + step * 2 * kLanes + v * kWidth, __builtin_shuffle(rows, pattern));
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

namespace {

// Blocks of four columns that a vector holds, and vectors of a row of lanes.
constexpr u32 kVectorBlocks = kWidth / 4, kVectors = kLanes / kWidth;
// Rows of a block whose sums the vector registers hold at a time.
constexpr u32 kHalves = kWidth == 16 ? 2 : 1;

// D for kBlocks blocks from `block` on and rows 8h + ... of halves from `half` on. A block is four columns of one
// parity, in rows 4j+p and 4j+2+p of D. Contraction as above.
template <u32 kBlocks>
[[gnu::optimize("fp-contract=fast")]]
void multiply_blocks(const float* a, const float* b, float* const* d, u32 n, u32 k, u32 block, u32 half) {
  Vec sum[kBlocks][kHalves][kVectors] = {};
  for (u32 step = 0; step < k; ++step) {
    const Vec columns = load(b + step * n + block * 4);
    const float* left = a + (step * 2 + half) * kLanes;
    for (u32 i = 0; i < kBlocks; ++i) {
      const Vec right = repeat_four(columns, i);
      for (u32 h = 0; h < kHalves; ++h)
        for (u32 v = 0; v < kVectors; ++v) sum[i][h][v] += load(left + h * kLanes + v * kWidth) * right;
    }
  }
  for (u32 i = 0; i < kBlocks; ++i)
    for (u32 h = 0; h < kHalves; ++h) {
      float* row = d[(block + i) / 2 * 4 + 2 * (half + h) + (block + i) % 2];
      for (u32 v = 0; v < kVectors; ++v) add_to(row + kWidth * v, sum[i][h][v]);
    }
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
