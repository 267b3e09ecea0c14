/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Finds CUDA's driver and its devices, once in a process. */
#include "cuda.h"

static TwCuda cuda;
static TwCuDevice devices[TW_MAX_GPUS];
static int num_devices;
static char why_none[512] = "";
static pthread_once_t once = PTHREAD_ONCE_INIT;

int tw_cuda_check(int status, const char* tried) {
  const char *name = NULL, *text = NULL;
  if (status == CU_OK) return 0;
  cuda.GetErrorName(status, &name);
  cuda.GetErrorString(status, &text);
  return tw_fail("%s failed: %s (%s, status %d)", tried, text == NULL ? "unknown error" : text, name == NULL ? "?" : name, status);
}

static int open_library(void) {
  const TwSymbol symbols[] = {
#define SYMBOL(name, symbol, parameters, optional) {symbol, &cuda.name, optional},
      CUDA_FUNCTIONS(SYMBOL)
#undef SYMBOL
  };
  const char* named = getenv("TILEWRIGHT_CUDA");
  const char* const names[] = {named == NULL || named[0] == '\0' ? "libcuda.so.1" : named, NULL};
  return tw_open_driver(names, symbols, sizeof symbols / sizeof symbols[0]);
}

static int find_devices(void) {
  int count = 0;
  if (open_library() != 0 || tw_cuda_check(cuda.Init(0), "cuInit") != 0 ||
      tw_cuda_check(cuda.DeviceGetCount(&count), "cuDeviceGetCount") != 0) {
    return -1;
  }
  for (int i = 0; i < count && i < TW_MAX_GPUS; ++i) {
    TwCuDevice* d = &devices[i];
    d->id = i;
    tw_lock_init(&d->lock);
    if (tw_cuda_check(cuda.DeviceGet(&d->handle, i), "cuDeviceGet") != 0) return -1;
  }
  num_devices = count < TW_MAX_GPUS ? count : TW_MAX_GPUS;
  return count != 0 ? 0 : tw_fail("CUDA's driver finds no device");
}

static void find_once(void) {
  if (find_devices() == 0) return;
  snprintf(why_none, sizeof why_none, "%s", TVMGetLastError());
}

int tw_cuda_count(void) {
  pthread_once(&once, find_once);
  if (num_devices == 0) tw_set_error("there is no CUDA here: %s", why_none);
  return num_devices;
}

const TwCuda* tw_cuda(void) { return tw_cuda_count() == 0 ? NULL : &cuda; }

/* ---- memory ---- */
static void* device_alloc(void* ctx, size_t nbytes) {
  CuAddress address = 0;
  (void)ctx; /* its context is the thread's */
  return cuda.MemAlloc(&address, nbytes) == CU_OK ? (void*)(uintptr_t)address : NULL;
}

static void device_free(void* ctx, void* ptr) {
  (void)ctx;
  cuda.MemFree((CuAddress)(uintptr_t)ptr); /* waits for the device */
}

static void settle(void* ctx) {
  TwCuDevice* d = ctx;
  tw_lock(&d->lock);
  const bool several = d->num_streams != 0;
  tw_unlock(&d->lock);
  if (several) cuda.CtxSynchronize();
}

/* ---- using a device ---- */
static int number(const TwCuDevice* d, int attribute) {
  int value = 0;
  return cuda.DeviceGetAttribute(&value, attribute, d->handle) == CU_OK ? value : 0;
}

/* Under the device's lock. */
static int prepare(TwCuDevice* d) {
  if (d->context == NULL && tw_cuda_check(cuda.DevicePrimaryCtxRetain(&d->context, d->handle), "cuDevicePrimaryCtxRetain") != 0) {
    d->context = NULL;
    return -1;
  }
  cuda.DeviceTotalMem(&d->memory, d->handle);
  d->max_threads = (uint64_t)number(d, CU_MAX_THREADS_PER_BLOCK);
  for (int i = 0; i < 3; ++i) {
    d->max_threads_each[i] = (uint64_t)number(d, CU_MAX_BLOCK_DIM_X + i);
    d->max_blocks_each[i] = (uint64_t)number(d, CU_MAX_GRID_DIM_X + i);
  }
  d->shared_memory = number(d, CU_MAX_SHARED_MEMORY_PER_BLOCK);
  d->most_shared_memory = number(d, CU_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  if (d->most_shared_memory < d->shared_memory) d->most_shared_memory = d->shared_memory;
  d->architecture = number(d, CU_COMPUTE_CAPABILITY_MAJOR) * 10 + number(d, CU_COMPUTE_CAPABILITY_MINOR);
  const TwMemorySource source = {.alloc = device_alloc, .free = device_free, .settle = settle, .ctx = d};
  d->pool = tw_gpu_pool_new(&source);
  return d->pool == NULL ? -1 : 0;
}

TwCuDevice* tw_cuda_device(int id) {
  if (id < 0 || id >= tw_cuda_count()) {
    if (num_devices != 0) tw_set_error("there is no device cuda(%d); there are %d", id, num_devices);
    return NULL;
  }
  TwCuDevice* d = &devices[id];
  tw_lock(&d->lock);
  if (!d->ready) d->ready = prepare(d) == 0;
  const bool ready = d->ready;
  tw_unlock(&d->lock);
  /* others in the process may have made another context the thread's */
  return ready && tw_cuda_check(cuda.CtxSetCurrent(d->context), "cuCtxSetCurrent") == 0 ? d : NULL;
}
