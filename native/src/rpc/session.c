/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The table of sessions. A device's type is its type on the far side plus RPC_DEVICE_MASK times (1 + the session's index). */
#include "rpc.h"

static TwLock table_lock = TW_LOCK_INITIALIZER;
static RpcSession** table;
static int table_size;

void rpc_session_init(RpcSession* s, const RpcSessionClass* cls) {
  s->cls = cls;
  s->index = -1;
  s->back = NULL;
  atomic_init(&s->refs, 1);
}

RpcSession* rpc_session_retain(RpcSession* s) {
  atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
  return s;
}

void rpc_session_release(RpcSession* s) {
  if (s == NULL) return;
  tw_lock(&table_lock); /* nobody may find it in the table while the last reference goes */
  bool last = atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) == 1;
  if (last && s->index >= 0) table[s->index] = NULL;
  tw_unlock(&table_lock);
  if (!last) return;
  RpcBack* back = s->back;
  s->cls->destroy(s);
  rpc_back_release(back);
}

int rpc_session_enter(RpcSession* s) {
  tw_lock(&table_lock);
  int index = 0;
  while (index < table_size && table[index] != NULL) ++index;
  if (s->index < 0 && index == table_size) {
    RpcSession** grown = realloc(table, (size_t)(table_size + 1) * sizeof *grown);
    if (grown == NULL) {
      tw_unlock(&table_lock);
      return tw_out_of_memory(sizeof *grown);
    }
    table = grown;
    table[table_size++] = NULL;
  }
  if (s->index < 0) {
    s->index = index;
    table[index] = s;
  }
  tw_unlock(&table_lock);
  return 0;
}

RpcSession* rpc_session_find(int device_type) {
  int index = device_type / RPC_DEVICE_MASK - 1;
  tw_lock(&table_lock);
  RpcSession* s = index >= 0 && index < table_size ? table[index] : NULL;
  if (s != NULL) rpc_session_retain(s);
  tw_unlock(&table_lock);
  return s;
}

RpcSession* rpc_session_of(DLDevice device) {
  RpcSession* s = rpc_session_find((int)device.device_type);
  if (s == NULL) tw_fail("RPCError: the session of remote device (type %d) has ended", (int)device.device_type);
  return s;
}

RpcBack* rpc_back_retain(RpcBack* back) {
  atomic_fetch_add_explicit(&back->refs, 1, memory_order_relaxed);
  return back;
}

void rpc_back_release(RpcBack* back) {
  if (back != NULL && atomic_fetch_sub_explicit(&back->refs, 1, memory_order_acq_rel) == 1) back->destroy(back);
}

int rpc_request(RpcSession* s, RpcCode code, TVMValue* values, int* codes, int count, TVMValue* result) {
  RpcSequence ret = {0};
  int rc = s->cls->request(s, code, &(RpcSequence){.values = values, .codes = codes, .count = count}, &ret);
  if (rc == 0 && ret.count != 1) rc = tw_fail("RPCError: a request was answered by %d values, not one", ret.count);
  if (rc == 0 && result != NULL) *result = ret.values[0];
  rpc_sequence_free(&ret);
  return rc;
}
