/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * What measurements of functions ask of the machine that runs them: data to work on, and memory that is in no cache. */
#include "module.h"

#define LINE_BYTES 64

static void flush_line(const char* line) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_clflush(line);
#elif defined(__aarch64__)
  __asm__ __volatile__("dc civac, %0" : : "r"(line) : "memory");
#else
  (void)line; /* no instruction of user programs does it */
#endif
}

static void flush_fence(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_mfence();
#elif defined(__aarch64__)
  __asm__ __volatile__("dsb ish" : : : "memory");
#endif
}

static uint64_t bytes_of(const DLTensor* t) {
  uint64_t count = 1;
  for (int i = 0; i < t->ndim; ++i) count *= (uint64_t)t->shape[i];
  return (count * t->dtype.bits * t->dtype.lanes + 7) / 8;
}

static int flush_tensor(const DLTensor* t) {
  if (t->device.device_type != kDLCPU) return 0;
  const char* data = (const char*)t->data + t->byte_offset;
  const uint64_t size = bytes_of(t);
  for (uint64_t at = 0; at < size; at += LINE_BYTES) flush_line(data + at);
  if (size > 0) flush_line(data + size - 1);
  return 0;
}

/* cache_flush_cpu_non_first_arg(tensors...): weights and results leave the caches; the first tensor, which a layer
 * before has just written, stays. */
static int cache_flush(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  (void)ret, (void)resource;
  for (int i = 1; i < n; ++i) {
    DLTensor* t = NULL;
    if (tw_arg_tensor(args, codes, n, i, "cache_flush_cpu_non_first_arg", &t) != 0 || flush_tensor(t) != 0) return -1;
  }
  flush_fence();
  return 0;
}

/* Marsaglia, "Xorshift RNGs", 2003. */
static uint64_t next_random(uint64_t* state) {
  uint64_t x = *state;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  return *state = x;
}

/* The bits of a value below one as 16-bit float, of its 23 random bits. */
static uint16_t small_half(DLDataType type, uint32_t random) {
  if (type.code == kDLBfloat) return (uint16_t)(0x3e80 | (random & 0x7f));  /* 0.25 to 0.5 */
  return (uint16_t)(0x3400 | (random & 0x3ff));                             /* 0.25 to 0.5 */
}

static void fill(const DLTensor* t, char* data) {
  static atomic_uint_fast64_t fills = 1;
  uint64_t state = 0x9e3779b97f4a7c15u * atomic_fetch_add(&fills, 1);
  const uint64_t size = bytes_of(t);
  const DLDataType type = t->dtype;
  const bool is_float = type.code == kDLFloat, is_bfloat = type.code == kDLBfloat;
  if ((is_float && type.bits == 16) || is_bfloat) {
    for (uint64_t i = 0; i < size / 2; ++i) ((uint16_t*)data)[i] = small_half(type, (uint32_t)next_random(&state));
  } else if (is_float && type.bits == 32) {
    for (uint64_t i = 0; i < size / 4; ++i) ((float*)data)[i] = (float)(next_random(&state) >> 40) * 0x1p-24f;
  } else if (is_float && type.bits == 64) {
    for (uint64_t i = 0; i < size / 8; ++i) ((double*)data)[i] = (double)(next_random(&state) >> 11) * 0x1p-53;
  } else { /* whole numbers from 0 to 15, or 0 and 1 for truth values and the smallest integers */
    const uint64_t item = type.bits < 8 ? 1 : type.bits / 8;
    const uint64_t mask = type.bits < 8 ? 1 : 15;
    memset(data, 0, size);
    for (uint64_t at = 0; at < size; at += item) data[at] = (char)(next_random(&state) & mask);
  }
}

/* tvm.contrib.random.random_fill(tensor): floats from 0 to 1 (16-bit ones from 0.25 to 0.5), integers from 0 to 15. */
static int random_fill(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  (void)ret, (void)resource;
  DLTensor* t = NULL;
  if (tw_arg_tensor(args, codes, n, 0, "tvm.contrib.random.random_fill", &t) != 0) return -1;
  if (t->device.device_type == kDLCPU) {
    fill(t, (char*)t->data + t->byte_offset);
    return 0;
  }
  TwArray* host = tw_array_new(t->shape, t->ndim, t->dtype, (DLDevice){kDLCPU, 0});
  if (host == NULL) return -1;
  fill(&host->tensor, host->tensor.data);
  const int rc = tw_copy(&host->tensor, t);
  tw_array_release(host);
  return rc;
}

TW_GLOBAL_FUNCTIONS({"cache_flush_cpu_non_first_arg", cache_flush}, {"tvm.contrib.random.random_fill", random_fill})
