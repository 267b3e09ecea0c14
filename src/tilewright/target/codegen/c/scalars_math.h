/* Scalar functions of generated code that need <math.h>. */
TW_INLINE float tw_sigmoid_float32(float x) {
  const float e = expf(-fabsf(x));
  return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}
TW_INLINE double tw_sigmoid_float64(double x) {
  const double e = exp(-fabs(x));
  return (x < 0.0 ? e : 1.0) / (1.0 + e);
}
TW_INLINE float tw_normal_tail_float32(float x) { return 0.5f * erfcf(x * 0.70710678f); }
TW_INLINE double tw_normal_tail_float64(double x) { return 0.5 * erfc(x * 0.70710678118654752); }
