/* Scalar functions of generated code, on integers and by comparisons; they need <stdint.h> and <string.h>. */
#define TW_MIN_MAX(T, NAME)                                                  \
  TW_INLINE T tw_min_##NAME(T a, T b) { return a > b ? b : a; }          \
  TW_INLINE T tw_max_##NAME(T a, T b) { return a < b ? b : a; }
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
  TW_INLINE T tw_min_##NAME(T a, T b) { return a <= b || a != a ? a : b; }     \
  TW_INLINE T tw_max_##NAME(T a, T b) { return a >= b || a != a ? a : b; }
TW_FLOAT_MIN_MAX(float, float32)
TW_FLOAT_MIN_MAX(double, float64)

#define TW_FLOOR_DIVISION(T, NAME)                                                             \
  TW_INLINE T tw_floordiv_##NAME(T a, T b) {                                               \
    return (T)(a / b - ((a % b != 0 && ((a % b < 0) != (b < 0))) ? 1 : 0));                    \
  }                                                                                            \
  TW_INLINE T tw_floormod_##NAME(T a, T b) {                                               \
    return (T)(a % b + ((a % b != 0 && ((a % b < 0) != (b < 0))) ? b : 0));                    \
  }
TW_FLOOR_DIVISION(int8_t, int8)
TW_FLOOR_DIVISION(int16_t, int16)
TW_FLOOR_DIVISION(int32_t, int32)
TW_FLOOR_DIVISION(int64_t, int64)

TW_INLINE float tw_bfloat_to_float(uint16_t x) {
  const uint32_t bits = (uint32_t)x << 16;
  float result;
  memcpy(&result, &bits, sizeof result);
  return result;
}
TW_INLINE uint16_t tw_float_to_bfloat(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  if (x != x) return (uint16_t)((bits >> 16) | 0x40u);
  return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
TW_INLINE int32_t tw_q_multiply_shift(int32_t x, int32_t y, int32_t q, int32_t s) {
  return (int32_t)(((int64_t)x * y + ((int64_t)1 << (q - s - 1))) >> (q - s));
}
