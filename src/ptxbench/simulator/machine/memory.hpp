// Simulated device memory: a map from virtual addresses to host bytes. Nothing outside a segment can be reached.
#pragma once
#include <string>
#include <vector>

#include "insn.hpp"

namespace ptx {

struct Place;
struct Warp;
struct Cta;

// Generic address windows (bits 63..32).
constexpr u64 kSharedWindow = u64(0x100) << 32;
constexpr u64 kLocalWindow = u64(0x200) << 32;
constexpr u64 kParameterWindow = u64(0x300) << 32;
constexpr u64 kGridWorkspace = u64(0x400) << 32;  // of a cooperative launch
constexpr u64 kGlobalStart = u64(0x7000) << 32;
constexpr u32 kGuardBytes = 64 * 1024;

// 32-bit shared-window addresses: rank of the CTA in the cluster << 24 | offset.
constexpr u32 kRankShift = 24;
constexpr u32 kOffsetMask = (1u << kRankShift) - 1;
constexpr u32 kReservedShared = 1024;

// State spaces as lowered instructions name them (attribute values; lower/spaces.py mirrors them).
enum class Space : u8 { kGeneric, kGlobal, kSharedCta, kSharedCluster, kLocal, kParam, kConst };

enum class Access : u8 { kRead, kWrite };

struct Segment {
  u64 base = 0;
  u64 size = 0;
  u8* host = nullptr;
  bool writable = true;
  std::string name;
  // Ordinary stores of the running kernel, one a 16-byte granule: proxy clock << 32 | writer + 1, or 0; empty if there
  // are none.
  mutable std::vector<u64> written = {};
};

class GlobalMemory {
 public:
  // Adds a segment; bases must not overlap. The host bytes must outlive the map.
  void add(Segment segment);
  void remove(u64 base);
  // The segment that holds all `bytes` at `address`, or nullptr.
  const Segment* find(u64 address, u64 bytes) const {
    const Segment& last = segments_.empty() ? kNone : segments_[last_];
    if (address - last.base < last.size && bytes <= last.size - (address - last.base)) return &last;
    return search(address, bytes);
  }
  // Forgets who wrote what: a kernel has ended.
  void forget_writes();
  // The segment nearest to an address, or nullptr if it is farther than the guard range.
  const Segment* near(u64 address) const;

 private:
  static const Segment kNone;
  const Segment* search(u64 address, u64 bytes) const;
  std::vector<Segment> segments_;
  mutable size_t last_ = 0;
};

// Where a checked access goes: host bytes, and the CTA whose shared memory it is (nullptr: global, parameter or local).
struct Location {
  u8* data;
  Cta* cta = nullptr;
  u32 offset = 0;
};

enum class Scope : u8 { kCta, kCluster };

// Each of these checks alignment and bounds and throws `Fault` at `place`.
u8* global_at(const Place& place, u64 address, u64 bytes, u32 align, Access access);
Location shared_at(const Place& place, u32 address, u32 bytes, u32 align, Scope scope);
u8* local_at(const Place& place, u64 address, u32 bytes, u32 align);
// Ordinary stores to global memory, and reads of it through the async proxy, which a proxy fence has to separate from
// them.
void wrote_global(const Place& place, u64 address, u64 bytes);
void check_global_async_read(const Place& place, u64 address, u64 bytes);
// A tensor map that is used: reports one that this kernel wrote and that no thread of the CTA has acquired since.
void check_tensor_map(const Place& place, u64 address, u64 bytes);
// A generic address; validity and proxy tracking are left to the caller.
Location generic_at(const Place& place, u64 address, u32 bytes, u32 align, Access access);

inline bool is_shared(u64 generic) { return (generic >> 32) == (kSharedWindow >> 32); }
inline bool is_local(u64 generic) { return (generic >> 32) == (kLocalWindow >> 32); }

// The address in a memory operand for one lane: register plus offset. 32-bit addresses wrap.
u64 address_of(const Warp& warp, const Operand& operand, u32 lane);

// The checked place of an operand in a state space, for `place.lane`.
Location locate(const Place& place, const Operand& operand, Space space, u32 bytes, u32 align, Access access);

// The 32-bit shared-window address that an operand means; faults if it is not shared memory.
u32 shared_address(const Place& place, const Operand& operand, Space space);

// The rank of the CTA that an address names; faults if the cluster has none such.
u32 rank_of(const Place& place, u32 address);

// The same for an operand that may be a generic or a shared::cluster address.
u32 cluster_address(const Place& place, const Operand& operand);

}  // namespace ptx
