// The video instructions: arithmetic on parts of words, whose results are clamped and combined with a third operand.
//
// video.scalar: d, a, b, c or none; attributes = operation, signedness of d, of a, of b, saturate, part of a, of b, of d,
//               combination
// video.simd:   d, a, b, c; attributes = operation, signedness of d, of a, of b, saturate, elements, choice of a's
//               elements, of b's (four bits each), mask of d's, accumulate
// video.mad:    d, a, b, c; attributes = signedness of a, of b, part of a, of b, one more
#include <algorithm>

#include "alu_lanes.hpp"
#include "units.hpp"

namespace ptx {
namespace {

// Attribute values; lower/video.py mirrors them.
enum Operation : i32 { kAdd, kSub, kAbsDiff, kMin, kMax, kAverage, kShlClamp, kShlWrap, kShrClamp, kShrWrap, kEq, kNe, kLt,
                       kLe, kGt, kGe };
enum Part : i32 { kWord, kByte0, kHalf0 = 5 };
enum Combination : i32 { kNone, kPlus, kLeast, kMost, kMerge };

using Wide = __int128;

u32 bits_of(Part part) { return part == kWord ? 32 : part < kHalf0 ? 8 : 16; }
u32 shift_of(Part part) {
  return part == kWord ? 0 : part < kHalf0 ? u32(part - kByte0) * 8 : u32(part - kHalf0) * 16;
}

i64 extend(u32 value, u32 bits, bool is_signed) {
  const u32 shift = 32 - bits;
  return is_signed ? i64(i32(value << shift) >> shift) : i64(value << shift >> shift);
}

i64 select(u32 word, Part part, bool is_signed) { return extend(word >> shift_of(part), bits_of(part), is_signed); }

Wide clamp(Wide value, u32 bits, bool is_signed) {
  const i64 top = i64(1) << (bits - is_signed);
  return std::clamp<Wide>(value, is_signed ? -top : 0, top - 1);
}

Wide compute(Operation operation, i64 a, i64 b) {
  const u32 clamped = u32(std::min<i64>(b, 32)), wrapped = u32(b) & 31;
  switch (operation) {
    case kAdd: return a + b;
    case kSub: return a - b;
    case kAbsDiff: return a < b ? b - a : a - b;
    case kMin: return std::min(a, b);
    case kMax: return std::max(a, b);
    case kAverage: return (a + b + (a + b >= 0)) >> 1;
    case kShlClamp: return Wide(a) * (Wide(1) << clamped);
    case kShlWrap: return Wide(a) * (Wide(1) << wrapped);
    case kShrClamp: return a >> clamped;
    case kShrWrap: return a >> wrapped;
    case kEq: return a == b;
    case kNe: return a != b;
    case kLt: return a < b;
    case kLe: return a <= b;
    case kGt: return a > b;
    case kGe: return a >= b;
  }
  return 0;
}

u32 combine(Combination combination, u32 result, u32 c, Part to, bool is_signed) {
  const i64 left = extend(result, 32, is_signed), right = extend(c, 32, is_signed);
  switch (combination) {
    case kNone: return result;
    case kPlus: return result + c;
    case kLeast: return u32(std::min(left, right));
    case kMost: return u32(std::max(left, right));
    case kMerge: {
      const u32 mask = u32((u64(1) << bits_of(to)) - 1) << shift_of(to);
      return (c & ~mask) | (result << shift_of(to) & mask);
    }
  }
  return result;
}

// The third operand, or zeros.
struct Third {
  const u32* row = nullptr;
  Third(Warp& warp, const Operand& operand) {
    if (operand.kind != Operand::kNone) row = warp.row(operand.slot);
  }
  u32 operator[](int lane) const { return row ? row[lane] : 0; }
};

// Writes compute(a, b, c) to the lanes' destination.
template <class Compute>
Step for_words(Warp& warp, const Insn& insn, u32 mask, Compute compute) {
  if (insn.ops[0].kind == Operand::kNone) return Step::kNext;
  const u32 *a = warp.row(insn.ops[1].slot), *b = warp.row(insn.ops[2].slot);
  const Third c(warp, insn.ops[3]);
  write_lanes<u32>(warp.row(insn.ops[0].slot), mask, [&](int l) { return compute(a[l], b[l], c[l]); });
  return Step::kNext;
}

Step scalar(Warp& warp, const Insn& insn, u32 mask) {
  const Operation operation = Operation(insn.attr[0]);
  const bool d_signed = insn.attr[1], a_signed = insn.attr[2], b_signed = insn.attr[3], saturate = insn.attr[4];
  const Part a_part = Part(insn.attr[5]), b_part = Part(insn.attr[6]), to = Part(insn.attr[7]);
  const Combination combination = Combination(insn.attr[8]);
  return for_words(warp, insn, mask, [=](u32 a, u32 b, u32 c) {
    Wide value = compute(operation, select(a, a_part, a_signed), select(b, b_part, b_signed));
    if (saturate) value = clamp(value, bits_of(to), d_signed);
    return combine(combination, u32(value), c, to, d_signed);
  });
}

Step simd(Warp& warp, const Insn& insn, u32 mask) {
  const Operation operation = Operation(insn.attr[0]);
  const bool d_signed = insn.attr[1], a_signed = insn.attr[2], b_signed = insn.attr[3], saturate = insn.attr[4];
  const u32 elements = u32(insn.attr[5]), bits = 32 / elements, ones = (1u << bits) - 1;
  const u32 a_choice = u32(insn.attr[6]), b_choice = u32(insn.attr[7]), written = u32(insn.attr[8]);
  const bool accumulate = insn.attr[9];
  return for_words(warp, insn, mask, [=](u32 a, u32 b, u32 c) {
    const u64 words = u64(b) << 32 | a;
    const auto element = [=](u32 choice, u32 i, bool is_signed) {
      return extend(u32(words >> (choice >> (4 * i) & 15) * bits), bits, is_signed);
    };
    u32 result = c;
    for (u32 i = 0; i < elements; ++i) {
      if (!(written >> i & 1)) continue;
      Wide value = compute(operation, element(a_choice, i, a_signed), element(b_choice, i, b_signed));
      if (saturate) value = clamp(value, bits, d_signed);
      result = accumulate ? result + u32(value) : (result & ~(ones << i * bits)) | (u32(value) & ones) << i * bits;
    }
    return result;
  });
}

Step mad(Warp& warp, const Insn& insn, u32 mask) {
  const bool a_signed = insn.attr[0], b_signed = insn.attr[1];
  const Part a_part = Part(insn.attr[2]), b_part = Part(insn.attr[3]);
  const u32 one = u32(insn.attr[4]);
  return for_words(warp, insn, mask, [=](u32 a, u32 b, u32 c) {
    return u32(select(a, a_part, a_signed)) * u32(select(b, b_part, b_signed)) + c + one;
  });
}

constexpr NamedHandler kTable[] = {{"video.scalar", scalar}, {"video.simd", simd}, {"video.mad", mad}};

}  // namespace

std::span<const NamedHandler> video_handlers() { return kTable; }

}  // namespace ptx
