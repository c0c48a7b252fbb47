// clusterlaunchcontrol: a running cluster takes over the work of one that has not been launched.
//
// clc.try:   operands = shared address of the 16-byte answer, mbarrier; attribute = multicast to the whole cluster
// clc.query: operands = destinations, answer (128 bits); attribute = what is asked
//
// The answer, opaque to programs: the first CTA's coordinates, and whether there was a cluster.
#include <array>
#include <cstring>

#include "mbarrier.hpp"
#include "units.hpp"

namespace ptx {
namespace {

constexpr u32 kAnswerBytes = 16;
using Answer = std::array<u32, 4>;

// Attribute values; lower/synchronisation.py mirrors them.
enum Question : i32 { kX, kY, kZ, kCoordinates, kCanceled };

Answer take_cluster(Launch& launch) {
  if (launch.next_cluster >= launch.clusters()) return {};
  const auto [x, y, z] = launch.origin(launch.next_cluster++);
  return {x, y, z, 1};
}

Step try_cancel(Warp& warp, const Insn& insn, u32 mask) {
  for_lanes(mask, [&](u32 lane) {
    const Place place{&warp, &insn, lane};
    const u32 to = cluster_address(place, insn.ops[0]), barrier = cluster_address(place, insn.ops[1]);
    const u32 own = rank_of(place, to), ranks = insn.attr[0] ? (1u << warp.cta->cluster->ctas.size()) - 1 : 1u << own;
    const Answer answer = take_cluster(*warp.launch);
    warp.run->defer({Deferred::kCopy, place, true, [=] {
                       for_lanes(ranks, [&](u32 rank) {
                         const u32 window = rank << kRankShift;
                         const Location at = shared_at(place, (to & kOffsetMask) | window, kAnswerBytes, kAnswerBytes,
                                                       Scope::kCluster);
                         std::memcpy(at.data, answer.data(), kAnswerBytes);
                         at.cta->wrote_async(at.offset, kAnswerBytes);
                         mbarrier_complete_tx(place, (barrier & kOffsetMask) | window, Scope::kCluster, kAnswerBytes);
                       });
                     }});
  });
  return Step::kNext;
}

Step query(Warp& warp, const Insn& insn, u32 mask) {
  const Question question = Question(insn.attr[0]);
  const Operand& answer = insn.ops.back();
  const u64 *low = warp.row64(answer.slot), *high = warp.row64(answer.slot + 2);
  const auto word = [&](u32 lane, u32 number) { return u32((number < 2 ? low : high)[lane] >> (number % 2 * 32)); };
  if (question == kCanceled) {
    u32 canceled = 0;
    for_lanes(mask, [&](u32 lane) { canceled |= u32(word(lane, 3) != 0) << lane; });
    warp.set_pred(insn.ops[0], mask, canceled);
    return Step::kNext;
  }
  for_lanes(mask, [&](u32 lane) {
    const Answer words{word(lane, 0), word(lane, 1), word(lane, 2), word(lane, 3)};
    for (size_t i = 0; i + 1 < insn.ops.size(); ++i)
      if (insn.ops[i].kind == Operand::kRow)
        warp.row(insn.ops[i].slot)[lane] = words[question == kCoordinates ? i : size_t(question)];
  });
  return Step::kNext;
}

constexpr NamedHandler kTable[] = {
    {"clc.try", try_cancel},
    {"clc.query", query},
};

}  // namespace

std::span<const NamedHandler> launch_control_handlers() { return kTable; }

}  // namespace ptx
