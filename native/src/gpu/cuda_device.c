/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * CUDA's devices as a row of the table of devices, and "cuda_host", the host's memory that GPUs copy from and to without
 * the host's help. */
#include "cuda.h"

#include <limits.h>

static _Thread_local TwGpuThread thread;

TwGpuThread* tw_cuda_thread(void) { return &thread; }

void* tw_cuda_stream(const TwCuDevice* d, TVMStreamHandle stream) { return stream != NULL ? stream : thread.streams[d->id]; }

static int count(void* ctx, int* out) {
  (void)ctx;
  *out = tw_cuda_count();
  return 0;
}

static int set(void* ctx, int id) {
  (void)ctx;
  thread.device = id;
  return 0;
}

/* ---- memory ---- */
static int alloc(void* ctx, int id, size_t nbytes, size_t alignment, DLDataType hint, const char* scope, void** out) {
  (void)ctx, (void)alignment, (void)hint; /* CUDA aligns to 256 bytes */
  TwCuDevice* d = tw_cuda_device(id);
  if (d == NULL || tw_gpu_check_scope(scope) != 0) return -1;
  *out = tw_gpu_pool_take(d->pool, nbytes);
  return *out != NULL ? 0 : tw_gpu_out_of_memory(d->pool, nbytes, d->memory);
}

static int release(void* ctx, int id, void* ptr) {
  (void)ctx;
  TwCuDevice* d = tw_cuda_device(id);
  return d == NULL ? -1 : tw_gpu_pool_give(d->pool, ptr);
}

/* Two devices' streams do not wait for each other: what the other one does with the target ends before the copy, and the copy
 * before what it does next. */
static int copy_to_peer(const TwCuDevice* d, int to_id, CuAddress from, CuAddress to, size_t nbytes, void* stream) {
  const TwCuda* cu = tw_cuda();
  const TwCuDevice* other = tw_cuda_device(to_id);
  if (other == NULL || tw_cuda_check(cu->StreamSynchronize(tw_cuda_stream(other, NULL)), "the device's work") != 0) return -1;
  if (tw_cuda_device(d->id) == NULL) return -1;
  const int rc = tw_cuda_check(cu->MemcpyPeerAsync(to, other->context, from, d->context, nbytes, stream), "cuMemcpyPeerAsync");
  return rc != 0 ? rc : tw_cuda_check(cu->StreamSynchronize(stream), "the device's work");
}

static int copy_within(const TwCuDevice* d, int to_id, CuAddress from, CuAddress to, size_t nbytes, void* stream) {
  if (to_id != d->id) return copy_to_peer(d, to_id, from, to, nbytes, stream);
  return tw_cuda_check(tw_cuda()->MemcpyDtoDAsync(to, from, nbytes, stream), "cuMemcpyDtoDAsync");
}

static int copy(void* ctx, const void* from, size_t from_offset, DLDevice from_device, void* to, size_t to_offset,
                DLDevice to_device, size_t nbytes, DLDataType hint, TVMStreamHandle stream) {
  (void)ctx, (void)hint;
  const bool is_source = from_device.device_type == kDLCUDA, is_target = to_device.device_type == kDLCUDA;
  const char* source = (const char*)from + from_offset;
  char* target = (char*)to + to_offset;
  const CuAddress source_address = (CuAddress)(uintptr_t)source, target_address = (CuAddress)(uintptr_t)target;
  TwCuDevice* d = tw_cuda_device(is_source ? from_device.device_id : to_device.device_id);
  if (d == NULL) return -1;
  if (nbytes == 0 || source == target) return 0;
  void* queue = tw_cuda_stream(d, stream);
  if (is_source && is_target) return copy_within(d, to_device.device_id, source_address, target_address, nbytes, queue);
  const TwCuda* cu = tw_cuda();
  if (is_source) return tw_cuda_check(cu->MemcpyDtoHAsync(target, source_address, nbytes, queue), "cuMemcpyDtoHAsync");
  return tw_cuda_check(cu->MemcpyHtoDAsync(target_address, source, nbytes, queue), "cuMemcpyHtoDAsync");
}

/* ---- streams ---- */
static int synchronize(void* ctx, int id, TVMStreamHandle stream) {
  (void)ctx;
  const TwCuDevice* d = tw_cuda_device(id);
  return d == NULL ? -1 : tw_cuda_check(tw_cuda()->StreamSynchronize(tw_cuda_stream(d, stream)), "the device's work");
}

static void count_streams(TwCuDevice* d, int change) {
  tw_lock(&d->lock);
  d->num_streams += change;
  tw_unlock(&d->lock);
}

static int stream_create(void* ctx, int id, TVMStreamHandle* out) {
  (void)ctx;
  TwCuDevice* d = tw_cuda_device(id);
  if (d == NULL || tw_cuda_check(tw_cuda()->StreamCreate(out, 0), "cuStreamCreate") != 0) return -1;
  count_streams(d, 1);
  return 0;
}

static int stream_free(void* ctx, int id, TVMStreamHandle stream) {
  (void)ctx;
  TwCuDevice* d = tw_cuda_device(id);
  if (d == NULL) return -1;
  if (thread.streams[id] == stream) thread.streams[id] = NULL;
  int rc = tw_cuda_check(tw_cuda()->StreamSynchronize(stream), "the stream's work");
  if (tw_cuda_check(tw_cuda()->StreamDestroy(stream), "cuStreamDestroy") != 0) return -1;
  count_streams(d, -1);
  return rc;
}

static int stream_set(void* ctx, int id, TVMStreamHandle stream) {
  (void)ctx;
  const TwCuDevice* d = tw_cuda_device(id);
  if (d == NULL) return -1;
  thread.streams[id] = stream;
  return 0;
}

static int stream_wait(void* ctx, int id, TVMStreamHandle src, TVMStreamHandle dst) {
  (void)ctx;
  const TwCuDevice* d = tw_cuda_device(id);
  void* event = NULL;
  if (d == NULL) return -1;
  const TwCuda* cu = tw_cuda();
  if (tw_cuda_check(cu->EventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate") != 0) return -1;
  int rc = tw_cuda_check(cu->EventRecord(event, tw_cuda_stream(d, src)), "cuEventRecord");
  if (rc == 0) rc = tw_cuda_check(cu->StreamWaitEvent(tw_cuda_stream(d, dst), event, 0), "cuStreamWaitEvent");
  cu->EventDestroy(event); /* it goes when it has happened */
  return rc;
}

/* ---- timing ---- */
static int record(const TwCuDevice* d, void** event) {
  const TwCuda* cu = tw_cuda();
  *event = NULL;
  if (tw_cuda_check(cu->EventCreate(event, CU_EVENT_DEFAULT), "cuEventCreate") != 0) return -1;
  if (tw_cuda_check(cu->EventRecord(*event, tw_cuda_stream(d, NULL)), "cuEventRecord") == 0) return 0;
  cu->EventDestroy(*event);
  *event = NULL;
  return -1;
}

static int timer_start(void* ctx, int id, void** timer) {
  (void)ctx;
  const TwCuDevice* d = tw_cuda_device(id);
  return d == NULL ? -1 : record(d, timer);
}

static int timer_stop(void* ctx, int id, void* timer, double* seconds) {
  (void)ctx;
  const TwCuDevice* d = tw_cuda_device(id);
  void* end = NULL;
  float milliseconds = 0;
  if (d == NULL) return -1;
  const TwCuda* cu = tw_cuda();
  int rc = record(d, &end);
  if (rc == 0) rc = tw_cuda_check(cu->EventSynchronize(end), "the device's work");
  if (rc == 0) rc = tw_cuda_check(cu->EventElapsedTime(&milliseconds, timer, end), "cuEventElapsedTime");
  if (end != NULL) cu->EventDestroy(end);
  cu->EventDestroy(timer);
  *seconds = (double)milliseconds * 1e-3;
  return rc;
}

/* ---- attributes ---- */
static int return_number(const TwCuDevice* d, int attribute, TVMRetValueHandle ret) {
  int value = 0;
  if (tw_cuda_check(tw_cuda()->DeviceGetAttribute(&value, attribute, d->handle), "cuDeviceGetAttribute") != 0) return -1;
  tw_return_int(ret, value);
  return 0;
}

static int return_name(const TwCuDevice* d, TVMRetValueHandle ret) {
  char name[256] = "";
  if (tw_cuda_check(tw_cuda()->DeviceGetName(name, sizeof name - 1, d->handle), "cuDeviceGetName") != 0) return -1;
  return tw_return_string(ret, name);
}

static int return_version(TVMRetValueHandle ret) {
  int version = 0;
  if (tw_cuda_check(tw_cuda()->DriverGetVersion(&version), "cuDriverGetVersion") != 0) return -1;
  tw_return_int(ret, version);
  return 0;
}

static int get_attr(void* ctx, int id, int attr, TVMRetValueHandle ret) {
  (void)ctx;
  const TwCuDevice* d = tw_cuda_device(id);
  char text[128];
  if (d == NULL) return -1;
  switch (attr) {
    case kTilewrightMaxThreadsPerBlock: return return_number(d, CU_MAX_THREADS_PER_BLOCK, ret);
    case kTilewrightWarpSize: return return_number(d, CU_WARP_SIZE, ret);
    case kTilewrightMaxSharedMemoryPerBlock: return return_number(d, CU_MAX_SHARED_MEMORY_PER_BLOCK, ret);
    case kTilewrightComputeVersion:
      snprintf(text, sizeof text, "%d.%d", d->architecture / 10, d->architecture % 10);
      return tw_return_string(ret, text);
    case kTilewrightDeviceName: return return_name(d, ret);
    case kTilewrightMaxClockRate: return return_number(d, CU_CLOCK_RATE, ret);
    case kTilewrightMultiProcessorCount: return return_number(d, CU_MULTIPROCESSOR_COUNT, ret);
    case kTilewrightMaxThreadDimensions:
      snprintf(text, sizeof text, "[%llu, %llu, %llu]", (unsigned long long)d->max_threads_each[0],
               (unsigned long long)d->max_threads_each[1], (unsigned long long)d->max_threads_each[2]);
      return tw_return_string(ret, text);
    case kTilewrightMaxRegistersPerBlock: return return_number(d, CU_MAX_REGISTERS_PER_BLOCK, ret);
    case kTilewrightApiVersion:
    case kTilewrightDriverVersion: return return_version(ret);
    default: return 0;
  }
}

/* ---- pinned memory of the host ---- */
/* Whether there is a GPU to pin memory for is settled at the first use: who frees must know who gave. Without one it is the
 * host's plain memory. */
static bool pins_memory(void) {
  static _Atomic int answer; /* 1: yes, 2: no */
  int known = atomic_load(&answer);
  if (known == 0) {
    known = tw_cuda_count() != 0 ? 1 : 2;
    tw_clear_error();
    atomic_store(&answer, known);
  }
  return known == 1;
}

static int host_count(void* ctx, int* out) {
  (void)ctx;
  *out = INT_MAX;
  return 0;
}

static int host_alloc(void* ctx, int id, size_t nbytes, size_t alignment, DLDataType hint, const char* scope, void** out) {
  (void)ctx, (void)id, (void)hint;
  if (tw_gpu_check_scope(scope) != 0) return -1;
  if (!pins_memory()) {
    *out = tw_aligned_alloc(nbytes, alignment);
    return *out == NULL ? tw_out_of_memory(nbytes) : 0;
  }
  if (tw_cuda_device(0) == NULL) return -1;
  const int status = tw_cuda()->MemHostAlloc(out, nbytes == 0 ? 1 : nbytes, CU_HOST_PORTABLE);
  return status == CU_OUT_OF_MEMORY ? tw_fail("out of memory that can be pinned: could not allocate %zu bytes", nbytes)
                                    : tw_cuda_check(status, "cuMemHostAlloc");
}

static int host_free(void* ctx, int id, void* ptr) {
  (void)ctx, (void)id;
  if (!pins_memory()) {
    tw_aligned_free(ptr);
    return 0;
  }
  return tw_cuda_device(0) == NULL ? -1 : tw_cuda_check(tw_cuda()->MemFreeHost(ptr), "cuMemFreeHost");
}

static int host_copy(void* ctx, const void* from, size_t from_offset, DLDevice from_device, void* to, size_t to_offset,
                     DLDevice to_device, size_t nbytes, DLDataType hint, TVMStreamHandle stream) {
  (void)ctx, (void)from_device, (void)to_device, (void)hint, (void)stream;
  memmove((char*)to + to_offset, (const char*)from + from_offset, nbytes);
  return 0;
}

__attribute__((constructor)) static void register_devices(void) {
  static const TilewrightDeviceAPI gpu = {
      .struct_size = sizeof gpu, .name = "cuda", .device_type = kDLCUDA, .count = count, .alloc = alloc, .free = release,
      .copy = copy, .set = set, .get_attr = get_attr, .synchronize = synchronize, .stream_create = stream_create,
      .stream_free = stream_free, .stream_set = stream_set, .stream_wait = stream_wait, .timer_start = timer_start,
      .timer_stop = timer_stop};
  static const TilewrightDeviceAPI host = {
      .struct_size = sizeof host, .name = "cuda_host", .device_type = kDLCUDAHost, .flags = TILEWRIGHT_DEVICE_HOST_MEMORY,
      .count = host_count, .alloc = host_alloc, .free = host_free, .copy = host_copy};
  TilewrightDeviceRegister(&gpu);
  TilewrightDeviceRegister(&host);
}
