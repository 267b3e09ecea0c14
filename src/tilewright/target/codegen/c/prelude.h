#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "tvm/runtime/c_runtime_api.h"
#include "tvm/runtime/c_backend_api.h"

#ifdef __GNUC__
#define TW_WEAK __attribute__((weak))
#define TW_RESTRICT __restrict__
#define TW_ALIGNED(p, n) __builtin_assume_aligned(p, n)
/* the check of arguments, which is not copied into its callers; what words its messages takes little room */
#define TW_CHECK static __attribute__((noinline, unused))
#define TW_MESSAGE static __attribute__((cold, noinline, unused))
/* gcc loses sight of arrays that a loop with a constant number of turns fills */
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#else
#define TW_WEAK
#define TW_RESTRICT
#define TW_ALIGNED(p, n) (p)
#define TW_CHECK static inline
#define TW_MESSAGE static inline
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The runtime's functions are called through pointers that the loader of the library fills. */
#ifndef TILEWRIGHT_LINK_RUNTIME
TVM_DLL TW_WEAK int (*__TVMFuncCall)(TVMFunctionHandle, TVMValue*, int*, int, TVMValue*, int*);
TVM_DLL TW_WEAK void (*__TVMAPISetLastError)(const char*);
TVM_DLL TW_WEAK int (*__TVMBackendGetFuncFromEnv)(void*, const char*, TVMFunctionHandle*);
TVM_DLL TW_WEAK void* (*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int);
TVM_DLL TW_WEAK int (*__TVMBackendFreeWorkspace)(int, int, void*);
TVM_DLL TW_WEAK int (*__TVMBackendParallelLaunch)(FTVMParallelLambda, void*, int);
#define TVMFuncCall (*__TVMFuncCall)
#define TVMAPISetLastError (*__TVMAPISetLastError)
#define TVMBackendGetFuncFromEnv (*__TVMBackendGetFuncFromEnv)
#define TVMBackendAllocWorkspace (*__TVMBackendAllocWorkspace)
#define TVMBackendFreeWorkspace (*__TVMBackendFreeWorkspace)
#define TVMBackendParallelLaunch (*__TVMBackendParallelLaunch)
#endif
TVM_DLL TW_WEAK void* __tvm_module_ctx = NULL;

/* What an argument must be. flags: 1 a tensor, 2 any strides, 4 any byte offset. A dimension is a size, -1 for any, or
 * -2-k for symbol k, which is the same wherever it stands. dtype: code, bits and lanes, from the lowest byte up. */
typedef struct {
  const char* name;
  const int64_t* dims;
  int32_t ndim, dtype, device_type, alignment, flags;
} TwArgument;

#define TW_MIN_MAX(T, NAME)                                                  \
  static inline T tw_min_##NAME(T a, T b) { return a > b ? b : a; }          \
  static inline T tw_max_##NAME(T a, T b) { return a < b ? b : a; }
TW_MIN_MAX(int8_t, int8)
TW_MIN_MAX(int16_t, int16)
TW_MIN_MAX(int32_t, int32)
TW_MIN_MAX(int64_t, int64)
TW_MIN_MAX(uint8_t, uint8)
TW_MIN_MAX(uint16_t, uint16)
TW_MIN_MAX(uint32_t, uint32)
TW_MIN_MAX(uint64_t, uint64)

/* NaN where one of them is. */
#define TW_FLOAT_MIN_MAX(T, NAME)                                                  \
  static inline T tw_min_##NAME(T a, T b) { return a <= b || a != a ? a : b; }     \
  static inline T tw_max_##NAME(T a, T b) { return a >= b || a != a ? a : b; }
TW_FLOAT_MIN_MAX(float, float32)
TW_FLOAT_MIN_MAX(double, float64)

#define TW_FLOOR_DIVISION(T, NAME)                                                             \
  static inline T tw_floordiv_##NAME(T a, T b) {                                               \
    return (T)(a / b - ((a % b != 0 && ((a % b < 0) != (b < 0))) ? 1 : 0));                    \
  }                                                                                            \
  static inline T tw_floormod_##NAME(T a, T b) {                                               \
    return (T)(a % b + ((a % b != 0 && ((a % b < 0) != (b < 0))) ? b : 0));                    \
  }
TW_FLOOR_DIVISION(int8_t, int8)
TW_FLOOR_DIVISION(int16_t, int16)
TW_FLOOR_DIVISION(int32_t, int32)
TW_FLOOR_DIVISION(int64_t, int64)

static inline float tw_sigmoid_float32(float x) {
  const float e = expf(-fabsf(x));
  return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}
static inline double tw_sigmoid_float64(double x) {
  const double e = exp(-fabs(x));
  return (x < 0.0 ? e : 1.0) / (1.0 + e);
}
static inline float tw_normal_tail_float32(float x) { return 0.5f * erfcf(x * 0.70710678f); }
static inline double tw_normal_tail_float64(double x) { return 0.5 * erfc(x * 0.70710678118654752); }
static inline float tw_bfloat_to_float(uint16_t x) {
  const uint32_t bits = (uint32_t)x << 16;
  float result;
  memcpy(&result, &bits, sizeof result);
  return result;
}
static inline uint16_t tw_float_to_bfloat(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  if (x != x) return (uint16_t)((bits >> 16) | 0x40u);
  return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
static inline int32_t tw_q_multiply_shift(int32_t x, int32_t y, int32_t q, int32_t s) {
  return (int32_t)(((int64_t)x * y + ((int64_t)1 << (q - s - 1))) >> (q - s));
}
