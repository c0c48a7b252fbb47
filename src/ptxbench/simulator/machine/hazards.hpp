// Faults that end a run and hazards that do not: kinds, severities and advice.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "insn.hpp"

namespace ptx {

// Names of ptxbench.core.FaultKind; the last two are no faults of the program.
enum class FaultKind : u8 {
  kImpossibleLaunch,
  kIllegalAddress,
  kMisalignedAddress,
  kIllegalInstruction,
  kTrap,
  kOutOfMemory,
  kDeadlock,
  kTimeLimit,
  kStrayWrite,
  kCancelled,
  kUnsupported,
};
std::string_view fault_name(FaultKind kind);

// One line of a deadlock report: where, who waits, and what for (a phrase that follows "waits").
struct FaultDetail {
  i64 position = -1;
  std::string who;
  std::string what;
  bool plural = false;
};

// `message` is a sentence without its end; `who` names the warp and lane.
struct Fault {
  FaultKind kind;
  std::string message;
  std::string advice;
  i64 kernel = -1;
  i64 position = -1;
  std::string who = {};
  std::vector<FaultDetail> detail = {};
};

enum class HazardKind : u8 {
  kUninitialisedShared,
  kUninitialisedTensorMemory,
  kMissingProxyFence,
  kMissingWgmmaFence,
  kUnwaitedBulkStore,
  kUnfinishedCopy,
  kUnwaitedWgmma,
  kTensorMemoryLeak,
  kUnwaitedTensorLoad,
  kUnfinishedProduct,
  kUnwaitedAsyncCopy,
  kUnwaitedTensorStore,
  kUnorderedTensorWork,
  kMissingInitFence,
  kMissingGlobalProxyFence,
  kMissingTensorFenceBefore,
  kMissingTensorFenceAfter,
  kSharedRace,
  kTensorRace,
  kDivergentOperand,
  kMissingTensorMapFence,
  kLaneRace,
  kUnknownPhase,
};

struct HazardInfo {
  std::string_view id;
  bool race;
  std::string_view advice;
};
const HazardInfo& hazard_info(HazardKind kind);

struct Hazard {
  HazardKind kind;
  u32 kernel;
  u32 position;
  u64 occurrences = 0;
  std::string detail;
};

// printf-style formatting into a string.
[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...);

}  // namespace ptx
