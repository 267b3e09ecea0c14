/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Counted objects of the virtual machine. */
#include "array.h"

TwObject* tw_object_new(bool closure, int64_t tag, size_t size) {
  TwObject* object = calloc(1, sizeof *object + size * sizeof(TwSlot));
  if (object == NULL) {
    tw_out_of_memory(size * sizeof(TwSlot));
    return NULL;
  }
  atomic_init(&object->refs, 1);
  object->closure = closure;
  object->tag = tag;
  object->size = size;
  return object;
}

TwObject* tw_object_retain(TwObject* object) {
  atomic_fetch_add_explicit(&object->refs, 1, memory_order_relaxed);
  return object;
}

static bool let_go(TwObject* object) { return atomic_fetch_sub_explicit(&object->refs, 1, memory_order_acq_rel) == 1; }

void tw_object_release(TwObject* object) {
  if (object == NULL || !let_go(object)) return;
  object->next = NULL;
  for (TwObject* dying = object; dying != NULL;) {
    TwObject* current = dying;
    dying = current->next;
    for (size_t i = 0; i < current->size; ++i) {
      TwSlot* field = &current->fields[i];
      if (field->kind == TW_TENSOR) tw_array_release(field->array);
      if (field->kind == TW_OBJECT && let_go(field->object)) {
        field->object->next = dying;
        dying = field->object;
      }
    }
    free(current);
  }
}

void tw_slot_clear(TwSlot* slot) {
  TwSlot old = *slot;
  slot->kind = TW_NOTHING;
  if (old.kind == TW_TENSOR) tw_array_release(old.array);
  if (old.kind == TW_OBJECT) tw_object_release(old.object);
}

TwSlot tw_slot_copy(const TwSlot* slot) {
  if (slot->kind == TW_TENSOR) tw_array_retain(slot->array);
  if (slot->kind == TW_OBJECT) tw_object_retain(slot->object);
  return *slot;
}

int TilewrightObjectFree(TVMObjectHandle object) {
  tw_object_release(object);
  return 0;
}
