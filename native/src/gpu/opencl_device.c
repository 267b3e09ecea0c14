/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * OpenCL's devices as a row of the table of devices. Memory is coarse-grained shared virtual memory: an address that
 * kernels, copies and offsets take as it is. A stream is a command queue, which works in order. */
#include "opencl.h"

static _Thread_local TwGpuThread thread;

TwGpuThread* tw_opencl_thread(void) { return &thread; }

void* tw_opencl_queue(const TwClDevice* d, TVMStreamHandle stream) {
  if (stream == NULL) stream = thread.streams[d->id];
  return stream != NULL ? stream : d->queue;
}

static int count(void* ctx, int* out) {
  (void)ctx;
  *out = tw_opencl_count();
  return 0;
}

static int set(void* ctx, int id) {
  (void)ctx;
  thread.device = id;
  return 0;
}

/* ---- memory ---- */
static int alloc(void* ctx, int id, size_t nbytes, size_t alignment, DLDataType hint, const char* scope, void** out) {
  (void)ctx, (void)alignment, (void)hint; /* blocks are aligned for the largest type of OpenCL, 128 bytes */
  TwClDevice* d = tw_opencl_device(id);
  if (d == NULL || tw_gpu_check_scope(scope) != 0) return -1;
  *out = tw_gpu_pool_take(d->pool, nbytes);
  return *out != NULL ? 0 : tw_gpu_out_of_memory(d->pool, nbytes, d->memory);
}

static int release(void* ctx, int id, void* ptr) {
  (void)ctx;
  TwClDevice* d = tw_opencl_device(id);
  return d == NULL ? -1 : tw_gpu_pool_give(d->pool, ptr);
}

static int copy_between(void* from_queue, void* to_queue, const char* from, char* to, size_t nbytes) {
  const TwOpencl* cl = tw_opencl();
  char* host = malloc(nbytes);
  if (host == NULL) return tw_out_of_memory(nbytes);
  int rc = tw_opencl_check(cl->EnqueueSVMMemcpy(from_queue, CL_TRUE, host, from, nbytes, 0, NULL, NULL), "clEnqueueSVMMemcpy");
  if (rc == 0) rc = tw_opencl_check(cl->EnqueueSVMMemcpy(to_queue, CL_TRUE, to, host, nbytes, 0, NULL, NULL), "clEnqueueSVMMemcpy");
  free(host);
  return rc;
}

static int copy(void* ctx, const void* from, size_t from_offset, DLDevice from_device, void* to, size_t to_offset,
                DLDevice to_device, size_t nbytes, DLDataType hint, TVMStreamHandle stream) {
  (void)ctx, (void)hint;
  const bool is_source = from_device.device_type == kDLOpenCL, is_target = to_device.device_type == kDLOpenCL;
  const char* source = (const char*)from + from_offset;
  char* target = (char*)to + to_offset;
  TwClDevice* d = tw_opencl_device(is_source ? from_device.device_id : to_device.device_id);
  if (d == NULL) return -1;
  if (nbytes == 0 || source == target) return 0;
  void* queue = tw_opencl_queue(d, stream);
  if (is_source && is_target && from_device.device_id != to_device.device_id) {
    const TwClDevice* other = tw_opencl_device(to_device.device_id);
    return other == NULL ? -1 : copy_between(queue, tw_opencl_queue(other, NULL), source, target, nbytes);
  }
  return tw_opencl_check(tw_opencl()->EnqueueSVMMemcpy(queue, CL_FALSE, target, source, nbytes, 0, NULL, NULL), "clEnqueueSVMMemcpy");
}

/* ---- streams ---- */
static int synchronize(void* ctx, int id, TVMStreamHandle stream) {
  (void)ctx;
  const TwClDevice* d = tw_opencl_device(id);
  return d == NULL ? -1 : tw_opencl_check(tw_opencl()->Finish(tw_opencl_queue(d, stream)), "clFinish");
}

static int stream_create(void* ctx, int id, TVMStreamHandle* out) {
  (void)ctx;
  TwClDevice* d = tw_opencl_device(id);
  int32_t status;
  if (d == NULL) return -1;
  void* queue = tw_opencl()->CreateCommandQueue(d->context, d->handle, CL_QUEUE_PROFILING, &status);
  if (queue == NULL) return tw_opencl_check(status, "clCreateCommandQueue");
  tw_lock(&d->lock);
  void** grown = realloc(d->streams, (d->num_streams + 1) * sizeof *grown);
  if (grown != NULL) {
    d->streams = grown;
    d->streams[d->num_streams++] = queue;
    /* while the default queue was alone, it read on in memory that came back (memory.c) */
    tw_opencl()->Finish(d->queue);
  }
  tw_unlock(&d->lock);
  if (grown == NULL) {
    tw_opencl()->ReleaseCommandQueue(queue);
    return tw_out_of_memory(sizeof *grown);
  }
  *out = queue;
  return 0;
}

static int stream_free(void* ctx, int id, TVMStreamHandle stream) {
  (void)ctx;
  TwClDevice* d = tw_opencl_device(id);
  if (d == NULL) return -1;
  tw_lock(&d->lock);
  size_t at = 0;
  while (at < d->num_streams && d->streams[at] != stream) ++at;
  const bool found = at < d->num_streams;
  if (found) d->streams[at] = d->streams[--d->num_streams];
  tw_unlock(&d->lock);
  if (!found) return tw_fail("a stream is freed that is none of this device");
  if (thread.streams[id] == stream) thread.streams[id] = NULL;
  const int rc = tw_opencl_check(tw_opencl()->Finish(stream), "clFinish");
  tw_opencl()->ReleaseCommandQueue(stream);
  return rc;
}

static int stream_set(void* ctx, int id, TVMStreamHandle stream) {
  (void)ctx;
  const TwClDevice* d = tw_opencl_device(id);
  if (d == NULL) return -1;
  thread.streams[id] = stream;
  return 0;
}

static int stream_wait(void* ctx, int id, TVMStreamHandle src, TVMStreamHandle dst) {
  (void)ctx;
  const TwClDevice* d = tw_opencl_device(id);
  const TwOpencl* cl = tw_opencl();
  void* event = NULL;
  if (d == NULL) return -1;
  void *from = tw_opencl_queue(d, src), *to = tw_opencl_queue(d, dst);
  if (tw_opencl_check(cl->EnqueueMarkerWithWaitList(from, 0, NULL, &event), "clEnqueueMarkerWithWaitList") != 0) return -1;
  int32_t status = cl->Flush(from);
  if (status == CL_OK) status = cl->EnqueueBarrierWithWaitList(to, 1, &event, NULL);
  cl->ReleaseEvent(event);
  return tw_opencl_check(status, "clEnqueueBarrierWithWaitList");
}

/* ---- timing ---- */
static int timer_start(void* ctx, int id, void** timer) {
  (void)ctx;
  const TwClDevice* d = tw_opencl_device(id);
  if (d == NULL) return -1;
  return tw_opencl_check(tw_opencl()->EnqueueMarkerWithWaitList(tw_opencl_queue(d, NULL), 0, NULL, timer), "clEnqueueMarkerWithWaitList");
}

static int ended(void* event, uint64_t* nanoseconds) {
  const int32_t status = tw_opencl()->GetEventProfilingInfo(event, CL_COMMAND_END, sizeof *nanoseconds, nanoseconds, NULL);
  return tw_opencl_check(status, "clGetEventProfilingInfo");
}

static int timer_stop(void* ctx, int id, void* timer, double* seconds) {
  (void)ctx;
  const TwClDevice* d = tw_opencl_device(id);
  const TwOpencl* cl = tw_opencl();
  void* events[2] = {timer, NULL};
  uint64_t start = 0, end = 0;
  int rc = d == NULL ? -1 : tw_opencl_check(cl->EnqueueMarkerWithWaitList(tw_opencl_queue(d, NULL), 0, NULL, &events[1]), "clEnqueueMarkerWithWaitList");
  if (rc == 0) rc = tw_opencl_check(cl->WaitForEvents(2, events), "clWaitForEvents");
  if (rc == 0) rc = ended(events[0], &start);
  if (rc == 0) rc = ended(events[1], &end);
  if (rc == 0) *seconds = end > start ? (double)(end - start) * 1e-9 : 0;
  cl->ReleaseEvent(events[0]);
  if (events[1] != NULL) cl->ReleaseEvent(events[1]);
  return rc;
}

/* ---- attributes ---- */
static int text_of(const TwClDevice* d, uint32_t what, TVMRetValueHandle ret) {
  char text[512] = "";
  if (tw_opencl_check(tw_opencl()->GetDeviceInfo(d->handle, what, sizeof text - 1, text, NULL), "clGetDeviceInfo") != 0) return -1;
  /* the version of a device is "OpenCL 3.0 what its maker adds" */
  const char* version = what == CL_VERSION && strncmp(text, "OpenCL ", 7) == 0 ? text + 7 : text;
  if (version != text) text[7 + strcspn(version, " ")] = '\0';
  return tw_return_string(ret, version);
}

static int number_of(const TwClDevice* d, uint32_t what, int64_t scale, TVMRetValueHandle ret) {
  uint64_t value = 0;
  if (tw_opencl_check(tw_opencl()->GetDeviceInfo(d->handle, what, sizeof value, &value, NULL), "clGetDeviceInfo") != 0) return -1;
  tw_return_int(ret, (int64_t)value * scale);
  return 0;
}

static int get_attr(void* ctx, int id, int attr, TVMRetValueHandle ret) {
  (void)ctx;
  const TwClDevice* d = tw_opencl_device(id);
  char text[128];
  if (d == NULL) return -1;
  switch (attr) {
    case kTilewrightMaxThreadsPerBlock:
      tw_return_int(ret, (int64_t)d->max_threads);
      return 0;
    case kTilewrightWarpSize: /* OpenCL knows no warps: threads agree at barriers only */
      tw_return_int(ret, 1);
      return 0;
    case kTilewrightMaxSharedMemoryPerBlock:
      tw_return_int(ret, (int64_t)d->local_memory);
      return 0;
    case kTilewrightComputeVersion: return text_of(d, CL_VERSION, ret);
    case kTilewrightDeviceName: return text_of(d, CL_NAME, ret);
    case kTilewrightMaxClockRate: return number_of(d, CL_MAX_CLOCK_FREQUENCY, 1000, ret);
    case kTilewrightMultiProcessorCount: return number_of(d, CL_MAX_COMPUTE_UNITS, 1, ret);
    case kTilewrightMaxThreadDimensions:
      snprintf(text, sizeof text, "[%llu, %llu, %llu]", (unsigned long long)d->max_threads_each[0],
               (unsigned long long)d->max_threads_each[1], (unsigned long long)d->max_threads_each[2]);
      return tw_return_string(ret, text);
    case kTilewrightApiVersion:
      tw_return_int(ret, 300);
      return 0;
    case kTilewrightDriverVersion: return text_of(d, CL_DRIVER_VERSION, ret);
    default: return 0;
  }
}

__attribute__((constructor)) static void register_device(void) {
  static const TilewrightDeviceAPI api = {
      .struct_size = sizeof api, .name = "opencl", .device_type = kDLOpenCL, .count = count, .alloc = alloc, .free = release,
      .copy = copy, .set = set, .get_attr = get_attr, .synchronize = synchronize, .stream_create = stream_create,
      .stream_free = stream_free, .stream_set = stream_set, .stream_wait = stream_wait, .timer_start = timer_start,
      .timer_stop = timer_stop};
  TilewrightDeviceRegister(&api);
}
