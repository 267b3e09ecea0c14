/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The cycle model: docs/isa.md, "Cycles". */
#include "chip.h"

enum {
  DMA_LATENCY = 64,
  DMA_BYTES = 64, /* a cycle */
  UNIT_START = 16,
  FLOAT_BLOCK = 4, /* cycles of a block in float32; one in int8 */
  SLOW_LANES = 16  /* of operations that are not additions, products or comparisons */
};

uint64_t npu_dma_bytes(const npu_dma* c) { return (uint64_t)c->n[0] * c->n[1] * c->n[2] * c->n[3] * c->element; }

/* Runs of bytes that follow one another on both sides; each takes whole cycles. */
static uint64_t dma_cycles(const npu_dma* c) {
  uint64_t extent[4], run = c->element, runs = 1;
  for (int d = 0; d < 4; ++d) extent[d] = (uint64_t)c->before[d] + c->n[d] + c->after[d];
  bool whole = true;
  for (int d = 3; d >= 0; --d) {
    const bool follows = extent[d] == 1 || ((uint64_t)c->near_stride[d] == run && (c->n[d] <= 1 || (uint64_t)c->far_stride[d] == run));
    whole = whole && follows && c->near_stride[d] >= 0;
    if (whole) {
      run *= extent[d];
      whole = extent[d] == c->n[d]; /* padding ends the run on the far side */
    } else {
      runs *= extent[d];
    }
  }
  return DMA_LATENCY + runs * npu_divide_up(run, DMA_BYTES);
}

uint64_t npu_block_cycles(const npu_gemm* c) {
  const uint64_t rows = npu_divide_up((uint64_t)c->m[0] * c->m[1], NPU_BLOCK);
  const uint64_t depth = (uint64_t)c->k[0] * c->k[1] * c->k[2] * npu_divide_up(c->depth, NPU_BLOCK);
  return rows * depth * npu_divide_up(c->columns, NPU_BLOCK) * (c->dtype == NPU_F32 ? FLOAT_BLOCK : 1);
}

static bool is_slow(uint8_t opcode) { return opcode == NPU_OP_DIV || (opcode >= NPU_OP_EXP && opcode <= NPU_OP_GELU); }

uint64_t npu_cycles(const npu_command* command) {
  const uint8_t opcode = command->header.opcode;
  if (opcode == NPU_OP_NOP) return 1;
  if (opcode == NPU_OP_DMA) return dma_cycles(&command->dma);
  if (opcode == NPU_OP_GEMM) return UNIT_START + npu_block_cycles(&command->gemm);
  const uint32_t* n = npu_is_window(opcode) ? command->window.n : command->vector.n;
  uint64_t elements = (uint64_t)n[0] * n[1] * n[2] * n[3];
  if (npu_is_window(opcode)) elements *= (uint64_t)command->window.window[0] * command->window.window[1];
  return UNIT_START + npu_divide_up(elements, is_slow(opcode) ? SLOW_LANES : NPU_LANES);
}
