#include "float_format.hpp"

namespace ptx {

u32 encode(f64 value, const Format& format, i32 rounding, bool saturate) {
  const int width = 1 + format.exponent + format.mantissa;
  const u32 sign = std::signbit(value) ? 1u << (width - 1) : 0;
  if (std::isnan(value)) return format.nan;
  const f64 magnitude = std::fabs(value);
  const u32 infinity = ((1u << format.exponent) - 1) << format.mantissa;
  const bool clamp = saturate || !format.infinity;
  if (std::isinf(value)) return sign | (clamp ? format.largest : infinity);

  // The unit in the last place at this magnitude, subnormal range included.
  const int bias = (1 << (format.exponent - 1)) - 1;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  exponent = std::max(exponent - 1, 1 - bias);
  const f64 units = std::ldexp(magnitude, format.mantissa - exponent);
  const f64 below = std::floor(units), rest = units - below;
  const bool negative = sign != 0;
  bool up = false;
  switch (rounding & 3) {
    case kNearest: up = rest > 0.5 || (rest == 0.5 && (u64(below) & 1)); break;
    case kToZero: break;
    case kDown: up = negative && rest > 0; break;
    case kUp: up = !negative && rest > 0; break;
  }
  // Counting units from the bottom of the range carries into the exponent by itself.
  const u64 count = u64(below) + up;
  const u64 base = u64(exponent - (1 - bias)) << format.mantissa;
  const u64 result = count == 0 ? 0 : base + count;
  if (result > format.largest) {
    const bool toward_zero = (rounding & 3) == kToZero || ((rounding & 3) == kDown && !negative) ||
                             ((rounding & 3) == kUp && negative);
    return sign | (clamp || toward_zero ? format.largest : infinity);
  }
  return sign | u32(result);
}

f64 decode(u32 bits, const Format& format) {
  const int width = 1 + format.exponent + format.mantissa;
  const u32 magnitude = bits & ((1u << (width - 1)) - 1);
  const f64 sign = bits >> (width - 1) & 1 ? -1.0 : 1.0;
  const u32 exponent = magnitude >> format.mantissa, mantissa = magnitude & ((1u << format.mantissa) - 1);
  if (format.infinity && exponent == (1u << format.exponent) - 1)
    return mantissa ? std::numeric_limits<f64>::quiet_NaN() : sign * HUGE_VAL;
  if (format.nan > format.largest && magnitude == format.nan) return std::numeric_limits<f64>::quiet_NaN();
  const int bias = (1 << (format.exponent - 1)) - 1;
  const u32 hidden = exponent ? 1u << format.mantissa : 0;
  return sign * std::ldexp(f64(hidden + mantissa), int(std::max(exponent, 1u)) - bias - format.mantissa);
}

}  // namespace ptx
