#include "memory.hpp"

#include <algorithm>

#include "lane_access.hpp"
#include "machine.hpp"

namespace ptx {

const Segment GlobalMemory::kNone{};

void GlobalMemory::add(Segment segment) {
  const auto at = std::upper_bound(segments_.begin(), segments_.end(), segment.base,
                                   [](u64 base, const Segment& other) { return base < other.base; });
  segments_.insert(at, std::move(segment));
}

void GlobalMemory::remove(u64 base) {
  std::erase_if(segments_, [&](const Segment& segment) { return segment.base == base; });
  last_ = 0;
}

void GlobalMemory::forget_writes() {
  for (const Segment& segment : segments_) segment.written.clear();
}

const Segment* GlobalMemory::search(u64 address, u64 bytes) const {
  const auto above = std::upper_bound(segments_.begin(), segments_.end(), address,
                                      [](u64 value, const Segment& other) { return value < other.base; });
  if (above == segments_.begin()) return nullptr;
  const Segment& found = above[-1];
  if (address - found.base >= found.size || bytes > found.size - (address - found.base)) return nullptr;
  last_ = size_t(&found - segments_.data());
  return &found;
}

const Segment* GlobalMemory::near(u64 address) const {
  for (const Segment& segment : segments_)
    if (address + kGuardBytes >= segment.base && address < segment.base + segment.size + kGuardBytes) return &segment;
  return nullptr;
}

namespace {

void check_alignment(const Place& place, u64 address, u32 align, const char* space) {
  if (address & (align - 1))
    fail(place, FaultKind::kMisalignedAddress,
         format("Misaligned address: %s address 0x%llx is not a multiple of %u", space, (unsigned long long)address, align),
         "Align the address to the size of the access.");
}

[[noreturn]] void fail_global(const Place& place, u64 address, u64 bytes, Access access) {
  const Segment* near = place.warp->run->memory.near(address);
  std::string where = "is not mapped";
  if (near) {
    const i64 past = i64(address - near->base);
    where = past < 0 ? format("is %lld bytes before %s", (long long)-past, near->name.c_str())
                     : format("is at byte %lld of %s, which has %llu bytes", (long long)past, near->name.c_str(),
                              (unsigned long long)near->size);
  }
  const bool stray = near && access == Access::kWrite;
  fail(place, stray ? FaultKind::kStrayWrite : FaultKind::kIllegalAddress,
       format("Out of bounds: %s of %llu bytes at global address 0x%llx, which %s", access == Access::kWrite ? "write" : "read",
              (unsigned long long)bytes, (unsigned long long)address, where.c_str()),
       "Check the index arithmetic and the bounds against the tensor's sizes.");
}

}  // namespace

u8* global_at(const Place& place, u64 address, u64 bytes, u32 align, Access access) {
  check_alignment(place, address, align, "global");
  const Segment* segment = place.warp->run->memory.find(address, bytes);
  if (!segment) fail_global(place, address, bytes, access);
  if (access == Access::kWrite && !segment->writable)
    fail(place, FaultKind::kStrayWrite,
         format("Stray write: %llu bytes at byte %llu of %s, which is read-only", (unsigned long long)bytes,
                (unsigned long long)(address - segment->base), segment->name.c_str()),
         "Write to outputs and workspace only; inputs stay as they are.");
  return segment->host + (address - segment->base);
}

namespace {

constexpr u32 kWriterBits = 32;

// What a store of the warp leaves in `segment.written`, which gets its memory here; 0 if nobody asks.
u64 stamp_of_store(const Warp& warp, const Segment& segment) {
  if (!warp.launch->kernel->reads_global_async) return 0;
  if (segment.written.empty()) segment.written.resize(segment.size / 16 + 1);
  return warp.run->proxy_clock << kWriterBits | (warp.grid_number() + 1);
}

}  // namespace

GlobalLanes::GlobalLanes(const Warp& warp, const Operand& address, Space space, u32 mask, u32 bytes, Access access) {
  if (address.kind != Operand::kMem64 || (space != Space::kGlobal && space != Space::kGeneric)) return;
  const u64* base = reinterpret_cast<const u64*>(warp.row(address.slot));
  const Segment* segment = warp.run->memory.find(base[__builtin_ctz(mask)] + u64(address.imm), bytes);
  if (!segment || segment->base < kGlobalStart || (access == Access::kWrite && !segment->writable)) return;
  const u64 shift = u64(address.imm) - segment->base, last = segment->size - bytes;
  u32 bad = 0;
  for (int l = 0; l < kLanes; ++l) {
    offset_[l] = base[l] + shift;
    bad |= u32((offset_[l] > last) | (((base[l] + u64(address.imm)) & (bytes - 1)) != 0)) << l;
  }
  if (bad & mask) return;
  segment_ = segment;
  if (access == Access::kWrite) stamp_ = stamp_of_store(warp, *segment);
}

void wrote_global(const Place& place, u64 address, u64 bytes) {
  const Segment* segment = place.warp->run->memory.find(address, bytes);
  const u64 stamp = segment ? stamp_of_store(*place.warp, *segment) : 0;
  if (!stamp) return;
  for (u64 at = (address - segment->base) / 16; at <= (address - segment->base + bytes - 1) / 16; ++at)
    segment->written[at] = stamp;
}

void check_global_async_read(const Place& place, u64 address, u64 bytes) {
  const Launch& launch = *place.warp->launch;
  const Segment* segment = place.warp->run->memory.find(address, bytes);
  if (!segment || segment->written.empty()) return;
  for (u64 at = (address - segment->base) / 16; at <= (address - segment->base + bytes - 1) / 16; ++at) {
    const u64 stamp = segment->written[at], when = stamp >> kWriterBits;
    if (!stamp || launch.global_fence(u32(stamp) - 1) > when || launch.global_fence(place.warp->grid_number()) > when)
      continue;
    place.warp->run->hazard(HazardKind::kMissingGlobalProxyFence, place, [&] {
      return format("reads byte %llu of %s through the async proxy; this kernel wrote it with an ordinary store and no "
                    "fence.proxy.async followed", (unsigned long long)at * 16, segment->name.c_str());
    });
    return;
  }
}

void check_tensor_map(const Place& place, u64 address, u64 bytes) {
  const Segment* segment = place.warp->run->memory.find(address, bytes);
  if (!segment || segment->written.empty()) return;
  u64 written = 0;
  for (u64 at = (address - segment->base) / 16; at <= (address - segment->base + bytes - 1) / 16; ++at)
    written = std::max(written, segment->written[at] >> kWriterBits);
  const auto fence = place.warp->cta->tensor_map_fences.find(address);
  if (!written || (fence != place.warp->cta->tensor_map_fences.end() && fence->second > written)) return;
  place.warp->run->hazard(HazardKind::kMissingTensorMapFence, place, [&] {
    return format("uses the tensor map at byte %llu of %s, which this kernel wrote, and no "
                  "fence.proxy.tensormap::generic.acquire of it followed",
                  (unsigned long long)(address - segment->base), segment->name.c_str());
  });
}

u32 rank_of(const Place& place, u32 address) {
  const u32 rank = address >> kRankShift;
  const size_t ctas = place.warp->cta->cluster->ctas.size();
  if (rank >= ctas)
    fail(place, FaultKind::kIllegalAddress,
         format("Out of bounds: shared address 0x%x names CTA rank %u of a cluster of %zu", address, rank, ctas),
         "Form addresses of other CTAs with mapa and a rank below %cluster_nctarank.");
  return rank;
}

Location shared_at(const Place& place, u32 address, u32 bytes, u32 align, Scope scope) {
  check_alignment(place, address, align, "shared");
  const u32 rank = rank_of(place, address), offset = address & kOffsetMask;
  Cta& own = *place.warp->cta;
  if (scope == Scope::kCta && rank != own.rank)
    fail(place, FaultKind::kIllegalAddress,
         format("Out of bounds: shared::cta access to address 0x%x of CTA rank %u from rank %u", address, rank, own.rank),
         "Use the shared::cluster form for another CTA's memory.");
  Cta& cta = *own.cluster->ctas[rank];
  if (offset < kReservedShared || offset > cta.shared_bytes || bytes > cta.shared_bytes - offset)
    fail(place, FaultKind::kIllegalAddress,
         format("Out of bounds: access of %u bytes at shared address 0x%x, but the CTA has %u bytes from 0x%x", bytes, address,
                cta.shared_bytes - kReservedShared, rank << kRankShift | kReservedShared),
         "Check the offset, and the dynamic shared memory size of the launch.");
  if (!cta.live_warps && &cta != &own && !own.cluster->finished())
    fail(place, FaultKind::kIllegalAddress, format("Exited CTA: access to shared memory of CTA rank %u, which has exited", rank),
         "Keep every CTA alive until its peers have finished with its memory (barrier.cluster before exit).");
  return {cta.shared_data(offset), &cta, offset};
}

u8* local_at(const Place& place, u64 address, u32 bytes, u32 align) {
  check_alignment(place, address, align, "local");
  const u64 size = place.warp->launch->kernel->local_bytes, offset = address - kLocalWindow;
  if (offset >= size || bytes > size - offset)
    fail(place, FaultKind::kIllegalAddress,
         format("Out of bounds: access of %u bytes at local byte %lld of %llu", bytes, (long long)offset, (unsigned long long)size),
         "Check the index into the local array.");
  return place.warp->local.data() + place.lane * size + offset;
}

Location generic_at(const Place& place, u64 address, u32 bytes, u32 align, Access access) {
  if (is_shared(address)) return shared_at(place, u32(address), bytes, align, Scope::kCluster);
  if (is_local(address)) return {local_at(place, address, bytes, align)};
  return {global_at(place, address, bytes, align, access)};
}

Location locate(const Place& place, const Operand& operand, Space space, u32 bytes, u32 align, Access access) {
  const u64 address = address_of(*place.warp, operand, place.lane);
  switch (space) {
    case Space::kSharedCta:
    case Space::kSharedCluster:
      return shared_at(place, shared_address(place, operand, space), bytes, align,
                       space == Space::kSharedCta ? Scope::kCta : Scope::kCluster);
    case Space::kLocal:  // addresses in the state space may have 32 bits
      return {local_at(place, operand.kind == Operand::kMem ? kLocalWindow | address : address, bytes, align)};
    case Space::kGeneric: return generic_at(place, address, bytes, align, access);
    default: return {global_at(place, address, bytes, align, access)};
  }
}

u32 shared_address(const Place& place, const Operand& operand, Space space) {
  const u64 address = address_of(*place.warp, operand, place.lane);
  const u64 window = space == Space::kGeneric ? kSharedWindow >> 32 : 0;
  if (address >> 32 != window)
    fail(place, FaultKind::kIllegalAddress,
         format("Wrong state space: 0x%llx is not a shared memory address", (unsigned long long)address),
         space == Space::kGeneric ? "Use an address of shared memory."
                                  : "Convert a generic pointer with cvta.to.shared (__cvta_generic_to_shared) first.");
  return u32(address);
}

u32 cluster_address(const Place& place, const Operand& operand) {
  const bool generic = is_shared(address_of(*place.warp, operand, place.lane));
  return shared_address(place, operand, generic ? Space::kGeneric : Space::kSharedCluster);
}

u64 address_of(const Warp& warp, const Operand& operand, u32 lane) {
  if (operand.kind == Operand::kMem64)
    return reinterpret_cast<const u64*>(warp.row(operand.slot))[lane] + u64(operand.imm);
  if (operand.kind == Operand::kMem) return u32(warp.row(operand.slot)[lane] + u32(operand.imm));
  return kParameterWindow + u64(operand.imm);
}

}  // namespace ptx
