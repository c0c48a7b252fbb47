// Error state and error names. The driver API uses the same numbers for the errors that both have.

#include "recorder.hpp"

using namespace ptxbench::record;

namespace {

const char* name_of(cudaError_t error) {
#define PTXBENCH_NAME(enumerator) \
    case enumerator: return #enumerator
    switch (error) {
        PTXBENCH_NAME(cudaSuccess);
        PTXBENCH_NAME(cudaErrorInvalidValue);
        PTXBENCH_NAME(cudaErrorMemoryAllocation);
        PTXBENCH_NAME(cudaErrorInitializationError);
        PTXBENCH_NAME(cudaErrorInvalidConfiguration);
        PTXBENCH_NAME(cudaErrorInvalidPitchValue);
        PTXBENCH_NAME(cudaErrorInvalidSymbol);
        PTXBENCH_NAME(cudaErrorInvalidHostPointer);
        PTXBENCH_NAME(cudaErrorInvalidDevicePointer);
        PTXBENCH_NAME(cudaErrorInvalidMemcpyDirection);
        PTXBENCH_NAME(cudaErrorNotYetImplemented);
        PTXBENCH_NAME(cudaErrorInsufficientDriver);
        PTXBENCH_NAME(cudaErrorMissingConfiguration);
        PTXBENCH_NAME(cudaErrorInvalidDeviceFunction);
        PTXBENCH_NAME(cudaErrorNoDevice);
        PTXBENCH_NAME(cudaErrorInvalidDevice);
        PTXBENCH_NAME(cudaErrorInvalidKernelImage);
        PTXBENCH_NAME(cudaErrorDeviceUninitialized);
        PTXBENCH_NAME(cudaErrorNoKernelImageForDevice);
        PTXBENCH_NAME(cudaErrorInvalidPtx);
        PTXBENCH_NAME(cudaErrorUnsupportedLimit);
        PTXBENCH_NAME(cudaErrorInvalidSource);
        PTXBENCH_NAME(cudaErrorFileNotFound);
        PTXBENCH_NAME(cudaErrorSharedObjectSymbolNotFound);
        PTXBENCH_NAME(cudaErrorOperatingSystem);
        PTXBENCH_NAME(cudaErrorInvalidResourceHandle);
        PTXBENCH_NAME(cudaErrorIllegalState);
        PTXBENCH_NAME(cudaErrorSymbolNotFound);
        PTXBENCH_NAME(cudaErrorNotReady);
        PTXBENCH_NAME(cudaErrorIllegalAddress);
        PTXBENCH_NAME(cudaErrorLaunchOutOfResources);
        PTXBENCH_NAME(cudaErrorLaunchTimeout);
        PTXBENCH_NAME(cudaErrorAssert);
        PTXBENCH_NAME(cudaErrorIllegalInstruction);
        PTXBENCH_NAME(cudaErrorMisalignedAddress);
        PTXBENCH_NAME(cudaErrorLaunchFailure);
        PTXBENCH_NAME(cudaErrorCooperativeLaunchTooLarge);
        PTXBENCH_NAME(cudaErrorNotPermitted);
        PTXBENCH_NAME(cudaErrorNotSupported);
        PTXBENCH_NAME(cudaErrorInvalidClusterSize);
        PTXBENCH_NAME(cudaErrorUnknown);
        default: return nullptr;
    }
#undef PTXBENCH_NAME
}

}  // namespace

PTXBENCH_API const char* cudaGetErrorName(cudaError_t error) {
    const char* name = name_of(error);
    return name == nullptr ? "unrecognized error code" : name;
}

// The name again: no plan depends on the wording.
PTXBENCH_API const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }

PTXBENCH_API cudaError_t cudaGetLastError(void) { return recorder().take_last_error(); }

PTXBENCH_API cudaError_t cudaPeekAtLastError(void) { return recorder().last_error(); }

PTXBENCH_API CUresult cuGetErrorName(CUresult error, const char** name) {
    *name = name_of(static_cast<cudaError_t>(error));
    return *name == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

PTXBENCH_API CUresult cuGetErrorString(CUresult error, const char** text) { return cuGetErrorName(error, text); }
