// Construction of warps, CTAs and clusters, and the tracking of shared memory.
#include "machine.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "copies.hpp"
#include "panels.hpp"
#include "races.hpp"
#include "tensor_loads.hpp"
#include "tensor_memory.hpp"
#include "wgmma.hpp"

namespace ptx {

constexpr u8 kAllValid[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

AlignedWords::AlignedWords(size_t words, u32 fill) : size_(words) {
  const size_t bytes = (std::max<size_t>(words, 1) * 4 + 63) / 64 * 64;
  words_.reset(static_cast<u32*>(std::aligned_alloc(64, bytes)));
  if (!words_) throw std::bad_alloc();
  std::fill_n(words_.get(), words, fill);
}

void AlignedWords::Free::operator()(u32* p) const { std::free(p); }

Warp::Warp(Cta& owner, u32 number, u32 lane_mask)
    : live(lane_mask),
      lanes(lane_mask),
      index(number),
      rows_count(owner.cluster->launch->kernel->rows),
      cta(&owner),
      launch(owner.cluster->launch),
      run(launch->run),
      local(size_t(launch->kernel->local_bytes) * kLanes, 0xd5),
      storage_(size_t(rows_count) * kLanes, kPoison) {
  rows = storage_.data();
  registers = launch->registers;
  splits.push_back({0, live});
}

Warp::~Warp() = default;

void fail(const Place& place, FaultKind kind, std::string message, std::string advice) {
  throw Fault{kind,
              std::move(message),
              std::move(advice),
              place.warp->launch->kernel->index,
              place.insn->position,
              place.warp->name() + format(", lane %u", place.lane)};
}

void Warp::illegal(const Insn& insn, const std::string& message) {
  throw Fault{FaultKind::kIllegalInstruction,
              "Illegal instruction: " + message,
              "Check the operands against the PTX ISA's description of the instruction.",
              launch->kernel->index,
              insn.position,
              name()};
}

void Warp::unsupported(const Insn& insn, std::string message) {
  throw Fault{FaultKind::kUnsupported, std::move(message), "", launch->kernel->index, insn.position, name()};
}

std::string Warp::name() const { return format("CTA (%u,%u,%u) warp %u", cta->id[0], cta->id[1], cta->id[2], index); }

u64 Warp::state_hash() const {
  u64 hash = 0x9e3779b97f4a7c15ull;
  const auto mix = [&](const void* data, size_t bytes) {
    const u8* at = static_cast<const u8*>(data);
    for (; bytes >= 8; at += 8, bytes -= 8) {
      u64 word;
      std::memcpy(&word, at, 8);
      hash = (hash ^ word) * 0xff51afd7ed558ccdull;
      hash ^= hash >> 32;
    }
    for (; bytes; ++at, --bytes) hash = (hash ^ *at) * 0x100000001b3ull;
  };
  mix(rows, size_t(rows_count) * kLanes * 4);
  mix(local.data(), local.size());
  mix(&poll_ready, sizeof poll_ready);
  for (const Split& split : splits) {
    const u64 word = u64(split.pc) << 32 | split.mask;
    mix(&word, sizeof word);
  }
  return hash;
}

Cta::Cta(Cluster& owner, u32 cluster_rank) : cluster(&owner), rank(cluster_rank) {
  const Launch& launch = *owner.launch;
  const Dim3& shape = launch.cluster;
  id[0] = owner.origin[0] + rank % shape.x;
  id[1] = owner.origin[1] + rank / shape.x % shape.y;
  id[2] = owner.origin[2] + rank / shape.x / shape.y;
  shared_bytes = launch.kernel->dynamic_offset() + launch.dynamic_shared;
  // Whole swizzle rows, so that swizzled offsets stay inside.
  const size_t padded = (size_t(shared_bytes) + 127) / 128 * 128;
  shared = AlignedWords(padded / 4, kPoison);
  block_version.assign(padded / kVersionBlock + 1, 0);
  valid.assign(padded, 0);
  dirty.assign(padded / 16, 0);
  clean.assign(padded / 16, 0);
  mbarrier_index.assign(padded / 8, 0);
  barriers.resize(16);
  panels = std::make_unique<PanelCache>();
  if (launch.run->options.tensor_memory_columns) tensor_memory = std::make_unique<TensorMemory>();
  const u32 threads = launch.threads();
  for (u32 first = 0; first < threads; first += kLanes) {
    const u32 count = std::min<u32>(kLanes, threads - first);
    warps.push_back(std::make_unique<Warp>(*this, first / kLanes, count == 32 ? kFullMask : (1u << count) - 1));
  }
  live_warps = u32(warps.size());
}

Cta::~Cta() = default;

void Cta::wrote_async(u32 offset, u32 bytes) {
  touch(offset, bytes);
  if (is_clean(offset, offset + bytes - 1)) return;
  std::fill(dirty.begin() + (offset >> 4), dirty.begin() + ((offset + bytes - 1) >> 4) + 1, 0);
  if (offset % 16 == 0 && bytes % 16 == 0) {
    std::memset(&valid[offset], 1, bytes);
    std::memset(&clean[offset >> 4], 1, bytes >> 4);
  } else {
    set_valid(offset, bytes, true);
  }
}

void Cta::set_valid(u32 offset, u32 bytes, bool to) {
  std::memset(&valid[offset], to, bytes);
  for (u32 granule = offset >> 4; granule <= (offset + bytes - 1) >> 4; ++granule)
    clean[granule] = !dirty[granule] && !std::memchr(&valid[granule * 16], 0, 16);
}

bool Cta::check_initialised(const Place& place, u32 offset, u32 bytes) {
  if (bytes == 16 && !std::memcmp(&valid[offset], kAllValid, 16)) return true;
  const u8* first_invalid = static_cast<const u8*>(std::memchr(&valid[offset], 0, bytes));
  if (!first_invalid) return true;
  place.warp->run->hazard(HazardKind::kUninitialisedShared, place, [&] {
    return format("reads shared byte %u of CTA (%u,%u,%u) that nothing has written",
                  u32(first_invalid - valid.data()) - kReservedShared, id[0], id[1], id[2]);
  });
  return false;
}

bool Cta::check_async_read(const Place& place, u32 offset, u32 bytes) {
  bool same_for_all = check_initialised(place, offset, bytes);
  for (u32 granule = offset >> 4; granule <= (offset + bytes - 1) >> 4; ++granule) {
    const u64 stamp = dirty[granule];
    if (!stamp) continue;
    const u64 written = stamp >> 16;
    const Warp& writer = cluster->warp_of(u32(stamp & 0xffff) - 1);
    if (writer.proxy_fence > written) continue;
    same_for_all = false;
    if (place.warp->proxy_fence > written) continue;
    place.warp->run->hazard(HazardKind::kMissingProxyFence, place, [&] {
      return format(
          "reads shared byte %u through the async proxy; %s wrote it with an ordinary store and no "
          "fence.proxy.async followed",
          granule * 16 - kReservedShared, writer.name().c_str());
    });
    break;
  }
  return same_for_all;
}

Dim3 Launch::origin(u64 number) const {
  const u64 across = grid.x / cluster.x, down = grid.y / cluster.y;
  return {u32(number % across) * cluster.x, u32(number / across % down) * cluster.y,
          u32(number / across / down) * cluster.z};
}

Cluster::Cluster(Launch& owner, u64 number) : launch(&owner), index(number) {
  const Dim3 first = owner.origin(number);
  origin[0] = first.x, origin[1] = first.y, origin[2] = first.z;
  for (u32 rank = 0; rank < owner.ctas_per_cluster(); ++rank) {
    ctas.push_back(std::make_unique<Cta>(*this, rank));
    for (const auto& warp : ctas.back()->warps) warps.push_back(warp.get());
  }
  live_warps = owner.ctas_per_cluster() * owner.warps_per_cta();
  if (owner.run->options.races) races = std::make_unique<Races>(*this);
}

Cluster::~Cluster() = default;

Run::Run(const Module& program, const Options& how, const std::atomic<int>& cancel_flag)
    : module(program),
      options(how),
      cancel(cancel_flag) {
  sites.resize(module.kernels.size());
  for (const Kernel& kernel : module.kernels) sites[kernel.index].resize(kernel.code.size());
  deadline = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                                    std::chrono::duration<double>(how.time_limit_s));
}

void Run::defer(Deferred work) {
  if (late(work.kind)) {
    work.place.warp->cta->cluster->deferred.push_back(std::move(work));
    return;
  }
  work.complete();
  event();
}

Hazard& Run::find_hazard(HazardKind kind, const Place& place) {
  const u32 kernel = place.warp->launch->kernel->index, position = place.insn->position;
  const auto key = std::pair(u32(kind), u64(kernel) << 32 | position);
  return hazards.try_emplace(key, Hazard{kind, kernel, position, 0, ""}).first->second;
}

}  // namespace ptx
