// C[M,N] = A[M,K] * B[N,K]^T in bf16 on sm_90a: a producer warp and two consumer warpgroups around a ring of TMA stages.
//   gemm_plain    one CTA, fp32 stored from registers
//   gemm_cluster  two CTAs share B by multicast; bf16 goes out through stmatrix and a TMA store
// Defining WRONG_PARITY or EARLY_RELEASE makes one deliberate mistake (see the tests).
#include <cuda.h>
#include <cuda_bf16.h>
#include <stdint.h>

#ifdef WRONG_PARITY
constexpr int FIRST_PARITY = 0;
#else
constexpr int FIRST_PARITY = 1;
#endif
#ifdef EARLY_RELEASE
constexpr bool RELEASES_EARLY = true;
#else
constexpr bool RELEASES_EARLY = false;
#endif

constexpr int TM = 128, TN = 128, TK = 64, STAGES = 4, TILE = 128 * TK;

struct __align__(1024) Shared {
  __nv_bfloat16 a[STAGES][TILE], b[STAGES][TILE], c[TM * TN];
  uint64_t full[STAGES], empty[STAGES];
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
__device__ void arrive_at(uint64_t* bar, int rank) {
  asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
               "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n}" ::"r"(address(bar)), "r"(rank) : "memory");
}
__device__ void load(void* to, const CUtensorMap* map, uint64_t* bar, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
               ::"r"(address(to)), "l"(map), "r"(x), "r"(y), "r"(address(bar)) : "memory");
}
__device__ void load_shared(void* to, const CUtensorMap* map, uint64_t* bar, int x, int y, uint16_t ranks) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
               " [%0], [%1, {%2, %3}], [%4], %5;"
               ::"r"(address(to)), "l"(map), "r"(x), "r"(y), "r"(address(bar)), "h"(ranks) : "memory");
}
__device__ uint64_t descriptor(const void* tile) {  // K-major, 128-byte swizzle
  return (address(tile) & 0x3ffff) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

#define D8(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
__device__ void product(float (&d)[64], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25,"
      "%26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49,"
      "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, 1, 1, 1, 0, 0;"
      : D8(d, 0), D8(d, 8), D8(d, 16), D8(d, 24), D8(d, 32), D8(d, 40), D8(d, 48), D8(d, 56) : "l"(a), "l"(b));
}

template <int RANKS>
__device__ void produce(Shared& s, const CUtensorMap* a, const CUtensorMap* b, int m, int n, int steps, int rank) {
  for (int k = 0; k < steps; ++k) {
    const int stage = k % STAGES, round = k / STAGES;
    wait(&s.empty[stage], (round & 1) ^ FIRST_PARITY);
    expect(&s.full[stage], 2 * TILE * 2);
    load(s.a[stage], a, &s.full[stage], k * TK, m);
    if (RANKS == 1)
      load(s.b[stage], b, &s.full[stage], k * TK, n);
    else
      load_shared(&s.b[stage][rank * TILE / RANKS], b, &s.full[stage], k * TK, n + rank * TN / RANKS, (1 << RANKS) - 1);
  }
}

template <int RANKS>
__device__ void consume(Shared& s, float (&d)[64], int group, int thread, int steps) {
  for (int k = 0; k < steps; ++k) {
    const int stage = k % STAGES, round = k / STAGES;
    wait(&s.full[stage], round & 1);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int slice = 0; slice < TK / 16; ++slice)
      product(d, descriptor(&s.a[stage][group * 64 * TK]) + 2 * slice, descriptor(s.b[stage]) + 2 * slice);
    if (RELEASES_EARLY && thread < RANKS) arrive_at(&s.empty[stage], thread);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    if (!RELEASES_EARLY && thread < RANKS) arrive_at(&s.empty[stage], thread);
  }
}

__device__ void store_plain(const float (&d)[64], float* c, int n_total, int m, int n, int thread) {
  const int row = m + thread / 32 * 16 + thread % 32 / 4, column = n + thread % 4 * 2;
  for (int j = 0; j < 16; ++j)
    for (int half = 0; half < 2; ++half)
      *reinterpret_cast<float2*>(&c[(row + 8 * half) * n_total + column + 8 * j]) = make_float2(d[4 * j + 2 * half], d[4 * j + 2 * half + 1]);
}

__device__ void store_tile(Shared& s, const float (&d)[64], const CUtensorMap* c, int group, int m, int n, int thread) {
  const int row = group * 64 + thread / 32 * 16 + thread % 16;
  for (int j = 0; j < 8; ++j) {
    uint32_t packed[4];
    for (int q = 0; q < 4; ++q) {
      const __nv_bfloat162 two = __floats2bfloat162_rn(d[8 * j + 2 * q], d[8 * j + 2 * q + 1]);
      packed[q] = *reinterpret_cast<const uint32_t*>(&two);
    }
    const int chunk = j % 4 * 2 + thread % 32 / 16;
    const uint32_t to = address(s.c) + j / 4 * TM * 128 + row * 128 + ((chunk ^ (row & 7)) << 4);
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(to), "r"(packed[0]), "r"(packed[1]), "r"(packed[2]), "r"(packed[3]) : "memory");
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
  if (thread != 0) return;
  for (int half = 0; half < 2; ++half)
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
                 ::"l"(c), "r"(n + 64 * half), "r"(m + group * 64), "r"(address(s.c) + half * TM * 128 + group * 64 * 128) : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

template <int RANKS>
__device__ void gemm(const CUtensorMap* a, const CUtensorMap* b, const CUtensorMap* c_map, float* c, int n_total, int depth) {
  extern __shared__ uint8_t raw[];
  Shared& s = *reinterpret_cast<Shared*>((reinterpret_cast<uintptr_t>(raw) + 1023) & ~uintptr_t(1023));
  const int group = threadIdx.x / 128 - 1, thread = threadIdx.x % 128;
  uint32_t rank = 0;
  if (RANKS > 1) asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; ++i) init(&s.full[i], 1), init(&s.empty[i], 2 * RANKS);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  if (RANKS > 1)
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
  else
    __syncthreads();
  const int m = blockIdx.x * TM, n = blockIdx.y * TN, steps = depth / TK;
  if (group < 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (thread == 0) produce<RANKS>(s, a, b, m, n, steps, rank);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    float d[64];
    for (int i = 0; i < 64; ++i) d[i] = 0;
    consume<RANKS>(s, d, group, thread, steps);
    if (RANKS == 1)
      store_plain(d, c, n_total, m + group * 64, n, thread);
    else
      store_tile(s, d, c_map, group, m, n, thread);
  }
  if (RANKS > 1)
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

extern "C" __global__ void __launch_bounds__(384, 1)
gemm_plain(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, float* c, int n, int k) {
  gemm<1>(&a, &b, nullptr, c, n, k);
}
extern "C" __global__ void __launch_bounds__(384, 1)
gemm_cluster(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap c, int k) {
  gemm<2>(&a, &b, &c, nullptr, 0, k);
}
