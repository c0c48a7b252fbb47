// tcgen05.mma.
//
// tcgen05.mma: operands = D address, A (descriptor or tensor address), B descriptor, instruction descriptor, accumulate
//              predicate, then masks of lanes of D that stay as they are (none, or 4 words for each CTA), or the tensor
//              addresses of A's and B's scale factors;
//              attributes = CTA group, kind, A in tensor memory, scale factors of a row (0: not scaled)
//
// Where rows of D lie (PTX ISA, data path layouts): M=128 of one CTA and M=256 of a pair: row i in lane i of its CTA;
// M=64: 16 rows in the lower or the upper half of each warp's lanes; M=128 of a pair: 64 rows a CTA, and the upper 64
// lanes hold columns N/2 on. A in tensor memory lies like D. Every cell holds one element of D, f16 in its lower half.
#include <algorithm>
#include <array>
#include <cstring>

#include "races.hpp"
#include "tensor_scale.hpp"

namespace ptx {
namespace {

// Attribute values; lower/matrix.py mirrors them.
enum Kind : i32 { kKindF16, kKindTf32, kKindF8f6f4, kKindI8, kKindMxf8f6f4, kKindMxf4, kKindMxf4nvf4 };
constexpr bool is_packed(Kind kind) { return kind == kKindMxf4 || kind == kKindMxf4nvf4; }

constexpr u32 kMaxRows = 128, kMaxColumns = 256, kMaxDepth = kPackedDepth;

struct InstructionDescriptor {
  u32 bits, m, n;
  Element a, b;
  Accumulators d;
  bool negate, a_mn_major, b_mn_major, saturate;
  u32 a_scale_id = 0, b_scale_id = 0;
  bool exponent_scales = false;
};

struct Product {
  Place place;
  Kind kind;
  u32 group;  // CTAs
  TensorAddress d;
  bool a_in_tensor_memory;
  TensorAddress a_address;
  MatrixDescriptor a, b;
  InstructionDescriptor shape;
  bool accumulate;
  u32 scales;  // factors of a row; 0 for products that are not scaled
  TensorAddress a_scales, b_scales;
  std::array<u32, 8> disabled;  // lanes of D, 4 words for each CTA
  u32 depth() const { return is_packed(kind) ? kPackedDepth : 32 / bytes_of(shape.a); }
  u32 rows() const { return shape.m / group; }
  bool is_enabled(u32 number, u32 lane) const { return !(disabled[number * 4 + lane / 32] >> lane % 32 & 1); }
};

Element element_of(const Place& place, Kind kind, u32 code) {
  if (kind == kKindF16 && code == 0) return Element::kF16;
  if (kind == kKindF16 && code == 1) return Element::kBf16;
  if (kind == kKindTf32 && code == 2) return Element::kTf32;
  if (kind == kKindI8 && code == 0) return Element::kU8;
  if (kind == kKindI8 && code == 1) return Element::kS8;
  if (is_packed(kind) && code == 1) return Element::kE2m1;
  if (kind == kKindF8f6f4 || kind == kKindMxf8f6f4) switch (code) {
      case 0: return Element::kE4m3;
      case 1: return Element::kE5m2;
      case 3: return Element::kE2m3;
      case 4: return Element::kE3m2;
      case 5: return Element::kE2m1;
    }
  place.warp->illegal(*place.insn,
                      format("element format %u of the instruction descriptor does not exist for this kind", code));
}

InstructionDescriptor decode_instruction(const Place& place, Kind kind, u32 group, u32 bits) {
  const auto refuse = [&](const char* what) {
    place.warp->illegal(*place.insn, format("instruction descriptor 0x%08x: %s", bits, what));
  };
  constexpr Accumulators kFormats[] = {Accumulators::kF16, Accumulators::kF32, Accumulators::kS32, Accumulators::kF32};
  InstructionDescriptor shape{bits,
                              (bits >> 24 & 31) * 16,
                              (bits >> 17 & 63) * 8,
                              element_of(place, kind, bits >> 7 & 7),
                              element_of(place, kind, bits >> 10 & 7),
                              kFormats[bits >> 4 & 3],
                              (bits >> 13 & 1) != (bits >> 14 & 1),
                              bool(bits >> 15 & 1),
                              bool(bits >> 16 & 1),
                              bool(bits >> 3 & 1)};
  if (bits >> 2 & 1) place.warp->unsupported(*place.insn, "sparse products are not supported");
  if ((bits >> 4 & 3) == 3 || (kind == kKindI8) != (shape.d == Accumulators::kS32) ||
      (kind == kKindTf32 && shape.d != Accumulators::kF32))
    refuse("the accumulator format is not valid for this kind");
  if (bits & 0x20800040u) refuse("reserved bits are set");
  if (kind == kKindI8 ? bits >> 13 & 3 : shape.saturate) refuse("negation is for floats, saturation for integers");
  if (group == 1 ? shape.m != 64 && shape.m != 128 : shape.m != 128 && shape.m != 256)
    refuse("M is not valid for this CTA group");
  const u32 step = group == 2 ? 32 : shape.m == 64 ? 8 : 16;
  if (!shape.n || shape.n > kMaxColumns || shape.n % step) refuse("N is not valid for this M");
  if (kind == kKindTf32 && (shape.a_mn_major || shape.b_mn_major))
    place.warp->unsupported(*place.insn, "MN-major tf32 is not supported");
  return shape;
}

// The descriptor of block-scaled products.
InstructionDescriptor decode_scaled(const Place& place, Kind kind, u32 group, u32 scales, u32 bits) {
  const auto refuse = [&](const char* what) {
    place.warp->illegal(*place.insn, format("instruction descriptor 0x%08x: %s", bits, what));
  };
  InstructionDescriptor shape{bits,
                              (bits >> 27 & 3) * 128,
                              (bits >> 17 & 63) * 8,
                              element_of(place, kind, bits >> 7 & 7),
                              element_of(place, kind, bits >> 10 & 7),
                              Accumulators::kF32,
                              (bits >> 13 & 1) != (bits >> 14 & 1),
                              bool(bits >> 15 & 1),
                              bool(bits >> 16 & 1),
                              false,
                              bits >> 29 & 3,
                              bits >> 4 & 3,
                              bool(bits >> 23 & 1)};
  if (bits >> 2 & 1) place.warp->unsupported(*place.insn, "sparse products are not supported");
  if (bits & 0x8700004bu) refuse("reserved bits are set");
  if (shape.m != 128 * group) {
    if (group == 2 && shape.m == 128)
      place.warp->unsupported(*place.insn, "block-scaled products of a CTA pair with M=128 are not supported");
    refuse("M is not valid for this CTA group");
  }
  if (!shape.n || shape.n > kMaxColumns || shape.n % (16 * group)) refuse("N is not valid for this M");
  if (is_packed(kind) && (shape.a_mn_major || shape.b_mn_major)) refuse("4-bit operands are K-major");
  if (kind != kKindMxf4nvf4 && !shape.exponent_scales) refuse("the scale factors of this kind are ue8m0");
  if (scales != 1 && (shape.a_scale_id % scales || shape.b_scale_id % scales)) refuse("a scale factor ID is not valid");
  return shape;
}

// A rectangle of D: `rows` from `row` in lanes from `lane`, columns [from, from + columns) of the product at the base
// column on.
struct Block {
  u32 row, rows, lane, from, columns;
};

std::vector<Block> blocks_of(const Product& product) {
  const u32 n = product.shape.n;
  if (product.group == 2 && product.shape.m == 128) return {{0, 64, 0, 0, n / 2}, {0, 64, 64, n / 2, n / 2}};
  if (product.shape.m == 64) return {{0, 16, 0, 0, n}, {16, 16, 32, 0, n}, {32, 16, 64, 0, n}, {48, 16, 96, 0, n}};
  return {{0, 128, 0, 0, n}};
}

// A product of 64 rows uses one half of each warp's lanes.
void check_lane(const Product& product, const TensorAddress& at, const char* name) {
  if (at.lane == 0 || (product.group == 1 && product.shape.m == 64 && at.lane == 16)) return;
  product.place.warp->illegal(*product.place.insn, format("%s starts at lane %u", name, at.lane));
}

// A as [rows][depth] from the lanes of tensor memory: 32-bit cells hold consecutive elements.
void read_left_cells(const Product& product, Cta& cta, float* out) {
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
void open_row(const Product& product, const u32* cells, u32 columns, float* sums) {
  if (!product.accumulate || product.shape.d == Accumulators::kS32)
    std::fill_n(sums, columns, 0.0f);
  else if (product.shape.d == Accumulators::kF16)
    for (u32 c = 0; c < columns; ++c) sums[c] = to_f32(f16{u16(cells[c])});
  else
    std::memcpy(sums, cells, columns * 4);
}

void close_row(const Product& product, const float* sums, u32 columns, u32* cells) {
  if (product.shape.d == Accumulators::kS32)
    add_integers(sums, columns, product.accumulate, product.shape.saturate, cells);
  else if (product.shape.d == Accumulators::kF16)
    for (u32 c = 0; c < columns; ++c) cells[c] = to_f16(sums[c]).bits;
  else
    std::memcpy(cells, sums, columns * 4);
}

// `number` is that of the CTA in the pair.
void accumulate_block(const Product& product, Cta& cta, u32 number, const Block& block, const float* a,
                      const float* b) {
  alignas(64) thread_local float sums[kMaxRows * kMaxColumns];
  const u32 depth = product.depth(), columns = block.columns, lane = product.d.lane + block.lane;
  TensorMemory& memory = tensor_columns(product.place, cta, product.d.column, columns);
  const auto row_at = [&](u32 row) { return size_t(lane + row) * kTensorColumns + product.d.column; };
  const auto cells = [&](u32 row) { return memory.cells.data() + row_at(row); };
  // f32 sums of all rows are made where they lie.
  const bool in_place = product.shape.d == Accumulators::kF32 && product.disabled == decltype(product.disabled){};
  bool valid = true;
  for (u32 row = 0; row < block.rows; ++row) {
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
  for (u32 row = 0; row < block.rows; ++row) {
    if (!product.is_enabled(number, lane + row)) continue;
    if (!in_place) close_row(product, sums + row * columns, columns, cells(row));
    if (!known) std::memset(&memory.valid[row_at(row)], 1, columns);
  }
}

// B of one CTA as [depth][n], scaled.
void read_right(const Product& product, Cta& cta, u32 columns, float* b) {
  const InstructionDescriptor& shape = product.shape;
  const PanelLayout layout{1, shape.n};
  if (is_packed(product.kind))
    read_packed(product.place, cta, product.b, columns, layout, b);
  else
    read_tile(product.place, cta, {product.b, !shape.b_mn_major, shape.b, 0, columns, product.depth()}, layout, b);
}

// A of one CTA as [rows][depth], scaled.
void read_left(const Product& product, Cta& cta, float* a) {
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

void compute(const Product& product) {
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
void check_operands(const Product& product) {
  Warp& warp = *product.place.warp;
  if (!warp.cta->cluster->races) return;
  const u32 step = u32(warp.cta->tensor_memory->issued()) + 1;
  for (u32 number = 0; number < product.group; ++number) {
    Cta& cta = pair_cta(*warp.cta, product.group, number);
    const auto check = [&](const OperandTile& tile) {
      check_tile(product.place, Engine::kTensorPipe, warp.number(), step, cta, tile);
    };
    check({product.b, !product.shape.b_mn_major, product.shape.b, 0, product.shape.n / product.group, product.depth()});
    if (!product.a_in_tensor_memory)
      check({product.a, !product.shape.a_mn_major, product.shape.a, 0, product.rows(), product.depth()});
  }
}

TensorWork work_of(const Product& product) {
  const bool half = product.group == 1 && product.shape.m == 64;
  const auto halves = [&](const TensorAddress& at) { return half ? 1u << (at.lane / 16 & 1) : 3u; };
  const u32 columns = product.group == 2 && product.shape.m == 128 ? product.shape.n / 2 : product.shape.n;
  TensorWork work{product.place, [product] { compute(product); }, {product.d.column, columns, halves(product.d)}};
  work.group = product.group;
  if (product.a_in_tensor_memory) work.reads = {product.a_address.column, 8, halves(product.a_address)};
  // Shape and kind, and where the accumulator lies. Scale factor IDs are no part of the shape.
  const u64 place = u64(product.d.lane) << 16 | product.d.column;
  const u32 shape = product.scales ? product.shape.bits & ~0x60000030u : product.shape.bits;
  work.pipeline = u64(1) << 63 | place << 36 | u64(product.kind) << 33 | u64(product.group - 1) << 32 | shape;
  return work;
}

Step mma(Warp& warp, const Insn& insn, u32 mask) {
  const u32 group = u32(insn.attr[0]);
  const Kind kind = Kind(insn.attr[1]);
  check_pair(warp, insn, group);
  for_lanes(mask, [&](u32 lane) {
    const Place place{&warp, &insn, lane};
    const bool cells = insn.attr[2];
    const u32 scales = u32(insn.attr[3]), bits = warp.row(insn.ops[3].slot)[lane];
    const auto tensor_address = [&](size_t operand) { return TensorAddress(u32(address_of(warp, insn.ops[operand], lane))); };
    Product product{place,
                    kind,
                    group,
                    TensorAddress(u32(address_of(warp, insn.ops[0], lane))),
                    cells,
                    TensorAddress(cells ? u32(address_of(warp, insn.ops[1], lane)) : 0),
                    cells ? MatrixDescriptor{} : decode_tensor_descriptor(place, warp.row64(insn.ops[1].slot)[lane]),
                    decode_tensor_descriptor(place, warp.row64(insn.ops[2].slot)[lane]),
                    scales ? decode_scaled(place, kind, group, scales, bits) : decode_instruction(place, kind, group, bits),
                    bool(warp.pred(insn.ops[4]) >> lane & 1),
                    scales,
                    scales ? tensor_address(5) : TensorAddress(0),
                    scales ? tensor_address(6) : TensorAddress(0),
                    {}};
    for (size_t i = 5; i < insn.ops.size() && !scales; ++i) product.disabled[i - 5] = warp.row(insn.ops[i].slot)[lane];
    check_lane(product, product.d, "D");
    if (cells) check_lane(product, product.a_address, "A");
    if (cells && (is_packed(kind) || product.shape.a >= Element::kE2m3))
      warp.unsupported(insn, format("A of %s elements in tensor memory is not supported", name_of(product.shape.a)));
    if (cells && group == 2 && product.shape.m == 128)
      warp.unsupported(insn, "A in tensor memory of a CTA pair is not supported with M=128");
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
