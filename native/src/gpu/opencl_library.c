/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Finds OpenCL and its devices, once in a process: those of all platforms, GPUs first, then accelerators, then CPUs. */
#include "opencl.h"

static TwOpencl opencl;
static TwClDevice devices[TW_MAX_GPUS];
static int num_devices;
static char why_none[512] = "";
static pthread_once_t once = PTHREAD_ONCE_INIT;

const char* tw_opencl_status(int32_t status) {
  static const struct {
    int32_t status;
    const char* name;
  } names[] = {{-1, "no device"},
               {-2, "device not available"},
               {-3, "compiler not available"},
               {-4, "memory object allocation failure"},
               {-5, "out of resources"},
               {-6, "out of host memory"},
               {-7, "profiling information not available"},
               {-11, "the program does not compile"},
               {-14, "a command before it failed"},
               {-30, "invalid value"},
               {-32, "invalid platform"},
               {-33, "invalid device"},
               {-34, "invalid context"},
               {-36, "invalid command queue"},
               {-38, "invalid memory object"},
               {-43, "invalid build options"},
               {-44, "invalid program"},
               {-45, "invalid program executable"},
               {-46, "invalid kernel name"},
               {-48, "invalid kernel"},
               {-49, "invalid argument index"},
               {-50, "invalid argument value"},
               {-51, "invalid argument size"},
               {-52, "invalid kernel arguments"},
               {-53, "invalid work dimension"},
               {-54, "invalid work group size"},
               {-55, "invalid work item size"},
               {-58, "invalid event"},
               {-59, "invalid operation"},
               {-61, "invalid buffer size"},
               {-63, "invalid global work size"},
               {-1001, "no platform: install an OpenCL driver (for a CPU: PoCL, Debian's pocl-opencl-icd)"}};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
    if (names[i].status == status) return names[i].name;
  }
  return "unknown status";
}

int tw_opencl_check(int32_t status, const char* tried) {
  return status == CL_OK ? 0 : tw_fail("%s failed: %s (status %d)", tried, tw_opencl_status(status), status);
}

static int open_library(void) {
  const TwSymbol symbols[] = {
#define SYMBOL(name, parameters) {"cl" #name, &opencl.name, false},
      OPENCL_FUNCTIONS(SYMBOL)
#undef SYMBOL
#define SYMBOL(result, name, parameters, optional) {"cl" #name, &opencl.name, optional},
          OPENCL_MAKERS(SYMBOL)
#undef SYMBOL
  };
  const char* named = getenv("TILEWRIGHT_OPENCL");
  const char* const names[] = {named == NULL || named[0] == '\0' ? "libOpenCL.so.1" : named, NULL};
  return tw_open_driver(names, symbols, sizeof symbols / sizeof symbols[0]);
}

/* Adds the devices of a kind of all platforms. */
static void add_devices(void* const* platforms, uint32_t num_platforms, uint64_t type) {
  for (uint32_t i = 0; i < num_platforms; ++i) {
    void* found[TW_MAX_GPUS];
    uint32_t count = 0;
    if (opencl.GetDeviceIDs(platforms[i], type, TW_MAX_GPUS, found, &count) != CL_OK) continue;
    for (uint32_t k = 0; k < count && k < TW_MAX_GPUS && num_devices < TW_MAX_GPUS; ++k) {
      TwClDevice* d = &devices[num_devices];
      d->id = num_devices++;
      d->handle = found[k];
      tw_lock_init(&d->lock);
    }
  }
}

static int find_devices(void) {
  void* platforms[TW_MAX_GPUS];
  uint32_t count = 0;
  if (open_library() != 0) return -1;
  const int32_t status = opencl.GetPlatformIDs(TW_MAX_GPUS, platforms, &count);
  if (status != CL_OK) return tw_opencl_check(status, "clGetPlatformIDs");
  if (count > TW_MAX_GPUS) count = TW_MAX_GPUS;
  static const uint64_t kinds[] = {CL_TYPE_GPU, CL_TYPE_ACCELERATOR, CL_TYPE_CPU};
  for (int i = 0; i < 3; ++i) add_devices(platforms, count, kinds[i]);
  return num_devices != 0 ? 0 : tw_fail("OpenCL's %u platforms have no device", count);
}

static void find_once(void) {
  if (find_devices() == 0) return;
  snprintf(why_none, sizeof why_none, "%s", TVMGetLastError());
}

int tw_opencl_count(void) {
  pthread_once(&once, find_once);
  if (num_devices == 0) tw_set_error("there is no OpenCL here: %s", why_none);
  return num_devices;
}

const TwOpencl* tw_opencl(void) { return tw_opencl_count() == 0 ? NULL : &opencl; }

/* ---- using one ---- */
static uint64_t number(const TwClDevice* d, uint32_t what, size_t size) {
  uint64_t value = 0;
  return opencl.GetDeviceInfo(d->handle, what, size, &value, NULL) == CL_OK ? value : 0;
}

/* ---- memory ---- */
static void* svm_alloc(void* ctx, size_t nbytes) {
  const TwClDevice* d = ctx;
  return opencl.SVMAlloc(d->context, CL_MEM_READ_WRITE, nbytes, 0);
}

static void svm_free(void* ctx, void* ptr) {
  const TwClDevice* d = ctx;
  opencl.Finish(d->queue); /* clSVMFree does not wait */
  opencl.SVMFree(d->context, ptr);
}

static void settle(void* ctx) {
  TwClDevice* d = ctx;
  tw_lock(&d->lock);
  if (d->num_streams != 0) opencl.Finish(d->queue);
  for (size_t i = 0; i < d->num_streams; ++i) opencl.Finish(d->streams[i]);
  tw_unlock(&d->lock);
}

/* Under the device's lock. */
static int prepare(TwClDevice* d) {
  int32_t status;
  size_t each[8] = {0};
  if (opencl.SVMAlloc == NULL || opencl.SVMFree == NULL || opencl.SetKernelArgSVMPointer == NULL || opencl.EnqueueSVMMemcpy == NULL ||
      (number(d, CL_SVM_CAPABILITIES, sizeof(uint64_t)) & CL_SVM_COARSE_GRAIN_BUFFER) == 0) {
    return tw_fail("the device has no shared virtual memory, which is OpenCL 2.0's and needed here; use a newer driver");
  }
  d->memory = number(d, CL_GLOBAL_MEM_SIZE, sizeof(uint64_t));
  d->local_memory = number(d, CL_LOCAL_MEM_SIZE, sizeof(uint64_t));
  d->max_threads = number(d, CL_MAX_WORK_GROUP_SIZE, sizeof(size_t));
  opencl.GetDeviceInfo(d->handle, CL_MAX_WORK_ITEM_SIZES, sizeof each, each, NULL);
  for (int i = 0; i < 3; ++i) d->max_threads_each[i] = each[i];
  d->context = opencl.CreateContext(NULL, 1, &d->handle, NULL, NULL, &status);
  if (d->context == NULL) return tw_opencl_check(status, "clCreateContext");
  d->queue = opencl.CreateCommandQueue(d->context, d->handle, CL_QUEUE_PROFILING, &status);
  if (d->queue == NULL) {
    opencl.ReleaseContext(d->context);
    return tw_opencl_check(status, "clCreateCommandQueue");
  }
  const TwMemorySource source = {.alloc = svm_alloc, .free = svm_free, .settle = settle, .ctx = d};
  d->pool = tw_gpu_pool_new(&source);
  return d->pool == NULL ? -1 : 0;
}

TwClDevice* tw_opencl_device(int id) {
  if (id < 0 || id >= tw_opencl_count()) {
    if (num_devices != 0) tw_set_error("there is no device opencl(%d); there are %d", id, num_devices);
    return NULL;
  }
  TwClDevice* d = &devices[id];
  tw_lock(&d->lock);
  if (!d->ready) d->ready = prepare(d) == 0;
  const bool ready = d->ready;
  tw_unlock(&d->lock);
  return ready ? d : NULL;
}
