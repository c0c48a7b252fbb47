#include "tensor_loads.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "races.hpp"

namespace ptx {
namespace {

constexpr u32 kSharedBit = 62;
constexpr u64 kByLoad = u64(1) << 63;  // filled by tcgen05.ld itself, not through moves

constexpr u64 bit_of(size_t load) { return u64(1) << std::min<size_t>(load, kSharedBit); }

struct Move {
  std::span<const Operand> to, from;
};

// What an instruction moves between registers as it is; nothing if it does anything else.
Move move_of(const Insn& insn) {
  static const Handler kUnpack[] = {find_handler("unpack.b16"), find_handler("unpack.b32"), find_handler("unpack.b64"),
                                    find_handler("unpack.b128")};
  if (!insn.text.starts_with("mov.")) return {};
  const std::span<const Operand> all(insn.ops);
  const bool unpacks = std::find(std::begin(kUnpack), std::end(kUnpack), insn.handler) != std::end(kUnpack);
  return unpacks ? Move{all.subspan(1), all.first(1)} : Move{all.first(1), all.subspan(1)};
}

}  // namespace

void TensorLoads::mark(const Operand& operand, u64 loads) {
  if (operand.slot < 0) return;
  if (!std::exchange(loading_[size_t(operand.slot)], loads) && loads) marked_.push_back(operand.slot);
}

void TensorLoads::issue(Warp& warp, const Insn& insn, u32 registers, std::function<void()> run) {
  Races* races = warp.cta->cluster->races.get();
  for (u32 i = 0; i < registers; ++i) mark(insn.ops[i], kByLoad | bit_of(loads_.size()));
  warp.run->hold_pending();
  loads_.push_back({std::move(run), races ? races->steps(Engine::kTensorLoad, warp.number()) : 0});
}

void TensorLoads::look_at(Warp& warp, const Insn& insn) {
  u64 touched = 0;
  for (const Operand& operand : insn.ops) touched |= loading(operand);
  if (!touched) return;
  run_all();
  const Move move = move_of(insn);
  const bool overwrites =
      std::any_of(move.to.begin(), move.to.end(), [&](const Operand& it) { return loading(it) & kByLoad; });
  if (move.to.empty() || overwrites) {
    warp.run->hazard(HazardKind::kUnwaitedTensorLoad, {&warp, &insn, 0},
                     [] { return "touches a register that tcgen05.ld loads before tcgen05.wait::ld"; });
    return use(warp, touched);
  }
  u64 moved = 0;
  for (const Operand& operand : move.from) moved |= loading(operand) & ~kByLoad;
  for (const Operand& operand : move.to) mark(operand, moved);
}

void TensorLoads::run_all() {
  for (Load& load : loads_)
    if (load.run) std::exchange(load.run, nullptr)();
}

// The given loads have completed. The race check knows only how many have, one after another.
void TensorLoads::use(Warp& warp, u64 used) {
  for (size_t i = 0; i < loads_.size(); ++i) loads_[i].completed |= (used & bit_of(i)) != 0;
  for (const i32 slot : marked_) {
    u64& loads = loading_[size_t(slot)];
    loads &= ~used;
    if (!(loads & ~kByLoad)) loads = 0;
  }
  std::erase_if(marked_, [&](i32 slot) { return !loading_[size_t(slot)]; });
  for (const Load& load : loads_) {
    if (!load.completed) return;
    waited_for(warp, Engine::kTensorLoad, warp.number(), load.step);
  }
  loads_.clear();
}

void TensorLoads::complete(Warp& warp) {
  run_all();
  use(warp, ~kByLoad);
}

}  // namespace ptx
