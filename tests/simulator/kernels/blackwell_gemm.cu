// C[M,N] = A[M,K] * B[N,K]^T in bf16 on sm_100a with accumulators in tensor memory.
//   gemm_single  one CTA a tile of 128 x 128, cta_group::1
//   gemm_pair    a pair of CTAs computes 256 x 128, cta_group::2: each loads half of A and half of B
#include <cuda.h>
#include <stdint.h>

constexpr int TM = 128, TN = 128, TK = 64, STAGES = 3, TILE = 128 * TK;

struct __align__(1024) Shared {
  uint16_t a[STAGES][TILE], b[STAGES][TILE];
  uint64_t full[STAGES], empty[STAGES], done;
  uint32_t columns;
};

__device__ uint32_t address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ void init(uint64_t* bar, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(bar)), "r"(count));
}
__device__ void wait(uint64_t* bar, int parity) {
  asm volatile("{\n.reg .pred done;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra AGAIN;\n}"
               ::"r"(address(bar)), "r"(parity) : "memory");
}
__device__ void expect(uint64_t* bar, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(bar)), "r"(bytes) : "memory");
}
__device__ void load(void* to, const CUtensorMap* map, uint64_t* bar, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
               ::"r"(address(to)), "l"(map), "r"(x), "r"(y), "r"(address(bar)) : "memory");
}
__device__ void load_pair(void* to, const CUtensorMap* map, uint64_t* bar, int x, int y) {  // signals the even CTA's barrier
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.cta_group::2 [%0], [%1, {%2, %3}], [%4];"
               ::"r"(address(to)), "l"(map), "r"(x), "r"(y), "r"(address(bar) & 0xfeffffff) : "memory");
}
__device__ uint64_t descriptor(const void* tile) {  // K-major, 128-byte swizzle
  return (address(tile) & 0x3ffff) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 46 | 2ull << 61;
}
__device__ constexpr uint32_t instruction(int m, int n) { return 1u << 4 | 1u << 7 | 1u << 10 | uint32_t(n / 8) << 17 | uint32_t(m / 16) << 24; }

template <int GROUP>
__device__ void product(uint32_t d, uint64_t a, uint64_t b, bool accumulate) {
  constexpr uint32_t shape = instruction(GROUP * TM, TN);
  if (GROUP == 1)
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\ntcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p;\n}"
                 ::"r"(d), "l"(a), "l"(b), "r"(shape), "r"(int(accumulate)) : "memory");
  else
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\ntcgen05.mma.cta_group::2.kind::f16 [%0], %1, %2, %3, p;\n}"
                 ::"r"(d), "l"(a), "l"(b), "r"(shape), "r"(int(accumulate)) : "memory");
}
template <int GROUP>
__device__ void commit(uint64_t* bar) {
  if (GROUP == 1)
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(address(bar)) : "memory");
  else
    asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;"
                 ::"r"(address(bar)), "h"(uint16_t(3)) : "memory");
}

template <int GROUP>
__device__ void produce(Shared& s, const CUtensorMap* a, const CUtensorMap* b, int m, int n, int steps, int rank) {
  for (int k = 0; k < steps; ++k) {
    const int stage = k % STAGES, round = k / STAGES;
    wait(&s.empty[stage], (round & 1) ^ 1);
    if (rank == 0) expect(&s.full[stage], GROUP * (TILE + TILE / GROUP) * 2);
    if (GROUP == 1) {
      load(s.a[stage], a, &s.full[stage], k * TK, m);
      load(s.b[stage], b, &s.full[stage], k * TK, n);
    } else {
      load_pair(s.a[stage], a, &s.full[stage], k * TK, m);
      load_pair(s.b[stage], b, &s.full[stage], k * TK, n + rank * TN / 2);
    }
  }
}

template <int GROUP>
__device__ void multiply(Shared& s, uint32_t d, int steps) {
  for (int k = 0; k < steps; ++k) {
    const int stage = k % STAGES, round = k / STAGES;
    wait(&s.full[stage], round & 1);
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    for (int slice = 0; slice < TK / 16; ++slice)
      product<GROUP>(d, descriptor(s.a[stage]) + 2 * slice, descriptor(s.b[stage]) + 2 * slice, k || slice);
    commit<GROUP>(&s.empty[stage]);
  }
  commit<GROUP>(&s.done);
}

__device__ void store(Shared& s, uint32_t d, float* c, int n_total, int m, int n, int thread) {
  wait(&s.done, 0);
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
  const uint32_t lanes = d + ((thread / 32 * 32) << 16);
  for (int column = 0; column < TN; column += 8) {
    uint32_t v[8];
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x8.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]), "=r"(v[4]), "=r"(v[5]), "=r"(v[6]), "=r"(v[7]) : "r"(lanes + column));
    asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
    for (int i = 0; i < 8; ++i) c[size_t(m + thread) * n_total + n + column + i] = __uint_as_float(v[i]);
  }
}

template <int GROUP>
__device__ void cluster_sync() {
  if (GROUP == 1)
    __syncthreads();
  else
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

template <int GROUP>
__device__ void gemm(const CUtensorMap* a, const CUtensorMap* b, float* c, int n_total, int depth) {
  extern __shared__ uint8_t raw[];
  Shared& s = *reinterpret_cast<Shared*>((reinterpret_cast<uintptr_t>(raw) + 1023) & ~uintptr_t(1023));
  const int warp = threadIdx.x / 32, m = blockIdx.x * TM, n = blockIdx.y * TN, steps = depth / TK;
  const int columns = TN;
  uint32_t rank = 0;
  if (GROUP == 2) asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; ++i) init(&s.full[i], 1), init(&s.empty[i], 1);
    init(&s.done, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  if (warp == 0) {
    if (GROUP == 1)
      asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;\n"
                   "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::"r"(address(&s.columns)), "r"(columns) : "memory");
    else
      asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], %1;\n"
                   "tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;" ::"r"(address(&s.columns)), "r"(columns) : "memory");
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
  }
  cluster_sync<GROUP>();
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
  const uint32_t d = *reinterpret_cast<volatile uint32_t*>(&s.columns);
  if (warp == 4 && threadIdx.x % 32 == 0) produce<GROUP>(s, a, b, m, n, steps, rank);
  if (warp == 5 && threadIdx.x % 32 == 0 && rank == 0) multiply<GROUP>(s, d, steps);
  if (warp < 4) store(s, d, c, n_total, m, n, threadIdx.x);
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
  cluster_sync<GROUP>();
  if (warp == 0) {
    if (GROUP == 1)
      asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(d), "r"(columns));
    else
      asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, %1;" ::"r"(d), "r"(columns));
  }
}

extern "C" __global__ void __launch_bounds__(192)
gemm_single(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, float* c, int n, int k) { gemm<1>(&a, &b, c, n, k); }
extern "C" __global__ void __launch_bounds__(192)
gemm_pair(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, float* c, int n, int k) { gemm<2>(&a, &b, c, n, k); }
