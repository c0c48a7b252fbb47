#include "matrix.hpp"

#include <cstring>

namespace ptx {

namespace {

using Vec16 = float __attribute__((vector_size(64)));
using Vec8 = float __attribute__((vector_size(32)));
using Vec4 = float __attribute__((vector_size(16)));

template <class Vec>
Vec load(const float* from) {
  Vec value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class Vec>
void store(float* to, Vec value) {
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
  throw Fault{FaultKind::kIllegalAddress,
              format("%s: a matrix descriptor leads to shared byte %lld, but CTA (%u,%u,%u) has %u bytes (%s)",
                     place.insn->text.c_str(), (long long)offset - kReservedShared, cta.id[0], cta.id[1], cta.id[2],
                     cta.shared_bytes - kReservedShared, place.warp->name().c_str()),
              "Check start address, leading and stride offsets of the descriptor.", place.warp->launch->kernel->index,
              place.insn->position};
}

const u8* chunk_at(const Place& place, Cta& cta, u32 offset) {
  if (offset < kReservedShared || offset + 16 > cta.shared_bytes) outside(place, cta, offset);
  u64 flags[2];
  std::memcpy(flags, &cta.valid[offset], 16);
  constexpr u64 kAll = 0x0101010101010101ull;
  if ((flags[0] & flags[1]) != kAll || cta.dirty[offset / 16]) cta.check_async_read(place, offset, 16);
  return cta.shared_data(offset);
}

u32 interleaved(u32 row) { return (row & ~7u) | (row & 1) << 2 | (row >> 1 & 3); }

}  // namespace

void read_tile(const Place& place, Cta& cta, const OperandTile& tile, const PanelLayout& layout, float* out) {
  const u32 element_bytes = bytes_of(tile.element), per_chunk = 16 / element_bytes;
  const u32 row_step = tile.k_major ? 1 : per_chunk, k_step = tile.k_major ? per_chunk : 1;
  float values[16];
  for (u32 row = 0; row < tile.rows; row += row_step)
    for (u32 k = 0; k < tile.depth; k += k_step) {
      const u32 offset = tile.descriptor.start + chunk_offset(tile, tile.first + row, k, element_bytes);
      decode_chunk(tile.element, chunk_at(place, cta, swizzled(offset, tile.descriptor.swizzle)), values);
      for (u32 i = 0; i < per_chunk; ++i) {
        const u32 r = tile.k_major ? row : row + i, c = tile.k_major ? k + i : k;
        out[(layout.interleave_columns ? interleaved(r) : r) * layout.row_pitch + c * layout.k_pitch] = values[i];
      }
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
    for (; column + 32 <= n; column += 32) {
      Vec16 sum[4][2];
      for (u32 r = 0; r < 4; ++r)
        for (u32 h = 0; h < 2; ++h) sum[r][h] = load<Vec16>(out + r * size_t(d_pitch) + column + 16 * h);
      for (u32 step = 0; step < k; ++step) {
        const Vec16 right[2] = {load<Vec16>(b + step * size_t(b_pitch) + column),
                                load<Vec16>(b + step * size_t(b_pitch) + column + 16)};
        for (u32 r = 0; r < 4; ++r)
          for (u32 h = 0; h < 2; ++h) sum[r][h] += left[r * k + step] * right[h];
      }
      for (u32 r = 0; r < 4; ++r)
        for (u32 h = 0; h < 2; ++h) store(out + r * size_t(d_pitch) + column + 16 * h, sum[r][h]);
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

void unpack_half(const u32* packed, u32 registers, float* out) {
  for (u32 i = 0; i < registers; ++i)
    for (u32 lane = 0; lane < kLanes; ++lane) {
      const u32 value = packed[i * kLanes + lane], to = i / 2 * 4 + i % 2 * 2;
      out[to * kLanes + lane] = to_f32(f16{u16(value)});
      out[(to + 1) * kLanes + lane] = to_f32(f16{u16(value >> 16)});
    }
}

void pack_half(const float* in, u32 registers, u32* packed) {
  for (u32 i = 0; i < registers; ++i)
    for (u32 lane = 0; lane < kLanes; ++lane) {
      const u32 from = i / 2 * 4 + i % 2 * 2;
      packed[i * kLanes + lane] =
          to_f16(in[from * kLanes + lane]).bits | u32(to_f16(in[(from + 1) * kLanes + lane]).bits) << 16;
    }
}

void spread_rows(const float* rows, u32 k, float* out) {
  for (u32 step = 0; step < k; ++step)
    for (u32 half = 0; half < 2; ++half)
      for (u32 lane = 0; lane < kLanes; ++lane)
        out[(step * 2 + half) * kLanes + lane] = rows[(lane / 4 + 8 * half) * k + step];
}

[[gnu::optimize("fp-contract=fast")]]
void multiply_fragments(const float* a, const float* b, float* d, u32 n, u32 k) {
  for (u32 block = 0; block < n / 4; ++block) {  // eight columns of one parity: registers 4j+p and 4j+2+p
    float* low = d + (block / 2 * 4 + block % 2) * kLanes;
    float* high = low + 2 * kLanes;
    Vec16 sum[4] = {load<Vec16>(low), load<Vec16>(low + 16), load<Vec16>(high), load<Vec16>(high + 16)};
    for (u32 step = 0; step < k; ++step) {
      const Vec4 four = load<Vec4>(b + step * n + block * 4);
      const Vec16 right = __builtin_shufflevector(four, four, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3);
      for (u32 part = 0; part < 4; ++part) sum[part] += load<Vec16>(a + step * 2 * kLanes + part * 16) * right;
    }
    store(low, sum[0]), store(low + 16, sum[1]), store(high, sum[2]), store(high + 16, sum[3]);
  }
}

}  // namespace ptx
