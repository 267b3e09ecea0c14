/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The host as a row of the table of devices. */
#include "device.h"

#include <limits.h>

/* As in TVM, any index is the one CPU. */
static int cpu_count(void* ctx, int* out) {
  (void)ctx;
  *out = INT_MAX;
  return 0;
}

/* The program's allocator, or NULL. */
static struct {
  void* (*alloc)(void* context, size_t nbytes, size_t alignment);
  void (*free)(void* context, void* memory);
  void* context;
} allocator;
static atomic_size_t live; /* allocations */

int TilewrightSetHostAllocator(void* (*alloc)(void* context, size_t nbytes, size_t alignment),
                               void (*free)(void* context, void* memory), void* context) {
  const size_t count = atomic_load(&live);
  if ((alloc == NULL) != (free == NULL)) return tw_fail("an allocator is two functions, one to allocate and one to free");
  if (count != 0) return tw_fail("the allocator cannot change while %zu arrays of the host have their memory from it", count);
  allocator.alloc = alloc;
  allocator.free = free;
  allocator.context = context;
  return 0;
}

static int cpu_alloc(void* ctx, int id, size_t nbytes, size_t alignment, DLDataType type_hint, const char* mem_scope,
                     void** out) {
  (void)ctx, (void)id, (void)type_hint;
  if (mem_scope != NULL && mem_scope[0] != '\0' && strcmp(mem_scope, "global") != 0) {
    return tw_fail("memory scope \"%s\" does not exist on this device; it has \"global\"", mem_scope);
  }
  const bool own = allocator.alloc == NULL;
  const size_t least = alignment < TW_ALIGNMENT ? TW_ALIGNMENT : alignment;
  *out = own ? tw_aligned_alloc(nbytes, alignment) : allocator.alloc(allocator.context, nbytes == 0 ? least : nbytes, least);
  if (*out == NULL) return tw_out_of_memory(nbytes);
  if (!own && (uintptr_t)*out % least != 0) {
    allocator.free(allocator.context, *out);
    return tw_fail("the program's allocator gave memory that is not aligned to %zu bytes", least);
  }
  atomic_fetch_add(&live, 1);
  return 0;
}

static int cpu_free(void* ctx, int id, void* ptr) {
  (void)ctx, (void)id;
  if (ptr == NULL) return 0;
  if (allocator.free == NULL) {
    tw_aligned_free(ptr);
  } else {
    allocator.free(allocator.context, ptr);
  }
  atomic_fetch_sub(&live, 1);
  return 0;
}

static int cpu_copy(void* ctx, const void* from, size_t from_offset, DLDevice from_device, void* to, size_t to_offset,
                    DLDevice to_device, size_t nbytes, DLDataType type_hint, TVMStreamHandle stream) {
  (void)ctx, (void)from_device, (void)to_device, (void)type_hint, (void)stream;
  memmove((char*)to + to_offset, (const char*)from + from_offset, nbytes);
  return 0;
}

const TilewrightDeviceAPI tw_cpu_device = {
    .struct_size = sizeof(TilewrightDeviceAPI), .name = "cpu", .device_type = kDLCPU, .flags = TILEWRIGHT_DEVICE_HOST_MEMORY,
    .count = cpu_count, .alloc = cpu_alloc, .free = cpu_free, .copy = cpu_copy};
