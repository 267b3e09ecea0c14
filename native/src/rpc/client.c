/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The session of a client: every request is a packet, and waits for its answer. Threads take turns. While it waits, the server
 * may call functions that the client has passed to it. */
#include "rpc.h"

/* A function of this process that the server may call. */
typedef struct {
  TwFunc* func; /* NULL: the place is free */
  uint32_t generation;
} Taken;

/* A free that waits. */
typedef struct Later {
  struct Later* next;
  RpcCode code;
  TVMValue values[2];
  int codes[2];
} Later;

typedef struct {
  RpcSession base;
  TwLock lock; /* of a thread for its request, and for those that its functions make when the server calls them */
  RpcChannel* channel;
  char* lost; /* why the channel cannot be used any more, or NULL */
  int depth;  /* of calls by the server */
  bool busy;  /* packets are under way: no request may begin, not even by the lock's owner, and what is freed waits */
  struct Later* later;
  bool may_call; /* the server has said that it calls functions of its clients */
  TwLock table_lock;
  Taken* table;
  uint32_t table_size;
} Client;

/* After an error of the channel itself there is no telling where the next packet begins. */
static int lose(Client* c) {
  const RpcChannel* channel = c->channel;
  if (channel->deadline != 0 && tw_now() >= channel->deadline - RPC_GRACE) tw_set_error("%s", channel->overdue);
  if (c->lost == NULL) c->lost = tw_strdup(TVMGetLastError());
  return -1;
}

static int lock(Client* c) {
  tw_lock(&c->lock);
  if (c->lost == NULL && !c->busy) {
    c->busy = true;
    return 0;
  }
  if (c->lost != NULL) tw_fail("%s", c->lost);
  else tw_fail("RPCError: the session is in the middle of another request of this thread");
  tw_unlock(&c->lock);
  return -1;
}

/* Whether a free has to wait, and does now. */
static bool wait_with_free(Client* c, RpcCode code, const RpcSequence* arguments) {
  if ((code != RPC_FREE_HANDLE && code != RPC_DEV_FREE_DATA) || arguments->count != 2) return false;
  tw_lock(&c->lock);
  Later* later = c->busy ? malloc(sizeof *later) : NULL;
  if (later != NULL) {
    *later = (Later){.next = c->later, .code = code};
    memcpy(later->values, arguments->values, sizeof later->values);
    memcpy(later->codes, arguments->codes, sizeof later->codes);
    c->later = later;
  }
  tw_unlock(&c->lock);
  return later != NULL;
}

void rpc_client_hold_frees(RpcSession* base, bool hold) { ((Client*)base)->busy = hold; }

static int read_result(Client* c, RpcSequence* result);

static void free_now(Client* c) {
  char* error = tw_strdup(TVMGetLastError());
  while (c->later != NULL) {
    Later* later = c->later;
    RpcSequence arguments = {.values = later->values, .codes = later->codes, .count = 2}, result = {0};
    c->later = later->next;
    if (c->lost == NULL && rpc_put_packet(c->channel, later->code, &arguments) == 0) read_result(c, &result);
    rpc_sequence_free(&result);
    free(later);
  }
  if (error != NULL) TVMAPISetLastError(error);
  free(error);
}

static int unlock(Client* c, int rc) {
  if (c->later != NULL) free_now(c);
  c->busy = false;
  tw_unlock(&c->lock);
  return rc;
}

/* The failure that the other side tells of. */
static int read_exception(Client* c) {
  RpcSequence text = {0};
  if (rpc_sequence_get(c->channel, &text) != 0 || rpc_end_packet(c->channel) != 0) {
    rpc_sequence_free(&text);
    return lose(c);
  }
  if (text.count == 1 && text.codes[0] == kTVMStr) {
    const char* message = text.values[0].v_str;
    tw_set_error(strncmp(message, "RPCError: ", 10) == 0 ? "%s" : "RPCError: the remote call failed: %s", message);
  } else {
    tw_set_error("RPCError: the remote call failed, and no reason was given");
  }
  rpc_sequence_free(&text);
  return -1;
}

/* ---- functions of this process ---- */
static TwFunc** place_of(Client* c, uint64_t function) {
  const uint32_t place = (uint32_t)function, generation = (uint32_t)(function >> 32) & 0x7fffffff;
  if ((function & RPC_CLIENT_HANDLE) == 0 || place >= c->table_size || c->table[place].generation != generation) return NULL;
  return &c->table[place].func;
}

TwFunc* rpc_client_find(RpcSession* base, uint64_t function) {
  Client* c = (Client*)base;
  tw_lock(&c->table_lock);
  TwFunc** place = place_of(c, function);
  TwFunc* f = place == NULL || *place == NULL ? NULL : tw_func_retain(*place);
  tw_unlock(&c->table_lock);
  return f;
}

void rpc_client_drop(RpcSession* base, uint64_t function) {
  Client* c = (Client*)base;
  tw_lock(&c->table_lock);
  TwFunc **place = place_of(c, function), *f = place == NULL ? NULL : *place;
  if (f != NULL) *place = NULL;
  tw_unlock(&c->table_lock);
  tw_func_release(f);
}

static int enter(Client* c, TwFunc* f, uint64_t* out) {
  tw_lock(&c->table_lock);
  uint32_t place = 0;
  while (place < c->table_size && c->table[place].func != NULL) ++place;
  if (place == c->table_size) {
    Taken* grown = realloc(c->table, (place + 1) * sizeof *grown);
    if (grown == NULL) {
      tw_unlock(&c->table_lock);
      return tw_out_of_memory((place + 1) * sizeof *grown);
    }
    c->table = grown;
    c->table[c->table_size++] = (Taken){NULL, 0};
  }
  Taken* t = &c->table[place];
  *t = (Taken){tw_func_retain(f), (t->generation + 1) & 0x7fffffff};
  *out = RPC_CLIENT_HANDLE | (uint64_t)t->generation << 32 | place;
  tw_unlock(&c->table_lock);
  return 0;
}

static void client_end_call(RpcSession* base, uint64_t function, bool sent) {
  if (!sent) rpc_client_drop(base, function); /* otherwise the server says when it needs it no more */
}

/* The server wants a function of this process. */
static int take_call(Client* c) {
  uint64_t function;
  RpcSequence arguments = {0}, result = {0};
  if (rpc_get(c->channel, &function, sizeof function) != 0 || rpc_sequence_get(c->channel, &arguments) != 0 ||
      rpc_end_packet(c->channel) != 0) {
    rpc_sequence_free(&arguments);
    return -1;
  }
  RpcBack* back = c->base.back;
  int rc = back != NULL ? 0 : tw_fail("RPCError: this client has no functions to call");
  if (rc == 0 && c->depth >= RPC_MAX_DEPTH) rc = tw_fail("RPCError: %d calls wait for one another already", RPC_MAX_DEPTH);
  ++c->depth;
  c->busy = false; /* the function may use the session: the server listens while it waits */
  if (rc == 0) rc = back->call(back, function, &arguments, &result);
  c->busy = true;
  --c->depth;
  if (c->lost == NULL) {
    rc = rpc_put_outcome(c->channel, rc, &result);
    if (rc == 0) tw_clear_error(); /* it is the server's now */
  } else {
    rc = tw_fail("%s", c->lost);
  }
  rpc_sequence_free(&arguments);
  rpc_sequence_free(&result);
  return rc;
}

/* The server needs one no more. */
static int take_release(Client* c) {
  RpcSequence arguments = {0};
  int rc = rpc_sequence_get(c->channel, &arguments) != 0 || rpc_end_packet(c->channel) != 0 ? -1 : 0;
  if (rc == 0 && arguments.count > 0 && c->base.back != NULL) {
    c->base.back->release(c->base.back, (uint64_t)arguments.values[0].v_int64);
  }
  rpc_sequence_free(&arguments);
  return rc;
}

/* Sends what was put and reads the head of the answer, which must have the code. */
static int exchange(Client* c, int32_t expected) {
  int32_t code;
  for (;;) {
    if (rpc_flush(c->channel) != 0 || rpc_begin_packet(c->channel, &code) != 0) return lose(c);
    if (code != RPC_CALL_FUNC && code != RPC_FREE_HANDLE) break;
    if ((code == RPC_CALL_FUNC ? take_call(c) : take_release(c)) != 0) return lose(c);
  }
  if (code == expected) return 0;
  if (code == RPC_EXCEPTION) return read_exception(c);
  if (code == RPC_NONE || code == RPC_SHUTDOWN) {
    tw_fail("RPCError: the other side closed the connection; its process ended, or its time was over");
  } else {
    tw_fail("RPCError: the other side answered with packet %d, not %d", code, expected);
  }
  return lose(c);
}

static int read_result(Client* c, RpcSequence* result) {
  if (exchange(c, RPC_RETURN) != 0) return -1;
  return rpc_sequence_get(c->channel, result) != 0 || rpc_end_packet(c->channel) != 0 ? lose(c) : 0;
}

static int read_nothing(Client* c) {
  RpcSequence result = {0};
  int rc = read_result(c, &result);
  rpc_sequence_free(&result);
  return rc;
}

static int client_request(RpcSession* base, RpcCode code, const RpcSequence* arguments, RpcSequence* result) {
  Client* c = (Client*)base;
  if (wait_with_free(c, code, arguments)) return rpc_sequence_reserve(result, 1) != 0 ? -1 : (result->codes[0] = kTVMNullptr, 0);
  if (rpc_sequence_check(arguments) != 0 || lock(c) != 0) return -1;
  return unlock(c, rpc_put_packet(c->channel, code, arguments) != 0 ? lose(c) : read_result(c, result));
}

static int client_call(RpcSession* base, uint64_t function, const RpcSequence* arguments, RpcSequence* result) {
  Client* c = (Client*)base;
  if (rpc_sequence_check(arguments) != 0 || lock(c) != 0) return -1;
  int rc = rpc_put_with_head(c->channel, RPC_CALL_FUNC, &function, sizeof function, arguments);
  return unlock(c, rc != 0 ? lose(c) : read_result(c, result));
}

static int put_copy(Client* c, RpcCode code, const DLTensor* tensor, uint64_t size, uint64_t contents) {
  int32_t number = code;
  uint64_t nbytes = sizeof number + rpc_tensor_size(tensor) + sizeof size + contents;
  return rpc_put(c->channel, &nbytes, sizeof nbytes) != 0 || rpc_put(c->channel, &number, sizeof number) != 0 ||
                 rpc_put_tensor(c->channel, tensor) != 0
             ? -1
             : rpc_put(c->channel, &size, sizeof size);
}

static int client_copy_to(RpcSession* base, const void* from, const DLTensor* to, uint64_t size) {
  Client* c = (Client*)base;
  if (lock(c) != 0) return -1;
  int rc = put_copy(c, RPC_COPY_TO_REMOTE, to, size, size);
  if (rc == 0) rc = rpc_put(c->channel, from, (size_t)size);
  return unlock(c, rc != 0 ? lose(c) : read_nothing(c));
}

static int client_copy_from(RpcSession* base, const DLTensor* from, void* to, uint64_t size) {
  Client* c = (Client*)base;
  if (lock(c) != 0) return -1;
  int rc = put_copy(c, RPC_COPY_FROM_REMOTE, from, size, 0) != 0 ? lose(c) : exchange(c, RPC_COPY_ACK);
  if (rc == 0 && (rpc_get(c->channel, to, (size_t)size) != 0 || rpc_end_packet(c->channel) != 0)) rc = lose(c);
  return unlock(c, rc);
}

static int client_take_func(RpcSession* base, TwFunc* f, int index, uint64_t* out) {
  Client* c = (Client*)base;
  if (!c->may_call) {
    TVMValue value = {.v_str = RPC_CALLS_BACK}, handle;
    if (rpc_request(base, RPC_GET_GLOBAL_FUNC, &value, &(int){kTVMStr}, 1, &handle) != 0) return -1;
    if (handle.v_int64 == 0) {
      return tw_fail("RPCError: argument %d is a function of this process, and the server, of TVM or an older Tilewright, does "
                     "not call functions of its clients", index);
    }
    TVMValue values[] = {{.v_int64 = handle.v_int64}, {.v_int64 = kTVMPackedFuncHandle}};
    if (rpc_request(base, RPC_FREE_HANDLE, values, (int[]){kTVMOpaqueHandle, kTVMArgInt}, 2, NULL) != 0) return -1;
    c->may_call = true;
  }
  return enter(c, f, out);
}

static void client_destroy(RpcSession* base) {
  Client* c = (Client*)base;
  if (c->lost == NULL && rpc_put_packet(c->channel, RPC_SHUTDOWN, NULL) == 0) rpc_flush(c->channel);
  rpc_channel_free(c->channel);
  for (uint32_t i = 0; i < c->table_size; ++i) tw_func_release(c->table[i].func);
  tw_lock_destroy(&c->lock);
  tw_lock_destroy(&c->table_lock);
  while (c->later != NULL) {
    Later* next = c->later->next;
    free(c->later);
    c->later = next;
  }
  free(c->table);
  free(c->lost);
  free(c);
}

static const RpcSessionClass client_class = {client_request, client_call,      client_copy_to,  client_copy_from, NULL,
                                             NULL,           client_take_func, client_end_call, client_destroy};

RpcSession* rpc_client_session(RpcChannel* channel) {
  Client* c = calloc(1, sizeof *c);
  if (c == NULL) {
    rpc_channel_free(channel);
    tw_out_of_memory(sizeof *c);
    return NULL;
  }
  rpc_session_init(&c->base, &client_class);
  tw_lock_init_recursive(&c->lock);
  tw_lock_init(&c->table_lock);
  c->channel = channel;
  return &c->base;
}

int rpc_client_init(RpcSession* base, TVMValue* values, int* codes, int count) {
  static const char protocol[] = RPC_PROTOCOL;
  struct {
    uint64_t size;
    char text[sizeof protocol - 1];
  } head = {.size = sizeof protocol - 1};
  Client* c = (Client*)base;
  RpcSequence arguments = {.values = values, .codes = codes, .count = count};
  memcpy(head.text, protocol, sizeof head.text);
  if (rpc_sequence_check(&arguments) != 0 || lock(c) != 0) return -1;
  int rc = rpc_put_with_head(c->channel, RPC_INIT_SERVER, &head, sizeof head.size + sizeof head.text, &arguments);
  return unlock(c, rc != 0 ? lose(c) : read_nothing(c));
}
