// The state of a warp's asynchronous warpgroup products.
#pragma once
#include <deque>
#include <list>
#include <utility>
#include <vector>

#include "matrix.hpp"

namespace ptx {

constexpr u32 kWarpsOfGroup = 4;
inline u32 first_of_group(const Warp& warp) { return warp.index / kWarpsOfGroup * kWarpsOfGroup; }
// Tells the warpgroups of a cluster apart.
inline u64 group_number(const Warp& warp) { return warp.number() - warp.index % kWarpsOfGroup; }

// What a wgmma.mma_async says. Attributes: see wgmma.cpp.
struct WgmmaForm {
  u32 columns, depth;
  Element a, b;
  Accumulators kind;
  bool a_in_registers, negate, a_mn_major, b_mn_major, saturate;
  bool bits;      // elements are bits, eight of which count as one of `depth`
  u32 registers;  // of the accumulators

  explicit WgmmaForm(const Insn& insn)
      : columns(u32(insn.attr[0])),
        depth(32 / bytes_of(Element(insn.attr[1]))),
        a(Element(insn.attr[1])),
        b(Element(insn.attr[2])),
        kind(Accumulators(insn.attr[3])),
        a_in_registers(insn.attr[4]),
        negate(insn.attr[5] != insn.attr[6]),
        a_mn_major(insn.attr[7]),
        b_mn_major(insn.attr[8]),
        saturate(insn.attr[9]),
        bits(insn.attr[10]),
        registers(columns / (kind == Accumulators::kF16 ? 4 : 2)) {}
  u64 flops() const { return 2ull * 16 * columns * depth * (bits ? 8 : 1); }
  const char* dtype() const { return bits ? "b1" : name_of(a); }
};

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
  WgmmaAccumulator* accumulator = nullptr;  // in a late schedule

  // Where register i of the accumulators is.
  u32* row(u32 i) const {
    return accumulator ? &accumulator->rows[size_t(i) * kLanes] : place.warp->row(place.insn->ops[i].slot);
  }
};

// Products have numbers in the warp's order of issue; those of one number of the four warps are one instruction.
struct WgmmaState {
  std::deque<WgmmaProduct> products;  // issued and not waited for; the first has number `retired`
  std::deque<u64> groups;             // products issued when each group was committed
  std::list<WgmmaAccumulator> in_flight;
  u64 retired = 0;
  u64 completed = 0;  // products known to be complete for the whole warpgroup
  u64 requested = 0;  // products that a late schedule has been asked to complete
  bool fenced = false;
  bool intact = false;  // the kernel's wgmma rows hold what the last fence saw, or what products left there since
  std::vector<u32> fenced_rows;  // that, once they do not
  std::vector<u8> used;  // by wgmma row: other instructions have used it since the last fence; only where races are checked

  u64 issued() const { return retired + products.size(); }
};

// Checks what a warp's quarter of a product, the `step`-th of its warpgroup, reads from shared memory (races.hpp).
void check_wgmma_reads(const WgmmaProduct& product, u32 step);

// Computes a warp's quarter of a product onto its accumulators.
void compute_wgmma(const WgmmaProduct& product);
void compute_wgmma_bits(const WgmmaProduct& product);

MatrixDescriptor decode_wgmma_descriptor(const Place& place, u64 bits);

// Registers around products. `use` is told of every other instruction that names one; `save` keeps what the last fence saw
// before they change. `hold` takes the accumulators of a product out of the registers in a late schedule, and `retire`
// gives them back once the last product on them is complete; `fence` notes what the registers hold, and `check_fence`
// reports a product on registers that changed since; `keep` notes what a product left in them.
void use_registers(Warp& warp, const Insn& insn);
void save_registers(Warp& warp);
void hold_accumulators(WgmmaProduct& product);
void retire_accumulators(const WgmmaProduct& product);
void fence_registers(Warp& warp);
void check_fence(const WgmmaProduct& product);
void keep_results(const WgmmaProduct& product);

// wgmma.move: see the handler.
Step move_register(Warp& warp, const Insn& insn, u32 mask);

// Reports products that nobody waited for; completes nothing.
void leave_wgmma(Warp& warp);

}  // namespace ptx
