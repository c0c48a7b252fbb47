// A lane's value of a register of 32 or 64 bits, whichever the operand is.
#pragma once
#include "machine.hpp"

namespace ptx {

inline u64 value_of(const Warp& warp, const Operand& operand, u32 lane) {
  const u32* row = warp.row(operand.slot);
  return operand.kind == Operand::kRow64 ? reinterpret_cast<const u64*>(row)[lane] : row[lane];
}

inline void set_value(Warp& warp, const Operand& operand, u32 lane, u64 value) {
  if (operand.kind == Operand::kRow64)
    warp.row64(operand.slot)[lane] = value;
  else
    warp.row(operand.slot)[lane] = u32(value);
}

}  // namespace ptx
