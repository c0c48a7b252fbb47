// Decoding of program images. The format is defined in lower/image.py.
#include "module.hpp"

#include <algorithm>
#include <cstring>
#include <set>
#include <stdexcept>

#include "memory.hpp"

namespace ptx {
namespace {

constexpr u32 kMagic = 0x49585450;
constexpr u32 kVersion = 1;

class Reader {
 public:
  explicit Reader(std::span<const u8> bytes) : bytes_(bytes) {}

  template <class T>
  T get() {
    T value;
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  std::string text() {
    const u32 size = get<u32>();
    return std::string(reinterpret_cast<const char*>(take(size)), size);
  }
  std::vector<u8> block(u64 size) {
    const u8* data = take(size);
    return std::vector<u8>(data, data + size);
  }
  bool empty() const { return bytes_.empty(); }

 private:
  const u8* take(u64 size) {
    if (size > bytes_.size()) throw std::invalid_argument("the program image is truncated");
    const u8* data = bytes_.data();
    bytes_ = bytes_.subspan(size);
    return data;
  }
  std::span<const u8> bytes_;
};

GlobalVariable read_global(Reader& in) {
  GlobalVariable variable;
  variable.name = in.text();
  variable.align = in.get<u32>();
  variable.constant = in.get<u8>();
  const u64 size = in.get<u64>();
  variable.relocations.resize(in.get<u32>());
  variable.data = in.block(size);
  for (auto& relocation : variable.relocations) {
    relocation.at = in.get<u64>();
    relocation.variable = in.get<u32>();
    relocation.addend = in.get<i64>();
  }
  return variable;
}

// Whether an opcode is one for the whole warp, by its modifiers.
bool converges(std::string_view opcode) {
  const std::string_view base = opcode.substr(0, opcode.find('.'));
  if (base == "elect") return false;  // the ISA has it order nothing
  return base == "bar" || base == "barrier" || opcode.find(".sync.") != opcode.npos || opcode.ends_with(".sync") ||
         opcode.ends_with(".aligned");
}

Insn read_instruction(Reader& in, u32 position) {
  Insn insn;
  insn.position = position;
  const std::string op = in.text();
  insn.text = in.text();
  insn.converges = converges(insn.text);
  insn.handler = find_handler(op);
  if (!insn.handler) throw std::invalid_argument("no handler for machine op '" + op + "' (" + insn.text + ")");
  insn.guard = in.get<i32>();
  insn.guard_negated = in.get<u8>();
  insn.ptx_line = in.get<u32>();
  insn.attr.resize(in.get<u16>());
  for (i32& attribute : insn.attr) attribute = in.get<i32>();
  insn.ops.resize(in.get<u16>());
  for (Operand& operand : insn.ops) {
    operand.kind = Operand::Kind(in.get<u8>());
    operand.slot = in.get<i32>();
    operand.imm = in.get<i64>();
  }
  return insn;
}

u32 rows_of(const Operand& operand) {
  switch (operand.kind) {
    case Operand::kRow:
    case Operand::kPred:
    case Operand::kMem: return 1;
    case Operand::kRow64:
    case Operand::kMem64: return 2;
    case Operand::kRow128: return 4;
    default: return 0;
  }
}

void check_slots(const Kernel& kernel) {
  const auto check = [&](i64 slot, u32 rows) {
    if (slot < 0 || slot + rows > kernel.rows)
      throw std::invalid_argument("register row out of range in " + kernel.name);
  };
  for (const Constant& constant : kernel.constants) check(constant.slot, constant.width == 64 ? 2 : 1);
  for (const Insn& insn : kernel.code) {
    if (insn.guard >= 0) check(insn.guard, 1);
    for (const Operand& operand : insn.ops) {
      if (const u32 rows = rows_of(operand)) check(operand.slot, rows);
      if (operand.kind == Operand::kLabel && u64(operand.imm) > kernel.code.size())
        throw std::invalid_argument("branch target out of range in " + kernel.name);
    }
  }
}

std::vector<i32> rows_of_matrix_products(const Kernel& kernel) {
  std::set<i32> rows;
  for (const Insn& insn : kernel.code)
    if (insn.text.starts_with("wgmma.mma_async"))
      for (const Operand& operand : insn.ops)
        if (operand.kind == Operand::kRow) rows.insert(operand.slot);
  return {rows.begin(), rows.end()};
}

// Instructions that may change a register of products by other means.
void mark_uses_of_products(Kernel& kernel) {
  const Handler move = find_handler("wgmma.move");
  for (Insn& insn : kernel.code)
    insn.touches_products = insn.handler != move && !insn.text.starts_with("wgmma.") &&
                            std::any_of(insn.ops.begin(), insn.ops.end(), [&](const Operand& operand) {
                              return operand.slot >= 0 && kernel.wgmma_row_index[size_t(operand.slot)] >= 0;
                            });
}

// Moves between registers of products, and of constants into them, have rules of their own.
void mark_moves_of_products(Kernel& kernel) {
  std::vector<bool> constant(kernel.rows);
  for (const Constant& value : kernel.constants) constant[size_t(value.slot)] = true;
  const Handler plain = find_handler("mov.b32"), ours = find_handler("wgmma.move");
  const auto of_product = [&](i32 slot) { return slot >= 0 && kernel.wgmma_row_index[size_t(slot)] >= 0; };
  for (Insn& insn : kernel.code)
    if (insn.handler == plain && of_product(insn.ops[0].slot) &&
        (of_product(insn.ops[1].slot) || constant[size_t(insn.ops[1].slot)]))
      insn.handler = ours;
}

Kernel read_kernel(Reader& in, u32 index) {
  Kernel kernel;
  kernel.index = index;
  kernel.name = in.text();
  for (u32* field :
       {&kernel.param_bytes, &kernel.static_shared, &kernel.dynamic_align, &kernel.local_bytes, &kernel.rows,
        &kernel.cluster[0], &kernel.cluster[1], &kernel.cluster[2], &kernel.max_threads, &kernel.max_registers})
    *field = in.get<u32>();
  kernel.constants.resize(in.get<u32>());
  for (Constant& constant : kernel.constants) {
    constant.slot = in.get<i32>();
    constant.width = in.get<u8>();
    constant.kind = Constant::Kind(in.get<u8>());
    constant.value = in.get<u64>();
    constant.addend = in.get<i64>();
  }
  const u32 count = in.get<u32>();
  kernel.code.reserve(size_t(count) + 1);
  for (u32 position = 0; position < count; ++position) kernel.code.push_back(read_instruction(in, position));
  // Control that runs off the end leaves the kernel.
  Insn& end = kernel.code.emplace_back();
  end.handler = find_handler("exit");
  end.position = count;
  end.text = "exit";
  check_slots(kernel);
  kernel.reads_global_async = std::any_of(kernel.code.begin(), kernel.code.end(), [](const Insn& insn) {
    return insn.text.starts_with("cp.async.bulk") || insn.text.starts_with("cp.reduce.async.bulk");
  });
  kernel.wgmma_rows = rows_of_matrix_products(kernel);
  kernel.wgmma_row_index.assign(kernel.rows, -1);
  for (size_t i = 0; i < kernel.wgmma_rows.size(); ++i) kernel.wgmma_row_index[size_t(kernel.wgmma_rows[i])] = i32(i);
  mark_moves_of_products(kernel);
  mark_uses_of_products(kernel);
  return kernel;
}

}  // namespace

u32 Kernel::dynamic_offset() const {
  const u32 align = std::max(dynamic_align, 16u);
  return (kReservedShared + static_shared + align - 1) / align * align;
}

Module decode_module(std::span<const u8> image) {
  Reader in(image);
  if (in.get<u32>() != kMagic || in.get<u32>() != kVersion)
    throw std::invalid_argument("not a program image of this version");
  Module module;
  module.globals.resize(in.get<u32>());
  const u32 kernels = in.get<u32>();
  module.target = in.text();
  for (GlobalVariable& variable : module.globals) variable = read_global(in);
  for (u32 index = 0; index < kernels; ++index) module.kernels.push_back(read_kernel(in, index));
  if (!in.empty()) throw std::invalid_argument("the program image has trailing bytes");
  return module;
}

}  // namespace ptx
