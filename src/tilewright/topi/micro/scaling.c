/* Helium: vectors of Cortex-M55 and M85. */
#if defined(__ARM_FEATURE_MVE)
#include <arm_mve.h>
#define TW_MVE 1
#endif

/* Sums of int32 times factors of float32, and their nearest integers, as floats give them: to the bit, of integers. */

/* What inner loops are made of is part of them. gcc compiles them for speed, be the rest for size, and its first
 * scheduling, which would run out of registers, is left out. */
#ifdef __GNUC__
#define TW_HOT static inline __attribute__((always_inline, unused))
#else
#define TW_HOT static inline
#endif
#if defined(__GNUC__) && !defined(__clang__) && defined(__arm__)
#define TW_TIGHT static __attribute__((noinline, optimize("O2", "no-schedule-insns")))
#else
#define TW_TIGHT static
#endif

/* The nearest number of 24 bits, and zeros behind them, as float32 has. */
static uint64_t tw_24_bits(uint64_t n) {
  int32_t more = 0;
  while (n >> more >= (uint64_t)1 << 24) more++;
  if (more == 0) return n;
  n += ((uint64_t)1 << (more - 1)) - 1 + (n >> more & 1);
  return n >> more << more;
}

/* The nearest integer to ``n * 2 ** -shift``, halves to even; 0x3fffffff of larger ones. */
static uint32_t tw_nearest(uint64_t n, int32_t shift) {
  if (shift > 62) return 0;
  if (shift > 0) n = (n + ((uint64_t)1 << (shift - 1)) - 1 + (n >> shift & 1)) >> shift;
  return shift < 0 || n > 0x3fffffff ? 0x3fffffff : (uint32_t)n;
}

#define TW_MANTISSA(bits) (((bits) & 0x7fffffu) | 0x800000u)

/* For any sum; ``factor`` are the bits of a positive float32. */
TW_MESSAGE int32_t tw_scaled_exactly(int32_t sum, uint32_t factor) {
  const uint64_t n = tw_24_bits(sum < 0 ? 0u - (uint32_t)sum : (uint32_t)sum);
  const int32_t steps = (int32_t)tw_nearest(tw_24_bits(n * TW_MANTISSA(factor)), 150 - (int32_t)(factor >> 23));
  return sum < 0 ? -steps : steps;
}

/* The bits behind the point that products of ``tw_scaled`` have. */
#define TW_FRACTION 10

/* ``multiplier`` is the factor, rounded, times ``2 ** (32 + TW_FRACTION - shift)``, ``offset`` the zero point in
 * products' units and a half, less 2. The last bit of the upper half of a product is uncertain: next to a half the exact
 * sum is taken anew. */
TW_HOT int32_t tw_scaled(int32_t sum, int32_t multiplier, uint32_t factor, int32_t shift, int32_t offset) {
  const int64_t product = (int64_t)(int32_t)((uint32_t)sum << shift) * multiplier;
  const int32_t steps = (int32_t)(product >> 32) + offset;
  if (((uint32_t)steps & ((1u << TW_FRACTION) - 1)) > (1u << TW_FRACTION) - 6) {
    return tw_scaled_exactly(sum, factor) + (offset >> TW_FRACTION);
  }
  return steps >> TW_FRACTION;
}
