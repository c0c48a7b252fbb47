// Operand tiles of wgmma and tcgen05 in shared memory, read through the async proxy and decoded to floats.
#include <algorithm>
#include <bit>
#include <cstring>

#include "matrix.hpp"
#include "vectors.hpp"

namespace ptx {
namespace {

constexpr u32 kMaxChunk = 16;   // elements of 16 bytes
constexpr u32 kMaxChunks = 64;  // of a line: 256 elements of 4 bytes
constexpr u32 kLines = 8;      // of a core matrix

// Where the 16-byte chunks of a tile lie: the canonical layouts of the PTX ISA (matrix descriptors). A line is a row of
// a K-major tile, and a step along K of an MN-major one. Eight lines, `pitch` apart, make a group; along a line, a run of
// chunks is contiguous.
class ChunkGrid {
 public:
  explicit ChunkGrid(const OperandTile& tile)
      : swizzle_(tile.descriptor.swizzle),
        start_(tile.descriptor.start),
        pitch_(span_of(swizzle_)),
        run_bits_(u32(std::countr_zero(pitch_ / 16))) {
    const MatrixDescriptor& d = tile.descriptor;
    const u32 element = bytes_of(tile.element);
    const bool plain = swizzle_ == Swizzle::kNone;
    group_ = plain && !tile.k_major ? d.leading : d.stride;
    jump_ = tile.k_major ? (plain ? d.leading : pitch_) : (plain ? d.stride : d.leading);
    first_line_ = tile.k_major ? tile.first : 0;
    const u32 first_chunk = tile.k_major ? 0 : tile.first * element / 16;
    lines = tile.k_major ? tile.rows : tile.depth;
    chunks = ((tile.k_major ? tile.depth : tile.rows) * element + 15) / 16;
    for (u32 chunk = 0; chunk < chunks; ++chunk) along_line_[chunk] = along_line(first_chunk + chunk);
  }

  // The shared-memory offset of a chunk, of which the line begins at `line_start`.
  u32 line_start(u32 line) const {
    line += first_line_;
    return start_ + line / kLines * group_ + line % kLines * pitch_;
  }
  u32 at(u32 line_start, u32 chunk) const { return swizzled(line_start + along_line_[chunk], swizzle_); }

  // A range of shared memory that holds the whole tile. Swizzling permutes chunks within 128 bytes.
  std::pair<u32, u32> extent() const {
    u32 low = ~0u, high = 0;
    for (const u32 line : {0u, std::min(lines, kLines) - 1, lines - 1})
      for (const u32 chunk : {0u, std::min(chunks, 1u << run_bits_) - 1, chunks - 1}) {
        const u32 offset = line_start(line) + along_line_[chunk];
        low = std::min(low, offset), high = std::max(high, offset);
      }
    return {low & ~127u, high | 127u};
  }

  u32 lines, chunks;

 private:
  u32 along_line(u32 chunk) const { return (chunk >> run_bits_) * jump_ + (chunk & ((1u << run_bits_) - 1)) * 16; }

  Swizzle swizzle_;
  u32 start_, pitch_, run_bits_, group_, jump_, first_line_;
  u32 along_line_[kMaxChunks];
};

[[noreturn]] void outside(const Place& place, Cta& cta, u32 offset) {
  fail(place, FaultKind::kIllegalAddress,
       format("Out of bounds: a matrix descriptor leads to shared byte %lld, but CTA (%u,%u,%u) has %u bytes",
              (long long)offset - kReservedShared, cta.id[0], cta.id[1], cta.id[2], cta.shared_bytes - kReservedShared),
       "Check start address, leading and stride offsets of the descriptor.");
}

// Chunks of a tile that needs no checks.
class CleanReader {
 public:
  CleanReader(Cta& cta, const ChunkGrid& grid) : data_(cta.shared_data(0)), grid_(grid) {}
  const u8* at(u32 line_start, u32 chunk) const { return data_ + grid_.at(line_start, chunk); }

 private:
  const u8* data_;
  const ChunkGrid& grid_;
};

// Chunks of a tile, each of which is checked.
class CheckedReader {
 public:
  CheckedReader(const Place& place, Cta& cta, const ChunkGrid& grid, u32 bytes)
      : place_(place), cta_(cta), grid_(grid), bytes_(bytes) {}

  const u8* at(u32 line_start, u32 chunk) {
    const u32 offset = grid_.at(line_start, chunk);
    if (offset < kReservedShared || offset + 16 > cta_.shared_bytes) outside(place_, cta_, offset);
    if (!cta_.is_clean(offset)) same_for_all &= cta_.check_async_read(place_, offset, bytes_);
    return cta_.shared_data(offset);
  }

  bool same_for_all = true;  // whether every warp would find what this one has found

 private:
  const Place& place_;
  Cta& cta_;
  const ChunkGrid& grid_;
  u32 bytes_;  // of a chunk that are read
};

template <class T>
constexpr auto kDecodeHalves = [](const u8* bytes, float* out) { decode_halves<T>(bytes, out); };

constexpr u32 interleaved(u32 row) { return (row & 1) << 2 | (row >> 1 & 3); }

// Lines stay lines: element i of a line goes to out[line * pitch + i].
template <class Reader, class Decode>
void read_lines(Reader& reader, const ChunkGrid& grid, u32 per_chunk, bool interleave, u32 pitch, float* out,
                Decode decode) {
  for (u32 line = 0; line < grid.lines; ++line) {
    const u32 start = grid.line_start(line);
    for (u32 chunk = 0; chunk < grid.chunks; ++chunk) {
      float* to = out + line * pitch + chunk * per_chunk;
      decode(reader.at(start, chunk), to);
      for (u32 part = 0; interleave && part < per_chunk; part += 8) {
        const Vec8 row = load<Vec8>(to + part);
        store(to + part, __builtin_shuffle(row, Index8{0, 2, 4, 6, 1, 3, 5, 7}));
      }
    }
  }
}

// Lines become columns: element i of a line goes to out[i * pitch + line], eight lines and eight elements at a time.
template <class Reader, class Decode>
void read_columns(Reader& reader, const ChunkGrid& grid, u32 per_chunk, bool interleave, u32 pitch, float* out,
                  Decode decode) {
  alignas(32) float values[kLines][kMaxChunk] = {};
  for (u32 line = 0; line < grid.lines; line += kLines) {
    u32 starts[kLines];
    for (u32 l = 0; l < kLines; ++l) starts[l] = grid.line_start(line + l);
    for (u32 chunk = 0; chunk < grid.chunks; ++chunk) {
      for (u32 l = 0; l < kLines; ++l) decode(reader.at(starts[l], chunk), values[interleave ? interleaved(l) : l]);
      for (u32 part = 0; part < per_chunk; part += 8) {
        Vec8 block[8];
        for (u32 l = 0; l < kLines; ++l) block[l] = load<Vec8>(&values[l][part]);
        transpose(block);
        float* to = out + (chunk * per_chunk + part) * pitch + line;
        for (u32 i = 0; i < std::min(per_chunk, 8u); ++i) store(to + i * pitch, block[i]);
      }
    }
  }
}

template <class Reader, class Decode>
void read_chunks(Reader& reader, const ChunkGrid& grid, const OperandTile& tile, const PanelLayout& layout, float* out,
                 Decode decode) {
  const u32 per_chunk = 16 / bytes_of(tile.element);
  const u32 line_pitch = tile.k_major ? layout.row_pitch : layout.k_pitch;
  const u32 element_pitch = tile.k_major ? layout.k_pitch : layout.row_pitch;
  if (element_pitch == 1)
    read_lines(reader, grid, per_chunk, layout.interleave_columns, line_pitch, out, decode);
  else
    read_columns(reader, grid, per_chunk, layout.interleave_columns, element_pitch, out, decode);
}

template <class Reader>
void read_elements(Reader& reader, const ChunkGrid& grid, const OperandTile& tile, const PanelLayout& layout,
                   float* out) {
  switch (tile.element) {
    case Element::kBf16: return read_chunks(reader, grid, tile, layout, out, kDecodeHalves<bf16>);
    case Element::kF16: return read_chunks(reader, grid, tile, layout, out, kDecodeHalves<f16>);
    default:
      return read_chunks(reader, grid, tile, layout, out,
                         [&](const u8* bytes, float* values) { decode_chunk(tile.element, bytes, values); });
  }
}

}  // namespace

bool read_tile(const Place& place, Cta& cta, const OperandTile& tile, const PanelLayout& layout, float* out) {
  const ChunkGrid grid(tile);
  const auto [first, last] = grid.extent();
  if (first >= kReservedShared && last < cta.shared_bytes && cta.is_clean(first, last)) {
    CleanReader reader(cta, grid);
    read_elements(reader, grid, tile, layout, out);
    return true;
  }
  CheckedReader reader(place, cta, grid, packed_bytes(tile.element));
  read_elements(reader, grid, tile, layout, out);
  return reader.same_for_all;
}

std::pair<u32, u32> extent_of(const OperandTile& tile) { return ChunkGrid(tile).extent(); }

std::vector<u32> chunks_of(const OperandTile& tile) {
  const ChunkGrid grid(tile);
  std::vector<u32> offsets;
  offsets.reserve(size_t(grid.lines) * grid.chunks);
  for (u32 line = 0; line < grid.lines; ++line)
    for (u32 chunk = 0; chunk < grid.chunks; ++chunk) offsets.push_back(grid.at(grid.line_start(line), chunk));
  return offsets;
}

void read_row(const Place& place, Cta& cta, const MatrixDescriptor& descriptor, u32 row, u32 chunks, u8* out) {
  const ChunkGrid grid({descriptor, true, Element::kU8, row, 1, 16 * chunks});
  CheckedReader reader(place, cta, grid, 16);
  for (u32 chunk = 0; chunk < chunks; ++chunk) std::memcpy(out + chunk * 16, reader.at(grid.line_start(0), chunk), 16);
}

}  // namespace ptx
