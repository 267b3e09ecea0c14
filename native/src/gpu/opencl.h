/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * OpenCL: what is used of its interface (Khronos, "The OpenCL Specification", 3.0), by names of ours, and its devices. */
#ifndef TILEWRIGHT_OPENCL_H_
#define TILEWRIGHT_OPENCL_H_

#include "gpu.h"

enum {
  CL_OK = 0,
  CL_DEVICE_NOT_FOUND = -1,
  CL_BUILD_PROGRAM_FAILURE = -11,
  CL_FALSE = 0,
  CL_TRUE = 1,
  CL_TYPE_CPU = 1 << 1,
  CL_TYPE_GPU = 1 << 2,
  CL_TYPE_ACCELERATOR = 1 << 3,
  CL_MAX_COMPUTE_UNITS = 0x1002,
  CL_MAX_WORK_GROUP_SIZE = 0x1004,
  CL_MAX_WORK_ITEM_SIZES = 0x1005,
  CL_MAX_CLOCK_FREQUENCY = 0x100C,
  CL_MAX_MEM_ALLOC_SIZE = 0x1010,
  CL_GLOBAL_MEM_SIZE = 0x101F,
  CL_LOCAL_MEM_SIZE = 0x1023,
  CL_NAME = 0x102B,
  CL_DRIVER_VERSION = 0x102D,
  CL_VERSION = 0x102F,
  CL_SVM_CAPABILITIES = 0x1053,
  CL_SVM_COARSE_GRAIN_BUFFER = 1 << 0,
  CL_QUEUE_PROFILING = 1 << 1,
  CL_MEM_READ_WRITE = 1 << 0,
  CL_BUILD_LOG = 0x1183,
  CL_KERNEL_WORK_GROUP_SIZE = 0x11B0,
  CL_KERNEL_LOCAL_MEM_SIZE = 0x11B2,
  CL_COMMAND_END = 0x1283,
};

#define OPENCL_FUNCTIONS(X)                                                                                                  \
  X(GetPlatformIDs, (uint32_t, void**, uint32_t*))                                                                          \
  X(GetDeviceIDs, (void*, uint64_t, uint32_t, void**, uint32_t*))                                                           \
  X(GetDeviceInfo, (void*, uint32_t, size_t, void*, size_t*))                                                               \
  X(BuildProgram, (void*, uint32_t, void* const*, const char*, void*, void*))                                               \
  X(GetProgramBuildInfo, (void*, void*, uint32_t, size_t, void*, size_t*))                                                  \
  X(GetKernelWorkGroupInfo, (void*, void*, uint32_t, size_t, void*, size_t*))                                               \
  X(SetKernelArg, (void*, uint32_t, size_t, const void*))                                                                   \
  X(EnqueueNDRangeKernel,                                                                                                   \
    (void*, void*, uint32_t, const size_t*, const size_t*, const size_t*, uint32_t, void* const*, void**))                  \
  X(EnqueueMarkerWithWaitList, (void*, uint32_t, void* const*, void**))                                                     \
  X(EnqueueBarrierWithWaitList, (void*, uint32_t, void* const*, void**))                                                    \
  X(GetEventProfilingInfo, (void*, uint32_t, size_t, void*, size_t*))                                                       \
  X(WaitForEvents, (uint32_t, void* const*))                                                                                \
  X(ReleaseEvent, (void*))                                                                                                  \
  X(ReleaseKernel, (void*))                                                                                                 \
  X(ReleaseProgram, (void*))                                                                                                \
  X(ReleaseContext, (void*))                                                                                                \
  X(ReleaseCommandQueue, (void*))                                                                                           \
  X(Flush, (void*))                                                                                                         \
  X(Finish, (void*))
/* Those that make something, or came with OpenCL 2.0. */
#define OPENCL_MAKERS(X)                                                                                                     \
  X(void*, CreateContext, (const intptr_t*, uint32_t, void* const*, void*, void*, int32_t*), false)                         \
  X(void*, CreateCommandQueue, (void*, void*, uint64_t, int32_t*), false)                                                   \
  X(void*, CreateProgramWithSource, (void*, uint32_t, const char**, const size_t*, int32_t*), false)                        \
  X(void*, CreateKernel, (void*, const char*, int32_t*), false)                                                             \
  X(void*, SVMAlloc, (void*, uint64_t, size_t, uint32_t), true)                                                             \
  X(void, SVMFree, (void*, void*), true)                                                                                    \
  X(int32_t, SetKernelArgSVMPointer, (void*, uint32_t, const void*), true)                                                  \
  X(int32_t, EnqueueSVMMemcpy, (void*, uint32_t, void*, const void*, size_t, uint32_t, void* const*, void**), true)

typedef struct {
#define MEMBER(name, parameters) int32_t(*name) parameters;
  OPENCL_FUNCTIONS(MEMBER)
#undef MEMBER
#define MEMBER(result, name, parameters, optional) result(*name) parameters;
  OPENCL_MAKERS(MEMBER)
#undef MEMBER
} TwOpencl;

/* A device with a context of its own, and its default queue. */
typedef struct {
  int id;
  void* handle;
  void *context, *queue; /* made when the device is first used */
  TwGpuPool* pool;
  uint64_t memory, local_memory;
  uint64_t max_threads, max_threads_each[3];
  void** streams; /* [num_streams] beside the default one, under lock */
  size_t num_streams;
  TwLock lock;
  bool ready; /* under lock */
} TwClDevice;

/* OpenCL's functions, or NULL and an error that says why there is none. */
const TwOpencl* tw_opencl(void);
/* How many devices there are, which is 0 where there is no OpenCL; then the thread's error says why. */
int tw_opencl_count(void);
/* A device ready for use, or NULL and an error. */
TwClDevice* tw_opencl_device(int id);
TwGpuThread* tw_opencl_thread(void);
/* The queue of a stream, or of the calling thread's own stream where that is NULL. */
void* tw_opencl_queue(const TwClDevice* device, TVMStreamHandle stream);
/* Fails with OpenCL's name of the status; what was tried is for instance "clFinish". */
int tw_opencl_check(int32_t status, const char* tried);
const char* tw_opencl_status(int32_t status);

#endif /* TILEWRIGHT_OPENCL_H_ */
