// Lane-wise execution of floating-point functions with their rounding and flags.
#pragma once
#include "float_format.hpp"

namespace ptx {

template <bool Ftz, bool Sat, class T>
inline T finish(T value) {
  if constexpr (Ftz && std::is_same_v<T, f32>) value = flush(value);
  if constexpr (Sat) value = saturate_unit(value);
  return value;
}
template <bool Ftz, class T>
inline T prepare(T value) {
  if constexpr (Ftz && std::is_same_v<T, f32>) return flush(value);
  return value;
}

// d = function(sources...) in f32 or f64; attributes: rounding, flags (ftz, sat).
template <class Function, class T, class... S>
Step float_lanes(Warp& warp, const Insn& insn, u32 mask) {
  const RoundingScope rounding(insn.attr[0]);
  const auto run = [&]<bool Ftz, bool Sat>() {
    return map_lanes<T, S...>(warp, insn, mask,
                              [](S... s) { return finish<Ftz, Sat>(Function{}(prepare<Ftz>(s)...)); });
  };
  switch (insn.attr[1] & (kFtz | kSat)) {
    case 0: return run.template operator()<false, false>();
    case kFtz: return run.template operator()<true, false>();
    case kSat: return run.template operator()<false, true>();
    default: return run.template operator()<true, true>();
  }
}

}  // namespace ptx
