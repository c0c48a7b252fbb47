// Attention with D = 128: tiles of two panels, 64 columns (128 bytes, a swizzle atom) each.
#include <ptxbench/ptx/math.cuh>

constexpr int DIM = 128, PANEL = 64;
constexpr float LOG2E = 1.4426950408889634f, LN2 = 0.6931471805599453f;
constexpr float SCALE = 0.08838834764831845f * LOG2E;  // 1 / sqrt(DIM), for powers of two

// Loads ROWS rows; the barrier already expects them.
template <int Rows>
__device__ __forceinline__ void load_tile(uint32_t to, const CUtensorMap* map, uint32_t full, int row) {
    ptx::tma_load_2d(to, map, full, 0, row);
    ptx::tma_load_2d(to + Rows * 128, map, full, PANEL, row);
}
