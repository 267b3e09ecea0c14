/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Memory that is used again. A pool keeps blocks by size class, and the headers of views; both come back when their last
 * holder lets them go, on whatever thread that is. */
#include "array.h"

/* Classes are multiples of 64 bytes up to 1 KiB, then eight to each doubling. */
enum { SMALL = 1024, STEPS = 8, SMALL_CLASSES = SMALL / TW_ALIGNMENT, CLASSES = SMALL_CLASSES + STEPS * 54, VIEW_DIMS = 8 };
static const size_t default_bound = (size_t)1 << 30;

struct TwPool {
  atomic_int refs; /* of machines, and of each array that is out */
  DLDevice device;
  TwLock lock;
  size_t bound, idle, used; /* under the lock, as is what follows */
  TwArray* blocks[CLASSES]; /* by class; linked through parent */
  TwArray* views;
};

/* The class of a size, and the bytes that its blocks have. */
static int class_of(size_t nbytes, size_t* room) {
  if (nbytes <= SMALL) {
    int index = nbytes == 0 ? 0 : (int)((nbytes - 1) / TW_ALIGNMENT);
    *room = (size_t)(index + 1) * TW_ALIGNMENT;
    return index;
  }
  int doubling = 63 - __builtin_clzll((unsigned long long)(nbytes - 1)); /* 2^doubling < nbytes <= 2^(doubling + 1) */
  size_t step = ((size_t)1 << doubling) / STEPS;
  size_t steps = (nbytes - ((size_t)1 << doubling) + step - 1) / step; /* 1 to STEPS */
  *room = ((size_t)1 << doubling) + steps * step;
  return SMALL_CLASSES + (doubling - 10) * STEPS + (int)steps - 1;
}

TwPool* tw_pool_new(DLDevice device) {
  TwPool* pool = calloc(1, sizeof *pool);
  if (pool == NULL) {
    tw_out_of_memory(sizeof *pool);
    return NULL;
  }
  atomic_init(&pool->refs, 1);
  pool->device = device;
  pool->bound = default_bound;
  tw_lock_init(&pool->lock);
  return pool;
}

TwPool* tw_pool_retain(TwPool* pool) {
  atomic_fetch_add_explicit(&pool->refs, 1, memory_order_relaxed);
  return pool;
}

static void free_block(TwArray* block) {
  tw_device_free(block->tensor.device, block->allocation);
  free(block);
}

/* Frees idle blocks until no more than `most` bytes lie idle. Under the lock. */
static void shrink(TwPool* pool, size_t most) {
  for (int i = CLASSES - 1; i >= 0 && pool->idle > most; --i) {
    while (pool->blocks[i] != NULL && pool->idle > most) {
      TwArray* block = pool->blocks[i];
      size_t room;
      class_of((size_t)block->dims[0], &room);
      pool->blocks[i] = block->parent;
      pool->idle -= room;
      free_block(block);
    }
  }
}

void tw_pool_release(TwPool* pool) {
  if (pool == NULL || atomic_fetch_sub_explicit(&pool->refs, 1, memory_order_acq_rel) != 1) return;
  shrink(pool, 0);
  while (pool->views != NULL) {
    TwArray* view = pool->views;
    pool->views = view->parent;
    free(view);
  }
  tw_lock_destroy(&pool->lock);
  free(pool);
}

void tw_pool_set_bound(TwPool* pool, size_t nbytes) {
  tw_lock(&pool->lock);
  pool->bound = nbytes;
  shrink(pool, nbytes);
  tw_unlock(&pool->lock);
}

void tw_pool_usage(TwPool* pool, size_t* idle, size_t* used) {
  tw_lock(&pool->lock);
  *idle = pool->idle;
  *used = pool->used;
  tw_unlock(&pool->lock);
}

static TwArray* new_block(TwPool* pool, size_t room, DLDataType hint) {
  static const DLDataType bytes = {kDLUInt, 8, 1};
  const int64_t size = (int64_t)room;
  TwArray* block = tw_array_header(&size, 1, 1, bytes, pool->device);
  if (block == NULL) return NULL;
  block->allocation = tw_device_alloc(pool->device, room, TW_ALIGNMENT, hint, NULL);
  if (block->allocation == NULL) { /* what lies idle may be what is missing */
    tw_lock(&pool->lock);
    shrink(pool, 0);
    tw_unlock(&pool->lock);
    block->allocation = tw_device_alloc(pool->device, room, TW_ALIGNMENT, hint, NULL);
  }
  if (block->allocation == NULL) {
    free(block);
    return NULL;
  }
  block->tensor.data = block->allocation;
  return block;
}

/* Takes back an array that nobody holds any more. */
static void give_back(TwArray* array) {
  TwPool* pool = array->pool;
  size_t room = 0;
  TwArray** list = &pool->views;
  if (array->allocation != NULL) list = &pool->blocks[class_of((size_t)array->dims[0], &room)];
  array->pool = NULL;
  array->recycle = NULL;
  tw_lock(&pool->lock);
  pool->used -= room;
  const bool keep = room <= pool->bound && pool->idle <= pool->bound - room;
  if (keep) {
    array->parent = *list;
    *list = array;
    pool->idle += room;
  }
  tw_unlock(&pool->lock);
  if (!keep) free_block(array);
  tw_pool_release(pool);
}

TwArray* tw_pool_take(TwPool* pool, size_t nbytes, DLDataType hint) {
  size_t room;
  if (nbytes > SIZE_MAX / 4) {
    tw_out_of_memory(nbytes);
    return NULL;
  }
  int index = class_of(nbytes, &room);
  tw_lock(&pool->lock);
  TwArray* block = pool->blocks[index];
  if (block != NULL) {
    pool->blocks[index] = block->parent;
    pool->idle -= room;
  }
  tw_unlock(&pool->lock);
  if (block == NULL && (block = new_block(pool, room, hint)) == NULL) return NULL;
  tw_lock(&pool->lock);
  pool->used += room;
  tw_unlock(&pool->lock);
  block->parent = NULL;
  block->dims[0] = (int64_t)nbytes;
  block->pool = tw_pool_retain(pool);
  block->recycle = give_back;
  atomic_store_explicit(&block->refs, 1, memory_order_relaxed);
  return block;
}

TwArray* tw_pool_view(TwPool* pool, TwArray* parent, uint64_t byte_offset, const int64_t* shape, int ndim, DLDataType type) {
  if (ndim > VIEW_DIMS) return tw_array_view(parent, byte_offset, shape, ndim, type);
  tw_lock(&pool->lock);
  TwArray* view = pool->views;
  if (view != NULL) pool->views = view->parent;
  tw_unlock(&pool->lock);
  if (view == NULL) view = tw_array_header(shape, ndim, VIEW_DIMS, type, parent->tensor.device);
  if (view == NULL) return NULL;
  tw_array_bind(view, parent, byte_offset, shape, ndim, type);
  view->pool = tw_pool_retain(pool);
  view->recycle = give_back;
  atomic_store_explicit(&view->refs, 1, memory_order_relaxed);
  return view;
}
