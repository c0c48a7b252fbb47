// Operands that have to be the same in all lanes.
#pragma once
#include "machine.hpp"

namespace ptx {

// Reports an operand that differs between the lanes of `mask`; `name` says what it is.
void check_uniform(const Place& place, const Operand& operand, u32 mask, const char* name);

// "lane 3", "lanes 4 to 31", "lanes 0 to 2 and 5", for messages.
std::string name_lanes(u32 lanes);

}  // namespace ptx
