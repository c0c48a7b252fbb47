#include "hazards.hpp"

#include <cstdarg>
#include <cstdio>

namespace ptx {

std::string_view fault_name(FaultKind kind) {
  switch (kind) {
    case FaultKind::kImpossibleLaunch: return "impossible_launch";
    case FaultKind::kIllegalAddress: return "illegal_address";
    case FaultKind::kMisalignedAddress: return "misaligned_address";
    case FaultKind::kIllegalInstruction: return "illegal_instruction";
    case FaultKind::kTrap: return "trap";
    case FaultKind::kOutOfMemory: return "out_of_memory";
    case FaultKind::kDeadlock: return "deadlock";
    case FaultKind::kTimeLimit: return "time_limit";
    case FaultKind::kStrayWrite: return "stray_write";
    case FaultKind::kCancelled: return "cancelled";
    case FaultKind::kUnsupported: return "unsupported";
  }
  return "illegal_instruction";
}

const HazardInfo& hazard_info(HazardKind kind) {
  static constexpr HazardInfo kTable[] = {
      {"uninitialised_shared_read", true,
       "Wait for the write to finish (mbarrier or barrier) before reading, and check offsets and sizes."},
      {"uninitialised_tensor_memory_read", true,
       "Wait on the mbarrier of tcgen05.commit before reading, and clear the accumulator with the first product."},
      {"missing_async_proxy_fence", false,
       "Put fence.proxy.async after the ordinary stores and before the barrier that hands the data to the async "
       "proxy."},
      {"missing_wgmma_fence", false,
       "Put wgmma.fence.sync.aligned between the last access to these registers and wgmma.mma_async."},
      {"unwaited_bulk_store", false,
       "Let the thread that issued the stores run cp.async.bulk.commit_group and cp.async.bulk.wait_group 0 before it "
       "exits."},
      {"copy_in_flight_at_exit", false,
       "Wait on the mbarrier of every bulk copy before the CTA that receives it exits."},
      {"unwaited_wgmma", false, "Run wgmma.commit_group and wgmma.wait_group 0 before the warp exits."},
      {"tensor_memory_not_deallocated", false, "Run tcgen05.dealloc on every allocation before the CTA exits."},
      {"unwaited_tensor_load", false,
       "Put tcgen05.wait::ld.sync.aligned between tcgen05.ld and the first use of its registers."},
      {"product_in_flight_at_exit", false, "Wait on the mbarrier of tcgen05.commit before the CTA exits."},
      {"unwaited_async_copy", false, "Wait with cp.async.wait_all (or commit and wait_group) before the thread exits."},
      {"unwaited_tensor_store", false,
       "Put tcgen05.wait::st.sync.aligned after tcgen05.st and before the fence that hands the data on."},
      {"unordered_tensor_work", false,
       "Let a tcgen05.commit follow the earlier instruction and wait on its mbarrier before the later one; the ISA orders "
       "products only on the same accumulator with the same shape and kind."},
      {"missing_mbarrier_init_fence", false,
       "Put fence.mbarrier_init.release.cluster (or fence.proxy.async) after mbarrier.init, before the barrier that lets "
       "others use it."},
      {"missing_global_proxy_fence", false,
       "Put fence.proxy.async after the ordinary stores and before the synchronisation that hands the data to the copy."},
      {"missing_tcgen05_fence_before", false,
       "Put tcgen05.fence::before_thread_sync after tcgen05.wait and before the arrival or barrier that hands the cells "
       "on."},
      {"missing_tcgen05_fence_after", false,
       "Put tcgen05.fence::after_thread_sync behind the wait or barrier, before the first tcgen05 instruction on these "
       "cells."},
      {"shared_memory_race", false,
       "Order the two accesses: a barrier, or an mbarrier that one side arrives on (or completes on) and the other waits "
       "for."},
      {"tensor_memory_race", false,
       "Order the two accesses: tcgen05.wait or tcgen05.commit, then an mbarrier or barrier that the other side waits "
       "for."},
      {"divergent_operand", false,
       "Give all lanes, and the four warps of a warpgroup, the same value: compute it from uniform values, or pass it "
       "through __shfl_sync."},
      {"missing_tensormap_fence", false,
       "Put fence.proxy.tensormap::generic.acquire with the map's address before the copy, in a thread of its CTA, after "
       "the synchronisation with the writer."},
      {"lane_race", false, "Put bar.warp.sync (__syncwarp) between the two accesses; of cp.async, behind the wait."},
      {"unknown_mbarrier_phase", false,
       "Let the warp wait for every phase of the mbarrier, or synchronise it with one that has waited for the phase "
       "before."},
  };
  return kTable[size_t(kind)];
}

std::string format(const char* pattern, ...) {
  char buffer[768];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(buffer, sizeof buffer, pattern, arguments);
  va_end(arguments);
  return buffer;
}

}  // namespace ptx
