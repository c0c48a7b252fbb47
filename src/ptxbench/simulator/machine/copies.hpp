// Asynchronous copies that a thread has issued and not waited for.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "machine.hpp"

namespace ptx {

// A bulk copy out of shared memory: reading the source and writing the destination may happen at different times.
struct BulkStore {
  Place place;
  std::function<void()> read;   // empty once done
  std::function<void()> write;  // empty once done
  bool read_waited = false;
};

struct BulkGroups {
  std::vector<BulkStore> open;
  std::deque<std::vector<BulkStore>> committed;
};

// One cp.async instruction. Lanes complete on their own.
struct AsyncCopy {
  Place place;
  u32 pending = 0;  // lanes
  u32 bytes = 0;
  u32 group[kLanes] = {};  // number of the lane's group
  u32 to[kLanes] = {};     // shared-window addresses
  u64 from[kLanes] = {};
  u32 source_bytes[kLanes] = {};  // the rest is filled with zeros
};

struct CopyState {
  std::map<u32, BulkGroups> bulk;  // by lane
  std::vector<AsyncCopy> async;
  std::vector<AsyncCopy> unwaited;  // only if races are checked; `pending` are the lanes that have not waited yet
  u32 group[kLanes] = {};  // the lane's open cp.async group
};

CopyState& copies_of(Warp& warp);

// Issues a bulk store: done at once, or when it is waited for in a late schedule.
void issue_bulk_store(BulkStore store);

// Reports what was not waited for and completes it.
void leave_bulk_stores(Warp& warp);
void leave_async_copies(Warp& warp);

}  // namespace ptx
