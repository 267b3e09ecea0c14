/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * CUDA: what is used of the driver's interface (NVIDIA, "CUDA Driver API"), by names of ours, and its devices. The driver is
 * all that is needed: it compiles PTX itself. */
#ifndef TILEWRIGHT_CUDA_H_
#define TILEWRIGHT_CUDA_H_

#include "gpu.h"

enum {
  CU_OK = 0,
  CU_OUT_OF_MEMORY = 2,
  CU_MAX_THREADS_PER_BLOCK = 1,
  CU_MAX_BLOCK_DIM_X = 2,
  CU_MAX_GRID_DIM_X = 5,
  CU_MAX_SHARED_MEMORY_PER_BLOCK = 8,
  CU_WARP_SIZE = 10,
  CU_MAX_REGISTERS_PER_BLOCK = 12,
  CU_CLOCK_RATE = 13,
  CU_MULTIPROCESSOR_COUNT = 16,
  CU_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_COMPUTE_CAPABILITY_MINOR = 76,
  CU_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
  CU_FUNC_MAX_THREADS_PER_BLOCK = 0,
  CU_FUNC_SHARED_SIZE_BYTES = 1,
  CU_FUNC_NUM_REGS = 4,
  CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
  CU_JIT_ERROR_LOG = 5,
  CU_JIT_ERROR_LOG_SIZE = 6,
  CU_EVENT_DEFAULT = 0,
  CU_EVENT_DISABLE_TIMING = 2,
  CU_CAPTURE_RELAXED = 2,
  CU_HOST_PORTABLE = 1,
};

typedef unsigned long long CuAddress;

/* X(our name, the driver's, parameters, whether older drivers may lack it) */
#define CUDA_FUNCTIONS(X)                                                                                         \
  X(Init, "cuInit", (unsigned), false)                                                                            \
  X(DriverGetVersion, "cuDriverGetVersion", (int*), false)                                                        \
  X(GetErrorName, "cuGetErrorName", (int, const char**), false)                                                   \
  X(GetErrorString, "cuGetErrorString", (int, const char**), false)                                               \
  X(DeviceGetCount, "cuDeviceGetCount", (int*), false)                                                            \
  X(DeviceGet, "cuDeviceGet", (int*, int), false)                                                                 \
  X(DeviceGetName, "cuDeviceGetName", (char*, int, int), false)                                                   \
  X(DeviceGetAttribute, "cuDeviceGetAttribute", (int*, int, int), false)                                          \
  X(DeviceTotalMem, "cuDeviceTotalMem_v2", (size_t*, int), false)                                                 \
  X(DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (void**, int), false)                                     \
  X(CtxSetCurrent, "cuCtxSetCurrent", (void*), false)                                                             \
  X(CtxSynchronize, "cuCtxSynchronize", (void), false)                                                            \
  X(MemAlloc, "cuMemAlloc_v2", (CuAddress*, size_t), false)                                                       \
  X(MemFree, "cuMemFree_v2", (CuAddress), false)                                                                  \
  X(MemHostAlloc, "cuMemHostAlloc", (void**, size_t, unsigned), false)                                            \
  X(MemFreeHost, "cuMemFreeHost", (void*), false)                                                                 \
  X(MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", (CuAddress, const void*, size_t, void*), false)                      \
  X(MemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", (void*, CuAddress, size_t, void*), false)                            \
  X(MemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2", (CuAddress, CuAddress, size_t, void*), false)                        \
  X(MemcpyPeerAsync, "cuMemcpyPeerAsync", (CuAddress, void*, CuAddress, void*, size_t, void*), false)             \
  X(StreamCreate, "cuStreamCreate", (void**, unsigned), false)                                                    \
  X(StreamDestroy, "cuStreamDestroy_v2", (void*), false)                                                          \
  X(StreamSynchronize, "cuStreamSynchronize", (void*), false)                                                     \
  X(StreamWaitEvent, "cuStreamWaitEvent", (void*, void*, unsigned), false)                                        \
  X(EventCreate, "cuEventCreate", (void**, unsigned), false)                                                      \
  X(EventRecord, "cuEventRecord", (void*, void*), false)                                                          \
  X(EventSynchronize, "cuEventSynchronize", (void*), false)                                                       \
  X(EventElapsedTime, "cuEventElapsedTime", (float*, void*, void*), false)                                        \
  X(EventDestroy, "cuEventDestroy_v2", (void*), false)                                                            \
  X(ModuleLoadDataEx, "cuModuleLoadDataEx", (void**, const void*, unsigned, int*, void**), false)                 \
  X(ModuleUnload, "cuModuleUnload", (void*), false)                                                               \
  X(ModuleGetFunction, "cuModuleGetFunction", (void**, void*, const char*), false)                                \
  X(FuncGetAttribute, "cuFuncGetAttribute", (int*, int, void*), false)                                            \
  X(FuncSetAttribute, "cuFuncSetAttribute", (void*, int, int), false)                                             \
  X(LaunchKernel, "cuLaunchKernel",                                                                               \
    (void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**), false)  \
  X(StreamBeginCapture, "cuStreamBeginCapture_v2", (void*, int), true)                                            \
  X(StreamEndCapture, "cuStreamEndCapture", (void*, void**), true)                                                \
  X(GraphInstantiate, "cuGraphInstantiateWithFlags", (void**, void*, unsigned long long), true)                   \
  X(GraphLaunch, "cuGraphLaunch", (void*, void*), true)                                                           \
  X(GraphExecDestroy, "cuGraphExecDestroy", (void*), true)                                                        \
  X(GraphDestroy, "cuGraphDestroy", (void*), true)

typedef struct {
#define MEMBER(name, symbol, parameters, optional) int(*name) parameters;
  CUDA_FUNCTIONS(MEMBER)
#undef MEMBER
} TwCuda;

/* A device, by its primary context, which CUDA's other users in the process have too. */
typedef struct {
  int id, handle;
  void* context; /* retained when the device is first used */
  TwGpuPool* pool;
  size_t memory;
  uint64_t max_threads, max_threads_each[3];
  uint64_t max_blocks_each[3];
  int shared_memory, most_shared_memory; /* bytes in a block: as it is, and after a kernel has asked for more */
  int architecture;                      /* 80 for compute version 8.0 */
  int num_streams;                       /* beside the default one, under lock */
  TwLock lock;
  bool ready; /* under lock */
} TwCuDevice;

/* CUDA's functions, or NULL and an error that says why there is none. */
const TwCuda* tw_cuda(void);
/* How many devices there are, which is 0 where there is no driver; then the thread's error says why. */
int tw_cuda_count(void);
/* A device ready for use, whose context is now the calling thread's, or NULL and an error. */
TwCuDevice* tw_cuda_device(int id);
TwGpuThread* tw_cuda_thread(void);
/* The stream, or the calling thread's own where that is NULL. */
void* tw_cuda_stream(const TwCuDevice* device, TVMStreamHandle stream);
/* Fails with CUDA's name and text of the status; what was tried is for instance "cuMemAlloc". */
int tw_cuda_check(int status, const char* tried);

#endif /* TILEWRIGHT_CUDA_H_ */
