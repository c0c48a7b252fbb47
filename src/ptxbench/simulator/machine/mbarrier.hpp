// mbarrier objects: shared memory words whose state the machine keeps beside the memory.
#pragma once
#include "machine.hpp"

namespace ptx {

// The barrier at a shared-window address; faults if there is none or its word was overwritten.
MBarrier& mbarrier_at(const Place& place, u32 address, Scope scope);

// `async`: by the completion of asynchronous work, which hands on what it did and not what the warp did.
void mbarrier_arrive(const Place& place, u32 address, Scope scope, u32 count = 1, bool async = false);
void mbarrier_expect_tx(const Place& place, u32 address, Scope scope, i64 bytes);
void mbarrier_complete_tx(const Place& place, u32 address, Scope scope, i64 bytes);

}  // namespace ptx
