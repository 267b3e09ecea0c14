/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Races: for each byte of the SRAM and of the regions that are written, the last command that wrote it and the last of each
 * engine that read it. A command races with one of those that tokens do not order before it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../driver/status.h"
#include "chip.h"

static const char* const engine_names[] = {"LOAD", "STORE", "MATRIX", "VECTOR"};

typedef struct {
  uint32_t read[NPU_ENGINES]; /* the number of the engine's last command that read here; 0: none */
  uint32_t written;           /* the same of the last that wrote */
  uint32_t writer;            /* its engine */
} Byte;

/* One memory. */
typedef struct {
  Byte* bytes; /* made at the first touch */
  uint8_t* touched;
  uint64_t count; /* 0: nothing writes there */
} Cover;

struct NpuShadow {
  const npu_command* commands;
  uint32_t command_count;
  Cover sram, regions[NPU_MAX_REGIONS];
};

int npu_shadow_create(const NpuRun* run, NpuShadow** shadow) {
  NpuShadow* s = calloc(1, sizeof *s);
  if (s == NULL) return npu_fail(NPU_ERROR_HOST_MEMORY, "the emulator is out of memory");
  s->commands = run->commands;
  s->command_count = run->count;
  s->sram.count = run->space.sram.bytes;
  for (uint32_t i = 0; i < run->count; ++i) {
    const npu_dma* c = &run->commands[i].dma;
    if (c->header.engine != NPU_STORE || c->header.opcode != NPU_OP_DMA || c->region >= run->space.region_count) continue;
    s->regions[c->region].count = run->space.regions[c->region].bytes;
  }
  *shadow = s;
  return NPU_OK;
}

/* The index of an engine's command. */
static uint32_t index_of(const NpuShadow* shadow, uint32_t engine, uint32_t sequence) {
  uint32_t index = 0;
  while (index < shadow->command_count) {
    if (shadow->commands[index].header.engine == engine && --sequence == 0) break;
    ++index;
  }
  return index;
}

static void release(Cover* cover) {
  free(cover->bytes);
  free(cover->touched);
}

void npu_shadow_destroy(NpuShadow* shadow) {
  if (shadow == NULL) return;
  release(&shadow->sram);
  for (int i = 0; i < NPU_MAX_REGIONS; ++i) release(&shadow->regions[i]);
  free(shadow);
}

/* ---- what a command touches: bytes of a memory, in `touched` between low and high ---- */
typedef struct {
  Cover* cover;
  int64_t low, high;
} Mark;

static void mark_run(Mark* mark, int64_t at, int64_t bytes) {
  memset(mark->cover->touched + at, 1, (size_t)bytes);
  if (at < mark->low) mark->low = at;
  if (at + bytes > mark->high) mark->high = at + bytes;
}

/* Loops over runs of bytes. */
static void mark_loops(Mark* mark, int64_t at, const uint32_t* n, const int32_t* stride, int rank, int64_t bytes) {
  while (rank > 0 && (n[rank - 1] == 1 || stride[rank - 1] == bytes)) { /* the innermost loop makes one run */
    bytes *= n[rank - 1];
    --rank;
  }
  uint32_t i[8] = {0};
  for (;;) {
    int64_t place = at;
    for (int d = 0; d < rank; ++d) place += (int64_t)i[d] * stride[d];
    mark_run(mark, place, bytes);
    int d = rank - 1;
    while (d >= 0 && (++i[d] == n[d] || stride[d] == 0)) i[d--] = 0;
    if (d < 0) return;
  }
}

static int open_cover(Cover* cover) {
  if (cover->bytes != NULL) return NPU_OK;
  cover->bytes = calloc(cover->count, sizeof *cover->bytes);
  cover->touched = calloc(cover->count, 1);
  if (cover->bytes != NULL && cover->touched != NULL) return NPU_OK;
  return npu_fail(NPU_ERROR_HOST_MEMORY, "the emulator is out of memory for the race check");
}

/* A command with its place in the order. */
typedef struct {
  uint32_t engine, sequence;
  const NpuClock* before;
} Visit;

static int race(const NpuShadow* shadow, const Mark* mark, int64_t at, const char* verb, uint32_t engine, uint32_t sequence,
                const char* other_verb) {
  char memory[32] = "the SRAM";
  if (mark->cover != &shadow->sram) snprintf(memory, sizeof memory, "region %d", (int)(mark->cover - shadow->regions));
  return npu_fail(NPU_ERROR_PROGRAM, "a race: it %s byte %lld of %s, which command %u (%s) %s, and no token orders the two", verb,
                  (long long)at, memory, index_of(shadow, engine, sequence), engine_names[engine], other_verb);
}

/* Compares the marked bytes with who touched them before, and notes the command there. */
static int settle(const NpuShadow* shadow, const Visit* v, Mark* mark, bool writes) {
  int status = NPU_OK;
  for (int64_t at = mark->low; at < mark->high; ++at) {
    if (!mark->cover->touched[at]) continue;
    mark->cover->touched[at] = 0;
    Byte* byte = &mark->cover->bytes[at];
    if (status != NPU_OK) continue;
    if (byte->written > 0 && byte->writer != v->engine && v->before->done[byte->writer] < byte->written) {
      status = race(shadow, mark, at, writes ? "writes" : "reads", byte->writer, byte->written, "writes");
    }
    for (uint32_t e = 0; writes && status == NPU_OK && e < NPU_ENGINES; ++e) {
      if (e != v->engine && v->before->done[e] < byte->read[e]) {
        status = race(shadow, mark, at, "writes", e, byte->read[e], "reads");
      }
    }
    if (writes) {
      byte->written = v->sequence, byte->writer = v->engine;
    } else {
      byte->read[v->engine] = v->sequence;
    }
  }
  return status;
}

/* One operand. */
static int touch(NpuShadow* shadow, Cover* cover, const Visit* v, bool writes, int64_t at, const uint32_t* n,
                 const int32_t* stride, int rank, int64_t bytes) {
  if (cover->count == 0) return NPU_OK;
  const int status = open_cover(cover);
  Mark mark = {cover, INT64_MAX, 0};
  if (status != NPU_OK) return status;
  mark_loops(&mark, at, n, stride, rank, bytes);
  return settle(shadow, v, &mark, writes);
}

static int touch_dma(NpuShadow* shadow, const Visit* v, const npu_dma* c) {
  const bool loads = c->header.engine == NPU_LOAD;
  uint32_t whole[4];
  bool empty = false;
  for (int d = 0; d < 4; ++d) {
    whole[d] = c->before[d] + c->n[d] + c->after[d];
    empty = empty || c->n[d] == 0;
  }
  int status = touch(shadow, &shadow->sram, v, loads, c->near_address, whole, c->near_stride, 4, c->element);
  if (status != NPU_OK || empty) return status;
  return touch(shadow, &shadow->regions[c->region], v, !loads, c->far_offset, c->n, c->far_stride, 4, c->element);
}

static int touch_gemm(NpuShadow* shadow, const Visit* v, const npu_gemm* c) {
  const uint32_t bytes = npu_type_bytes(c->dtype), blocks = (uint32_t)npu_divide_up(c->columns, NPU_BLOCK);
  const uint32_t depth = c->k[0] * c->k[1] * c->k[2] * (uint32_t)npu_divide_up(c->depth, NPU_BLOCK) * NPU_BLOCK;
  const uint32_t n_a[5] = {c->m[0], c->m[1], c->k[0], c->k[1], c->k[2]}, n_c[3] = {c->m[0], c->m[1], 0};
  const int32_t s_a[5] = {c->a_m[0], c->a_m[1], c->a_k[0], c->a_k[1], c->a_k[2]}, s_c[2] = {c->c_m[0], c->c_m[1]};
  int status = touch(shadow, &shadow->sram, v, false, c->a, n_a, s_a, 5, c->depth * bytes);
  if (status == NPU_OK) status = touch(shadow, &shadow->sram, v, false, c->b, &blocks, &c->b_n, 1, (int64_t)depth * NPU_BLOCK * bytes);
  if (status == NPU_OK && (c->header.flags & NPU_BIAS) != 0) {
    status = touch(shadow, &shadow->sram, v, false, c->bias, NULL, NULL, 0, c->columns * 4);
  }
  for (uint32_t n = 0; n < blocks && status == NPU_OK; ++n) {
    const uint32_t left = c->columns - n * NPU_BLOCK, width = left < NPU_BLOCK ? left : NPU_BLOCK;
    const int64_t at = c->c + (int64_t)n * c->c_n;
    status = touch(shadow, &shadow->sram, v, true, at, n_c, s_c, 2, width * 4);
    if (status == NPU_OK && (c->header.flags & NPU_ACCUMULATE) != 0) {
      status = touch(shadow, &shadow->sram, v, false, at, n_c, s_c, 2, width * 4);
    }
  }
  return status;
}

static int touch_vector(NpuShadow* shadow, const Visit* v, const npu_vector* c) {
  const bool reads_b = npu_is_binary(c->header.opcode) && (c->header.flags & NPU_SCALAR_B) == 0;
  const int rank = npu_is_rows(c->header.opcode) ? 3 : 4;
  int status = touch(shadow, &shadow->sram, v, false, c->a, c->n, c->a_stride, 4, npu_type_bytes(c->a_type));
  if (status == NPU_OK && reads_b) {
    status = touch(shadow, &shadow->sram, v, false, c->b, c->n, c->b_stride, 4, npu_type_bytes(c->b_type));
  }
  if (status != NPU_OK) return status;
  return touch(shadow, &shadow->sram, v, true, c->dst, c->n, c->dst_stride, rank, npu_type_bytes(c->dst_type));
}

static int touch_window(NpuShadow* shadow, const Visit* v, const npu_window* c) {
  const uint32_t n_a[5] = {c->n[0], c->n[1], c->n[2], c->window[0], c->window[1]};
  const int32_t s_a[5] = {c->a_stride[0], c->a_stride[1], c->a_stride[2], c->window_stride[0], c->window_stride[1]};
  const uint32_t n_b[2] = {c->n[0], (uint32_t)c->window[0] * c->window[1]};
  int status = touch(shadow, &shadow->sram, v, false, c->a, n_a, s_a, 5, c->n[3] * npu_type_bytes(c->a_type));
  if (status == NPU_OK && c->header.opcode == NPU_OP_DEPTHWISE) {
    status = touch(shadow, &shadow->sram, v, false, c->b, n_b, c->b_stride, 2, c->n[3] * npu_type_bytes(c->b_type));
    if (status == NPU_OK && (c->header.flags & NPU_BIAS) != 0) {
      status = touch(shadow, &shadow->sram, v, false, c->c, NULL, NULL, 0, (int64_t)c->n[0] * c->n[3] * 4);
    }
  }
  if (status != NPU_OK) return status;
  return touch(shadow, &shadow->sram, v, true, c->dst, c->n, c->dst_stride, 3, c->n[3] * npu_type_bytes(c->dst_type));
}

int npu_shadow_touch(NpuShadow* shadow, const npu_command* command, uint32_t sequence, const NpuClock* before) {
  const Visit v = {command->header.engine, sequence, before};
  const uint8_t opcode = command->header.opcode;
  if (opcode == NPU_OP_NOP) return NPU_OK;
  if (opcode == NPU_OP_DMA) return touch_dma(shadow, &v, &command->dma);
  if (opcode == NPU_OP_GEMM) return touch_gemm(shadow, &v, &command->gemm);
  return npu_is_window(opcode) ? touch_window(shadow, &v, &command->window) : touch_vector(shadow, &v, &command->vector);
}
