/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Sequences of values on the wire. Nothing that the other side says about sizes is believed before its bytes are here. */
#include "rpc.h"

#include <sys/mman.h>

#define MAX_NDIM 1024
#define FIRST_PIECE ((size_t)1 << 20)
#define LARGE ((size_t)4 << 20)

void rpc_sequence_free(RpcSequence* s) {
  while (s->blocks != NULL) {
    void* next = *(void**)s->blocks;
    free(s->blocks);
    s->blocks = next;
  }
  *s = (RpcSequence){0};
}

/* A block's head is as large as the alignment of what follows. */
typedef union {
  void* next;
  max_align_t align;
} Block;

static void* add_block(RpcSequence* s, Block* block, size_t size) {
  if (block == NULL) {
    tw_out_of_memory(size);
    return NULL;
  }
  block->next = s->blocks;
  s->blocks = block;
  return block + 1;
}

void* rpc_sequence_alloc(RpcSequence* s, size_t size) {
  return add_block(s, size > SIZE_MAX - sizeof(Block) ? NULL : malloc(size + sizeof(Block)), size);
}

int rpc_sequence_reserve(RpcSequence* s, int count) {
  s->values = rpc_sequence_alloc(s, (size_t)count * (sizeof(TVMValue) + sizeof(int)));
  if (s->values == NULL) return -1;
  s->codes = (int*)(s->values + count);
  s->count = count;
  return 0;
}

/* Memory grows with what arrives: a packet that only claims to be large costs nothing. */
char* rpc_get_bytes(RpcChannel* c, RpcSequence* s, uint64_t size) {
  if (size > c->packet_left) {
    tw_fail("RPCError: a packet ends too early: a text of %llu bytes, and %llu are left", (unsigned long long)size,
            (unsigned long long)c->packet_left);
    return NULL;
  }
  Block* block = NULL;
  size_t have = 0, room = 0;
  while (block == NULL || have < size) {
    size_t twice = room == 0 ? FIRST_PIECE : room * 2;
    room = size < twice ? (size_t)size : twice;
    Block* grown = realloc(block, sizeof(Block) + room + 1);
    if (grown == NULL || rpc_get(c, (char*)(grown + 1) + have, room - have) != 0) {
      if (grown == NULL) tw_out_of_memory(room);
      free(grown == NULL ? block : grown);
      return NULL;
    }
    block = grown;
    have = room;
  }
  char* text = add_block(s, block, room);
  text[size] = '\0';
  return text;
}

/* Bytes of large amounts need few pages that are large. */
static void expect(char* room, size_t size) {
#ifdef MADV_HUGEPAGE
  const uintptr_t page = 4096, begin = ((uintptr_t)room + page - 1) & ~(page - 1), end = ((uintptr_t)room + size) & ~(page - 1);
  if (size >= LARGE) madvise((void*)begin, end - begin, MADV_HUGEPAGE); /* it is no more than advice */
#else
  (void)room;
  (void)size;
#endif
}

static char* get_into_room(RpcChannel* c, RpcSequence* s, uint64_t size) {
  if (size > c->packet_left || size > SIZE_MAX) {
    tw_fail("RPCError: a packet ends too early: %llu bytes, and %llu are left", (unsigned long long)size,
            (unsigned long long)c->packet_left);
    return NULL;
  }
  char* room = s->room(s->room_context, (size_t)size);
  s->room = NULL;
  if (room == NULL) tw_out_of_memory((size_t)size);
  else expect(room, (size_t)size);
  return room != NULL && rpc_get(c, room, (size_t)size) == 0 ? room : NULL;
}

static int get_text(RpcChannel* c, RpcSequence* s, TVMValue* value, int code) {
  uint64_t size;
  if (rpc_get(c, &size, sizeof size) != 0) return -1;
  char* text = code == kTVMBytes && s->room != NULL ? get_into_room(c, s, size) : rpc_get_bytes(c, s, size);
  if (text == NULL) return -1;
  value->v_str = text;
  if (code == kTVMStr) return 0;
  TVMByteArray* bytes = rpc_sequence_alloc(s, sizeof *bytes);
  if (bytes == NULL) return -1;
  *bytes = (TVMByteArray){.data = text, .size = (size_t)size};
  value->v_handle = bytes;
  return 0;
}

int rpc_get_tensor(RpcChannel* c, RpcSequence* memory, DLTensor** out) {
  uint64_t handle;
  DLTensor head = {0};
  if (rpc_get(c, &handle, sizeof handle) != 0 || rpc_get(c, &head.device, sizeof head.device) != 0 ||
      rpc_get(c, &head.ndim, sizeof head.ndim) != 0 || rpc_get(c, &head.dtype, sizeof head.dtype) != 0) {
    return -1;
  }
  if (handle > UINTPTR_MAX) return tw_fail("RPCError: handle 0x%llx is too large for this machine", (unsigned long long)handle);
  if (head.ndim < 0 || head.ndim > MAX_NDIM) return tw_fail("RPCError: an array cannot have %d dimensions", head.ndim);
  DLTensor* t = rpc_sequence_alloc(memory, sizeof *t + (size_t)head.ndim * sizeof(int64_t));
  if (t == NULL) return -1;
  *t = head;
  t->data = (void*)(uintptr_t)handle;
  t->shape = (int64_t*)(t + 1);
  if (rpc_get(c, t->shape, (size_t)t->ndim * sizeof(int64_t)) != 0) return -1;
  *out = t;
  return rpc_get(c, &t->byte_offset, sizeof t->byte_offset);
}

static int get_value(RpcChannel* c, RpcSequence* s, TVMValue* value, int code) {
  value->v_int64 = 0;
  switch (code) {
    case kDLInt:
    case kDLUInt:
    case kDLFloat:
    case kTVMOpaqueHandle:
    case kTVMModuleHandle:
    case kTVMPackedFuncHandle:
    case kTVMDataType: /* and four bytes of padding */
    case kDLDevice: return rpc_get(c, value, sizeof *value);
    case kTVMNullptr: return 0;
    case kTVMStr:
    case kTVMBytes: return get_text(c, s, value, code);
    case kTVMDLTensorHandle: return rpc_get_tensor(c, s, (DLTensor**)&value->v_handle);
    default: return tw_fail("RPCError: values of type code %d cannot be sent", code);
  }
}

int rpc_sequence_get_types(RpcChannel* c, RpcSequence* out) {
  int32_t count;
  if (rpc_get(c, &count, sizeof count) != 0) return -1;
  if (count < 0 || count > RPC_MAX_ARGUMENTS) return tw_fail("RPCError: a call cannot have %d arguments", count);
  int rc = rpc_sequence_reserve(out, count);
  if (rc == 0) rc = rpc_get(c, out->codes, (size_t)count * sizeof(int));
  if (rc != 0) rpc_sequence_free(out);
  return rc;
}

int rpc_sequence_get_values(RpcChannel* c, RpcSequence* out, int begin, int end) {
  int rc = 0;
  for (int i = begin; rc == 0 && i < end; ++i) rc = get_value(c, out, &out->values[i], out->codes[i]);
  if (rc != 0) rpc_sequence_free(out);
  return rc;
}

int rpc_sequence_get(RpcChannel* c, RpcSequence* out) {
  return rpc_sequence_get_types(c, out) != 0 ? -1 : rpc_sequence_get_values(c, out, 0, out->count);
}

bool rpc_is_plain(int code) {
  return code != kTVMModuleHandle && code != kTVMPackedFuncHandle && code != kTVMDLTensorHandle && code >= 0 &&
         code != kTVMObjectHandle && code < kTVMNDArrayHandle;
}

/* ---- sending ---- */
size_t rpc_tensor_size(const DLTensor* t) {
  return sizeof(uint64_t) + sizeof t->device + sizeof t->ndim + sizeof t->dtype + (size_t)t->ndim * sizeof(int64_t) +
         sizeof t->byte_offset;
}

int rpc_put_tensor(RpcChannel* c, const DLTensor* t) {
  uint64_t handle = (uintptr_t)t->data;
  if (!tw_is_compact(t)) return tw_fail("RPCError: an array with strides cannot be sent; copy it into a compact one first");
  return rpc_put(c, &handle, sizeof handle) != 0 || rpc_put(c, &t->device, sizeof t->device) != 0 ||
                 rpc_put(c, &t->ndim, sizeof t->ndim) != 0 || rpc_put(c, &t->dtype, sizeof t->dtype) != 0 ||
                 rpc_put(c, t->shape, (size_t)t->ndim * sizeof(int64_t)) != 0 ||
                 rpc_put(c, &t->byte_offset, sizeof t->byte_offset) != 0
             ? -1
             : 0;
}

static size_t value_size(const TVMValue* value, int code) {
  switch (code) {
    case kTVMNullptr: return 0;
    case kTVMStr: return sizeof(uint64_t) + strlen(value->v_str);
    case kTVMBytes: return sizeof(uint64_t) + ((const TVMByteArray*)value->v_handle)->size;
    case kTVMDLTensorHandle: return rpc_tensor_size(value->v_handle);
    default: return sizeof *value;
  }
}

static int put_value(RpcChannel* c, const TVMValue* value, int code) {
  TVMByteArray bytes;
  switch (code) {
    case kTVMNullptr: return 0;
    case kTVMStr:
    case kTVMBytes: {
      bytes = code == kTVMBytes ? *(const TVMByteArray*)value->v_handle
                                : (TVMByteArray){.data = value->v_str, .size = strlen(value->v_str)};
      uint64_t size = bytes.size;
      return rpc_put(c, &size, sizeof size) != 0 ? -1 : rpc_put(c, bytes.data, bytes.size);
    }
    case kTVMDLTensorHandle: return rpc_put_tensor(c, value->v_handle);
    case kTVMDataType: {
      TVMValue padded = {.v_int64 = 0};
      padded.v_type = value->v_type;
      return rpc_put(c, &padded, sizeof padded);
    }
    default: return rpc_put(c, value, sizeof *value);
  }
}

int rpc_sequence_check(const RpcSequence* s) {
  for (int i = 0; i < s->count; ++i) {
    int code = s->codes[i];
    if (code == kTVMNDArrayHandle || code < 0 || code == kTVMObjectHandle || code > kTVMNDArrayHandle) {
      return tw_fail("RPCError: a value of type code %d cannot be sent", code);
    }
    if (code == kTVMDLTensorHandle && !tw_is_compact(s->values[i].v_handle)) {
      return tw_fail("RPCError: an array with strides cannot be sent; copy it into a compact one first");
    }
  }
  return 0;
}

size_t rpc_sequence_size(const RpcSequence* s) {
  size_t size = sizeof(int32_t) + (size_t)s->count * sizeof(int);
  for (int i = 0; i < s->count; ++i) size += value_size(&s->values[i], s->codes[i]);
  return size;
}

int rpc_put_sequence(RpcChannel* c, const RpcSequence* s) {
  int32_t count = s->count;
  if (rpc_put(c, &count, sizeof count) != 0 || rpc_put(c, s->codes, (size_t)count * sizeof(int)) != 0) return -1;
  for (int i = 0; i < count; ++i) {
    if (put_value(c, &s->values[i], s->codes[i]) != 0) return -1;
  }
  return 0;
}

int rpc_put_packet(RpcChannel* c, RpcCode code, const RpcSequence* s) {
  int32_t number = code;
  uint64_t size = sizeof number + (s == NULL ? 0 : rpc_sequence_size(s));
  if (s != NULL && rpc_sequence_check(s) != 0) return -1; /* before anything is sent: the channel stays usable */
  if (rpc_put(c, &size, sizeof size) != 0 || rpc_put(c, &number, sizeof number) != 0) return -1;
  return s == NULL ? 0 : rpc_put_sequence(c, s);
}

int rpc_put_with_head(RpcChannel* c, RpcCode code, const void* head, size_t head_size, const RpcSequence* s) {
  int32_t number = code;
  uint64_t size = sizeof number + head_size + rpc_sequence_size(s);
  return rpc_put(c, &size, sizeof size) != 0 || rpc_put(c, &number, sizeof number) != 0 || rpc_put(c, head, head_size) != 0
             ? -1
             : rpc_put_sequence(c, s);
}

int rpc_put_outcome(RpcChannel* c, int rc, const RpcSequence* result) {
  if (rc == 0 && rpc_sequence_check(result) == 0) return rpc_put_packet(c, RPC_RETURN, result);
  return rpc_put_exception(c, TVMGetLastError());
}

int rpc_put_exception(RpcChannel* c, const char* text) {
  TVMValue value = {.v_str = text};
  int code = kTVMStr;
  return rpc_put_packet(c, RPC_EXCEPTION, &(RpcSequence){.values = &value, .codes = &code, .count = 1});
}
