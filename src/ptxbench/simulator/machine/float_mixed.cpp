// Sums and products of f16 or bf16 operands with an f32 operand, rounded once to f32. Attributes: rounding, flags (sat).
#include "float_lanes.hpp"

namespace ptx {
namespace {

struct Add { template <class H> f32 operator()(H a, f32 c) const { return to_f32(a) + c; } };
struct Sub { template <class H> f32 operator()(H a, f32 c) const { return to_f32(a) - c; } };
struct Fma { template <class H> f32 operator()(H a, H b, f32 c) const { return std::fma(to_f32(a), to_f32(b), c); } };

#define PTX_MIXED(tag, H)                                                                       \
  {"add.f32." tag, float_lanes<Add, f32, H, f32>}, {"sub.f32." tag, float_lanes<Sub, f32, H, f32>}, \
  {"fma.f32." tag, float_lanes<Fma, f32, H, H, f32>}

constexpr NamedHandler kTable[] = {PTX_MIXED("f16", f16), PTX_MIXED("bf16", bf16)};

}  // namespace

std::span<const NamedHandler> mixed_handlers() { return kTable; }

}  // namespace ptx
