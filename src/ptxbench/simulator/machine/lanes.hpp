// Data that lanes of one warp exchange through shared memory (part of the option `races`): something has to bring the lanes
// together in between. Counts as such: bar.warp.sync, every other instruction of the whole warp (.sync, .aligned) but
// elect.sync, a barrier, and a wait or an atomic that orders memory. That is more than the ISA promises, so that what is reported has no
// synchronisation whatever; but memory that lanes use in different warps is left to the clocks (races.hpp).
#pragma once
#include <array>
#include <memory>
#include <vector>

#include "races.hpp"

namespace ptx {

// Shared memory of one CTA, with the last accesses to every byte.
class LaneExchange {
 public:
  explicit LaneExchange(u32 bytes) : blocks_(bytes / kBlock + 1) {}

  // Checks and notes an access of the lane `place.lane`.
  void access(const Place& place, u32 offset, u32 bytes, RaceKind kind);
  // Checks asynchronous work of the lane that reads these bytes.
  void issue(const Place& place, u32 offset, u32 bytes);

 private:
  static constexpr u32 kBlock = 1024;
  struct Touch {
    u64 meeting = 0;    // number of the warp + 1 << 32 | how often its lanes had come together
    u64 execution = 0;  // of an instruction, whose lanes may write the same byte
    u32 lanes = 0;
    u32 position = 0;
  };
  struct Byte {
    Touch written, read;
  };
  using Block = std::array<Byte, kBlock>;

  static Touch touch_of(const Place& place);
  static u32 others(const Touch& now, const Touch& before);
  static void report(const Place& place, u32 offset, bool write, const Touch& before, bool wrote);
  std::vector<std::unique_ptr<Block>> blocks_;
};

}  // namespace ptx
