/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The session that works on this process. Everything it gives out is known by a handle (a number and a place in a table),
 * never by an address, so that no handle that is wrong, old or made up reaches memory. */
#include "rpc.h"

typedef enum { FREE, FUNCTION, MODULE, ARRAY, DATA, STREAM, POINTER } HandleKind;

static const char* const kind_names[] = {"nothing", "a function", "a module", "an array", "memory", "a stream", "a pointer"};

typedef struct {
  HandleKind kind;
  uint32_t generation; /* grows when the place is used again */
  int next_free;
  void* object;
  char* data; /* of an array, and of memory */
  uint64_t size;
  DLDevice device;
} Handle;

typedef struct {
  RpcSession base;
  pthread_mutex_t lock;
  Handle* handles;
  int num_handles, room, first_free;
} Local;

/* ---- handles ---- */
static uint64_t new_handle(Local* s, Handle handle) {
  pthread_mutex_lock(&s->lock);
  int i = s->first_free;
  if (i < 0 && s->num_handles == s->room) {
    int room = s->room == 0 ? 64 : s->room * 2;
    Handle* grown = realloc(s->handles, (size_t)room * sizeof *grown);
    if (grown == NULL) {
      pthread_mutex_unlock(&s->lock);
      tw_out_of_memory((size_t)room * sizeof *grown);
      return 0;
    }
    s->handles = grown;
    s->room = room;
  }
  if (i < 0) {
    i = s->num_handles++;
    s->handles[i].generation = 0;
  } else {
    s->first_free = s->handles[i].next_free;
  }
  handle.generation = (s->handles[i].generation + 1) & 0x7fffff; /* as a pointer it stays a canonical address */
  s->handles[i] = handle;
  pthread_mutex_unlock(&s->lock);
  return (uint64_t)handle.generation << 24 << 8 | (uint32_t)(i + 1);
}

static bool look_up(Local* s, uint64_t number, Handle* out) {
  int64_t i = (int64_t)(number & 0xffffffff) - 1;
  pthread_mutex_lock(&s->lock);
  bool known = i >= 0 && i < s->num_handles && s->handles[i].kind != FREE && s->handles[i].generation == number >> 32;
  if (known) *out = s->handles[i];
  pthread_mutex_unlock(&s->lock);
  return known;
}

static int find(Local* s, uint64_t number, HandleKind kind, Handle* out) {
  if (!look_up(s, number, out)) {
    return tw_fail("RPCError: handle 0x%llx is not of this session, or was freed", (unsigned long long)number);
  }
  if (out->kind == kind || (kind == DATA && out->kind == ARRAY)) return 0;
  return tw_fail("RPCError: handle 0x%llx is %s, not %s", (unsigned long long)number, kind_names[out->kind], kind_names[kind]);
}

static void drop_object(const Handle* h) {
  switch (h->kind) {
    case FUNCTION: tw_func_release(h->object); break;
    case MODULE: tw_module_release(h->object); break;
    case ARRAY: tw_array_release(h->object); break;
    case DATA: TVMDeviceFreeDataSpace(h->device, h->object); break;
    case STREAM: TVMStreamFree((int)h->device.device_type, h->device.device_id, h->object); break;
    default: break;
  }
}

static int free_handle(Local* s, uint64_t number, HandleKind kind) {
  Handle h;
  if (find(s, number, kind, &h) != 0) return -1;
  int i = (int)(number & 0xffffffff) - 1;
  pthread_mutex_lock(&s->lock);
  bool mine = s->handles[i].kind != FREE && s->handles[i].generation == h.generation;
  if (mine) {
    s->handles[i].kind = FREE;
    s->handles[i].next_free = s->first_free;
    s->first_free = i;
  }
  pthread_mutex_unlock(&s->lock);
  if (mine) drop_object(&h);
  return 0;
}

/* ---- arrays ---- */
/* The memory that `size` bytes from the tensor's offset on are in. */
static int check_span(Local* s, const DLTensor* t, uint64_t size, Handle* out) {
  if (find(s, (uintptr_t)t->data, DATA, out) != 0) return -1;
  if (t->device.device_type != out->device.device_type || t->device.device_id != out->device.device_id) {
    return tw_fail("RPCError: an array's memory is on device %d(%d), not on %d(%d)", (int)out->device.device_type,
                   out->device.device_id, (int)t->device.device_type, t->device.device_id);
  }
  if (t->byte_offset > out->size || size > out->size - t->byte_offset) {
    return tw_fail("RPCError: %llu bytes at offset %llu are outside of an array's memory of %llu bytes",
                   (unsigned long long)size, (unsigned long long)t->byte_offset, (unsigned long long)out->size);
  }
  return 0;
}

/* The tensor with its memory's address for the handle. */
static int resolve_tensor(Local* s, DLTensor* t) {
  Handle h;
  size_t size;
  if (!tw_tensor_bytes(t->ndim, t->shape, t->dtype, &size)) return tw_fail("RPCError: an array's shape is negative or too large");
  if (check_span(s, t, size, &h) != 0) return -1;
  t->data = h.data;
  return 0;
}

static int local_memory(RpcSession* base, const DLTensor* t, uint64_t size, char** out) {
  Handle h;
  if (check_span((Local*)base, t, size, &h) != 0) return -1;
  *out = tw_is_host(h.device) ? h.data + t->byte_offset : NULL;
  return 0;
}

static DLTensor as_bytes(void* data, uint64_t offset, int64_t* size, DLDevice device) {
  return (DLTensor){.data = data, .device = device, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = size, .byte_offset = offset};
}

static int copy_bytes(Local* s, const DLTensor* t, void* host, uint64_t size, bool to_device) {
  Handle h;
  if (check_span(s, t, size, &h) != 0) return -1;
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
static int resolve_value(Local* s, TVMValue* value, int code) {
  Handle h;
  HandleKind kind = code == kTVMModuleHandle ? MODULE : code == kTVMPackedFuncHandle ? FUNCTION : POINTER;
  switch (code) {
    case kTVMModuleHandle:
    case kTVMPackedFuncHandle:
      if (find(s, (uintptr_t)value->v_handle, kind, &h) != 0) return -1;
      value->v_handle = h.object;
      return 0;
    case kTVMOpaqueHandle:
      if (value->v_handle == NULL) return 0;
      if (!look_up(s, (uintptr_t)value->v_handle, &h)) return find(s, (uintptr_t)value->v_handle, POINTER, &h);
      value->v_handle = h.object;
      return 0;
    case kTVMDLTensorHandle: return resolve_tensor(s, value->v_handle);
    default: return 0;
  }
}

/* The sequence with this process's objects for handles. */
static int resolve(Local* s, const RpcSequence* from, RpcSequence* out) {
  *out = (RpcSequence){0};
  int rc = rpc_sequence_reserve(out, from->count);
  for (int i = 0; rc == 0 && i < from->count; ++i) {
    out->values[i] = from->values[i];
    out->codes[i] = from->codes[i];
    if (out->codes[i] == kTVMDLTensorHandle) {
      DLTensor* copy = rpc_sequence_alloc(out, sizeof *copy);
      if (copy == NULL) rc = -1;
      else *copy = *(const DLTensor*)from->values[i].v_handle;
      out->values[i].v_handle = copy;
    }
    if (rc == 0) rc = resolve_value(s, &out->values[i], out->codes[i]);
  }
  if (rc != 0) rpc_sequence_free(out);
  return rc;
}

static int put_handle(Local* s, RpcSequence* ret, int i, Handle handle) {
  uint64_t number = new_handle(s, handle);
  if (number == 0) {
    drop_object(&handle);
    return -1;
  }
  ret->values[i].v_handle = (void*)(uintptr_t)number;
  ret->codes[i] = kTVMOpaqueHandle;
  return 0;
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
  if (put_handle(s, ret, 2, handle) != 0) return -1;
  copy->data = ret->values[2].v_handle;
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
    case kTVMPackedFuncHandle: return put_handle(s, ret, 1, (Handle){.kind = FUNCTION, .object = value.v_handle});
    case kTVMModuleHandle: return put_handle(s, ret, 1, (Handle){.kind = MODULE, .object = value.v_handle});
    case kTVMOpaqueHandle:
      return value.v_handle == NULL ? 0 : put_handle(s, ret, 1, (Handle){.kind = POINTER, .object = value.v_handle});
    default: return 0;
  }
}

static int local_call(RpcSession* base, uint64_t function, const RpcSequence* arguments, RpcSequence* ret) {
  Local* s = (Local*)base;
  Handle f;
  RpcSequence here;
  TVMValue value;
  int code;
  if (find(s, function, FUNCTION, &f) != 0 || resolve(s, arguments, &here) != 0) return -1;
  tw_func_retain(f.object);
  int rc = TVMFuncCall(f.object, here.values, here.codes, here.count, &value, &code);
  tw_func_release(f.object);
  rpc_sequence_free(&here);
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

static int get_global(Local* s, const TVMValue* v, int code, RpcSequence* ret) {
  TwFunc* f = code == kTVMStr ? tw_find_global(v[0].v_str) : NULL;
  return f == NULL ? 0 : put_handle(s, ret, 0, (Handle){.kind = FUNCTION, .object = f});
}

static int release(Local* s, const TVMValue* v) {
  HandleKind kind = v[1].v_int64 == kTVMPackedFuncHandle ? FUNCTION : v[1].v_int64 == kTVMModuleHandle ? MODULE : ARRAY;
  return free_handle(s, (uintptr_t)v[0].v_handle, kind);
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
  return put_handle(s, ret, 0, (Handle){.kind = DATA, .object = data, .data = data, .size = size, .device = device});
}

static int allocate_tensor(Local* s, const DLTensor* t, const TVMValue* scope, int code, RpcSequence* ret) {
  void* data;
  size_t size;
  if (!tw_tensor_bytes(t->ndim, t->shape, t->dtype, &size)) return tw_fail("RPCError: an array's shape is negative or too large");
  const char* name = code == kTVMStr ? scope->v_str : NULL;
  if (TVMDeviceAllocDataSpaceWithScope(t->device, t->ndim, t->shape, t->dtype, name, &data) != 0) return -1;
  return put_handle(s, ret, 0, (Handle){.kind = DATA, .object = data, .data = data, .size = size, .device = t->device});
}

static int copy_among(Local* s, const RpcSequence* a) {
  RpcSequence here;
  if (resolve(s, a, &here) != 0) return -1;
  int rc = TVMDeviceCopyDataFromTo(here.values[0].v_handle, here.values[1].v_handle, here.values[2].v_handle);
  rpc_sequence_free(&here);
  return rc;
}

/* The stream of a request's second value; the default one for none. */
static int stream_of(Local* s, const TVMValue* v, int code, TVMStreamHandle* out) {
  Handle h;
  *out = NULL;
  if (code == kTVMNullptr || v[1].v_handle == NULL) return 0;
  if (find(s, (uintptr_t)v[1].v_handle, STREAM, &h) != 0) return -1;
  *out = h.object;
  return 0;
}

static int local_request(RpcSession* base, RpcCode code, const RpcSequence* a, RpcSequence* ret) {
  Local* s = (Local*)base;
  const TVMValue* v = a->values;
  TVMStreamHandle stream;
  if (check_request(code, a) != 0 || rpc_sequence_reserve(ret, 1) != 0) return -1;
  ret->values[0].v_handle = NULL;
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
    case RPC_DEV_FREE_DATA: return free_handle(s, (uintptr_t)v[1].v_handle, DATA);
    case RPC_COPY_AMONG_REMOTE: return copy_among(s, a);
    case RPC_DEV_CREATE_STREAM:
      if (TVMStreamCreate(type, id, &stream) != 0 || stream == NULL) return stream == NULL ? 0 : -1;
      return put_handle(s, ret, 0, (Handle){.kind = STREAM, .object = stream, .device = device});
    case RPC_DEV_FREE_STREAM: return v[1].v_handle == NULL ? 0 : free_handle(s, (uintptr_t)v[1].v_handle, STREAM);
    case RPC_DEV_SET_STREAM: return stream_of(s, v, a->codes[1], &stream) != 0 ? -1 : TVMSetStream(type, id, stream);
    case RPC_DEV_STREAM_SYNC: return stream_of(s, v, a->codes[1], &stream) != 0 ? -1 : TVMSynchronize(type, id, stream);
    default: return tw_fail("RPCError: there is no request %d", (int)code);
  }
}

static void local_destroy(RpcSession* base) {
  Local* s = (Local*)base;
  for (int i = 0; i < s->num_handles; ++i) drop_object(&s->handles[i]);
  free(s->handles);
  pthread_mutex_destroy(&s->lock);
  free(s);
}

static const RpcSessionClass local_class = {local_request, local_call,   local_copy_to,
                                            local_copy_from, local_memory, local_destroy};

RpcSession* rpc_local_session(void) {
  Local* s = calloc(1, sizeof *s);
  if (s == NULL) {
    tw_out_of_memory(sizeof *s);
    return NULL;
  }
  rpc_session_init(&s->base, &local_class);
  pthread_mutex_init(&s->lock, NULL);
  s->first_free = -1;
  return &s->base;
}
