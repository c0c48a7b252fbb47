// ld, st, prefetch and the conversions between address spaces.
//
// ld: operands = destinations, address; attributes = space, bytes of an element, elements, extension, poll
// st: operands = address, sources; attributes = space, bytes of an element, elements, not weak
#include <algorithm>
#include <cstring>

#include "lane_access.hpp"
#include "lane_values.hpp"
#include "races.hpp"

namespace ptx {
namespace {

enum Extension : i32 { kZero, kSign16, kSign32, kSign64 };

struct LoadForm {
  Space space;
  u32 bytes, count;
  Extension extension;
  bool poll;
};

u64 extend(u64 value, u32 bytes, Extension extension) {
  if (extension == kZero) return value;
  const i64 wide = bytes == 1   ? i64(i8(value))
                   : bytes == 2 ? i64(i16(value))
                   : bytes == 4 ? i64(i32(value))
                                : i64(value);
  return extension == kSign16 ? u64(wide) & 0xffff : extension == kSign32 ? u64(wide) & 0xffffffff : u64(wide);
}

void put(Warp& warp, const Operand& operand, u32 lane, const u8* data, const LoadForm& form) {
  if (operand.kind == Operand::kNone) return;
  if (operand.kind == Operand::kRow128) {
    std::memcpy(&warp.row64(operand.slot)[lane], data, 8);
    std::memcpy(&warp.row64(operand.slot + 2)[lane], data + 8, 8);
    return;
  }
  u64 value = 0;
  std::memcpy(&value, data, form.bytes);
  value = extend(value, form.bytes, form.extension);
  if (operand.kind == Operand::kRow64)
    warp.row64(operand.slot)[lane] = value;
  else
    warp.row(operand.slot)[lane] = u32(value);
}

void get(const Warp& warp, const Operand& operand, u32 lane, u8* data, u32 bytes) {
  const u32* row = warp.row(operand.slot);
  if (operand.kind == Operand::kRow) {
    std::memcpy(data, row + lane, bytes);
  } else if (operand.kind == Operand::kRow64) {
    std::memcpy(data, reinterpret_cast<const u64*>(row) + lane, bytes);
  } else {
    std::memcpy(data, reinterpret_cast<const u64*>(row) + lane, 8);
    std::memcpy(data + 8, reinterpret_cast<const u64*>(row) + kLanes + lane, 8);
  }
}

// A 32-bit load of the whole warp from its own shared memory; false leaves it to the general path.
bool load_shared_words(Warp& warp, const Insn& insn, u32 mask) {
  Cta& cta = *warp.cta;
  const u32* address = warp.row(insn.ops[1].slot);
  const u32 base = cta.rank << kRankShift, offset = u32(insn.ops[1].imm);
  u32 bad = 0;
  for (u32 lane = 0; lane < kLanes; ++lane) {
    const u32 at = address[lane] + offset - base;
    const bool inside = at >= kReservedShared && at + 4 <= cta.shared_bytes && !(at & 3);
    bad |= u32(!inside) << lane;
  }
  if (bad & mask) return false;
  u32* destination = warp.row(insn.ops[0].slot);
  u32 invalid = 0;
  for_lanes(mask, [&](u32 lane) {
    const u32 at = address[lane] + offset - base;
    u32 flags;
    std::memcpy(&flags, &cta.valid[at], 4);
    invalid |= u32(flags != 0x01010101u) << lane;
    std::memcpy(&destination[lane], cta.shared_data(at), 4);
  });
  for_lanes(invalid, [&](u32 lane) { cta.check_initialised({&warp, &insn, lane}, address[lane] + offset - base, 4); });
  return true;
}

template <u32 kBytes>
void load_bytes(const GlobalLanes& from, u32 mask, u8 (*loaded)[64]) {
  for_lanes(mask, [&](u32 lane) { std::memcpy(loaded[lane], from.at(lane), kBytes); });
}

// Loads from one segment of global memory.
void load_global(const GlobalLanes& from, u32 mask, u32 bytes, u8 (*loaded)[64]) {
  switch (bytes) {
    case 2: return load_bytes<2>(from, mask, loaded);
    case 4: return load_bytes<4>(from, mask, loaded);
    case 8: return load_bytes<8>(from, mask, loaded);
    case 16: return load_bytes<16>(from, mask, loaded);
    default: for_lanes(mask, [&](u32 lane) { std::memcpy(loaded[lane], from.at(lane), bytes); });
  }
}

// Loads from anywhere, a lane at a time.
void load_lanes(Warp& warp, const Insn& insn, u32 mask, const LoadForm& form, u8 (*loaded)[64]) {
  const u32 bytes = form.bytes * form.count;
  const RaceKind read = form.poll ? RaceKind::kStrongRead : RaceKind::kRead;
  for_lanes(mask, [&](u32 lane) {
    const Place place{&warp, &insn, lane};
    const Location from = locate(place, insn.ops[form.count], form.space, bytes, bytes, Access::kRead);
    if (from.cta) from.cta->check_initialised(place, from.offset, bytes), check_race(place, from, bytes, read);
    std::memcpy(loaded[lane], from.data, bytes);
  });
}

// One element of what the lanes loaded.
void put_lanes(Warp& warp, const Operand& operand, u32 mask, u8 (*loaded)[64], u32 element, const LoadForm& form) {
  const u32 at = element * form.bytes;
  if (operand.kind == Operand::kRow && form.bytes == 4 && form.extension != kSign16) {
    u32* row = warp.row(operand.slot);
    for_lanes(mask, [&](u32 lane) { std::memcpy(&row[lane], loaded[lane] + at, 4); });
  } else {
    for_lanes(mask, [&](u32 lane) { put(warp, operand, lane, loaded[lane] + at, form); });
  }
}

Step ld(Warp& warp, const Insn& insn, u32 mask) {
  const LoadForm form{Space(insn.attr[0]), u32(insn.attr[1]), u32(insn.attr[2]), Extension(insn.attr[3]),
                      insn.attr[4] != 0};
  const Operand& address = insn.ops[form.count];
  // A poll reads at the start of a time slice, so that it sees what another warp has just signalled.
  if (form.poll && (warp.poll_ready = !warp.poll_ready)) return Step::kPoll;
  if (form.space == Space::kSharedCta && form.bytes == 4 && form.count == 1 && address.kind == Operand::kMem &&
      !warp.cta->cluster->races && insn.ops[0].kind == Operand::kRow && load_shared_words(warp, insn, mask))
    return Step::kNext;
  if (form.poll && warp.cta->cluster->races) acquire_flags(warp, insn, mask, address, form.space);
  // A destination may be the address register, so all lanes are loaded before any is written.
  alignas(64) u8 loaded[kLanes][64];
  const u32 bytes = form.bytes * form.count;
  if (const GlobalLanes from(warp, address, form.space, mask, bytes, Access::kRead); from)
    load_global(from, mask, bytes, loaded);
  else
    load_lanes(warp, insn, mask, form, loaded);
  for (u32 element = 0; element < form.count; ++element)
    put_lanes(warp, insn.ops[element], mask, loaded, element, form);
  return Step::kNext;
}

struct StoreForm {
  Space space;
  u32 bytes, count;  // of an element, elements
  bool strong;
};

// Stores to one segment of global memory.
void store_global(const Warp& warp, const Insn& insn, u32 mask, const StoreForm& form, const GlobalLanes& to) {
  const u32 element_bytes = form.bytes, count = form.count;
  for (u32 element = 0; element < count; ++element) {
    const Operand& source = insn.ops[1 + element];
    const u32* row = warp.row(source.slot);
    const u32 at = element * element_bytes;
    if (source.kind == Operand::kRow && element_bytes == 4)
      for_lanes(mask, [&](u32 lane) { std::memcpy(to.at(lane) + at, row + lane, 4); });
    else
      for_lanes(mask, [&](u32 lane) { get(warp, source, lane, to.at(lane) + at, element_bytes); });
  }
  for_lanes(mask, [&](u32 lane) { to.wrote(lane, element_bytes * count); });
}

// Stores of whole words to the warp's own shared memory; false leaves them to the general path.
bool store_shared_words(Warp& warp, const Insn& insn, u32 mask, const StoreForm& form) {
  Cta& cta = *warp.cta;
  const u32 bytes = 4 * form.count;
  const u32* address = warp.row(insn.ops[0].slot);
  const u32 shift = u32(insn.ops[0].imm) - (cta.rank << kRankShift), last = cta.shared_bytes - bytes;
  u32 bad = 0;
  for (u32 lane = 0; lane < kLanes; ++lane) {
    const u32 at = address[lane] + shift;
    bad |= u32((at < kReservedShared) | (at > last) | ((at & (bytes - 1)) != 0)) << lane;
  }
  if (bad & mask) return false;
  for_lanes(mask, [&](u32 lane) {
    const u32 at = address[lane] + shift;
    cta.wrote_generic(at, bytes, warp);
    for (u32 word = 0; word < form.count; ++word)
      std::memcpy(cta.shared_data(at + 4 * word), warp.row(insn.ops[1 + word].slot) + lane, 4);
  });
  return true;
}

bool is_words(const Insn& insn, const StoreForm& form) {
  return form.space == Space::kSharedCta && form.bytes == 4 && insn.ops[0].kind == Operand::kMem &&
         std::all_of(insn.ops.begin() + 1, insn.ops.end(), [](const Operand& it) { return it.kind == Operand::kRow; });
}

// Stores to anywhere, a lane at a time.
void store_lanes(Warp& warp, const Insn& insn, u32 mask, const StoreForm& form) {
  const u32 bytes = form.bytes * form.count;
  for_lanes(mask, [&](u32 lane) {
    const Place place{&warp, &insn, lane};
    const Location to = locate(place, insn.ops[0], form.space, bytes, bytes, Access::kWrite);
    u8 values[64];
    for (u32 element = 0; element < form.count; ++element)
      get(warp, insn.ops[1 + element], lane, values + element * form.bytes, form.bytes);
    if (to.cta) {
      if (to.cta->cluster->races) {
        const bool same = !std::memcmp(to.data, values, bytes);
        check_race(place, to, bytes, form.strong ? RaceKind::kStrongWrite : same ? RaceKind::kRewrite : RaceKind::kWrite);
      }
      to.cta->wrote_generic(to.offset, bytes, warp);
    } else {
      wrote_global(place, address_of(warp, insn.ops[0], lane), bytes);
    }
    std::memcpy(to.data, values, bytes);
  });
}

Step st(Warp& warp, const Insn& insn, u32 mask) {
  const StoreForm form{Space(insn.attr[0]), u32(insn.attr[1]), u32(insn.attr[2]), insn.attr[3] != 0};
  const u32 bytes = form.bytes * form.count;
  if (const GlobalLanes to(warp, insn.ops[0], form.space, mask, bytes, Access::kWrite); to)
    store_global(warp, insn, mask, form, to);
  else if (warp.cta->cluster->races || !is_words(insn, form) || !store_shared_words(warp, insn, mask, form))
    store_lanes(warp, insn, mask, form);
  if (form.strong && warp.cta->cluster->races) release_flags(warp, insn, mask, insn.ops[0], form.space);
  if (form.space != Space::kLocal) warp.run->event();
  return Step::kNext;
}

Step no_effect(Warp&, const Insn&, u32) { return Step::kNext; }

// A cache policy: opaque to the program, and without effect here.
Step createpolicy(Warp& warp, const Insn& insn, u32 mask) {
  for_lanes(mask, [&](u32 lane) { warp.row64(insn.ops[0].slot)[lane] = 0; });
  return Step::kNext;
}

// cvta to generic. Local and global addresses are generic already, parameter addresses of 64 bits too. Attribute: space.
Step cvta(Warp& warp, const Insn& insn, u32 mask) {
  const Space space = Space(insn.attr[0]);
  const bool shared = space == Space::kSharedCta || space == Space::kSharedCluster;
  const bool parameter = space == Space::kParam;
  for_lanes(mask, [&](u32 lane) {
    const u64 address = value_of(warp, insn.ops[1], lane);
    const u64 window = shared ? kSharedWindow : parameter ? kParameterWindow : 0;
    set_value(warp, insn.ops[0], lane, window ? window | u32(address) : address);
  });
  return Step::kNext;
}

Step cvta_to(Warp& warp, const Insn& insn, u32 mask) {
  const Space space = Space(insn.attr[0]);
  const bool shared = space == Space::kSharedCta || space == Space::kSharedCluster;
  for_lanes(mask, [&](u32 lane) {
    const u64 address = value_of(warp, insn.ops[1], lane);
    set_value(warp, insn.ops[0], lane, shared ? u32(address) : address);
  });
  return Step::kNext;
}

Step isspacep(Warp& warp, const Insn& insn, u32 mask) {
  u32 inside = 0;
  for_lanes(mask, [&](u32 lane) {
    const u64 address = value_of(warp, insn.ops[1], lane);
    const bool own = is_shared(address) && u32(address) >> kRankShift == warp.cta->rank;
    const u64 window = address >> 32;
    bool in = false;
    switch (Space(insn.attr[0])) {
      case Space::kSharedCta: in = own; break;
      case Space::kSharedCluster: in = is_shared(address); break;
      case Space::kLocal: in = is_local(address); break;
      case Space::kParam: in = window == kParameterWindow >> 32; break;
      default: in = address >= kGlobalStart; break;
    }
    inside |= u32(in) << lane;
  });
  warp.set_pred(insn.ops[0], mask, inside);
  return Step::kNext;
}

// mapa: operands = destination, address, rank. A generic address keeps its window bits.
Step mapa(Warp& warp, const Insn& insn, u32 mask) {
  for_lanes(mask, [&](u32 lane) {
    const u64 address = value_of(warp, insn.ops[1], lane);
    const u64 rank = warp.row(insn.ops[2].slot)[lane] & 0xff;
    set_value(warp, insn.ops[0], lane, (address & ~u64(0xff000000)) | rank << kRankShift);
  });
  return Step::kNext;
}

// getctarank: operands = destination, address.
Step getctarank(Warp& warp, const Insn& insn, u32 mask) {
  for_lanes(mask, [&](u32 lane) {
    warp.row(insn.ops[0].slot)[lane] = u32(value_of(warp, insn.ops[1], lane)) >> kRankShift;
  });
  return Step::kNext;
}

constexpr NamedHandler kTable[] = {
    {"ld", ld},
    {"st", st},
    {"no_effect", no_effect},
    {"createpolicy", createpolicy},
    {"cvta", cvta},
    {"cvta.to", cvta_to},
    {"isspacep", isspacep},
    {"mapa", mapa},
    {"getctarank", getctarank},
};

}  // namespace

std::span<const NamedHandler> loadstore_handlers() { return kTable; }

}  // namespace ptx
