/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The table of what a local session gives out, and functions of its client. */
#ifndef TILEWRIGHT_RPC_HANDLES_H_
#define TILEWRIGHT_RPC_HANDLES_H_

#include "rpc.h"

typedef enum { FREE, FUNCTION, MODULE, ARRAY, DATA, STREAM, POINTER } HandleKind;

typedef struct {
  HandleKind kind;
  uint32_t generation; /* grows when the place is used again */
  int next_free;
  void* object; /* NULL: it is the caller's, who takes the handle back */
  char* data;   /* of an array, and of memory */
  uint64_t size;
  DLDevice device;
} Handle;

/* A local session. */
typedef struct {
  RpcSession base;
  TwLock lock;
  Handle* handles;
  int num_handles, room, first_free;
} Local;

/* ---- handles.c ---- */
void rpc_handles_init(Local* s);
void rpc_handles_destroy(Local* s);
/* Fills in value i of a sequence with a new handle; what it stands for is taken over, also on failure. */
int rpc_handle_put(Local* s, RpcSequence* out, int i, Handle handle);
bool rpc_handle_look_up(Local* s, uint64_t number, Handle* out);
/* Fails unless the handle is of the kind. */
int rpc_handle_find(Local* s, uint64_t number, HandleKind kind, Handle* out);
int rpc_handle_free(Local* s, uint64_t number, HandleKind kind);
/* The memory that `size` bytes from the tensor's offset on are in. */
int rpc_handle_span(Local* s, const DLTensor* t, uint64_t size, Handle* out);
/* Fails if a tensor that has a handle is of memory that others read too. */
int rpc_handle_check_writable(Local* s, const DLTensor* t);
/* Puts the address of its memory into a tensor that has a handle. */
int rpc_handle_resolve_tensor(Local* s, DLTensor* t);

/* ---- client_func.c ---- */
/* A function that calls one of the session's client; NULL, with an error set, when there is no way to it. */
TwFunc* rpc_client_func(Local* s, uint64_t handle);

#endif /* TILEWRIGHT_RPC_HANDLES_H_ */
