/* Licensed under the Apache License, Version 2.0; see LICENSE. */
#include "npu.h"

#include <sys/mman.h>
#include <unistd.h>

Npu npu, dsp;

static int refused(const Npu* d, const char* why) {
  if (!d->silent) TVMAPISetLastError(why);
  return 7;
}

/* The pages that hold data[0..nbytes). */
void npu_open(const void* data, size_t nbytes, bool open) {
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)data & ~(page - 1);
  const size_t size = (uintptr_t)data + nbytes - first;
  CHECK(mprotect((void*)first, size, open ? PROT_READ | PROT_WRITE : PROT_NONE) == 0);
}

static int count(void* ctx, int* out) {
  *out = ctx == &npu ? 2 : 1;
  return 0;
}

/* The first page keeps the size. */
static int alloc(void* ctx, int id, size_t nbytes, size_t alignment, DLDataType type_hint, const char* mem_scope, void** out) {
  Npu* d = ctx;
  CHECK(id >= 0 && id < 2 && alignment >= 1 && type_hint.lanes >= 1);
  if (d->refuse) return refused(d, "the memory is full");
  if (mem_scope != NULL && strcmp(mem_scope, "global") != 0 && strcmp(mem_scope, "scratch") != 0) {
    return refused(d, "there is no such memory");
  }
  d->scope = mem_scope;
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), size = page + (nbytes == 0 ? 1 : nbytes);
  char* pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(pages != MAP_FAILED);
  memcpy(pages, &size, sizeof size);
  memset(pages + page, 0x5a, size - page); /* memory as it lies */
  CHECK(mprotect(pages + page, size - page, PROT_NONE) == 0);
  ++d->held;
  *out = pages + page;
  return 0;
}

static int release(void* ctx, int id, void* ptr) {
  Npu* d = ctx;
  char* pages = (char*)ptr - sysconf(_SC_PAGESIZE);
  size_t size;
  (void)id;
  memcpy(&size, pages, sizeof size);
  CHECK(munmap(pages, size) == 0);
  --d->held;
  return 0;
}

static int copy(void* ctx, const void* from, size_t from_offset, DLDevice from_device, void* to, size_t to_offset,
                DLDevice to_device, size_t nbytes, DLDataType type_hint, TVMStreamHandle stream) {
  Npu* d = ctx;
  const int type = d == &npu ? NPU : DSP;
  CHECK(from_device.device_type == type || to_device.device_type == type);
  CHECK(from_device.device_type == type || from_device.device_type == kDLCPU);
  CHECK(to_device.device_type == type || to_device.device_type == kDLCPU);
  CHECK(nbytes > 0 && type_hint.lanes >= 1);
  if (d->refuse) return refused(d, "the link is down");
  d->stream = stream;
  const char* source = (const char*)from + from_offset;
  char* target = (char*)to + to_offset;
  if (from_device.device_type == type) npu_open(source, nbytes, true);
  if (to_device.device_type == type) npu_open(target, nbytes, true);
  memmove(target, source, nbytes);
  if (from_device.device_type == type) npu_open(source, nbytes, false);
  if (to_device.device_type == type) npu_open(target, nbytes, false);
  return 0;
}

static int set(void* ctx, int id) {
  ((Npu*)ctx)->id = id;
  return 0;
}

static int get_attr(void* ctx, int id, int attr, TVMRetValueHandle ret) {
  (void)ctx;
  TVMValue value;
  int code;
  if (attr == kTilewrightDeviceName) {
    value.v_str = id == 0 ? "NPU zero" : "NPU one";
    code = kTVMStr;
  } else if (attr == kTilewrightMultiProcessorCount) {
    value.v_int64 = 4;
    code = kTVMArgInt;
  } else {
    return 0;
  }
  return TVMCFuncSetReturn(ret, &value, &code, 1);
}

static int synchronize(void* ctx, int id, TVMStreamHandle stream) {
  (void)id, (void)stream;
  ++((Npu*)ctx)->synchronized;
  return 0;
}

static int stream_create(void* ctx, int id, TVMStreamHandle* out) {
  (void)id;
  *out = ctx;
  return 0;
}

static int stream_use(void* ctx, int id, TVMStreamHandle stream) {
  (void)id;
  CHECK(stream == ctx);
  return 0;
}

static int executor_made(void* ctx, int id, TVMModuleHandle module, void** state) {
  Npu* d = ctx;
  CHECK(module != NULL);
  if (d->refuse) return refused(d, "no model fits");
  d->id = id;
  ++d->made;
  *state = d;
  return 0;
}

static void executor_gone(void* ctx, int id, void* state) {
  (void)id;
  CHECK(state == ctx);
  ++((Npu*)ctx)->gone;
}

void plug_npu_in(void) {
  static bool done;
  if (done) return;
  done = true;
  TilewrightDeviceAPI api = {
      .struct_size = sizeof api, .name = "npu", .device_type = NPU, .ctx = &npu, .count = count, .alloc = alloc,
      .free = release, .copy = copy, .set = set, .get_attr = get_attr, .synchronize = synchronize,
      .stream_create = stream_create, .stream_free = stream_use, .stream_set = stream_use,
      .executor_made = executor_made, .executor_gone = executor_gone};
  OK(TilewrightDeviceRegister(&api));
  /* the least that a device can be */
  TilewrightDeviceAPI least = {.struct_size = sizeof api, .name = "dsp", .device_type = DSP, .ctx = &dsp, .count = count,
                               .alloc = alloc, .free = release, .copy = copy};
  OK(TilewrightDeviceRegister(&least));
}
