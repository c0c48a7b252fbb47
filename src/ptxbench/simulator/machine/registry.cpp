// Joins the handler tables of the units.
#include <string_view>
#include <unordered_map>

#include "alu_lanes.hpp"
#include "units.hpp"

namespace ptx {
namespace {

using Table = std::unordered_map<std::string_view, Handler>;

Table join() {
  Table table;
  for (const auto unit : {integer_handlers(),         bit_handlers(),
                          compare_handlers(),         move_handlers(),
                          float_handlers(),           transcendental_handlers(),
                          half_handlers(),            convert_integer_handlers(),
                          convert_float_handlers(),   convert_packed_handlers(),
                          warp_handlers(),            control_handlers(),
                          loadstore_handlers(),       atomic_handlers(),
                          barrier_handlers(),         mbarrier_handlers(),
                          fence_handlers(),           copy_handlers(),
                          bulk_handlers(),            tma_handlers(),
                          wgmma_handlers(),           fragment_handlers(),
                          tensor_memory_handlers(),   tensor_transfer_handlers(),
                          tensor_product_handlers(),  tensor_copy_handlers(),
                          tensor_pipe_handlers(),     tensor_map_handlers(),
                          launch_control_handlers(),  mixed_handlers(),
                          video_handlers(),           fragment_product_handlers(),
                          matrix_byte_handlers(),     wide_atomic_handlers(),
                          stack_handlers(),           convert_stochastic_handlers(),
                          wmma_handlers()})
    for (const NamedHandler& named : unit) table.emplace(named.op, named.handler);
  return table;
}

}  // namespace

Handler find_handler(std::string_view op) {
  static const Table table = join();
  const auto found = table.find(op);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace ptx
