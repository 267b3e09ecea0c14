/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * How a device plugs in. A plug-in is a shared library that exports
 *
 *   int TilewrightPluginInit(void);
 *
 * which fills a TilewrightDeviceAPI and hands it to TilewrightDeviceRegister. From then on arrays, workspaces and executors
 * live on the device. The CPU is a row of the same table. docs/devices.md leads through a whole plug-in.
 *
 * Functions give 0, or another number after TVMAPISetLastError with what went wrong; the runtime adds the device's name. They
 * are called from any thread, several at a time. */
#ifndef TILEWRIGHT_DEVICE_H_
#define TILEWRIGHT_DEVICE_H_

#include <tvm/runtime/c_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Device types are 1 to 127. DLPack's and TVM's own (below 16) belong to the devices of those names. */
#define TILEWRIGHT_MAX_DEVICE_TYPE 127

/* The host may read and write the device's memory as its own. */
#define TILEWRIGHT_DEVICE_HOST_MEMORY 1u
/* The device is of another machine, which says itself what goes wrong (the runtime's own RPC). */
#define TILEWRIGHT_DEVICE_REMOTE 2u

/* What get_attr is asked for, with TVM 0.8's numbers. A device that does not know returns nothing (None in Python). */
typedef enum {
  kTilewrightExist = 0, /* answered by count */
  kTilewrightMaxThreadsPerBlock = 1,
  kTilewrightWarpSize = 2,
  kTilewrightMaxSharedMemoryPerBlock = 3, /* bytes */
  kTilewrightComputeVersion = 4,          /* a string, "8.0" */
  kTilewrightDeviceName = 5,              /* a string */
  kTilewrightMaxClockRate = 6,            /* kHz */
  kTilewrightMultiProcessorCount = 7,
  kTilewrightMaxThreadDimensions = 8, /* a string, "[1024, 1024, 64]" */
  kTilewrightMaxRegistersPerBlock = 9,
  kTilewrightGcnArch = 10,
  kTilewrightApiVersion = 11,
  kTilewrightDriverVersion = 12,
} TilewrightDeviceAttr;

/* A kind of device. ctx is the plug-in's own and is the first argument of every function; id is from 0 to count - 1. The
 * runtime copies the struct. Fields left out (NULL, or behind struct_size) are optional unless marked "needed". */
typedef struct {
  size_t struct_size; /* sizeof(TilewrightDeviceAPI), as the plug-in was compiled */
  const char* name;   /* what tvm.device takes: a letter, then letters, digits, '_' */
  int32_t device_type;
  uint32_t flags;
  void* ctx;

  /* needed: how many there are, which may be 0; TVMAPISetLastError may say why, and users who ask for one are told */
  int (*count)(void* ctx, int* out);
  /* needed: memory. alignment is a power of two, type_hint what it will hold, mem_scope NULL or "global" or the name of a
   * memory that the device has; refuse any other. The result is an address in the device's own space: the runtime adds
   * byte offsets to it where tensors share an allocation, and never looks there. */
  int (*alloc)(void* ctx, int id, size_t nbytes, size_t alignment, DLDataType type_hint, const char* mem_scope, void** out);
  /* needed */
  int (*free)(void* ctx, int id, void* ptr);
  /* needed: copies between the host (device type kDLCPU) and the device, either way, or within the device type. On stream
   * NULL, the default one, the runtime calls synchronize after it where the host takes part. */
  int (*copy)(void* ctx, const void* from, size_t from_offset, DLDevice from_device, void* to, size_t to_offset,
              DLDevice to_device, size_t nbytes, DLDataType type_hint, TVMStreamHandle stream);

  /* Makes id the calling thread's device. */
  int (*set)(void* ctx, int id);
  /* Answers through TVMCFuncSetReturn, or not at all. */
  int (*get_attr)(void* ctx, int id, int attr, TVMRetValueHandle ret);
  /* Waits for what the stream (NULL: the default one) was given. Without it the device is done when a call returns. */
  int (*synchronize)(void* ctx, int id, TVMStreamHandle stream);
  /* Streams: the first three together, or none; then there is the default stream alone. */
  int (*stream_create)(void* ctx, int id, TVMStreamHandle* out);
  int (*stream_free)(void* ctx, int id, TVMStreamHandle stream);
  int (*stream_set)(void* ctx, int id, TVMStreamHandle stream); /* for the calling thread */
  /* Lets dst go on only after what src was given. Without it the host waits for src. */
  int (*stream_wait)(void* ctx, int id, TVMStreamHandle src, TVMStreamHandle dst);

  /* Temporary memory of a kernel's host code: both, or none; then each thread keeps blocks of alloc and uses them again. */
  int (*workspace_alloc)(void* ctx, int id, size_t nbytes, DLDataType type_hint, void** out);
  int (*workspace_free)(void* ctx, int id, void* ptr);

  /* An executor is being made on the device, of the functions in module, before any parameter is bound; an error stops it.
   * *state goes to executor_gone, which is called once for each that was made. */
  int (*executor_made)(void* ctx, int id, TVMModuleHandle module, void** state);
  void (*executor_gone)(void* ctx, int id, void* state);

  /* The device's own clock: both, or none; then the host's clock is read after synchronize. A timer begins where the calling
   * thread's stream is now. timer_stop waits, tells what went by in seconds, and frees the timer, also when it fails. */
  int (*timer_start)(void* ctx, int id, void** timer);
  int (*timer_stop)(void* ctx, int id, void* timer, double* seconds);
} TilewrightDeviceAPI;

/* Adds a kind of device, for as long as the process lives. Fails when the name or the number is taken. */
TVM_DLL int TilewrightDeviceRegister(const TilewrightDeviceAPI* api);
/* The row of a device type, or NULL. It may be NULL where TilewrightDeviceName is not: names of TVM's without a plug-in. */
TVM_DLL const TilewrightDeviceAPI* TilewrightDeviceFind(int device_type);
/* A name for a device type, or NULL; and back, or 0. */
TVM_DLL const char* TilewrightDeviceName(int device_type);
TVM_DLL int TilewrightDeviceType(const char* name);
/* Whether the host may touch the type's memory: 1 or 0. */
TVM_DLL int TilewrightDeviceIsHost(int device_type);
/* An attribute (TilewrightDeviceAttr): a number or string, or kTVMNullptr where the device does not know. A string is the
 * calling thread's until it is given the next. */
TVM_DLL int TilewrightDeviceGetAttr(DLDevice device, int attr, TVMValue* ret_val, int* ret_code);
/* Loads a plug-in; a second time does nothing. It stays loaded. */
TVM_DLL int TilewrightLoadPlugin(const char* path);

#ifdef __cplusplus
}
#endif
#endif /* TILEWRIGHT_DEVICE_H_ */
