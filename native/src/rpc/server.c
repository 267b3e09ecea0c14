/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The serving side: requests one after another, each answered before the next is read. */
#include "rpc.h"

typedef struct {
  RpcChannel* channel;
  RpcSession* session; /* what the requests are for; NULL before RPC_INIT_SERVER */
} Server;

static int return_nothing(Server* s) {
  TVMValue value = {0};
  int code = kTVMNullptr;
  return rpc_put_packet(s->channel, RPC_RETURN, &(RpcSequence){.values = &value, .codes = &code, .count = 1});
}

static int answer(Server* s, int rc, RpcSequence* result) {
  if (rc == 0) rc = rpc_put_packet(s->channel, RPC_RETURN, result);
  rpc_sequence_free(result);
  return rc;
}

/* The session that a constructor, a global function, makes of the other arguments. */
static int construct(Server* s, const RpcSequence* arguments) {
  TVMValue value;
  int code;
  if (arguments->codes[0] != kTVMStr) return tw_fail("RPCError: a session's constructor must be named by a text");
  const char* name = arguments->values[0].v_str;
  TwFunc* f = tw_find_global(name);
  if (f == NULL) return tw_fail("RPCError: the server has no session constructor \"%s\"", name);
  int rc = TVMFuncCall(f, arguments->values + 1, arguments->codes + 1, arguments->count - 1, &value, &code);
  tw_func_release(f);
  if (rc != 0) return rc;
  if (code != kTVMModuleHandle) return tw_fail("RPCError: %s is no session constructor", name);
  rc = rpc_session_of_module(value.v_handle, &s->session);
  tw_module_release(value.v_handle);
  return rc;
}

static int init_server(Server* s) {
  uint64_t size;
  RpcSequence memory = {0}, arguments;
  if (rpc_get(s->channel, &size, sizeof size) != 0) return -1;
  const char* version = size > 64 ? NULL : rpc_get_bytes(s->channel, &memory, size);
  int rc = version != NULL ? 0 : tw_fail("RPCError: the client tells no version of the protocol");
  if (rc == 0 && strcmp(version, RPC_PROTOCOL) != 0) {
    rc = tw_fail("RPCError: the client speaks version %s of the protocol, this server %s", version, RPC_PROTOCOL);
  }
  rpc_sequence_free(&memory);
  if (rc != 0 || rpc_sequence_get(s->channel, &arguments) != 0) return -1;
  if (s->session != NULL) {
    rc = tw_fail("RPCError: the session has been initialized before");
  } else if (arguments.count == 0) {
    s->session = rpc_local_session();
    rc = s->session == NULL ? -1 : 0;
  } else {
    rc = construct(s, &arguments);
  }
  rpc_sequence_free(&arguments);
  return rc != 0 ? rc : return_nothing(s);
}

static int call_function(Server* s) {
  uint64_t function;
  RpcSequence arguments, result = {0};
  if (rpc_get(s->channel, &function, sizeof function) != 0 || rpc_sequence_get(s->channel, &arguments) != 0) return -1;
  int rc = s->session->cls->call(s->session, function, &arguments, &result);
  rpc_sequence_free(&arguments);
  return answer(s, rc, &result);
}

static int request(Server* s, RpcCode code) {
  RpcSequence arguments, result = {0};
  if (rpc_sequence_get(s->channel, &arguments) != 0) return -1;
  int rc = s->session->cls->request(s->session, code, &arguments, &result);
  rpc_sequence_free(&arguments);
  return answer(s, rc, &result);
}

static int host_memory(Server* s, const DLTensor* tensor, uint64_t size, char** out) {
  *out = NULL;
  return s->session->cls->host_memory == NULL ? 0 : s->session->cls->host_memory(s->session, tensor, size, out);
}

static int copy_to(Server* s, RpcSequence* memory) {
  DLTensor* tensor;
  uint64_t size;
  char* to;
  if (rpc_get_tensor(s->channel, memory, &tensor) != 0 || rpc_get(s->channel, &size, sizeof size) != 0 ||
      host_memory(s, tensor, size, &to) != 0) {
    return -1;
  }
  if (to != NULL) return rpc_get(s->channel, to, (size_t)size) != 0 ? -1 : return_nothing(s);
  const char* bytes = rpc_get_bytes(s->channel, memory, size);
  if (bytes == NULL || s->session->cls->copy_to(s->session, bytes, tensor, size) != 0) return -1;
  return return_nothing(s);
}

static int copy_from(Server* s, RpcSequence* memory) {
  DLTensor* tensor;
  uint64_t size;
  char* from;
  if (rpc_get_tensor(s->channel, memory, &tensor) != 0 || rpc_get(s->channel, &size, sizeof size) != 0 ||
      host_memory(s, tensor, size, &from) != 0) {
    return -1;
  }
  if (from == NULL) {
    from = rpc_sequence_alloc(memory, (size_t)size);
    if (from == NULL || s->session->cls->copy_from(s->session, tensor, from, size) != 0) return -1;
  }
  int32_t code = RPC_COPY_ACK;
  uint64_t nbytes = sizeof code + size;
  return rpc_put(s->channel, &nbytes, sizeof nbytes) != 0 || rpc_put(s->channel, &code, sizeof code) != 0
             ? -1
             : rpc_put(s->channel, from, (size_t)size);
}

static int handle(Server* s, int32_t code) {
  if (code == RPC_INIT_SERVER) return init_server(s);
  if (s->session == NULL) return tw_fail("RPCError: the first packet of a session must initialize it");
  if (code >= RPC_GET_GLOBAL_FUNC && code < RPC_NUM_CODES) return request(s, (RpcCode)code);
  if (code == RPC_CALL_FUNC) return call_function(s);
  if (code != RPC_COPY_TO_REMOTE && code != RPC_COPY_FROM_REMOTE) return tw_fail("RPCError: there is no request %d", code);
  RpcSequence memory = {0};
  int rc = code == RPC_COPY_TO_REMOTE ? copy_to(s, &memory) : copy_from(s, &memory);
  rpc_sequence_free(&memory);
  return rc;
}

static void call_hook(const char* name) {
  TVMValue value;
  int code;
  TwFunc* f = tw_find_global(name);
  if (f != NULL) TVMFuncCall(f, NULL, NULL, 0, &value, &code);
  tw_func_release(f);
}

int rpc_serve(RpcChannel* channel) {
  Server s = {.channel = channel};
  int rc = 0;
  call_hook("tvm.rpc.server.start");
  while (rc == 0) {
    int32_t code;
    rc = rpc_begin_packet(channel, &code);
    if (rc != 0 || code == RPC_NONE || code == RPC_SHUTDOWN) break;
    tw_clear_error();
    if (handle(&s, code) != 0) {
      char* text = tw_strdup(TVMGetLastError());
      rc = rpc_end_packet(channel) != 0 ? -1 : rpc_put_exception(channel, text == NULL ? "out of memory" : text);
      free(text);
    }
    if (rc == 0 && channel->packet_left != 0) rc = rpc_end_packet(channel);
    if (rc == 0) rc = rpc_flush(channel);
  }
  rpc_session_release(s.session);
  rpc_channel_free(channel);
  call_hook("tvm.rpc.server.shutdown");
  return rc;
}

int TilewrightRpcServe(int read_fd, int write_fd) {
  RpcChannel* channel = rpc_channel_over_fds(read_fd, write_fd);
  return channel == NULL ? -1 : rpc_serve(channel);
}

/* rpc.ServerLoop(fd) or rpc.ServerLoop(send, receive), which returns when the client is gone. */
static int server_loop(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  RpcChannel* channel;
  (void)ret;
  (void)resource;
  if (n == 1 && codes[0] == kTVMArgInt) return TilewrightRpcServe((int)args[0].v_int64, (int)args[0].v_int64);
  return rpc_channel_of_args(args, codes, n, "rpc.ServerLoop", &channel) != 0 ? -1 : rpc_serve(channel);
}

TW_GLOBAL_FUNCTIONS({"rpc.ServerLoop", server_loop})
