// A lowered PTX module as the machine keeps it: immutable after decoding.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "insn.hpp"

namespace ptx {

struct Constant {
  enum Kind : u8 {
    kImmediate,
    kSpecial,
    kParameterAddress,
    kShared,
    kDynamicShared,
    kLocal,
    kGlobal,
  };
  i32 slot;
  u8 width;  // bits: 1, 32 or 64
  Kind kind;
  u64 value;
  i64 addend;
};

struct GlobalVariable {
  struct Relocation {
    u64 at;
    u32 variable;
    i64 addend;
  };
  std::string name;
  u32 align;
  bool constant;
  std::vector<u8> data;
  std::vector<Relocation> relocations;
};

struct Kernel {
  std::string name;
  u32 index;
  u32 param_bytes, static_shared, dynamic_align, local_bytes, rows;
  u32 cluster[3];
  u32 max_threads, max_registers;
  std::vector<Constant> constants;
  std::vector<Insn> code;
  bool reads_global_async = false;   // copies through the async proxy: reads tensor maps or data in global memory
  std::vector<i32> wgmma_rows;       // registers that wgmma reads or writes, ascending
  std::vector<i32> wgmma_row_index;  // by register row: index into wgmma_rows, or -1

  // Byte offset of the dynamic block in the shared window.
  u32 dynamic_offset() const;
};

struct Module {
  std::string target;
  std::vector<GlobalVariable> globals;
  std::vector<Kernel> kernels;
};

// Decodes and checks an image; throws std::invalid_argument with a sentence.
Module decode_module(std::span<const u8> image);

// Handlers of every unit, by name.
std::vector<std::string> handler_names();

}  // namespace ptx
