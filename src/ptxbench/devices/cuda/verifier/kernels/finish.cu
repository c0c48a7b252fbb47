// From sums to outputs: rounding, error scales, and the epilogue of a GEMM.
#include "common.cuh"

namespace finish {

struct Round {
  const void* from;
  const float* divisor;  // per row, or null
  void* out;
  i64 from_type, type, columns, count;
};

struct Scale {
  const double* truth;
  const double* noise;  // squared
  float* scale;
  i64 type, count;
  double factor;  // of the squared noise
};

struct Epilogue {
  double* truth;        // the product; after: the truth
  const float* honest;  // the product in fp32
  const float* noise;   // the derived error of the product
  const void* bias;     // per column, or null
  void* out;            // the honest output
  float* scale;
  i64 type, bias_type, columns, count, gelu;
  double fp32_roundoff;
};

__device__ double normal_cdf(double x) { return (1 + erf(x * 0.70710678118654752440)) / 2; }

extern "C" __global__ void __launch_bounds__(kThreads) round_rows(Round p) {
  const i64 step = i64(gridDim.x) * kThreads;
  for (i64 at = i64(blockIdx.x) * kThreads + threadIdx.x; at < p.count; at += step) {
    float value = load_as<float>(p.from, at, p.from_type);
    if (p.divisor != nullptr) value /= p.divisor[at / p.columns];
    store_as(p.out, at, p.type, value);
  }
}

// The derived error of an honest kernel: rounding and noise, added in squares. Subnormal results keep 16 bits or more.
extern "C" __global__ void __launch_bounds__(kThreads) error_scale(Scale p) {
  const i64 step = i64(gridDim.x) * kThreads;
  for (i64 at = i64(blockIdx.x) * kThreads + threadIdx.x; at < p.count; at += step)
    p.scale[at] = float(sqrt(rounding_variance(p.truth[at], p.type) + p.factor * p.noise[at]));
}

extern "C" __global__ void __launch_bounds__(kThreads) gemm_epilogue(Epilogue p) {
  const i64 step = i64(gridDim.x) * kThreads;
  for (i64 at = i64(blockIdx.x) * kThreads + threadIdx.x; at < p.count; at += step) {
    double truth = p.truth[at], noise = p.noise[at];
    float honest = p.honest[at];
    if (p.bias != nullptr) {
      truth += load_as<double>(p.bias, at % p.columns, p.bias_type);
      honest += load_as<float>(p.bias, at % p.columns, p.bias_type);
    }
    if (p.gelu) {
      // 1 + erf in fp32 cancels for negative values: an ulp of 1, times half of the value.
      const double x = truth, slope = normal_cdf(x) + x * exp(-x * x / 2) * 0.39894228040143267794;
      noise = sqrt(noise * slope * (noise * slope) + p.fp32_roundoff * x * (p.fp32_roundoff * x));
      truth = x * normal_cdf(x);
      honest *= float(normal_cdf(honest));
    }
    p.truth[at] = truth;
    p.scale[at] = float(sqrt(rounding_variance(truth, p.type) + noise * noise));
    store_as(p.out, at, p.type, honest);
  }
}

}  // namespace finish
