/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * What the vector unit's commands have in common: operands come in, results are scaled, clamped, quantized and go out. */
#ifndef NPU_STEPS_H_
#define NPU_STEPS_H_

#include "chip.h"

enum { NPU_CHUNK = 256 }; /* elements at a time; whole rows of lanes */

/* An operand's type and the step that may follow: x = (a - zero) * scale. */
typedef struct {
  uint8_t type;
  bool dequantize;
  float scale;
  int32_t zero;
} NpuSource;

/* The steps from a result to memory. */
typedef struct {
  uint16_t flags;
  uint8_t type;
  float low, high;
  float scale;   /* of an integer result, on its way to float32 */
  float divisor; /* of a float32 result, before all else */
  float scale_out;
  int32_t zero_out;
} NpuSink;

/* count elements, `stride` bytes apart, as float32; integers as they are, less the zero point. */
void npu_fetch_float(NpuSource source, const uint8_t* from, int64_t stride, uint32_t count, float* to);
void npu_fetch_integer(NpuSource source, const uint8_t* from, int64_t stride, uint32_t count, int32_t* to);
/* Both change the results on their way. */
void npu_deliver_float(const NpuSink* sink, float* result, uint32_t count, uint8_t* to, int64_t stride);
void npu_deliver_integer(const NpuSink* sink, int32_t* result, uint32_t count, uint8_t* to, int64_t stride);

#endif /* NPU_STEPS_H_ */
