// Streams, events and host synchronisation. Nothing runs, so every wait returns at once; what it means for the order
// of the work is kept by the timeline.

#include "recorder.hpp"

using namespace ptxbench::record;

namespace {

cudaError_t no_stream(const char* api) {
    return recorder().fail(api, cudaErrorInvalidResourceHandle,
                           "the stream is neither this call's nor the launcher's own");
}

cudaError_t no_event(const char* api) {
    return recorder().fail(api, cudaErrorInvalidResourceHandle, "the event was not created or was destroyed");
}

}  // namespace

PTXBENCH_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
    *stream = recorder().timeline.create_stream((flags & cudaStreamNonBlocking) == 0);
    return cudaSuccess;
}

PTXBENCH_API cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

PTXBENCH_API cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
    return cudaStreamCreateWithFlags(stream, flags);
}

PTXBENCH_API cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    return recorder().timeline.destroy(stream) ? cudaSuccess : no_stream("cudaStreamDestroy");
}

PTXBENCH_API cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = -5;
    return cudaSuccess;
}

PTXBENCH_API cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    Timeline& timeline = recorder().timeline;
    Stream* stream = timeline.stream(handle);
    if (stream == nullptr) return no_stream("cudaStreamSynchronize");
    timeline.synchronize(timeline.before(*stream));
    return cudaSuccess;
}

PTXBENCH_API cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); }

PTXBENCH_API cudaError_t cudaDeviceSynchronize(void) {
    recorder().timeline.synchronize_all();
    return cudaSuccess;
}

PTXBENCH_API cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t event_handle, unsigned flags) {
    Timeline& timeline = recorder().timeline;
    Stream* stream = timeline.stream(stream_handle);
    const Event* event = timeline.event(event_handle);
    if (stream == nullptr) return no_stream("cudaStreamWaitEvent");
    if (event == nullptr) return no_event("cudaStreamWaitEvent");
    if (flags != 0) return recorder().fail("cudaStreamWaitEvent", cudaErrorInvalidValue, "the flags must be 0");
    timeline.wait(*stream, *event);
    return cudaSuccess;
}

PTXBENCH_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
    *event = recorder().timeline.create_event();
    return cudaSuccess;
}

PTXBENCH_API cudaError_t cudaEventCreate(cudaEvent_t* event) {
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

PTXBENCH_API cudaError_t cudaEventDestroy(cudaEvent_t event) {
    return recorder().timeline.destroy(event) ? cudaSuccess : no_event("cudaEventDestroy");
}

PTXBENCH_API cudaError_t cudaEventRecord(cudaEvent_t event_handle, cudaStream_t stream_handle) {
    Timeline& timeline = recorder().timeline;
    Event* event = timeline.event(event_handle);
    Stream* stream = timeline.stream(stream_handle);
    if (event == nullptr) return no_event("cudaEventRecord");
    if (stream == nullptr) return no_stream("cudaEventRecord");
    timeline.record(*event, *stream);
    return cudaSuccess;
}

PTXBENCH_API cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
    if (flags != 0) return recorder().fail("cudaEventRecordWithFlags", cudaErrorInvalidValue, "the flags must be 0");
    return cudaEventRecord(event, stream);
}

PTXBENCH_API cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
    const Event* event = recorder().timeline.event(handle);
    if (event == nullptr) return no_event("cudaEventSynchronize");
    recorder().timeline.synchronize(*event);
    return cudaSuccess;
}

PTXBENCH_API cudaError_t cudaEventQuery(cudaEvent_t event) { return cudaEventSynchronize(event); }
