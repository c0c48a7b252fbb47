// The constant rows of a warp: immediates, addresses of variables and special registers.
#include <algorithm>

#include "machine.hpp"
#include "scheduler.hpp"

namespace ptx {
namespace {

// In the order of lower/image.py's SPECIAL_REGISTERS.
enum Special : u64 {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kLaneid,
  kWarpid,
  kNwarpid,
  kSmid,
  kNsmid,
  kGridid,
  kClusteridX,
  kClusteridY,
  kClusteridZ,
  kNclusteridX,
  kNclusteridY,
  kNclusteridZ,
  kClusterCtaidX,
  kClusterCtaidY,
  kClusterCtaidZ,
  kClusterNctaidX,
  kClusterNctaidY,
  kClusterNctaidZ,
  kClusterCtarank,
  kClusterNctarank,
  kIsExplicitCluster,
  kLanemaskEq,
  kLanemaskLt,
  kLanemaskLe,
  kLanemaskGt,
  kLanemaskGe,
  kDynamicSmemSize,
  kTotalSmemSize,
  kAggrSmemSize,
  kEnvreg1,
  kEnvreg2,
};

u32 part(const Dim3& dims, u64 axis) { return axis == 0 ? dims.x : axis == 1 ? dims.y : dims.z; }

u64 special(const Warp& warp, u64 which, u32 lane) {
  const Launch& launch = *warp.launch;
  const Cta& cta = *warp.cta;
  const u32 linear = warp.index * kLanes + lane;
  const u32 thread[3] = {linear % launch.block.x, linear / launch.block.x % launch.block.y,
                         linear / launch.block.x / launch.block.y};
  const u32 within[3] = {cta.rank % launch.cluster.x, cta.rank / launch.cluster.x % launch.cluster.y,
                         cta.rank / launch.cluster.x / launch.cluster.y};
  const u32 shared = cta.shared_bytes - kReservedShared;
  switch (which) {
    case kTidX:
    case kTidY:
    case kTidZ: return thread[which - kTidX];
    case kNtidX:
    case kNtidY:
    case kNtidZ: return part(launch.block, which - kNtidX);
    case kCtaidX:
    case kCtaidY:
    case kCtaidZ: return cta.id[which - kCtaidX];
    case kNctaidX:
    case kNctaidY:
    case kNctaidZ: return part(launch.grid, which - kNctaidX);
    case kLaneid: return lane;
    case kWarpid: return warp.index;
    case kNwarpid: return 64;
    case kSmid: return (cta.cluster->index * launch.ctas_per_cluster() + cta.rank) % warp.run->options.sm_count;
    case kNsmid: return warp.run->options.sm_count;
    case kGridid: return 1;
    case kClusteridX:
    case kClusteridY:
    case kClusteridZ: return cta.id[which - kClusteridX] / part(launch.cluster, which - kClusteridX);
    case kNclusteridX:
    case kNclusteridY:
    case kNclusteridZ: return part(launch.grid, which - kNclusteridX) / part(launch.cluster, which - kNclusteridX);
    case kClusterCtaidX:
    case kClusterCtaidY:
    case kClusterCtaidZ: return within[which - kClusterCtaidX];
    case kClusterNctaidX:
    case kClusterNctaidY:
    case kClusterNctaidZ: return part(launch.cluster, which - kClusterNctaidX);
    case kClusterCtarank: return cta.rank;
    case kClusterNctarank: return launch.ctas_per_cluster();
    case kIsExplicitCluster: return launch.explicit_cluster ? kFullMask : 0;
    case kLanemaskEq: return 1u << lane;
    case kLanemaskLt: return (1u << lane) - 1;
    case kLanemaskLe: return (2u << lane) - 1;
    case kLanemaskGt: return ~((2u << lane) - 1);
    case kLanemaskGe: return ~((1u << lane) - 1);
    case kDynamicSmemSize: return launch.dynamic_shared;
    case kTotalSmemSize: return shared;
    case kAggrSmemSize: return shared + kReservedShared;
    // Where grids synchronise, high and low half of the address; cooperative groups of CUDA 13 take a 0 for a launch
    // that is not cooperative.
    case kEnvreg1: return launch.cooperative ? kGridWorkspace >> 32 : 0;
    case kEnvreg2: return launch.cooperative ? u32(kGridWorkspace) : 0;
    default: return 0;
  }
}

u64 value_of(const Warp& warp, const Constant& constant, u32 lane) {
  const u32 window = warp.cta->rank << kRankShift;
  switch (constant.kind) {
    case Constant::kImmediate: return constant.value;
    case Constant::kSpecial: return special(warp, constant.value, lane);
    case Constant::kParameterAddress: return kParameterWindow + constant.value;
    case Constant::kShared: return window + kReservedShared + u32(constant.value);
    case Constant::kDynamicShared: return window + warp.launch->kernel->dynamic_offset() + u32(constant.value);
    case Constant::kLocal: return kLocalWindow + constant.value;
    case Constant::kGlobal: return warp.run->global_addresses.at(constant.value) + u64(constant.addend);
  }
  return 0;
}

}  // namespace

void fill_constants(Warp& warp) {
  for (const Constant& constant : warp.launch->kernel->constants) {
    if (constant.width == 1) {
      warp.row(constant.slot)[0] = value_of(warp, constant, 0) ? kFullMask : 0;
    } else if (constant.kind != Constant::kSpecial) {  // only special registers differ between lanes
      const u64 value = value_of(warp, constant, 0);
      if (constant.width == 64)
        std::fill_n(warp.row64(constant.slot), kLanes, value);
      else
        std::fill_n(warp.row(constant.slot), kLanes, u32(value));
    } else if (constant.width == 64) {
      for (u32 lane = 0; lane < kLanes; ++lane) warp.row64(constant.slot)[lane] = value_of(warp, constant, lane);
    } else {
      for (u32 lane = 0; lane < kLanes; ++lane) warp.row(constant.slot)[lane] = u32(value_of(warp, constant, lane));
    }
  }
}

}  // namespace ptx
