/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The vector unit, element by element and row by row. */
#include <math.h>
#include <string.h>

#include "steps.h"

#define EACH(expression)                                              \
  for (uint32_t i = 0; i < count; ++i) {                              \
    const float p = x[i], q = y[i];                                   \
    (void)q;                                                          \
    x[i] = (expression);                                              \
  }                                                                   \
  break

/* x = op(x, y) in float32 */
static void compute_float(uint8_t opcode, float* x, const float* y, uint32_t count) {
  switch (opcode) {
    case NPU_OP_ADD: EACH(p + q);
    case NPU_OP_SUB: EACH(p - q);
    case NPU_OP_MUL: EACH(p * q);
    case NPU_OP_DIV: EACH(p / q);
    case NPU_OP_MAX: EACH(p > q ? p : q);
    case NPU_OP_MIN: EACH(p < q ? p : q);
    case NPU_OP_EXP: EACH(expf(p));
    case NPU_OP_LOG: EACH(logf(p));
    case NPU_OP_SQRT: EACH(sqrtf(p));
    case NPU_OP_RSQRT: EACH(1.0f / sqrtf(p));
    case NPU_OP_RECIPROCAL: EACH(1.0f / p);
    case NPU_OP_TANH: EACH(tanhf(p));
    case NPU_OP_SIGMOID: EACH(1.0f / (1.0f + expf(-p)));
    case NPU_OP_ERF: EACH(erff(p));
    case NPU_OP_GELU: EACH(p * 0.5f * (1.0f + erff(p * 0.70710678f)));
    default: break; /* copy */
  }
}

static uint32_t u(int32_t x) { return (uint32_t)x; }

/* x = op(x, y) in int32, sums and products of which wrap around */
static void compute_integer(uint8_t opcode, int32_t* x, const int32_t* y, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    switch (opcode) {
      case NPU_OP_ADD: x[i] = (int32_t)(u(x[i]) + u(y[i])); break;
      case NPU_OP_SUB: x[i] = (int32_t)(u(x[i]) - u(y[i])); break;
      case NPU_OP_MUL: x[i] = (int32_t)(u(x[i]) * u(y[i])); break;
      case NPU_OP_MAX: x[i] = x[i] > y[i] ? x[i] : y[i]; break;
      case NPU_OP_MIN: x[i] = x[i] < y[i] ? x[i] : y[i]; break;
      default: break; /* copy */
    }
  }
}

/* ---- rows of a command ---- */
/* A command whose loops that follow one another in all operands are one. */
typedef struct {
  const npu_vector* command;
  uint32_t n[4];
  int64_t dst[4], a[4], b[4];
  bool integer, uses_b, reads_b;
  NpuSource source_a, source_b;
  NpuSink sink;
} Job;

static Job prepare(const npu_vector* c) {
  const uint16_t flags = c->header.flags;
  Job job = {.command = c};
  job.integer = (flags & NPU_INTEGER) != 0;
  job.uses_b = npu_is_binary(c->header.opcode);
  job.reads_b = job.uses_b && (flags & NPU_SCALAR_B) == 0;
  job.source_a = (NpuSource){c->a_type, (flags & NPU_DEQUANTIZE_A) != 0, c->scale_a, c->zero_a};
  job.source_b = (NpuSource){c->b_type, (flags & NPU_DEQUANTIZE_B) != 0, c->scale_b, c->zero_b};
  job.sink = (NpuSink){flags, c->dst_type, c->low, c->high, c->scale_a, 1.0f, c->scale_out, c->zero_out};
  for (int d = 0; d < 4; ++d) {
    job.n[d] = c->n[d];
    job.dst[d] = c->dst_stride[d], job.a[d] = c->a_stride[d], job.b[d] = job.reads_b ? c->b_stride[d] : 0;
  }
  return job;
}

/* Makes one loop of the last two while all operands run through both without a step; the first loops become 1. */
static void flatten(Job* job) {
  for (int times = 0; times < 3; ++times) {
    const int64_t n = job->n[3];
    if (job->n[2] != 1 && (job->dst[2] != n * job->dst[3] || job->a[2] != n * job->a[3] || job->b[2] != n * job->b[3])) return;
    job->n[3] *= job->n[2];
    for (int d = 2; d > 0; --d) {
      job->n[d] = job->n[d - 1];
      job->dst[d] = job->dst[d - 1], job->a[d] = job->a[d - 1], job->b[d] = job->b[d - 1];
    }
    job->n[0] = 1;
  }
}

static void elementwise_row(const Job* job, uint8_t* dst, const uint8_t* a, const uint8_t* b) {
  for (uint32_t done = 0; done < job->n[3]; done += NPU_CHUNK) {
    const uint32_t left = job->n[3] - done, count = left < NPU_CHUNK ? left : NPU_CHUNK;
    const uint8_t *from_a = a + done * job->a[3], *from_b = b + done * job->b[3];
    uint8_t* to = dst + done * job->dst[3];
    if (job->integer) {
      int32_t x[NPU_CHUNK], y[NPU_CHUNK];
      npu_fetch_integer(job->source_a, from_a, job->a[3], count, x);
      if (job->reads_b) {
        npu_fetch_integer(job->source_b, from_b, job->b[3], count, y);
      } else {
        for (uint32_t i = 0; i < count; ++i) y[i] = job->command->zero_b;
      }
      compute_integer(job->command->header.opcode, x, y, count);
      npu_deliver_integer(&job->sink, x, count, to, job->dst[3]);
    } else {
      float x[NPU_CHUNK], y[NPU_CHUNK];
      npu_fetch_float(job->source_a, from_a, job->a[3], count, x);
      if (job->reads_b) {
        npu_fetch_float(job->source_b, from_b, job->b[3], count, y);
      } else {
        for (uint32_t i = 0; i < count; ++i) y[i] = job->command->scale_b;
      }
      compute_float(job->command->header.opcode, x, y, count);
      npu_deliver_float(&job->sink, x, count, to, job->dst[3]);
    }
  }
}

/* ---- reductions: lane l takes elements l, l + 16, ...; then the lanes, one after another ---- */
enum { REDUCE_LANES = 16 };

static void reduce_row_integer(const Job* job, uint8_t* dst, const uint8_t* a) {
  const bool sums = job->command->header.opcode == NPU_OP_ROW_SUM;
  int32_t x[NPU_CHUNK], result = sums ? 0 : INT32_MIN;
  for (uint32_t done = 0; done < job->n[3]; done += NPU_CHUNK) {
    const uint32_t left = job->n[3] - done, count = left < NPU_CHUNK ? left : NPU_CHUNK;
    npu_fetch_integer(job->source_a, a + done * job->a[3], job->a[3], count, x);
    for (uint32_t i = 0; i < count; ++i) {
      result = sums ? (int32_t)(u(result) + u(x[i])) : x[i] > result ? x[i] : result;
    }
  }
  npu_deliver_integer(&job->sink, &result, 1, dst, 4);
}

static void reduce_row_float(const Job* job, uint8_t* dst, const uint8_t* a) {
  const bool sums = job->command->header.opcode == NPU_OP_ROW_SUM;
  float lanes[REDUCE_LANES], x[NPU_CHUNK];
  for (int l = 0; l < REDUCE_LANES; ++l) lanes[l] = sums ? 0.0f : -INFINITY;
  for (uint32_t done = 0; done < job->n[3]; done += NPU_CHUNK) {
    const uint32_t left = job->n[3] - done, count = left < NPU_CHUNK ? left : NPU_CHUNK;
    npu_fetch_float(job->source_a, a + done * job->a[3], job->a[3], count, x);
    for (uint32_t i = 0; i < count; ++i) {
      float* lane = &lanes[i % REDUCE_LANES];
      *lane = sums ? *lane + x[i] : *lane > x[i] ? *lane : x[i];
    }
  }
  float result = lanes[0];
  for (int l = 1; l < REDUCE_LANES; ++l) result = sums ? result + lanes[l] : result > lanes[l] ? result : lanes[l];
  npu_deliver_float(&job->sink, &result, 1, dst, 4);
}

void npu_execute_vector(const npu_vector* c, uint8_t* sram) {
  Job job = prepare(c);
  const bool rows = npu_is_rows(c->header.opcode);
  if (!rows) flatten(&job);
  for (uint32_t i = 0; i < job.n[0]; ++i) {
    for (uint32_t j = 0; j < job.n[1]; ++j) {
      for (uint32_t k = 0; k < job.n[2]; ++k) {
        uint8_t* dst = sram + c->dst + i * job.dst[0] + j * job.dst[1] + k * job.dst[2];
        const uint8_t* a = sram + c->a + i * job.a[0] + j * job.a[1] + k * job.a[2];
        if (!rows) {
          elementwise_row(&job, dst, a, job.reads_b ? sram + c->b + i * job.b[0] + j * job.b[1] + k * job.b[2] : sram);
        } else if (job.integer) {
          reduce_row_integer(&job, dst, a);
        } else {
          reduce_row_float(&job, dst, a);
        }
      }
    }
  }
}
