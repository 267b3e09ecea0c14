/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The session of a client: every request is a packet, and waits for its answer. Threads take turns. */
#include "rpc.h"

typedef struct {
  RpcSession base;
  pthread_mutex_t lock;
  RpcChannel* channel;
  char* lost; /* why the channel cannot be used any more, or NULL */
} Client;

/* After an error of the channel itself there is no telling where the next packet begins. */
static int lose(Client* c) {
  const RpcChannel* channel = c->channel;
  if (channel->deadline != 0 && tw_now() >= channel->deadline - RPC_GRACE) tw_set_error("%s", channel->overdue);
  if (c->lost == NULL) c->lost = tw_strdup(TVMGetLastError());
  return -1;
}

static int lock(Client* c) {
  pthread_mutex_lock(&c->lock);
  if (c->lost == NULL) return 0;
  tw_fail("%s", c->lost);
  pthread_mutex_unlock(&c->lock);
  return -1;
}

static int unlock(Client* c, int rc) {
  pthread_mutex_unlock(&c->lock);
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

/* Sends what was put and reads the head of the answer, which must have the code. */
static int exchange(Client* c, int32_t expected) {
  int32_t code;
  if (rpc_flush(c->channel) != 0 || rpc_begin_packet(c->channel, &code) != 0) return lose(c);
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
  if (rpc_sequence_check(arguments) != 0 || lock(c) != 0) return -1;
  return unlock(c, rpc_put_packet(c->channel, code, arguments) != 0 ? lose(c) : read_result(c, result));
}

/* A packet of a size, a code, `head` and a sequence. */
static int put_with_head(Client* c, RpcCode code, const void* head, size_t head_size, const RpcSequence* arguments) {
  int32_t number = code;
  uint64_t size = sizeof number + head_size + rpc_sequence_size(arguments);
  return rpc_put(c->channel, &size, sizeof size) != 0 || rpc_put(c->channel, &number, sizeof number) != 0 ||
                 rpc_put(c->channel, head, head_size) != 0
             ? -1
             : rpc_put_sequence(c->channel, arguments);
}

static int client_call(RpcSession* base, uint64_t function, const RpcSequence* arguments, RpcSequence* result) {
  Client* c = (Client*)base;
  if (rpc_sequence_check(arguments) != 0 || lock(c) != 0) return -1;
  int rc = put_with_head(c, RPC_CALL_FUNC, &function, sizeof function, arguments);
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

static void client_destroy(RpcSession* base) {
  Client* c = (Client*)base;
  if (c->lost == NULL && rpc_put_packet(c->channel, RPC_SHUTDOWN, NULL) == 0) rpc_flush(c->channel);
  rpc_channel_free(c->channel);
  pthread_mutex_destroy(&c->lock);
  free(c->lost);
  free(c);
}

static const RpcSessionClass client_class = {client_request,   client_call, client_copy_to,
                                             client_copy_from, NULL,        client_destroy};

RpcSession* rpc_client_session(RpcChannel* channel) {
  Client* c = calloc(1, sizeof *c);
  if (c == NULL) {
    rpc_channel_free(channel);
    tw_out_of_memory(sizeof *c);
    return NULL;
  }
  rpc_session_init(&c->base, &client_class);
  pthread_mutex_init(&c->lock, NULL);
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
  int rc = put_with_head(c, RPC_INIT_SERVER, &head, sizeof head.size + sizeof head.text, &arguments);
  return unlock(c, rc != 0 ? lose(c) : read_nothing(c));
}
