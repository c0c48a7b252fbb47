// Operand panels that several warps read: decoded once, as long as the shared memory behind them does not change.
#pragma once
#include <algorithm>
#include <array>
#include <utility>

#include "formats.hpp"
#include "machine.hpp"

namespace ptx {

// What a panel was read from.
struct PanelKey {
  u64 descriptor = ~0ull;
  u32 rows = 0;
  Element element = Element::kBf16;
  bool mn_major = false;
  bool operator==(const PanelKey&) const = default;
};

class PanelCache {
 public:
  // The panel of `key`, which lies between the bytes of `extent`, as `read(out)` reads it. A panel is kept if `read` says
  // that it is the same for every warp.
  template <class Read>
  const float* find_or_read(const Cta& cta, const PanelKey& key, std::pair<u32, u32> extent, size_t size, Read read) {
    Panel& panel = panels_[(key.descriptor * 0x9e3779b97f4a7c15ull) >> (64 - kBits)];
    if (panel.key != key || panel.version < cta.last_write(extent.first, extent.second)) {
      if (panel.values.size() < size) panel.values = AlignedWords(size, 0);
      panel.key = {};  // in case reading faults
      if (read(panel.floats())) panel.key = key;
      panel.version = cta.shared_version;
    }
    return panel.floats();
  }

 private:
  static constexpr u32 kBits = 4;
  struct Panel {
    PanelKey key;
    u64 version = 0;
    AlignedWords values;
    float* floats() const { return reinterpret_cast<float*>(values.data()); }
  };
  std::array<Panel, 1 << kBits> panels_;
};

}  // namespace ptx
