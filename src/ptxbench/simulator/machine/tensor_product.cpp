// tcgen05.mma.
//
// tcgen05.mma: operands = D address, A (descriptor or tensor address), B descriptor, instruction descriptor, accumulate
//              predicate, then masks of lanes of D that stay as they are (none, or 4 words for each CTA), or the tensor
//              addresses of A's and B's scale factors, or a zero-column mask descriptor;
//              attributes = CTA group, kind, A in tensor memory, scale factors of a row (0: not scaled), weight-stationary,
//              whether columns are masked, binary logarithm of what D is divided by first
//
// Where rows of D lie (PTX ISA, data path layouts): M=128 of one CTA and M=256 of a pair: row i in lane i of its CTA;
// M=64: 16 rows in the lower or the upper half of each warp's lanes; M=128 of a pair: 64 rows a CTA, and the upper 64
// lanes hold columns N/2 on. Weight-stationary products of 64 and of 32 rows: every 64 or 32 lanes hold all rows, of the
// next half or quarter of the columns. A in tensor memory lies like D. Every cell holds one element of D, f16 in its lower
// half.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "races.hpp"
#include "tensor_product.hpp"

namespace ptx {
namespace {

constexpr u32 kMaxRows = 128, kMaxColumns = kMaxTensorColumns, kMaxDepth = kPackedDepth;

// A rectangle of D: `rows` from `row` in lanes from `lane`, columns [from, from + columns) of the product at the base
// column on.
struct Block {
  u32 row, rows, lane, from, columns;
};

std::vector<Block> blocks_of(const TensorProduct& product) {
  const u32 n = product.shape.n, m = product.shape.m;
  if (product.stationary && m == 32)
    return {{0, 32, 0, 0, n / 4}, {0, 32, 32, n / 4, n / 4}, {0, 32, 64, n / 2, n / 4}, {0, 32, 96, n / 4 * 3, n / 4}};
  if (product.stationary && m == 64) return {{0, 64, 0, 0, n / 2}, {0, 64, 64, n / 2, n / 2}};
  if (product.group == 2 && product.shape.m == 128) return {{0, 64, 0, 0, n / 2}, {0, 64, 64, n / 2, n / 2}};
  if (product.shape.m == 64) return {{0, 16, 0, 0, n}, {16, 16, 32, 0, n}, {32, 16, 64, 0, n}, {48, 16, 96, 0, n}};
  return {{0, 128, 0, 0, n}};
}

// A product of 64 rows uses one half of each warp's lanes.
void check_lane(const TensorProduct& product, const TensorAddress& at, const char* name) {
  if (at.lane == 0 || (product.group == 1 && !product.stationary && product.shape.m == 64 && at.lane == 16))
    return;
  product.place.warp->illegal(*product.place.insn, format("%s starts at lane %u", name, at.lane));
}

// A as [rows][depth] from the lanes of tensor memory: 32-bit cells hold consecutive elements.
void read_left_cells(const TensorProduct& product, Cta& cta, float* out) {
  const Element element = product.shape.a;
  const u32 depth = product.depth(), columns = depth * bytes_of(element) / 4, per_chunk = 16 / bytes_of(element);
  const TensorAddress at = product.a_address;
  TensorMemory& memory = tensor_columns(product.place, cta, at.column, columns);
  bool valid = true;
  for (const Block& block : blocks_of(product))
    for (u32 row = 0; row < block.rows; ++row) {
      const size_t index = size_t(at.lane + block.lane + row) * kTensorColumns + at.column;
      const u8* bytes = reinterpret_cast<const u8*>(memory.cells.data() + index);
      valid &= !std::memchr(&memory.valid[index], 0, columns);
      for (u32 chunk = 0; chunk < columns / 4; ++chunk)
        decode_chunk(element, bytes + 16 * chunk, out + (block.row + row) * depth + chunk * per_chunk);
    }
  if (!valid)
    product.place.warp->run->hazard(HazardKind::kUninitialisedTensorMemory, product.place, [&] {
      return format("reads A from columns %u on that nothing has written", at.column);
    });
}

// One row of D as floats that take the sums: the cells themselves, or a copy for the other formats.
void open_row(const TensorProduct& product, const u32* cells, u32 columns, float* sums) {
  if (!product.accumulate || product.shape.d == Accumulators::kS32)
    std::fill_n(sums, columns, 0.0f);
  else if (product.shape.d == Accumulators::kF16)
    for (u32 c = 0; c < columns; ++c) sums[c] = to_f32(f16{u16(cells[c])});
  else
    std::memcpy(sums, cells, columns * 4);
  if (product.input_scale != 1.0f)
    for (u32 c = 0; c < columns; ++c) sums[c] *= product.input_scale;
}

void close_row(const TensorProduct& product, const float* sums, u32 columns, u32* cells) {
  if (product.shape.d == Accumulators::kS32)
    add_integers(sums, columns, product.accumulate, product.shape.saturate, cells);
  else if (product.shape.d == Accumulators::kF16)
    for (u32 c = 0; c < columns; ++c) cells[c] = to_f16(sums[c]).bits;
  else
    std::memcpy(cells, sums, columns * 4);
}

// `number` is that of the CTA in the pair.
void accumulate_block(const TensorProduct& product, Cta& cta, u32 number, const Block& block, const float* a,
                      const float* b) {
  alignas(64) thread_local float sums[kMaxRows * kMaxColumns];
  const u32 depth = product.depth(), columns = block.columns, lane = product.d.lane + block.lane;
  TensorMemory& memory = tensor_columns(product.place, cta, product.d.column, columns);
  const auto row_at = [&](u32 row) { return size_t(lane + row) * kTensorColumns + product.d.column; };
  const auto cells = [&](u32 row) { return memory.cells.data() + row_at(row); };
  const bool whole = product.disabled == decltype(product.disabled){};
  // Sums are made where they lie.
  const bool in_place = product.shape.d == Accumulators::kF32 && product.input_scale == 1.0f && whole;
  const TensorRectangle region{lane, block.rows, product.d.column, columns};
  const bool ready = in_place && product.accumulate && memory.known.holds(region);
  bool valid = true;
  for (u32 row = 0; row < block.rows && !ready; ++row) {
    valid &= !product.accumulate || !product.is_enabled(number, lane + row) ||
             !std::memchr(&memory.valid[row_at(row)], 0, columns);
    if (!in_place)
      open_row(product, cells(row), columns, sums + row * columns);
    else if (!product.accumulate)
      std::fill_n(cells(row), columns, 0);
  }
  if (!valid)
    product.place.warp->run->hazard(HazardKind::kUninitialisedTensorMemory, product.place, [&] {
      return format("accumulates onto columns from %u on that nothing has written", product.d.column);
    });
  const bool known = product.accumulate && valid;  // enabled rows are initialised already
  const u32 pitch = in_place ? kTensorColumns : columns;
  float* d = in_place ? reinterpret_cast<float*>(cells(0)) : sums;
  multiply_rows({a + block.row * depth, b + block.from, product.shape.n, d, pitch, block.rows, columns, depth});
  for (u32 row = 0; row < block.rows && !ready; ++row) {
    if (!product.is_enabled(number, lane + row)) continue;
    if (!in_place) close_row(product, sums + row * columns, columns, cells(row));
    if (!known) std::memset(&memory.valid[row_at(row)], 1, columns);
  }
  if (whole) memory.known = region;
}

OperandTile right_tile(const TensorProduct& product) {
  const InstructionDescriptor& shape = product.shape;
  return {product.b, !shape.b_mn_major, shape.b, product.columns.shift, shape.n / product.group, product.depth()};
}

// B of one CTA as [depth][n], scaled.
void read_right(const TensorProduct& product, Cta& cta, u32 columns, float* b) {
  const InstructionDescriptor& shape = product.shape;
  const PanelLayout layout{1, shape.n};
  if (is_packed(product.kind))
    read_packed(product.place, cta, product.b, columns, layout, b);
  else
    read_tile(product.place, cta, right_tile(product), layout, b);
  for (u32 column = 0; product.stationary && column < columns; ++column)
    for (u32 k = 0; product.columns.zero[column] && k < product.depth(); ++k) b[k * shape.n + column] = 0;
}

// A of one CTA as [rows][depth], scaled.
void read_left(const TensorProduct& product, Cta& cta, float* a) {
  const InstructionDescriptor& shape = product.shape;
  const u32 depth = product.depth(), rows = product.rows();
  const PanelLayout layout{depth, 1};
  if (product.a_in_tensor_memory)
    read_left_cells(product, cta, a);
  else if (is_packed(product.kind))
    read_packed(product.place, cta, product.a, rows, layout, a);
  else
    read_tile(product.place, cta, {product.a, !shape.a_mn_major, shape.a, 0, rows, depth}, layout, a);
  if (product.scales)
    scale(product.place, cta, {product.a_scales, product.scales, shape.a_scale_id, shape.exponent_scales}, rows, depth,
          layout, a);
}

void compute(const TensorProduct& product) {
  alignas(64) thread_local float a[kMaxRows * kMaxDepth], b[kMaxColumns * kMaxDepth];
  Cta& own = *product.place.warp->cta;
  const InstructionDescriptor& shape = product.shape;
  const u32 depth = product.depth(), rows = product.rows(), columns = shape.n / product.group;
  for (u32 number = 0; number < product.group; ++number)
    read_right(product, pair_cta(own, product.group, number), columns, b + number * columns);
  if (product.scales)  // every CTA of a pair holds the factors of all of B
    scale(product.place, own, {product.b_scales, product.scales, shape.b_scale_id, shape.exponent_scales}, shape.n, depth,
          {1, shape.n}, b);
  const float factor = (shape.negate ? -1.0f : 1.0f) * own.cluster->launch->run->options.perturbation;
  for (u32 number = 0; number < product.group; ++number) {
    Cta& cta = pair_cta(own, product.group, number);
    read_left(product, cta, a);
    if (factor != 1.0f) std::for_each(a, a + rows * depth, [&](float& value) { value *= factor; });
    for (const Block& block : blocks_of(product)) accumulate_block(product, cta, number, block, a, b);
  }
}

// What the product reads from shared memory.
void check_operands(const TensorProduct& product) {
  Warp& warp = *product.place.warp;
  if (!warp.cta->cluster->races) return;
  const u32 step = u32(warp.cta->tensor_memory->issued()) + 1;
  for (u32 number = 0; number < product.group; ++number) {
    Cta& cta = pair_cta(*warp.cta, product.group, number);
    const auto check = [&](const OperandTile& tile) {
      check_tile(product.place, Engine::kTensorPipe, warp.number(), step, cta, tile);
    };
    check(right_tile(product));
    if (!product.a_in_tensor_memory)
      check({product.a, !product.shape.a_mn_major, product.shape.a, 0, product.rows(), product.depth()});
  }
}

TensorWork work_of(const TensorProduct& product) {
  const bool half = product.group == 1 && product.shape.m == 64 && !product.stationary;
  const auto halves = [&](const TensorAddress& at) { return half ? 1u << (at.lane / 16 & 1) : 3u; };
  const u32 columns = blocks_of(product)[0].columns;
  TensorWork work{product.place, [product] { compute(product); }, {product.d.column, columns, halves(product.d)}};
  work.group = product.group;
  work.accumulates = product.accumulate;
  if (product.a_in_tensor_memory) work.reads = {product.a_address.column, 8, halves(product.a_address)};
  // Shape and kind, and where the accumulator lies. Scale factor IDs are no part of the shape.
  const u64 place = u64(product.d.lane) << 16 | product.d.column;
  const u32 shape = product.scales ? product.shape.bits & ~0x60000030u : product.shape.bits;
  work.pipeline = u64(1) << 63 | u64(product.stationary) << 62 | place << 36 | u64(product.kind) << 33 | u64(product.group - 1) << 32 | shape;
  return work;
}

Step mma(Warp& warp, const Insn& insn, u32 mask) {
  const u32 group = u32(insn.attr[0]);
  const TensorKind kind = TensorKind(insn.attr[1]);
  check_pair(warp, insn, group);
  for_lanes(mask, [&](u32 lane) {
    const Place place{&warp, &insn, lane};
    const bool cells = insn.attr[2];
    const bool stationary = insn.attr[4], masked = insn.attr[5];
    const u32 scales = u32(insn.attr[3]), bits = warp.row(insn.ops[3].slot)[lane];
    const auto tensor_address = [&](size_t operand) { return TensorAddress(u32(address_of(warp, insn.ops[operand], lane))); };
    TensorProduct product{place,
                    kind,
                    group,
                    TensorAddress(u32(address_of(warp, insn.ops[0], lane))),
                    cells,
                    TensorAddress(cells ? u32(address_of(warp, insn.ops[1], lane)) : 0),
                    cells ? MatrixDescriptor{} : decode_tensor_descriptor(place, warp.row64(insn.ops[1].slot)[lane]),
                    decode_tensor_descriptor(place, warp.row64(insn.ops[2].slot)[lane]),
                    scales ? decode_scaled(place, kind, group, scales, bits) : decode_instruction(place, kind, group, stationary, bits),
                    bool(warp.pred(insn.ops[4]) >> lane & 1),
                    scales,
                    scales ? tensor_address(5) : TensorAddress(0),
                    scales ? tensor_address(6) : TensorAddress(0),
                    stationary,
                    {},
                    std::ldexp(1.0f, -insn.attr[6]),
                    {}};
    if (masked) product.columns = decode_column_mask(place, product.shape, warp.row64(insn.ops[5].slot)[lane]);
    for (size_t i = 5; i < insn.ops.size() && !scales && !masked; ++i) product.disabled[i - 5] = warp.row(insn.ops[i].slot)[lane];
    check_lane(product, product.d, "D");
    if (cells) check_lane(product, product.a_address, "A");
    if (cells && (is_packed(kind) || product.shape.a >= Element::kE2m3))
      warp.unsupported(insn, format("A of %s elements in tensor memory is not supported", name_of(product.shape.a)));
    if (cells && group == 2 && product.shape.m == 128)
      warp.unsupported(insn, "A in tensor memory of a CTA pair is not supported with M=128");
    if (cells && stationary && product.shape.m != 128)
      warp.unsupported(insn, "A in tensor memory of weight-stationary products is supported with M=128 only");
    if (product.shape.b_mn_major && product.columns.shift * bytes_of(product.shape.b) % 16)
      warp.unsupported(insn, "a shift of an MN-major B by other than 16 bytes is not supported");
    Site& site = warp.run->site(place);
    site.flops += 2ull * product.shape.m * product.shape.n * product.depth();
    site.dtype = name_of(product.shape.a);
    check_operands(product);
    start_tensor_work(work_of(product));
  });
  return Step::kNext;
}

constexpr NamedHandler kTable[] = {{"tcgen05.mma", mma}};

}  // namespace

std::span<const NamedHandler> tensor_product_handlers() { return kTable; }

}  // namespace ptx
