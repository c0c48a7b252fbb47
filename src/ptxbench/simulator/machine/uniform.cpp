#include "uniform.hpp"

namespace ptx {
namespace {

// The lanes whose value is not that of the first.
u32 differing_lanes(const Warp& warp, const Operand& operand, u32 mask) {
  const u32 first = u32(__builtin_ctz(mask));
  const u32* row = warp.row(operand.slot);
  if (operand.kind == Operand::kPred) {
    const u32 bits = warp.pred(operand);
    return (bits >> first & 1 ? ~bits : bits) & mask;
  }
  u32 differing = 0;
  if (operand.kind == Operand::kRow64 || operand.kind == Operand::kMem64) {
    const u64* wide = reinterpret_cast<const u64*>(row);
    for (u32 l = 0; l < u32(kLanes); ++l) differing |= u32(wide[l] != wide[first]) << l;
  } else {
    for (u32 l = 0; l < u32(kLanes); ++l) differing |= u32(row[l] != row[first]) << l;
  }
  return differing & mask;
}

}  // namespace

void check_uniform(const Place& place, const Operand& operand, u32 mask, const char* name) {
  if (operand.slot < 0) return;
  const u32 differing = differing_lanes(*place.warp, operand, mask);
  if (!differing) return;
  place.warp->run->hazard(HazardKind::kDivergentOperand, place, [&] {
    return format("has another %s in %s of %s than in lane %d", name, name_lanes(differing).c_str(),
                  place.warp->name().c_str(), __builtin_ctz(mask));
  });
}

std::string name_lanes(u32 lanes) {
  std::string text = __builtin_popcount(lanes) == 1 ? "lane " : "lanes ";
  for (bool more = false; lanes; more = true) {
    const u32 first = u32(__builtin_ctz(lanes)), run = u32(__builtin_ctz(~u64(lanes >> first)));
    lanes &= run + first == 32 ? 0 : ~0u << (first + run);
    text += (more ? lanes ? ", " : " and " : "") + std::to_string(first);
    if (run > 1) text += (run > 2 ? " to " : " and ") + std::to_string(first + run - 1);
  }
  return text;
}

}  // namespace ptx
