/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Streams and events. */
#include <stdlib.h>
#include <string.h>

#include "driver.h"

int npu_stream_create(npu_context* context, npu_stream** stream) {
  NpuDevice* device = npu_device_of(context);
  if (device == NULL) return NPU_ERROR_INVALID;
  npu_stream* made = calloc(1, sizeof *made);
  if (made == NULL) return npu_fail(NPU_ERROR_HOST_MEMORY, "the driver is out of memory");
  made->context = context;
  pthread_mutex_lock(&device->mutex);
  made->next = context->streams;
  context->streams = made;
  pthread_mutex_unlock(&device->mutex);
  *stream = made;
  return NPU_OK;
}

int npu_stream_destroy(npu_stream* stream) {
  if (stream == NULL) return npu_fail(NPU_ERROR_INVALID, "no stream is given");
  NpuDevice* device = stream->context->device;
  pthread_mutex_lock(&device->mutex);
  struct timespec room;
  const struct timespec* deadline = npu_deadline(npu_timeout(stream->context), &room);
  bool in_time = true;
  if (npu_device_is_parents(device)) stream->pending = 0; /* nobody does it here */
  while (stream->pending > 0 && in_time) in_time = npu_wait_until(&device->changed, &device->mutex, deadline);
  const bool idle = stream->pending == 0;
  if (idle) {
    npu_stream** link = &stream->context->streams;
    while (*link != stream) link = &(*link)->next;
    *link = stream->next;
    free(stream);
  }
  pthread_mutex_unlock(&device->mutex);
  return idle ? NPU_OK : npu_fail(NPU_ERROR_BUSY, "the stream has work that is not done");
}

int npu_stream_wait(npu_stream* stream, int64_t milliseconds) {
  if (stream == NULL) return npu_fail(NPU_ERROR_INVALID, "no stream is given");
  NpuDevice* device = stream->context->device;
  pthread_mutex_lock(&device->mutex);
  struct timespec room;
  const struct timespec* deadline = npu_deadline(milliseconds, &room);
  bool in_time = true;
  while (stream->pending > 0 && in_time) in_time = npu_wait_until(&device->changed, &device->mutex, deadline);
  int status = stream->status;
  if (stream->pending > 0) {
    status = npu_fail(NPU_ERROR_TIMEOUT, "NPU %d: time-out after %lld ms; the work is still under way", device->number,
                      (long long)milliseconds);
  } else if (status != NPU_OK) {
    npu_fail((npu_status)status, "%s", stream->text);
    stream->status = NPU_OK;
  }
  pthread_mutex_unlock(&device->mutex);
  return status;
}

/* ---- events ---- */
int npu_event_create(npu_context* context, npu_event** event) {
  NpuDevice* device = npu_device_of(context);
  if (device == NULL) return NPU_ERROR_INVALID;
  npu_event* made = calloc(1, sizeof *made);
  if (made == NULL) return npu_fail(NPU_ERROR_HOST_MEMORY, "the driver is out of memory");
  made->context = context;
  made->references = 1;
  pthread_mutex_init(&made->mutex, NULL);
  npu_cond_init(&made->changed);
  pthread_mutex_lock(&device->mutex);
  made->next = context->events;
  context->events = made;
  pthread_mutex_unlock(&device->mutex);
  *event = made;
  return NPU_OK;
}

void npu_event_release(npu_event* event) {
  pthread_mutex_lock(&event->mutex);
  const int left = --event->references;
  pthread_mutex_unlock(&event->mutex);
  if (left > 0) return;
  pthread_mutex_destroy(&event->mutex);
  pthread_cond_destroy(&event->changed);
  free(event);
}

int npu_event_destroy(npu_event* event) {
  if (event == NULL) return npu_fail(NPU_ERROR_INVALID, "no event is given");
  NpuDevice* device = event->context->device;
  pthread_mutex_lock(&device->mutex);
  npu_event** link = &event->context->events;
  while (*link != event) link = &(*link)->next;
  *link = event->next;
  pthread_mutex_unlock(&device->mutex);
  npu_event_release(event);
  return NPU_OK;
}

/* Work of a stream about an event: its record, or waiting for the last one. */
static int submit(NpuJobKind kind, npu_stream* stream, npu_event* event) {
  if (stream == NULL || event == NULL) return npu_fail(NPU_ERROR_INVALID, "no stream or no event is given");
  NpuJob* job = calloc(1, sizeof *job);
  if (job == NULL) return npu_fail(NPU_ERROR_HOST_MEMORY, "the driver is out of memory");
  job->kind = kind, job->context = stream->context, job->stream = stream, job->event = event;
  NpuDevice* device = stream->context->device;
  pthread_mutex_lock(&device->mutex);
  pthread_mutex_lock(&event->mutex);
  ++event->references;
  job->ticket = kind == NPU_JOB_RECORD ? ++event->recorded : event->recorded;
  pthread_mutex_unlock(&event->mutex);
  npu_submit(device, job);
  pthread_mutex_unlock(&device->mutex);
  return NPU_OK;
}

int npu_event_record(npu_event* event, npu_stream* stream) { return submit(NPU_JOB_RECORD, stream, event); }

int npu_stream_wait_event(npu_stream* stream, npu_event* event) { return submit(NPU_JOB_WAIT, stream, event); }

int npu_event_wait(npu_event* event, int64_t milliseconds) {
  if (event == NULL) return npu_fail(NPU_ERROR_INVALID, "no event is given");
  pthread_mutex_lock(&event->mutex);
  struct timespec room;
  const struct timespec* deadline = npu_deadline(milliseconds, &room);
  const uint64_t ticket = event->recorded;
  bool in_time = true;
  while (event->happened < ticket && in_time) in_time = npu_wait_until(&event->changed, &event->mutex, deadline);
  const bool happened = event->happened >= ticket;
  pthread_mutex_unlock(&event->mutex);
  return happened ? NPU_OK : npu_fail(NPU_ERROR_TIMEOUT, "time-out after %lld ms: the event has not happened", (long long)milliseconds);
}
