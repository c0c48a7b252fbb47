// Synchronisation patterns of Hopper kernels, each right (fault 0) and with one thing left out. Every kernel gets 256 words
// per round in `in` and writes as many to `out`.
#include <stdint.h>

#include <ptxbench/ptx/address.cuh>
#include <ptxbench/ptx/barrier.cuh>
#include <ptxbench/ptx/cluster.cuh>
#include <ptxbench/ptx/fence.cuh>
#include <ptxbench/ptx/mbarrier.cuh>
#include <ptxbench/ptx/tma.cuh>

constexpr int ROUNDS = 6, WORDS = 256, BYTES = WORDS * 4, STAGES = 2;

__device__ uint32_t at(const void* p) { return ptx::shared_address(p); }

// A producer thread fills a ring of stages by bulk copies; two consumer warps read them.
// 1: the producer does not wait for an empty stage; 2: the consumers do not wait for a full one; 3: they release it
// before they read it; 4: the barriers are initialised without a fence.
template <int FAULT>
__device__ void ring(const uint32_t* in, uint32_t* out) {
  __shared__ __align__(128) uint32_t stage[STAGES][WORDS];
  __shared__ uint64_t full[STAGES], empty[STAGES];
  const int thread = threadIdx.x;
  if (thread == 0) {
    for (int s = 0; s < STAGES; ++s) ptx::mbarrier_init(at(&full[s]), 1), ptx::mbarrier_init(at(&empty[s]), 64);
    if (FAULT != 4) ptx::fence_mbarrier_init();
  }
  __syncthreads();
  if (thread == 64) {
    for (int i = 0; i < ROUNDS; ++i) {
      const int s = i % STAGES;
      if (FAULT != 1 && i >= STAGES) ptx::mbarrier_wait_parity(at(&empty[s]), (i / STAGES + 1) & 1);
      ptx::mbarrier_arrive_expect_tx(at(&full[s]), BYTES);
      ptx::bulk_load(at(stage[s]), in + i * WORDS, BYTES, at(&full[s]));
    }
  } else if (thread < 64) {
    for (int i = 0; i < ROUNDS; ++i) {
      const int s = i % STAGES;
      if (FAULT != 2) ptx::mbarrier_wait_parity(at(&full[s]), (i / STAGES) & 1);
      if (FAULT == 3) ptx::mbarrier_arrive(at(&empty[s]));
      for (int w = thread; w < WORDS; w += 64) out[i * WORDS + w] = stage[s][WORDS - 1 - w];
      if (FAULT != 3) ptx::mbarrier_arrive(at(&empty[s]));
    }
  }
}

// A persistent loop in which one block of shared memory goes back and forth between ordinary stores and bulk stores.
// 1: no proxy fence; 2: the bulk store is not waited for before the block is written again; 3: only its thread knows that
// it has read the block; 4: no barrier between the ordinary stores and the bulk store.
template <int FAULT>
__device__ void alternate(const uint32_t* in, uint32_t* out) {
  __shared__ __align__(128) uint32_t block[WORDS];
  const int thread = threadIdx.x;
  for (int i = 0; i < ROUNDS; ++i) {
    for (int w = thread; w < WORDS; w += blockDim.x) block[w] = in[i * WORDS + w] + 1;
    if (FAULT != 1) ptx::fence_proxy_async_shared();
    if (FAULT != 4) __syncthreads();
    if (thread == 0) {
      ptx::bulk_store(out + i * WORDS, at(block), BYTES);
      ptx::bulk_commit_group();
      if (FAULT != 2) ptx::bulk_wait_group_read<0>();
    }
    if (FAULT != 3) __syncthreads();
  }
  if (thread == 0) ptx::bulk_wait_group<0>();
}

// A tile is turned through shared memory, over and over. 1: no barrier before it is written again; 2: none before it is
// read; 3: a barrier of half the threads.
template <int FAULT>
__device__ void turn(const uint32_t* in, uint32_t* out) {
  __shared__ uint32_t block[WORDS];
  const int thread = threadIdx.x, threads = blockDim.x;
  for (int i = 0; i < ROUNDS; ++i) {
    for (int w = thread; w < WORDS; w += threads) block[w] = in[i * WORDS + w];
    if (FAULT == 3)
      ptx::bar_sync(1 + thread / 64, 64);
    else if (FAULT != 2)
      __syncthreads();
    for (int w = thread; w < WORDS; w += threads) out[i * WORDS + w] = block[WORDS - 1 - w];
    if (FAULT != 1) __syncthreads();
  }
}

// Two pairs of warps hand a block over by named barriers. 1: the consumers do not give it back.
template <int FAULT>
__device__ void hand_over(const uint32_t* in, uint32_t* out) {
  __shared__ uint32_t block[WORDS];
  const int thread = threadIdx.x;
  for (int i = 0; i < ROUNDS; ++i) {
    if (thread < 64) {
      if (i && FAULT != 1) ptx::bar_sync(2, 128);
      for (int w = thread; w < WORDS; w += 64) block[w] = in[i * WORDS + w];
      ptx::bar_arrive(1, 128);
    } else {
      ptx::bar_sync(1, 128);
      for (int w = thread - 64; w < WORDS; w += 64) out[i * WORDS + w] = block[WORDS - 1 - w];
      if (i + 1 < ROUNDS && FAULT != 1) ptx::bar_arrive(2, 128);
    }
  }
}

// One warp tells the others by a flag in shared memory that its data is there. 1: by an ordinary store.
template <int FAULT>
__device__ void flag(const uint32_t* in, uint32_t* out) {
  __shared__ uint32_t block[WORDS], ready;
  const int thread = threadIdx.x;
  if (thread == 0) ready = 0;
  __syncthreads();
  if (thread < 32) {
    for (int w = thread; w < WORDS; w += 32) block[w] = in[w];
    __syncwarp();
    if (thread == 0) {
      __threadfence_block();
      if (FAULT == 1)
        ready = 1;
      else
        atomicExch(&ready, 1);
    }
  } else {
    while (*reinterpret_cast<volatile uint32_t*>(&ready) == 0) {}
    __threadfence_block();
    for (int w = thread - 32; w < WORDS; w += blockDim.x - 32) out[w] = block[WORDS - 1 - w];
  }
}

// Ordinary loads into registers and cp.async into shared memory. 1: no wait; 2: no barrier behind it.
template <int FAULT>
__device__ void copy(const uint32_t* in, uint32_t* out) {
  __shared__ __align__(16) uint32_t block[WORDS];
  const int thread = threadIdx.x;
  for (int w = thread; w < WORDS / 4; w += blockDim.x)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at(block + 4 * w)), "l"(in + 4 * w) : "memory");
  asm volatile("cp.async.commit_group;" ::: "memory");
  if (FAULT != 1) asm volatile("cp.async.wait_group 0;" ::: "memory");
  if (FAULT != 2) __syncthreads();
  for (int w = thread; w < WORDS; w += blockDim.x) out[w] = block[WORDS - 1 - w];
  asm volatile("cp.async.wait_all;" ::: "memory");
}

// The two CTAs of a cluster write into each other's shared memory. 1: no cluster barrier before it is read; 2: the mbarrier
// of the peer is used with nothing that makes its initialisation visible.
template <int FAULT>
__device__ void peers(const uint32_t* in, uint32_t* out) {
  __shared__ uint32_t block[WORDS];
  __shared__ uint64_t done;
  const int thread = threadIdx.x;
  const uint32_t rank = ptx::cluster_rank(), there = ptx::map_to_rank(at(block), rank ^ 1);
  if (thread == 0) {
    ptx::mbarrier_init(at(&done), blockDim.x);
    if (FAULT != 2) ptx::fence_mbarrier_init();
  }
  if (FAULT == 2)
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  else
    ptx::cluster_arrive(), ptx::cluster_wait();
  for (int w = thread; w < WORDS; w += blockDim.x)
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(there + 4 * w), "r"(in[rank * WORDS + w]) : "memory");
  ptx::mbarrier_arrive_cluster(ptx::map_to_rank(at(&done), rank ^ 1));
  if (FAULT != 1) ptx::mbarrier_wait_parity_cluster(at(&done), 0);
  for (int w = thread; w < WORDS; w += blockDim.x) out[rank * WORDS + w] = block[WORDS - 1 - w];
  ptx::cluster_arrive();
  ptx::cluster_wait();
}

// Ordinary stores to global memory, and a bulk copy of them. 1: no proxy fence; 2: one of shared memory only.
template <int FAULT>
__device__ void through_global(const uint32_t* in, uint32_t* out) {
  __shared__ __align__(128) uint32_t block[WORDS];
  __shared__ uint64_t full;
  const int thread = threadIdx.x;
  uint32_t* scratch = out + WORDS;
  if (thread == 0) ptx::mbarrier_init(at(&full), 1), ptx::fence_mbarrier_init();
  for (int w = thread; w < WORDS; w += blockDim.x) scratch[w] = in[w] * 3;
  if (FAULT == 0) ptx::fence_proxy_async_global();
  if (FAULT == 2) ptx::fence_proxy_async_shared();
  __syncthreads();
  if (thread == 0) {
    ptx::mbarrier_arrive_expect_tx(at(&full), BYTES);
    ptx::bulk_load(at(block), scratch, BYTES, at(&full));
  }
  ptx::mbarrier_wait_parity(at(&full), 0);
  for (int w = thread; w < WORDS; w += blockDim.x) out[w] = block[WORDS - 1 - w];
}

#define KERNEL(pattern, fault) \
  extern "C" __global__ void pattern##_##fault(const uint32_t* in, uint32_t* out) { pattern<fault>(in, out); }
KERNEL(ring, 0) KERNEL(ring, 1) KERNEL(ring, 2) KERNEL(ring, 3) KERNEL(ring, 4)
KERNEL(alternate, 0) KERNEL(alternate, 1) KERNEL(alternate, 2) KERNEL(alternate, 3) KERNEL(alternate, 4)
KERNEL(turn, 0) KERNEL(turn, 1) KERNEL(turn, 2) KERNEL(turn, 3)
KERNEL(hand_over, 0) KERNEL(hand_over, 1)
KERNEL(flag, 0) KERNEL(flag, 1)
KERNEL(copy, 0) KERNEL(copy, 1) KERNEL(copy, 2)
KERNEL(peers, 0) KERNEL(peers, 1) KERNEL(peers, 2)
KERNEL(through_global, 0) KERNEL(through_global, 1) KERNEL(through_global, 2)
