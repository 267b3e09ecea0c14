/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Functions of a local session's client, as functions here. What they are given, the client knows by handles of the session;
 * arrays that are somebody's memory only for the time of the call are its for that time. */
#include "handles.h"

typedef struct {
  RpcBack* back;
  Local* session; /* which is there as long as the way back is open */
  uint64_t handle;
} ClientFunc;

static void free_client_func(void* resource) {
  ClientFunc* f = resource;
  f->back->release(f->back, f->handle);
  rpc_back_release(f->back);
  free(f);
}

/* ---- arguments ---- */
/* Of an array its description, with a handle of its memory; `owner` is NULL for one that is lent. */
static int put_tensor(Local* s, RpcSequence* out, int i, const DLTensor* t, TwArray* owner) {
  size_t size;
  DLTensor* copy = rpc_sequence_alloc(out, sizeof *copy);
  if (copy == NULL) return -1;
  if (!tw_is_compact(t) || !tw_tensor_bytes(t->ndim, t->shape, t->dtype, &size)) {
    return tw_fail("RPCError: argument %d of the client's function is an array with strides, which cannot be sent", i);
  }
  if (owner != NULL) tw_array_retain(owner);
  *copy = *t;
  Handle handle = {.kind = ARRAY, .object = owner, .data = (char*)t->data + t->byte_offset, .size = size, .device = t->device};
  if (rpc_handle_put(s, out, i, handle) != 0) return -1;
  copy->data = (void*)(uintptr_t)out->values[i].v_int64;
  copy->byte_offset = 0;
  out->values[i].v_handle = copy;
  out->codes[i] = kTVMDLTensorHandle;
  return 0;
}

static int put_object(Local* s, RpcSequence* out, int i, HandleKind kind, void* object, int code) {
  if (rpc_handle_put(s, out, i, (Handle){.kind = kind, .object = object}) != 0) return -1;
  out->codes[i] = code;
  return 0;
}

static int put_argument(Local* s, RpcSequence* out, int i, TVMValue value, int code) {
  switch (code) {
    case kTVMNDArrayHandle: return put_tensor(s, out, i, value.v_handle, value.v_handle);
    case kTVMDLTensorHandle: return put_tensor(s, out, i, value.v_handle, NULL);
    case kTVMPackedFuncHandle: return put_object(s, out, i, FUNCTION, tw_func_retain(value.v_handle), code);
    case kTVMModuleHandle: return put_object(s, out, i, MODULE, tw_module_retain(value.v_handle), code);
    case kTVMOpaqueHandle:
      if (value.v_handle != NULL) return put_object(s, out, i, POINTER, value.v_handle, code);
      break;
    default:
      if (!rpc_is_plain(code)) return tw_fail("RPCError: argument %d of the client's function has type code %d", i, code);
  }
  out->values[i] = value;
  out->codes[i] = code;
  return 0;
}

/* Takes back what was lent; after a failure all, since the client has got nothing. */
static void take_back(Local* s, const RpcSequence* sent, int count, const int* codes, bool all) {
  for (int i = 0; i < count; ++i) {
    const uint64_t number = sent->codes[i] == kTVMDLTensorHandle
                                ? (uintptr_t)((const DLTensor*)sent->values[i].v_handle)->data
                                : (uint64_t)sent->values[i].v_int64;
    char* error = tw_strdup(TVMGetLastError());
    if (codes[i] == kTVMDLTensorHandle || (all && codes[i] == kTVMNDArrayHandle)) rpc_handle_free(s, number, ARRAY);
    else if (all && codes[i] == kTVMPackedFuncHandle) rpc_handle_free(s, number, FUNCTION);
    else if (all && codes[i] == kTVMModuleHandle) rpc_handle_free(s, number, MODULE);
    else if (codes[i] == kTVMOpaqueHandle && number != 0) rpc_handle_free(s, number, POINTER);
    if (error != NULL) TVMAPISetLastError(error); /* the client may have freed it */
    free(error);
  }
}

/* ---- results ---- */
static int copy_of(Local* s, DLTensor* t, TVMRetValueHandle ret) {
  TVMArrayHandle copy;
  if (rpc_handle_resolve_tensor(s, t) != 0) return -1;
  if (TVMArrayAlloc(t->shape, t->ndim, t->dtype.code, t->dtype.bits, t->dtype.lanes, (int)t->device.device_type,
                    t->device.device_id, &copy) != 0) {
    return -1;
  }
  if (TVMDeviceCopyDataFromTo(t, copy, NULL) != 0) {
    TVMArrayFree(copy);
    return -1;
  }
  tw_return_handle(ret, copy, kTVMNDArrayHandle);
  return 0;
}

static int take_result(Local* s, const RpcSequence* result, TVMRetValueHandle ret) {
  if (result->count != 1) return tw_fail("RPCError: the client's function gave %d values, not one", result->count);
  TVMValue value = result->values[0];
  int code = result->codes[0];
  const uint64_t number = (uint64_t)value.v_int64;
  Handle h;
  TwFunc* f;
  switch (code) {
    case kTVMDLTensorHandle: return copy_of(s, value.v_handle, ret);
    case kTVMModuleHandle:
      if (rpc_handle_find(s, number, MODULE, &h) != 0) return -1;
      tw_return_handle(ret, tw_module_retain(h.object), code);
      return 0;
    case kTVMPackedFuncHandle:
      if ((number & RPC_CLIENT_HANDLE) != 0) {
        f = rpc_client_func(s, number);
      } else {
        f = rpc_handle_find(s, number, FUNCTION, &h) == 0 ? tw_func_retain(h.object) : NULL;
      }
      if (f == NULL) return -1;
      tw_return_handle(ret, f, code);
      return 0;
    default:
      if (!rpc_is_plain(code) || code == kTVMOpaqueHandle) {
        return tw_fail("RPCError: the client's function gave a value of type code %d", code);
      }
      return TVMCFuncSetReturn(ret, &value, &code, 1);
  }
}

static int call_client(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  const ClientFunc* f = resource;
  RpcSequence there = {0}, result = {0};
  if (f->back->check(f->back) != 0) return -1;
  int rc = rpc_sequence_reserve(&there, n), count = 0;
  for (; rc == 0 && count < n; ++count) {
    if ((rc = put_argument(f->session, &there, count, args[count], codes[count])) != 0) break;
  }
  const bool put = rc == 0;
  if (put) rc = f->back->call(f->back, f->handle, &there, &result);
  if (put && f->back->check(f->back) != 0) rc = -1; /* the session may be gone with the client */
  else take_back(f->session, &there, count, codes, !put);
  rpc_sequence_free(&there);
  if (rc == 0) rc = take_result(f->session, &result, ret);
  rpc_sequence_free(&result);
  return rc;
}

TwFunc* rpc_client_func(Local* s, uint64_t handle) {
  TVMFunctionHandle out = NULL;
  if (s->base.back == NULL) {
    tw_fail("RPCError: handle 0x%llx is not of this session, or was freed", (unsigned long long)handle);
    return NULL;
  }
  ClientFunc* f = malloc(sizeof *f);
  if (f == NULL) {
    s->base.back->release(s->base.back, handle);
    tw_out_of_memory(sizeof *f);
    return NULL;
  }
  *f = (ClientFunc){rpc_back_retain(s->base.back), s, handle};
  if (TVMFuncCreateFromCFunc(call_client, f, free_client_func, &out) != 0) {
    free_client_func(f);
    return NULL;
  }
  return out;
}
