// Which basic blocks of the machine have run: the hook that -fsanitize-coverage=trace-pc calls, and its map.
#include <cstddef>
#include <cstdint>

namespace {
constexpr size_t kSlots = 1 << 18;
uint8_t blocks[kSlots];
}  // namespace

extern "C" {

__attribute__((no_sanitize_coverage, no_sanitize("address", "undefined"))) void __sanitizer_cov_trace_pc() {
  const auto place = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
  blocks[place % kSlots] = 1;
}

__attribute__((no_sanitize_coverage)) uint8_t* fuzz_blocks() { return blocks; }
__attribute__((no_sanitize_coverage)) size_t fuzz_block_count() { return kSlots; }

}  // extern "C"
