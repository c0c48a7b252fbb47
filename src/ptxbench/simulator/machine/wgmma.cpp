// wgmma: asynchronous products of a warpgroup.
//
// wgmma.mma:  operands = accumulators, A (4 registers or a descriptor), B descriptor, scale-d predicate;
//             attributes = n, element of A, element of B, accumulators, A in registers, negate A, negate B,
//             A is MN-major, B is MN-major, saturate
// wgmma.move: operands = register, register or constant: a mov between registers that products use
#include "wgmma.hpp"

#include <algorithm>
#include <cstring>

#include "races.hpp"
#include "uniform.hpp"
#include "waits.hpp"

namespace ptx {
namespace {

WgmmaState& state_of(Warp& warp) {
  if (!warp.wgmma) warp.wgmma = std::make_unique<WgmmaState>();
  return *warp.wgmma;
}

// Reports operands that differ from those of the warps of the group that have issued the same product.
void check_group(const WgmmaProduct& product) {
  Warp& warp = *product.place.warp;
  const u64 number = warp.wgmma->issued();
  for (u32 i = first_of_group(warp); i < first_of_group(warp) + kWarpsOfGroup; ++i) {
    const WgmmaState* state = warp.cta->warps[i]->wgmma.get();
    if (i == warp.index || !state || number < state->retired || number >= state->issued()) continue;
    const WgmmaProduct& other = state->products[number - state->retired];
    const char* name = other.accumulate != product.accumulate         ? "scale-d"
                       : other.a_descriptor != product.a_descriptor   ? "descriptor of A"
                       : other.b_descriptor != product.b_descriptor   ? "descriptor of B"
                                                                      : nullptr;
    if (!name) continue;
    warp.run->hazard(HazardKind::kDivergentOperand, product.place, [&] {
      return format("has another %s in %s than in warp %u of its warpgroup", name, warp.name().c_str(), i);
    });
    return;
  }
}

Step mma(Warp& warp, const Insn& insn, u32 mask) {
  if (mask != warp.live) return Step::kConverge;
  if (first_of_group(warp) + kWarpsOfGroup > warp.cta->warps.size())
    warp.illegal(insn, "the warp has no complete warpgroup");
  if (warp.live != kFullMask) warp.illegal(insn, "lanes of the warp have exited");
  const WgmmaForm form(insn);
  WgmmaState& state = state_of(warp);
  WgmmaProduct product{{&warp, &insn, 0}};
  check_uniform(product.place, insn.ops[insn.ops.size() - 2], warp.live, "descriptor of B");
  check_uniform(product.place, insn.ops.back(), warp.live, "scale-d");
  if (!form.a_in_registers) check_uniform(product.place, insn.ops[form.registers], warp.live, "descriptor of A");
  u32 next = form.registers;
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
  Site& site = warp.run->site(product.place);
  site.flops += form.flops();
  site.dtype = form.dtype();
  check_group(product);
  hold_accumulators(product);
  check_wgmma_reads(product, u32(state.issued()) + 1);
  if (!product.accumulator) {
    compute_wgmma(product);
    keep_results(product);
  }
  warp.run->hold_pending();
  state.products.push_back(std::move(product));
  warp.run->event();
  return Step::kNext;
}

Step fence(Warp& warp, const Insn&, u32 mask) {
  if (mask != warp.live) return Step::kConverge;
  state_of(warp);
  fence_registers(warp);
  return Step::kNext;
}

Step commit(Warp& warp, const Insn&, u32 mask) {
  if (mask != warp.live) return Step::kConverge;
  WgmmaState& state = state_of(warp);
  state.groups.push_back(state.issued());
  return Step::kNext;
}

// Products the warp must see complete before wait_group `pending` may pass.
u64 products_to_complete(const WgmmaState& state, size_t pending) {
  return state.groups.size() > pending ? state.groups[state.groups.size() - 1 - pending] : state.retired;
}

// A product belongs to the whole warpgroup: it completes only when all four warps have issued it.
const Warp* missing_partner(const Warp& warp, u64 products) {
  const auto& warps = warp.cta->warps;
  for (u32 i = first_of_group(warp); i < first_of_group(warp) + kWarpsOfGroup && i < warps.size(); ++i)
    if (!warps[i]->wgmma || warps[i]->wgmma->issued() < products) return warps[i].get();
  return nullptr;
}

template <class Visit>
void for_group(Warp& warp, Visit visit) {
  const u32 first = first_of_group(warp);
  for (u32 i = first; i < first + kWarpsOfGroup; ++i) visit(*warp.cta->warps[i]->wgmma);
}

// Once one warp has seen a product complete, none of the four reads its operands any more.
void complete_for_group(Warp& warp, u64 products) {
  for (u64 number = warp.wgmma->completed; number < products; ++number)
    for_group(warp, [&](WgmmaState& state) {
      const WgmmaProduct& product = state.products[number - state.retired];
      if (product.accumulator) compute_wgmma(product);
    });
  for_group(warp, [&](WgmmaState& state) { state.completed = std::max(state.completed, products); });
}

// Whether the warpgroup's first `products` are complete. A late schedule completes them when no warp can proceed.
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

// wait_group: attribute = groups that may stay pending.
Step wait(Warp& warp, const Insn& insn, u32 mask) {
  if (mask != warp.live) return Step::kConverge;
  WgmmaState& state = state_of(warp);
  const size_t pending = size_t(insn.attr[0]);
  if (state.groups.size() <= pending) return Step::kNext;
  const u64 products = products_to_complete(state, pending);
  if (!is_complete(warp, insn, products)) return Step::kBlock;
  waited_for(warp, Engine::kWgmma, group_number(warp), u32(products));
  for (; state.retired < products; ++state.retired, state.products.pop_front())
    retire_accumulators(state.products.front());
  state.groups.erase(state.groups.begin(), state.groups.end() - std::ptrdiff_t(pending));
  warp.run->event();
  return Step::kNext;
}

std::string describe_wait(Warp& warp, const Insn& insn, u32) {
  const Warp* partner = missing_partner(warp, products_to_complete(*warp.wgmma, size_t(insn.attr[0])));
  return partner ? format("for warp %u of its warpgroup, which has not issued the same wgmma.mma_async", partner->index)
                 : "and could go on";
}

constexpr NamedHandler kTable[] = {
    {"wgmma.mma", mma},   {"wgmma.fence", fence}, {"wgmma.commit", commit},
    {"wgmma.wait", wait}, {"wgmma.move", move_register}};
constexpr Waiter kWaiters[] = {{wait, describe_wait}};

}  // namespace

void leave_wgmma(Warp& warp) {
  if (!warp.wgmma) return;
  for (const WgmmaProduct& product : warp.wgmma->products)
    warp.run->hazard(HazardKind::kUnwaitedWgmma, product.place,
                     [] { return "was still in flight when its warp exited"; });
}

std::span<const NamedHandler> wgmma_handlers() { return kTable; }
std::span<const Waiter> wgmma_waiters() { return kWaiters; }

}  // namespace ptx
