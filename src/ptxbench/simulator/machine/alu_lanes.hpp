// Lane-wise execution: applies a stateless function object to the 32 lanes of register rows.
//
// The loops have no branch inside, so the compiler vectorises them. A lane reads and writes its own elements only,
// which is what the ivdep pragma promises, also where a destination is one of the sources.
#pragma once
#include <bit>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include "machine.hpp"

namespace ptx {

using f32 = float;
using f64 = double;

template <class T>
using Word = std::conditional_t<sizeof(T) == 8, u64, u32>;

template <class T>
inline Word<T>* words(Warp& warp, const Operand& operand) {
  if constexpr (sizeof(T) == 8)
    return warp.row64(operand.slot);
  else
    return warp.row(operand.slot);
}

// Narrow values take the low bits of their word; the upper bits are ignored when read and zero when written.
template <class T>
inline T from_word(Word<T> word) {
  if constexpr (sizeof(T) == 1)
    return std::bit_cast<T>(u8(word));
  else if constexpr (sizeof(T) == 2)
    return std::bit_cast<T>(u16(word));
  else
    return std::bit_cast<T>(word);
}

template <class T>
inline Word<T> to_word(T value) {
  if constexpr (sizeof(T) == 1)
    return std::bit_cast<u8>(value);
  else if constexpr (sizeof(T) == 2)
    return std::bit_cast<u16>(value);
  else
    return std::bit_cast<Word<T>>(value);
}

// out[l] = compute(l) for the lanes of the mask.
template <class T, class Compute>
inline void write_lanes(Word<T>* out, u32 mask, Compute compute) {
  if (mask == kFullMask) {
#pragma GCC ivdep
    for (int l = 0; l < kLanes; ++l) out[l] = to_word<T>(compute(l));
  } else {
#pragma GCC ivdep
    for (int l = 0; l < kLanes; ++l) {
      const Word<T> value = to_word<T>(compute(l));
      out[l] = (mask >> l & 1) ? value : out[l];
    }
  }
}

// A bit a lane: test(l).
template <class Test>
inline u32 lane_mask(Test test) {
  u32 bits = 0;
  for (int l = 0; l < kLanes; ++l) bits |= u32(bool(test(l))) << l;
  return bits;
}

// d = function(sources...): operand 0 is the destination, operands 1.. are the sources.
template <class D, class... S, class Function>
inline Step map_lanes(Warp& warp, const Insn& insn, u32 mask, Function function) {
  if (insn.ops[0].kind == Operand::kNone) return Step::kNext;
  Word<D>* out = words<D>(warp, insn.ops[0]);
  [&]<size_t... I>(std::index_sequence<I...>) {
    const std::tuple<const Word<S>*...> in{words<S>(warp, insn.ops[I + 1])...};
    write_lanes<D>(out, mask, [&, in](int l) { return function(from_word<S>(std::get<I>(in)[l])...); });
  }(std::index_sequence_for<S...>{});
  return Step::kNext;
}

// The handler of a function object without attributes.
template <class Function, class D, class... S>
Step lanewise(Warp& warp, const Insn& insn, u32 mask) {
  return map_lanes<D, S...>(warp, insn, mask, Function{});
}

// The handler tables of the scalar units.
std::span<const NamedHandler> integer_handlers();
std::span<const NamedHandler> bit_handlers();
std::span<const NamedHandler> compare_handlers();
std::span<const NamedHandler> move_handlers();
std::span<const NamedHandler> float_handlers();
std::span<const NamedHandler> mixed_handlers();
std::span<const NamedHandler> transcendental_handlers();
std::span<const NamedHandler> half_handlers();
std::span<const NamedHandler> convert_integer_handlers();
std::span<const NamedHandler> convert_float_handlers();
std::span<const NamedHandler> convert_packed_handlers();
std::span<const NamedHandler> warp_handlers();

}  // namespace ptx
