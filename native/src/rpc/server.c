/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The serving side: requests one after another, each answered before the next is read. */
#include "rpc.h"

#include <unistd.h>

typedef struct Server Server;

/* The way to the client's functions, which may be held for longer than there is a client. */
typedef struct {
  RpcBack base;
  TwLock lock;
  Server* server; /* NULL after the end */
  uint64_t* freed; /* functions that are not needed any more, which the client is told before the next answer */
  int num_freed, room;
} Back;

struct Server {
  RpcChannel* channel;
  RpcSession* session; /* what the requests are for; NULL before RPC_INIT_SERVER */
  Back* back;
  pthread_t thread;
  int depth; /* of calls of the client's functions */
  bool lost; /* the client is gone */
};

/* Tells the client which of its functions are not needed any more. */
static int put_freed(Server* s) {
  Back* b = s->back;
  int rc = 0;
  tw_lock(&b->lock);
  for (int i = 0; rc == 0 && i < b->num_freed; ++i) {
    TVMValue values[] = {{.v_int64 = (int64_t)b->freed[i]}, {.v_int64 = kTVMPackedFuncHandle}};
    int codes[] = {kTVMOpaqueHandle, kTVMArgInt};
    rc = rpc_put_packet(s->channel, RPC_FREE_HANDLE, &(RpcSequence){.values = values, .codes = codes, .count = 2});
  }
  b->num_freed = 0;
  tw_unlock(&b->lock);
  return rc;
}

static int return_nothing(Server* s) {
  TVMValue value = {0};
  int code = kTVMNullptr;
  if (put_freed(s) != 0) return -1;
  return rpc_put_packet(s->channel, RPC_RETURN, &(RpcSequence){.values = &value, .codes = &code, .count = 1});
}

static int answer(Server* s, int rc, RpcSequence* result) {
  if (rc == 0 && (rc = put_freed(s)) == 0) rc = rpc_put_packet(s->channel, RPC_RETURN, result);
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
  RpcSequence memory = {0}, arguments = {0};
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
  if (rc != 0) return rc;
  rpc_back_release(s->session->back);
  s->session->back = rpc_back_retain(&s->back->base);
  return return_nothing(s);
}

/* ---- calls ---- */
static int lose(Server* s) {
  s->lost = true;
  return -1;
}

static RpcFileService file_service(Server* s, uint64_t function) {
  const RpcSessionClass* cls = s->session->cls;
  return rpc_file_service(cls->find_func == NULL ? NULL : cls->find_func(s->session, function));
}

static bool have_types(const RpcSequence* arguments, int count, int first, int second) {
  return arguments->count == count && arguments->codes[0] == first && (count == 1 || arguments->codes[1] == second);
}

/* A call of tvm.rpc.server.upload, whose bytes go from the channel to the file. */
static int take_file(Server* s, RpcSequence* arguments) {
  uint64_t size;
  TVMValue values[] = {{.v_int64 = kTVMNullptr}, {0}};
  int codes[] = {kTVMArgInt, kTVMNullptr};
  if (rpc_sequence_get_values(s->channel, arguments, 0, 1) != 0) return -1;
  int rc = rpc_get(s->channel, &size, sizeof size);
  if (rc == 0) rc = rpc_receive_file(s->channel, arguments->values[0], size);
  rpc_sequence_free(arguments);
  return answer(s, rc, &(RpcSequence){.values = values, .codes = codes, .count = 2});
}

static int put_file_head(RpcChannel* c, uint64_t size) {
  const int32_t code = RPC_RETURN, types[] = {2, kTVMArgInt, kTVMBytes};
  const uint64_t type = kTVMBytes, nbytes = sizeof code + sizeof types + sizeof type + sizeof size + size;
  return rpc_put(c, &nbytes, sizeof nbytes) != 0 || rpc_put(c, &code, sizeof code) != 0 ||
                 rpc_put(c, types, sizeof types) != 0 || rpc_put(c, &type, sizeof type) != 0
             ? -1
             : rpc_put(c, &size, sizeof size);
}

/* A call of tvm.rpc.server.download, whose result goes from the file to the channel. */
static int give_file(Server* s, RpcSequence* arguments) {
  int fd;
  uint64_t size;
  int rc = rpc_open_file(arguments->values[0], &fd, &size);
  rpc_sequence_free(arguments);
  if (rc != 0) return -1;
  if (put_freed(s) != 0 || put_file_head(s->channel, size) != 0 || rpc_put_file(s->channel, fd, size) != 0) rc = lose(s);
  close(fd);
  return rc;
}

static int call_function(Server* s) {
  uint64_t function;
  RpcSequence arguments = {0}, result = {0};
  if (rpc_get(s->channel, &function, sizeof function) != 0 || rpc_sequence_get_types(s->channel, &arguments) != 0) return -1;
  const RpcFileService files = file_service(s, function);
  if (files == RPC_UPLOAD && have_types(&arguments, 2, kTVMStr, kTVMBytes)) return take_file(s, &arguments);
  if (rpc_sequence_get_values(s->channel, &arguments, 0, arguments.count) != 0) return -1;
  if (rpc_end_packet(s->channel) != 0) {
    rpc_sequence_free(&arguments);
    return -1;
  }
  if (files == RPC_DOWNLOAD && have_types(&arguments, 1, kTVMStr, 0)) return give_file(s, &arguments);
  int rc = s->session->cls->call(s->session, function, &arguments, &result);
  rpc_sequence_free(&arguments);
  return answer(s, rc, &result);
}

static int request(Server* s, RpcCode code) {
  RpcSequence arguments = {0}, result = {0};
  if (rpc_sequence_get(s->channel, &arguments) != 0) return -1;
  int rc = s->session->cls->request(s->session, code, &arguments, &result);
  rpc_sequence_free(&arguments);
  return answer(s, rc, &result);
}

static int host_memory(Server* s, const DLTensor* tensor, uint64_t size, bool write, char** out) {
  *out = NULL;
  return s->session->cls->host_memory == NULL ? 0 : s->session->cls->host_memory(s->session, tensor, size, write, out);
}

static int copy_to(Server* s, RpcSequence* memory) {
  DLTensor* tensor;
  uint64_t size;
  char* to;
  if (rpc_get_tensor(s->channel, memory, &tensor) != 0 || rpc_get(s->channel, &size, sizeof size) != 0 ||
      host_memory(s, tensor, size, true, &to) != 0) {
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
      host_memory(s, tensor, size, false, &from) != 0) {
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

/* Answers the request whose code was read. */
static int respond(Server* s, int32_t code) {
  int rc = 0;
  tw_clear_error();
  if (handle(s, code) != 0) {
    char* text = tw_strdup(TVMGetLastError());
    call_hook("tvm.rpc.server.told_error"); /* what the error holds goes, functions of the client among it */
    rc = s->lost || rpc_end_packet(s->channel) != 0 || put_freed(s) != 0 ? -1 : 0;
    if (rc == 0) rc = rpc_put_exception(s->channel, text == NULL ? "out of memory" : text);
    free(text);
  }
  if (rc == 0 && s->channel->packet_left != 0) rc = rpc_end_packet(s->channel);
  return rc == 0 ? rpc_flush(s->channel) : -1;
}

/* ---- the client's functions ---- */
static int check_back(RpcBack* base) {
  Back* b = (Back*)base;
  tw_lock(&b->lock);
  const Server* s = b->server;
  const bool other = s != NULL && !pthread_equal(s->thread, pthread_self());
  tw_unlock(&b->lock);
  if (s == NULL || (!other && s->lost)) return tw_fail("RPCError: the client whose function is called has gone");
  return !other ? 0 : tw_fail("RPCError: a client's function can be called only in the thread that serves the client");
}

/* Reads what the client's function gave, or why it gave nothing. */
static int read_outcome(Server* s, int32_t code, RpcSequence* result) {
  if (rpc_sequence_get(s->channel, result) != 0 || rpc_end_packet(s->channel) != 0) return lose(s);
  if (code == RPC_RETURN) return 0;
  const bool told = result->count == 1 && result->codes[0] == kTVMStr;
  const char* text = told ? result->values[0].v_str : "no reason was given";
  return tw_fail(strncmp(text, "RPCError: ", 10) == 0 ? "%s" : "RPCError: the client's function failed: %s", text);
}

static int call_back(RpcBack* base, uint64_t function, const RpcSequence* arguments, RpcSequence* result) {
  int32_t code;
  if (check_back(base) != 0 || rpc_sequence_check(arguments) != 0) return -1;
  Server* s = ((Back*)base)->server;
  if (s->depth >= RPC_MAX_DEPTH) return tw_fail("RPCError: %d calls wait for one another already", RPC_MAX_DEPTH);
  if (rpc_put_with_head(s->channel, RPC_CALL_FUNC, &function, sizeof function, arguments) != 0 || rpc_flush(s->channel) != 0) {
    return lose(s);
  }
  ++s->depth;
  int rc = 0;
  for (;;) { /* the client's function may use the session */
    if (rpc_begin_packet(s->channel, &code) != 0) rc = lose(s);
    else if (code == RPC_NONE || code == RPC_SHUTDOWN) rc = lose(s), tw_fail("RPCError: the client went in the middle of a call");
    else if (code == RPC_RETURN || code == RPC_EXCEPTION) rc = read_outcome(s, code, result);
    else if (respond(s, code) != 0) rc = lose(s);
    else continue;
    break;
  }
  --s->depth;
  return rc;
}

static void release_back(RpcBack* base, uint64_t function) {
  Back* b = (Back*)base;
  tw_lock(&b->lock);
  if (b->server != NULL && b->num_freed == b->room) {
    const int room = b->room == 0 ? 16 : b->room * 2;
    uint64_t* grown = realloc(b->freed, (size_t)room * sizeof *grown);
    if (grown != NULL) {
      b->freed = grown;
      b->room = room;
    }
  }
  if (b->server != NULL && b->num_freed < b->room) b->freed[b->num_freed++] = function;
  tw_unlock(&b->lock);
}

static void destroy_back(RpcBack* base) {
  Back* b = (Back*)base;
  tw_lock_destroy(&b->lock);
  free(b->freed);
  free(b);
}

static Back* new_back(Server* s) {
  Back* b = calloc(1, sizeof *b);
  if (b == NULL) {
    tw_out_of_memory(sizeof *b);
    return NULL;
  }
  b->base = (RpcBack){.check = check_back, .call = call_back, .release = release_back, .destroy = destroy_back};
  atomic_init(&b->base.refs, 1);
  tw_lock_init(&b->lock);
  b->server = s;
  return b;
}

/* ---- the loop ---- */
int rpc_serve(RpcChannel* channel) {
  Server s = {.channel = channel, .thread = pthread_self()};
  int rc = 0;
  if ((s.back = new_back(&s)) == NULL) {
    rpc_channel_free(channel);
    return -1;
  }
  call_hook("tvm.rpc.server.start");
  while (rc == 0) {
    int32_t code;
    rc = rpc_begin_packet(channel, &code);
    if (rc != 0 || code == RPC_NONE || code == RPC_SHUTDOWN) break;
    rc = respond(&s, code);
  }
  tw_lock(&s.back->lock);
  s.back->server = NULL;
  tw_unlock(&s.back->lock);
  rpc_back_release(&s.back->base);
  rpc_session_release(s.session);
  rpc_channel_free(channel);
  call_hook("tvm.rpc.server.shutdown");
  return rc;
}

int TilewrightRpcServe(int read_fd, int write_fd) {
  RpcChannel* channel = rpc_channel_over_fds(read_fd, write_fd);
  if (channel != NULL) return rpc_serve(channel);
  close(read_fd); /* as when it has served: the other end would wait for ever */
  if (write_fd != read_fd) close(write_fd);
  return -1;
}

int TilewrightRpcServeOver(const TilewrightRpcCallbacks* callbacks, void* context) {
  RpcChannel* channel = rpc_channel_over_callbacks(callbacks, context);
  return channel == NULL ? -1 : rpc_serve(channel);
}

/* rpc.ServerLoop(fd), which returns when the client is gone. */
static int server_loop(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  int64_t fd;
  (void)ret;
  (void)resource;
  return tw_arg_int(args, codes, n, 0, "rpc.ServerLoop", &fd) != 0 ? -1 : TilewrightRpcServe((int)fd, (int)fd);
}

/* tvm.rpc.server.CallsBack(): that it is there says that functions of clients are called. */
static int calls_back(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  (void)args;
  (void)codes;
  (void)n;
  (void)resource;
  tw_return_int(ret, 1);
  return 0;
}

TW_GLOBAL_FUNCTIONS({"rpc.ServerLoop", server_loop}, {RPC_CALLS_BACK, calls_back})
