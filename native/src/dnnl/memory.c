/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Gives the buffers of a region places in one piece of memory: two may share bytes when no step uses both, or lies between
 * the uses of both. Largest first, each at the lowest place that is free. */
#include "dnnl.h"

static int by_size(const void* a, const void* b) {
  const TwBuffer *x = *(TwBuffer* const*)a, *y = *(TwBuffer* const*)b;
  if (x->size != y->size) return x->size < y->size ? 1 : -1;
  return x < y ? -1 : x > y;
}

static int by_offset(const void* a, const void* b) {
  const TwBuffer *x = *(TwBuffer* const*)a, *y = *(TwBuffer* const*)b;
  return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static size_t end_of(const TwBuffer* b) { return b->offset + tw_round_up(b->size, TW_ALIGNMENT); }

/* The lowest place beside the placed buffers that live at the same time; room is scratch for as many pointers. */
static size_t place(const TwBuffer* b, TwBuffer* const* placed, int count, TwBuffer** room) {
  int rivals = 0;
  size_t offset = 0, size = tw_round_up(b->size, TW_ALIGNMENT);
  for (int i = 0; i < count; ++i) {
    if (placed[i]->first <= b->last && b->first <= placed[i]->last) room[rivals++] = placed[i];
  }
  qsort(room, (size_t)rivals, sizeof *room, by_offset);
  for (int i = 0; i < rivals && room[i]->offset < offset + size; ++i) {
    if (end_of(room[i]) > offset) offset = end_of(room[i]);
  }
  return offset;
}

static int place_buffers(TwNet* net, size_t* total) {
  TwBuffer** own = calloc((size_t)net->num_buffers + 1, sizeof *own);
  TwBuffer** room = calloc((size_t)net->num_buffers + 1, sizeof *room);
  int count = 0;
  if (own == NULL || room == NULL) {
    free(own);
    free(room);
    return tw_out_of_memory((size_t)net->num_buffers * sizeof *own);
  }
  for (int i = 0; i < net->num_buffers; ++i) {
    TwBuffer* b = &net->buffers[i];
    if (b->kind == TW_OWN && b->first >= 0) own[count++] = b;
  }
  qsort(own, (size_t)count, sizeof *own, by_size);
  for (int i = 0; i < count; ++i) {
    own[i]->offset = place(own[i], own, i, room);
    if (end_of(own[i]) > *total) *total = end_of(own[i]);
  }
  free(own);
  free(room);
  return 0;
}

static void* place_of(const TwNet* net, const TwBuffer* b) {
  return b->kind == TW_OWN ? net->memory + b->offset : b->kind == TW_HELD ? b->data : NULL;
}

int tw_net_plan(TwNet* net) {
  size_t total = 0;
  if (place_buffers(net, &total) != 0) return -1;
  if (total != 0 && (net->memory = tw_aligned_alloc(total, TW_ALIGNMENT)) == NULL) return tw_out_of_memory(total);
  for (int i = 0; i < net->num_tensors; ++i) {
    TwTensor* t = &net->tensors[i];
    void* data = place_of(net, &net->buffers[t->buffer]);
    int status = net->api->memory_create(&t->memory, t->desc, net->api->engine, data);
    if (status != ONEDNN_SUCCESS) return tw_fail("dnnl_json: oneDNN cannot use memory (status %d)", status);
  }
  for (int i = 0; i < net->num_steps; ++i) {
    TwStep* s = &net->steps[i];
    for (int k = 0; k < s->num_args; ++k) s->args[k].memory = net->tensors[s->tensors[k]].memory;
  }
  return 0;
}
