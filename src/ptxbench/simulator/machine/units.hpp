// The handler tables of the machine's units; the scalar units' are in alu_lanes.hpp.
#pragma once
#include <span>

#include "insn.hpp"

namespace ptx {

std::span<const NamedHandler> control_handlers();
std::span<const NamedHandler> loadstore_handlers();
std::span<const NamedHandler> atomic_handlers();
std::span<const NamedHandler> barrier_handlers();
std::span<const NamedHandler> mbarrier_handlers();
std::span<const NamedHandler> fence_handlers();
std::span<const NamedHandler> copy_handlers();
std::span<const NamedHandler> bulk_handlers();
std::span<const NamedHandler> tma_handlers();
std::span<const NamedHandler> wgmma_handlers();
std::span<const NamedHandler> fragment_handlers();
std::span<const NamedHandler> tensor_memory_handlers();
std::span<const NamedHandler> tensor_transfer_handlers();
std::span<const NamedHandler> tensor_product_handlers();
std::span<const NamedHandler> tensor_copy_handlers();
std::span<const NamedHandler> tensor_pipe_handlers();
std::span<const NamedHandler> tensor_map_handlers();
std::span<const NamedHandler> launch_control_handlers();
std::span<const NamedHandler> video_handlers();
std::span<const NamedHandler> fragment_product_handlers();
std::span<const NamedHandler> matrix_byte_handlers();
std::span<const NamedHandler> wmma_handlers();
std::span<const NamedHandler> wide_atomic_handlers();
std::span<const NamedHandler> stack_handlers();
std::span<const NamedHandler> convert_stochastic_handlers();

}  // namespace ptx
