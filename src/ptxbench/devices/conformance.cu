// What a device must do, one launcher for each case of `conformance.py`. Every launcher has the signature of `launch`.
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <ptxbench/ptx/address.cuh>
#include <ptxbench/ptx/cluster.cuh>
#include <ptxbench/ptx/fence.cuh>
#include <ptxbench/ptx/mbarrier.cuh>
#include <ptxbench/ptx/tensor_map.cuh>
#include <ptxbench/ptx/tma.cuh>

constexpr int kThreads = 64;

extern "C" size_t workspace_bytes(int N) { return size_t(N) * sizeof(float); }

#define LAUNCHER(name) extern "C" int name(const float* A, float* C, int N, void* workspace, cudaStream_t stream)

// --- outputs ---------------------------------------------------------------------------------------------------------

__global__ void twice(const float* in, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = 2.0f * in[i];
}

LAUNCHER(launch) {
  twice<<<N / kThreads, kThreads, 0, stream>>>(A, C, N);
  return cudaGetLastError();
}

struct Arguments {
  int n;
  struct {
    const float* in;
    float* out;
  } tensors[2];
};

__global__ void sum_and_twice(const Arguments arguments) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= arguments.n) return;
  arguments.tensors[0].out[i] = arguments.tensors[0].in[i] + arguments.tensors[1].in[i];
}

LAUNCHER(launch_pointers_in_a_struct) {
  Arguments arguments{N / 2, {{A, C}, {A + N / 2, C}}};
  sum_and_twice<<<N / kThreads, kThreads, 0, stream>>>(arguments);
  return cudaGetLastError();
}

// --- order -----------------------------------------------------------------------------------------------------------

__global__ void add(const float* in, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] += in[i];
}

// C = 0, C += A, the second half becomes the first, the first element becomes 0 again.
LAUNCHER(launch_memset_kernel_copy) {
  cudaMemsetAsync(C, 0, N * sizeof(float), stream);
  add<<<N / kThreads, kThreads, 0, stream>>>(A, C, N);
  cudaMemcpyAsync(C + N / 2, C, N / 2 * sizeof(float), cudaMemcpyDeviceToDevice, stream);
  cudaMemsetAsync(C, 0, sizeof(float), stream);
  return cudaGetLastError();
}

LAUNCHER(launch_kernel_after_kernel) {
  float* between = static_cast<float*>(workspace);
  twice<<<N / kThreads, kThreads, 0, stream>>>(A, between, N);
  twice<<<N / kThreads, kThreads, 0, stream>>>(between, C, N);
  return cudaGetLastError();
}

// Two branches fill the halves of the workspace; the stream joins them again.
LAUNCHER(launch_fork_and_join) {
  float* between = static_cast<float*>(workspace);
  cudaStream_t branches[2];
  cudaEvent_t fork, joins[2];
  cudaEventCreateWithFlags(&fork, cudaEventDisableTiming);
  cudaEventRecord(fork, stream);
  for (int b = 0; b < 2; ++b) {
    cudaStreamCreateWithFlags(&branches[b], cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&joins[b], cudaEventDisableTiming);
    cudaStreamWaitEvent(branches[b], fork, 0);
    const int from = b * (N / 2);
    twice<<<N / 2 / kThreads, kThreads, 0, branches[b]>>>(A + from, between + from, N / 2);
    cudaEventRecord(joins[b], branches[b]);
    cudaStreamWaitEvent(stream, joins[b], 0);
  }
  twice<<<N / kThreads, kThreads, 0, stream>>>(between, C, N);
  return cudaGetLastError();
}

// --- state -----------------------------------------------------------------------------------------------------------

__device__ int counter = 5;
__constant__ float table[4];

// Every launch sees the ones before it in the same call, and never those of another call.
__global__ void count_up(float* out) { *out = float(counter++); }

LAUNCHER(launch_counter) {
  cudaMemsetAsync(C, 0, N * sizeof(float), stream);
  count_up<<<1, 1, 0, stream>>>(C);
  count_up<<<1, 1, 0, stream>>>(C + 1);
  return cudaGetLastError();
}

__global__ void look_up(float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = table[i % 4];
}

LAUNCHER(launch_constant) {
  const float values[4] = {1.0f, 2.0f, 4.0f, 8.0f};
  cudaMemcpyToSymbolAsync(table, values, sizeof(values), 0, cudaMemcpyHostToDevice, stream);
  look_up<<<N / kThreads, kThreads, 0, stream>>>(C, N);
  return cudaGetLastError();
}

// Shows what the memory held, then leaves a mark in it.
__global__ void mark(uint32_t* memory, uint32_t* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  out[i] = memory[i];
  memory[i] = 0x600df00d;
}

LAUNCHER(launch_workspace_content) {
  mark<<<N / kThreads, kThreads, 0, stream>>>(static_cast<uint32_t*>(workspace), reinterpret_cast<uint32_t*>(C), N);
  return cudaGetLastError();
}

LAUNCHER(launch_allocation_content) {
  static uint32_t* kept = nullptr;
  if (!kept) cudaMalloc(&kept, N * sizeof(uint32_t));
  mark<<<N / kThreads, kThreads, 0, stream>>>(kept, reinterpret_cast<uint32_t*>(C), N);
  return cudaGetLastError();
}

// --- faults ----------------------------------------------------------------------------------------------------------

__global__ void write_word(void* address) { *static_cast<volatile uint32_t*>(address) = 1; }

LAUNCHER(launch_input_written) {
  write_word<<<1, 1, 0, stream>>>(const_cast<float*>(A));
  return cudaGetLastError();
}

LAUNCHER(launch_past_the_output) {
  write_word<<<1, 1, 0, stream>>>(C + N + 3);
  return cudaGetLastError();
}

__global__ void write_anywhere(uint64_t address) { *reinterpret_cast<volatile uint32_t*>(address) = 1; }

LAUNCHER(launch_wild_address) {
  write_anywhere<<<1, 1, 0, stream>>>(0x123456789000);
  return cudaGetLastError();
}

__global__ void read_null(float* out) { *out = *reinterpret_cast<volatile float*>(uint64_t(threadIdx.x)); }

LAUNCHER(launch_null_read) {
  read_null<<<1, 1, 0, stream>>>(C);
  return cudaGetLastError();
}

LAUNCHER(launch_misaligned) {
  write_word<<<1, 1, 0, stream>>>(reinterpret_cast<char*>(C) + 2);
  return cudaGetLastError();
}

__global__ void trap() { asm volatile("trap;"); }

LAUNCHER(launch_trap) {
  trap<<<1, 1, 0, stream>>>();
  return cudaGetLastError();
}

__global__ void endless(float* out) {
  for (volatile unsigned i = 0;; ++i) *reinterpret_cast<volatile float*>(out) = float(i);
}

LAUNCHER(launch_endless) {
  endless<<<1, 1, 0, stream>>>(C);
  return cudaGetLastError();
}

// --- shared memory, clusters, bulk copies ----------------------------------------------------------------------------

__global__ void reverse(const float* in, float* out, int n) {
  extern __shared__ float numbers[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) numbers[20480 - n + i] = in[i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = numbers[20480 - 1 - i];
}

LAUNCHER(launch_dynamic_shared) {
  constexpr int kBytes = 20480 * sizeof(float);
  cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  reverse<<<1, kThreads, kBytes, stream>>>(A, C, N);
  return cudaGetLastError();
}

// Both CTAs of a pair publish their numbers and read the other's.
__global__ void exchange(const float* in, float* out) {
  __shared__ float numbers[kThreads];
  numbers[threadIdx.x] = in[blockIdx.x * kThreads + threadIdx.x];
  ptx::cluster_arrive();
  ptx::cluster_wait();
  const uint32_t remote = ptx::map_to_rank(ptx::shared_address(&numbers[threadIdx.x]), ptx::cluster_rank() ^ 1);
  float other;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(other) : "r"(remote) : "memory");
  out[blockIdx.x * kThreads + threadIdx.x] = other;
  ptx::cluster_arrive();
  ptx::cluster_wait();
}

LAUNCHER(launch_cluster) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {2, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(N / kThreads);
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, exchange, A, C);
}

constexpr int kRows = 8, kColumns = 32;

// A tile goes in and out by tensor maps.
__global__ void move_tile(const __grid_constant__ CUtensorMap from, const __grid_constant__ CUtensorMap to) {
  __shared__ alignas(128) float tile[kRows * kColumns];
  __shared__ alignas(8) uint64_t barrier;
  const uint32_t place = ptx::shared_address(tile), arrived = ptx::shared_address(&barrier);
  const int row = blockIdx.x * kRows;
  ptx::mbarrier_init(arrived, 1);
  ptx::fence_mbarrier_init();
  ptx::mbarrier_arrive_expect_tx(arrived, sizeof(tile));
  ptx::tma_load_2d(place, &from, arrived, 0, row);
  ptx::mbarrier_wait_parity(arrived, 0);
  ptx::tma_store_2d(&to, place, 0, row);
  ptx::bulk_commit_group();
  ptx::bulk_wait_group<0>();
}

static int make_map(CUtensorMap* map, const float* base, int rows) {
  const cuuint64_t extents[2] = {kColumns, cuuint64_t(rows)}, strides[1] = {kColumns * sizeof(float)};
  const cuuint32_t box[2] = {kColumns, kRows};
  return ptx::encode_tiled(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, base, extents, strides, box, CU_TENSOR_MAP_SWIZZLE_NONE);
}

LAUNCHER(launch_tensor_maps) {
  CUtensorMap from, to;
  if (const int error = make_map(&from, A, N / kColumns)) return error;
  if (const int error = make_map(&to, C, N / kColumns)) return error;
  move_tile<<<N / (kRows * kColumns), 1, 0, stream>>>(from, to);
  return cudaGetLastError();
}

// --- counts ----------------------------------------------------------------------------------------------------------

// Ten multiply-adds on every lane, three more on the odd ones.
__global__ void multiply_adds(const float* in, float* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = in[i];
#pragma unroll 1
  for (int k = 0; k < 10; ++k) asm volatile("fma.rn.f32 %0, %0, %1, %1;" : "+f"(x) : "f"(1.0f));
  if (threadIdx.x & 1) {
#pragma unroll 1
    for (int k = 0; k < 3; ++k) asm volatile("fma.rn.f32 %0, %0, %1, %1;" : "+f"(x) : "f"(1.0f));
  }
  out[i] = x;
}

LAUNCHER(launch_counts) {
  multiply_adds<<<N / kThreads, kThreads, 0, stream>>>(A, C);
  return cudaGetLastError();
}
