// The state of a warp's asynchronous warpgroup products.
#pragma once
#include <deque>
#include <list>
#include <utility>
#include <vector>

#include "machine.hpp"

namespace ptx {

// Accumulators of products that are in flight in a late schedule; the registers hold poison meanwhile. A move of such a
// register gives its place in the accumulator another name.
struct WgmmaAccumulator {
  std::vector<u32> rows;
  std::vector<i32> slots;                     // the register of every row
  std::vector<std::pair<i32, u32>> moved_to;  // further registers, with the number of the row
  u32 products = 0;
};

struct WgmmaProduct {
  Place place;
  u64 a_descriptor = 0, b_descriptor = 0;
  std::vector<u32> a_fragment = {};  // rows of A held in registers, or empty
  bool accumulate = true;
  u64 number = 0;     // in the warp's order of issue
  bool done = false;  // computed; the registers get the result when the warp waits
  WgmmaAccumulator* accumulator = nullptr;  // in a late schedule
};

struct WgmmaState {
  std::vector<WgmmaProduct> open;
  std::deque<std::vector<WgmmaProduct>> groups;
  std::list<WgmmaAccumulator> in_flight;
  u64 issued = 0;     // products
  u64 completed = 0;  // products known to be complete for the whole warpgroup
  u64 requested = 0;  // products that a late schedule has been asked to complete
  bool fenced = false;
  std::vector<u32> fenced_rows;  // contents of the kernel's wgmma rows at the last fence, or as products left them
};

// Reports products that nobody waited for; completes nothing.
void leave_wgmma(Warp& warp);

}  // namespace ptx
