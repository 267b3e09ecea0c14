/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Memory of one array: blocks in the order of their addresses, each behind its head; the first that is large enough is
 * taken, and free neighbours become one. */
#include <string.h>
#include <tvm/runtime/crt/platform.h>

#include "board_rpc.h"

#define ALIGNMENT ((size_t)64)

typedef struct Block {
  struct Block* next;
  size_t size; /* of what follows the head */
  int used;
} Block;

/* A head takes one unit of alignment, so that what follows is aligned. */
static Block* first;

static char* contents(const Block* b) { return (char*)b + ALIGNMENT; }

void BoardHeapInit(void* memory, size_t size) {
  const size_t skipped = -(uintptr_t)memory & (ALIGNMENT - 1);
  first = NULL;
  if (size < skipped + 2 * ALIGNMENT) return;
  first = (Block*)((char*)memory + skipped);
  *first = (Block){NULL, ((size - skipped) & ~(ALIGNMENT - 1)) - ALIGNMENT, 0};
}

void* BoardHeapAllocate(size_t size) {
  if (size > (size_t)-1 - ALIGNMENT) return NULL;
  const size_t whole = size == 0 ? ALIGNMENT : (size + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
  for (Block* b = first; b != NULL; b = b->next) {
    if (b->used || b->size < whole) continue;
    if (b->size > whole + ALIGNMENT) { /* the rest is a block of its own */
      Block* rest = (Block*)(contents(b) + whole);
      *rest = (Block){b->next, b->size - whole - ALIGNMENT, 0};
      b->next = rest;
      b->size = whole;
    }
    b->used = 1;
    return contents(b);
  }
  return NULL;
}

static void join_free(void) {
  for (Block* b = first; b != NULL; b = b->next) {
    while (!b->used && b->next != NULL && !b->next->used) {
      b->size += b->next->size + ALIGNMENT;
      b->next = b->next->next;
    }
  }
}

int BoardHeapFree(void* block) {
  for (Block* b = first; b != NULL; b = b->next) {
    if (contents(b) != block || !b->used) continue;
    b->used = 0;
    join_free();
    return 0;
  }
  return -1;
}

int BoardHeapHolds(const void* from, uint64_t size) {
  for (const Block* b = first; b != NULL; b = b->next) {
    const char* begin = contents(b);
    if (!b->used || (const char*)from < begin || (const char*)from > begin + b->size) continue;
    return size <= (uint64_t)(begin + b->size - (const char*)from);
  }
  return 0;
}

tvm_crt_error_t TVMPlatformMemoryAllocate(size_t num_bytes, DLDevice dev, void** out_ptr) {
  (void)dev;
  *out_ptr = BoardHeapAllocate(num_bytes);
  return *out_ptr != NULL ? kTvmErrorNoError : kTvmErrorPlatformNoMemory;
}

tvm_crt_error_t TVMPlatformMemoryFree(void* ptr, DLDevice dev) {
  (void)dev;
  return BoardHeapFree(ptr) == 0 ? kTvmErrorNoError : kTvmErrorPlatformStackAllocBadFree;
}
