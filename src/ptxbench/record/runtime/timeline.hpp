// Streams and events as what they mean for a plan: which earlier nodes must have finished before a new one starts.
#pragma once

#include <driver_types.h>

#include <map>
#include <memory>
#include <set>
#include <vector>

namespace ptxbench::record {

// Nodes of the current call that come first, and whether that point in time lies after the start of the call on the
// launcher's stream at all.
struct Frontier {
    std::set<int> nodes;
    bool rooted = false;

    void join(const Frontier& other) {
        nodes.insert(other.nodes.begin(), other.nodes.end());
        rooted = rooted || other.rooted;
    }
};

struct Stream {
    Frontier frontier;
    bool blocking = true;  // ordered with the legacy default stream
};

struct Event {
    Frontier frontier;
    int call = 0;  // the call that recorded it; 0: none did
};

class Timeline {
public:
    // Starts a call: everything of earlier calls has finished. Returns the stream that is handed to the launcher.
    cudaStream_t begin_call();

    cudaStream_t create_stream(bool blocking);
    cudaEvent_t create_event();
    bool destroy(cudaStream_t handle) { return streams_.erase(handle) == 1; }
    bool destroy(cudaEvent_t handle) { return events_.erase(handle) == 1; }

    // Null for a handle that names nothing alive. 0 and cudaStreamLegacy name the legacy default stream.
    Stream* stream(cudaStream_t handle);
    Event* event(cudaEvent_t handle);

    void record(Event& event, Stream& stream);
    void wait(Stream& stream, const Event& event);
    // The host waits: whatever is asked for next comes after it.
    void synchronize(const Frontier& frontier);
    void synchronize(const Event& event);
    void synchronize_all();

    // What the next node on `stream` must wait for; `append` then makes `node` the stream's last one.
    Frontier before(Stream& stream);
    void append(Stream& stream, int node);
    // What is ordered before the end of the call: the launcher's stream and what the host waited for.
    Frontier end_of_call();

private:
    bool is_legacy(const Stream& stream) const { return &stream == &legacy_; }
    Frontier all_blocking() const;

    int call_ = 0;
    int appended_ = 0;   // nodes so far in this call
    int host_mark_ = 0;  // value of `appended_` when the host last waited
    cudaStream_t root_ = nullptr;
    Stream legacy_;
    Frontier host_;
    std::map<cudaStream_t, std::unique_ptr<Stream>> streams_;
    std::map<cudaEvent_t, std::unique_ptr<Event>> events_;
};

}  // namespace ptxbench::record
