// The contract between the lowering (Python) and the machine (C++): what a lowered instruction looks like,
// how registers are stored, and how a handler is found.
//
// Registers live in rows of 32 words, one word a lane (128 bytes, 64-byte aligned):
//   8-, 16- and 32-bit values   one row; upper bits of narrow values are zero
//   64-bit values               two rows, read as u64[32]
//   128-bit values              four rows, read as two u64[32] (low half first)
//   predicates                  one row; bit l of word 0 is lane l
// Immediates, addresses of variables and special registers are constant rows that the machine fills when a warp starts.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ptx {

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using i8 = int8_t;
using i16 = int16_t;
using i32 = int32_t;
using i64 = int64_t;

constexpr u32 kFullMask = 0xffffffffu;
constexpr int kLanes = 32;

struct Operand {
  enum Kind : u8 {
    kNone,       // '_' sink, or an absent optional operand
    kRow,        // 8- to 32-bit register: `slot` is its row
    kRow64,      // 64-bit register: rows slot, slot+1
    kRow128,     // 128-bit register: rows slot .. slot+3
    kPred,       // predicate: `slot`; imm 1 means negated when read
    kMem,        // address in row `slot` (kMem: 32-bit) plus imm
    kMem64,      // address in rows slot, slot+1 plus imm
    kParam,      // kernel parameter space: imm is the byte offset
    kLabel,      // branch target: imm is an instruction index
  };
  Kind kind = kNone;
  i32 slot = -1;
  i64 imm = 0;
};

struct Warp;
struct Insn;

// What a handler tells the scheduler.
enum class Step : u8 {
  kNext,      // done, go on with the next instruction
  kBlock,     // cannot proceed now: try the same instruction again later (not counted)
  kPoll,      // polls what others may change: try again after they had their turn (not counted)
  kConverge,  // needs all live lanes of the warp here first (not counted)
  kJump,      // branch taken by the lanes of `mask`
  kExit,      // the lanes of `mask` end
};

// `mask` holds the lanes that execute: active and with a true guard; it is never empty.
using Handler = Step (*)(Warp& warp, const Insn& insn, u32 mask);

struct Insn {
  Handler handler = nullptr;
  i32 guard = -1;  // row of the guard predicate, or -1
  bool guard_negated = false;
  bool converges = false;         // brings the lanes of the warp together
  bool touches_products = false;  // names a register of warpgroup products, but is no wgmma instruction
  u32 ptx_line = 0;
  u32 position = 0;  // index in the kernel's instruction list
  std::vector<i32> attr;
  std::vector<Operand> ops;
  std::string text;  // full PTX opcode, for messages
};

// Finds a handler by the machine op's name ("add.u32", "wgmma.mma", ...); nullptr if there is none. Each unit (alu.cpp,
// convert.cpp, wgmma.cpp, ...) offers one table; registry.cpp joins them.
Handler find_handler(std::string_view op);

struct NamedHandler {
  std::string_view op;
  Handler handler;
};

}  // namespace ptx
