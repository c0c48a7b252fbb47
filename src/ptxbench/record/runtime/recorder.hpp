// The state behind the recorded CUDA API: what is registered, what is allocated, and the nodes of the current call.
//
// The recorder judges nothing that the reader of the recording can judge: it answers as the CUDA API would, and
// writes down what was asked for.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "json.hpp"
#include "timeline.hpp"

#define PTXBENCH_API extern "C" __attribute__((visibility("default")))

namespace ptxbench::record {

// Device addresses are not canonical on x86-64 (bit 62 is set, bit 63 is not), so they can be no host pointer, and
// no small integer or packed pair of sizes looks like one.
inline bool is_device_address(std::uint64_t address) { return address >> 60 == 6; }
inline std::uint64_t address_of(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }
inline void* pointer_to(std::uint64_t address) { return reinterpret_cast<void*>(address); }

// Two allocations, two symbols or two arguments lie this far apart.
constexpr std::uint64_t kAddressStep = std::uint64_t{1} << 40;

// What one call may ask for; beyond it the launcher is refused by name.
constexpr std::size_t kMaxNodes = 4096;
constexpr std::size_t kMaxPayloadBytes = std::size_t{4} << 20;
constexpr std::size_t kMaxTensorMaps = 4096;
constexpr std::size_t kMaxAllocations = 1024;
constexpr int kMaxErrors = 64;  // that are written down; of the whole process

struct ParameterSlot {
    std::size_t offset;
    std::size_t bytes;
};

struct Kernel {
    std::string name;
    int registers = 0;
    int static_shared = 0;
    int local = 0;
    int max_threads = 0;
    std::vector<ParameterSlot> parameters;
    // Set through cudaFuncSetAttribute; -1 until then.
    int max_dynamic_shared = -1;
    bool non_portable_cluster = false;
};

struct Symbol {
    std::string name;
    std::size_t bytes;
    std::uint64_t base;
};

struct Allocation {
    std::uint64_t base;
    std::size_t bytes;
    bool freed = false;
};

struct LaunchShape {
    dim3 grid;
    dim3 block;
    dim3 cluster{0, 0, 0};  // zeros: not asked for
    std::size_t dynamic_shared = 0;
    bool cooperative = false;
    bool programmatic = false;
};

// Where the fake addresses of one process begin, and the first word of its tensor maps.
struct Layout {
    std::uint64_t allocations = 0;
    std::uint64_t symbols = 0;
    std::uint64_t map_magic = 0;
};

class Recorder {
public:
    // The figures of the target's data sheet by their names in `ptxbench.core.DataSheet`.
    std::map<std::string, std::int64_t, std::less<>> sheet;
    std::string device_name;
    Layout layout;
    int channel = -1;
    Timeline timeline;

    void add_kernel(Kernel kernel) { kernels_.emplace(kernel.name, std::move(kernel)); }

    cudaStream_t begin_call();
    void end_call(int code, std::uint64_t workspace);

    // Writes one line of the recording.
    void emit(const std::string& line);
    // Ends the process with a record of what cannot be part of a plan: the API (or the matter) and its detail.
    [[noreturn]] void refuse(std::string_view subject, std::string_view detail = "");
    // Notes an error that the API reports to the launcher, and returns it.
    cudaError_t fail(std::string_view api, cudaError_t error, const std::string& why);
    cudaError_t last_error() const { return last_error_; }
    cudaError_t take_last_error();

    void register_kernel(const void* host_function, const char* name);
    void register_symbol(const void* host_variable, const char* name, std::size_t bytes);
    // By the address of the host stub or by a handle; null if there is none.
    Kernel* kernel(const void* handle);
    const Symbol* symbol(const void* host_variable) const;

    cudaError_t allocate(std::string_view api, void** pointer, std::size_t bytes);
    cudaError_t release(std::string_view api, const void* pointer);

    cudaError_t launch(std::string_view api, const void* function, const LaunchShape& shape, void** arguments,
                       cudaStream_t stream);
    cudaError_t fill(std::string_view api, std::uint64_t to, std::uint64_t value, int width, std::size_t count,
                     cudaStream_t stream);
    cudaError_t copy(std::string_view api, void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                     cudaStream_t stream);

    // Writes the map's magic and number into `map`; `record` is the readable form, without its base address.
    void add_tensor_map(CUtensorMap& map, JsonObject record, std::uint64_t base);
    // False if `map` holds no tensor map of this process.
    bool replace_map_address(CUtensorMap& map, std::uint64_t base);

private:
    struct MapRecord {
        JsonObject fields;
        std::uint64_t base;
    };

    // Adds `node` behind the work on `stream`.
    cudaError_t append(std::string_view api, cudaStream_t stream, JsonObject node);
    // Counts bytes of arguments and payload against the limit of a call.
    void charge(std::string_view api, std::size_t bytes);
    void write_map(CUtensorMap& map, std::uint64_t number) const;

    std::map<std::string, Kernel, std::less<>> kernels_;
    std::map<const void*, Kernel*> kernel_handles_;
    std::map<const void*, Symbol> symbols_;
    std::vector<Allocation> allocations_;
    std::vector<MapRecord> maps_;
    cudaError_t last_error_ = cudaSuccess;
    int errors_ = 0;
    bool in_call_ = false;
    // Of the current call.
    std::vector<std::string> nodes_;
    std::size_t payload_bytes_ = 0;
};

// The one recorder of the process: the CUDA API that it stands behind is a set of global functions.
Recorder& recorder();

}  // namespace ptxbench::record
