// wgmma: asynchronous products of a warpgroup. Each warp computes its 16 rows of the 64.
//
// wgmma.mma: operands = accumulators, A (4 registers or a descriptor), B descriptor, scale-d predicate;
//            attributes = n, element of A, element of B, f16 accumulators, A in registers, negate A, negate B,
//            A is MN-major, B is MN-major
// wgmma.move: operands = register, register or constant: a mov between registers that products use
#include "wgmma.hpp"

#include <algorithm>
#include <cstring>

#include "matrix.hpp"
#include "waits.hpp"

namespace ptx {
namespace {

constexpr u32 kMaxColumns = 256;
constexpr u32 kWarpsOfGroup = 4;

struct Form {
  u32 columns, depth;
  Element a, b;
  bool half_accumulators, a_in_registers, negate, a_mn_major, b_mn_major;
  u32 accumulators;  // registers

  explicit Form(const Insn& insn)
      : columns(u32(insn.attr[0])),
        a(Element(insn.attr[1])),
        b(Element(insn.attr[2])),
        half_accumulators(insn.attr[3]),
        a_in_registers(insn.attr[4]),
        negate(insn.attr[5] != insn.attr[6]),
        a_mn_major(insn.attr[7]),
        b_mn_major(insn.attr[8]) {
    depth = 32 / bytes_of(a);
    accumulators = columns / (half_accumulators ? 4 : 2);
  }
  u64 flops() const { return 2ull * 16 * columns * depth; }
};

u32 first_of_group(const Warp& warp) { return warp.index / kWarpsOfGroup * kWarpsOfGroup; }

WgmmaState& state_of(Warp& warp) {
  if (!warp.wgmma) warp.wgmma = std::make_unique<WgmmaState>();
  return *warp.wgmma;
}

MatrixDescriptor decode_descriptor(const Place& place, u64 bits) {
  constexpr Swizzle kModes[] = {Swizzle::kNone, Swizzle::k128, Swizzle::k64, Swizzle::k32};
  if (bits >> 49 & 7)
    place.warp->illegal(*place.insn, "a matrix descriptor with a base offset is not supported by the simulator");
  if (bits >> 62 == 0 && (bits >> 52 & 0x3ff))
    place.warp->illegal(*place.insn,
                        format("matrix descriptor 0x%llx has reserved bits set", (unsigned long long)bits));
  return {u32(bits & 0x3fff) << 4, u32(bits >> 16 & 0x3fff) << 4, u32(bits >> 32 & 0x3fff) << 4, kModes[bits >> 62]};
}

// Computes a warp's quarter of a product onto accumulator rows [registers][32].
void compute(const WgmmaProduct& product, u32* accumulators) {
  const Form form(*product.place.insn);
  Warp& warp = *product.place.warp;
  alignas(64) float a_rows[16 * 32], a[32 * 2 * kLanes], b[32 * kMaxColumns], d[kMaxColumns / 2 * kLanes];
  const OperandTile right{
      decode_descriptor(product.place, product.b_descriptor), !form.b_mn_major, form.b, 0, form.columns, form.depth};
  read_tile(product.place, *warp.cta, right, {1, form.columns, true}, b);
  if (form.a_in_registers) {
    decode_fragment(form.a, product.a_fragment.data(), 4, form.depth, a_rows);
  } else {
    const OperandTile left{decode_descriptor(product.place, product.a_descriptor),
                           !form.a_mn_major,
                           form.a,
                           warp.index % kWarpsOfGroup * 16,
                           16,
                           form.depth};
    read_tile(product.place, *warp.cta, left, {form.depth, 1}, a_rows);
  }
  const float scale = (form.negate ? -1.0f : 1.0f) * warp.run->options.perturbation;
  if (scale != 1.0f)
    for (u32 i = 0; i < 16 * form.depth; ++i) a_rows[i] *= scale;
  spread_rows(a_rows, form.depth, a);
  const u32 words = form.accumulators * kLanes;
  if (!product.accumulate)
    std::fill_n(d, form.columns / 2 * kLanes, 0.0f);
  else if (form.half_accumulators)
    unpack_half(accumulators, form.accumulators, d);
  else
    std::memcpy(d, accumulators, words * 4);
  multiply_fragments(a, b, d, form.columns, form.depth);
  if (form.half_accumulators)
    pack_half(d, form.accumulators, accumulators);
  else
    std::memcpy(accumulators, d, words * 4);
}

void copy_out(Warp& warp, const Insn& insn, u32 count, u32* to) {
  for (u32 i = 0; i < count; ++i) std::memcpy(to + i * kLanes, warp.row(insn.ops[i].slot), kLanes * 4);
}

// What the last fence saw in a register, or null before the first fence.
u32* fenced_row(Warp& warp, i32 slot) {
  auto& fenced = warp.wgmma->fenced_rows;
  return fenced.empty() ? nullptr : &fenced[size_t(warp.launch->kernel->wgmma_row_index[size_t(slot)]) * kLanes];
}

// Writes a row of results to its register; what a product leaves there counts as fenced.
void write_result(Warp& warp, i32 slot, const u32* from) {
  std::memcpy(warp.row(slot), from, kLanes * 4);
  if (u32* fenced = fenced_row(warp, slot)) std::memcpy(fenced, from, kLanes * 4);
}

// The accumulator in flight that the registers of `insn` name, or null. From now on these are its only names.
WgmmaAccumulator* find_in_flight(WgmmaState& state, const Insn& insn, u32 count) {
  for (WgmmaAccumulator& accumulator : state.in_flight) {
    const auto& moved_to = accumulator.moved_to;
    const auto names = [&](u32 i) {
      const i32 slot = insn.ops[i].slot;
      return accumulator.slots[i] == slot ||
             std::find(moved_to.begin(), moved_to.end(), std::pair(slot, i)) != moved_to.end();
    };
    u32 i = 0;
    while (i < count && accumulator.slots.size() == count && names(i)) ++i;
    if (i < count) continue;
    for (i = 0; i < count; ++i) accumulator.slots[i] = insn.ops[i].slot;
    accumulator.moved_to.clear();
    return &accumulator;
  }
  return nullptr;
}

// Registers of the product that changed since the last wgmma.fence other than by a product.
void check_fence(const Place& place, const Form& form, bool accumulates_on_registers) {
  Warp& warp = *place.warp;
  if (!warp.wgmma->fenced) {
    warp.run->hazard(HazardKind::kMissingWgmmaFence, place,
                     [] { return "is the first product of the warp and no wgmma.fence precedes it"; });
    return;
  }
  const u32 first = accumulates_on_registers ? 0 : form.accumulators;
  const u32 last = form.accumulators + (form.a_in_registers ? 4 : 0);
  for (u32 i = first; i < last; ++i) {
    const i32 slot = place.insn->ops[i].slot;
    if (!std::memcmp(warp.row(slot), fenced_row(warp, slot), kLanes * 4)) continue;
    warp.run->hazard(HazardKind::kMissingWgmmaFence, place, [&] {
      return std::string(i < form.accumulators ? "accumulates onto registers" : "reads A from registers") +
             " that were written after the last wgmma.fence";
    });
    return;
  }
}

Step mma(Warp& warp, const Insn& insn, u32 mask) {
  if (mask != warp.live) return Step::kConverge;
  if (first_of_group(warp) + kWarpsOfGroup > warp.cta->warps.size())
    warp.illegal(insn, "the warp has no complete warpgroup");
  if (warp.live != kFullMask) warp.illegal(insn, "lanes of the warp have exited");
  const Place place{&warp, &insn, 0};
  const Form form(insn);
  WgmmaState& state = state_of(warp);
  WgmmaProduct product{place};
  u32 next = form.accumulators;
  if (form.a_in_registers) {
    product.a_fragment.resize(4 * kLanes);
    for (u32 q = 0; q < 4; ++q)
      std::memcpy(&product.a_fragment[q * kLanes], warp.row(insn.ops[next + q].slot), kLanes * 4);
    next += 4;
  } else {
    product.a_descriptor = warp.row64(insn.ops[next++].slot)[0];
  }
  product.b_descriptor = warp.row64(insn.ops[next].slot)[0];
  product.accumulate = warp.pred(insn.ops[next + 1]) & 1;
  product.accumulator = find_in_flight(state, insn, form.accumulators);
  check_fence(place, form, product.accumulate && !product.accumulator);
  product.number = state.issued++;
  Site& site = warp.run->site(place);
  site.flops += form.flops();
  site.dtype = name_of(form.a);
  if (warp.run->late(Deferred::kProduct)) {
    if (!product.accumulator) {
      WgmmaAccumulator& accumulator = state.in_flight.emplace_back();
      accumulator.rows.resize(form.accumulators * kLanes);
      copy_out(warp, insn, form.accumulators, accumulator.rows.data());
      for (u32 i = 0; i < form.accumulators; ++i) {
        accumulator.slots.push_back(insn.ops[i].slot);
        std::fill_n(warp.row(insn.ops[i].slot), kLanes, kPoison);
      }
      product.accumulator = &accumulator;
    }
    ++product.accumulator->products;
  } else {
    alignas(64) u32 rows[kMaxColumns / 2 * kLanes];
    copy_out(warp, insn, form.accumulators, rows);
    compute(product, rows);
    for (u32 i = 0; i < form.accumulators; ++i) write_result(warp, insn.ops[i].slot, rows + i * kLanes);
    product.done = true;
  }
  state.open.push_back(std::move(product));
  warp.run->event();
  return Step::kNext;
}

Step fence(Warp& warp, const Insn&, u32 mask) {
  if (mask != warp.live) return Step::kConverge;
  WgmmaState& state = state_of(warp);
  const auto& rows = warp.launch->kernel->wgmma_rows;
  state.fenced = true;
  state.fenced_rows.resize(rows.size() * kLanes);
  for (size_t i = 0; i < rows.size(); ++i) std::memcpy(&state.fenced_rows[i * kLanes], warp.row(rows[i]), kLanes * 4);
  return Step::kNext;
}

Step commit(Warp& warp, const Insn&, u32 mask) {
  if (mask != warp.live) return Step::kConverge;
  WgmmaState& state = state_of(warp);
  state.groups.push_back(std::move(state.open));
  state.open.clear();
  return Step::kNext;
}

// Products the warp must see complete before wait_group `pending` may pass.
u64 products_to_complete(const WgmmaState& state, size_t pending) {
  u64 later = state.open.size();
  for (size_t i = 0; i < std::min(pending, state.groups.size()); ++i)
    later += state.groups[state.groups.size() - 1 - i].size();
  return state.issued - later;
}

// A product belongs to the whole warpgroup: it completes only when all four warps have issued it.
const Warp* missing_partner(const Warp& warp, u64 products) {
  const auto& warps = warp.cta->warps;
  for (u32 i = first_of_group(warp); i < first_of_group(warp) + kWarpsOfGroup && i < warps.size(); ++i)
    if ((warps[i]->wgmma ? warps[i]->wgmma->issued : 0) < products) return warps[i].get();
  return nullptr;
}

void compute_in_flight(WgmmaProduct& product) {
  if (product.done) return;
  compute(product, product.accumulator->rows.data());
  product.done = true;
}

template <class Visit>
void for_group(Warp& warp, Visit visit) {
  const u32 first = first_of_group(warp);
  for (u32 i = first; i < first + kWarpsOfGroup; ++i) visit(*warp.cta->warps[i]->wgmma);
}

// Once one warp has seen a product complete, none of the four reads its operands any more.
void complete_for_group(Warp& warp, u64 products) {
  for_group(warp, [&](WgmmaState& state) {
    for (auto& group : state.groups)
      for (WgmmaProduct& product : group)
        if (product.number < products) compute_in_flight(product);
    for (WgmmaProduct& product : state.open)
      if (product.number < products) compute_in_flight(product);
    state.completed = std::max(state.completed, products);
  });
}

// Whether the warpgroup's first `products` are complete. A late schedule completes them when nothing else can proceed.
bool is_complete(Warp& warp, const Insn& insn, u64 products) {
  if (warp.wgmma->completed >= products) return true;
  if (missing_partner(warp, products)) return false;
  if (warp.wgmma->requested < products) {
    for_group(warp, [&](WgmmaState& state) { state.requested = std::max(state.requested, products); });
    warp.run->defer(
        {Deferred::kProduct, {&warp, &insn, 0}, false, [&warp, products] { complete_for_group(warp, products); }});
  }
  return warp.wgmma->completed >= products;
}

bool holds_poison(const u32* row) {
  return std::all_of(row, row + kLanes, [](u32 word) { return word == kPoison; });
}

// Gives a completed product's result to the registers, unless later products accumulate onto it. A register that was
// moved from may have got another value meanwhile.
void retire(Warp& warp, const WgmmaProduct& product) {
  WgmmaAccumulator* accumulator = product.accumulator;
  if (!accumulator || --accumulator->products) return;
  const u32* rows = accumulator->rows.data();
  for (size_t i = 0; i < accumulator->slots.size(); ++i) write_result(warp, accumulator->slots[i], rows + i * kLanes);
  for (const auto& [slot, i] : accumulator->moved_to)
    if (holds_poison(warp.row(slot))) write_result(warp, slot, rows + size_t(i) * kLanes);
  warp.wgmma->in_flight.remove_if([&](const WgmmaAccumulator& other) { return &other == accumulator; });
}

// Lets `to` name the row of an accumulator in flight that `from` names, if it does.
bool rename(WgmmaState& state, i32 from, i32 to) {
  for (WgmmaAccumulator& accumulator : state.in_flight) {
    auto& slots = accumulator.slots;
    auto& moved_to = accumulator.moved_to;
    auto row = u32(std::find(slots.begin(), slots.end(), from) - slots.begin());
    if (row < slots.size()) {
      moved_to.emplace_back(from, row);
    } else {
      const auto found = std::find_if(moved_to.begin(), moved_to.end(), [&](auto& name) { return name.first == from; });
      if (found == moved_to.end()) continue;
      row = found->second;
    }
    std::erase_if(moved_to, [&](auto& name) { return name.first == to; });
    slots[row] = to;
    return true;
  }
  return false;
}

// The compiler moves accumulators and puts constants into them where it likes, also between a fence and the products and
// while products run; ptxas renames the registers or adds what is missing. So a move is no access: an accumulator in
// flight gets another name, and what was fenced before the move is fenced after it.
Step move(Warp& warp, const Insn& insn, u32 mask) {
  const i32 to = insn.ops[0].slot, from = insn.ops[1].slot;
  u32 *target = warp.row(to), *source = warp.row(from);
  if (warp.wgmma && mask == kFullMask && rename(*warp.wgmma, from, to)) {
    std::fill_n(target, kLanes, kPoison);
    return Step::kNext;
  }
  for_lanes(mask, [&](u32 lane) { target[lane] = source[lane]; });
  u32* fenced = warp.wgmma ? fenced_row(warp, to) : nullptr;
  if (!fenced) return Step::kNext;
  const bool constant = warp.launch->kernel->wgmma_row_index[size_t(from)] < 0;
  const u32* fenced_source = constant ? source : fenced_row(warp, from);
  for_lanes(mask, [&](u32 lane) {
    if (source[lane] == fenced_source[lane]) fenced[lane] = source[lane];
  });
  return Step::kNext;
}

// wait_group: attribute = groups that may stay pending.
Step wait(Warp& warp, const Insn& insn, u32 mask) {
  if (mask != warp.live) return Step::kConverge;
  WgmmaState& state = state_of(warp);
  const size_t pending = size_t(insn.attr[0]);
  if (state.groups.size() <= pending) return Step::kNext;
  if (!is_complete(warp, insn, products_to_complete(state, pending))) return Step::kBlock;
  for (; state.groups.size() > pending; state.groups.pop_front())
    for (const WgmmaProduct& product : state.groups.front()) retire(warp, product);
  warp.run->event();
  return Step::kNext;
}

std::string describe_wait(Warp& warp, const Insn& insn, u32) {
  const Warp* partner = missing_partner(warp, products_to_complete(*warp.wgmma, size_t(insn.attr[0])));
  return partner ? format("warp %u of the warpgroup has not issued the same wgmma.mma_async", partner->index)
                 : "can proceed";
}

constexpr NamedHandler kTable[] = {
    {"wgmma.mma", mma},   {"wgmma.fence", fence}, {"wgmma.commit", commit},
    {"wgmma.wait", wait}, {"wgmma.move", move}};
constexpr Waiter kWaiters[] = {{wait, describe_wait}};

}  // namespace

void leave_wgmma(Warp& warp) {
  if (!warp.wgmma) return;
  const auto report = [&](const std::vector<WgmmaProduct>& products) {
    for (const WgmmaProduct& product : products)
      warp.run->hazard(HazardKind::kUnwaitedWgmma, product.place,
                       [] { return "was still in flight when its warp exited"; });
  };
  report(warp.wgmma->open);
  for (const auto& group : warp.wgmma->groups) report(group);
}

std::span<const NamedHandler> wgmma_handlers() { return kTable; }
std::span<const Waiter> wgmma_waiters() { return kWaiters; }

}  // namespace ptx
