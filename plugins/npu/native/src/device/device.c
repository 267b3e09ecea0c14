/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The device "npu" of Tilewright, over the NPU's driver. Its memories are "global", the DDR, and "global.sram". Arrays, streams
 * and executors of a device share a context of the driver's, which lives while there are any. */
#include <inttypes.h>
#include <npu_driver.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <tilewright.h>

enum { NPU_DEVICE_TYPE = 90, MAX_DEVICES = 16 };

static int fail(const char* message) {
  TVMAPISetLastError(message);
  return -1;
}

/* 0, or the driver's error as Tilewright's. */
static int checked(int status) { return status == NPU_OK ? 0 : fail(npu_last_error()); }

/* ---- the shared contexts ---- */
static struct {
  npu_context* context;
  uint64_t users;
} shared[MAX_DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* A context for one more user, who leaves it again. */
static int enter(int id, npu_context** context) {
  pthread_mutex_lock(&lock);
  int rc = 0;
  if (shared[id].users == 0) rc = checked(npu_context_create(id, 0, &shared[id].context));
  if (rc == 0) ++shared[id].users;
  *context = shared[id].context;
  pthread_mutex_unlock(&lock);
  return rc;
}

static int leave(int id) {
  pthread_mutex_lock(&lock);
  int rc = 0;
  if (--shared[id].users == 0) {
    rc = checked(npu_context_destroy(shared[id].context));
    shared[id].context = NULL;
  }
  pthread_mutex_unlock(&lock);
  return rc;
}

/* ---- memory ---- */
static int npu_device_api_count(void* ctx, int* out) {
  (void)ctx;
  return checked(npu_device_count(out));
}

static int memory_of(const char* scope, npu_memory* memory) {
  if (scope == NULL || strcmp(scope, "global") == 0) {
    *memory = NPU_DDR;
  } else if (strcmp(scope, "global.sram") == 0) {
    *memory = NPU_SRAM;
  } else {
    char text[160];
    snprintf(text, sizeof text, "it has no memory \"%.64s\": its memories are \"global\" (DDR) and \"global.sram\"", scope);
    return fail(text);
  }
  return 0;
}

static int npu_device_alloc(void* ctx, int id, size_t nbytes, size_t alignment, DLDataType type_hint, const char* mem_scope,
                            void** out) {
  (void)ctx, (void)type_hint;
  npu_memory memory;
  npu_context* context;
  npu_buffer* buffer;
  npu_address address;
  if (memory_of(mem_scope, &memory) != 0 || enter(id, &context) != 0) return -1;
  if (checked(npu_alloc(context, memory, nbytes, alignment, &buffer)) != 0) {
    leave(id); /* the text stays: leaving an idle context does not fail */
    return -1;
  }
  npu_buffer_map(buffer, &address, NULL);
  *out = (void*)(uintptr_t)address;
  return 0;
}

static int npu_device_free(void* ctx, int id, void* ptr) {
  (void)ctx;
  npu_buffer* buffer;
  if (checked(npu_buffer_find(id, (uintptr_t)ptr, &buffer)) != 0 || checked(npu_free(buffer)) != 0) return -1;
  return leave(id);
}

static int npu_device_copy(void* ctx, const void* from, size_t from_offset, DLDevice from_device, void* to, size_t to_offset,
                           DLDevice to_device, size_t nbytes, DLDataType type_hint, TVMStreamHandle stream) {
  (void)ctx, (void)type_hint;
  const bool reads = from_device.device_type == NPU_DEVICE_TYPE, writes = to_device.device_type == NPU_DEVICE_TYPE;
  const int id = writes ? to_device.device_id : from_device.device_id;
  const npu_address source = (uintptr_t)from + from_offset, target = (uintptr_t)to + to_offset;
  npu_context* context;
  if (enter(id, &context) != 0) return -1;
  int status;
  if (reads && writes) {
    status = npu_copy(context, target, source, nbytes, stream);
  } else if (writes) {
    status = npu_write(context, target, (const char*)from + from_offset, nbytes, stream);
  } else {
    status = npu_read(context, (char*)to + to_offset, source, nbytes, stream);
  }
  const int rc = checked(status);
  leave(id);
  return rc;
}

/* Memory of a kernel's host code, given back as soon as that is done. */
static int npu_device_workspace_alloc(void* ctx, int id, size_t nbytes, DLDataType type_hint, void** out) {
  return npu_device_alloc(ctx, id, nbytes, NPU_ALIGNMENT, type_hint, NULL, out);
}

/* ---- streams: one of Tilewright's is one of the driver's ---- */
static int npu_device_stream_create(void* ctx, int id, TVMStreamHandle* out) {
  (void)ctx;
  npu_context* context;
  if (enter(id, &context) != 0) return -1;
  npu_stream* stream = NULL;
  const int rc = checked(npu_stream_create(context, &stream));
  if (rc != 0) leave(id);
  *out = stream;
  return rc;
}

static int npu_device_stream_free(void* ctx, int id, TVMStreamHandle stream) {
  (void)ctx;
  return checked(npu_stream_destroy(stream)) != 0 ? -1 : leave(id);
}

static _Thread_local npu_stream* current_stream;

static int npu_device_stream_set(void* ctx, int id, TVMStreamHandle stream) {
  (void)ctx, (void)id;
  current_stream = stream;
  return 0;
}

/* Work without a stream is done when its call returns. */
static int npu_device_synchronize(void* ctx, int id, TVMStreamHandle stream) {
  (void)ctx, (void)id;
  return stream == NULL ? 0 : checked(npu_stream_wait(stream, -1));
}

static int npu_device_stream_wait(void* ctx, int id, TVMStreamHandle src, TVMStreamHandle dst) {
  (void)ctx;
  if (src == NULL || dst == NULL) return npu_device_synchronize(ctx, id, src);
  npu_context* context;
  npu_event* event = NULL;
  if (enter(id, &context) != 0) return -1;
  int rc = checked(npu_event_create(context, &event));
  if (rc == 0) {
    rc = checked(npu_event_record(event, src));
    if (rc == 0) rc = checked(npu_stream_wait_event(dst, event));
    npu_event_destroy(event);
  }
  leave(id);
  return rc;
}

/* ---- attributes ---- */
static int return_text(TVMRetValueHandle ret, const char* text) {
  TVMValue value = {.v_str = text};
  int code = kTVMStr;
  return TVMCFuncSetReturn(ret, &value, &code, 1);
}

static int return_number(TVMRetValueHandle ret, int64_t number) {
  TVMValue value = {.v_int64 = number};
  int code = kTVMArgInt;
  return TVMCFuncSetReturn(ret, &value, &code, 1);
}

static int npu_device_attr(void* ctx, int id, int attr, TVMRetValueHandle ret) {
  (void)ctx;
  npu_device_info info;
  if (checked(npu_device_query(id, &info)) != 0) return -1;
  char version[32];
  snprintf(version, sizeof version, "%" PRIu32 ".0", info.isa_version);
  switch (attr) {
    case kTilewrightDeviceName: return return_text(ret, info.name);
    case kTilewrightComputeVersion: return return_text(ret, version);
    case kTilewrightMaxClockRate: return return_number(ret, info.clock_khz);
    case kTilewrightMultiProcessorCount: return return_number(ret, 1);
    case kTilewrightMaxSharedMemoryPerBlock: return return_number(ret, (int64_t)info.sram_bytes);
    case kTilewrightDriverVersion: return return_number(ret, npu_version());
    default: return 0;
  }
}

/* ---- executors ---- */
/* A module may bring models: its function "npu_executor_made" gets the device's number, and loads them. */
static int tell_one(int id, TVMModuleHandle module) {
  TVMFunctionHandle f = NULL;
  if (TVMModGetFunction(module, "npu_executor_made", 0, &f) != 0) return -1;
  if (f == NULL) return 0;
  TVMValue argument = {.v_int64 = id}, result;
  int code = kTVMArgInt, result_code;
  const int rc = TVMFuncCall(f, &argument, &code, 1, &result, &result_code);
  TVMFuncFree(f);
  return rc;
}

/* A module and all that it imports. */
static int tell_module(int id, TVMModuleHandle module) {
  if (module == NULL) return 0;
  int rc = tell_one(id, module);
  const int count = TilewrightModNumImports(module);
  for (int i = 0; rc == 0 && i < count; ++i) {
    TVMModuleHandle import;
    rc = TilewrightModGetImport(module, i, &import);
    if (rc != 0) break;
    rc = tell_module(id, import);
    TVMModFree(import);
  }
  return rc;
}

static int npu_device_executor_made(void* ctx, int id, TVMModuleHandle module, void** state) {
  (void)ctx;
  npu_context* context;
  if (enter(id, &context) != 0) return -1;
  if (tell_module(id, module) != 0) {
    leave(id);
    return -1;
  }
  *state = context;
  return 0;
}

static void npu_device_executor_gone(void* ctx, int id, void* state) {
  (void)ctx, (void)state;
  leave(id);
}

/* The stream that the calling thread set, for what launches work: NULL, the default one, or an npu_stream. */
static int get_current_stream(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  (void)args, (void)codes, (void)n, (void)resource;
  TVMValue value = {.v_handle = current_stream};
  int code = kTVMOpaqueHandle;
  return TVMCFuncSetReturn(ret, &value, &code, 1);
}

TVM_DLL int TilewrightPluginInit(void) {
  if (checked(npu_init(NPU_DRIVER_VERSION)) != 0) return -1;
  int count = 0;
  if (checked(npu_device_count(&count)) != 0) return -1;
  if (count > MAX_DEVICES) return fail("the driver has more NPUs than this plug-in knows");
  TVMFunctionHandle f;
  if (TVMFuncCreateFromCFunc(get_current_stream, NULL, NULL, &f) != 0) return -1;
  const int rc = TVMFuncRegisterGlobal("npu.current_stream", f, 1);
  TVMFuncFree(f);
  if (rc != 0) return -1;
  const TilewrightDeviceAPI api = {.struct_size = sizeof api,
                                   .name = "npu",
                                   .device_type = NPU_DEVICE_TYPE,
                                   .count = npu_device_api_count,
                                   .alloc = npu_device_alloc,
                                   .free = npu_device_free,
                                   .copy = npu_device_copy,
                                   .get_attr = npu_device_attr,
                                   .synchronize = npu_device_synchronize,
                                   .stream_create = npu_device_stream_create,
                                   .stream_free = npu_device_stream_free,
                                   .stream_set = npu_device_stream_set,
                                   .stream_wait = npu_device_stream_wait,
                                   .workspace_alloc = npu_device_workspace_alloc,
                                   .workspace_free = npu_device_free,
                                   .executor_made = npu_device_executor_made,
                                   .executor_gone = npu_device_executor_gone};
  return TilewrightDeviceRegister(&api);
}
