/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * What a session gives this process: modules of type "rpc", and functions that call the far side. Arrays on remote devices are
 * in device.c. */
#include "rpc.h"

/* ---- functions ---- */
typedef struct {
  RpcSession* session;
  uint64_t handle;
} RemoteFunc;

static void free_remote(RpcSession* session, uint64_t handle, int code) {
  TVMValue values[] = {{.v_int64 = (int64_t)handle}, {.v_int64 = code}};
  int codes[] = {kTVMOpaqueHandle, kTVMArgInt};
  char* error = tw_strdup(TVMGetLastError());
  /* a far side that is gone has freed all it had */
  if (rpc_request(session, RPC_FREE_HANDLE, values, codes, 2, NULL) != 0 && error != NULL) TVMAPISetLastError(error);
  free(error);
  rpc_session_release(session);
}

static void free_func(void* resource) {
  RemoteFunc* f = resource;
  free_remote(f->session, f->handle, kTVMPackedFuncHandle);
  free(f);
}

static int call_remote(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource);

static TwFunc* wrap_func(RpcSession* session, uint64_t handle) {
  TVMFunctionHandle out = NULL;
  RemoteFunc* f = malloc(sizeof *f);
  if (f == NULL) {
    tw_out_of_memory(sizeof *f);
    return NULL;
  }
  *f = (RemoteFunc){rpc_session_retain(session), handle};
  if (TVMFuncCreateFromCFunc(call_remote, f, free_func, &out) != 0) {
    free_func(f);
    return NULL;
  }
  return out;
}

/* ---- modules ---- */
typedef struct {
  RpcSession* session;
  uint64_t handle; /* 0: the session itself, whose functions are the far side's global ones */
} RemoteModule;

static const TwModuleClass remote_class;

static TwModule* wrap_module(RpcSession* session, uint64_t handle) {
  RemoteModule* m = malloc(sizeof *m);
  TwModule* module = m == NULL ? NULL : tw_module_new(&remote_class, "rpc", m);
  if (module == NULL) {
    if (m == NULL) tw_out_of_memory(sizeof *m);
    free(m);
    return NULL;
  }
  *m = (RemoteModule){rpc_session_retain(session), handle};
  return module;
}

static void destroy_module(TwModule* self) {
  RemoteModule* m = self->data;
  if (m->handle != 0) free_remote(m->session, m->handle, kTVMModuleHandle);
  else rpc_session_release(m->session);
  free(m);
}

static int find_global(RpcSession* session, const char* name, TwFunc** out) {
  TVMValue value = {.v_str = name}, handle;
  int code = kTVMStr;
  *out = NULL;
  if (rpc_request(session, RPC_GET_GLOBAL_FUNC, &value, &code, 1, &handle) != 0) return -1;
  if (handle.v_int64 == 0) return 0;
  *out = wrap_func(session, (uint64_t)handle.v_int64);
  return *out == NULL ? -1 : 0;
}

/* Calls a function that every server has. */
static int call_service(RpcSession* session, const char* name, TVMValue* values, int* codes, int n, TVMValue* value, int* code) {
  TwFunc* f;
  if (find_global(session, name, &f) != 0) return -1;
  if (f == NULL) return tw_fail("RPCError: the server has no function %s", name);
  int rc = TVMFuncCall(f, values, codes, n, value, code);
  tw_func_release(f);
  return rc;
}

static int module_function(TwModule* self, const char* name, TwFunc** out) {
  const RemoteModule* m = self->data;
  TVMValue value, values[] = {{.v_handle = self}, {.v_str = name}, {.v_int64 = 0}};
  int code, codes[] = {kTVMModuleHandle, kTVMStr, kTVMArgInt};
  if (m->handle == 0) return find_global(m->session, name, out);
  *out = NULL;
  if (call_service(m->session, "tvm.rpc.server.ModuleGetFunction", values, codes, 3, &value, &code) != 0) return -1;
  if (code == kTVMPackedFuncHandle) *out = value.v_handle;
  return 0;
}

static const TwModuleClass remote_class = {.get_function = module_function, .destroy = destroy_module};

static int remote_module(TwModule* module, RemoteModule** out) {
  if (module->cls != &remote_class) return tw_fail("a module of type \"rpc\" is needed, not \"%s\"", module->type_key);
  *out = module->data;
  return 0;
}

TwModule* rpc_session_module(RpcSession* session) {
  return rpc_session_enter(session) != 0 ? NULL : wrap_module(session, 0);
}

int rpc_session_of_module(TwModule* module, RpcSession** out) {
  RemoteModule* m;
  if (remote_module(module, &m) != 0) return -1;
  *out = rpc_session_retain(m->session);
  return 0;
}

/* ---- values ---- */
static bool is_remote_func(const RpcSession* session, TwFunc* f, uint64_t* handle) {
  TVMPackedCFunc callback;
  void* resource;
  TilewrightFuncCallback(f, &callback, &resource);
  if (callback != call_remote || ((RemoteFunc*)resource)->session != session) return false;
  *handle = ((RemoteFunc*)resource)->handle;
  return true;
}

/* Whether a value is a function of this process. */
static bool is_own_func(const RpcSession* session, TVMValue value, int code) {
  uint64_t handle;
  return code == kTVMPackedFuncHandle && !is_remote_func(session, value.v_handle, &handle);
}

/* The value as the far side knows it, unless it is a function of this process. */
static int unwrap(RpcSession* session, TVMValue* value, int* code, RpcSequence* memory, int index) {
  RemoteModule* m;
  uint64_t handle;
  switch (*code) {
    case kTVMNDArrayHandle:
    case kTVMDLTensorHandle:
      *code = kTVMDLTensorHandle;
      return rpc_unwrap_tensor(session, value, memory, index);
    case kDLDevice:
      if (value->v_device.device_type / RPC_DEVICE_MASK - 1 != session->index) {
        return tw_fail("RPCError: argument %d is a device that is not of this session", index);
      }
      value->v_device.device_type %= RPC_DEVICE_MASK;
      return 0;
    case kTVMModuleHandle:
      if (remote_module(value->v_handle, &m) != 0) return tw_fail("RPCError: argument %d is a module that is not remote", index);
      if (m->session != session) return tw_fail("RPCError: argument %d is a module of another session", index);
      if (m->handle == 0) return tw_fail("RPCError: argument %d is the session itself, not a module in it", index);
      value->v_int64 = (int64_t)m->handle;
      return 0;
    case kTVMPackedFuncHandle:
      if (is_remote_func(session, value->v_handle, &handle)) value->v_int64 = (int64_t)handle;
      return 0;
    default: return 0;
  }
}

int rpc_unwrap_values(RpcSession* session, const TVMValue* values, const int* codes, int count, RpcSequence* there) {
  int rc = 0, taken = 0;
  for (int i = 0; rc == 0 && i < count; ++i) {
    there->values[i] = values[i];
    there->codes[i] = codes[i];
    rc = unwrap(session, &there->values[i], &there->codes[i], there, i);
  }
  if (rc == 0) rc = rpc_sequence_check(there);
  /* functions at last: the far side says when it needs them no more, which it does if it gets them */
  for (; rc == 0 && taken < count; ++taken) {
    uint64_t handle;
    if (!is_own_func(session, values[taken], codes[taken])) continue;
    if ((rc = session->cls->take_func(session, values[taken].v_handle, taken, &handle)) != 0) break;
    there->values[taken].v_int64 = (int64_t)handle;
  }
  for (int i = 0; rc != 0 && i < taken; ++i) {
    if (is_own_func(session, values[i], codes[i])) session->cls->end_call(session, (uint64_t)there->values[i].v_int64, false);
  }
  return rc;
}

int rpc_wrap_value(RpcSession* session, TVMValue value, int code, TVMValue* out, int* out_code) {
  const DLTensor* t = value.v_handle;
  *out = value;
  *out_code = code;
  switch (code) {
    case kTVMPackedFuncHandle: return (out->v_handle = wrap_func(session, (uint64_t)value.v_int64)) == NULL ? -1 : 0;
    case kTVMModuleHandle: return (out->v_handle = wrap_module(session, (uint64_t)value.v_int64)) == NULL ? -1 : 0;
    case kTVMDLTensorHandle:
      *out_code = kTVMNDArrayHandle;
      return (out->v_handle = rpc_wrap_array(session, t, (uintptr_t)t->data)) == NULL ? -1 : 0;
    case kDLDevice:
      out->v_device.device_type = (DLDeviceType)((int)value.v_device.device_type + RPC_DEVICE_MASK * (session->index + 1));
      return 0;
    default: return rpc_is_plain(code) ? 0 : tw_fail("RPCError: a value of type code %d was sent", code);
  }
}

/* ---- calls ---- */
/* What the far side's function returned, as things of this process. */
static int wrap_result(RpcSession* session, const RpcSequence* result, TVMRetValueHandle ret) {
  const TVMValue* v = result->values;
  if (result->count < 2 || result->codes[0] != kTVMArgInt) return tw_fail("RPCError: the result of a call is not encoded as TVM does");
  TVMValue value;
  int code = (int)v[0].v_int64;
  void* array;
  switch (code) {
    case kTVMPackedFuncHandle:
    case kTVMModuleHandle:
      if (v[1].v_int64 == 0) return 0;
      if (rpc_wrap_value(session, v[1], code, &value, &code) != 0) return -1;
      tw_return_handle(ret, value.v_handle, code);
      return 0;
    case kTVMDLTensorHandle:
    case kTVMNDArrayHandle:
      if (result->count != 3 || result->codes[1] != kTVMDLTensorHandle) return tw_fail("RPCError: an array is not encoded as TVM does");
      array = rpc_wrap_array(session, v[1].v_handle, (uint64_t)v[2].v_int64);
      if (array == NULL) return -1;
      tw_return_handle(ret, array, kTVMNDArrayHandle);
      return 0;
    default:
      value = v[1];
      code = result->codes[1];
      if (!rpc_is_plain(code)) return tw_fail("RPCError: the result of a call is encoded as a value of type code %d", code);
      return TVMCFuncSetReturn(ret, &value, &code, 1);
  }
}

static int call_there(const RemoteFunc* f, TVMValue* args, int* codes, int n, RpcSequence* result) {
  RpcSequence there = {0};
  int rc = rpc_sequence_reserve(&there, n);
  if (rc == 0 && (rc = rpc_unwrap_values(f->session, args, codes, n, &there)) == 0) {
    rc = f->session->cls->call(f->session, f->handle, &there, result);
    for (int i = 0; i < n; ++i) {
      if (is_own_func(f->session, args[i], codes[i])) f->session->cls->end_call(f->session, (uint64_t)there.values[i].v_int64, true);
    }
  }
  rpc_sequence_free(&there);
  return rc;
}

static int call_remote(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  const RemoteFunc* f = resource;
  RpcSequence result = {0};
  int rc = call_there(f, args, codes, n, &result);
  if (rc == 0) rc = wrap_result(f->session, &result, ret);
  rpc_sequence_free(&result);
  return rc;
}

int TilewrightRpcCallForBytes(TVMFunctionHandle function, TVMValue* args, int* codes, int n, void* (*room)(void*, size_t),
                              void* context) {
  TVMPackedCFunc callback;
  void *resource, *to;
  if (TilewrightFuncCallback(function, &callback, &resource) != 0) return -1;
  if (callback != call_remote) return tw_fail("RPCError: the function whose bytes are wanted is not remote");
  RpcSequence result = {.room = room, .room_context = context};
  tw_clear_error();
  int rc = call_there(resource, args, codes, n, &result);
  if (rc == 0 && (result.count != 2 || result.codes[1] != kTVMBytes)) rc = tw_fail("RPCError: the remote function gave no bytes");
  if (rc == 0 && result.room != NULL) { /* a session of this process */
    const TVMByteArray* bytes = result.values[1].v_handle;
    to = room(context, bytes->size);
    if (to == NULL) rc = tw_out_of_memory(bytes->size);
    else if (bytes->size != 0) memcpy(to, bytes->data, bytes->size);
  }
  rpc_sequence_free(&result);
  return rc;
}

/* ---- what every server has ---- */
int rpc_load_remote(RpcSession* session, const char* file, TVMRetValueHandle ret) {
  TwReturn* r = ret;
  return call_service(session, "tvm.rpc.server.load_module", &(TVMValue){.v_str = file}, &(int){kTVMStr}, 1, &r->value, &r->code);
}

int rpc_import_remote(RpcSession* session, TVMValue* modules, int* codes, int count) {
  TVMValue value;
  int code;
  return call_service(session, "tvm.rpc.server.ImportModule", modules, codes, count, &value, &code);
}

int rpc_remote_global(RpcSession* session, const char* name, TVMRetValueHandle ret) {
  TwFunc* f;
  if (find_global(session, name, &f) != 0) return -1;
  if (f == NULL) return tw_fail("RPCError: the server has no function %s", name);
  tw_return_handle(ret, f, kTVMPackedFuncHandle);
  return 0;
}
