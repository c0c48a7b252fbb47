#include "lanes.hpp"

#include "uniform.hpp"

namespace ptx {
namespace {

bool is_write(RaceKind kind) {
  return kind == RaceKind::kWrite || kind == RaceKind::kRewrite || kind == RaceKind::kStrongWrite;
}

}  // namespace

LaneExchange::Touch LaneExchange::touch_of(const Place& place) {
  const Warp& warp = *place.warp;
  return {u64(warp.number() + 1) << 32 | warp.meeting, warp.executed, 1u << place.lane, place.insn->position};
}

// Lanes that have touched the byte since the warp's lanes were last together, but for this one and those of this very
// instruction.
inline u32 LaneExchange::others(const Touch& now, const Touch& before) {
  return before.meeting == now.meeting && before.execution != now.execution ? before.lanes & ~now.lanes : 0;
}

void LaneExchange::report(const Place& place, u32 offset, bool write, const Touch& before, bool wrote) {
  const Warp& warp = *place.warp;
  warp.run->hazard(HazardKind::kLaneRace, place, [&] {
    const Insn& insn = warp.launch->kernel->code[before.position];
    return format("%s shared byte %u in %s of %s, and nothing brings it together with %s, which %s it before: %s (PTX line %u)",
                  write ? "writes" : "reads", offset - kReservedShared, name_lanes(1u << place.lane).c_str(),
                  warp.name().c_str(), name_lanes(others(touch_of(place), before)).c_str(), wrote ? "wrote" : "read",
                  insn.text.c_str(), insn.ptx_line);
  });
}

void LaneExchange::access(const Place& place, u32 offset, u32 bytes, RaceKind kind) {
  const bool write = is_write(kind);
  const Touch now = touch_of(place);
  bool reported = false;
  for (u32 at = offset; at < offset + bytes; ++at) {
    auto& block = blocks_[at / kBlock];
    if (!block) block = std::make_unique<Block>();
    Byte& byte = (*block)[at % kBlock];
    const bool after_write = kind != RaceKind::kRewrite && others(now, byte.written);
    const bool after_read = write && others(now, byte.read);
    if (!reported && (after_write || after_read))
      report(place, at, write, after_write ? byte.written : byte.read, after_write), reported = true;
    // Reads since the last meeting add up, and so do the writes of one instruction.
    Touch& own = write ? byte.written : byte.read;
    const bool joins = own.meeting == now.meeting && (!write || own.execution == now.execution);
    const u32 lanes = joins ? own.lanes | now.lanes : now.lanes;
    own = now;
    own.lanes = lanes;
  }
}

void LaneExchange::issue(const Place& place, u32 offset, u32 bytes) {
  const Touch now = touch_of(place);
  for (u32 at = offset; at < offset + bytes; ++at) {
    const auto& block = blocks_[at / kBlock];
    if (!block) {
      at |= kBlock - 1;
      continue;
    }
    const Touch& written = (*block)[at % kBlock].written;
    if (others(now, written)) return report(place, at, false, written, true);
  }
}

}  // namespace ptx
