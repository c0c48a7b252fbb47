// Registers that tcgen05.ld loads asynchronously.
#pragma once
#include <functional>
#include <vector>

#include "machine.hpp"

namespace ptx {

// The loads of a warp that tcgen05.wait::ld has not completed. Hardware follows their registers (ptxas puts a scoreboard on
// them), so that a register used too early has its value all the same, though the ISA leaves it undefined. Compilers move
// such registers about before the wait: their copies are not loaded yet either, and only other uses are reported.
class TensorLoads {
 public:
  explicit TensorLoads(u32 rows) : loading_(rows) {}

  // `run` fills the registers; empty if that is done.
  void issue(Warp& warp, const Insn& insn, u32 registers, std::function<void()> run);
  // Before an instruction executes: passes on what it moves, and reports it if it uses what is not loaded. A load whose
  // registers are used has completed.
  void touch(Warp& warp, const Insn& insn) {
    if (!loads_.empty()) look_at(warp, insn);
  }
  // The warp has waited.
  void complete(Warp& warp);

 private:
  struct Load {
    std::function<void()> run;
    u32 step;  // of the engine (races.hpp)
    bool completed = false;
  };
  void look_at(Warp& warp, const Insn& insn);
  void run_all();
  void use(Warp& warp, u64 loads);
  u64 loading(const Operand& operand) const { return operand.slot < 0 ? 0 : loading_[size_t(operand.slot)]; }
  void mark(const Operand& operand, u64 loads);

  std::vector<Load> loads_;
  // By row: a bit for each load that fills it, itself or through moves. The loads that are too many share one.
  std::vector<u64> loading_;
  std::vector<i32> marked_;
};

}  // namespace ptx
