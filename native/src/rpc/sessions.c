/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The global functions that make sessions and ask them for things, and those that clients ask a server for. */
#include "rpc.h"

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
  if (rpc_client_init(session, values, codes, count) != 0 || rpc_client_take_calls(session) != 0) {
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

int TilewrightRpcConnectOver(const TilewrightRpcCallbacks* callbacks, void* context, double seconds, TVMValue* args, int* codes,
                             int n, TVMModuleHandle* out) {
  TwReturn ret;
  RpcChannel* channel = rpc_channel_over_callbacks(callbacks, context);
  if (channel == NULL) return -1;
  limit(channel, tw_now(), seconds);
  if (return_client(channel, args, codes, n, &ret) != 0) return -1;
  *out = ret.value.v_handle;
  return 0;
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

static int session_of(TVMValue* args, int* codes, int n, const char* who, RpcSession** out) {
  TwModule* module;
  return tw_arg_module(args, codes, n, 0, who, &module) != 0 ? -1 : rpc_session_of_module(module, out);
}

/* rpc.SessTableIndex(session) -> the number that is in its devices' types. */
static int table_index(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  RpcSession* session;
  (void)resource;
  if (session_of(args, codes, n, "rpc.SessTableIndex", &session) != 0) return -1;
  tw_return_int(ret, session->index);
  rpc_session_release(session);
  return 0;
}

/* rpc.LoadRemoteModule(session, file) -> module. */
static int load_remote(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  static const char who[] = "rpc.LoadRemoteModule";
  RpcSession* session;
  const char* file;
  (void)resource;
  if (tw_arg_str(args, codes, n, 1, who, &file) != 0 || session_of(args, codes, n, who, &session) != 0) return -1;
  int rc = rpc_load_remote(session, file, ret);
  rpc_session_release(session);
  return rc;
}

/* rpc.ImportRemoteModule(parent, child), both remote. */
static int import_remote(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  RpcSession* session;
  (void)ret;
  (void)resource;
  if (session_of(args, codes, n, "rpc.ImportRemoteModule", &session) != 0) return -1;
  int rc = rpc_import_remote(session, args, codes, n);
  rpc_session_release(session);
  return rc;
}

/* rpc.RemoteGlobal(module, name) -> the far side's global function. */
static int remote_global(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  static const char who[] = "rpc.RemoteGlobal";
  RpcSession* session;
  const char* name;
  (void)resource;
  if (tw_arg_str(args, codes, n, 1, who, &name) != 0 || session_of(args, codes, n, who, &session) != 0) return -1;
  int rc = rpc_remote_global(session, name, ret);
  rpc_session_release(session);
  return rc;
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
                    {"rpc.CreatePipeClient", create_pipe_client},
                    {"rpc.LocalSession", local_session},
                    {"rpc.SessTableIndex", table_index},
                    {"rpc.LoadRemoteModule", load_remote},
                    {"rpc.ImportRemoteModule", import_remote},
                    {"rpc.RemoteGlobal", remote_global},
                    {"tvm.rpc.server.ModuleGetFunction", server_get_function},
                    {"tvm.rpc.server.ImportModule", server_import})
