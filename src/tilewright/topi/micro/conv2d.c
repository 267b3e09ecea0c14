/* Sums of products of bytes: two pixels by two channels, so that four products read four bytes; of vectors one pixel
 * by four channels. */

#if defined(TW_MVE)
typedef int8x16_t tw_vector_int8;
typedef int16x8_t tw_vector_uint8;
#define TW_LANES_int8 16
#define TW_LANES_uint8 8
#define tw_data_int8 vldrbq_s8
#define tw_weights_int8 vldrbq_s8
#define tw_data_uint8(from) vreinterpretq_s16_u16(vldrbq_u16(from))
#define tw_weights_uint8 vldrbq_s16
#define tw_some_weights_int8 tw_some_data_int8
#define tw_some_data_uint8 tw_eight_uint8
#define tw_some_weights_uint8 tw_eight_int8
TW_HOT int8x16_t tw_some_data_int8(const int8_t* from, uint32_t left) { return vldrbq_z_s8(from, vctp8q(left)); }
TW_HOT int32_t tw_dot_int8(int32_t sum, int8x16_t a, int8x16_t b) { return vmladavaq_s8(sum, a, b); }
TW_HOT int32_t tw_dot_uint8(int32_t sum, int16x8_t a, int16x8_t b) { return vmladavaq_s16(sum, a, b); }
#elif defined(__ARM_FEATURE_SIMD32) && defined(__GNUC__)
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
