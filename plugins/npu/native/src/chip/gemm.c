/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The matrix unit. Both types are computed by one loop in float32: sums of up to EXACT products of 8-bit numbers are exact there,
 * and are added as integers. */
#include <stdlib.h>
#include <string.h>

#include "../driver/status.h"
#include "chip.h"

enum {
  ROWS = 4,   /* of A at a time */
  EXACT = 512 /* products of at most 255 * 128 that add up to less than 2^24 */
};

typedef float Block __attribute__((vector_size(NPU_BLOCK * sizeof(float)), aligned(4)));

/* sum[r][j] += a[r][k] * b[k][j], one k after another, each product and sum rounded. */
static inline __attribute__((always_inline)) void multiply(const float* a, size_t row, const float* b, size_t depth, float* sum) {
  Block s0, s1, s2, s3;
  memcpy(&s0, sum, sizeof s0);
  memcpy(&s1, sum + NPU_BLOCK, sizeof s1);
  memcpy(&s2, sum + 2 * NPU_BLOCK, sizeof s2);
  memcpy(&s3, sum + 3 * NPU_BLOCK, sizeof s3);
  for (size_t k = 0; k < depth; ++k) {
    Block y;
    memcpy(&y, b + k * NPU_BLOCK, sizeof y);
    s0 += a[k] * y;
    s1 += a[row + k] * y;
    s2 += a[2 * row + k] * y;
    s3 += a[3 * row + k] * y;
  }
  memcpy(sum, &s0, sizeof s0);
  memcpy(sum + NPU_BLOCK, &s1, sizeof s1);
  memcpy(sum + 2 * NPU_BLOCK, &s2, sizeof s2);
  memcpy(sum + 3 * NPU_BLOCK, &s3, sizeof s3);
}

typedef void (*Multiply)(const float*, size_t, const float*, size_t, float*);

static void multiply_any(const float* a, size_t row, const float* b, size_t depth, float* sum) { multiply(a, row, b, depth, sum); }

#ifdef __x86_64__
/* The same operations, as wide as the host has them. */
__attribute__((target("avx2"))) static void multiply_avx2(const float* a, size_t row, const float* b, size_t depth, float* sum) {
  multiply(a, row, b, depth, sum);
}
__attribute__((target("avx512f"))) static void multiply_avx512(const float* a, size_t row, const float* b, size_t depth, float* sum) {
  multiply(a, row, b, depth, sum);
}
static Multiply choose(void) {
  if (__builtin_cpu_supports("avx512f")) return multiply_avx512;
  return __builtin_cpu_supports("avx2") ? multiply_avx2 : multiply_any;
}
#else
static Multiply choose(void) { return multiply_any; }
#endif

static void widen(float* to, const uint8_t* from, size_t count, bool is_unsigned) {
  if (is_unsigned) {
    for (size_t i = 0; i < count; ++i) to[i] = from[i];
  } else {
    for (size_t i = 0; i < count; ++i) to[i] = (int8_t)from[i];
  }
}

/* A row of A, one k after another, each run filled with zeros to whole blocks. */
static void gather(const npu_gemm* c, const uint8_t* row, float* to) {
  const size_t whole = npu_divide_up(c->depth, NPU_BLOCK) * NPU_BLOCK;
  for (uint32_t k0 = 0; k0 < c->k[0]; ++k0) {
    for (uint32_t k1 = 0; k1 < c->k[1]; ++k1) {
      for (uint32_t k2 = 0; k2 < c->k[2]; ++k2) {
        const uint8_t* run = row + (int64_t)k0 * c->a_k[0] + (int64_t)k1 * c->a_k[1] + (int64_t)k2 * c->a_k[2];
        if (c->dtype == NPU_F32) {
          memcpy(to, run, c->depth * sizeof(float));
        } else {
          widen(to, run, c->depth, (c->header.flags & NPU_A_UNSIGNED) != 0);
        }
        memset(to + c->depth, 0, (whole - c->depth) * sizeof(float));
        to += whole;
      }
    }
  }
}

/* Where the sums of a block of C begin: as 16 elements of C's type. */
static void start(const npu_gemm* c, const uint8_t* sram, const uint8_t* place, uint32_t column, uint32_t width, void* to) {
  memset(to, 0, NPU_BLOCK * 4);
  if ((c->header.flags & NPU_ACCUMULATE) != 0) {
    memcpy(to, place, width * 4);
  } else if ((c->header.flags & NPU_BIAS) != 0) {
    memcpy(to, sram + c->bias + column * 4, width * 4);
  }
}

static void add_exact(uint32_t* sum, const float* part, int count) {
  for (int i = 0; i < count; ++i) sum[i] += (uint32_t)(int32_t)part[i];
}

/* Rows of C, of which there may be fewer than ROWS, times the columns of a block. */
static void block(const npu_gemm* c, uint8_t* sram, uint8_t* const* places, int rows, uint32_t column, const float* a,
                  const float* b, size_t depth, Multiply kernel) {
  union {
    float f[ROWS * NPU_BLOCK];
    uint32_t i[ROWS * NPU_BLOCK];
  } sum = {{0}};
  const uint32_t left = c->columns - column, width = left < NPU_BLOCK ? left : NPU_BLOCK;
  const int64_t offset = (int64_t)(column / NPU_BLOCK) * c->c_n;
  for (int r = 0; r < rows; ++r) start(c, sram, places[r] + offset, column, width, sum.f + r * NPU_BLOCK);
  if (c->dtype == NPU_F32) {
    kernel(a, depth, b, depth, sum.f);
  } else {
    for (size_t k = 0; k < depth; k += EXACT) {
      float part[ROWS * NPU_BLOCK] = {0};
      kernel(a + k, depth, b + k * NPU_BLOCK, depth - k < EXACT ? depth - k : EXACT, part);
      add_exact(sum.i, part, ROWS * NPU_BLOCK);
    }
  }
  for (int r = 0; r < rows; ++r) memcpy(places[r] + offset, sum.f + r * NPU_BLOCK, width * 4);
}

static int grow(NpuScratch* scratch, size_t count) {
  if (scratch->count >= count) return NPU_OK;
  float* data = realloc(scratch->data, count * sizeof *data);
  if (data == NULL) return npu_fail(NPU_ERROR_HOST_MEMORY, "the emulator is out of memory");
  *scratch = (NpuScratch){data, count};
  return NPU_OK;
}

int npu_execute_gemm(const npu_gemm* c, uint8_t* sram, NpuScratch* scratch) {
  const Multiply kernel = choose();
  const size_t depth = (size_t)c->k[0] * c->k[1] * c->k[2] * npu_divide_up(c->depth, NPU_BLOCK) * NPU_BLOCK;
  const size_t panel = depth * NPU_BLOCK, blocks = npu_divide_up(c->columns, NPU_BLOCK);
  const int status = grow(scratch, ROWS * depth + (c->dtype == NPU_F32 ? 0 : blocks * panel));
  if (status != NPU_OK) return status;
  float *a = scratch->data, *wide = a + ROWS * depth;
  if (c->dtype != NPU_F32) {
    for (size_t n = 0; n < blocks; ++n) widen(wide + n * panel, sram + c->b + (int64_t)n * c->b_n, panel, false);
  }
  memset(a, 0, ROWS * depth * sizeof *a);
  const uint64_t rows = (uint64_t)c->m[0] * c->m[1];
  for (uint64_t first = 0; first < rows; first += ROWS) {
    uint8_t* places[ROWS];
    const int count = rows - first < ROWS ? (int)(rows - first) : ROWS;
    for (int r = 0; r < count; ++r) {
      const int64_t m0 = (int64_t)((first + (uint64_t)r) / c->m[1]), m1 = (int64_t)((first + (uint64_t)r) % c->m[1]);
      gather(c, sram + c->a + m0 * c->a_m[0] + m1 * c->a_m[1], a + (size_t)r * depth);
      places[r] = sram + c->c + m0 * c->c_m[0] + m1 * c->c_m[1];
    }
    for (size_t n = 0; n < blocks; ++n) {
      const float* b = c->dtype == NPU_F32 ? (const float*)(const void*)(sram + c->b + (int64_t)n * c->b_n) : wide + n * panel;
      block(c, sram, places, count, (uint32_t)(n * NPU_BLOCK), a, b, depth, kernel);
    }
  }
  return NPU_OK;
}
