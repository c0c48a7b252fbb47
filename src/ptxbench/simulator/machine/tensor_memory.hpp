// Tensor memory of a CTA (sm_100a): 128 lanes of 512 columns of 32-bit cells.
#pragma once
#include <functional>
#include <vector>

#include "matrix.hpp"

namespace ptx {

constexpr u32 kTensorLanes = 128;
constexpr u32 kTensorColumns = 512;
constexpr u32 kAllocationUnit = 32;

// Cells of tensor memory that asynchronous work reads or writes. Every 32 lanes have a lower and an upper half: bits 0, 1.
struct TensorRegion {
  u32 column = 0, columns = 0;
  u32 halves = 3;
  bool overlaps(const TensorRegion& other) const {
    return halves & other.halves && column < other.column + other.columns && other.column < column + columns;
  }
};

// Asynchronous tcgen05 work that no commit has completed yet.
struct TensorWork {
  Place place;
  std::function<void()> run;  // empty once done
  TensorRegion writes, reads = {};
  u32 group = 1;      // CTAs whose cells it reads and writes
  u64 pipeline = 0;   // products with the same accumulator, shape and kind have the same number; 0 for copies
  bool accumulates = false;  // reads what it writes
};

// The last access to a group of cells: 8 columns of 16 lanes.
struct TensorTouch {
  Warp* warp = nullptr;
  const Insn* insn = nullptr;
  u64 when = 0;    // proxy clock
  bool piped = false;  // by asynchronous work, which a commit hands on
};

// A rectangle of cells.
struct TensorRectangle {
  u32 lane = 0, lanes = 0, column = 0, columns = 0;
  bool holds(const TensorRectangle& other) const {
    return lane <= other.lane && other.lane + other.lanes <= lane + lanes && column <= other.column &&
           other.column + other.columns <= column + columns;
  }
};

struct TensorMemory {
  AlignedWords cells;     // [lane][column]
  std::vector<u8> valid;  // the same
  TensorRectangle known;  // all of it is valid: looking at a flag for every cell of an accumulator takes a while
  std::vector<u32> owner =
      std::vector<u32>(kTensorColumns / kAllocationUnit);  // by unit: first column + 1 of the allocation, or 0
  bool relinquished = false;
  std::vector<TensorTouch> touched;  // by column / 8 and 16 lanes
  std::vector<TensorWork> pipe;  // in order of issue
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

// Starts asynchronous work of the CTA: at once, or when a commit completes it in a late schedule. Reports work whose order
// after what is in flight the ISA does not guarantee.
void start_tensor_work(TensorWork work);

// Notes an access to cells and reports fences that are missing between it and the last one, by another warp: part of the
// strict check (races.hpp), for compilers leave these fences out. `windows` has a bit for every 16 lanes.
void touch_tensor(const Place& place, Cta& cta, u32 column, u32 columns, u32 windows, bool piped);
constexpr u32 windows_of(const TensorRegion& region) { return (region.halves & 1) * 0x55u | (region.halves >> 1) * 0xaau; }

// cta_group: the CTAs that take part, and a check that there are so many.
Cta& pair_cta(Cta& cta, u32 group, u32 number);
void check_pair(Warp& warp, const Insn& insn, u32 group);

// A matrix descriptor of tcgen05.
MatrixDescriptor decode_tensor_descriptor(const Place& place, u64 bits);

// The tensor memory of the warp's CTA; faults if the target has none.
TensorMemory& memory_of(Warp& warp, const Insn& insn);

// The tensor memory of a CTA; faults if columns [column, column + count) are not allocated.
TensorMemory& tensor_columns(const Place& place, Cta& cta, u32 column, u32 count);

void leave_tensor_memory(Cta& cta);

}  // namespace ptx
