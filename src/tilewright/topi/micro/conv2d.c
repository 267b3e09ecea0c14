/* Sums of products of bytes: two pixels by two channels, so that four products read four bytes. */

#if defined(__ARM_FEATURE_SIMD32) && defined(__GNUC__)
#define TW_WORDS 1
TW_HOT uint32_t tw_word(const void* from) {
  uint32_t word;
  memcpy(&word, from, sizeof word);
  return word;
}
TW_HOT uint32_t tw_even_int8(uint32_t x) {
  uint32_t pair;
  __asm__("sxtb16 %0, %1" : "=r"(pair) : "r"(x));
  return pair;
}
TW_HOT uint32_t tw_odd_int8(uint32_t x) {
  uint32_t pair;
  __asm__("sxtb16 %0, %1, ror #8" : "=r"(pair) : "r"(x));
  return pair;
}
TW_HOT uint32_t tw_even_uint8(uint32_t x) {
  uint32_t pair;
  __asm__("uxtb16 %0, %1" : "=r"(pair) : "r"(x));
  return pair;
}
TW_HOT uint32_t tw_odd_uint8(uint32_t x) {
  uint32_t pair;
  __asm__("uxtb16 %0, %1, ror #8" : "=r"(pair) : "r"(x));
  return pair;
}
TW_HOT int32_t tw_two_products(uint32_t a, uint32_t b, int32_t sum) {
  int32_t result;
  __asm__("smlad %0, %1, %2, %3" : "=r"(result) : "r"(a), "r"(b), "r"(sum));
  return result;
}
#endif

#if !defined(TW_WORDS) && !defined(__SSE2__) && !defined(__ARM_NEON)
#define TW_UNROLL 1 /* where no vectors are: loops of one step would be mostly counting */
#endif
