#include "recorder.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "device.hpp"

namespace ptxbench::record {

namespace {

std::array<unsigned, 3> triple(const dim3& d) { return {d.x, d.y, d.z}; }

cudaMemcpyKind direction(bool to_device, bool from_device) {
    if (to_device) return from_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice;
    return from_device ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost;
}

bool fits_at_once(const Kernel& kernel, const LaunchShape& shape) {
    const std::uint64_t threads = std::uint64_t{shape.block.x} * shape.block.y * shape.block.z;
    if (threads == 0 || threads > 1024) return false;
    const int per_multiprocessor = resident_blocks(kernel, static_cast<int>(threads), shape.dynamic_shared);
    const auto room = static_cast<std::uint64_t>(per_multiprocessor * recorder().sheet["sm_count"]);
    return static_cast<long double>(shape.grid.x) * shape.grid.y * shape.grid.z <= static_cast<long double>(room);
}

}  // namespace

Recorder& recorder() {
    // Never destroyed: static destructors of the candidate may still call the API.
    static Recorder* instance = new Recorder;
    return *instance;
}

void Recorder::emit(const std::string& line) {
    const std::string text = line + "\n";
    std::size_t done = 0;
    while (done < text.size()) {
        const ssize_t written = write(channel, text.data() + done, text.size() - done);
        if (written <= 0) _exit(3);  // nobody listens any more
        done += static_cast<std::size_t>(written);
    }
}

void Recorder::refuse(std::string_view subject, std::string_view detail) {
    emit(JsonObject{}.text("event", "refused").text("subject", subject).text("detail", detail).finish());
    _exit(0);
}

cudaError_t Recorder::fail(std::string_view api, cudaError_t error, const std::string& why) {
    last_error_ = error;
    // A launcher that provokes errors in a loop must not fill the recording. The rest is written at once, because many
    // launchers end the process when they see an error.
    if (errors_++ < kMaxErrors) {
        JsonObject line;
        line.text("event", "error").text("api", api).integer("code", error).text("name", cudaGetErrorName(error));
        emit(line.text("why", why).finish());
    }
    return error;
}

cudaError_t Recorder::take_last_error() { return std::exchange(last_error_, cudaSuccess); }

cudaStream_t Recorder::begin_call() {
    nodes_.clear();
    payload_bytes_ = 0;
    last_error_ = cudaSuccess;
    in_call_ = true;
    return timeline.begin_call();
}

void Recorder::end_call(int code, std::uint64_t workspace) {
    in_call_ = false;
    std::vector<std::string> allocations, symbols, maps;
    for (const Allocation& a : allocations_) {
        allocations.push_back(JsonObject{}.number("base", a.base).number("bytes", a.bytes).finish());
    }
    for (const auto& [variable, s] : symbols_) {
        symbols.push_back(JsonObject{}.text("name", s.name).number("base", s.base).number("bytes", s.bytes).finish());
    }
    for (const MapRecord& map : maps_) maps.push_back(JsonObject{map.fields}.number("base", map.base).finish());
    JsonObject line;
    line.text("event", "returned").integer("code", code);
    line.text("code_name", cudaGetErrorName(static_cast<cudaError_t>(code))).number("workspace", workspace);
    line.list("nodes", nodes_).numbers("joined", timeline.end_of_call().nodes);
    line.list("allocations", allocations).list("symbols", symbols).list("maps", maps);
    emit(line.finish());
}

void Recorder::register_kernel(const void* host_function, const char* name) {
    const auto found = kernels_.find(name);
    if (found == kernels_.end()) return;
    kernel_handles_[host_function] = &found->second;
    kernel_handles_[&found->second] = &found->second;
}

void Recorder::register_symbol(const void* host_variable, const char* name, std::size_t bytes) {
    const std::uint64_t base = layout.symbols + symbols_.size() * kAddressStep;
    symbols_.emplace(host_variable, Symbol{name, bytes, base});
}

Kernel* Recorder::kernel(const void* handle) {
    const auto found = kernel_handles_.find(handle);
    return found == kernel_handles_.end() ? nullptr : found->second;
}

const Symbol* Recorder::symbol(const void* host_variable) const {
    const auto found = symbols_.find(host_variable);
    return found == symbols_.end() ? nullptr : &found->second;
}

cudaError_t Recorder::allocate(std::string_view api, void** pointer, std::size_t bytes) {
    if (pointer == nullptr) return fail(api, cudaErrorInvalidValue, "the result pointer is null");
    if (allocations_.size() == kMaxAllocations) refuse(api, "more than 1024 allocations");
    std::size_t used = bytes;
    for (const Allocation& a : allocations_) used += a.freed ? 0 : a.bytes;
    if (used < bytes || used > static_cast<std::size_t>(sheet["memory_bytes"])) {
        return fail(api, cudaErrorMemoryAllocation, "the allocations exceed the memory of the device");
    }
    *pointer = nullptr;
    if (bytes == 0) return cudaSuccess;
    allocations_.push_back({layout.allocations + allocations_.size() * kAddressStep, bytes});
    *pointer = pointer_to(allocations_.back().base);
    return cudaSuccess;
}

cudaError_t Recorder::release(std::string_view api, const void* pointer) {
    if (pointer == nullptr) return cudaSuccess;
    for (Allocation& a : allocations_) {
        if (a.base != address_of(pointer)) continue;
        if (std::exchange(a.freed, true)) return fail(api, cudaErrorInvalidValue, "the memory was freed before");
        return cudaSuccess;
    }
    return fail(api, cudaErrorInvalidValue, "the pointer was not returned by an allocation of this launcher");
}

cudaError_t Recorder::append(std::string_view api, cudaStream_t handle, JsonObject node) {
    if (!in_call_) refuse(api, "work outside of a call of launch");
    if (nodes_.size() == kMaxNodes) refuse(api, "more than 4096 kernels, fills and copies in one call");
    Stream* stream = timeline.stream(handle);
    if (stream == nullptr) {
        return fail(api, cudaErrorInvalidResourceHandle, "the stream is neither this call's nor the launcher's own");
    }
    const Frontier before = timeline.before(*stream);
    if (!before.rooted) {
        refuse(api, "work on a stream that was not forked from the launcher's stream");
    }
    std::vector<std::uint64_t> freed;
    for (const Allocation& a : allocations_) {
        if (a.freed) freed.push_back(a.base);
    }
    nodes_.push_back(node.numbers("after", before.nodes).numbers("freed", freed).finish());
    timeline.append(*stream, static_cast<int>(nodes_.size()) - 1);
    return cudaSuccess;
}

void Recorder::charge(std::string_view api, std::size_t bytes) {
    if (bytes > kMaxPayloadBytes - payload_bytes_) refuse(api, "more than 4 MiB of arguments and copies from the host");
    payload_bytes_ += bytes;
}

cudaError_t Recorder::launch(std::string_view api, const void* function, const LaunchShape& shape, void** arguments,
                             cudaStream_t stream) {
    const Kernel* k = kernel(function);
    if (k == nullptr) return fail(api, cudaErrorInvalidDeviceFunction, "the function is no kernel of this source");
    if (arguments == nullptr && !k->parameters.empty()) {
        return fail(api, cudaErrorInvalidValue, "the argument array is null");
    }
    std::vector<unsigned char> block;
    for (std::size_t i = 0; i < k->parameters.size(); ++i) {
        const auto [offset, bytes] = k->parameters[i];
        if (arguments[i] == nullptr) return fail(api, cudaErrorInvalidValue, "a pointer in the argument array is null");
        block.resize(std::max(block.size(), offset + bytes));
        std::memcpy(block.data() + offset, arguments[i], bytes);
    }
    if (shape.cooperative && !fits_at_once(*k, shape)) {
        return fail(api, cudaErrorCooperativeLaunchTooLarge, "the grid does not fit on the device at once");
    }
    charge(api, block.size());
    JsonObject node;
    node.text("op", "kernel").text("kernel", k->name).numbers("grid", triple(shape.grid));
    node.numbers("block", triple(shape.block)).numbers("cluster", triple(shape.cluster));
    node.number("dynamic_shared", shape.dynamic_shared).hex("parameters", block.data(), block.size());
    node.flag("cooperative", shape.cooperative).flag("programmatic", shape.programmatic);
    node.integer("max_dynamic_shared", k->max_dynamic_shared).flag("non_portable_cluster", k->non_portable_cluster);
    return append(api, stream, node);
}

cudaError_t Recorder::fill(std::string_view api, std::uint64_t to, std::uint64_t value, int width, std::size_t count,
                           cudaStream_t stream) {
    if (count == 0) return cudaSuccess;
    if (!is_device_address(to)) return fail(api, cudaErrorInvalidValue, "the destination is no device address");
    JsonObject node;
    node.text("op", "memset").number("to", to).number("value", value).integer("width", width).number("count", count);
    return append(api, stream, node);
}

cudaError_t Recorder::copy(std::string_view api, void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                           cudaStream_t stream) {
    if (bytes == 0) return cudaSuccess;
    const bool to_device = is_device_address(address_of(to));
    const bool from_device = is_device_address(address_of(from));
    if (kind == cudaMemcpyDefault) kind = direction(to_device, from_device);
    if (kind == cudaMemcpyDeviceToHost) refuse(api, "copy from device to host");
    const bool wants_device_target = kind != cudaMemcpyHostToHost;
    const bool wants_device_source = kind == cudaMemcpyDeviceToDevice;
    if (to_device != wants_device_target || from_device != wants_device_source) {
        return fail(api, cudaErrorInvalidValue, "the addresses do not fit the direction of the copy");
    }
    if (kind == cudaMemcpyHostToHost) {
        std::memmove(to, from, bytes);
        return cudaSuccess;
    }
    JsonObject node;
    node.text("op", "copy").number("to", address_of(to)).number("bytes", bytes);
    if (from_device) return append(api, stream, node.number("from", address_of(from)));
    charge(api, bytes);
    return append(api, stream, node.hex("payload", from, bytes));
}

void Recorder::add_tensor_map(CUtensorMap& map, JsonObject record, std::uint64_t base) {
    if (maps_.size() == kMaxTensorMaps) refuse("cuTensorMapEncode", "more than 4096 tensor maps");
    maps_.push_back({std::move(record), base});
    write_map(map, maps_.size() - 1);
}

bool Recorder::replace_map_address(CUtensorMap& map, std::uint64_t base) {
    const std::uint64_t number = map.opaque[1];
    if (map.opaque[0] != layout.map_magic || number >= maps_.size()) return false;
    // A copy: other objects may still hold the map with its former address.
    add_tensor_map(map, maps_[number].fields, base);
    return true;
}

void Recorder::write_map(CUtensorMap& map, std::uint64_t number) const {
    std::memset(&map, 0, sizeof map);
    map.opaque[0] = layout.map_magic;
    map.opaque[1] = number;
}

}  // namespace ptxbench::record
