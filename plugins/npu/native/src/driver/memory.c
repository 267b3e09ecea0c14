/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Memory of a device. The DDR is given out from below, the SRAM from above, since programs use it from below. */
#include <inttypes.h>
#include <stdlib.h>

#include "driver.h"

static const char* const memory_names[] = {"DDR", "SRAM"};

/* Bit 40 on is the device's number + 1, bit 39 says SRAM: an address of one is none of the other. */
npu_address npu_heap_base(const NpuDevice* device, npu_memory memory) {
  return ((npu_address)device->number + 1) << 40 | (npu_address)memory << 39;
}

/* Where bytes fit between two buffers; UINT64_MAX: they do not. */
static uint64_t fit(npu_memory memory, uint64_t low, uint64_t high, uint64_t bytes, uint64_t alignment) {
  if (memory == NPU_SRAM) {
    if (high < bytes) return UINT64_MAX;
    const uint64_t offset = (high - bytes) & ~(alignment - 1);
    return offset >= low ? offset : UINT64_MAX;
  }
  const uint64_t offset = (low + alignment - 1) & ~(alignment - 1);
  return offset <= high && high - offset >= bytes ? offset : UINT64_MAX;
}

/* The place for bytes and the buffer below it: the lowest in DDR, the highest in SRAM. */
static uint64_t place(const NpuHeap* heap, npu_memory memory, uint64_t bytes, uint64_t alignment, npu_buffer** below) {
  uint64_t found = UINT64_MAX;
  npu_buffer* b = NULL;
  for (;;) {
    npu_buffer* above = b == NULL ? heap->lowest : b->above;
    const uint64_t low = b == NULL ? 0 : b->offset + b->bytes, high = above == NULL ? heap->storage.bytes : above->offset;
    const uint64_t offset = fit(memory, low, high, bytes, alignment);
    if (offset != UINT64_MAX) {
      found = offset;
      *below = b;
      if (memory == NPU_DDR) return found;
    }
    if (above == NULL) return found;
    b = above;
  }
}

static int out_of(const NpuDevice* device, npu_memory memory, uint64_t bytes) {
  uint64_t held = 0;
  const NpuHeap* heap = &device->heaps[memory];
  for (const npu_buffer* b = heap->lowest; b != NULL; b = b->above) held += b->bytes;
  return npu_fail(memory == NPU_SRAM ? NPU_ERROR_OUT_OF_SRAM : NPU_ERROR_OUT_OF_DDR,
                  "out of %s: NPU %d has no room for %" PRIu64 " bytes; of %" PRIu64 ", %" PRIu64 " are given out", memory_names[memory],
                  device->number, bytes, heap->storage.bytes, held);
}

int npu_heap_alloc(npu_context* context, npu_memory memory, uint64_t bytes, uint64_t alignment, npu_buffer** buffer) {
  NpuHeap* heap = &context->device->heaps[memory];
  npu_buffer* below = NULL;
  if (bytes == 0) bytes = 1; /* an address of its own */
  if (alignment < NPU_ALIGNMENT) alignment = NPU_ALIGNMENT;
  const uint64_t offset = bytes > heap->storage.bytes ? UINT64_MAX : place(heap, memory, bytes, alignment, &below);
  if (offset == UINT64_MAX) return out_of(context->device, memory, bytes);
  npu_buffer* b = malloc(sizeof *b);
  if (b == NULL) return npu_fail(NPU_ERROR_HOST_MEMORY, "the driver is out of memory");
  npu_buffer* above = below == NULL ? heap->lowest : below->above;
  *b = (npu_buffer){context, memory, offset, bytes, below, above};
  *(below == NULL ? &heap->lowest : &below->above) = b;
  if (above != NULL) above->below = b;
  *buffer = b;
  return NPU_OK;
}

void npu_heap_free(npu_buffer* b) {
  NpuHeap* heap = &b->context->device->heaps[b->memory];
  *(b->below == NULL ? &heap->lowest : &b->below->above) = b->above;
  if (b->above != NULL) b->above->below = b->below;
  free(b);
}

npu_buffer* npu_heap_find(NpuDevice* device, npu_address address) {
  for (int m = 0; m < 2; ++m) {
    const npu_address base = npu_heap_base(device, (npu_memory)m);
    if (address < base || address - base >= device->heaps[m].storage.bytes) continue;
    for (npu_buffer* b = device->heaps[m].lowest; b != NULL; b = b->above) {
      if (b->offset <= address - base && address - base < b->offset + b->bytes) return b;
    }
  }
  return NULL;
}

int npu_heap_resolve(NpuDevice* device, npu_address address, uint64_t bytes, const char* what, uint8_t** data) {
  const npu_buffer* b = npu_heap_find(device, address);
  if (b == NULL) return npu_fail(NPU_ERROR_ADDRESS, "%s: 0x%" PRIx64 " is no memory given out by NPU %d", what, address, device->number);
  const uint64_t offset = address - npu_heap_base(device, b->memory);
  const uint64_t left = b->offset + b->bytes - offset;
  if (bytes > left) {
    return npu_fail(NPU_ERROR_ADDRESS, "%s: %" PRIu64 " bytes at 0x%" PRIx64 ", where the buffer has %" PRIu64, what, bytes, address, left);
  }
  *data = device->heaps[b->memory].storage.data + offset;
  return NPU_OK;
}

int npu_heap_sram_left(NpuDevice* device, uint64_t bytes) {
  const npu_buffer* lowest = device->heaps[NPU_SRAM].lowest;
  const uint64_t left = lowest == NULL ? NPU_SRAM_BYTES : lowest->offset;
  if (bytes <= left) return NPU_OK;
  return npu_fail(NPU_ERROR_OUT_OF_SRAM,
                  "out of SRAM: the program uses the first %" PRIu64 " bytes of NPU %d's, where buffers begin at %" PRIu64 " of %u",
                  bytes, device->number, left, (unsigned)NPU_SRAM_BYTES);
}

/* ---- the API ---- */
int npu_alloc(npu_context* context, npu_memory memory, size_t bytes, size_t alignment, npu_buffer** buffer) {
  NpuDevice* device = npu_device_of(context);
  if (device == NULL) return NPU_ERROR_INVALID;
  if ((memory != NPU_DDR && memory != NPU_SRAM) || alignment == 0 || (alignment & (alignment - 1)) != 0) {
    return npu_fail(NPU_ERROR_INVALID, "no memory %d, or an alignment of %zu that is no power of two", (int)memory, alignment);
  }
  pthread_mutex_lock(&device->mutex);
  int status = npu_device_usable(device);
  if (status == NPU_OK) status = npu_heap_alloc(context, memory, bytes, alignment, buffer);
  pthread_mutex_unlock(&device->mutex);
  return status;
}

int npu_free(npu_buffer* buffer) {
  if (buffer == NULL) return npu_fail(NPU_ERROR_INVALID, "no buffer is given");
  NpuDevice* device = buffer->context->device;
  pthread_mutex_lock(&device->mutex);
  const int status = npu_drain(device, buffer->context);
  if (status == NPU_OK) npu_heap_free(buffer);
  pthread_mutex_unlock(&device->mutex);
  return status;
}

int npu_buffer_map(npu_buffer* buffer, npu_address* address, size_t* bytes) {
  if (buffer == NULL) return npu_fail(NPU_ERROR_INVALID, "no buffer is given");
  *address = npu_heap_base(buffer->context->device, buffer->memory) + buffer->offset;
  if (bytes != NULL) *bytes = buffer->bytes;
  return NPU_OK;
}

int npu_buffer_find(int number, npu_address address, npu_buffer** buffer) {
  NpuDevice* device = npu_device_get(number);
  if (device == NULL) return NPU_ERROR_NO_DEVICE;
  pthread_mutex_lock(&device->mutex);
  *buffer = npu_heap_find(device, address);
  pthread_mutex_unlock(&device->mutex);
  if (*buffer != NULL) return NPU_OK;
  return npu_fail(NPU_ERROR_ADDRESS, "0x%" PRIx64 " is no memory given out by NPU %d", address, number);
}

/* A copy on a stream, or until it is done. */
static int copy(npu_context* context, NpuJob wanted, npu_stream* stream) {
  NpuDevice* device = context->device;
  if (stream == NULL) return npu_perform(device, &wanted);
  NpuJob* job = malloc(sizeof *job);
  if (job == NULL) return npu_fail(NPU_ERROR_HOST_MEMORY, "the driver is out of memory");
  *job = wanted;
  job->stream = stream;
  npu_submit(device, job);
  return NPU_OK;
}

int npu_write(npu_context* context, npu_address to, const void* from, size_t bytes, npu_stream* stream) {
  NpuDevice* device = npu_device_of(context);
  if (device == NULL) return NPU_ERROR_INVALID;
  NpuJob job = {.kind = NPU_JOB_COPY, .context = context, .from = from, .bytes = bytes};
  uint8_t* data = NULL;
  pthread_mutex_lock(&device->mutex);
  int status = npu_device_usable(device);
  if (status == NPU_OK) status = npu_heap_resolve(device, to, bytes, "a copy to the device", &data);
  job.to = data;
  if (status == NPU_OK) status = copy(context, job, stream);
  pthread_mutex_unlock(&device->mutex);
  return status;
}

int npu_read(npu_context* context, void* to, npu_address from, size_t bytes, npu_stream* stream) {
  NpuDevice* device = npu_device_of(context);
  if (device == NULL) return NPU_ERROR_INVALID;
  NpuJob job = {.kind = NPU_JOB_COPY, .context = context, .to = to, .bytes = bytes};
  uint8_t* data = NULL;
  pthread_mutex_lock(&device->mutex);
  int status = npu_device_usable(device);
  if (status == NPU_OK) status = npu_heap_resolve(device, from, bytes, "a copy from the device", &data);
  job.from = data;
  if (status == NPU_OK) status = copy(context, job, stream);
  pthread_mutex_unlock(&device->mutex);
  return status;
}

/* The bytes on the other device, for a copy from it. */
static int resolve_elsewhere(const NpuDevice* here, npu_address from, size_t bytes, uint8_t** data) {
  const int number = (int)(from >> 40) - 1;
  NpuDevice* device = npu_device_get(number);
  if (device == NULL || device == here) {
    return npu_fail(NPU_ERROR_ADDRESS, "a copy from 0x%" PRIx64 ", which is no memory of any NPU", from);
  }
  pthread_mutex_lock(&device->mutex);
  int status = npu_device_usable(device);
  if (status == NPU_OK) status = npu_heap_resolve(device, from, bytes, "a copy between devices", data);
  pthread_mutex_unlock(&device->mutex);
  return status;
}

int npu_copy(npu_context* context, npu_address to, npu_address from, size_t bytes, npu_stream* stream) {
  NpuDevice* device = npu_device_of(context);
  if (device == NULL) return NPU_ERROR_INVALID;
  NpuJob job = {.kind = NPU_JOB_COPY, .context = context, .bytes = bytes};
  uint8_t *source = NULL, *target = NULL;
  const bool here = (int)(from >> 40) - 1 == device->number;
  int status = here ? NPU_OK : resolve_elsewhere(device, from, bytes, &source);
  if (status != NPU_OK) return status;
  pthread_mutex_lock(&device->mutex);
  status = npu_device_usable(device);
  if (status == NPU_OK && here) status = npu_heap_resolve(device, from, bytes, "a copy on the device", &source);
  if (status == NPU_OK) status = npu_heap_resolve(device, to, bytes, "a copy on the device", &target);
  job.from = source, job.to = target;
  if (status == NPU_OK) status = copy(context, job, stream);
  pthread_mutex_unlock(&device->mutex);
  return status;
}
