/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The work of a device: a queue, and a thread that runs it piece by piece. What depends on what it was given later cannot be
 * asked for, so this order fulfils every order that streams and events ask for, across devices too. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "driver.h"

/* ---- time ---- */
void npu_cond_init(pthread_cond_t* cond) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(cond, &attributes);
  pthread_condattr_destroy(&attributes);
}

const struct timespec* npu_deadline(int64_t milliseconds, struct timespec* room) {
  if (milliseconds < 0) return NULL;
  clock_gettime(CLOCK_MONOTONIC, room);
  room->tv_sec += milliseconds / 1000;
  room->tv_nsec += milliseconds % 1000 * 1000000;
  if (room->tv_nsec >= 1000000000) ++room->tv_sec, room->tv_nsec -= 1000000000;
  return room;
}

bool npu_wait_until(pthread_cond_t* changed, pthread_mutex_t* mutex, const struct timespec* deadline) {
  if (deadline != NULL) return pthread_cond_timedwait(changed, mutex, deadline) != ETIMEDOUT;
  pthread_cond_wait(changed, mutex);
  return true;
}

int64_t npu_timeout(const npu_context* context) { return context->timeout < 0 ? context->device->timeout : context->timeout; }

/* ---- the end of work ---- */
static void set_result(NpuJob* job, int status) {
  job->status = status;
  if (status != NPU_OK) snprintf(job->text, sizeof job->text, "%s", npu_last_error());
}

/* Tells who asked for it. Work of a stream is freed, but its event is not told of: see happen. */
static void finish(NpuDevice* device, NpuJob* job) {
  npu_stream* stream = job->stream;
  job->done = true;
  if (job->status == NPU_ERROR_LOST && !device->lost) {
    device->lost = true;
    ++device->generation;
  }
  if (stream != NULL) {
    --stream->pending;
    if (job->status != NPU_OK && stream->status == NPU_OK) {
      stream->status = job->status;
      memcpy(stream->text, job->text, sizeof stream->text);
    }
    free(job);
  }
  pthread_cond_broadcast(&device->changed);
}

/* An event's record is done, with success or not: whoever waits for it goes on. */
static void happen(NpuJob* job) {
  npu_event* event = job->event;
  pthread_mutex_lock(&event->mutex);
  if (event->happened < job->ticket) event->happened = job->ticket;
  pthread_cond_broadcast(&event->changed);
  pthread_mutex_unlock(&event->mutex);
}

/* ---- running it: in the worker, without the mutex ---- */
static int wait_for_event(NpuJob* job) {
  npu_event* event = job->event;
  pthread_mutex_lock(&event->mutex);
  while (event->happened < job->ticket && !atomic_load(&job->cancelled)) {
    struct timespec room;
    npu_wait_until(&event->changed, &event->mutex, npu_deadline(5, &room)); /* 5 ms: to see that it is cancelled */
  }
  pthread_mutex_unlock(&event->mutex);
  return atomic_load(&job->cancelled) ? npu_fail(NPU_ERROR_CANCELLED, "waiting for an event was cancelled") : NPU_OK;
}

static int hang(NpuJob* job) {
  while (!atomic_load(&job->cancelled)) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  return npu_fail(NPU_ERROR_CANCELLED, "the launch was cancelled");
}

static int run(NpuJob* job, NpuScratch* scratch) {
  if (job->kind == NPU_JOB_COPY) {
    if (job->bytes > 0) memmove(job->to, job->from, job->bytes);
    return NPU_OK;
  }
  if (job->kind == NPU_JOB_LAUNCH) return job->hangs ? hang(job) : npu_model_run(job, scratch);
  if (job->kind == NPU_JOB_WAIT) return wait_for_event(job);
  return NPU_OK; /* a record has happened when its turn comes */
}

/* Why a job is not run; 0: it is. */
static int refuse(const NpuDevice* device, const NpuJob* job) {
  if (job->kind == NPU_JOB_RECORD) return NPU_OK;
  if (atomic_load(&job->cancelled)) return npu_fail(NPU_ERROR_CANCELLED, "the work was cancelled");
  if (job->stream != NULL && job->stream->status != NPU_OK) return npu_fail((npu_status)job->stream->status, "%s", job->stream->text);
  return npu_device_usable(device);
}

void* npu_worker(void* argument) {
  NpuDevice* device = argument;
  pthread_mutex_lock(&device->mutex);
  for (;;) {
    while (device->first == NULL && !device->stopping) pthread_cond_wait(&device->changed, &device->mutex);
    NpuJob* job = device->first;
    if (job == NULL) break;
    device->first = job->next;
    device->running = job;
    int status = refuse(device, job);
    if (status == NPU_OK) {
      pthread_mutex_unlock(&device->mutex);
      status = run(job, &device->scratch);
      set_result(job, status);
      pthread_mutex_lock(&device->mutex);
    } else {
      set_result(job, status);
    }
    if (job->event != NULL) {
      if (job->kind == NPU_JOB_RECORD) happen(job);
      npu_event_release(job->event);
    }
    device->running = NULL;
    finish(device, job);
  }
  pthread_mutex_unlock(&device->mutex);
  return NULL;
}

/* ---- handing it over ---- */
static void append(NpuDevice* device, NpuJob* job) {
  job->next = NULL;
  *(device->first == NULL ? &device->first : &device->last->next) = job;
  device->last = job;
  pthread_cond_broadcast(&device->changed);
}

void npu_submit(NpuDevice* device, NpuJob* job) {
  ++job->stream->pending;
  append(device, job);
}

int npu_perform(NpuDevice* device, NpuJob* job) {
  struct timespec room;
  const struct timespec* deadline = npu_deadline(npu_timeout(job->context), &room);
  append(device, job);
  bool late = false;
  while (!job->done) {
    if (npu_wait_until(&device->changed, &device->mutex, deadline) || job->done) continue;
    late = true;
    deadline = NULL; /* cancelled, it ends soon; behind other work it may not */
    atomic_store(&job->cancelled, true);
    NpuJob** link = &device->first;
    NpuJob* before = NULL;
    while (*link != NULL && *link != job) before = *link, link = &(*link)->next;
    if (*link == job) {
      *link = job->next;
      if (device->last == job) device->last = before;
      break;
    }
  }
  if (late) {
    return npu_fail(NPU_ERROR_TIMEOUT, "NPU %d: time-out after %lld ms; the work was cancelled", device->number,
                    (long long)npu_timeout(job->context));
  }
  return job->status == NPU_OK ? NPU_OK : npu_fail((npu_status)job->status, "%s", job->text);
}

static bool is_of(const NpuJob* job, const npu_context* context) {
  return job != NULL && (context == NULL || job->context == context);
}

static bool has_work(const NpuDevice* device, const npu_context* context) {
  if (is_of(device->running, context)) return true;
  for (const NpuJob* job = device->first; job != NULL; job = job->next) {
    if (is_of(job, context)) return true;
  }
  return false;
}

void npu_cancel(NpuDevice* device, const npu_context* context) {
  if (is_of(device->running, context)) atomic_store(&device->running->cancelled, true);
  for (NpuJob* job = device->first; job != NULL; job = job->next) {
    if (is_of(job, context)) atomic_store(&job->cancelled, true);
  }
  while (has_work(device, context)) pthread_cond_wait(&device->changed, &device->mutex);
}

/* Others may go on handing over: a marker tells when what was there is done. */
int npu_drain(NpuDevice* device, const npu_context* context) {
  if ((device->first == NULL && device->running == NULL) || npu_device_is_parents(device)) return NPU_OK;
  NpuJob marker = {.kind = NPU_JOB_RECORD, .context = (npu_context*)context};
  if (npu_perform(device, &marker) == NPU_OK) return NPU_OK;
  return npu_fail(NPU_ERROR_BUSY, "NPU %d is busy: it has work that is not done", device->number);
}
