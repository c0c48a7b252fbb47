// What the backward pass does between its matrix products; matrices as in softmax.cu.
#include "common.cuh"

namespace gradient {

// delta = sum of weights * d_weights over a row, and slope = d_weights - delta in place; per query also the sum of
// slope^2 over the visible keys.
struct Slope {
  const double* weights;
  double* d_weights;  // after: slope
  double* squares;
  i64 length, causal;
};

// The error of delta per query, in squares: roundoff^2 * sum of (dO * O)^2, from a rounded O, and underflow^2 * sum of
// slope^2, from weights that become zero.
struct DeltaNoise {
  const void* d_out;
  const double* out;
  double* noise;  // before: sum of slope^2
  i64 type, depth, queries;
  double roundoff, underflow;
};

// Which derived error an element of the result is the square of.
enum Of : i64 { kWeight, kOwn, kAll };

struct Errors {
  const double* weights;
  const double* slope;
  const float* logit_noise;
  const float* sums;
  const double* delta_noise;
  double* squared;
  i64 length, causal, of;
  double roundoff, underflow;
};

struct Scores {
  const double* weights;
  double* slope;  // after: dS
  i64 count;
};

struct QueryNoise {
  double* squared;      // the errors of dS times K, squared; after: those of dQ
  const double* common;  // weights times K
  const double* delta_noise;
  i64 depth, count;
};

struct Honest {
  const float* logits;
  const float* d_weights;
  const void* out;
  const void* d_out;
  const float* lse;
  void* weights;
  void* d_scores;
  i64 length, depth, causal, type;
};

extern "C" __global__ void __launch_bounds__(kThreads) slope_exact(Slope p) {
  const i64 first = (blockIdx.y * p.length + blockIdx.x) * p.length;
  double delta = 0;
  for (i64 key = threadIdx.x; key < p.length; key += kThreads) delta += p.weights[first + key] * p.d_weights[first + key];
  delta = block_reduce(delta, Sum());
  const i64 visible = p.causal ? i64(blockIdx.x) + 1 : p.length;
  double squares = 0;
  for (i64 key = threadIdx.x; key < p.length; key += kThreads) {
    const double slope = p.d_weights[first + key] - delta;
    p.d_weights[first + key] = slope;
    if (key < visible) squares += slope * slope;
  }
  squares = block_reduce(squares, Sum());
  if (threadIdx.x == 0) p.squares[blockIdx.y * p.length + blockIdx.x] = squares;
}

extern "C" __global__ void __launch_bounds__(kThreads) delta_noise(DeltaNoise p) {
  const i64 query = i64(blockIdx.x) * kThreads + threadIdx.x;
  if (query >= p.queries) return;
  double sum = 0;
  for (i64 d = 0; d < p.depth; ++d) {
    const double term = load_as<double>(p.d_out, query * p.depth + d, p.type) * p.out[query * p.depth + d];
    sum += term * term;
  }
  p.noise[query] = sqrt(p.roundoff * p.roundoff * sum + p.underflow * p.underflow * p.noise[query]);
}

// The derived errors of dS: see the room `tasks`, attention, `noise` of the backward pass.
extern "C" __global__ void __launch_bounds__(kThreads) gradient_errors(Errors p) {
  const i64 query = blockIdx.y * p.length + blockIdx.x, first = query * p.length;
  const i64 visible = p.causal ? i64(blockIdx.x) + 1 : p.length;
  for (i64 key = threadIdx.x; key < p.length; key += kThreads) {
    const i64 at = first + key;
    double weight = 0, noise = 0;
    if (key < visible) {
      weight = p.weights[at];
      noise = p.logit_noise[at];
    }
    const double rounding = p.roundoff * weight;
    double squared = rounding * rounding + noise * weight * (noise * weight) + p.underflow * p.underflow;
    if (p.of != kWeight) {
      const double slope = p.slope[at], of_sums = weight * p.sums[at];
      squared = (squared + rounding * rounding) * slope * slope + of_sums * of_sums;
    }
    if (p.of == kAll) {
      const double common = weight * p.delta_noise[query];
      squared += common * common;
    }
    p.squared[at] = squared;
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) scores_exact(Scores p) {
  const i64 step = i64(gridDim.x) * kThreads;
  for (i64 at = i64(blockIdx.x) * kThreads + threadIdx.x; at < p.count; at += step) p.slope[at] *= p.weights[at];
}

extern "C" __global__ void __launch_bounds__(kThreads) query_noise(QueryNoise p) {
  const i64 step = i64(gridDim.x) * kThreads;
  for (i64 at = i64(blockIdx.x) * kThreads + threadIdx.x; at < p.count; at += step) {
    const double common = p.delta_noise[at / p.depth] * p.common[at];
    p.squared[at] += common * common;
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) gradient_honest(Honest p) {
  const i64 query = blockIdx.y * p.length + blockIdx.x, first = query * p.length;
  const i64 visible = p.causal ? i64(blockIdx.x) + 1 : p.length;
  float delta = 0;
  for (i64 d = threadIdx.x; d < p.depth; d += kThreads)
    delta += load_as<float>(p.d_out, query * p.depth + d, p.type) * load_as<float>(p.out, query * p.depth + d, p.type);
  delta = block_reduce(delta, Sum());
  const float lse = p.lse[query];
  for (i64 key = threadIdx.x; key < p.length; key += kThreads) {
    const i64 at = first + key;
    float weight = 0, d_score = 0;
    if (key < visible) {
      weight = expf(p.logits[at] - lse);
      d_score = weight * (p.d_weights[at] - delta);
    }
    store_as(p.weights, at, p.type, weight);
    store_as(p.d_scores, at, p.type, d_score);
  }
}

}  // namespace gradient
