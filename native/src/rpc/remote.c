/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * What a session gives this process: modules of type "rpc", functions that call the far side, and the global functions
 * that make sessions. Arrays on remote devices are in device.c. */
#include "rpc.h"

/* ---- functions ---- */
typedef struct {
  RpcSession* session;
  uint64_t handle;
} RemoteFunc;

static void free_remote(RpcSession* session, uint64_t handle, int code) {
  TVMValue values[] = {{.v_handle = (void*)(uintptr_t)handle}, {.v_int64 = code}};
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
  if (handle.v_handle == NULL) return 0;
  *out = wrap_func(session, (uintptr_t)handle.v_handle);
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

/* ---- calls ---- */
/* The argument as the far side knows it. */
static int unwrap(RpcSession* session, TVMValue* value, int* code, RpcSequence* memory, int index) {
  RemoteModule* m;
  TVMPackedCFunc callback;
  void* resource;
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
      value->v_handle = (void*)(uintptr_t)m->handle;
      return 0;
    case kTVMPackedFuncHandle:
      TilewrightFuncCallback(value->v_handle, &callback, &resource);
      if (callback != call_remote || ((RemoteFunc*)resource)->session != session) {
        return tw_fail("RPCError: argument %d is a function that is not of this session", index);
      }
      value->v_handle = (void*)(uintptr_t)((RemoteFunc*)resource)->handle;
      return 0;
    default: return 0;
  }
}

/* What the far side's function returned, as things of this process. */
static int wrap_result(RpcSession* session, const RpcSequence* result, TVMRetValueHandle ret) {
  const TVMValue* v = result->values;
  if (result->count < 2 || result->codes[0] != kTVMArgInt) return tw_fail("RPCError: the result of a call is not encoded as TVM does");
  void* handle;
  switch (v[0].v_int64) {
    case kTVMPackedFuncHandle:
    case kTVMModuleHandle:
      if (v[1].v_handle == NULL) return 0;
      handle = v[0].v_int64 == kTVMModuleHandle ? (void*)wrap_module(session, (uintptr_t)v[1].v_handle)
                                                : (void*)wrap_func(session, (uintptr_t)v[1].v_handle);
      if (handle == NULL) return -1;
      tw_return_handle(ret, handle, (int)v[0].v_int64);
      return 0;
    case kTVMDLTensorHandle:
    case kTVMNDArrayHandle:
      if (result->count != 3 || result->codes[1] != kTVMDLTensorHandle) return tw_fail("RPCError: an array is not encoded as TVM does");
      handle = rpc_wrap_array(session, v[1].v_handle, (uintptr_t)v[2].v_handle);
      if (handle == NULL) return -1;
      tw_return_handle(ret, handle, kTVMNDArrayHandle);
      return 0;
    default: {
      TVMValue value = v[1];
      int code = result->codes[1];
      if (!rpc_is_plain(code)) return tw_fail("RPCError: the result of a call is encoded as a value of type code %d", code);
      return TVMCFuncSetReturn(ret, &value, &code, 1);
    }
  }
}

static int call_remote(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  const RemoteFunc* f = resource;
  RpcSequence there = {0}, result = {0};
  int rc = rpc_sequence_reserve(&there, n);
  for (int i = 0; rc == 0 && i < n; ++i) {
    there.values[i] = args[i];
    there.codes[i] = codes[i];
    rc = unwrap(f->session, &there.values[i], &there.codes[i], &there, i);
  }
  if (rc == 0) rc = f->session->cls->call(f->session, f->handle, &there, &result);
  rpc_sequence_free(&there);
  if (rc == 0) rc = wrap_result(f->session, &result, ret);
  rpc_sequence_free(&result);
  return rc;
}

/* ---- global functions ---- */
static int return_session(RpcSession* session, TVMRetValueHandle ret) {
  TwModule* m = session == NULL ? NULL : rpc_session_module(session);
  rpc_session_release(session);
  if (m == NULL) return -1;
  tw_return_handle(ret, m, kTVMModuleHandle);
  return 0;
}

static int return_client(RpcChannel* channel, TVMValue* values, int* codes, int count, TVMRetValueHandle ret) {
  RpcSession* session = rpc_client_session(channel);
  if (session == NULL) return -1;
  if (rpc_client_init(session, values, codes, count) != 0) {
    rpc_session_release(session);
    return -1;
  }
  return return_session(session, ret);
}

#define CONNECT_SECONDS 10

/* The number of an option "-timeout=60" in a key, or 0. */
static double option_of(const char* key, const char* option) {
  const char* at = strstr(key, option);
  return at == NULL ? 0 : strtod(at + strlen(option), NULL);
}

static void limit(RpcChannel* channel, double start, double seconds) {
  if (seconds <= 0) return;
  channel->deadline = start + seconds + RPC_GRACE;
  channel->overdue = "RPCSessionTimeoutError: the session's time is over (session_timeout)";
}

/* rpc.Connect(host, port, key, constructor and its arguments ...) -> session. */
static int connect_to(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  static const char who[] = "rpc.Connect";
  const char *host, *key;
  int64_t port;
  char* full;
  RpcChannel* channel;
  (void)resource;
  if (tw_arg_str(args, codes, n, 0, who, &host) != 0 || tw_arg_int(args, codes, n, 1, who, &port) != 0 ||
      tw_arg_str(args, codes, n, 2, who, &key) != 0) {
    return -1;
  }
  size_t size = strlen(key) + sizeof "client:";
  if ((full = malloc(size)) == NULL) return tw_out_of_memory(size);
  snprintf(full, size, "client:%s", key);
  double start = tw_now(), seconds = option_of(key, "-timeout=");
  int rc = rpc_connect(host, (int)port, full, CONNECT_SECONDS, &channel);
  free(full);
  if (rc != 0) return rc;
  limit(channel, start, seconds);
  return return_client(channel, args + 3, codes + 3, n - 3, ret);
}

/* rpc.ConnectFd(descriptor, seconds, constructor and its arguments ...) -> session, over a socket after its handshake. */
static int connect_fd(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  int64_t fd;
  (void)resource;
  if (tw_arg_int(args, codes, n, 0, "rpc.ConnectFd", &fd) != 0) return -1;
  if (n < 2 || codes[1] != kTVMArgFloat) return tw_fail("rpc.ConnectFd: argument 1 must be a number of seconds");
  RpcChannel* channel = rpc_channel_over_fds((int)fd, (int)fd);
  if (channel == NULL) return -1;
  limit(channel, tw_now(), args[1].v_float64);
  return return_client(channel, args + 2, codes + 2, n - 2, ret);
}

/* rpc.ConnectOver(send, receive, seconds, constructor and its arguments ...) -> session, over a channel after its handshake. */
static int connect_over(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  RpcChannel* channel;
  (void)resource;
  if (n < 3 || codes[2] != kTVMArgFloat) return tw_fail("rpc.ConnectOver: argument 2 must be a number of seconds");
  if (rpc_channel_of_args(args, codes, n, "rpc.ConnectOver", &channel) != 0) return -1;
  limit(channel, tw_now(), args[2].v_float64);
  return return_client(channel, args + 3, codes + 3, n - 3, ret);
}

/* rpc.CreatePipeClient(words of a command ...) -> session. */
static int create_pipe_client(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  const char* words[16];
  RpcChannel* channel;
  (void)resource;
  if (n < 1 || n > 16) return tw_fail("rpc.CreatePipeClient: 1 to 16 words are needed, not %d", n);
  for (int i = 0; i < n; ++i) {
    if (tw_arg_str(args, codes, n, i, "rpc.CreatePipeClient", &words[i]) != 0) return -1;
  }
  return rpc_start_program(words, n, &channel) != 0 ? -1 : return_client(channel, NULL, NULL, 0, ret);
}

static int local_session(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  (void)args;
  (void)codes;
  (void)n;
  (void)resource;
  return return_session(rpc_local_session(), ret);
}

/* rpc.SessTableIndex(session) -> the number that is in its devices' types. */
static int table_index(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  TwModule* module;
  RemoteModule* m;
  (void)resource;
  if (tw_arg_module(args, codes, n, 0, "rpc.SessTableIndex", &module) != 0 || remote_module(module, &m) != 0) return -1;
  tw_return_int(ret, m->session->index);
  return 0;
}

/* rpc.LoadRemoteModule(session, file) -> module. */
static int load_remote(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  static const char who[] = "rpc.LoadRemoteModule";
  TwModule* module;
  RemoteModule* m;
  const char* file;
  TwReturn* r = ret;
  (void)resource;
  if (tw_arg_module(args, codes, n, 0, who, &module) != 0 || tw_arg_str(args, codes, n, 1, who, &file) != 0 ||
      remote_module(module, &m) != 0) {
    return -1;
  }
  TVMValue value = {.v_str = file};
  int code = kTVMStr;
  return call_service(m->session, "tvm.rpc.server.load_module", &value, &code, 1, &r->value, &r->code);
}

/* rpc.ImportRemoteModule(parent, child), both remote. */
static int import_remote(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  TwModule* module;
  RemoteModule* m;
  TVMValue value;
  int code;
  (void)ret;
  (void)resource;
  if (tw_arg_module(args, codes, n, 0, "rpc.ImportRemoteModule", &module) != 0 || remote_module(module, &m) != 0) return -1;
  return call_service(m->session, "tvm.rpc.server.ImportModule", args, codes, n, &value, &code);
}

/* rpc.RemoteGlobal(module, name) -> the far side's global function. */
static int remote_global(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  static const char who[] = "rpc.RemoteGlobal";
  TwModule* module;
  RemoteModule* m;
  const char* name;
  TwFunc* f;
  (void)resource;
  if (tw_arg_module(args, codes, n, 0, who, &module) != 0 || tw_arg_str(args, codes, n, 1, who, &name) != 0 ||
      remote_module(module, &m) != 0 || find_global(m->session, name, &f) != 0) {
    return -1;
  }
  if (f == NULL) return tw_fail("RPCError: the server has no function %s", name);
  tw_return_handle(ret, f, kTVMPackedFuncHandle);
  return 0;
}

/* ---- what clients ask a server for ---- */
static int server_get_function(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  static const char who[] = "tvm.rpc.server.ModuleGetFunction";
  TwModule* module;
  const char* name;
  int64_t imports;
  TwFunc* f;
  (void)resource;
  if (tw_arg_module(args, codes, n, 0, who, &module) != 0 || tw_arg_str(args, codes, n, 1, who, &name) != 0 ||
      tw_arg_int(args, codes, n, 2, who, &imports) != 0 || tw_module_find(module, name, imports != 0, &f) != 0) {
    return -1;
  }
  if (f != NULL) tw_return_handle(ret, f, kTVMPackedFuncHandle);
  return 0;
}

static int server_import(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  static const char who[] = "tvm.rpc.server.ImportModule";
  TwModule *parent, *child;
  (void)ret;
  (void)resource;
  if (tw_arg_module(args, codes, n, 0, who, &parent) != 0 || tw_arg_module(args, codes, n, 1, who, &child) != 0) return -1;
  return tw_module_import(parent, child);
}

TW_GLOBAL_FUNCTIONS({"rpc.Connect", connect_to},
                    {"rpc.ConnectFd", connect_fd},
                    {"rpc.ConnectOver", connect_over},
                    {"rpc.CreatePipeClient", create_pipe_client},
                    {"rpc.LocalSession", local_session},
                    {"rpc.SessTableIndex", table_index},
                    {"rpc.LoadRemoteModule", load_remote},
                    {"rpc.ImportRemoteModule", import_remote},
                    {"rpc.RemoteGlobal", remote_global},
                    {"tvm.rpc.server.ModuleGetFunction", server_get_function},
                    {"tvm.rpc.server.ImportModule", server_import})
