/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Whether a command can be executed at all. */
#include <inttypes.h>
#include <stdio.h>

#include "../driver/status.h"
#include "chip.h"

static const char* const engine_names[] = {"LOAD", "STORE", "MATRIX", "VECTOR"};
enum { MAX_EXTENT = 1 << 26 }; /* of a loop, and of all loops of a command over elements */

/* ---- the bytes that loops reach ---- */
/* From low up to high, without it. */
typedef struct {
  int64_t low, high;
} Extent;

static Extent at(uint32_t address, uint32_t bytes) { return (Extent){address, (int64_t)address + bytes}; }

static Extent loop(Extent e, uint64_t count, int64_t stride) {
  const int64_t reach = (int64_t)(count - 1) * stride;
  if (reach < 0) {
    e.low += reach;
  } else {
    e.high += reach;
  }
  return e;
}

static Extent loops(Extent e, const uint32_t* count, const int32_t* stride, int rank) {
  for (int d = 0; d < rank; ++d) e = loop(e, count[d], stride[d]);
  return e;
}

static int within(const char* what, Extent e, const char* memory, uint64_t bytes) {
  if (e.low >= 0 && (uint64_t)e.high <= bytes) return NPU_OK;
  return npu_fail(NPU_ERROR_PROGRAM, "%s is at bytes %" PRId64 " to %" PRId64 " of %s, which has %" PRIu64, what, e.low, e.high,
                  memory, bytes);
}

static int in_sram(const char* what, Extent e, const NpuSpace* space) {
  return within(what, e, "the SRAM that the program asked for", space->sram.bytes);
}

/* ---- fields ---- */
static int counts(const char* what, const uint32_t* n, int rank, uint64_t limit) {
  uint64_t product = 1;
  for (int d = 0; d < rank; ++d) {
    if (n[d] == 0) return npu_fail(NPU_ERROR_PROGRAM, "%s[%d] is 0", what, d);
    product *= n[d];
    if (n[d] > MAX_EXTENT || product > limit) return npu_fail(NPU_ERROR_PROGRAM, "the loops over %s are too long", what);
  }
  return NPU_OK;
}

static int aligned(const char* what, uint32_t address, const int32_t* stride, int rank, uint32_t bytes) {
  bool ok = address % bytes == 0;
  for (int d = 0; d < rank; ++d) ok = ok && stride[d] % (int32_t)bytes == 0;
  return ok ? NPU_OK : npu_fail(NPU_ERROR_PROGRAM, "address or strides of %s are no multiples of %u bytes", what, bytes);
}

static int type_known(const char* what, uint8_t type) {
  return type < NPU_DTYPES ? NPU_OK : npu_fail(NPU_ERROR_PROGRAM, "%s has the unknown type %u", what, type);
}

#define TRY(call)                  \
  do {                             \
    const int status_ = (call);    \
    if (status_ != 0) return status_; \
  } while (0)

/* An operand of the SRAM: its type, alignment and place. */
static int operand(const char* what, uint8_t type, uint32_t address, const uint32_t* n, const int32_t* stride, int rank,
                   Extent element, const NpuSpace* space) {
  TRY(aligned(what, address, stride, rank, npu_type_bytes(type)));
  return in_sram(what, loops(element, n, stride, rank), space);
}

static int check_dma(const npu_dma* c, const NpuSpace* space) {
  const bool loads = c->header.engine == NPU_LOAD;
  if (c->region >= space->region_count) {
    return npu_fail(NPU_ERROR_PROGRAM, "it names region %u, of %u", c->region, space->region_count);
  }
  if (c->element != 1 && c->element != 2 && c->element != 4) {
    return npu_fail(NPU_ERROR_PROGRAM, "an element of %u bytes", c->element);
  }
  uint32_t padded[4];
  bool empty = false;
  for (int d = 0; d < 4; ++d) {
    if (!loads && (c->before[d] != 0 || c->after[d] != 0)) return npu_fail(NPU_ERROR_PROGRAM, "a store with padding");
    if (c->n[d] > MAX_EXTENT) return npu_fail(NPU_ERROR_PROGRAM, "the loops over n are too long");
    padded[d] = c->n[d] + c->before[d] + c->after[d];
    empty = empty || c->n[d] == 0;
  }
  TRY(counts("n with padding", padded, 4, MAX_EXTENT));
  TRY(aligned("the near side", c->near_address, c->near_stride, 4, c->element));
  TRY(in_sram("the near side", loops(at(c->near_address, c->element), padded, c->near_stride, 4), space));
  if (empty) return NPU_OK;
  char memory[32];
  snprintf(memory, sizeof memory, "region %u", c->region);
  const Extent far = loops(at(c->far_offset, c->element), c->n, c->far_stride, 4);
  return within("the far side", far, memory, space->regions[c->region].bytes);
}

static int check_gemm(const npu_gemm* c, const NpuSpace* space) {
  if (c->dtype != NPU_I8 && c->dtype != NPU_F32) return npu_fail(NPU_ERROR_PROGRAM, "a product of type %u", c->dtype);
  const uint32_t bytes = npu_type_bytes(c->dtype), one[2] = {c->depth, c->columns};
  TRY(counts("m", c->m, 2, MAX_EXTENT));
  TRY(counts("k", c->k, 3, MAX_EXTENT));
  TRY(counts("depth and columns", one, 2, MAX_EXTENT));
  const uint64_t depth_blocks = npu_divide_up(c->depth, NPU_BLOCK), column_blocks = npu_divide_up(c->columns, NPU_BLOCK);
  const uint64_t blocks = (uint64_t)c->k[0] * c->k[1] * c->k[2] * depth_blocks;
  if (blocks > MAX_EXTENT / NPU_BLOCK) return npu_fail(NPU_ERROR_PROGRAM, "the loops over k and depth are too long");
  TRY(operand("A", c->dtype, c->a, c->m, c->a_m, 2, loops(at(c->a, c->depth * bytes), c->k, c->a_k, 3), space));
  TRY(aligned("A", 0, c->a_k, 3, bytes));
  const Extent panel = {c->b, (int64_t)c->b + (int64_t)(blocks * NPU_BLOCK * NPU_BLOCK * bytes)};
  TRY(aligned("B", c->b, &c->b_n, 1, bytes));
  TRY(in_sram("B", loop(panel, column_blocks, c->b_n), space));
  TRY(aligned("C", c->c, &c->c_n, 1, 4));
  const uint32_t tail = c->columns - (uint32_t)(column_blocks - 1) * NPU_BLOCK;
  Extent last = at(c->c, tail * 4); /* the last block may be narrower */
  last.low += (int64_t)(column_blocks - 1) * c->c_n, last.high += (int64_t)(column_blocks - 1) * c->c_n;
  TRY(operand("C", NPU_F32, c->c, c->m, c->c_m, 2, last, space));
  if (column_blocks > 1) {
    TRY(operand("C", NPU_F32, c->c, c->m, c->c_m, 2, loop(at(c->c, NPU_BLOCK * 4), column_blocks - 1, c->c_n), space));
  }
  if ((c->header.flags & NPU_BIAS) == 0) return NPU_OK;
  TRY(aligned("bias", c->bias, NULL, 0, 4));
  return in_sram("bias", at(c->bias, c->columns * 4), space);
}

static int check_steps(const npu_header* h, uint8_t a_type, uint8_t b_type, bool uses_b) {
  const bool integer = (h->flags & NPU_INTEGER) != 0;
  if ((h->flags & NPU_QUANTIZE_DIV) != 0 && (h->flags & NPU_QUANTIZE_MUL) != 0) {
    return npu_fail(NPU_ERROR_PROGRAM, "it quantizes by a division and a multiplication");
  }
  if (integer && (a_type == NPU_F32 || (uses_b && b_type == NPU_F32))) {
    return npu_fail(NPU_ERROR_PROGRAM, "an integer command with an operand in float32");
  }
  if (integer && (h->opcode == NPU_OP_DIV || (h->opcode >= NPU_OP_EXP && h->opcode <= NPU_OP_GELU))) {
    return npu_fail(NPU_ERROR_PROGRAM, "opcode %u computes in float32 alone", h->opcode);
  }
  return NPU_OK;
}

static int check_vector(const npu_vector* c, const NpuSpace* space) {
  const bool uses_b = npu_is_binary(c->header.opcode) && (c->header.flags & NPU_SCALAR_B) == 0;
  TRY(type_known("dst", c->dst_type));
  TRY(type_known("a", c->a_type));
  TRY(type_known("b", c->b_type));
  TRY(check_steps(&c->header, c->a_type, c->b_type, uses_b));
  TRY(counts("n", c->n, 4, MAX_EXTENT));
  const int rank = npu_is_rows(c->header.opcode) ? 3 : 4;
  const Extent dst = at(c->dst, npu_type_bytes(c->dst_type));
  TRY(operand("dst", c->dst_type, c->dst, c->n, c->dst_stride, rank, dst, space));
  TRY(operand("a", c->a_type, c->a, c->n, c->a_stride, 4, at(c->a, npu_type_bytes(c->a_type)), space));
  if (!uses_b) return NPU_OK;
  return operand("b", c->b_type, c->b, c->n, c->b_stride, 4, at(c->b, npu_type_bytes(c->b_type)), space);
}

static int check_window(const npu_window* c, const NpuSpace* space) {
  const bool depthwise = c->header.opcode == NPU_OP_DEPTHWISE;
  const bool in_float = (c->header.flags & (NPU_QUANTIZE_DIV | NPU_QUANTIZE_MUL)) != 0 || c->dst_type == NPU_F32 ||
                        (c->header.flags & NPU_INTEGER) == 0;
  const uint32_t window[2] = {c->window[0], c->window[1]}, taps[2] = {c->n[0], window[0] * window[1]};
  TRY(type_known("dst", c->dst_type));
  TRY(type_known("a", c->a_type));
  TRY(type_known("b", c->b_type));
  TRY(check_steps(&c->header, c->a_type, c->b_type, depthwise));
  TRY(counts("n", c->n, 4, MAX_EXTENT));
  TRY(counts("window", window, 2, MAX_EXTENT));
  if ((uint64_t)c->n[0] * c->n[1] * c->n[2] * c->n[3] * taps[1] > (1u << 30)) {
    return npu_fail(NPU_ERROR_PROGRAM, "the loops over n and window are too long");
  }
  const Extent a = loops(at(c->a, c->n[3] * npu_type_bytes(c->a_type)), window, c->window_stride, 2);
  const Extent dst = at(c->dst, c->n[3] * npu_type_bytes(c->dst_type));
  TRY(aligned("the window", 0, c->window_stride, 2, npu_type_bytes(c->a_type)));
  TRY(operand("a", c->a_type, c->a, c->n, c->a_stride, 3, a, space));
  TRY(operand("dst", c->dst_type, c->dst, c->n, c->dst_stride, 3, dst, space));
  if (c->header.opcode == NPU_OP_POOL_SUM && !(c->divisor == 1.0f || (in_float && c->divisor != 0.0f))) {
    return npu_fail(NPU_ERROR_PROGRAM, "the divisor is %g; it must not be 0, and 1 where the result stays an integer",
                    (double)c->divisor);
  }
  if (!depthwise) return NPU_OK;
  const Extent weight = at(c->b, c->n[3] * npu_type_bytes(c->b_type));
  TRY(operand("the weights", c->b_type, c->b, taps, c->b_stride, 2, weight, space));
  if ((c->header.flags & NPU_BIAS) == 0) return NPU_OK;
  TRY(aligned("bias", c->c, NULL, 0, 4));
  return in_sram("bias", at(c->c, c->n[0] * c->n[3] * 4), space);
}

static bool runs_on(uint8_t opcode, uint8_t engine) {
  if (opcode == NPU_OP_NOP) return true;
  if (opcode == NPU_OP_DMA) return engine == NPU_LOAD || engine == NPU_STORE;
  if (opcode == NPU_OP_GEMM) return engine == NPU_MATRIX;
  const bool known = opcode == NPU_OP_COPY || npu_is_binary(opcode) || (opcode >= NPU_OP_EXP && opcode <= NPU_OP_GELU) ||
                     npu_is_rows(opcode) || npu_is_window(opcode);
  return known && engine == NPU_VECTOR;
}

int npu_check(const npu_command* command, const NpuSpace* space) {
  const npu_header* h = &command->header;
  if (h->engine >= NPU_ENGINES) return npu_fail(NPU_ERROR_PROGRAM, "it is for engine %u, of %u", h->engine, NPU_ENGINES);
  if (!runs_on(h->opcode, h->engine)) {
    return npu_fail(NPU_ERROR_PROGRAM, "the engine %s has no opcode %u", engine_names[h->engine], h->opcode);
  }
  if (h->wait[h->engine] != 0 || h->push[h->engine] != 0) {
    return npu_fail(NPU_ERROR_PROGRAM, "the engine %s would wait for itself", engine_names[h->engine]);
  }
  if (h->opcode == NPU_OP_NOP) return NPU_OK;
  if (h->opcode == NPU_OP_DMA) return check_dma(&command->dma, space);
  if (h->opcode == NPU_OP_GEMM) return check_gemm(&command->gemm, space);
  return npu_is_window(h->opcode) ? check_window(&command->window, space) : check_vector(&command->vector, space);
}
