/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Devices of sessions as rows of the table of devices, made when they are first asked for. `data` of an array on one
 * points to a Space, which the host must not mistake for memory; parts of it are told by byte offsets. */
#include "rpc.h"

typedef struct {
  RpcSession* session;
  uint64_t handle; /* of the memory */
  uint64_t array;  /* of the far side's array that has the memory, or 0: then the memory is freed by itself */
} Space;

static int type_of(const void* ctx) { return (int)(intptr_t)ctx; }

static DLDevice far_device(const void* ctx, int id) { return (DLDevice){(DLDeviceType)(type_of(ctx) % RPC_DEVICE_MASK), id}; }

static RpcSession* session_of(const void* ctx) { return rpc_session_of((DLDevice){(DLDeviceType)type_of(ctx), 0}); }

/* A request about a device with up to two values more. */
static int ask(void* ctx, int id, RpcCode code, const TVMValue* more, const int* more_codes, int count, TVMValue* result) {
  TVMValue values[4] = {{.v_device = far_device(ctx, id)}};
  int codes[4] = {kDLDevice};
  RpcSession* session = session_of(ctx);
  if (session == NULL) return -1;
  for (int i = 0; i < count; ++i) {
    values[i + 1] = more[i];
    codes[i + 1] = more_codes[i];
  }
  int rc = rpc_request(session, code, values, codes, count + 1, result);
  rpc_session_release(session);
  return rc;
}

static int ask_of_stream(void* ctx, int id, RpcCode code, TVMStreamHandle stream) {
  return ask(ctx, id, code, &(TVMValue){.v_int64 = (intptr_t)stream}, &(int){kTVMOpaqueHandle}, 1, NULL);
}

/* The far side says which there are when one is used. */
static int count(void* ctx, int* out) {
  (void)ctx;
  *out = INT32_MAX;
  return 0;
}

/* ---- memory ---- */
static DLTensor bytes_of(uint64_t handle, DLDevice device, uint64_t offset, int64_t* items, size_t nbytes, DLDataType type) {
  size_t size = tw_type_bytes(type);
  if (size == 0 || nbytes % size != 0) {
    type = (DLDataType){kDLUInt, 8, 1};
    size = 1;
  }
  *items = (int64_t)(nbytes / size);
  return (DLTensor){.data = (void*)(uintptr_t)handle, .device = device, .ndim = 1, .dtype = type, .shape = items,
                    .byte_offset = offset};
}

static Space* new_space(RpcSession* session, uint64_t handle, uint64_t array) {
  Space* space = malloc(sizeof *space);
  if (space == NULL) tw_out_of_memory(sizeof *space);
  else *space = (Space){rpc_session_retain(session), handle, array};
  return space;
}

static int alloc(void* ctx, int id, size_t nbytes, size_t alignment, DLDataType hint, const char* scope, void** out) {
  TVMValue result, more[] = {{.v_int64 = (int64_t)nbytes}, {.v_int64 = (int64_t)alignment}, {.v_type = hint}};
  const int codes[] = {kTVMArgInt, kTVMArgInt, kTVMDataType};
  int64_t items;
  int rc;
  RpcSession* session = session_of(ctx);
  if (session == NULL) return -1;
  if (scope == NULL) {
    rc = ask(ctx, id, RPC_DEV_ALLOC_DATA, more, codes, 3, &result);
  } else {
    DLTensor t = bytes_of(0, far_device(ctx, id), 0, &items, nbytes, hint);
    TVMValue values[] = {{.v_handle = &t}, {.v_str = scope}};
    rc = rpc_request(session, RPC_DEV_ALLOC_DATA_WITH_SCOPE, values, (int[]){kTVMDLTensorHandle, kTVMStr}, 2, &result);
  }
  if (rc == 0) rc = (*out = new_space(session, (uint64_t)result.v_int64, 0)) == NULL ? -1 : 0;
  rpc_session_release(session);
  return rc;
}

static int free_space(void* ctx, int id, void* ptr) {
  Space* space = ptr;
  TVMValue values[] = {{.v_int64 = (int64_t)space->array}, {.v_int64 = kTVMNDArrayHandle}};
  TVMValue memory[] = {{.v_device = far_device(ctx, id)}, {.v_int64 = (int64_t)space->handle}};
  char* error = tw_strdup(TVMGetLastError());
  int rc = space->array != 0
               ? rpc_request(space->session, RPC_FREE_HANDLE, values, (int[]){kTVMOpaqueHandle, kTVMArgInt}, 2, NULL)
               : rpc_request(space->session, RPC_DEV_FREE_DATA, memory, (int[]){kDLDevice, kTVMOpaqueHandle}, 2, NULL);
  /* a far side that is gone has freed all it had */
  if (rc != 0 && error != NULL) TVMAPISetLastError(error);
  free(error);
  rpc_session_release(space->session);
  free(space);
  return 0;
}

static int copy(void* ctx, const void* from, size_t from_offset, DLDevice from_device, void* to, size_t to_offset,
                DLDevice to_device, size_t nbytes, DLDataType hint, TVMStreamHandle stream) {
  int64_t items;
  if ((int)from_device.device_type == kDLCPU) {
    Space* there = to;
    DLTensor t = bytes_of(there->handle, far_device(ctx, to_device.device_id), to_offset, &items, nbytes, hint);
    return there->session->cls->copy_to(there->session, (const char*)from + from_offset, &t, nbytes);
  }
  const Space* source = from;
  DLTensor s = bytes_of(source->handle, far_device(ctx, from_device.device_id), from_offset, &items, nbytes, hint);
  if ((int)to_device.device_type == kDLCPU) {
    return source->session->cls->copy_from(source->session, &s, (char*)to + to_offset, nbytes);
  }
  DLTensor t = bytes_of(((Space*)to)->handle, far_device(ctx, to_device.device_id), to_offset, &items, nbytes, hint);
  TVMValue values[] = {{.v_handle = &s}, {.v_handle = &t}, {.v_int64 = (intptr_t)stream}};
  return rpc_request(source->session, RPC_COPY_AMONG_REMOTE, values,
                     (int[]){kTVMDLTensorHandle, kTVMDLTensorHandle, kTVMOpaqueHandle}, 3, NULL);
}

/* ---- the rest of a row ---- */
static int set(void* ctx, int id) { return ask(ctx, id, RPC_DEV_SET_DEVICE, NULL, NULL, 0, NULL); }

static int get_attr(void* ctx, int id, int attr, TVMRetValueHandle ret) {
  TVMValue values[] = {{.v_device = far_device(ctx, id)}, {.v_int64 = attr}};
  RpcSequence result = {0}, arguments = {.values = values, .codes = (int[]){kDLDevice, kTVMArgInt}, .count = 2};
  RpcSession* session = session_of(ctx);
  if (session == NULL) return -1;
  int rc = session->cls->request(session, RPC_DEV_GET_ATTR, &arguments, &result);
  if (rc == 0 && result.count == 1) rc = TVMCFuncSetReturn(ret, result.values, result.codes, 1);
  rpc_sequence_free(&result);
  rpc_session_release(session);
  return rc;
}

static int synchronize(void* ctx, int id, TVMStreamHandle stream) { return ask_of_stream(ctx, id, RPC_DEV_STREAM_SYNC, stream); }

static int stream_create(void* ctx, int id, TVMStreamHandle* out) {
  TVMValue result;
  if (ask(ctx, id, RPC_DEV_CREATE_STREAM, NULL, NULL, 0, &result) != 0) return -1;
  *out = result.v_handle;
  return 0;
}

static int stream_free(void* ctx, int id, TVMStreamHandle stream) { return ask_of_stream(ctx, id, RPC_DEV_FREE_STREAM, stream); }

static int stream_set(void* ctx, int id, TVMStreamHandle stream) { return ask_of_stream(ctx, id, RPC_DEV_SET_STREAM, stream); }

/* ---- rows ---- */
static TwLock rows_lock = TW_LOCK_INITIALIZER;
static const TilewrightDeviceAPI** rows; /* by device type; they stay, since arrays of a session that ended point to them */
static int num_rows;

static const TilewrightDeviceAPI* make_row(int type) {
  const char* name = TilewrightDeviceName(type % RPC_DEVICE_MASK);
  TilewrightDeviceAPI* row = malloc(sizeof *row);
  char* text = malloc(96);
  if (row == NULL || text == NULL || type % RPC_DEVICE_MASK == 0) {
    free(row);
    free(text);
    return NULL;
  }
  if (name != NULL) snprintf(text, 96, "remote[%d]:%s", type / RPC_DEVICE_MASK - 1, name);
  else snprintf(text, 96, "remote[%d]:%d", type / RPC_DEVICE_MASK - 1, type % RPC_DEVICE_MASK);
  *row = (TilewrightDeviceAPI){.struct_size = sizeof *row, .name = text, .device_type = type, .flags = TILEWRIGHT_DEVICE_REMOTE,
                               .ctx = (void*)(intptr_t)type, .count = count, .alloc = alloc, .free = free_space, .copy = copy,
                               .set = set, .get_attr = get_attr, .synchronize = synchronize,
                               .stream_create = stream_create, .stream_free = stream_free, .stream_set = stream_set};
  return row;
}

static bool is_alive(int type) {
  RpcSession* session = rpc_session_find(type);
  rpc_session_release(session);
  return session != NULL;
}

static const TilewrightDeviceAPI* find_row(int type) {
  const bool alive = is_alive(type);
  tw_lock(&rows_lock);
  if (alive && type >= num_rows) {
    const TilewrightDeviceAPI** grown = realloc(rows, (size_t)(type + 1) * sizeof *grown);
    if (grown != NULL) {
      memset(grown + num_rows, 0, (size_t)(type + 1 - num_rows) * sizeof *grown);
      rows = grown;
      num_rows = type + 1;
    }
  }
  const TilewrightDeviceAPI* row = NULL;
  if (type < num_rows) row = rows[type] != NULL || !alive ? rows[type] : (rows[type] = make_row(type));
  tw_unlock(&rows_lock);
  return row;
}

__attribute__((constructor)) static void register_devices(void) { tw_find_remote_device = find_row; }

/* ---- arrays in calls ---- */
int rpc_unwrap_tensor(RpcSession* session, TVMValue* value, RpcSequence* memory, int index) {
  const DLTensor* here = value->v_handle;
  int type = (int)here->device.device_type;
  if (type / RPC_DEVICE_MASK - 1 != session->index) {
    char text[TW_DEVICE_TEXT];
    return tw_fail("RPCError: argument %d is an array on %s, which is not of this session; copy it there first", index,
                   tw_device_text(here->device, text));
  }
  DLTensor* there = rpc_sequence_alloc(memory, sizeof *there);
  if (there == NULL) return -1;
  *there = *here;
  there->device.device_type = (DLDeviceType)(type % RPC_DEVICE_MASK);
  there->data = (void*)(uintptr_t)((const Space*)here->data)->handle;
  value->v_handle = there;
  return 0;
}

TwArray* rpc_wrap_array(RpcSession* session, const DLTensor* there, uint64_t handle) {
  if (rpc_session_enter(session) != 0) return NULL;
  DLDevice device = {(DLDeviceType)((int)there->device.device_type + RPC_DEVICE_MASK * (session->index + 1)),
                     there->device.device_id};
  Space* space = new_space(session, (uintptr_t)there->data, handle);
  TwArray* array = space == NULL ? NULL : tw_array_adopt(space, there->shape, there->ndim, there->dtype, device);
  if (array == NULL && space != NULL) free_space((void*)(intptr_t)device.device_type, device.device_id, space);
  if (array != NULL) array->tensor.byte_offset = there->byte_offset;
  return array;
}
