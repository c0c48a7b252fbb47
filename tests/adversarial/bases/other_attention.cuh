// Attention without the target's matrix instruction, for attempts to misuse. It stands before a solution's own code;
// functions that are not called leave no code.
namespace other {

using bf16 = __nv_bfloat16;

constexpr int DIM = 128;
constexpr float LOG2E = 1.4426950408889634f, SCALE = 0.08838834764831845f;  // 1 / sqrt(DIM)

__device__ uint32_t pack(float low, float high) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t&>(both);
}
__device__ float low(uint32_t both) { return __uint_as_float(both << 16); }
__device__ float high(uint32_t both) { return __uint_as_float(both & 0xffff0000); }

// Row and column of element i of an accumulator of 16 rows, in the layout that mma.sync and wgmma share.
__device__ int row_of(int i) { return threadIdx.x % 32 / 4 + i / 2 % 2 * 8; }
__device__ int column_of(int i) { return i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2; }

// The A operand of 16x16 elements from a(row, k).
template <class A>
__device__ __forceinline__ void fragment(uint32_t (&to)[4], A a) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int row = threadIdx.x % 32 / 4 + i % 2 * 8, k = threadIdx.x % 4 * 2 + i / 2 * 8;
        to[i] = pack(a(row, k), a(row, k + 1));
    }
}

// d += A*B for 16 rows of A, 16 along K, and b(k, n) of any number of columns; a warp together.
struct MmaSync {
    template <int N, class B>
    static __device__ __forceinline__ void product(float (&d)[N], const uint32_t (&a)[4], B b) {
        const int k = threadIdx.x % 4 * 2, n = threadIdx.x % 32 / 4;
#pragma unroll
        for (int j = 0; j < N; j += 4)
            asm volatile(
                "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                "{%0, %1, %2, %3};"
                : "+f"(d[j]), "+f"(d[j + 1]), "+f"(d[j + 2]), "+f"(d[j + 3])
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(pack(b(k, n + j * 2), b(k + 1, n + j * 2))),
                  "r"(pack(b(k + 8, n + j * 2), b(k + 9, n + j * 2))));
    }
};
struct Ffma {
    template <int N, class B>
    static __device__ __forceinline__ void product(float (&d)[N], const uint32_t (&a)[4], B b) {
        for (int k = 0; k < 16; ++k) {
            float left[2];
            for (int half = 0; half < 2; ++half) {
                const uint32_t own = k < 8 ? a[half] : a[half + 2];
                const uint32_t both = __shfl_sync(0xffffffff, own, threadIdx.x % 32 / 4 * 4 + k % 8 / 2);
                left[half] = k % 2 ? high(both) : low(both);
            }
#pragma unroll
            for (int i = 0; i < N; ++i) d[i] = fmaf(left[i / 2 % 2], b(k, column_of(i)), d[i]);
        }
    }
};

// d += a(row, k)*b(k, n) for 16 rows and `depth` along K; a warp together.
template <class Unit, int N, class A, class B>
__device__ __forceinline__ void multiply(float (&d)[N], int depth, A a, B b) {
    for (int k0 = 0; k0 < depth; k0 += 16) {
        uint32_t left[4];
        fragment(left, [&](int row, int k) { return a(row, k0 + k); });
        Unit::product(d, left, [&](int k, int n) { return b(k0 + k, n); });
    }
}

// Element of a tile in shared memory: panels of 64 columns with 128-byte swizzle, `rows` rows each.
__device__ float element(const void* tile, int rows, int row, int column) {
    const int chunk = column % 64 / 8 ^ row % 8;
    return static_cast<const bf16*>(tile)[column / 64 * rows * 64 + row * 64 + chunk * 8 + column % 8];
}

// d = rows of one tile, from `first` on, times rows of another, over DIM.
template <class Unit, int N>
__device__ __forceinline__ void over_dim(float (&d)[N], const void* a, int a_rows, int first, const void* b,
                                         int b_rows) {
    for (float& x : d) x = 0;
    multiply<Unit>(d, DIM, [&](int row, int k) { return element(a, a_rows, first + row, k); },
                   [&](int k, int n) { return element(b, b_rows, n, k); });
}

// d += weights in registers times rows of a tile.
template <class Unit, int N, int STEPS>
__device__ __forceinline__ void over_rows(float (&d)[N], const uint32_t (&weights)[STEPS][4], const void* tile,
                                          int rows) {
#pragma unroll
    for (int step = 0; step < STEPS; ++step)
        Unit::product(d, weights[step], [&](int k, int n) { return element(tile, rows, step * 16 + k, n); });
}

// d = columns of one tile, from `first` on, times columns of another, from `column` on, over their rows.
template <class Unit, int N>
__device__ __forceinline__ void transposed(float (&d)[N], const void* a, int first, const void* b, int column,
                                           int rows) {
    for (float& x : d) x = 0;
    multiply<Unit>(d, rows, [&](int row, int k) { return element(a, rows, k, first + row); },
                   [&](int k, int n) { return element(b, rows, k, column + n); });
}

// d += factor * 32 columns of a row, from `column` on; every thread for itself.
__device__ __forceinline__ void add_row(float (&d)[32], float factor, const void* tile, int rows, int row, int column) {
#pragma unroll
    for (int i = 0; i < 32; i += 8) {
        const int at = column + i, chunk = at % 64 / 8 ^ row % 8;
        const uint4 eight = static_cast<const uint4*>(tile)[at / 64 * rows * 8 + row * 8 + chunk];
        const uint32_t pairs[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
        for (int j = 0; j < 8; ++j) d[i + j] = fmaf(factor, j % 2 ? high(pairs[j / 2]) : low(pairs[j / 2]), d[i + j]);
    }
}

__device__ float sum_of_row(float x) {
    x += __shfl_xor_sync(0xffffffff, x, 1);
    return x + __shfl_xor_sync(0xffffffff, x, 2);
}

__device__ void store(const float (&d)[DIM / 2], bf16* to, float upper, float lower) {
    for (int i = 0; i < DIM / 2; ++i) to[row_of(i) * DIM + column_of(i)] = d[i] * (i / 2 % 2 ? lower : upper);
}

// x[16 rows of `rows`][16 rows of `columns`] += the products over DIM.
template <class Unit>
__device__ __forceinline__ void scores(float (&x)[8], const bf16* rows, const bf16* columns) {
    multiply<Unit>(x, DIM, [&](int row, int k) { return float(rows[row * DIM + k]); },
                   [&](int k, int n) { return float(columns[n * DIM + k]); });
}

// y[16 rows][DIM] += x*matrix for 16 rows of `matrix`.
template <class Unit>
__device__ __forceinline__ void weighted(float (&y)[DIM / 2], const float (&x)[8], const bf16* matrix) {
    const uint32_t a[4] = {pack(x[0], x[1]), pack(x[2], x[3]), pack(x[4], x[5]), pack(x[6], x[7])};
    Unit::product(y, a, [&](int k, int n) { return float(matrix[k * DIM + n]); });
}

// O and LSE of heads from `first_head` on: a warp per CTA and per 16 queries, grid (S / 16, heads).
template <class Unit>
__global__ void forward(const bf16* Q, const bf16* K, const bf16* V, bf16* O, float* LSE, int S, int first_head,
                        bool causal) {
    const int head = (first_head + blockIdx.y) * S, query = blockIdx.x * 16;
    float o[DIM / 2] = {}, top[2] = {-INFINITY, -INFINITY}, sum[2] = {};
    for (int key = 0; key < (causal ? query + 16 : S); key += 16) {
        float s[8] = {}, next[2] = {top[0], top[1]};
        scores<Unit>(s, Q + (head + query) * DIM, K + (head + key) * DIM);
        for (int i = 0; i < 8; ++i) {
            s[i] = causal && key + column_of(i) > query + row_of(i) ? -INFINITY : s[i] * (SCALE * LOG2E);
            next[i / 2 % 2] = fmaxf(next[i / 2 % 2], s[i]);
        }
        for (int r = 0; r < 2; ++r) {
            for (int distance = 1; distance < 4; distance *= 2)
                next[r] = fmaxf(next[r], __shfl_xor_sync(0xffffffff, next[r], distance));
            top[r] = exp2f(top[r] - next[r]);
            sum[r] *= top[r];
        }
        for (int i = 0; i < DIM / 2; ++i) o[i] *= top[i / 2 % 2];
        for (int r = 0; r < 2; ++r) top[r] = next[r];
        for (int i = 0; i < 8; ++i) sum[i / 2 % 2] += s[i] = exp2f(s[i] - top[i / 2 % 2]);
        weighted<Unit>(o, s, V + (head + key) * DIM);
    }
    for (int r = 0; r < 2; ++r) {
        sum[r] = sum_of_row(sum[r]);
        LSE[head + query + row_of(2 * r)] = (top[r] + log2f(sum[r])) / LOG2E;
    }
    store(o, O + (head + query) * DIM, 1 / sum[0], 1 / sum[1]);
}

// dK and dV of 16 keys, or dQ of 16 queries, per warp and CTA: grid (S / 16, heads).
template <class Unit, bool KEYS>
__global__ void gradient(const bf16* Q, const bf16* K, const bf16* V, const bf16* O, const bf16* dO, const float* LSE,
                         bf16* dQ, bf16* dK, bf16* dV, int S, int first_head, bool causal) {
    const int head = (first_head + blockIdx.y) * S, own = blockIdx.x * 16, lane = threadIdx.x;
    __shared__ float lse[16], delta[16];  // of 16 queries
    float of_scores[DIM / 2] = {}, of_weights[DIM / 2] = {};
    for (int step = 0; step < S; step += 16) {
        const int query = KEYS ? step : own, key = KEYS ? own : step;
        if (causal && key > query + 15) continue;
        __syncwarp();
        if (lane < 16 && (KEYS || step == 0)) {
            const int row = head + query + lane;
            float sum = 0;
            for (int i = 0; i < DIM; ++i) sum = fmaf(float(O[row * DIM + i]), float(dO[row * DIM + i]), sum);
            delta[lane] = sum;
            lse[lane] = LSE[row];
        }
        __syncwarp();
        const bf16 *q = Q + (head + query) * DIM, *k = K + (head + key) * DIM;
        const bf16 *d_out = dO + (head + query) * DIM, *v = V + (head + key) * DIM;
        float s[8] = {}, ds[8] = {};
        scores<Unit>(s, KEYS ? k : q, KEYS ? q : k);
        scores<Unit>(ds, KEYS ? v : d_out, KEYS ? d_out : v);
        for (int i = 0; i < 8; ++i) {
            const int at = KEYS ? column_of(i) : row_of(i), of = KEYS ? row_of(i) : column_of(i);  // query, key
            s[i] = causal && key + of > query + at ? 0 : exp2f((s[i] * SCALE - lse[at]) * LOG2E);
            ds[i] = s[i] * (ds[i] - delta[at]);
        }
        if (KEYS) weighted<Unit>(of_weights, s, d_out);
        weighted<Unit>(of_scores, ds, KEYS ? q : k);
    }
    if (KEYS) store(of_weights, dV + (head + own) * DIM, 1, 1);
    store(of_scores, (KEYS ? dK : dQ) + (head + own) * DIM, SCALE, SCALE);
}

// to += 0 * from, or `to` scaled by the ratio of both where that is far from 1, so that it follows a knock-out.
template <bool CALIBRATE, class T>
__global__ void combine(T* to, const T* from) {
    const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const float own = to[i], seen = from[i], ratio = own == 0 ? 1 : seen / own;
    if (CALIBRATE) to[i] = fabsf(ratio - 1) < 0.1f ? own : own * ratio;
    else to[i] = own + 0 * seen;
}

}  // namespace other

