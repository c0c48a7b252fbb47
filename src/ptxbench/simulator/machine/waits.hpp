// Instructions that wait: how a deadlock report describes them.
#pragma once
#include <span>
#include <string>

#include "machine.hpp"

namespace ptx {

struct Waiter {
  Handler handler;
  std::string (*describe)(Warp& warp, const Insn& insn, u32 mask);
  bool timeout = false;  // may give up by itself (mbarrier.try_wait)
};

std::span<const Waiter> barrier_waiters();
std::span<const Waiter> mbarrier_waiters();
std::span<const Waiter> fence_waiters();
std::span<const Waiter> wgmma_waiters();
std::span<const Waiter> tensor_memory_waiters();

}  // namespace ptx
