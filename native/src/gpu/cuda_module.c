/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Device modules for CUDA: PTX, which the driver compiles for its device, or what NVIDIA's tools have compiled (cubin, fatbin).
 * PTX for several architectures stands one after the other, each from its own ".version" on; a device gets that of the highest
 * architecture which is not above its own. */
#include "cuda.h"

typedef struct {
  void* handle;
  int max_threads, registers, shared_memory; /* in a block, of a thread, in a block without the dynamic part */
} Kernel;

typedef struct {
  TwCuDevice* device;
  void* module;
  Kernel* kernels;
} Program;

static void unload(void* program) {
  Program* p = program;
  if (p->module != NULL && tw_cuda_device(p->device->id) != NULL) tw_cuda()->ModuleUnload(p->module);
  free(p->kernels);
  free(p);
}

/* ---- architectures ---- */
/* The next line from `at` on that begins with a word, or NULL. */
static const char* find_line(const char* at, const char* word) {
  const size_t length = strlen(word);
  while (at != NULL) {
    const char* text = at + strspn(at, " \t");
    if (strncmp(text, word, length) == 0) return at;
    at = strchr(at, '\n');
    if (at != NULL) ++at;
  }
  return NULL;
}

/* Of PTX from its ".version" to the next one. */
typedef struct {
  const char* start;
  size_t size;
  int architecture; /* 90 for sm_90 */
  char suffix;      /* 'a' of sm_90a: this one only; 'f' of sm_100f: its family; or 0 */
} Image;

/* The image that begins at or behind `at`; false at the end. */
static bool next_image(const char* at, Image* out) {
  const char* start = find_line(at, ".version");
  if (start == NULL) return false;
  const char* line = strchr(start, '\n');
  const char* end = line == NULL ? NULL : find_line(line + 1, ".version");
  const char* target = line == NULL ? NULL : find_line(line + 1, ".target");
  const char* architecture = target == NULL ? NULL : strstr(target, "sm_");
  *out = (Image){.start = start, .size = end == NULL ? strlen(start) : (size_t)(end - start)};
  if (architecture != NULL && (end == NULL || architecture < end)) {
    char* rest;
    out->architecture = (int)strtol(architecture + 3, &rest, 10);
    if (*rest == 'a' || *rest == 'f') out->suffix = *rest;
  }
  return true;
}

static bool runs_on(const Image* image, int architecture) {
  if (image->suffix == 'a') return image->architecture == architecture;
  if (image->suffix == 'f' && image->architecture / 10 != architecture / 10) return false;
  return image->architecture <= architecture;
}

static int no_image(const TwCuDevice* d, const char* data) {
  char there[256] = "", name[256] = "?";
  size_t used = 0;
  Image image;
  for (const char* at = data; next_image(at, &image) && used < sizeof there; at = image.start + image.size) {
    used += (size_t)snprintf(there + used, sizeof there - used, "%ssm_%d%.1s", used == 0 ? "" : ", ", image.architecture, &image.suffix);
  }
  tw_cuda()->DeviceGetName(name, sizeof name - 1, d->handle);
  return tw_fail("the kernels are compiled for %s, and cuda(%d) (%s) is sm_%d; build with target \"cuda -arch=sm_%d\"",
                 used == 0 ? "no architecture (the PTX has no .version and .target)" : there, d->id, name, d->architecture, d->architecture);
}

/* A copy of the PTX for the device, or NULL and an error. */
static char* choose_image(const TwCuDevice* d, const char* data) {
  Image image, best = {.start = NULL};
  for (const char* at = data; next_image(at, &image); at = image.start + image.size) {
    if (!runs_on(&image, d->architecture)) continue;
    const bool better = image.architecture > best.architecture || (image.architecture == best.architecture && image.suffix != 0);
    if (best.start == NULL || better) best = image;
  }
  if (best.start == NULL) {
    no_image(d, data);
    return NULL;
  }
  char* copy = malloc(best.size + 1);
  if (copy == NULL) {
    tw_out_of_memory(best.size + 1);
    return NULL;
  }
  memcpy(copy, best.start, best.size);
  copy[best.size] = '\0';
  return copy;
}

/* ---- compiling ---- */
static int load_image(Program* p, const void* image) {
  enum { LOG = 8192 };
  char* log = calloc(1, LOG);
  if (log == NULL) return tw_out_of_memory(LOG);
  int options[2] = {CU_JIT_ERROR_LOG, CU_JIT_ERROR_LOG_SIZE};
  void* values[2] = {log, (void*)(uintptr_t)(LOG - 1)};
  const int status = tw_cuda()->ModuleLoadDataEx(&p->module, image, 2, options, values);
  if (status != CU_OK) {
    p->module = NULL;
    tw_cuda_check(status, "cuModuleLoadDataEx");
    char* said = tw_strdup(TVMGetLastError());
    tw_fail("cuda(%d) cannot load the module's kernels: %s%s%s", p->device->id, said == NULL ? "" : said, log[0] == '\0' ? "" : "; the compiler says:\n", log);
    free(said);
  }
  free(log);
  return status == CU_OK ? 0 : -1;
}

static int find_kernel(const Program* p, Kernel* k, const char* name) {
  const TwCuda* cu = tw_cuda();
  const int status = cu->ModuleGetFunction(&k->handle, p->module, name);
  if (status != CU_OK) return tw_fail("cuda(%d): the module has no kernel %s (status %d)", p->device->id, name, status);
  cu->FuncGetAttribute(&k->max_threads, CU_FUNC_MAX_THREADS_PER_BLOCK, k->handle);
  cu->FuncGetAttribute(&k->registers, CU_FUNC_NUM_REGS, k->handle);
  cu->FuncGetAttribute(&k->shared_memory, CU_FUNC_SHARED_SIZE_BYTES, k->handle);
  return 0;
}

/* More shared memory than every device has must be asked for, once for a kernel: as much as there is. */
static int allow_shared_memory(const Program* p, const Kernel* k) {
  const TwCuDevice* d = p->device;
  if (d->most_shared_memory <= d->shared_memory) return 0;
  const int status = tw_cuda()->FuncSetAttribute(k->handle, CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES, d->most_shared_memory - k->shared_memory);
  return tw_cuda_check(status, "cuFuncSetAttribute");
}

static bool takes_shared_memory(const TwKernel* k) {
  return k->num_tags != 0 && strcmp(k->tags[k->num_tags - 1], "tir.use_dyn_shared_memory") == 0;
}

static int compile(Program* p, const char* format, const char* data, const TwKernels* kernels) {
  const bool is_ptx = strcmp(format, "ptx") == 0;
  char* chosen = is_ptx ? choose_image(p->device, data) : NULL;
  if (is_ptx && chosen == NULL) return -1;
  int rc = load_image(p, is_ptx ? chosen : data);
  free(chosen);
  for (size_t i = 0; rc == 0 && i < kernels->count; ++i) {
    rc = find_kernel(p, &p->kernels[i], kernels->items[i].name);
    if (rc == 0 && takes_shared_memory(&kernels->items[i])) rc = allow_shared_memory(p, &p->kernels[i]);
  }
  return rc;
}

static int load(int device, const char* format, const char* data, size_t size, const TwKernels* kernels, void** program) {
  (void)size;
  TwCuDevice* d = tw_cuda_device(device);
  Program* p = d == NULL ? NULL : calloc(1, sizeof *p);
  if (p == NULL) return d == NULL ? -1 : tw_out_of_memory(sizeof *p);
  p->device = d;
  p->kernels = calloc(kernels->count + 1, sizeof *p->kernels);
  int rc = p->kernels == NULL ? tw_out_of_memory(kernels->count * sizeof *p->kernels) : compile(p, format, data, kernels);
  if (rc != 0) {
    unload(p);
    return -1;
  }
  *program = p;
  return 0;
}

/* ---- launching ---- */
static int check(const Program* p, const Kernel* k, const TwLaunch* l) {
  const TwCuDevice* d = p->device;
  const char* name = l->kernel->name;
  const uint64_t threads = l->block[0] * l->block[1] * l->block[2], shared = l->shared + (uint64_t)k->shared_memory;
  char text[32];
  snprintf(text, sizeof text, "cuda(%d)", d->id);
  if (tw_launch_check(l, d->max_threads_each, d->max_threads, text) != 0) return -1;
  if (threads > (uint64_t)k->max_threads) {
    return tw_fail("kernel %s asks for %llu threads in a block; with its %d registers a thread %s allows %d", name,
                   (unsigned long long)threads, k->registers, text, k->max_threads);
  }
  if (shared > (uint64_t)d->most_shared_memory) {
    return tw_fail("kernel %s asks for %llu bytes of shared memory in a block; %s has %d", name, (unsigned long long)shared, text,
                   d->most_shared_memory);
  }
  for (int i = 0; i < 3; ++i) {
    if (l->grid[i] > d->max_blocks_each[i]) {
      return tw_fail("kernel %s asks for %llu blocks in blockIdx.%c; %s allows %llu", name, (unsigned long long)l->grid[i], 'x' + i, text,
                     (unsigned long long)d->max_blocks_each[i]);
    }
  }
  return 0;
}

static int launch(void* program, size_t index, const TwLaunch* l) {
  const Program* p = program;
  const Kernel* k = &p->kernels[index];
  void* parameters[TW_MAX_KERNEL_ARGS];
  if (tw_cuda_device(p->device->id) == NULL || check(p, k, l) != 0) return -1;
  for (size_t i = 0; i < l->kernel->num_types; ++i) parameters[i] = (void*)(uintptr_t)&l->values[i];
  const int status = tw_cuda()->LaunchKernel(k->handle, (unsigned)l->grid[0], (unsigned)l->grid[1], (unsigned)l->grid[2], (unsigned)l->block[0],
                                             (unsigned)l->block[1], (unsigned)l->block[2], (unsigned)l->shared,
                                             tw_cuda_stream(p->device, NULL), parameters, NULL);
  if (status == CU_OK) return 0;
  char tried[256];
  snprintf(tried, sizeof tried, "launching kernel %.60s on cuda(%d) with a grid of (%llu, %llu, %llu) and blocks of (%llu, %llu, %llu)",
           l->kernel->name, p->device->id, (unsigned long long)l->grid[0], (unsigned long long)l->grid[1], (unsigned long long)l->grid[2],
           (unsigned long long)l->block[0], (unsigned long long)l->block[1], (unsigned long long)l->block[2]);
  return tw_cuda_check(status, tried);
}

static const char* const formats[] = {"ptx", "cubin", "fatbin", NULL};
static const TwGpuDriver driver = {.key = "cuda", .text = "ptx", .device_type = kDLCUDA, .formats = formats,
                                   .thread = tw_cuda_thread, .load = load, .launch = launch, .unload = unload};

static int create(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  (void)resource;
  return tw_gpu_create(&driver, args, codes, n, ret);
}

static int load_binary(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  (void)resource;
  return tw_gpu_load(&driver, args, codes, n, ret);
}

TW_GLOBAL_FUNCTIONS({"runtime.module.create_cuda", create}, {"runtime.module.loadbinary_cuda", load_binary})
