// Softmax rows of the truth (fp64) and of the honest algorithm (fp32), one block per query.
//
// Matrices are [heads, queries, keys]; blockIdx.x is the query, blockIdx.y the head. Keys behind a query are hidden if
// `causal`: their logits are never read, and their weights become zero.
#include "common.cuh"

namespace softmax {

struct Row {
  i64 query, first, visible;  // index of the row among all rows, of its first element, and how many keys it sees
};

__device__ Row row_of(i64 length, i64 causal) {
  const i64 query = blockIdx.y * length + blockIdx.x;
  return {query, query * length, causal ? i64(blockIdx.x) + 1 : length};
}

struct Exact {
  double* weights;  // logits before
  double* lse;
  i64 length, causal;
};

struct Honest {
  const float* logits;
  void* weights;  // unnormalised, rounded
  float* total;
  float* lse;
  i64 length, causal, type;
};

struct Noise {
  double* weights;  // after: the squared error of each weight
  const float* logit_noise;
  const double* lse;
  double* lse_noise;  // squared
  i64 length, causal;
  double roundoff, underflow, exp_error, lse_roundoff;
};

// The natural logarithm by two Newton steps from that in fp32, each of which squares the error.
__device__ double logarithm(double value) {
  double result = logf(float(value));
  for (int step = 0; step < 2; ++step) result += value * exp(-result) - 1.0;
  return result;
}

extern "C" __global__ void __launch_bounds__(kThreads) softmax_exact(Exact p) {
  const Row row = row_of(p.length, p.causal);
  double* weights = p.weights + row.first;
  double top = -INFINITY, total = 0;
  for (i64 key = threadIdx.x; key < row.visible; key += kThreads) top = Greater()(weights[key], top);
  top = block_reduce(top, Greater());
  for (i64 key = threadIdx.x; key < row.visible; key += kThreads) {
    const double weight = exp(weights[key] - top);
    weights[key] = weight;
    total += weight;
  }
  total = block_reduce(total, Sum());
  for (i64 key = threadIdx.x; key < p.length; key += kThreads)
    weights[key] = key < row.visible ? weights[key] / total : 0.0;
  if (threadIdx.x == 0) p.lse[row.query] = top + logarithm(total);
}

extern "C" __global__ void __launch_bounds__(kThreads) softmax_honest(Honest p) {
  const Row row = row_of(p.length, p.causal);
  const float* logits = p.logits + row.first;
  float top = -INFINITY, total = 0;
  for (i64 key = threadIdx.x; key < row.visible; key += kThreads) top = Greater()(logits[key], top);
  top = block_reduce(top, Greater());
  for (i64 key = threadIdx.x; key < p.length; key += kThreads) {
    const float weight = key < row.visible ? expf(logits[key] - top) : 0.0f;
    store_as(p.weights, row.first + key, p.type, weight);
    total += weight;
  }
  total = block_reduce(total, Sum());
  if (threadIdx.x == 0) {
    p.total[row.query] = total;
    p.lse[row.query] = top + logf(total);
  }
}

// The derived errors of weights and of LSE: see the room `tasks`, attention, `noise` of the forward pass.
extern "C" __global__ void __launch_bounds__(kThreads) softmax_noise(Noise p) {
  const Row row = row_of(p.length, p.causal);
  double of_logits = 0;
  for (i64 key = threadIdx.x; key < p.length; key += kThreads) {
    double squared = p.underflow * p.underflow;
    if (key < row.visible) {
      const double weight = p.weights[row.first + key], noise = p.logit_noise[row.first + key];
      of_logits += noise * weight * (noise * weight);
      squared += (p.roundoff * p.roundoff + noise * noise) * weight * weight;
    }
    p.weights[row.first + key] = squared;
  }
  of_logits = block_reduce(of_logits, Sum());
  if (threadIdx.x == 0) {
    const double own = p.lse_roundoff * p.lse[row.query];
    p.lse_noise[row.query] = of_logits + p.exp_error * p.exp_error + own * own;
  }
}

}  // namespace softmax
