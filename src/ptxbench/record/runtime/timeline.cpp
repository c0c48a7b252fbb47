#include "timeline.hpp"

#include <utility>

namespace ptxbench::record {

cudaStream_t Timeline::begin_call() {
    ++call_;
    appended_ = host_mark_ = 0;
    host_ = Frontier{};
    legacy_.frontier = Frontier{};
    streams_.erase(root_);
    for (auto& [handle, stream] : streams_) stream->frontier = Frontier{};
    root_ = create_stream(true);
    stream(root_)->frontier.rooted = true;
    return root_;
}

cudaStream_t Timeline::create_stream(bool blocking) {
    auto stream = std::make_unique<Stream>();
    stream->blocking = blocking;
    const auto handle = reinterpret_cast<cudaStream_t>(stream.get());
    streams_.emplace(handle, std::move(stream));
    return handle;
}

cudaEvent_t Timeline::create_event() {
    auto event = std::make_unique<Event>();
    const auto handle = reinterpret_cast<cudaEvent_t>(event.get());
    events_.emplace(handle, std::move(event));
    return handle;
}

Stream* Timeline::stream(cudaStream_t handle) {
    if (handle == nullptr || handle == cudaStreamLegacy) return &legacy_;
    const auto found = streams_.find(handle);
    return found == streams_.end() ? nullptr : found->second.get();
}

Event* Timeline::event(cudaEvent_t handle) {
    const auto found = events_.find(handle);
    return found == events_.end() ? nullptr : found->second.get();
}

void Timeline::record(Event& event, Stream& stream) {
    event.call = call_;
    event.frontier = before(stream);
}

void Timeline::wait(Stream& stream, const Event& event) {
    // An event of an earlier call, or one never recorded, has nothing left to wait for.
    if (event.call == call_) stream.frontier.join(event.frontier);
}

void Timeline::synchronize(const Frontier& frontier) {
    // A node that came after the host's last wait already follows everything that this wait covered.
    bool covered = false;
    for (const int node : frontier.nodes) covered = covered || node >= host_mark_;
    const bool rooted = host_.rooted;
    if (covered) host_ = Frontier{};
    host_.join(frontier);
    host_.rooted = host_.rooted || rooted;
    host_mark_ = appended_;
}

void Timeline::synchronize(const Event& event) {
    if (event.call == call_) synchronize(event.frontier);
}

void Timeline::synchronize_all() {
    Frontier everything = all_blocking();
    for (const auto& [handle, stream] : streams_) everything.join(stream->frontier);
    synchronize(everything);
}

Frontier Timeline::before(Stream& stream) {
    Frontier result = is_legacy(stream) ? all_blocking() : stream.frontier;
    // Work on the legacy default stream also comes before whatever follows on a blocking stream.
    if (stream.blocking) result.join(legacy_.frontier);
    result.join(host_);
    return result;
}

void Timeline::append(Stream& stream, int node) {
    appended_ = node + 1;
    stream.frontier = Frontier{{node}, before(stream).rooted};
}

Frontier Timeline::end_of_call() {
    return before(*stream(root_));
}

Frontier Timeline::all_blocking() const {
    Frontier result = legacy_.frontier;
    for (const auto& [handle, stream] : streams_) {
        if (stream->blocking) result.join(stream->frontier);
    }
    return result;
}

}  // namespace ptxbench::record
