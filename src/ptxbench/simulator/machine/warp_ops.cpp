// Exchange between lanes: shfl, vote, match, redux, elect, activemask. Each names its participants in a mask; it waits
// until all of them that are still alive execute it together.
#include <algorithm>

#include "float_format.hpp"

namespace ptx {
namespace {

// Calls body(participants) for every set of lanes that name the same mask, or waits for lanes that are missing.
template <class Body>
Step for_participants(Warp& warp, const Insn& insn, const Operand& members, u32 mask, Body body) {
  const u32* masks = warp.row(members.slot);
  for (u32 rest = mask; rest;) {
    const u32 first = u32(__builtin_ctz(rest)), named = masks[first];
    if (!(named >> first & 1)) warp.illegal(insn, format("lane %u is not in its own member mask %08x", first, named));
    if (named & warp.live & ~mask) return Step::kConverge;
    rest &= ~named;
  }
  for (u32 rest = mask; rest;) {
    const u32 named = masks[__builtin_ctz(rest)];
    body(named & mask);
    rest &= ~named;
  }
  return Step::kNext;
}

enum class Shuffle { kUp, kDown, kButterfly, kIndex };

// The lane to read, and whether it is within the segment (PTX ISA, shfl.sync). c holds the clamp and the segment mask.
template <Shuffle Mode>
inline std::pair<u32, bool> source_lane(u32 lane, u32 b, u32 c) {
  const u32 distance = b & 31, clamp = c & 31, segment = c >> 8 & 31;
  const u32 highest = (lane & segment) | (clamp & ~segment), lowest = lane & segment;
  i32 from = 0;
  bool valid = false;
  switch (Mode) {
    case Shuffle::kUp: from = i32(lane) - i32(distance), valid = from >= i32(highest); break;
    case Shuffle::kDown: from = i32(lane + distance), valid = from <= i32(highest); break;
    case Shuffle::kButterfly: from = i32(lane ^ distance), valid = from <= i32(highest); break;
    case Shuffle::kIndex: from = i32(lowest | (distance & ~segment)), valid = from <= i32(highest); break;
  }
  return {valid ? u32(from) : lane, valid};
}

// d, p, a, b, c, mask
template <Shuffle Mode>
Step shfl(Warp& warp, const Insn& insn, u32 mask) {
  return for_participants(warp, insn, insn.ops[5], mask, [&](u32 lanes) {
    u32 values[kLanes], in_range = 0;
    std::copy_n(warp.row(insn.ops[2].slot), kLanes, values);
    const u32 *b = warp.row(insn.ops[3].slot), *c = warp.row(insn.ops[4].slot);
    u32 results[kLanes];
    for_lanes(lanes, [&](u32 lane) {
      const auto [from, valid] = source_lane<Mode>(lane, b[lane], c[lane]);
      results[lane] = values[from];
      in_range |= u32(valid) << lane;
    });
    if (insn.ops[0].kind != Operand::kNone) {
      u32* d = warp.row(insn.ops[0].slot);
      for_lanes(lanes, [&](u32 lane) { d[lane] = results[lane]; });
    }
    warp.set_pred(insn.ops[1], lanes, in_range);
  });
}

void write_all(Warp& warp, const Operand& operand, u32 lanes, u32 value) {
  if (operand.kind == Operand::kNone) return;
  u32* d = warp.row(operand.slot);
  for_lanes(lanes, [=](u32 lane) { d[lane] = value; });
}

enum class Vote { kAll, kAny, kUniform, kBallot };

// d, p, mask
template <Vote Mode>
Step vote(Warp& warp, const Insn& insn, u32 mask) {
  const u32 p = warp.pred(insn.ops[1]);
  return for_participants(warp, insn, insn.ops[2], mask, [&](u32 lanes) {
    const u32 yes = p & lanes;
    if (Mode == Vote::kBallot) return write_all(warp, insn.ops[0], lanes, yes);
    const bool result = Mode == Vote::kAll   ? yes == lanes
                        : Mode == Vote::kAny ? yes != 0
                                             : yes == 0 || yes == lanes;
    warp.set_pred(insn.ops[0], lanes, result ? lanes : 0);
  });
}

template <class T>
u32 lanes_equal(const T* values, u32 lanes, u32 lane) {
  u32 equal = 0;
  for_lanes(lanes, [&](u32 other) { equal |= u32(values[other] == values[lane]) << other; });
  return equal;
}

// d, p, a, mask: the lanes with the same value.
template <class T>
Step match_any(Warp& warp, const Insn& insn, u32 mask) {
  const T* a = words<T>(warp, insn.ops[2]);
  return for_participants(warp, insn, insn.ops[3], mask, [&](u32 lanes) {
    u32 results[kLanes];
    for_lanes(lanes, [&](u32 lane) { results[lane] = lanes_equal(a, lanes, lane); });
    if (insn.ops[0].kind == Operand::kNone) return;
    u32* d = warp.row(insn.ops[0].slot);
    for_lanes(lanes, [&](u32 lane) { d[lane] = results[lane]; });
  });
}

// d, p, a, mask: all lanes and true if every value is the same, else nothing and false.
template <class T>
Step match_all(Warp& warp, const Insn& insn, u32 mask) {
  const T* a = words<T>(warp, insn.ops[2]);
  return for_participants(warp, insn, insn.ops[3], mask, [&](u32 lanes) {
    const bool same = lanes_equal(a, lanes, u32(__builtin_ctz(lanes))) == lanes;
    write_all(warp, insn.ops[0], lanes, same ? lanes : 0);
    warp.set_pred(insn.ops[1], lanes, same ? lanes : 0);
  });
}

struct Add { u32 operator()(u32 a, u32 b) const { return a + b; } };
struct And { u32 operator()(u32 a, u32 b) const { return a & b; } };
struct Or { u32 operator()(u32 a, u32 b) const { return a | b; } };
struct Xor { u32 operator()(u32 a, u32 b) const { return a ^ b; } };
struct Min { template <class T> T operator()(T a, T b) const { return std::min(a, b); } };
struct Max { template <class T> T operator()(T a, T b) const { return std::max(a, b); } };

// d, a, mask
template <class Function, class T>
Step redux(Warp& warp, const Insn& insn, u32 mask) {
  const u32* a = warp.row(insn.ops[1].slot);
  return for_participants(warp, insn, insn.ops[2], mask, [&](u32 lanes) {
    T total = T(a[__builtin_ctz(lanes)]);
    for_lanes(lanes & (lanes - 1), [&](u32 lane) { total = T(Function{}(total, T(a[lane]))); });
    write_all(warp, insn.ops[0], lanes, u32(total));
  });
}

// Attributes: magnitudes only; NaN wins instead of losing.
template <bool Max>
Step redux_f32(Warp& warp, const Insn& insn, u32 mask) {
  const u32* a = warp.row(insn.ops[1].slot);
  const bool magnitudes = insn.attr[0], nan_wins = insn.attr[1];
  return for_participants(warp, insn, insn.ops[2], mask, [&](u32 lanes) {
    f32 best = float_of(kCanonicalNan);
    bool any_nan = false;
    for_lanes(lanes, [&](u32 lane) {
      const f32 value = float_of(magnitudes ? a[lane] & 0x7fffffff : a[lane]);
      any_nan |= value != value;
      const bool better = Max ? value > best : value < best;
      const bool zero_sign = value == best && std::signbit(value) != Max && std::signbit(best) == Max;
      if (best != best || better || zero_sign) best = value;
    });
    write_all(warp, insn.ops[0], lanes, (any_nan && nan_wins) || best != best ? kCanonicalNan : bits_of(best));
  });
}

// d, p, mask. The ISA leaves the leader open. Hardware takes the lowest lane, and CUTLASS relies on it: thread 0 announces
// the bytes that the elected lane copies.
Step elect(Warp& warp, const Insn& insn, u32 mask) {
  return for_participants(warp, insn, insn.ops[2], mask, [&](u32 lanes) {
    const u32 leader = u32(__builtin_ctz(lanes));
    write_all(warp, insn.ops[0], lanes, leader);
    warp.set_pred(insn.ops[1], lanes, 1u << leader);
  });
}

Step activemask(Warp& warp, const Insn& insn, u32 mask) {
  write_all(warp, insn.ops[0], mask, mask);
  return Step::kNext;
}

Step nanosleep(Warp& warp, const Insn&, u32) {
  warp.yield();
  return Step::kNext;
}

constexpr NamedHandler kTable[] = {
    {"shfl.up", shfl<Shuffle::kUp>},
    {"shfl.down", shfl<Shuffle::kDown>},
    {"shfl.bfly", shfl<Shuffle::kButterfly>},
    {"shfl.idx", shfl<Shuffle::kIndex>},
    {"vote.all", vote<Vote::kAll>},
    {"vote.any", vote<Vote::kAny>},
    {"vote.uni", vote<Vote::kUniform>},
    {"vote.ballot", vote<Vote::kBallot>},
    {"match.any.b32", match_any<u32>},
    {"match.any.b64", match_any<u64>},
    {"match.all.b32", match_all<u32>},
    {"match.all.b64", match_all<u64>},
    {"redux.add.b32", redux<Add, u32>},
    {"redux.and.b32", redux<And, u32>},
    {"redux.or.b32", redux<Or, u32>},
    {"redux.xor.b32", redux<Xor, u32>},
    {"redux.min.u32", redux<Min, u32>},
    {"redux.max.u32", redux<Max, u32>},
    {"redux.min.s32", redux<Min, i32>},
    {"redux.max.s32", redux<Max, i32>},
    {"redux.min.f32", redux_f32<false>},
    {"redux.max.f32", redux_f32<true>},
    {"elect", elect},
    {"activemask", activemask},
    {"nanosleep", nanosleep},
};

}  // namespace

std::span<const NamedHandler> warp_handlers() { return kTable; }

}  // namespace ptx
