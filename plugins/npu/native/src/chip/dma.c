/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The DMA engines: strided blocks, with padding on the way in. */
#include <string.h>

#include "chip.h"

/* Copies count elements. */
static void copy_run(uint8_t* to, int32_t to_stride, const uint8_t* from, int32_t from_stride, uint32_t count, uint8_t element) {
  if (to_stride == element && from_stride == element) {
    memmove(to, from, (size_t)count * element);
    return;
  }
  for (uint32_t i = 0; i < count; ++i) {
    memmove(to + (int64_t)i * to_stride, from + (int64_t)i * from_stride, element);
  }
}

static void fill_run(uint8_t* to, int32_t stride, uint32_t count, uint32_t pad, uint8_t element) {
  for (uint32_t i = 0; i < count; ++i) memcpy(to + (int64_t)i * stride, &pad, element); /* the low bytes: little-endian */
}

/* A row of the near block: padding, elements, padding; all of it padding where the row is none of the far block's. */
static void load_row(const npu_dma* c, uint8_t* near, const uint8_t* far) {
  const int32_t stride = c->near_stride[3];
  const uint32_t whole = c->before[3] + c->n[3] + c->after[3];
  if (far == NULL) {
    fill_run(near, stride, whole, c->pad, c->element);
    return;
  }
  fill_run(near, stride, c->before[3], c->pad, c->element);
  uint8_t* middle = near + (int64_t)c->before[3] * stride;
  copy_run(middle, stride, far, c->far_stride[3], c->n[3], c->element);
  fill_run(middle + (int64_t)c->n[3] * stride, stride, c->after[3], c->pad, c->element);
}

void npu_execute_dma(const npu_dma* c, const NpuSpace* space) {
  uint8_t* near = space->sram.data + c->near_address;
  uint8_t* far = space->regions[c->region].data + c->far_offset;
  const bool loads = c->header.engine == NPU_LOAD;
  uint32_t whole[3], i[3];
  for (int d = 0; d < 3; ++d) whole[d] = c->before[d] + c->n[d] + c->after[d];
  for (i[0] = 0; i[0] < whole[0]; ++i[0]) {
    for (i[1] = 0; i[1] < whole[1]; ++i[1]) {
      for (i[2] = 0; i[2] < whole[2]; ++i[2]) {
        int64_t near_at = 0, far_at = 0;
        bool inside = c->n[3] > 0;
        for (int d = 0; d < 3; ++d) {
          const int64_t there = (int64_t)i[d] - c->before[d];
          inside = inside && there >= 0 && there < c->n[d];
          near_at += (int64_t)i[d] * c->near_stride[d];
          far_at += there * c->far_stride[d];
        }
        if (loads) {
          load_row(c, near + near_at, inside ? far + far_at : NULL);
        } else {
          copy_run(far + far_at, c->far_stride[3], near + near_at, c->near_stride[3], c->n[3], c->element);
        }
      }
    }
  }
}
