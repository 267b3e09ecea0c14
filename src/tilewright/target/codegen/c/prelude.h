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
/* gcc loses sight of arrays that a loop with a constant number of turns fills */
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#else
#define TW_WEAK
#define TW_RESTRICT
#define TW_ALIGNED(p, n) (p)
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
 * -2-k for symbol k, which is the same wherever it stands. */
typedef struct {
  const char* name;
  const char* dtype_name;
  const int64_t* dims;
  int32_t ndim;
  DLDataType dtype;
  int32_t device_type, alignment, flags;
} TwArgument;

static inline size_t tw_sizes(char* out, size_t room, const int64_t* sizes, int ndim, const int64_t* symbols) {
  size_t n = (size_t)snprintf(out, room, "(");
  for (int i = 0; i < ndim && n + 32 < room; ++i) {
    int64_t size = sizes[i];
    if (symbols != NULL && size < 0) size = size < -1 ? symbols[-2 - size] : -1;
    n += (size_t)(symbols != NULL && size < 0 ? snprintf(out + n, room - n, "?")
                                              : snprintf(out + n, room - n, "%lld", (long long)size));
    if (i + 1 < ndim) n += (size_t)snprintf(out + n, room - n, ", ");
  }
  return n + (size_t)snprintf(out + n, room - n, ndim == 1 ? ",)" : ")");
}

static inline int32_t tw_refuse(const char* function, const TwArgument* a, const char* expected, const char* found) {
  char text[1024];
  snprintf(text, sizeof text, "%s: argument %s: expected %s, found %s", function, a->name, expected, found);
  TVMAPISetLastError(text);
  return -1;
}

static inline const char* tw_dtype_name(DLDataType t, char* out, size_t room) {
  static const char* const kinds[] = {"int", "uint", "float", "handle", "bfloat"};
  char lanes[16] = "";
  if (t.lanes > 1) snprintf(lanes, sizeof lanes, "x%u", (unsigned)t.lanes);
  if (t.code == 1 && t.bits == 1) snprintf(out, room, "bool%s", lanes);
  else snprintf(out, room, "%s%u%s", t.code < 5 ? kinds[t.code] : "type", (unsigned)t.bits, lanes);
  return out;
}

static inline int32_t tw_check_tensor(const char* function, const TwArgument* a, const DLTensor* t, int64_t* symbols) {
  char want[400], have[400];
  int fits = t->ndim == a->ndim;
  int64_t elements = 1;
  for (int i = 0; fits && i < a->ndim; ++i) {
    int64_t size = t->shape[i], dim = a->dims[i];
    if (dim < -1 && symbols[-2 - dim] < 0) symbols[-2 - dim] = size;
    fits = size >= 0 && (dim == -1 || size == (dim < 0 ? symbols[-2 - dim] : dim));
    elements *= size;
  }
  if (!fits) {
    size_t n = (size_t)snprintf(want, sizeof want, "shape ");
    tw_sizes(want + n, sizeof want - n, a->dims, a->ndim, symbols);
    tw_sizes(have, sizeof have, t->shape, t->ndim, NULL);
    return tw_refuse(function, a, want, have);
  }
  if (t->dtype.code != a->dtype.code || t->dtype.bits != a->dtype.bits || t->dtype.lanes != a->dtype.lanes) {
    return tw_refuse(function, a, a->dtype_name, tw_dtype_name(t->dtype, have, sizeof have));
  }
  if ((int32_t)t->device.device_type != a->device_type) {
    snprintf(want, sizeof want, "device type %d", (int)a->device_type);
    snprintf(have, sizeof have, "%d", (int)t->device.device_type);
    return tw_refuse(function, a, want, have);
  }
  if (t->strides != NULL && (a->flags & 2) == 0 && elements != 0) {
    int64_t step = 1;
    for (int i = a->ndim - 1; i >= 0; --i) {
      if (t->shape[i] != 1 && t->strides[i] != step) {
        size_t n = (size_t)snprintf(have, sizeof have, "strides of ");
        tw_sizes(have + n, sizeof have - n, t->strides, t->ndim, NULL);
        return tw_refuse(function, a, "a compact row-major tensor", have);
      }
      step *= t->shape[i];
    }
  }
  if (t->byte_offset != 0 && (a->flags & 4) == 0) {
    snprintf(have, sizeof have, "%llu", (unsigned long long)t->byte_offset);
    return tw_refuse(function, a, "byte_offset 0", have);
  }
  if (t->data == NULL && elements != 0) return tw_refuse(function, a, "data", "a null one");
  if ((uintptr_t)t->data % (uintptr_t)a->alignment != 0) {
    snprintf(want, sizeof want, "data aligned to %d bytes", (int)a->alignment);
    snprintf(have, sizeof have, "it off by %d", (int)((uintptr_t)t->data % (uintptr_t)a->alignment));
    return tw_refuse(function, a, want, have);
  }
  return 0;
}

static inline int32_t tw_check_arguments(const char* function, const TwArgument* table, int32_t count,
                                         const TVMValue* args, const int* codes, int32_t num_args) {
  static const char* const code_names[] = {"int",  "uint",  "float",  "handle", "null", NULL,     NULL,
                                           "a tensor", NULL,    NULL,     NULL,     "string", NULL, "a tensor"};
  int64_t symbols[32];
  char text[400];
  memset(symbols, -1, sizeof symbols);
  if (num_args != count) {
    snprintf(text, sizeof text, "%s: expected %d arguments, found %d", function, (int)count, (int)num_args);
    TVMAPISetLastError(text);
    return -1;
  }
  for (int32_t i = 0; i < count; ++i) {
    const TwArgument* a = &table[i];
    const int code = codes[i], is_tensor = a->flags & 1;
    int fits;
    if (is_tensor) fits = code == kTVMOpaqueHandle || code == kTVMNullptr || code == kTVMDLTensorHandle || code == kTVMNDArrayHandle;
    else if (a->dtype.code <= 1) fits = code == (int)kDLInt;
    else if (a->dtype.code == kTVMOpaqueHandle) fits = code >= (int)kTVMOpaqueHandle;
    else fits = code == (int)kDLFloat;
    if (!fits) {
      const char* name = code >= 0 && code < 14 ? code_names[code] : NULL;
      if (name == NULL) snprintf(text, sizeof text, "type code %d", code);
      return tw_refuse(function, a, is_tensor ? "a tensor" : a->dtype_name, name == NULL ? text : name);
    }
    if (!is_tensor) {
      if (a->ndim != 0) symbols[-2 - a->dims[0]] = args[i].v_int64;
      continue;
    }
    if (args[i].v_handle == NULL || code == kTVMNullptr) return tw_refuse(function, a, "a tensor", "null");
    if (tw_check_tensor(function, a, (const DLTensor*)args[i].v_handle, symbols) != 0) return -1;
  }
  return 0;
}

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
