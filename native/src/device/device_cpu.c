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

static int cpu_alloc(void* ctx, int id, size_t nbytes, size_t alignment, DLDataType type_hint, const char* mem_scope,
                     void** out) {
  (void)ctx, (void)id, (void)type_hint;
  if (mem_scope != NULL && mem_scope[0] != '\0' && strcmp(mem_scope, "global") != 0) {
    return tw_fail("memory scope \"%s\" does not exist on this device; it has \"global\"", mem_scope);
  }
  *out = tw_aligned_alloc(nbytes, alignment);
  return *out == NULL ? tw_out_of_memory(nbytes) : 0;
}

static int cpu_free(void* ctx, int id, void* ptr) {
  (void)ctx, (void)id;
  free(ptr);
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
