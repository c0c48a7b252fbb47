// Random inputs. Values are functions of (key, element), so that any element can be made again.
#include "common.cuh"

namespace inputs {

struct Words {
  u32 x, y, z, w;
};

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
__device__ Words philox(u64 counter, u32 stream, u64 key) {
  Words c{u32(counter), u32(counter >> 32), stream, 0};
  u32 low = u32(key), high = u32(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const u64 first = u64(0xD2511F53u) * c.x, second = u64(0xCD9E8D57u) * c.z;
    c = {u32(second >> 32) ^ c.y ^ low, u32(second), u32(first >> 32) ^ c.w ^ high, u32(first)};
    low += 0x9E3779B9u;
    high += 0xBB67AE85u;
  }
  return c;
}

__device__ float uniform(u32 word) { return (float(word >> 8) + 0.5f) * 0x1p-24f; }

// Box and Muller's transformation of two of the words.
__device__ float normal(const Words& words) {
  return sqrtf(-2.0f * logf(uniform(words.x))) * cospif(2.0f * uniform(words.y));
}

__device__ int below(u32 word, u32 bound) { return int(u64(word) * bound >> 32); }

// Streams of a key: draws per element, and per row.
enum Stream : u32 { kElement, kRow };

// Numbered as in `draw.py`; the meaning of each is that of the function of the same name in `tasks`.
enum Kind : i64 { kNormal, kWideRange, kSpikes, kEqualRows, kGrownRows, kRepeatedRow };

struct Fill {
  void* out;
  i64 type, count, columns, rows, kind;
  u64 key;
};

__device__ float value_of(const Fill& fill, i64 index) {
  const i64 row = index / fill.columns;
  const Words own = philox(index, kElement, fill.key);
  switch (fill.kind) {
    case kWideRange: {
      const Words of_row = philox(row, kRow, fill.key);
      return ldexpf(normal(own), below(own.z, 9) - 4 + below(of_row.x, 25) - 12);
    }
    case kSpikes: {
      if (uniform(philox(row, kRow, fill.key).x) < 1.0f / 32) return 0.0f;
      const float pick = uniform(own.z);
      const float value = pick < 1.0f / 8 ? normal(own) : 0.0f;
      return pick < 1.0f / 8 / 64 ? 100.0f * value : value;
    }
    case kEqualRows: return normal(philox(row, kRow, fill.key));
    case kGrownRows: return ldexpf(normal(own), below(philox(row, kRow, fill.key).x, 6));
    case kRepeatedRow: {
      const i64 first_row = row / fill.rows * fill.rows;
      return normal(philox(first_row * fill.columns + index % fill.columns, kElement, fill.key));
    }
    default: return normal(own);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) fill_inputs(Fill fill) {
  const i64 step = i64(gridDim.x) * kThreads;
  for (i64 index = i64(blockIdx.x) * kThreads + threadIdx.x; index < fill.count; index += step)
    store_as(fill.out, index, fill.type, value_of(fill, index));
}

}  // namespace inputs
