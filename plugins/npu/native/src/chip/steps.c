/* Licensed under the Apache License, Version 2.0; see LICENSE. */
#include "steps.h"

#include <math.h>
#include <string.h>

/* Reads elements of type T into `to`; the contiguous case apart, which the compiler vectorizes. */
#define FETCH(T)                                                                    \
  do {                                                                              \
    const T* source_ = (const T*)(const void*)from;                                 \
    if (stride == (int64_t)sizeof(T)) {                                             \
      for (uint32_t i = 0; i < count; ++i) to[i] = source_[i];                      \
    } else {                                                                        \
      for (uint32_t i = 0; i < count; ++i) to[i] = source_[(int64_t)i * (stride / (int64_t)sizeof(T))]; \
    }                                                                               \
  } while (0)

void npu_fetch_integer(NpuSource source, const uint8_t* from, int64_t stride, uint32_t count, int32_t* to) {
  if (source.type == NPU_I8) {
    FETCH(int8_t);
  } else if (source.type == NPU_U8) {
    FETCH(uint8_t);
  } else {
    FETCH(int32_t);
  }
  if (!source.dequantize) return;
  for (uint32_t i = 0; i < count; ++i) to[i] = (int32_t)((uint32_t)to[i] - (uint32_t)source.zero);
}

void npu_fetch_float(NpuSource source, const uint8_t* from, int64_t stride, uint32_t count, float* to) {
  if (source.type == NPU_F32) {
    FETCH(float);
    if (!source.dequantize) return;
    for (uint32_t i = 0; i < count; ++i) to[i] = (to[i] - (float)source.zero) * source.scale;
    return;
  }
  int32_t whole[NPU_CHUNK];
  npu_fetch_integer(source, from, stride, count, whole);
  if (source.dequantize) {
    for (uint32_t i = 0; i < count; ++i) to[i] = (float)whole[i] * source.scale;
  } else {
    for (uint32_t i = 0; i < count; ++i) to[i] = (float)whole[i];
  }
}

/* ---- out ---- */
static int32_t integer_bound(float bound) {
  if (!(bound > -2147483648.0f)) return INT32_MIN;
  return bound >= 2147483648.0f ? INT32_MAX : (int32_t)bound;
}

#define DELIVER(T)                                                                        \
  do {                                                                                    \
    T* target_ = (T*)(void*)to;                                                           \
    if (stride == (int64_t)sizeof(T)) {                                                   \
      for (uint32_t i = 0; i < count; ++i) target_[i] = (T)result[i];                     \
    } else {                                                                              \
      for (uint32_t i = 0; i < count; ++i) target_[(int64_t)i * (stride / (int64_t)sizeof(T))] = (T)result[i]; \
    }                                                                                     \
  } while (0)

/* Integers, clamped where that is asked for, and saturated to the type of the memory. */
static void deliver_whole(const NpuSink* sink, int32_t* result, uint32_t count, uint8_t* to, int64_t stride) {
  int32_t low = INT32_MIN, high = INT32_MAX;
  if (sink->type == NPU_I8) low = INT8_MIN, high = INT8_MAX;
  if (sink->type == NPU_U8) low = 0, high = UINT8_MAX;
  if ((sink->flags & NPU_CLAMP) != 0) {
    const int32_t above = integer_bound(sink->low), below = integer_bound(sink->high);
    low = above > low ? above : low;
    high = below < high ? below : high;
  }
  for (uint32_t i = 0; i < count; ++i) result[i] = result[i] < low ? low : result[i];
  for (uint32_t i = 0; i < count; ++i) result[i] = result[i] > high ? high : result[i];
  if (sink->type == NPU_I8) {
    DELIVER(int8_t);
  } else if (sink->type == NPU_U8) {
    DELIVER(uint8_t);
  } else if (sink->type == NPU_I32) {
    DELIVER(int32_t);
  } else {
    DELIVER(float);
  }
}

/* The nearest integer, even where two are as near; beyond 2^30 that; of no number 0. */
static int32_t nearest(float x) {
  const float far = 1073741824.0f;
  const float r = rintf(x);
  if (!(r >= -far)) return r < -far ? -(1 << 30) : 0;
  return r > far ? 1 << 30 : (int32_t)r;
}

void npu_deliver_float(const NpuSink* sink, float* result, uint32_t count, uint8_t* to, int64_t stride) {
  const bool divides = (sink->flags & NPU_QUANTIZE_DIV) != 0, multiplies = (sink->flags & NPU_QUANTIZE_MUL) != 0;
  if (sink->divisor != 1.0f) {
    for (uint32_t i = 0; i < count; ++i) result[i] /= sink->divisor;
  }
  if (divides) {
    for (uint32_t i = 0; i < count; ++i) result[i] /= sink->scale_out;
  } else if (multiplies) {
    for (uint32_t i = 0; i < count; ++i) result[i] *= sink->scale_out;
  } else if ((sink->flags & NPU_CLAMP) != 0) {
    for (uint32_t i = 0; i < count; ++i) result[i] = result[i] < sink->low ? sink->low : result[i];
    for (uint32_t i = 0; i < count; ++i) result[i] = result[i] > sink->high ? sink->high : result[i];
  }
  if (!divides && !multiplies && sink->type == NPU_F32) {
    DELIVER(float);
    return;
  }
  NpuSink rest = *sink;
  if (!divides && !multiplies) rest.flags = 0; /* clamped already */
  const int32_t zero = divides || multiplies ? sink->zero_out : 0;
  int32_t whole[NPU_CHUNK];
  for (uint32_t i = 0; i < count; ++i) whole[i] = (int32_t)((uint32_t)nearest(result[i]) + (uint32_t)zero);
  deliver_whole(&rest, whole, count, to, stride);
}

void npu_deliver_integer(const NpuSink* sink, int32_t* result, uint32_t count, uint8_t* to, int64_t stride) {
  if ((sink->flags & (NPU_QUANTIZE_DIV | NPU_QUANTIZE_MUL)) == 0 && sink->type != NPU_F32) {
    deliver_whole(sink, result, count, to, stride);
    return;
  }
  float wide[NPU_CHUNK];
  for (uint32_t i = 0; i < count; ++i) wide[i] = (float)result[i];
  if ((sink->flags & NPU_DEQUANTIZE_A) != 0) {
    for (uint32_t i = 0; i < count; ++i) wide[i] *= sink->scale;
  }
  npu_deliver_float(sink, wide, count, to, stride);
}
