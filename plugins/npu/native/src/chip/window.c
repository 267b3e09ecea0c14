/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The vector unit over windows: pools and depthwise convolutions. */
#include <string.h>

#include "steps.h"

typedef struct {
  const npu_window* command;
  uint8_t* sram;
  NpuSource a, b;
  NpuSink sink;
  int64_t a_bytes, b_bytes;
  int64_t weight_stride; /* between taps; 0 without weights */
} Job;

/* Where a tap's elements and weights begin, for a chunk of an output row. */
typedef struct {
  const uint8_t *x, *weight;
} Tap;

static Tap tap_at(const Job* job, const uint8_t* x, const uint8_t* weights, uint32_t u, uint32_t v) {
  const npu_window* c = job->command;
  const int64_t number = (int64_t)u * c->window[1] + v;
  return (Tap){x + (int64_t)u * c->window_stride[0] + (int64_t)v * c->window_stride[1], weights + number * job->weight_stride};
}

/* sum (+)= the tap in float32; the maximum starts from the first one */
static void take_float(const Job* job, Tap tap, bool first, uint32_t count, float* sum) {
  float x[NPU_CHUNK], w[NPU_CHUNK];
  npu_fetch_float(job->a, tap.x, job->a_bytes, count, x);
  if (job->command->header.opcode == NPU_OP_POOL_MAX) {
    for (uint32_t i = 0; i < count; ++i) sum[i] = !first && sum[i] > x[i] ? sum[i] : x[i];
  } else if (job->command->header.opcode == NPU_OP_POOL_SUM) {
    for (uint32_t i = 0; i < count; ++i) sum[i] += x[i];
  } else {
    npu_fetch_float(job->b, tap.weight, job->b_bytes, count, w);
    for (uint32_t i = 0; i < count; ++i) sum[i] += x[i] * w[i];
  }
}

static void take_integer(const Job* job, Tap tap, bool first, uint32_t count, int32_t* sum) {
  int32_t x[NPU_CHUNK], w[NPU_CHUNK];
  npu_fetch_integer(job->a, tap.x, job->a_bytes, count, x);
  if (job->command->header.opcode == NPU_OP_POOL_MAX) {
    for (uint32_t i = 0; i < count; ++i) sum[i] = !first && sum[i] > x[i] ? sum[i] : x[i];
  } else if (job->command->header.opcode == NPU_OP_POOL_SUM) {
    for (uint32_t i = 0; i < count; ++i) sum[i] = (int32_t)((uint32_t)sum[i] + (uint32_t)x[i]);
  } else {
    npu_fetch_integer(job->b, tap.weight, job->b_bytes, count, w);
    for (uint32_t i = 0; i < count; ++i) sum[i] = (int32_t)((uint32_t)sum[i] + (uint32_t)x[i] * (uint32_t)w[i]);
  }
}

/* Elements done .. done + count of an output row. */
static void chunk(const Job* job, uint32_t p, uint32_t done, uint32_t count, const uint8_t* a, uint8_t* dst) {
  const npu_window* c = job->command;
  union {
    float f[NPU_CHUNK];
    int32_t i[NPU_CHUNK];
  } sum;
  memset(&sum, 0, sizeof sum);
  const bool depthwise = c->header.opcode == NPU_OP_DEPTHWISE, integer = (c->header.flags & NPU_INTEGER) != 0;
  if (depthwise && (c->header.flags & NPU_BIAS) != 0) {
    memcpy(&sum, job->sram + c->c + ((size_t)p * c->n[3] + done) * 4, count * 4);
  }
  const uint8_t* x = a + done * job->a_bytes;
  const uint8_t* weights = depthwise ? job->sram + c->b + (int64_t)p * c->b_stride[0] + done * job->b_bytes : job->sram;
  for (uint32_t u = 0; u < c->window[0]; ++u) {
    for (uint32_t v = 0; v < c->window[1]; ++v) {
      const Tap tap = tap_at(job, x, weights, u, v);
      if (integer) {
        take_integer(job, tap, u + v == 0, count, sum.i);
      } else {
        take_float(job, tap, u + v == 0, count, sum.f);
      }
    }
  }
  const int64_t bytes = npu_type_bytes(c->dst_type);
  if (integer) {
    npu_deliver_integer(&job->sink, sum.i, count, dst + done * bytes, bytes);
  } else {
    npu_deliver_float(&job->sink, sum.f, count, dst + done * bytes, bytes);
  }
}

void npu_execute_window(const npu_window* c, uint8_t* sram) {
  const uint16_t flags = c->header.flags;
  Job job = {.command = c, .sram = sram};
  job.a = (NpuSource){c->a_type, (flags & NPU_DEQUANTIZE_A) != 0, c->scale_a, c->zero_a};
  job.b = (NpuSource){c->b_type, (flags & NPU_DEQUANTIZE_B) != 0, 1.0f, c->zero_b};
  job.a_bytes = npu_type_bytes(c->a_type), job.b_bytes = npu_type_bytes(c->b_type);
  if (c->header.opcode == NPU_OP_DEPTHWISE) job.weight_stride = c->b_stride[1];
  const float divisor = c->header.opcode == NPU_OP_POOL_SUM ? c->divisor : 1.0f;
  job.sink = (NpuSink){flags, c->dst_type, c->low, c->high, c->scale_a, divisor, c->scale_out, c->zero_out};
  for (uint32_t p = 0; p < c->n[0]; ++p) {
    for (uint32_t q = 0; q < c->n[1]; ++q) {
      for (uint32_t r = 0; r < c->n[2]; ++r) {
        const uint8_t* a = sram + c->a + (int64_t)p * c->a_stride[0] + (int64_t)q * c->a_stride[1] + (int64_t)r * c->a_stride[2];
        uint8_t* dst = sram + c->dst + (int64_t)p * c->dst_stride[0] + (int64_t)q * c->dst_stride[1] + (int64_t)r * c->dst_stride[2];
        for (uint32_t done = 0; done < c->n[3]; done += NPU_CHUNK) {
          const uint32_t left = c->n[3] - done;
          chunk(&job, p, done, left < NPU_CHUNK ? left : NPU_CHUNK, a, dst);
        }
      }
    }
  }
}
