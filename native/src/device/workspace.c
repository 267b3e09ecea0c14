/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Temporary memory of compiled functions: each thread keeps the blocks it once needed and hands them out again, so
 * that a running model allocates nothing. Large blocks are whole huge pages: kernels go over such a block again and again, and
 * with small pages their speed depends on where the system puts them (measured: networks 1.2 to 1.4 times as slow). */
#include "device.h"

#define GRANULE 4096
#define HUGE_FROM (TW_HUGE_PAGE / 4)

typedef struct {
  void* ptr;
  size_t size;
  DLDevice device;
  bool used;
} Block;

/* A thread's blocks. */
typedef struct {
  Block* blocks;
  size_t num_blocks, capacity;
} Pool;

static pthread_key_t pool_key;
static pthread_once_t pool_once = PTHREAD_ONCE_INIT;
static _Thread_local Pool* current;

static void destroy_pool(void* p) {
  Pool* pool = p;
  for (size_t i = 0; i < pool->num_blocks; ++i) {
    if (pool->blocks[i].ptr != NULL) tw_device_free(pool->blocks[i].device, pool->blocks[i].ptr);
  }
  free(pool->blocks);
  free(pool);
  current = NULL;
}

static void make_key(void) { pthread_key_create(&pool_key, destroy_pool); }

/* The calling thread's, or NULL. */
static Pool* own_pool(void) {
  if (current == NULL) {
    pthread_once(&pool_once, make_key);
    current = calloc(1, sizeof *current);
    if (current == NULL) return NULL;
    pthread_setspecific(pool_key, current);
  }
  return current;
}

static bool is_on(const Block* b, DLDevice device) {
  return b->device.device_type == device.device_type && b->device.device_id == device.device_id;
}

static Block* new_block(Pool* pool, DLDevice device) {
  if (pool->num_blocks == pool->capacity) {
    size_t capacity = pool->capacity == 0 ? 8 : pool->capacity * 2;
    Block* grown = realloc(pool->blocks, capacity * sizeof *grown);
    if (grown == NULL) return NULL;
    pool->blocks = grown;
    pool->capacity = capacity;
  }
  Block* b = &pool->blocks[pool->num_blocks++];
  *b = (Block){.device = device};
  return b;
}

/* Gives the block memory of nbytes and more in place of what it has; false and an error when there is none. */
static bool refill(Block* b, size_t nbytes, DLDataType hint) {
  if (b->ptr != NULL) tw_device_free(b->device, b->ptr);
  b->size = tw_round_up(nbytes, nbytes < HUGE_FROM ? GRANULE : TW_HUGE_PAGE);
  b->ptr = tw_device_alloc(b->device, b->size, TW_ALIGNMENT, hint, NULL);
  if (b->ptr == NULL) b->size = 0;
  return b->ptr != NULL;
}

static void* take_block(DLDevice device, size_t nbytes, DLDataType hint) {
  Pool* pool = own_pool();
  if (pool == NULL) {
    tw_out_of_memory(sizeof *pool);
    return NULL;
  }
  Block *best = NULL, *largest_free = NULL;
  for (size_t i = pool->num_blocks; i-- > 0;) {
    Block* b = &pool->blocks[i];
    if (b->used || !is_on(b, device)) continue;
    if (b->ptr != NULL && b->size >= nbytes && (best == NULL || b->size < best->size)) best = b;
    if (largest_free == NULL || b->size > largest_free->size) largest_free = b;
  }
  if (best == NULL) {
    /* growing an idle block, rather than adding one, bounds the pool by the deepest nesting */
    best = largest_free != NULL ? largest_free : new_block(pool, device);
    if (best == NULL) {
      tw_out_of_memory(sizeof *best);
      return NULL;
    }
    if (!refill(best, nbytes, hint)) return NULL;
  }
  best->used = true;
  return best->ptr;
}

void* TVMBackendAllocWorkspace(int device_type, int device_id, uint64_t nbytes, int dtype_code_hint,
                               int dtype_bits_hint) {
  const DLDevice device = {device_type, device_id};
  const DLDataType hint = {(uint8_t)dtype_code_hint, (uint8_t)dtype_bits_hint, 1};
  if (device_type != kDLCPU) {
    const TilewrightDeviceAPI* api = tw_device_row(device);
    if (api == NULL) return NULL;
    if (api->workspace_alloc != NULL) return tw_device_workspace(device, (size_t)nbytes, hint);
  }
  if (nbytes > SIZE_MAX / 2) {
    tw_fail("a workspace of %llu bytes is too large", (unsigned long long)nbytes);
    return NULL;
  }
  return take_block(device, (size_t)nbytes, hint);
}

int TVMBackendFreeWorkspace(int device_type, int device_id, void* ptr) {
  const DLDevice device = {device_type, device_id};
  if (device_type != kDLCPU) {
    const TilewrightDeviceAPI* api = tw_device_row(device);
    if (api == NULL) return -1;
    if (api->workspace_free != NULL) return tw_device_workspace_free(device, ptr);
  }
  const Pool* pool = current;
  for (size_t i = pool == NULL ? 0 : pool->num_blocks; i-- > 0;) {
    Block* b = &pool->blocks[i];
    if (b->ptr == ptr && b->used && is_on(b, device)) {
      b->used = false;
      return 0;
    }
  }
  return tw_fail("a workspace is freed that this thread does not hold");
}
