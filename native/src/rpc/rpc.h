/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Remote procedure calls in TVM 0.8's protocol. After a handshake (socket.c) each side sends packets:
 *
 *     u64 size of what follows | i32 code | contents by code
 *
 * A client's request is answered by RPC_RETURN, RPC_EXCEPTION (a text) or RPC_COPY_ACK (bytes). Arguments and results are
 * sequences: i32 count, i32 type codes, values; integers, floats, devices and types by value, texts and bytes as u64 size
 * and contents, arrays as their descriptions, and everything that lives on the server by a handle of 64 bits. What runs on
 * either side of a channel is a session: a local one works on this process, a client's one sends packets. */
#ifndef TILEWRIGHT_RPC_H_
#define TILEWRIGHT_RPC_H_

#include "../module/module.h"

#include <stddef.h>

#define RPC_PROTOCOL "0.8.0"
#define RPC_MAGIC 0xFF271

typedef enum {
  RPC_NONE,
  RPC_SHUTDOWN,
  RPC_INIT_SERVER,
  RPC_CALL_FUNC,
  RPC_RETURN,
  RPC_EXCEPTION,
  RPC_COPY_FROM_REMOTE,
  RPC_COPY_TO_REMOTE,
  RPC_COPY_ACK,
  RPC_GET_GLOBAL_FUNC, /* the first request that is a sequence in and a sequence out */
  RPC_FREE_HANDLE,
  RPC_DEV_SET_DEVICE,
  RPC_DEV_GET_ATTR,
  RPC_DEV_ALLOC_DATA,
  RPC_DEV_FREE_DATA,
  RPC_DEV_STREAM_SYNC,
  RPC_COPY_AMONG_REMOTE,
  RPC_DEV_ALLOC_DATA_WITH_SCOPE,
  RPC_DEV_CREATE_STREAM,
  RPC_DEV_FREE_STREAM,
  RPC_DEV_SET_STREAM,
  RPC_NUM_CODES
} RpcCode;

/* Seconds after a session's end in which the server, which ends it, is still listened to. */
#define RPC_GRACE 1

/* ---- channels (channel.c): bytes in both directions, buffered ---- */
typedef struct RpcChannel RpcChannel;

typedef struct {
  /* Sends all bytes. */
  int (*send)(RpcChannel* channel, const void* data, size_t size);
  /* Receives between least and most bytes; *received is 0 when the other side has closed before any came. */
  int (*receive)(RpcChannel* channel, void* data, size_t least, size_t most, size_t* received);
  void (*close)(RpcChannel* channel);
} RpcChannelClass;

struct RpcChannel {
  const RpcChannelClass* cls;
  int read_fd, write_fd;  /* of a channel over descriptors */
  double deadline;        /* on tw_now's clock, or 0: nothing is waited for longer than that */
  const char* overdue;    /* the error of a deadline that has passed */
  TilewrightRpcCallbacks callbacks; /* of a channel over them */
  void* context;
  pid_t child;            /* the process at the other end, which ends with the channel; or 0 */
  char *out, *in;
  size_t out_size, in_start, in_end;
  uint64_t packet_left;   /* bytes of the packet being read that have not been */
};

RpcChannel* rpc_channel_over_fds(int read_fd, int write_fd);
/* Closes the context also when it fails. */
RpcChannel* rpc_channel_over_callbacks(const TilewrightRpcCallbacks* callbacks, void* context);
void rpc_channel_free(RpcChannel* channel);

int rpc_put(RpcChannel* channel, const void* data, size_t size);
int rpc_flush(RpcChannel* channel);
/* Waits for a packet; *code is RPC_NONE when the channel was closed between two. */
int rpc_begin_packet(RpcChannel* channel, int32_t* code);
/* Reads the next bytes of the packet; fails when it has fewer. */
int rpc_get(RpcChannel* channel, void* data, size_t size);
/* Skips what was not read of it. */
int rpc_end_packet(RpcChannel* channel);

/* ---- sequences (sequence.c) ---- */
typedef struct {
  TVMValue* values;
  int* codes;
  int count;
  void* blocks; /* memory that the values point to; freed with the sequence */
  /* Or NULL: gives the memory that the first bytes go to, straight from the channel; then it is NULL. */
  void* (*room)(void* context, size_t size);
  void* room_context;
} RpcSequence;

#define RPC_MAX_ARGUMENTS 4096

void rpc_sequence_free(RpcSequence* sequence);
/* Memory that lives as long as the sequence; NULL, with an error set, when there is none. */
void* rpc_sequence_alloc(RpcSequence* sequence, size_t size);
/* Room for count values. */
int rpc_sequence_reserve(RpcSequence* sequence, int count);
/* Reads a sequence into an empty one. */
int rpc_sequence_get(RpcChannel* channel, RpcSequence* out);
/* The same in parts: how many values and of which types, then the values from `begin` on before `end`. After a failure it is
 * freed. */
int rpc_sequence_get_types(RpcChannel* channel, RpcSequence* out);
int rpc_sequence_get_values(RpcChannel* channel, RpcSequence* out, int begin, int end);
/* The packet's next bytes and a 0 behind them; NULL, with an error set, when they do not come. */
char* rpc_get_bytes(RpcChannel* channel, RpcSequence* memory, uint64_t size);
/* Fails when it holds what cannot be sent. */
int rpc_sequence_check(const RpcSequence* sequence);
size_t rpc_sequence_size(const RpcSequence* sequence);
int rpc_put_sequence(RpcChannel* channel, const RpcSequence* sequence);
/* Whether values of a type code mean the same on both sides. */
bool rpc_is_plain(int code);
/* Sends a packet: its size, code, and (unless NULL) the sequence. */
int rpc_put_packet(RpcChannel* channel, RpcCode code, const RpcSequence* sequence);
int rpc_put_exception(RpcChannel* channel, const char* text);
/* An array's description without its contents. */
int rpc_put_tensor(RpcChannel* channel, const DLTensor* tensor);
size_t rpc_tensor_size(const DLTensor* tensor);
int rpc_get_tensor(RpcChannel* channel, RpcSequence* memory, DLTensor** out);

/* A packet of a size, a code, `head` and a sequence. */
int rpc_put_with_head(RpcChannel* channel, RpcCode code, const void* head, size_t head_size, const RpcSequence* arguments);
/* Sends the answer of a call: its result, or the error that is set. */
int rpc_put_outcome(RpcChannel* channel, int rc, const RpcSequence* result);

/* ---- the way back (session.c): functions of a client, which its server calls while the client waits ---- */
/* In handles of functions: they are in the client's table. A server sends RPC_CALL_FUNC for them, which is answered as a
 * client's calls are (by one value, without a type code before it), and RPC_FREE_HANDLE, which is not answered. */
#define RPC_CLIENT_HANDLE ((uint64_t)1 << 63)
/* Calls that wait for calls of the other side. */
#define RPC_MAX_DEPTH 64

/* A global function that servers have which do so. */
#define RPC_CALLS_BACK "tvm.rpc.server.CallsBack"

typedef struct RpcBack RpcBack;

struct RpcBack {
  atomic_int refs;
  /* Fails when there is no client any more, or it does not wait for this thread. */
  int (*check)(RpcBack* back);
  int (*call)(RpcBack* back, uint64_t function, const RpcSequence* arguments, RpcSequence* result);
  void (*release)(RpcBack* back, uint64_t function);
  void (*destroy)(RpcBack* back);
};

RpcBack* rpc_back_retain(RpcBack* back);
void rpc_back_release(RpcBack* back);

/* ---- sessions (session.c) ---- */
typedef struct RpcSession RpcSession;

/* Handles in sequences are those of the session's far side. */
typedef struct {
  /* A request that is a sequence in and one out, such as RPC_DEV_ALLOC_DATA. */
  int (*request)(RpcSession* session, RpcCode code, const RpcSequence* arguments, RpcSequence* result);
  /* The result is TVM's encoding: the type code as an integer, then the value; of an array its description and handle. */
  int (*call)(RpcSession* session, uint64_t function, const RpcSequence* arguments, RpcSequence* result);
  int (*copy_to)(RpcSession* session, const void* from, const DLTensor* to, uint64_t size);
  int (*copy_from)(RpcSession* session, const DLTensor* from, void* to, uint64_t size);
  /* Checks the bytes and tells where they lie if this process can reach them, so that no copy is needed; else NULL. May be
   * NULL itself. */
  int (*host_memory)(RpcSession* session, const DLTensor* tensor, uint64_t size, bool write, char** out);
  /* The function of this process behind a handle, borrowed, or NULL; NULL itself where all functions are on a far side. */
  TwFunc* (*find_func)(RpcSession* session, uint64_t function);
  /* A handle for a function of this process, which is argument `index` of a call. */
  int (*take_func)(RpcSession* session, TwFunc* function, int index, uint64_t* out);
  /* That call is over, or was not `sent`. */
  void (*end_call)(RpcSession* session, uint64_t function, bool sent);
  void (*destroy)(RpcSession* session);
} RpcSessionClass;

struct RpcSession {
  const RpcSessionClass* cls;
  atomic_int refs;
  RpcBack* back; /* to the functions of whoever uses the session, or NULL */
  int index; /* in the table of sessions, from which arrays' devices get their number; -1: not in it */
};

void rpc_session_init(RpcSession* session, const RpcSessionClass* cls);
RpcSession* rpc_session_retain(RpcSession* session);
void rpc_session_release(RpcSession* session);
/* Gives the session a number that devices carry. */
int rpc_session_enter(RpcSession* session);
/* The session of a remote device's type (retained), or NULL. */
RpcSession* rpc_session_find(int device_type);
/* The same, with an error set. */
RpcSession* rpc_session_of(DLDevice device);
/* A request of a few integers, devices, types and handles; gives its one result. */
int rpc_request(RpcSession* session, RpcCode code, TVMValue* values, int* codes, int count, TVMValue* result);

RpcSession* rpc_local_session(void);                  /* local_session.c */
RpcSession* rpc_client_session(RpcChannel* channel);  /* client.c; takes the channel over */
/* A function of this process that the server knows by its handle (retained), or NULL. */
TwFunc* rpc_client_find(RpcSession* session, uint64_t function);
void rpc_client_drop(RpcSession* session, uint64_t function);
/* From now on what is freed on the server is kept for the time after the request that is under way. */
void rpc_client_hold_frees(RpcSession* session, bool hold);
/* Lets a client's server call its functions. callback.c */
int rpc_client_take_calls(RpcSession* session);
int rpc_client_init(RpcSession* session, TVMValue* values, int* codes, int count);
/* Serves the other side until it says goodbye or the channel closes. Takes the channel over. server.c */
int rpc_serve(RpcChannel* channel);
/* Connects within the seconds, and shakes hands once it is this client's turn. socket.c */
int rpc_connect(const char* host, int port, const char* key, double seconds, RpcChannel** out);
/* A program that serves the descriptors whose numbers are its last two arguments. */
int rpc_start_program(const char* const* command, int count, RpcChannel** out);

/* ---- files (files.c): of any size, in pieces ---- */
typedef enum { RPC_NO_FILES, RPC_UPLOAD, RPC_DOWNLOAD } RpcFileService;

/* What a function, or NULL, does with files: tvm.rpc.server.upload or download, unless they were replaced. */
RpcFileService rpc_file_service(const TwFunc* f);
/* Writes the packet's next bytes to the file of that name. */
int rpc_receive_file(RpcChannel* channel, TVMValue name, uint64_t size);
/* Opens the file for rpc_put_file, which sends as many bytes of it. */
int rpc_open_file(TVMValue name, int* fd, uint64_t* size);
int rpc_put_file(RpcChannel* channel, int fd, uint64_t size);

/* ---- remote things here (remote.c) ---- */
#define RPC_DEVICE_MASK TW_SESSION_TYPES

/* The values as the far side knows them, functions of this process too. `there` has room for them. */
int rpc_unwrap_values(RpcSession* session, const TVMValue* values, const int* codes, int count, RpcSequence* there);
/* What the far side calls so, as this process knows it; the caller owns arrays, functions and modules. */
int rpc_wrap_value(RpcSession* session, TVMValue value, int code, TVMValue* out, int* out_code);

/* Makes value the far side's view of an array on one of the session's devices. device.c */
int rpc_unwrap_tensor(RpcSession* session, TVMValue* value, RpcSequence* memory, int index);
/* An array for one that the far side returned: its description there, and the handle to free. */
TwArray* rpc_wrap_array(RpcSession* session, const DLTensor* there, uint64_t handle);

/* Functions that every server has: loads an uploaded file; imports the second module into the first; finds a function. */
int rpc_load_remote(RpcSession* session, const char* file, TVMRetValueHandle ret);
int rpc_import_remote(RpcSession* session, TVMValue* modules, int* codes, int count);
int rpc_remote_global(RpcSession* session, const char* name, TVMRetValueHandle ret);

/* The session as a module of type "rpc". */
TwModule* rpc_session_module(RpcSession* session);
/* The session of such a module (retained). */
int rpc_session_of_module(TwModule* module, RpcSession** out);

#endif /* TILEWRIGHT_RPC_H_ */
