// Stands in for the CUDA runtime below a host function that the CuTe DSL compiled: keeps what it launches.
#include <stddef.h>
#include <string.h>

typedef struct { unsigned x, y, z; } Dim3;
typedef struct { int id; char pad[4]; union { char bytes[64]; Dim3 cluster; } value; } Attribute;
typedef struct { Dim3 grid, block; size_t shared; void *stream; Attribute *attributes; unsigned count; } Config;
typedef void (*Launched)(const char *kernel, const unsigned *extents, size_t shared, void **parameters);

enum { NAMES = 64, LENGTH = 1024, CLUSTER_DIMENSION = 4, MULTIPROCESSORS = 16, MOST_SHARED = 97 };

static Launched launched;
static int multiprocessors;
static char names[NAMES][LENGTH];
static int named;

void recorder_start(Launched callback, int processors) {
    launched = callback;
    multiprocessors = processors;
}

int _cudaLibraryLoadData(void **library) { *library = names; return 0; }
int _cudaLibraryUnload(void *library) { (void)library; return 0; }

int _cudaLibraryGetKernel(void **kernel, void *library, const char *name) {
    (void)library;
    if (named == NAMES) return 2;  // cudaErrorMemoryAllocation
    strncpy(names[named], name, LENGTH - 1);
    *kernel = names[named++];
    return 0;
}

int _cudaGetDevice(int *device) { *device = 0; return 0; }
int _cudaGetLastError(void) { return 0; }
int _cudaFuncSetAttribute(void *kernel, int attribute, int value) { (void)kernel; (void)attribute; (void)value; return 0; }
int _cudaKernelSetAttributeForDevice(void *kernel, int attribute, int value, int device) {
    (void)kernel; (void)attribute; (void)value; (void)device;
    return 0;
}
int _cuKernelGetAttribute(int *value, int attribute, void *kernel, int device) {
    (void)attribute; (void)kernel; (void)device;
    *value = 0;
    return 0;
}
int _cudaDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    *value = attribute == MULTIPROCESSORS ? multiprocessors : attribute == MOST_SHARED ? 232448 : 0;
    return 0;
}

int _cudaLaunchKernelEx(const Config *config, const char *kernel, void **parameters) {
    unsigned extents[9] = {config->grid.x, config->grid.y, config->grid.z,
                           config->block.x, config->block.y, config->block.z, 1, 1, 1};
    for (unsigned i = 0; i < config->count; ++i)
        if (config->attributes[i].id == CLUSTER_DIMENSION)
            memcpy(extents + 6, &config->attributes[i].value.cluster, sizeof(Dim3));
    launched(kernel, extents, config->shared, parameters);
    return 0;
}
