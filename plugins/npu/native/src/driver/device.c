/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Devices, and contexts on them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver.h"

static NpuDevice devices[NPU_DEVICES];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* In a process that was forked off: other threads held locks, or waited, and are not here to go on. */
static void forget_threads(void) {
  for (int i = 0; i < NPU_DEVICES; ++i) {
    pthread_mutex_init(&devices[i].mutex, NULL);
    npu_cond_init(&devices[i].changed);
  }
}

static void make_devices(void) {
  pthread_atfork(NULL, NULL, forget_threads);
  for (int i = 0; i < NPU_DEVICES; ++i) {
    devices[i].number = i;
    devices[i].timeout = NPU_WATCHDOG;
    pthread_mutex_init(&devices[i].mutex, NULL);
    npu_cond_init(&devices[i].changed);
    devices[i].heaps[NPU_DDR].storage.bytes = NPU_DDR_BYTES;
    devices[i].heaps[NPU_SRAM].storage.bytes = NPU_SRAM_BYTES;
  }
}

NpuDevice* npu_device_get(int number) {
  pthread_once(&once, make_devices);
  if (number < 0 || number >= NPU_DEVICES) {
    npu_fail(NPU_ERROR_NO_DEVICE, "there is no NPU %d; there are %d, from 0 on", number, NPU_DEVICES);
    return NULL;
  }
  return &devices[number];
}

NpuDevice* npu_device_of(const npu_context* context) {
  if (context != NULL) return context->device;
  npu_fail(NPU_ERROR_INVALID, "no context is given");
  return NULL;
}

bool npu_device_is_parents(const NpuDevice* device) { return device->contexts != NULL && device->process != getpid(); }

int npu_device_usable(const NpuDevice* device) {
  if (npu_device_is_parents(device)) {
    return npu_fail(NPU_ERROR_LOST, "NPU %d is used by the process that this one was forked off from: use it before or after a fork",
                    device->number);
  }
  if (!device->lost) return NPU_OK;
  return npu_fail(NPU_ERROR_LOST, "NPU %d is gone, until it is reset", device->number);
}

int npu_device_count(int* count) {
  *count = NPU_DEVICES;
  return NPU_OK;
}

static uint64_t free_bytes(const NpuHeap* heap) {
  uint64_t bytes = heap->storage.bytes;
  for (const npu_buffer* b = heap->lowest; b != NULL; b = b->above) bytes -= b->bytes;
  return bytes;
}

int npu_device_query(int number, npu_device_info* info) {
  NpuDevice* device = npu_device_get(number);
  if (device == NULL) return NPU_ERROR_NO_DEVICE;
  memset(info, 0, sizeof *info);
  snprintf(info->name, sizeof info->name, "emulated NPU %d", number);
  info->isa_version = NPU_ISA_VERSION;
  info->clock_khz = 1000000;
  info->sram_bytes = NPU_SRAM_BYTES;
  info->ddr_bytes = NPU_DDR_BYTES;
  pthread_mutex_lock(&device->mutex);
  info->sram_free = free_bytes(&device->heaps[NPU_SRAM]);
  info->ddr_free = free_bytes(&device->heaps[NPU_DDR]);
  pthread_mutex_unlock(&device->mutex);
  return NPU_OK;
}

int npu_device_reset(int number) {
  NpuDevice* device = npu_device_get(number);
  if (device == NULL) return NPU_ERROR_NO_DEVICE;
  pthread_mutex_lock(&device->mutex);
  if (!npu_device_is_parents(device)) npu_cancel(device, NULL);
  device->lost = false;
  device->fault = NPU_FAULT_NONE;
  pthread_mutex_unlock(&device->mutex);
  return NPU_OK;
}

int npu_inject(int number, npu_fault fault, uint32_t when) {
  NpuDevice* device = npu_device_get(number);
  if (device == NULL) return NPU_ERROR_NO_DEVICE;
  pthread_mutex_lock(&device->mutex);
  device->fault = fault;
  device->fault_when = when;
  pthread_mutex_unlock(&device->mutex);
  return NPU_OK;
}

/* ---- contexts ---- */
/* The memories' pages, which the host gives when they are touched. */
static int open_memory(NpuDevice* device) {
  for (int m = 0; m < 2; ++m) {
    NpuMemory* storage = &device->heaps[m].storage;
    storage->data = mmap(NULL, storage->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (storage->data == MAP_FAILED) {
      storage->data = NULL;
      return npu_fail(NPU_ERROR_HOST_MEMORY, "the emulator has no memory for NPU %d", device->number);
    }
  }
  return NPU_OK;
}

static void close_memory(NpuDevice* device) {
  for (int m = 0; m < 2; ++m) {
    NpuMemory* storage = &device->heaps[m].storage;
    if (storage->data != NULL) munmap(storage->data, storage->bytes);
    storage->data = NULL;
  }
  free(device->scratch.data);
  device->scratch = (NpuScratch){NULL, 0};
}

/* With the first context. */
static int wake(NpuDevice* device) {
  const int status = open_memory(device);
  device->process = getpid();
  if (status == NPU_OK && pthread_create(&device->worker, NULL, npu_worker, device) == 0) return NPU_OK;
  close_memory(device);
  return status != NPU_OK ? status : npu_fail(NPU_ERROR_HOST_MEMORY, "the emulator cannot start a thread");
}

static int admit(NpuDevice* device, npu_context* context) {
  int status = npu_device_usable(device);
  if (status != NPU_OK) return status;
  if (device->contexts != NULL && (context->exclusive || device->contexts->exclusive)) {
    return npu_fail(NPU_ERROR_BUSY, "NPU %d is busy: %s", device->number,
                    device->contexts->exclusive ? "a context holds it alone" : "it has other contexts");
  }
  if (device->contexts == NULL && (status = wake(device)) != NPU_OK) return status;
  context->next = device->contexts;
  device->contexts = context;
  return NPU_OK;
}

int npu_context_create(int number, uint32_t flags, npu_context** context) {
  NpuDevice* device = npu_device_get(number);
  if (device == NULL) return NPU_ERROR_NO_DEVICE;
  npu_context* made = calloc(1, sizeof *made);
  if (made == NULL) return npu_fail(NPU_ERROR_HOST_MEMORY, "the driver is out of memory");
  made->device = device;
  made->exclusive = (flags & NPU_EXCLUSIVE) != 0;
  made->timeout = -1;
  pthread_mutex_lock(&device->mutex);
  while (device->stopping) pthread_cond_wait(&device->changed, &device->mutex);
  const int status = admit(device, made);
  pthread_mutex_unlock(&device->mutex);
  if (status != NPU_OK) {
    free(made);
    return status;
  }
  *context = made;
  return NPU_OK;
}

/* All that a context has, with the mutex held and its work ended. */
static void empty(NpuDevice* device, npu_context* context) {
  while (context->models != NULL) npu_model_destroy(context->models);
  while (context->streams != NULL) {
    npu_stream* stream = context->streams;
    context->streams = stream->next;
    free(stream);
  }
  while (context->events != NULL) {
    npu_event* event = context->events;
    context->events = event->next;
    npu_event_release(event);
  }
  for (int m = 0; m < 2; ++m) {
    for (npu_buffer *b = device->heaps[m].lowest, *above; b != NULL; b = above) {
      above = b->above;
      if (b->context == context) npu_heap_free(b);
    }
  }
}

int npu_context_destroy(npu_context* context) {
  NpuDevice* device = npu_device_of(context);
  if (device == NULL) return NPU_ERROR_INVALID;
  pthread_mutex_lock(&device->mutex);
  const bool parents = npu_device_is_parents(device);
  if (!parents) npu_cancel(device, context);
  empty(device, context);
  npu_context** link = &device->contexts;
  while (*link != context) link = &(*link)->next;
  *link = context->next;
  if (device->contexts == NULL && parents) {
    device->first = device->last = device->running = NULL; /* the parent's */
    close_memory(device);
  } else if (device->contexts == NULL) {
    device->stopping = true;
    pthread_cond_broadcast(&device->changed);
    const pthread_t worker = device->worker;
    pthread_mutex_unlock(&device->mutex);
    pthread_join(worker, NULL);
    pthread_mutex_lock(&device->mutex);
    close_memory(device);
    device->stopping = false;
    pthread_cond_broadcast(&device->changed);
  }
  pthread_mutex_unlock(&device->mutex);
  free(context);
  return NPU_OK;
}

int npu_context_device(const npu_context* context, int* number) {
  const NpuDevice* device = npu_device_of(context);
  if (device == NULL) return NPU_ERROR_INVALID;
  *number = device->number;
  return NPU_OK;
}

int npu_context_set_timeout(npu_context* context, int64_t milliseconds) {
  NpuDevice* device = npu_device_of(context);
  if (device == NULL) return NPU_ERROR_INVALID;
  pthread_mutex_lock(&device->mutex);
  context->timeout = milliseconds;
  pthread_mutex_unlock(&device->mutex);
  return NPU_OK;
}

int npu_device_set_timeout(int number, int64_t milliseconds) {
  NpuDevice* device = npu_device_get(number);
  if (device == NULL) return NPU_ERROR_NO_DEVICE;
  pthread_mutex_lock(&device->mutex);
  device->timeout = milliseconds;
  pthread_mutex_unlock(&device->mutex);
  return NPU_OK;
}

/* ---- what is held ---- */
static void count_context(const npu_context* context, npu_held* held) {
  ++held->contexts;
  for (const npu_model* m = context->models; m != NULL; m = m->next) ++held->models;
  for (const npu_stream* s = context->streams; s != NULL; s = s->next) ++held->streams;
  for (const npu_event* e = context->events; e != NULL; e = e->next) ++held->events;
}

int npu_count_held(npu_held* held) {
  memset(held, 0, sizeof *held);
  for (int i = 0; i < NPU_DEVICES; ++i) {
    NpuDevice* device = npu_device_get(i);
    pthread_mutex_lock(&device->mutex);
    for (const npu_context* c = device->contexts; c != NULL; c = c->next) count_context(c, held);
    for (int m = 0; m < 2; ++m) {
      for (const npu_buffer* b = device->heaps[m].lowest; b != NULL; b = b->above) {
        ++held->buffers;
        *(m == NPU_DDR ? &held->ddr_bytes : &held->sram_bytes) += b->bytes;
      }
    }
    pthread_mutex_unlock(&device->mutex);
  }
  return NPU_OK;
}
