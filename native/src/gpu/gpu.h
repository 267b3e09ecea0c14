/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * GPUs: what OpenCL and CUDA share. A device module holds kernels in a form that the driver compiles; it is saved in
 * TVM 0.8's bytes, loaded lazily, and compiled once for each device that launches from it. */
#ifndef TILEWRIGHT_GPU_H_
#define TILEWRIGHT_GPU_H_

#include "../module/module.h"

/* Devices of a kind that are told apart; more are left out. */
#define TW_MAX_GPUS 16
#define TW_MAX_KERNEL_ARGS 512

/* ---- libraries of drivers (library.c) ---- */
typedef struct {
  const char* name;
  void* place;   /* of a pointer to a function */
  bool optional; /* stays NULL where an older driver lacks it */
} TwSymbol;
/* Opens the first library of the list (ended by NULL) that is there, and fills the places; an error says what is missing. */
int tw_open_driver(const char* const* names, const TwSymbol* symbols, size_t count);

/* ---- memory (memory.c) ---- */
/* What a pool takes memory from and gives it back to. */
typedef struct {
  void* (*alloc)(void* ctx, size_t nbytes); /* NULL when there is none */
  void (*free)(void* ctx, void* ptr);
  /* Waits for all that was given to the device on any stream, where there are several. */
  void (*settle)(void* ctx);
  void* ctx;
} TwMemorySource;

/* Blocks of device memory, which are kept for the next who wants as much. */
typedef struct TwGpuPool TwGpuPool;
TwGpuPool* tw_gpu_pool_new(const TwMemorySource* source);
void tw_gpu_pool_free(TwGpuPool* pool);
/* NULL when the device has no more, also after all that lies idle was given back. */
void* tw_gpu_pool_take(TwGpuPool* pool, size_t nbytes);
int tw_gpu_pool_give(TwGpuPool* pool, void* ptr);
/* Bytes in use and idle. */
void tw_gpu_pool_usage(TwGpuPool* pool, size_t* used, size_t* idle);
/* "out of memory: ..." with sizes; -1. total 0 where the driver does not say. */
int tw_gpu_out_of_memory(TwGpuPool* pool, size_t nbytes, uint64_t total);
/* Fails unless the memory scope is the device's plain memory. */
int tw_gpu_check_scope(const char* scope);

/* ---- the calling thread's choices ---- */
typedef struct {
  int device;
  TVMStreamHandle streams[TW_MAX_GPUS]; /* NULL: the default one */
} TwGpuThread;

/* ---- kernels (launch.c) ---- */
typedef struct {
  char* name;
  DLDataType* types; /* [num_types] of the arguments */
  size_t num_types;
  char** tags; /* [num_tags] what the extents behind the arguments are: "blockIdx.x", "tir.use_dyn_shared_memory" */
  size_t num_tags;
} TwKernel;

typedef struct {
  TwKernel* items;
  size_t count;
} TwKernels;

int tw_kernels_parse(const char* json, size_t size, TwKernels* out);
int tw_kernels_read(TilewrightStream* s, TwKernels* out);
int tw_kernels_write(TilewrightStream* s, const TwKernels* kernels);
void tw_kernels_free(TwKernels* kernels);

/* How a kernel is launched: its arguments as the driver takes them, and its extents. */
typedef struct {
  const TwKernel* kernel;
  uint64_t values[TW_MAX_KERNEL_ARGS]; /* each holds sizes[i] bytes at its beginning */
  size_t sizes[TW_MAX_KERNEL_ARGS];
  uint64_t grid[3], block[3];
  size_t shared; /* bytes of dynamic shared memory */
  bool has_shared;
  int dims; /* that the kernel uses: 1 to 3 */
  bool empty; /* an extent is 0: there is nothing to do */
} TwLaunch;

/* Reads the arguments of a call. */
int tw_launch_read(const TwKernel* kernel, const TVMValue* args, const int* codes, int n, int device_type, TwLaunch* out);
bool tw_is_pointer(DLDataType type);
/* Fails, with kernel and limit named, where a block is larger than the device allows. */
int tw_launch_check(const TwLaunch* launch, const uint64_t* most_threads_each, uint64_t most_threads, const char* device);

/* ---- modules (module.c) ---- */
typedef struct TwGpuModule TwGpuModule;
/* What OpenCL and CUDA do differently. */
typedef struct {
  const char* key;  /* the module's type */
  const char* text; /* the format whose data can be read */
  int device_type;
  const char* const* formats; /* that it takes, ended by NULL */
  TwGpuThread* (*thread)(void);
  /* Compiles a module for a device; *program is given to the others. */
  int (*load)(int device, const char* format, const char* data, size_t size, const TwKernels* kernels, void** program);
  /* launch->kernel is the index-th; from any thread, several at a time. */
  int (*launch)(void* program, size_t index, const TwLaunch* launch);
  void (*unload)(void* program);
} TwGpuDriver;

/* runtime.module.create_KEY(data, format, JSON of the kernels, source) and runtime.module.loadbinary_KEY(stream) */
int tw_gpu_create(const TwGpuDriver* driver, TVMValue* args, int* codes, int n, TVMRetValueHandle ret);
int tw_gpu_load(const TwGpuDriver* driver, TVMValue* args, int* codes, int n, TVMRetValueHandle ret);

#endif /* TILEWRIGHT_GPU_H_ */
