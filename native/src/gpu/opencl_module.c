/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Device modules of OpenCL C: compiled by the driver for a device, launched on its queue. */
#include "opencl.h"

/* A kernel's arguments belong to it from when they are set until it is queued. */
typedef struct {
  void* handle;
  TwLock lock;
  uint64_t max_threads; /* as it was compiled: it may need so many registers that fewer fit */
} Kernel;

typedef struct {
  TwClDevice* device;
  void* program;
  Kernel* kernels; /* [count] */
  size_t count;
} Program;

static void unload(void* program) {
  Program* p = program;
  const TwOpencl* cl = tw_opencl();
  for (size_t i = 0; i < p->count; ++i) {
    if (p->kernels[i].handle != NULL) cl->ReleaseKernel(p->kernels[i].handle);
    tw_lock_destroy(&p->kernels[i].lock);
  }
  if (p->program != NULL) cl->ReleaseProgram(p->program);
  free(p->kernels);
  free(p);
}

/* What the compiler said, in the error. */
static int build_failed(const Program* p, int32_t status) {
  enum { MOST = 8000 };
  size_t size = 0;
  const TwOpencl* cl = tw_opencl();
  cl->GetProgramBuildInfo(p->program, p->device->handle, CL_BUILD_LOG, 0, NULL, &size);
  char* log = calloc(1, size + 1);
  if (log == NULL) return tw_out_of_memory(size + 1);
  cl->GetProgramBuildInfo(p->program, p->device->handle, CL_BUILD_LOG, size, log, NULL);
  tw_fail("opencl(%d): the module's source does not compile (%s, status %d); the compiler says:\n%.*s%s", p->device->id,
          tw_opencl_status(status), status, MOST, log, size > MOST ? "\n..." : "");
  free(log);
  return -1;
}

static int build(Program* p, const char* source, size_t size) {
  const TwOpencl* cl = tw_opencl();
  int32_t status;
  p->program = cl->CreateProgramWithSource(p->device->context, 1, &source, &size, &status);
  if (p->program == NULL) return tw_opencl_check(status, "clCreateProgramWithSource");
  status = cl->BuildProgram(p->program, 1, &p->device->handle, "", NULL, NULL);
  return status == CL_OK ? 0 : build_failed(p, status);
}

static int find_kernel(Program* p, Kernel* k, const char* name) {
  const TwOpencl* cl = tw_opencl();
  int32_t status;
  size_t most = 0;
  k->handle = cl->CreateKernel(p->program, name, &status);
  if (k->handle == NULL) {
    return tw_fail("opencl(%d): the module's source has no kernel %s: %s (status %d)", p->device->id, name, tw_opencl_status(status), status);
  }
  cl->GetKernelWorkGroupInfo(k->handle, p->device->handle, CL_KERNEL_WORK_GROUP_SIZE, sizeof most, &most, NULL);
  k->max_threads = most != 0 && most < p->device->max_threads ? most : p->device->max_threads;
  return 0;
}

static int load(int device, const char* format, const char* data, size_t size, const TwKernels* kernels, void** program) {
  (void)format;
  TwClDevice* d = tw_opencl_device(device);
  Program* p = d == NULL ? NULL : calloc(1, sizeof *p);
  if (p == NULL) return d == NULL ? -1 : tw_out_of_memory(sizeof *p);
  p->device = d;
  p->kernels = calloc(kernels->count + 1, sizeof *p->kernels);
  int rc = p->kernels == NULL ? tw_out_of_memory(kernels->count * sizeof *p->kernels) : 0;
  if (rc == 0) rc = build(p, data, size);
  for (; rc == 0 && p->count < kernels->count; ++p->count) {
    tw_lock_init(&p->kernels[p->count].lock);
    rc = find_kernel(p, &p->kernels[p->count], kernels->items[p->count].name);
  }
  if (rc != 0) {
    unload(p);
    return -1;
  }
  *program = p;
  return 0;
}

static int set_arguments(const Kernel* k, const TwLaunch* l) {
  const TwOpencl* cl = tw_opencl();
  const size_t n = l->kernel->num_types;
  for (size_t i = 0; i < n; ++i) {
    const bool pointer = tw_is_pointer(l->kernel->types[i]);
    const int32_t status = pointer ? cl->SetKernelArgSVMPointer(k->handle, (uint32_t)i, (const void*)(uintptr_t)l->values[i])
                                   : cl->SetKernelArg(k->handle, (uint32_t)i, l->sizes[i], &l->values[i]);
    if (status != CL_OK) {
      return tw_fail("argument %zu of kernel %s: %s (status %d)", i, l->kernel->name, tw_opencl_status(status), status);
    }
  }
  if (!l->has_shared) return 0;
  return tw_opencl_check(cl->SetKernelArg(k->handle, (uint32_t)n, l->shared == 0 ? 1 : l->shared, NULL), "clSetKernelArg");
}

/* The kernel's local memory is known when its arguments are set. */
static int check_local_memory(const Program* p, const Kernel* k, const char* name) {
  uint64_t needed = 0;
  tw_opencl()->GetKernelWorkGroupInfo(k->handle, p->device->handle, CL_KERNEL_LOCAL_MEM_SIZE, sizeof needed, &needed, NULL);
  if (needed <= p->device->local_memory) return 0;
  return tw_fail("kernel %s asks for %llu bytes of shared memory in a block; opencl(%d) has %llu", name, (unsigned long long)needed,
                 p->device->id, (unsigned long long)p->device->local_memory);
}

static int enqueue(const Program* p, const Kernel* k, const TwLaunch* l) {
  size_t global[3], local[3];
  for (int i = 0; i < 3; ++i) {
    local[i] = (size_t)l->block[i];
    global[i] = (size_t)(l->grid[i] * l->block[i]);
  }
  void* queue = tw_opencl_queue(p->device, NULL);
  const int32_t status =
      tw_opencl()->EnqueueNDRangeKernel(queue, k->handle, (uint32_t)l->dims, NULL, global, local, 0, NULL, NULL);
  if (status == CL_OK) return 0;
  return tw_fail("kernel %s cannot be launched on opencl(%d) with a grid of (%llu, %llu, %llu) and blocks of (%zu, %zu, %zu): %s (status %d)",
                 l->kernel->name, p->device->id, (unsigned long long)l->grid[0], (unsigned long long)l->grid[1],
                 (unsigned long long)l->grid[2], local[0], local[1], local[2], tw_opencl_status(status), status);
}

static int launch(void* program, size_t index, const TwLaunch* l) {
  const Program* p = program;
  Kernel* k = &((Program*)program)->kernels[index];
  char name[32];
  snprintf(name, sizeof name, "opencl(%d)", p->device->id);
  if (tw_launch_check(l, p->device->max_threads_each, k->max_threads, name) != 0) return -1;
  tw_lock(&k->lock);
  int rc = set_arguments(k, l);
  if (rc == 0) rc = check_local_memory(p, k, l->kernel->name);
  if (rc == 0) rc = enqueue(p, k, l);
  tw_unlock(&k->lock);
  return rc;
}

static const char* const formats[] = {"cl", NULL};
static const TwGpuDriver driver = {.key = "opencl", .text = "cl", .device_type = kDLOpenCL, .formats = formats,
                                   .thread = tw_opencl_thread, .load = load, .launch = launch, .unload = unload};

static int create(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  (void)resource;
  return tw_gpu_create(&driver, args, codes, n, ret);
}

static int load_binary(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  (void)resource;
  return tw_gpu_load(&driver, args, codes, n, ret);
}

TW_GLOBAL_FUNCTIONS({"runtime.module.create_opencl", create}, {"runtime.module.loadbinary_opencl", load_binary})
