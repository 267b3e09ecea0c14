/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The table of devices. A row is a TilewrightDeviceAPI; the CPU's are in device_cpu.c, plug-ins bring others. Rows are only
 * ever added, so that readers need no lock. */
#include "device.h"

#include <ctype.h>
#include <stddef.h>

typedef const TilewrightDeviceAPI Row;

static _Atomic(Row*) rows[TILEWRIGHT_MAX_DEVICE_TYPE + 1] = {[kDLCPU] = &tw_cpu_device};
static TwLock rows_lock = TW_LOCK_INITIALIZER;

/* ---- names ---- */
/* Names of TVM's device types; theirs whether or not such a device has been plugged in. */
static const char* const known_names[16] = {
    [kDLCPU] = "cpu",       [kDLCUDA] = "cuda",     [kDLCUDAHost] = "cuda_host", [kDLOpenCL] = "opencl",
    [kDLAOCL] = "aocl",     [kDLSDAccel] = "sdaccel", [kDLVulkan] = "vulkan",    [kDLMetal] = "metal",
    [kDLVPI] = "vpi",       [kDLROCM] = "rocm",     [kDLROCMHost] = "rocm_host", [kDLExtDev] = "ext_dev",
    [kDLCUDAManaged] = "cuda_managed", [kDLHexagon] = "hexagon", [kDLWebGPU] = "webgpu"};
enum { NUM_KNOWN = sizeof known_names / sizeof known_names[0] };

const TilewrightDeviceAPI* (*tw_find_remote_device)(int type);

const TilewrightDeviceAPI* TilewrightDeviceFind(int type) {
  if (type > TILEWRIGHT_MAX_DEVICE_TYPE) return tw_find_remote_device == NULL ? NULL : tw_find_remote_device(type);
  return type < 1 ? NULL : atomic_load_explicit(&rows[type], memory_order_acquire);
}

const char* TilewrightDeviceName(int type) {
  Row* row = TilewrightDeviceFind(type);
  if (row != NULL) return row->name;
  return type >= 0 && type < NUM_KNOWN ? known_names[type] : NULL;
}

int TilewrightDeviceType(const char* name) {
  for (int type = 1; type <= TILEWRIGHT_MAX_DEVICE_TYPE; ++type) {
    const char* other = TilewrightDeviceName(type);
    if (other != NULL && strcmp(other, name) == 0) return type;
  }
  return 0;
}

int TilewrightDeviceIsHost(int type) {
  Row* row = TilewrightDeviceFind(type);
  return row != NULL && (row->flags & TILEWRIGHT_DEVICE_HOST_MEMORY) != 0;
}

char* tw_device_text(DLDevice device, char* buffer) {
  const char* name = TilewrightDeviceName(device.device_type);
  if (name == NULL) {
    snprintf(buffer, TW_DEVICE_TEXT, "device type %d (%d)", device.device_type, device.device_id);
  } else {
    snprintf(buffer, TW_DEVICE_TEXT, "%.60s(%d)", name, device.device_id);
  }
  return buffer;
}

/* ---- registration ---- */
static bool is_name(const char* name) {
  if (!isalpha((unsigned char)name[0]) || strlen(name) > 60) return false;
  for (; *name != '\0'; ++name) {
    if (!isalnum((unsigned char)*name) && *name != '_') return false;
  }
  return true;
}

/* Reads the plug-in's struct, which may be of an older or newer header than this. */
static int read_struct(const TilewrightDeviceAPI* api, TilewrightDeviceAPI* out) {
  const size_t least = offsetof(TilewrightDeviceAPI, set);
  if (api->struct_size < least || api->struct_size > 4096) {
    return tw_fail("a device plug-in gives its TilewrightDeviceAPI a size of %zu bytes, where it needs %zu and this runtime knows "
                   "%zu; set struct_size to sizeof(TilewrightDeviceAPI)",
                   api->struct_size, least, sizeof *api);
  }
  const char* bytes = (const char*)api;
  for (size_t i = sizeof *api; i < api->struct_size; ++i) {
    if (bytes[i] != 0) {
      return tw_fail("the device plug-in was built for a newer runtime and has functions that this one does not know; update "
                     "Tilewright or rebuild the plug-in");
    }
  }
  memset(out, 0, sizeof *out);
  memcpy(out, api, api->struct_size < sizeof *out ? api->struct_size : sizeof *out);
  out->struct_size = sizeof *out;
  return 0;
}

static int check_functions(const TilewrightDeviceAPI* api) {
  const struct {
    const char* name;
    bool given;
  } needed[] = {{"count", api->count != NULL},
                {"alloc", api->alloc != NULL},
                {"free", api->free != NULL},
                {"copy", api->copy != NULL}};
  for (size_t i = 0; i < sizeof needed / sizeof needed[0]; ++i) {
    if (!needed[i].given) return tw_fail("device plug-in \"%s\" lacks the function %s", api->name, needed[i].name);
  }
  const int streams = (api->stream_create != NULL) + (api->stream_free != NULL) + (api->stream_set != NULL);
  if (streams != 0 && streams != 3) {
    return tw_fail("device plug-in \"%s\" has %d of stream_create, stream_free and stream_set; give all or none", api->name,
                   streams);
  }
  if ((api->timer_start != NULL) != (api->timer_stop != NULL)) {
    return tw_fail("device plug-in \"%s\" has one of timer_start and timer_stop; give both or none", api->name);
  }
  if ((api->workspace_alloc != NULL) != (api->workspace_free != NULL)) {
    return tw_fail("device plug-in \"%s\" has one of workspace_alloc and workspace_free; give both or none", api->name);
  }
  return 0;
}

static int check_place(const TilewrightDeviceAPI* api) {
  const int type = api->device_type;
  if (type < 1 || type > TILEWRIGHT_MAX_DEVICE_TYPE) {
    return tw_fail("device plug-in \"%s\" takes device type %d; device types are 1 to %d", api->name, type,
                   TILEWRIGHT_MAX_DEVICE_TYPE);
  }
  const char* owner = TilewrightDeviceName(type);
  if (TilewrightDeviceFind(type) != NULL || (owner != NULL && strcmp(owner, api->name) != 0)) {
    return tw_fail("device plug-in \"%s\" takes device type %d, which belongs to \"%s\"", api->name, type, owner);
  }
  const int other = TilewrightDeviceType(api->name);
  if (other != 0 && other != type) {
    return tw_fail("device plug-in \"%s\" takes device type %d, but device type %d has that name already", api->name, type,
                   other);
  }
  return 0;
}

int TilewrightDeviceRegister(const TilewrightDeviceAPI* api) {
  TilewrightDeviceAPI row;
  if (read_struct(api, &row) != 0) return -1;
  if (row.name == NULL || !is_name(row.name)) {
    return tw_fail("a device plug-in must have a name of up to 60 letters, digits and '_' that begins with a letter");
  }
  if (check_functions(&row) != 0) return -1;
  TilewrightDeviceAPI* kept = malloc(sizeof *kept);
  row.name = tw_strdup(row.name);
  if (kept == NULL || row.name == NULL) {
    free(kept);
    free((char*)row.name);
    return tw_out_of_memory(sizeof *kept);
  }
  *kept = row;
  tw_lock(&rows_lock);
  int rc = check_place(kept);
  if (rc == 0) atomic_store_explicit(&rows[kept->device_type], kept, memory_order_release);
  tw_unlock(&rows_lock);
  if (rc != 0) {
    free((char*)row.name);
    free(kept);
  }
  return rc;
}

/* ---- use ---- */
const TilewrightDeviceAPI* tw_device_row(DLDevice device) {
  Row* row = TilewrightDeviceFind(device.device_type);
  if (row == NULL) {
    char text[TW_DEVICE_TEXT];
    tw_fail("device %s (type %d) is not available in this runtime: no plug-in has registered it",
            tw_device_text(device, text), device.device_type);
  }
  return row;
}

/* A plug-in's function gave rc: 0 when that is 0, else -1 with an error that names the device. */
static int outcome(DLDevice device, const char* what, int rc) {
  if (rc == 0) return 0;
  char text[TW_DEVICE_TEXT];
  char* said = tw_strdup(TVMGetLastError());
  tw_device_text(device, text);
  Row* row = TilewrightDeviceFind(device.device_type);
  if (row != NULL && (row->flags & TILEWRIGHT_DEVICE_REMOTE) != 0 && said != NULL) {
    tw_fail("%s", said); /* its kind of error is told by how it begins */
  } else if (said == NULL || said[0] == '\0') {
    tw_fail("%s: %s failed with code %d and left no message", text, what, rc);
  } else {
    tw_fail("%s: %s", text, said);
  }
  free(said);
  return -1;
}

bool tw_same_memory(DLDevice a, DLDevice b) {
  return (a.device_type == b.device_type && a.device_id == b.device_id) || (tw_is_host(a) && tw_is_host(b));
}

int tw_device_exists(DLDevice device, bool* out) {
  Row* row = TilewrightDeviceFind(device.device_type);
  int count = 0;
  *out = false;
  if (row == NULL) return 0;
  tw_clear_error();
  if (outcome(device, "count", row->count(row->ctx, &count)) != 0) return -1;
  *out = device.device_id >= 0 && device.device_id < count;
  return 0;
}

/* The row of a device that is there, or NULL and an error. */
static Row* present(DLDevice device) {
  Row* row = tw_device_api(device);
  if (row == NULL || row == &tw_cpu_device) return row;
  bool there;
  if (tw_device_exists(device, &there) != 0) return NULL;
  if (there) return row;
  char text[TW_DEVICE_TEXT];
  char* why = tw_strdup(TVMGetLastError());
  tw_fail("there is no device %s%s%s", tw_device_text(device, text), why == NULL || why[0] == '\0' ? "" : ": ", why == NULL ? "" : why);
  free(why);
  return NULL;
}

int tw_device_check(DLDevice device) { return present(device) == NULL ? -1 : 0; }

void* tw_device_alloc(DLDevice device, size_t nbytes, size_t alignment, DLDataType hint, const char* scope) {
  Row* row = present(device);
  if (row == NULL) return NULL;
  void* ptr = NULL;
  tw_clear_error();
  int rc = row->alloc(row->ctx, device.device_id, nbytes, alignment, hint, scope, &ptr);
  if (rc == 0 && ptr == NULL) rc = tw_fail("alloc gave no memory for %zu bytes", nbytes);
  return outcome(device, "alloc", rc) == 0 ? ptr : NULL;
}

/* Memory goes after failures too, whose text stays: this and workspace_free do not begin with a cleared one. */
int tw_device_free(DLDevice device, void* ptr) {
  Row* row = tw_device_api(device);
  if (row == NULL) return -1;
  return outcome(device, "free", row->free(row->ctx, device.device_id, ptr));
}

static int synchronize(Row* row, DLDevice device, TVMStreamHandle stream) {
  if (row->synchronize == NULL) return 0;
  tw_clear_error();
  return outcome(device, "synchronize", row->synchronize(row->ctx, device.device_id, stream));
}

/* One copy by the device that can do it. */
static int copy_by(DLDevice device, const TwPlace* from, const TwPlace* to, size_t nbytes, DLDataType hint,
                   TVMStreamHandle stream) {
  Row* row = tw_device_api(device);
  if (row == NULL) return -1;
  tw_clear_error();
  int rc = row->copy(row->ctx, from->data, from->offset, from->device, to->data, to->offset, to->device, nbytes, hint, stream);
  if (outcome(device, "copy", rc) != 0) return -1;
  /* the host goes on to read the result, or to change what was copied */
  const bool with_host = tw_is_host(from->device) || tw_is_host(to->device);
  return with_host && stream == NULL ? synchronize(row, device, NULL) : 0;
}

/* Between devices that know nothing of each other. */
static int copy_through_host(const TwPlace* from, const TwPlace* to, size_t nbytes, DLDataType hint) {
  TwPlace between = {tw_aligned_alloc(nbytes, TW_ALIGNMENT), 0, {kDLCPU, 0}};
  if (between.data == NULL) return tw_out_of_memory(nbytes);
  int rc = copy_by(from->device, from, &between, nbytes, hint, NULL);
  if (rc == 0) rc = copy_by(to->device, &between, to, nbytes, hint, NULL);
  tw_aligned_free(between.data);
  return rc;
}

int tw_device_copy(const TwPlace* from, const TwPlace* to, size_t nbytes, DLDataType hint, TVMStreamHandle stream) {
  const bool from_host = tw_is_host(from->device), to_host = tw_is_host(to->device);
  TwPlace host;
  if (from_host && to_host) {
    /* an overlapping copy (an array onto itself) is fine */
    memmove((char*)to->data + to->offset, (const char*)from->data + from->offset, nbytes);
    return 0;
  }
  if (from_host) {
    host = (TwPlace){from->data, from->offset, {kDLCPU, 0}};
    return copy_by(to->device, &host, to, nbytes, hint, stream);
  }
  if (to_host) {
    host = (TwPlace){to->data, to->offset, {kDLCPU, 0}};
    return copy_by(from->device, from, &host, nbytes, hint, stream);
  }
  if (from->device.device_type != to->device.device_type) return copy_through_host(from, to, nbytes, hint);
  return copy_by(from->device, from, to, nbytes, hint, stream);
}

int tw_device_zero(DLDevice device, void* data, size_t nbytes) {
  if (tw_is_host(device)) {
    memset(data, 0, nbytes);
    return 0;
  }
  const size_t step = nbytes < ((size_t)1 << 20) ? nbytes : (size_t)1 << 20;
  const TwPlace from = {calloc(1, step + 1), 0, {kDLCPU, 0}};
  int rc = from.data == NULL ? tw_out_of_memory(step) : 0;
  for (size_t done = 0; rc == 0 && done < nbytes; done += step) {
    const TwPlace to = {data, done, device};
    rc = tw_device_copy(&from, &to, nbytes - done < step ? nbytes - done : step, (DLDataType){kDLUInt, 8, 1}, NULL);
  }
  free(from.data);
  return rc;
}

int tw_device_attribute(DLDevice device, int attr, TVMRetValueHandle ret) {
  Row* row = present(device);
  if (row == NULL) return -1;
  if (row->get_attr == NULL) return 0;
  tw_clear_error();
  return outcome(device, "get_attr", row->get_attr(row->ctx, device.device_id, attr, ret));
}

void* tw_device_workspace(DLDevice device, size_t nbytes, DLDataType hint) {
  Row* row = tw_device_api(device);
  if (row == NULL) return NULL;
  void* ptr = NULL;
  tw_clear_error();
  int rc = row->workspace_alloc(row->ctx, device.device_id, nbytes, hint, &ptr);
  if (rc == 0 && ptr == NULL) rc = tw_fail("workspace_alloc gave no memory for %zu bytes", nbytes);
  return outcome(device, "workspace_alloc", rc) == 0 ? ptr : NULL;
}

int tw_device_workspace_free(DLDevice device, void* ptr) {
  Row* row = tw_device_api(device);
  if (row == NULL) return -1;
  return outcome(device, "workspace_free", row->workspace_free(row->ctx, device.device_id, ptr));
}

int tw_device_set(DLDevice device) {
  Row* row = present(device);
  if (row == NULL) return -1;
  if (row->set == NULL) return 0;
  tw_clear_error();
  return outcome(device, "set", row->set(row->ctx, device.device_id));
}

int tw_device_synchronize(DLDevice device) {
  Row* row = tw_device_api(device);
  return row == NULL ? -1 : synchronize(row, device, NULL);
}

int tw_device_timer_start(DLDevice device, TwTimer* timer) {
  Row* row = tw_device_api(device);
  *timer = (TwTimer){.device = device};
  if (row == NULL) return -1;
  if (row->timer_start != NULL) {
    tw_clear_error();
    return outcome(device, "timer_start", row->timer_start(row->ctx, device.device_id, &timer->own));
  }
  timer->start = tw_now();
  return 0;
}

int tw_device_timer_stop(TwTimer* timer, double* seconds) {
  Row* row = tw_device_api(timer->device);
  if (row == NULL) return -1;
  if (row->timer_stop != NULL) {
    tw_clear_error();
    return outcome(timer->device, "timer_stop", row->timer_stop(row->ctx, timer->device.device_id, timer->own, seconds));
  }
  if (synchronize(row, timer->device, NULL) != 0) return -1;
  *seconds = tw_now() - timer->start;
  return 0;
}

int tw_device_executor_made(DLDevice device, TVMModuleHandle module, void** state) {
  Row* row = present(device);
  *state = NULL;
  if (row == NULL) return -1;
  if (row->executor_made == NULL) return 0;
  tw_clear_error();
  return outcome(device, "executor_made", row->executor_made(row->ctx, device.device_id, module, state));
}

void tw_device_executor_gone(DLDevice device, void* state) {
  Row* row = TilewrightDeviceFind(device.device_type);
  if (row != NULL && row->executor_gone != NULL) row->executor_gone(row->ctx, device.device_id, state);
}

/* ---- TVM's functions ---- */
int TVMDeviceAllocDataSpace(DLDevice dev, size_t nbytes, size_t alignment, DLDataType type_hint, void** out_data) {
  if ((alignment & (alignment - 1)) != 0 || alignment > TW_HUGE_PAGE) {
    return tw_fail("alignment %zu is not a power of two, or larger than a huge page", alignment);
  }
  *out_data = tw_device_alloc(dev, nbytes, alignment, type_hint, NULL);
  return *out_data == NULL ? -1 : 0;
}

int TVMDeviceAllocDataSpaceWithScope(DLDevice dev, int ndim, const int64_t* shape, DLDataType dtype, const char* mem_scope,
                                     void** out_data) {
  size_t nbytes;
  if (!tw_tensor_bytes(ndim, shape, dtype, &nbytes)) {
    return tw_fail("an array's shape must not be negative, nor its size overflow");
  }
  *out_data = tw_device_alloc(dev, nbytes, TW_ALIGNMENT, dtype, mem_scope);
  return *out_data == NULL ? -1 : 0;
}

int TVMDeviceFreeDataSpace(DLDevice dev, void* ptr) { return tw_device_free(dev, ptr); }

int TVMStreamCreate(int device_type, int device_id, TVMStreamHandle* out) {
  const DLDevice device = {device_type, device_id};
  Row* row = present(device);
  *out = NULL;
  if (row == NULL) return -1;
  if (row->stream_create == NULL) return 0;
  tw_clear_error();
  return outcome(device, "stream_create", row->stream_create(row->ctx, device_id, out));
}

int TVMStreamFree(int device_type, int device_id, TVMStreamHandle stream) {
  const DLDevice device = {device_type, device_id};
  Row* row = tw_device_api(device);
  if (row == NULL) return -1;
  if (row->stream_free == NULL || stream == NULL) return 0;
  tw_clear_error();
  return outcome(device, "stream_free", row->stream_free(row->ctx, device_id, stream));
}

int TVMSetStream(int device_type, int device_id, TVMStreamHandle handle) {
  const DLDevice device = {device_type, device_id};
  Row* row = tw_device_api(device);
  if (row == NULL) return -1;
  if (row->stream_set == NULL) return 0;
  tw_clear_error();
  return outcome(device, "stream_set", row->stream_set(row->ctx, device_id, handle));
}

int TVMSynchronize(int device_type, int device_id, TVMStreamHandle stream) {
  const DLDevice device = {device_type, device_id};
  Row* row = tw_device_api(device);
  return row == NULL ? -1 : synchronize(row, device, stream);
}

int TVMStreamStreamSynchronize(int device_type, int device_id, TVMStreamHandle src, TVMStreamHandle dst) {
  const DLDevice device = {device_type, device_id};
  Row* row = tw_device_api(device);
  if (row == NULL) return -1;
  if (row->stream_wait == NULL) return synchronize(row, device, src);
  tw_clear_error();
  return outcome(device, "stream_wait", row->stream_wait(row->ctx, device_id, src, dst));
}
