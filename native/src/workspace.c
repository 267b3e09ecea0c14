/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Temporary memory of compiled functions: each thread keeps the blocks it once needed and hands them out again, so
 * that a running model allocates nothing. Large blocks are whole huge pages: kernels go over such a block again and again, and
 * with small pages their speed depends on where the system puts them (measured: networks 1.2 to 1.4 times as slow). */
#include "internal.h"

#define GRANULE 4096
#define HUGE_FROM (TW_HUGE_PAGE / 4)

static TwWorkspaceBlock* new_block(TwThread* t) {
  if (t->num_blocks == t->block_capacity) {
    size_t capacity = t->block_capacity == 0 ? 8 : t->block_capacity * 2;
    TwWorkspaceBlock* grown = realloc(t->blocks, capacity * sizeof *grown);
    if (grown == NULL) return NULL;
    t->blocks = grown;
    t->block_capacity = capacity;
  }
  TwWorkspaceBlock* b = &t->blocks[t->num_blocks++];
  *b = (TwWorkspaceBlock){0};
  return b;
}

void* TVMBackendAllocWorkspace(int device_type, int device_id, uint64_t nbytes, int dtype_code_hint,
                               int dtype_bits_hint) {
  (void)dtype_code_hint;
  (void)dtype_bits_hint;
  if (tw_check_cpu((DLDevice){device_type, device_id}) != 0) return NULL;
  if (nbytes > SIZE_MAX / 2) {
    tw_fail("a workspace of %llu bytes is too large", (unsigned long long)nbytes);
    return NULL;
  }
  TwThread* t = tw_thread();
  TwWorkspaceBlock *best = NULL, *largest_free = NULL;
  for (size_t i = t->num_blocks; i-- > 0;) {
    TwWorkspaceBlock* b = &t->blocks[i];
    if (b->used) continue;
    if (b->size >= nbytes && (best == NULL || b->size < best->size)) best = b;
    if (largest_free == NULL || b->size > largest_free->size) largest_free = b;
  }
  if (best == NULL) {
    /* growing an idle block, rather than adding one, bounds the pool by the deepest nesting */
    best = largest_free != NULL ? largest_free : new_block(t);
    if (best != NULL) {
      free(best->ptr);
      best->size = tw_round_up((size_t)nbytes, nbytes < HUGE_FROM ? GRANULE : TW_HUGE_PAGE);
      best->ptr = tw_aligned_alloc(best->size, TW_ALIGNMENT);
      if (best->ptr == NULL) best->size = 0;
    }
    if (best == NULL || best->ptr == NULL) {
      tw_out_of_memory((size_t)nbytes);
      return NULL;
    }
  }
  best->used = true;
  return best->ptr;
}

int TVMBackendFreeWorkspace(int device_type, int device_id, void* ptr) {
  (void)device_type;
  (void)device_id;
  TwThread* t = tw_thread();
  for (size_t i = t->num_blocks; i-- > 0;) {
    if (t->blocks[i].ptr == ptr && t->blocks[i].used) {
      t->blocks[i].used = false;
      return 0;
    }
  }
  return tw_fail("a workspace is freed that this thread does not hold");
}

void tw_workspace_release(TwThread* thread) {
  for (size_t i = 0; i < thread->num_blocks; ++i) free(thread->blocks[i].ptr);
  free(thread->blocks);
  thread->blocks = NULL;
  thread->num_blocks = thread->block_capacity = 0;
}
