// The accesses of a warp that all lie in one segment of global memory, checked at once.
#pragma once
#include "machine.hpp"

namespace ptx {

class GlobalLanes {
 public:
  // Finds the bytes of every lane of `mask`; leaves what is not an aligned access of one segment to `locate`.
  GlobalLanes(const Warp& warp, const Operand& address, Space space, u32 mask, u32 bytes, Access access);
  explicit operator bool() const { return segment_; }

  u8* at(u32 lane) const { return segment_->host + offset_[lane]; }
  // Notes an ordinary store, as wrote_global does.
  void wrote(u32 lane, u32 bytes) const {
    for (u64 granule = offset_[lane] / 16; stamp_ && granule <= (offset_[lane] + bytes - 1) / 16; ++granule)
      segment_->written[granule] = stamp_;
  }

 private:
  const Segment* segment_ = nullptr;
  u64 stamp_ = 0;
  u64 offset_[kLanes];
};

}  // namespace ptx
