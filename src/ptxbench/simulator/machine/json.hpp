// Reports as JSON text.
#pragma once
#include "machine.hpp"

namespace ptx {

std::string fault_json(const Fault& fault);
std::string run_json(const Run& run);

}  // namespace ptx
