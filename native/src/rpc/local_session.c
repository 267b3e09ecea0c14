/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The session that works on this process. */
#include "handles.h"

static int local_memory(RpcSession* base, const DLTensor* t, uint64_t size, bool write, char** out) {
  Handle h;
  if (rpc_handle_span((Local*)base, t, size, &h) != 0 || (write && rpc_handle_check_writable((Local*)base, t) != 0)) return -1;
  *out = tw_is_host(h.device) ? h.data + t->byte_offset : NULL;
  return 0;
}

static DLTensor as_bytes(void* data, uint64_t offset, int64_t* size, DLDevice device) {
  return (DLTensor){.data = data, .device = device, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = size, .byte_offset = offset};
}

static int copy_bytes(Local* s, const DLTensor* t, void* host, uint64_t size, bool to_device) {
  Handle h;
  if (rpc_handle_span(s, t, size, &h) != 0 || (to_device && rpc_handle_check_writable(s, t) != 0)) return -1;
  int64_t count = (int64_t)size;
  DLTensor here = as_bytes(host, 0, &count, (DLDevice){kDLCPU, 0});
  DLTensor there = as_bytes(h.data, t->byte_offset, &count, h.device);
  if (TVMDeviceCopyDataFromTo(to_device ? &here : &there, to_device ? &there : &here, NULL) != 0) return -1;
  return TVMSynchronize((int)h.device.device_type, h.device.device_id, NULL);
}

static int local_copy_to(RpcSession* base, const void* from, const DLTensor* to, uint64_t size) {
  return copy_bytes((Local*)base, to, (void*)(uintptr_t)from, size, true);
}

static int local_copy_from(RpcSession* base, const DLTensor* from, void* to, uint64_t size) {
  return copy_bytes((Local*)base, from, to, size, false);
}

/* ---- calls ---- */
static bool is_of_client(TVMValue value, int code) {
  return code == kTVMPackedFuncHandle && ((uint64_t)value.v_int64 & RPC_CLIENT_HANDLE) != 0;
}

static int resolve_value(Local* s, TVMValue* value, int code) {
  Handle h;
  HandleKind kind = code == kTVMModuleHandle ? MODULE : code == kTVMPackedFuncHandle ? FUNCTION : POINTER;
  switch (code) {
    case kTVMModuleHandle:
    case kTVMPackedFuncHandle:
      if (is_of_client(*value, code)) return (value->v_handle = rpc_client_func(s, (uint64_t)value->v_int64)) == NULL ? -1 : 0;
      if (rpc_handle_find(s, (uint64_t)value->v_int64, kind, &h) != 0) return -1;
      value->v_handle = h.object;
      return 0;
    case kTVMOpaqueHandle:
      if (value->v_int64 == 0) return 0;
      if (!rpc_handle_look_up(s, (uint64_t)value->v_int64, &h) || h.kind < DATA) return rpc_handle_find(s, (uint64_t)value->v_int64, POINTER, &h);
      value->v_handle = h.object;
      return 0;
    case kTVMDLTensorHandle: return rpc_handle_resolve_tensor(s, value->v_handle);
    default: return 0;
  }
}

static void drop_resolved(const RpcSequence* from, RpcSequence* out) {
  for (int i = 0; i < out->count; ++i) {
    if (is_of_client(from->values[i], from->codes[i])) tw_func_release(out->values[i].v_handle);
  }
  rpc_sequence_free(out);
}

/* The sequence with this process's objects for handles; drop_resolved gives it up. */
static int resolve(Local* s, const RpcSequence* from, RpcSequence* out) {
  *out = (RpcSequence){0};
  int rc = rpc_sequence_reserve(out, from->count), done = 0;
  for (; rc == 0 && done < from->count; ++done) {
    TVMValue* value = &out->values[done];
    *value = from->values[done];
    out->codes[done] = from->codes[done];
    if (out->codes[done] == kTVMDLTensorHandle) {
      DLTensor* copy = rpc_sequence_alloc(out, sizeof *copy);
      if (copy == NULL) rc = -1;
      else *copy = *(const DLTensor*)value->v_handle;
      value->v_handle = copy;
    }
    if (rc == 0) rc = resolve_value(s, value, out->codes[done]);
    if (rc != 0) break;
  }
  if (rc == 0) return 0;
  /* the client has given up all its functions in the sequence */
  for (int i = done; i < from->count; ++i) {
    if (is_of_client(from->values[i], from->codes[i]) && s->base.back != NULL) {
      s->base.back->release(s->base.back, (uint64_t)from->values[i].v_int64);
    }
  }
  out->count = done;
  drop_resolved(from, out);
  return rc;
}

/* Of an array: its description, whose memory has the array's handle, and the handle to free. */
static int put_array(Local* s, RpcSequence* ret, TwArray* array) {
  const DLTensor* t = &array->tensor;
  size_t size;
  DLTensor* copy = rpc_sequence_alloc(ret, sizeof *copy);
  if (copy == NULL || !tw_is_compact(t) || !tw_tensor_bytes(t->ndim, t->shape, t->dtype, &size)) {
    if (copy != NULL) tw_fail("RPCError: a function returned an array with strides, which cannot be sent");
    tw_array_release(array);
    return -1;
  }
  *copy = *t;
  Handle handle = {.kind = ARRAY, .object = array, .data = (char*)t->data + t->byte_offset, .size = size, .device = t->device};
  if (rpc_handle_put(s, ret, 2, handle) != 0) return -1;
  copy->data = (void*)(uintptr_t)ret->values[2].v_int64;
  copy->byte_offset = 0;
  ret->values[1].v_handle = copy;
  ret->codes[1] = kTVMDLTensorHandle;
  return 0;
}

/* TVM's encoding of what a function returned, which it takes over. */
static int encode(Local* s, TVMValue value, int code, RpcSequence* ret) {
  int count = code == kTVMNDArrayHandle ? 3 : 2;
  if (rpc_sequence_reserve(ret, count) != 0) return -1;
  ret->values[0].v_int64 = code;
  ret->codes[0] = kTVMArgInt;
  ret->values[1] = value;
  ret->codes[1] = code;
  switch (code) {
    case kTVMNDArrayHandle: return put_array(s, ret, value.v_handle);
    case kTVMPackedFuncHandle: return rpc_handle_put(s, ret, 1, (Handle){.kind = FUNCTION, .object = value.v_handle});
    case kTVMModuleHandle: return rpc_handle_put(s, ret, 1, (Handle){.kind = MODULE, .object = value.v_handle});
    case kTVMOpaqueHandle:
      return value.v_handle == NULL ? 0 : rpc_handle_put(s, ret, 1, (Handle){.kind = POINTER, .object = value.v_handle});
    default: return 0;
  }
}

static int local_call(RpcSession* base, uint64_t function, const RpcSequence* arguments, RpcSequence* ret) {
  Local* s = (Local*)base;
  Handle f;
  RpcSequence here;
  TVMValue value;
  int code;
  if (rpc_handle_find(s, function, FUNCTION, &f) != 0 || resolve(s, arguments, &here) != 0) return -1;
  tw_func_retain(f.object);
  int rc = TVMFuncCall(f.object, here.values, here.codes, here.count, &value, &code);
  tw_func_release(f.object);
  drop_resolved(arguments, &here);
  return rc != 0 ? rc : encode(s, value, code, ret);
}

/* ---- requests ---- */
static const char* const request_names[RPC_NUM_CODES] = {
    [RPC_GET_GLOBAL_FUNC] = "GetGlobalFunc", [RPC_FREE_HANDLE] = "FreeHandle", [RPC_DEV_SET_DEVICE] = "DevSetDevice",
    [RPC_DEV_GET_ATTR] = "DevGetAttr", [RPC_DEV_ALLOC_DATA] = "DevAllocData", [RPC_DEV_FREE_DATA] = "DevFreeData",
    [RPC_DEV_STREAM_SYNC] = "DevStreamSync", [RPC_COPY_AMONG_REMOTE] = "CopyAmongRemote",
    [RPC_DEV_ALLOC_DATA_WITH_SCOPE] = "DevAllocDataWithScope", [RPC_DEV_CREATE_STREAM] = "DevCreateStream",
    [RPC_DEV_FREE_STREAM] = "DevFreeStream", [RPC_DEV_SET_STREAM] = "DevSetStream"};

/* What the arguments of each request are: a letter for each, o for a handle or nothing, s for a text or nothing. */
static const char* const request_arguments[RPC_NUM_CODES] = {
    [RPC_GET_GLOBAL_FUNC] = "s", [RPC_FREE_HANDLE] = "oi", [RPC_DEV_SET_DEVICE] = "d", [RPC_DEV_GET_ATTR] = "di",
    [RPC_DEV_ALLOC_DATA] = "diit", [RPC_DEV_FREE_DATA] = "do", [RPC_DEV_STREAM_SYNC] = "do",
    [RPC_COPY_AMONG_REMOTE] = "aao", [RPC_DEV_ALLOC_DATA_WITH_SCOPE] = "as", [RPC_DEV_CREATE_STREAM] = "d",
    [RPC_DEV_FREE_STREAM] = "do", [RPC_DEV_SET_STREAM] = "do"};

static bool has_kind(int code, char kind) {
  switch (kind) {
    case 'i': return code == kTVMArgInt || code == kDLUInt;
    case 'd': return code == kDLDevice;
    case 't': return code == kTVMDataType;
    case 'a': return code == kTVMDLTensorHandle;
    case 's': return code == kTVMStr || code == kTVMNullptr;
    default: return code == kTVMOpaqueHandle || code == kTVMNullptr;
  }
}

static int check_request(RpcCode code, const RpcSequence* a) {
  const char* kinds = request_arguments[code];
  if (a->count != (int)strlen(kinds)) {
    return tw_fail("RPCError: %s takes %zu values, not %d", request_names[code], strlen(kinds), a->count);
  }
  for (int i = 0; i < a->count; ++i) {
    if (!has_kind(a->codes[i], kinds[i])) {
      return tw_fail("RPCError: value %d of %s has type code %d", i, request_names[code], a->codes[i]);
    }
  }
  return 0;
}

/* Loaders of modules take the address of a stream, which no client can have. */
static bool is_internal(const char* name) { return strncmp(name, "runtime.module.loadbinary_", 26) == 0; }

static int get_global(Local* s, const TVMValue* v, int code, RpcSequence* ret) {
  if (code == kTVMStr && is_internal(v[0].v_str)) return 0;
  TwFunc* f = code == kTVMStr ? tw_find_global(v[0].v_str) : NULL;
  return f == NULL ? 0 : rpc_handle_put(s, ret, 0, (Handle){.kind = FUNCTION, .object = f});
}

static int release(Local* s, const TVMValue* v) {
  HandleKind kind = v[1].v_int64 == kTVMPackedFuncHandle ? FUNCTION : v[1].v_int64 == kTVMModuleHandle ? MODULE : ARRAY;
  return rpc_handle_free(s, (uint64_t)v[0].v_int64, kind);
}

static int get_attribute(const TVMValue* v, RpcSequence* ret) {
  TwFunc* f = tw_find_global("runtime.GetDeviceAttr");
  if (f == NULL) return tw_fail("this runtime tells nothing of devices");
  TVMValue values[] = {{.v_int64 = v[0].v_device.device_type}, {.v_int64 = v[0].v_device.device_id}, v[1]};
  int codes[] = {kTVMArgInt, kTVMArgInt, kTVMArgInt};
  int rc = TVMFuncCall(f, values, codes, 3, &ret->values[0], &ret->codes[0]);
  tw_func_release(f);
  return rc;
}

static int allocate(Local* s, DLDevice device, uint64_t size, uint64_t alignment, DLDataType type, RpcSequence* ret) {
  void* data;
  if (size > SIZE_MAX || alignment > SIZE_MAX) return tw_out_of_memory(SIZE_MAX);
  if (TVMDeviceAllocDataSpace(device, (size_t)size, (size_t)alignment, type, &data) != 0) return -1;
  return rpc_handle_put(s, ret, 0, (Handle){.kind = DATA, .object = data, .data = data, .size = size, .device = device});
}

static int allocate_tensor(Local* s, const DLTensor* t, const TVMValue* scope, int code, RpcSequence* ret) {
  void* data;
  size_t size;
  if (!tw_tensor_bytes(t->ndim, t->shape, t->dtype, &size)) return tw_fail("RPCError: an array's shape is negative or too large");
  const char* name = code == kTVMStr ? scope->v_str : NULL;
  if (TVMDeviceAllocDataSpaceWithScope(t->device, t->ndim, t->shape, t->dtype, name, &data) != 0) return -1;
  return rpc_handle_put(s, ret, 0, (Handle){.kind = DATA, .object = data, .data = data, .size = size, .device = t->device});
}

static int copy_among(Local* s, const RpcSequence* a) {
  RpcSequence here;
  if (rpc_handle_check_writable(s, a->values[1].v_handle) != 0 || resolve(s, a, &here) != 0) return -1;
  int rc = TVMDeviceCopyDataFromTo(here.values[0].v_handle, here.values[1].v_handle, here.values[2].v_handle);
  drop_resolved(a, &here);
  return rc;
}

/* The stream of a request's second value; the default one for none. */
static int stream_of(Local* s, const TVMValue* v, int code, TVMStreamHandle* out) {
  Handle h;
  *out = NULL;
  if (code == kTVMNullptr || v[1].v_int64 == 0) return 0;
  if (rpc_handle_find(s, (uint64_t)v[1].v_int64, STREAM, &h) != 0) return -1;
  *out = h.object;
  return 0;
}

static int local_request(RpcSession* base, RpcCode code, const RpcSequence* a, RpcSequence* ret) {
  Local* s = (Local*)base;
  const TVMValue* v = a->values;
  TVMStreamHandle stream;
  if (check_request(code, a) != 0 || rpc_sequence_reserve(ret, 1) != 0) return -1;
  ret->values[0].v_int64 = 0;
  ret->codes[0] = code == RPC_GET_GLOBAL_FUNC ? kTVMOpaqueHandle : kTVMNullptr;
  DLDevice device = request_arguments[code][0] == 'd' ? v[0].v_device : (DLDevice){kDLCPU, 0};
  const int type = (int)device.device_type, id = device.device_id;
  switch (code) {
    case RPC_GET_GLOBAL_FUNC: return get_global(s, v, a->codes[0], ret);
    case RPC_FREE_HANDLE: return release(s, v);
    case RPC_DEV_SET_DEVICE: return tw_device_set(device);
    case RPC_DEV_GET_ATTR: return get_attribute(v, ret);
    case RPC_DEV_ALLOC_DATA:
      return allocate(s, device, (uint64_t)v[1].v_int64, (uint64_t)v[2].v_int64, v[3].v_type, ret);
    case RPC_DEV_ALLOC_DATA_WITH_SCOPE: return allocate_tensor(s, v[0].v_handle, &v[1], a->codes[1], ret);
    case RPC_DEV_FREE_DATA: return rpc_handle_free(s, (uint64_t)v[1].v_int64, DATA);
    case RPC_COPY_AMONG_REMOTE: return copy_among(s, a);
    case RPC_DEV_CREATE_STREAM:
      if (TVMStreamCreate(type, id, &stream) != 0 || stream == NULL) return stream == NULL ? 0 : -1;
      return rpc_handle_put(s, ret, 0, (Handle){.kind = STREAM, .object = stream, .device = device});
    case RPC_DEV_FREE_STREAM: return v[1].v_int64 == 0 ? 0 : rpc_handle_free(s, (uint64_t)v[1].v_int64, STREAM);
    case RPC_DEV_SET_STREAM: return stream_of(s, v, a->codes[1], &stream) != 0 ? -1 : TVMSetStream(type, id, stream);
    case RPC_DEV_STREAM_SYNC: return stream_of(s, v, a->codes[1], &stream) != 0 ? -1 : TVMSynchronize(type, id, stream);
    default: return tw_fail("RPCError: there is no request %d", (int)code);
  }
}

static int local_take_func(RpcSession* base, TwFunc* f, int index, uint64_t* out) {
  RpcSequence one = {.values = &(TVMValue){.v_int64 = 0}, .codes = &(int){0}, .count = 1};
  (void)index;
  int rc = rpc_handle_put((Local*)base, &one, 0, (Handle){.kind = FUNCTION, .object = tw_func_retain(f)});
  *out = (uint64_t)one.values[0].v_int64;
  return rc;
}

static void local_end_call(RpcSession* base, uint64_t function, bool sent) {
  (void)sent;
  rpc_handle_free((Local*)base, function, FUNCTION);
}

static TwFunc* local_find_func(RpcSession* base, uint64_t function) {
  Handle f;
  return rpc_handle_look_up((Local*)base, function, &f) && f.kind == FUNCTION ? f.object : NULL;
}

static void local_destroy(RpcSession* base) {
  rpc_handles_destroy((Local*)base);
  free(base);
}

static const RpcSessionClass local_class = {local_request,   local_call,      local_copy_to,  local_copy_from, local_memory,
                                            local_find_func, local_take_func, local_end_call, local_destroy};

RpcSession* rpc_local_session(void) {
  Local* s = calloc(1, sizeof *s);
  if (s == NULL) {
    tw_out_of_memory(sizeof *s);
    return NULL;
  }
  rpc_session_init(&s->base, &local_class);
  rpc_handles_init(s);
  return &s->base;
}
