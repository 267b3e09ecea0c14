/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * A client's functions, called by its server: what they are given are things of the session. */
#include "rpc.h"

typedef struct {
  RpcBack base;
  RpcSession* session; /* which owns this */
} Callbacks;

/* ---- RpcBack ---- */
static int check(RpcBack* back) {
  (void)back;
  return 0;
}

static int call(RpcBack* back, uint64_t function, const RpcSequence* arguments, RpcSequence* result) {
  RpcSession* session = ((Callbacks*)back)->session;
  RpcSequence here = {0};
  TVMValue value;
  int code, count = 0;
  TwFunc* f = rpc_client_find(session, function);
  if (f == NULL) return tw_fail("RPCError: the client has no function 0x%llx", (unsigned long long)function);
  int rc = rpc_sequence_reserve(&here, arguments->count);
  for (; rc == 0 && count < arguments->count; ++count) {
    rc = rpc_wrap_value(session, arguments->values[count], arguments->codes[count], &here.values[count], &here.codes[count]);
    if (rc != 0) break;
  }
  if (rc == 0) rc = TVMFuncCall(f, here.values, here.codes, here.count, &value, &code);
  if (rc == 0) {
    if ((rc = rpc_sequence_reserve(result, 1)) == 0) rc = rpc_unwrap_values(session, &value, &code, 1, result);
    rpc_client_hold_frees(session, true); /* the server must get an array before it hears that it is not needed here */
    tw_drop_value(value, code);
    rpc_client_hold_frees(session, false);
  }
  for (int i = 0; i < count; ++i) tw_drop_value(here.values[i], here.codes[i]);
  rpc_sequence_free(&here);
  tw_func_release(f);
  return rc;
}

static void release(RpcBack* back, uint64_t function) { rpc_client_drop(((Callbacks*)back)->session, function); }

static void destroy(RpcBack* back) { free(back); }

int rpc_client_take_calls(RpcSession* session) {
  Callbacks* c = malloc(sizeof *c);
  if (c == NULL) return tw_out_of_memory(sizeof *c);
  *c = (Callbacks){.base = {.check = check, .call = call, .release = release, .destroy = destroy}, .session = session};
  atomic_init(&c->base.refs, 1);
  session->back = &c->base;
  return 0;
}
