/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The functions of <math.h> that kernels call. Those with an instruction of WebAssembly are it; model.mjs has the others. */
#ifndef TILEWRIGHT_WEB_MATH_H
#define TILEWRIGHT_WEB_MATH_H

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define isnan(x) __builtin_isnan(x)
#define isinf(x) __builtin_isinf(x)
#define isfinite(x) __builtin_isfinite(x)
#define signbit(x) __builtin_signbit(x)

#define TW_INSTRUCTION(name)                                               \
  static inline double name(double x) { return __builtin_##name(x); }      \
  static inline float name##f(float x) { return __builtin_##name##f(x); }
TW_INSTRUCTION(sqrt)
TW_INSTRUCTION(fabs)
TW_INSTRUCTION(floor)
TW_INSTRUCTION(ceil)
TW_INSTRUCTION(trunc)
TW_INSTRUCTION(rint)
TW_INSTRUCTION(nearbyint)
#undef TW_INSTRUCTION

static inline double copysign(double x, double y) { return __builtin_copysign(x, y); }
static inline float copysignf(float x, float y) { return __builtin_copysignf(x, y); }
static inline double fmin(double x, double y) { return x != x ? y : y < x ? y : x; }
static inline double fmax(double x, double y) { return x != x ? y : y > x ? y : x; }
static inline float fminf(float x, float y) { return x != x ? y : y < x ? y : x; }
static inline float fmaxf(float x, float y) { return x != x ? y : y > x ? y : x; }
static inline double round(double x) {
  const double whole = __builtin_trunc(x);
  return __builtin_fabs(x - whole) >= 0.5 ? whole + __builtin_copysign(1.0, x) : whole;
}
static inline float roundf(float x) { return (float)round((double)x); }

#define TW_IMPORTED(name)                                      \
  __attribute__((import_module("math"), import_name(#name)))   \
  double name(double x);                                       \
  static inline float name##f(float x) { return (float)name((double)x); }
TW_IMPORTED(exp)
TW_IMPORTED(exp2)
TW_IMPORTED(expm1)
TW_IMPORTED(log)
TW_IMPORTED(log2)
TW_IMPORTED(log10)
TW_IMPORTED(log1p)
TW_IMPORTED(sin)
TW_IMPORTED(cos)
TW_IMPORTED(tan)
TW_IMPORTED(sinh)
TW_IMPORTED(cosh)
TW_IMPORTED(tanh)
TW_IMPORTED(asin)
TW_IMPORTED(acos)
TW_IMPORTED(atan)
TW_IMPORTED(asinh)
TW_IMPORTED(acosh)
TW_IMPORTED(atanh)
TW_IMPORTED(erf)
TW_IMPORTED(erfc)
#undef TW_IMPORTED

#define TW_IMPORTED(name)                                      \
  __attribute__((import_module("math"), import_name(#name)))   \
  double name(double x, double y);                             \
  static inline float name##f(float x, float y) { return (float)name((double)x, (double)y); }
TW_IMPORTED(pow)
TW_IMPORTED(atan2)
TW_IMPORTED(hypot)
TW_IMPORTED(fmod)
#undef TW_IMPORTED

#endif
