// The buffers that other processes see: mapped inputs, poisoned outputs, guard zones.
#include "mapped.cuh"

namespace shared {

struct Stage {
  void* shared;
  const void* base;
  Map map;
  u64* changed;  // elements of `shared` that differ; unused when writing
  i64 width;     // bytes of an element
};

struct Poison {
  void* out;
  i64 type, count;
  u64 salt;
};

struct Words {
  const u32* words;
  u64* changed;
  i64 count, word;
};

// The bits that an element of the shared buffer has: those of its source, with the sign that the map gives it.
template <class T>
__device__ T staged(const Stage& p, u32 index) {
  const Source source = source_of(p.map, index);
  return static_cast<const T*>(p.base)[source.index] ^ T(T(source.negative) << (8 * sizeof(T) - 1));
}

template <class T>
__device__ void write(const Stage& p) {
  const u32 step = gridDim.x * kThreads;
  for (u32 index = blockIdx.x * kThreads + threadIdx.x; index < p.map.count; index += step)
    static_cast<T*>(p.shared)[index] = staged<T>(p, index);
}

template <class T>
__device__ u64 count_changed(const Stage& p) {
  const u32 step = gridDim.x * kThreads;
  u64 changed = 0;
  for (u32 index = blockIdx.x * kThreads + threadIdx.x; index < p.map.count; index += step)
    changed += static_cast<const T*>(p.shared)[index] != staged<T>(p, index);
  return changed;
}

// Eight 16-bit elements at a time: a map keeps aligned groups of eight together.
constexpr u32 kGroup = 8;

__device__ uint4 staged_group(const Stage& p, u32 group) {
  const u32 index = group * kGroup;
  const Source source = source_of(p.map, index);
  uint4 words = reinterpret_cast<const uint4*>(p.base)[source.index / kGroup];
  u32* word = &words.x;
  const u32 column = index % p.map.columns;
#pragma unroll
  for (u32 i = 0; i < kGroup; i += 2) {
    const u32 low = source.outer ^ p.map.column[column + i] >> 31, high = source.outer ^ p.map.column[column + i + 1] >> 31;
    word[i / 2] ^= low << 15 | high << 31;
  }
  return words;
}

extern "C" __global__ void __launch_bounds__(kThreads) write_inputs(Stage p) {
  if (p.width == 4) return write<u32>(p);
  if (p.map.columns % kGroup != 0) return write<u16>(p);
  const u32 step = gridDim.x * kThreads;
  for (u32 group = blockIdx.x * kThreads + threadIdx.x; group < p.map.count / kGroup; group += step)
    static_cast<uint4*>(p.shared)[group] = staged_group(p, group);
}

extern "C" __global__ void __launch_bounds__(kThreads) compare_inputs(Stage p) {
  u64 changed = 0;
  if (p.width == 4) {
    changed = count_changed<u32>(p);
  } else if (p.map.columns % kGroup != 0) {
    changed = count_changed<u16>(p);
  } else {
    const u32 step = gridDim.x * kThreads;
    for (u32 group = blockIdx.x * kThreads + threadIdx.x; group < p.map.count / kGroup; group += step) {
      const uint4 own = static_cast<const uint4*>(p.shared)[group], right = staged_group(p, group);
      changed += own.x != right.x || own.y != right.y || own.z != right.z || own.w != right.w;
    }
  }
  changed = block_reduce(changed, Sum());
  if (threadIdx.x == 0 && changed != 0) atomicAdd(p.changed, changed);
}

extern "C" __global__ void __launch_bounds__(kThreads) poison_output(Poison p) {
  const i64 step = i64(gridDim.x) * kThreads;
  for (i64 index = i64(blockIdx.x) * kThreads + threadIdx.x; index < p.count; index += step) {
    const u32 bits = poison_bits(index, p.type, p.salt);
    if (p.type == kF32) static_cast<u32*>(p.out)[index] = bits;
    else static_cast<u16*>(p.out)[index] = u16(bits);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) compare_words(Words p) {
  const i64 step = i64(gridDim.x) * kThreads;
  u64 changed = 0;
  for (i64 index = i64(blockIdx.x) * kThreads + threadIdx.x; index < p.count; index += step)
    changed += p.words[index] != u32(p.word);
  changed = block_reduce(changed, Sum());
  if (threadIdx.x == 0 && changed != 0) atomicAdd(p.changed, changed);
}

}  // namespace shared
