// The recorder's host program: loads a candidate's host library and calls its launcher on fake addresses.
//
// Reads a request on standard input (lines of words, see `read_request`), writes one JSON object per line to the
// descriptor that PTXBENCH_CHANNEL names, and leaves with `_exit`, so that nothing the candidate registered runs.
// The sandbox around it is what protects the machine; the handlers and the filter here only give an ending its name.

#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "endings.hpp"
#include "recorder.hpp"

using namespace ptxbench::record;

namespace {

// On x86-64 System V every parameter of the launcher (pointer, int, stream) is of class INTEGER: the first six travel
// in registers, the rest in stack slots of eight bytes each, and the caller cleans up. A function that takes fewer such
// parameters, or narrower ones, can therefore be called as one that takes this many 64-bit integers.
constexpr std::size_t kMaxArguments = 24;

using Word = std::int64_t;

template <typename Result, std::size_t... Index>
Result call_with(void* function, const std::vector<Word>& arguments, std::index_sequence<Index...>) {
    using Function = Result (*)(decltype(static_cast<void>(Index), Word{})...);
    return reinterpret_cast<Function>(function)(arguments[Index]...);
}

template <typename Result>
Result call(void* function, std::vector<Word> arguments) {
    arguments.resize(kMaxArguments, 0);
    return call_with<Result>(function, arguments, std::make_index_sequence<kMaxArguments>{});
}

struct Call {
    std::vector<Word> tensors;
    Word workspace;
};

struct Request {
    std::string launcher;
    std::vector<Word> sizes;
    std::vector<Call> calls;
};

Kernel read_kernel(std::istringstream& words) {
    Kernel kernel;
    words >> kernel.name >> kernel.registers >> kernel.static_shared >> kernel.local >> kernel.max_threads;
    ParameterSlot slot;
    while (words >> slot.offset >> slot.bytes) kernel.parameters.push_back(slot);
    return kernel;
}

std::vector<Word> read_words(std::istringstream& words) {
    std::vector<Word> result;
    for (std::uint64_t word; words >> word;) result.push_back(static_cast<Word>(word));
    return result;
}

// Lines: `launcher NAME`, `sizes N...`, `call WORKSPACE TENSOR...`, `layout ALLOCATIONS SYMBOLS MAGIC`, `device NAME`,
// `sheet FIELD VALUE`, `kernel NAME REGISTERS SHARED LOCAL THREADS (OFFSET BYTES)...`.
Request read_request(std::istream& input) {
    Request request;
    Recorder& r = recorder();
    for (std::string line; std::getline(input, line);) {
        std::istringstream words(line);
        std::string what;
        words >> what;
        if (what == "launcher") {
            words >> request.launcher;
        } else if (what == "sizes") {
            request.sizes = read_words(words);
        } else if (what == "call") {
            Call call;
            words >> call.workspace;
            call.tensors = read_words(words);
            request.calls.push_back(std::move(call));
        } else if (what == "layout") {
            words >> r.layout.allocations >> r.layout.symbols >> r.layout.map_magic;
        } else if (what == "device") {
            std::getline(words >> std::ws, r.device_name);
        } else if (what == "sheet") {
            std::string field;
            words >> field >> r.sheet[field];
        } else if (what == "kernel") {
            r.add_kernel(read_kernel(words));
        }
    }
    return request;
}

void announce(const char* event) { recorder().emit(JsonObject{}.text("event", event).finish()); }

[[noreturn]] void end(const char* event, std::string_view why) {
    recorder().emit(JsonObject{}.text("event", event).text("why", why).finish());
    _exit(0);
}

void perform(const Request& request, const Call& call_request, void* launch, void* workspace_bytes) {
    announce("calling");
    std::uint64_t workspace = 0;
    if (workspace_bytes != nullptr) workspace = call<std::size_t>(workspace_bytes, request.sizes);
    std::vector<Word> arguments = call_request.tensors;
    arguments.insert(arguments.end(), request.sizes.begin(), request.sizes.end());
    arguments.push_back(workspace == 0 ? 0 : call_request.workspace);
    arguments.push_back(reinterpret_cast<Word>(recorder().begin_call()));
    recorder().end_call(call<int>(launch, arguments), workspace);
}

}  // namespace

int main(int argc, char** argv) {
    const char* channel = std::getenv("PTXBENCH_CHANNEL");
    if (argc != 2 || channel == nullptr) return 2;
    recorder().channel = std::atoi(channel);
    unsetenv("PTXBENCH_CHANNEL");
    const Request request = read_request(std::cin);
    for (const Call& call_request : request.calls) {
        if (call_request.tensors.size() + request.sizes.size() + 2 > kMaxArguments) return 2;
    }
    if (!name_endings()) return 4;

    announce("loading");
    void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) end("unloadable", dlerror());
    void* launch = dlsym(library, request.launcher.c_str());
    if (launch == nullptr) end("unloadable", "it does not export " + request.launcher);
    void* workspace_bytes = dlsym(library, "workspace_bytes");
    announce("loaded");
    try {
        for (const Call& call_request : request.calls) perform(request, call_request, launch, workspace_bytes);
    } catch (const std::exception& error) {
        end("threw", error.what());
    } catch (...) {
        end("threw", "an object that is no std::exception");
    }
    announce("done");
    _exit(0);
}
