/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Pools of device memory. Drivers take long to give memory and wait for the device when it is freed; a pool keeps blocks by
 * their rounded size. A block that comes back may still be read by work that was queued before: who takes it next queues
 * behind that work, on one stream; where there are several, the pool waits for all of them first. */
#include "gpu.h"

enum { BUCKETS = 1024, UNIT = 512, STEPS = 8 };
static const size_t most_idle = (size_t)1 << 30;

typedef struct Block {
  void* ptr;
  size_t size;
  struct Block* next;
} Block;

struct TwGpuPool {
  TwMemorySource source;
  TwLock lock;
  Block* held[BUCKETS]; /* in use, by address */
  Block* idle[BUCKETS]; /* by size */
  size_t used_bytes, idle_bytes;
};

/* Sizes are multiples of 512 bytes, and of an eighth of the power of two below. */
static size_t rounded(size_t nbytes) {
  if (nbytes <= UNIT) return UNIT;
  size_t step = ((size_t)1 << (63 - __builtin_clzll((unsigned long long)(nbytes - 1)))) / STEPS;
  return tw_round_up(nbytes, step < UNIT ? UNIT : step);
}

static size_t mix(uint64_t key) { return (size_t)((key * 0x9e3779b97f4a7c15u) >> 54); }

TwGpuPool* tw_gpu_pool_new(const TwMemorySource* source) {
  TwGpuPool* pool = calloc(1, sizeof *pool);
  if (pool == NULL) {
    tw_out_of_memory(sizeof *pool);
    return NULL;
  }
  pool->source = *source;
  tw_lock_init(&pool->lock);
  return pool;
}

/* Gives all that lies idle back to the driver. Under the lock. */
static void drop_idle(TwGpuPool* pool) {
  for (size_t i = 0; i < BUCKETS; ++i) {
    while (pool->idle[i] != NULL) {
      Block* b = pool->idle[i];
      pool->idle[i] = b->next;
      pool->source.free(pool->source.ctx, b->ptr);
      free(b);
    }
  }
  pool->idle_bytes = 0;
}

void tw_gpu_pool_free(TwGpuPool* pool) {
  if (pool == NULL) return;
  drop_idle(pool);
  tw_lock_destroy(&pool->lock);
  free(pool);
}

static Block* take_idle(TwGpuPool* pool, size_t size) {
  for (Block** link = &pool->idle[mix(size)]; *link != NULL; link = &(*link)->next) {
    if ((*link)->size != size) continue;
    Block* b = *link;
    *link = b->next;
    pool->idle_bytes -= size;
    return b;
  }
  return NULL;
}

static Block* new_block(TwGpuPool* pool, size_t size) {
  Block* b = malloc(sizeof *b);
  if (b == NULL) return NULL;
  *b = (Block){.ptr = pool->source.alloc(pool->source.ctx, size), .size = size};
  if (b->ptr == NULL && pool->idle_bytes != 0) {
    drop_idle(pool);
    b->ptr = pool->source.alloc(pool->source.ctx, size);
  }
  if (b->ptr != NULL) return b;
  free(b);
  return NULL;
}

void* tw_gpu_pool_take(TwGpuPool* pool, size_t nbytes) {
  if (nbytes > SIZE_MAX / 4) return NULL;
  const size_t size = rounded(nbytes);
  tw_lock(&pool->lock);
  Block* b = take_idle(pool, size);
  if (b == NULL) b = new_block(pool, size);
  void* ptr = NULL;
  if (b != NULL) {
    Block** bucket = &pool->held[mix((uintptr_t)b->ptr)];
    b->next = *bucket;
    *bucket = b;
    pool->used_bytes += size;
    ptr = b->ptr;
  }
  tw_unlock(&pool->lock);
  return ptr;
}

int tw_gpu_pool_give(TwGpuPool* pool, void* ptr) {
  pool->source.settle(pool->source.ctx);
  tw_lock(&pool->lock);
  Block** link = &pool->held[mix((uintptr_t)ptr)];
  while (*link != NULL && (*link)->ptr != ptr) link = &(*link)->next;
  Block* b = *link;
  if (b != NULL) {
    *link = b->next;
    pool->used_bytes -= b->size;
    if (b->size > most_idle - pool->idle_bytes) {
      pool->source.free(pool->source.ctx, b->ptr);
      free(b);
    } else {
      Block** bucket = &pool->idle[mix(b->size)];
      b->next = *bucket;
      *bucket = b;
      pool->idle_bytes += b->size;
    }
  }
  tw_unlock(&pool->lock);
  return b == NULL ? tw_fail("memory at %p is freed that was not given out", ptr) : 0;
}

void tw_gpu_pool_usage(TwGpuPool* pool, size_t* used, size_t* idle) {
  tw_lock(&pool->lock);
  *used = pool->used_bytes;
  *idle = pool->idle_bytes;
  tw_unlock(&pool->lock);
}

int tw_gpu_out_of_memory(TwGpuPool* pool, size_t nbytes, uint64_t total) {
  size_t used, idle;
  tw_gpu_pool_usage(pool, &used, &idle);
  return tw_fail("out of device memory: %zu bytes are asked for, arrays here have %zu, and the device has %llu in all; free arrays, "
                 "or use a smaller batch",
                 nbytes, used, (unsigned long long)total);
}

int tw_gpu_check_scope(const char* scope) {
  if (scope == NULL || scope[0] == '\0' || strcmp(scope, "global") == 0) return 0;
  return tw_fail("memory scope \"%s\" does not exist on this device; it has \"global\"", scope);
}
