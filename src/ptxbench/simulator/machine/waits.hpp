// Instructions that wait: how a deadlock report describes them, in a phrase that follows "waits".
#pragma once
#include <span>
#include <string>

#include "machine.hpp"

namespace ptx {

struct Waiter {
  Handler handler;
  std::string (*describe)(Warp& warp, const Insn& insn, u32 mask);
  bool timeout = false;  // may give up by itself (mbarrier.try_wait)
  // Whether it waits for bytes that were announced: then these are the cause, and others wait for the waiter.
  bool (*starves)(Warp& warp, const Insn& insn, u32 mask) = nullptr;
};

std::span<const Waiter> barrier_waiters();
std::span<const Waiter> mbarrier_waiters();
std::span<const Waiter> fence_waiters();
std::span<const Waiter> wgmma_waiters();
std::span<const Waiter> tensor_memory_waiters();

}  // namespace ptx
