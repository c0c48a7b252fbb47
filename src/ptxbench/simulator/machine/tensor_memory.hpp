// Tensor memory of a CTA (sm_100a): 128 lanes of 512 columns of 32-bit cells.
#pragma once
#include <functional>
#include <vector>

#include "machine.hpp"

namespace ptx {

constexpr u32 kTensorLanes = 128;
constexpr u32 kTensorColumns = 512;
constexpr u32 kAllocationUnit = 32;

// Asynchronous tcgen05 work that no commit has completed yet, in issue order.
struct TensorWork {
  Place place;
  std::function<void()> run;  // empty once done
};

struct TensorMemory {
  AlignedWords cells;     // [lane][column]
  std::vector<u8> valid;  // the same
  std::vector<u32> owner =
      std::vector<u32>(kTensorColumns / kAllocationUnit);  // by unit: first column + 1 of the allocation, or 0
  bool relinquished = false;
  std::vector<TensorWork> pipe;
  u64 completed = 0;  // products that have left the pipe

  u64 issued() const { return completed + pipe.size(); }

  // Backing store on first use.
  void prepare();
  bool allocated(u32 column, u32 count) const;
};

// A tensor memory address: lane << 16 | column.
struct TensorAddress {
  u32 lane, column;
  explicit TensorAddress(u32 bits) : lane(bits >> 16), column(bits & 0xffff) {}
};

// The tensor memory of a CTA; faults if columns [column, column + count) are not allocated.
TensorMemory& tensor_columns(const Place& place, Cta& cta, u32 column, u32 count);

void leave_tensor_memory(Cta& cta);

}  // namespace ptx
