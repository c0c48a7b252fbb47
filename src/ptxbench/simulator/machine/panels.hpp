// Operand panels that several warps read: decoded once, as long as shared memory does not change.
#pragma once
#include <array>
#include <vector>

#include "formats.hpp"

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
  // The panel of `key`, read by `read(out)` unless it was read since shared memory had `version`.
  template <class Read>
  const float* find_or_read(const PanelKey& key, u64 version, size_t size, Read read) {
    Panel& panel = panels_[(key.descriptor * 0x9e3779b97f4a7c15ull) >> 60];
    if (panel.key != key || panel.version != version) {
      if (panel.values.size() < size) panel.values.resize(size);
      panel.version = ~0ull;  // in case reading faults
      read(panel.values.data());
      panel.key = key;
      panel.version = version;
    }
    return panel.values.data();
  }

 private:
  struct Panel {
    PanelKey key;
    u64 version = ~0ull;
    std::vector<float> values;
  };
  std::array<Panel, 16> panels_;
};

}  // namespace ptx
