/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Everything that a local session gives out is known by a handle (a number and a place in a table), never by an address, so
 * that no handle that is wrong, old or made up reaches memory. */
#include "handles.h"

static const char* const kind_names[] = {"nothing", "a function", "a module", "an array", "memory", "a stream", "a pointer"};

/* A handle is a place in the table, from 1 on, and above it the place's generation. On machines of 32 bits it fits into a
 * pointer, which is what the other side's tensors have for it. */
#define PLACE_BITS (sizeof(void*) == 4 ? 20 : 32)
#define PLACES ((uint64_t)1 << PLACE_BITS)
#define GENERATIONS (sizeof(void*) == 4 ? 0x7ffu : 0x7fffffu)

static uint64_t new_handle(Local* s, Handle handle) {
  tw_lock(&s->lock);
  int i = s->first_free;
  if (i < 0 && (uint64_t)s->num_handles >= (PLACES < INT32_MAX ? PLACES : INT32_MAX) - 1) {
    tw_unlock(&s->lock);
    tw_fail("RPCError: the session has %d handles, which is the most that there can be", s->num_handles);
    return 0;
  }
  if (i < 0 && s->num_handles == s->room) {
    int room = s->room == 0 ? 64 : s->room * 2;
    Handle* grown = realloc(s->handles, (size_t)room * sizeof *grown);
    if (grown == NULL) {
      tw_unlock(&s->lock);
      tw_out_of_memory((size_t)room * sizeof *grown);
      return 0;
    }
    s->handles = grown;
    s->room = room;
  }
  if (i < 0) {
    i = s->num_handles++;
    s->handles[i].generation = 0;
  } else {
    s->first_free = s->handles[i].next_free;
  }
  handle.generation = (s->handles[i].generation + 1) & GENERATIONS;
  s->handles[i] = handle;
  tw_unlock(&s->lock);
  return (uint64_t)handle.generation << PLACE_BITS | (uint32_t)(i + 1);
}

bool rpc_handle_look_up(Local* s, uint64_t number, Handle* out) {
  int64_t i = (int64_t)(number & (PLACES - 1)) - 1;
  tw_lock(&s->lock);
  bool known = i >= 0 && i < s->num_handles && s->handles[i].kind != FREE && s->handles[i].generation == number >> PLACE_BITS;
  if (known) *out = s->handles[i];
  tw_unlock(&s->lock);
  return known;
}

int rpc_handle_find(Local* s, uint64_t number, HandleKind kind, Handle* out) {
  if (!rpc_handle_look_up(s, number, out)) {
    return tw_fail("RPCError: handle 0x%llx is not of this session, or was freed", (unsigned long long)number);
  }
  if (out->kind == kind || (kind == DATA && out->kind == ARRAY)) return 0;
  return tw_fail("RPCError: handle 0x%llx is %s, not %s", (unsigned long long)number, kind_names[out->kind], kind_names[kind]);
}

static void drop_object(const Handle* h) {
  if (h->object == NULL) return;
  switch (h->kind) {
    case FUNCTION: tw_func_release(h->object); break;
    case MODULE: tw_module_release(h->object); break;
    case ARRAY: tw_array_release(h->object); break;
    case DATA: TVMDeviceFreeDataSpace(h->device, h->object); break;
    case STREAM: TVMStreamFree((int)h->device.device_type, h->device.device_id, h->object); break;
    default: break;
  }
}

int rpc_handle_free(Local* s, uint64_t number, HandleKind kind) {
  Handle h;
  if (rpc_handle_find(s, number, kind, &h) != 0) return -1;
  int i = (int)(number & (PLACES - 1)) - 1;
  tw_lock(&s->lock);
  bool mine = s->handles[i].kind != FREE && s->handles[i].generation == h.generation;
  if (mine) {
    s->handles[i].kind = FREE;
    s->handles[i].next_free = s->first_free;
    s->first_free = i;
  }
  tw_unlock(&s->lock);
  if (mine) drop_object(&h);
  return 0;
}

int rpc_handle_put(Local* s, RpcSequence* out, int i, Handle handle) {
  uint64_t number = new_handle(s, handle);
  if (number == 0) {
    drop_object(&handle);
    return -1;
  }
  out->values[i].v_int64 = (int64_t)number;
  out->codes[i] = kTVMOpaqueHandle;
  return 0;
}

/* ---- arrays ---- */
int rpc_handle_span(Local* s, const DLTensor* t, uint64_t size, Handle* out) {
  if (rpc_handle_find(s, (uintptr_t)t->data, DATA, out) != 0) return -1;
  if (t->device.device_type != out->device.device_type || t->device.device_id != out->device.device_id) {
    return tw_fail("RPCError: an array's memory is on device %d(%d), not on %d(%d)", (int)out->device.device_type,
                   out->device.device_id, (int)t->device.device_type, t->device.device_id);
  }
  if (t->byte_offset > out->size || size > out->size - t->byte_offset) {
    return tw_fail("RPCError: %llu bytes at offset %llu are outside of an array's memory of %llu bytes",
                   (unsigned long long)size, (unsigned long long)t->byte_offset, (unsigned long long)out->size);
  }
  return 0;
}

int rpc_handle_check_writable(Local* s, const DLTensor* t) {
  Handle h;
  if (rpc_handle_find(s, (uintptr_t)t->data, DATA, &h) != 0) return -1;
  if (h.kind != ARRAY || !tw_array_is_read_only(h.object)) return 0;
  return tw_fail("ValueError: the array is read-only: a view of weights that other executors read too; write to a copy, or give "
                 "an executor weights of its own with set_input");
}

int rpc_handle_resolve_tensor(Local* s, DLTensor* t) {
  Handle h;
  size_t size;
  if (!tw_tensor_bytes(t->ndim, t->shape, t->dtype, &size)) return tw_fail("RPCError: an array's shape is negative or too large");
  if (rpc_handle_span(s, t, size, &h) != 0) return -1;
  t->data = h.data;
  return 0;
}

void rpc_handles_init(Local* s) {
  tw_lock_init(&s->lock);
  s->first_free = -1;
}

void rpc_handles_destroy(Local* s) {
  for (int i = 0; i < s->num_handles; ++i) {
    if (s->handles[i].kind != FREE) drop_object(&s->handles[i]);
  }
  free(s->handles);
  tw_lock_destroy(&s->lock);
}
