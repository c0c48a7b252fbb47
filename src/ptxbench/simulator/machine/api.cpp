// The C interface that the Python side calls. A program is immutable; every run has a context of its own, so runs may
// proceed in parallel threads. No exception crosses this boundary.
#include <cstring>
#include <exception>

#include "json.hpp"
#include "machine.hpp"

namespace ptx {
namespace {

// Registers are allocated to a warp in units of 256, which is 8 a thread.
constexpr u32 kRegisterUnit = 8;

// A run with what outlives its launches.
struct Context {
  Context(const Module& module, const Options& options, const std::atomic<int>& cancel)
      : run(module, options, cancel) {}
  Run run;
  std::string report;
};

char* copy_text(const std::string& text) {
  char* copy = new char[text.size() + 1];
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

}  // namespace
}  // namespace ptx

using namespace ptx;

extern "C" {

struct PtxOptions {
  u8 late_copies, late_products, reverse, races;
  float perturbation;
  u64 seed, step_limit;
  double time_limit_s;
  u32 sm_count, tensor_memory_columns;
};

struct PtxLaunch {
  u32 kernel, grid[3], block[3], cluster[3], dynamic_shared, registers, resident_clusters, cooperative, explicit_cluster;
};

void ptx_free_text(char* text) { delete[] text; }

// Decodes an image. Returns nullptr and a message on failure.
Module* ptx_load(const u8* image, u64 size, char** error) {
  try {
    return new Module(decode_module({image, size}));
  } catch (const std::exception& failure) {
    *error = copy_text(failure.what());
    return nullptr;
  }
}

void ptx_unload(Module* module) { delete module; }

Context* ptx_begin(const Module* module, const PtxOptions* options, const int* cancel) {
  Options how;
  how.late_copies = options->late_copies;
  how.late_products = options->late_products;
  how.reverse = options->reverse;
  how.races = options->races;
  how.seed = options->seed;
  how.perturbation = options->perturbation;
  how.step_limit = options->step_limit;
  how.time_limit_s = options->time_limit_s;
  how.sm_count = options->sm_count;
  how.tensor_memory_columns = options->tensor_memory_columns;
  static_assert(sizeof(std::atomic<int>) == sizeof(int));
  return new Context(*module, how, *reinterpret_cast<const std::atomic<int>*>(cancel));
}

void ptx_end(Context* context) { delete context; }

// Maps host bytes at a device address.
void ptx_map(Context* context, u64 address, u64 size, u8* host, int writable, const char* name) {
  context->run.memory.add({address, size, host, writable != 0, name});
}

// The device address of the module's next global variable, in order.
void ptx_place_global(Context* context, u64 address) { context->run.global_addresses.push_back(address); }

// Runs a kernel. Returns 0; 1 if it ended with a fault, which ptx_fault then has; 2 if the machine itself failed, with
// its message in the same place.
int ptx_launch(Context* context, const PtxLaunch* how, u8* parameters) {
  Run& run = context->run;
  const Kernel& kernel = run.module.kernels[how->kernel];
  Launch launch{&run,
                &kernel,
                {how->grid[0], how->grid[1], how->grid[2]},
                {how->block[0], how->block[1], how->block[2]},
                {how->cluster[0], how->cluster[1], how->cluster[2]},
                how->dynamic_shared,
                (how->registers + kRegisterUnit - 1) / kRegisterUnit * kRegisterUnit,
                &run.sites[how->kernel],
                how->cooperative != 0,
                how->explicit_cluster != 0};
  u32 grid_workspace[16] = {};
  int faulted = 0;
  try {
    if (kernel.param_bytes)
      run.memory.add({kParameterWindow, kernel.param_bytes, parameters, false, "the kernel parameters"});
    if (launch.cooperative)
      run.memory.add({kGridWorkspace, sizeof grid_workspace, reinterpret_cast<u8*>(grid_workspace), true,
                      "the workspace of the cooperative grid"});
    run_launch(run, launch, how->resident_clusters);
  } catch (const Fault& fault) {
    context->report = fault_json(fault);
    faulted = 1;
  } catch (const std::bad_alloc&) {
    context->report = fault_json({FaultKind::kUnsupported, "the host's memory does not suffice", "", i64(kernel.index)});
    faulted = 1;
  } catch (const std::exception& failure) {
    context->report = failure.what();
    faulted = 2;
  }
  run.memory.forget_writes();
  run.memory.remove(kParameterWindow);
  run.memory.remove(kGridWorkspace);
  return faulted;
}

// JSON of the fault of the last launch.
const char* ptx_fault(Context* context) { return context->report.c_str(); }

// JSON of counts, hazards and totals.
const char* ptx_report(Context* context) {
  context->report = run_json(context->run);
  return context->report.c_str();
}

}  // extern "C"
