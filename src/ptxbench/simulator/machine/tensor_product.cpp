// tcgen05.mma and tcgen05.commit.
//
// tcgen05.mma:    operands = D address, A (descriptor or tensor address), B descriptor, instruction descriptor,
//                 accumulate predicate; attributes = CTA group, kind, A in tensor memory
// tcgen05.commit: operands = mbarrier, CTA mask or none; attributes = CTA group, multicast
//
// Where rows of D lie (PTX ISA, data path layouts): M=128 of one CTA and M=256 of a pair: row i in lane i of its CTA;
// M=64: 16 rows in the lower half of each warp's lanes; M=128 of a pair: 64 rows a CTA, and the upper 64 lanes hold
// columns N/2 on.
#include <algorithm>
#include <cstring>

#include "matrix.hpp"
#include "mbarrier.hpp"
#include "tensor_memory.hpp"

namespace ptx {
namespace {

// Attribute values; lower/matrix.py mirrors them.
enum Kind : i32 { kKindF16, kKindTf32, kKindF8f6f4 };

struct InstructionDescriptor {
  u32 m, n;
  Element a, b;
  bool negate, a_mn_major, b_mn_major;
};

struct Product {
  Place place;
  u32 group;  // CTAs
  TensorAddress d;
  bool a_in_tensor_memory;
  TensorAddress a_address;
  MatrixDescriptor a, b;
  InstructionDescriptor shape;
  bool accumulate;
  u32 depth() const { return 32 / bytes_of(shape.a); }
};

Element element_of(const Place& place, Kind kind, u32 code) {
  if (kind == kKindF16 && code == 0) return Element::kF16;
  if (kind == kKindF16 && code == 1) return Element::kBf16;
  if (kind == kKindTf32 && code == 2) return Element::kTf32;
  if (kind == kKindF8f6f4 && code == 0) return Element::kE4m3;
  if (kind == kKindF8f6f4 && code == 1) return Element::kE5m2;
  place.warp->illegal(
      *place.insn,
      format("element format %u of the instruction descriptor is not supported by the simulator for this kind", code));
}

InstructionDescriptor decode_instruction(const Place& place, Kind kind, u32 group, u32 bits) {
  const auto refuse = [&](const char* what) {
    place.warp->illegal(*place.insn, format("instruction descriptor 0x%08x: %s", bits, what));
  };
  InstructionDescriptor shape{(bits >> 24 & 31) * 16,
                              (bits >> 17 & 63) * 8,
                              element_of(place, kind, bits >> 7 & 7),
                              element_of(place, kind, bits >> 10 & 7),
                              (bits >> 13 & 1) != (bits >> 14 & 1),
                              bool(bits >> 15 & 1),
                              bool(bits >> 16 & 1)};
  if (bits >> 2 & 1) refuse("sparse products are not supported by the simulator");
  if ((bits >> 4 & 3) != 1) refuse("only f32 accumulators are supported by the simulator");
  if (bits & 0x20800040u) refuse("reserved bits are set");
  if (group == 1 ? shape.m != 64 && shape.m != 128 : shape.m != 128 && shape.m != 256)
    refuse("M is not valid for this CTA group");
  const u32 step = group == 2 ? 32 : shape.m == 64 ? 8 : 16;
  if (!shape.n || shape.n > 256 || shape.n % step) refuse("N is not valid for this M");
  if (kind == kKindTf32 && (shape.a_mn_major || shape.b_mn_major))
    refuse("MN-major tf32 is not supported by the simulator");
  return shape;
}

MatrixDescriptor decode_descriptor(const Place& place, u64 bits) {
  const auto refuse = [&](const char* what) {
    place.warp->illegal(*place.insn, format("matrix descriptor 0x%llx: %s", (unsigned long long)bits, what));
  };
  if ((bits >> 46 & 7) != 1) refuse("bits 46 to 48 must be 1");
  if (bits >> 49 & 7) refuse("a base offset is not supported by the simulator");
  if (bits >> 52 & 1) refuse("an absolute leading dimension is not supported by the simulator");
  constexpr int kModes[] = {0, -1, 3, -1, 2, -1, 1, -1};  // Swizzle by bits 61 to 63
  const int mode = kModes[bits >> 61];
  if (mode < 0) refuse("the swizzle mode is not supported by the simulator");
  return {u32(bits & 0x3fff) << 4, u32(bits >> 16 & 0x3fff) << 4, u32(bits >> 32 & 0x3fff) << 4, Swizzle(mode)};
}

Cta& peer(Cta& cta, u32 group, u32 number) { return group == 1 ? cta : *cta.cluster->ctas[(cta.rank & ~1u) + number]; }

// A as [rows][depth] from the lanes of tensor memory: 32-bit cells hold consecutive elements.
void read_left_cells(const Product& product, Cta& cta, u32 rows, float* out) {
  const Element element = product.shape.a;
  const u32 depth = product.depth(), per_cell = 4 / bytes_of(element), bits = 8 * bytes_of(element),
            columns = depth / per_cell;
  const TensorAddress at = product.a_address;
  if (at.lane || rows != kTensorLanes)
    product.place.warp->illegal(*product.place.insn,
                                "A in tensor memory is supported by the simulator for 128 rows from lane 0 only");
  TensorMemory& memory = tensor_columns(product.place, cta, at.column, columns);
  bool valid = true;
  for (u32 row = 0; row < rows; ++row)
    for (u32 c = 0; c < columns; ++c) {
      const size_t index = size_t(row) * kTensorColumns + at.column + c;
      valid &= memory.valid[index];
      for (u32 i = 0; i < per_cell; ++i)
        out[row * depth + c * per_cell + i] = element_value(element, memory.cells.data()[index] >> (bits * i));
    }
  if (!valid)
    product.place.warp->run->hazard(HazardKind::kUninitialisedTensorMemory, product.place, [&] {
      return format("reads A from columns %u on that nothing has written", at.column);
    });
}

// A rectangle of D: `rows` from `row` in lanes from `lane`, columns [from, from + columns) of the product at the base
// column on.
struct Block {
  u32 row, rows, lane, from, columns;
};

std::vector<Block> blocks_of(const Product& product) {
  const u32 m = product.shape.m, n = product.shape.n;
  if (product.group == 2 && m == 128) return {{0, 64, 0, 0, n / 2}, {0, 64, 64, n / 2, n / 2}};
  if (m == 64) return {{0, 16, 0, 0, n}, {16, 16, 32, 0, n}, {32, 16, 64, 0, n}, {48, 16, 96, 0, n}};
  return {{0, 128, 0, 0, n}};
}

void accumulate_block(const Product& product, Cta& cta, const Block& block, const float* a, const float* b) {
  const u32 n = product.shape.n, depth = product.depth(), lane = product.d.lane + block.lane;
  if (lane + block.rows > kTensorLanes)
    product.place.warp->illegal(*product.place.insn, format("D starts at lane %u", product.d.lane));
  TensorMemory& memory = tensor_columns(product.place, cta, product.d.column, block.columns);
  const size_t origin = size_t(lane) * kTensorColumns + product.d.column;
  bool valid = true;
  for (u32 row = 0; row < block.rows; ++row) {
    u8* flags = &memory.valid[origin + row * kTensorColumns];
    if (product.accumulate)
      valid &= !std::memchr(flags, 0, block.columns);
    else
      std::fill_n(memory.cells.data() + origin + row * kTensorColumns, block.columns, 0);
    std::memset(flags, 1, block.columns);
  }
  if (!valid)
    product.place.warp->run->hazard(HazardKind::kUninitialisedTensorMemory, product.place, [&] {
      return format("accumulates onto columns from %u on that nothing has written", product.d.column);
    });
  multiply_rows({a + block.row * depth, b + block.from, n, reinterpret_cast<float*>(memory.cells.data() + origin),
                 kTensorColumns, block.rows, block.columns, depth});
}

void compute(const Product& product) {
  alignas(64) thread_local float a[128 * 32], b[256 * 32];
  Cta& own = *product.place.warp->cta;
  const InstructionDescriptor& shape = product.shape;
  const u32 depth = product.depth(), rows = shape.m / product.group, columns = shape.n / product.group;
  for (u32 number = 0; number < product.group; ++number)
    read_tile(product.place, peer(own, product.group, number),
              {product.b, !shape.b_mn_major, shape.b, 0, columns, depth}, {1, shape.n}, b + number * columns);
  const float scale = (shape.negate ? -1.0f : 1.0f) * own.cluster->launch->run->options.perturbation;
  for (u32 number = 0; number < product.group; ++number) {
    Cta& cta = peer(own, product.group, number);
    if (product.a_in_tensor_memory)
      read_left_cells(product, cta, rows, a);
    else
      read_tile(product.place, cta, {product.a, !shape.a_mn_major, shape.a, 0, rows, depth}, {depth, 1}, a);
    if (scale != 1.0f) std::for_each(a, a + rows * depth, [&](float& value) { value *= scale; });
    for (const Block& block : blocks_of(product)) accumulate_block(product, cta, block, a, b);
  }
}

void check_pair(Warp& warp, const Insn& insn, u32 group) {
  if (!warp.cta->tensor_memory) warp.illegal(insn, "the target has no tensor memory");
  if (group == 2 && (warp.cta->rank | 1) >= warp.cta->cluster->ctas.size())
    warp.illegal(insn, "cta_group::2 needs a cluster with an even number of CTAs");
}

Step mma(Warp& warp, const Insn& insn, u32 mask) {
  const u32 group = u32(insn.attr[0]);
  const Kind kind = Kind(insn.attr[1]);
  check_pair(warp, insn, group);
  for_lanes(mask, [&](u32 lane) {
    const Place place{&warp, &insn, lane};
    const bool cells = insn.attr[2];
    const InstructionDescriptor shape = decode_instruction(place, kind, group, warp.row(insn.ops[3].slot)[lane]);
    const Product product{place,
                          group,
                          TensorAddress(u32(address_of(warp, insn.ops[0], lane))),
                          cells,
                          TensorAddress(cells ? u32(address_of(warp, insn.ops[1], lane)) : 0),
                          cells ? MatrixDescriptor{} : decode_descriptor(place, warp.row64(insn.ops[1].slot)[lane]),
                          decode_descriptor(place, warp.row64(insn.ops[2].slot)[lane]),
                          shape,
                          bool(warp.pred(insn.ops[4]) >> lane & 1)};
    Site& site = warp.run->site(place);
    site.flops += 2ull * shape.m * shape.n * product.depth();
    site.dtype = name_of(shape.a);
    TensorWork work{place, nullptr};
    if (warp.run->late(Deferred::kProduct))
      work.run = [product] { compute(product); };
    else
      compute(product);
    warp.cta->tensor_memory->pipe.push_back(std::move(work));
  });
  warp.run->event();
  return Step::kNext;
}

// Completes the CTA's products in issue order, up to the given number.
void complete_pipe(Cta& cta, size_t count) {
  auto& pipe = cta.tensor_memory->pipe;
  for (size_t i = 0; i < count; ++i)
    if (pipe[i].run) pipe[i].run();
  pipe.erase(pipe.begin(), pipe.begin() + std::ptrdiff_t(count));
}

Step commit(Warp& warp, const Insn& insn, u32 mask) {
  check_pair(warp, insn, u32(insn.attr[0]));
  for_lanes(mask, [&](u32 lane) {
    const Place place{&warp, &insn, lane};
    const u32 barrier = cluster_address(place, insn.ops[0]);
    const u32 ranks = insn.attr[1] ? warp.row(insn.ops[1].slot)[lane] & 0xffff : 1u << (barrier >> kRankShift);
    const u64 issued = warp.cta->tensor_memory->issued();
    warp.run->defer({Deferred::kProduct, place, false, [=, &warp] {
                       TensorMemory& memory = *warp.cta->tensor_memory;
                       complete_pipe(*warp.cta, size_t(issued - std::min(issued, memory.completed)));
                       memory.completed = std::max(memory.completed, issued);
                       for_lanes(ranks, [&](u32 rank) {
                         mbarrier_arrive(place, (barrier & kOffsetMask) | rank << kRankShift, Scope::kCluster);
                       });
                     }});
  });
  return Step::kNext;
}

constexpr NamedHandler kTable[] = {{"tcgen05.mma", mma}, {"tcgen05.commit", commit}};

}  // namespace

std::span<const NamedHandler> tensor_product_handlers() { return kTable; }

}  // namespace ptx
