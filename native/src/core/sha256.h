/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * SHA-256 (FIPS 180-4), for programs that have no library for it. */
#ifndef TILEWRIGHT_SHA256_H_
#define TILEWRIGHT_SHA256_H_

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

#define SHA256_SIZE 32
#define SHA256_BLOCK 64

typedef struct {
  uint32_t state[8];
  uint64_t total; /* bytes so far */
  uint8_t block[SHA256_BLOCK];
  bool by_instructions;
} Sha256;

static inline uint32_t sha256_rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

static const uint32_t sha256_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

#ifdef __x86_64__
/* Whether the processor has Intel's SHA extensions, which take a tenth of the time. */
static bool sha256_has_instructions(void) {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & bit_SSE4_1) == 0) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & 1u << 29) != 0;
}

__attribute__((target("sha,sse4.1"))) static void sha256_compress_by_instructions(Sha256* s, const uint8_t* block) {
  const __m128i big_endian = _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3);
  /* the instructions have the state as ABEF and CDGH, from the high word down */
  __m128i low = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i*)s->state), 0xb1);
  __m128i high = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i*)(s->state + 4)), 0x1b);
  __m128i abef = _mm_alignr_epi8(low, high, 8), cdgh = _mm_blend_epi16(high, low, 0xf0);
  const __m128i abef_before = abef, cdgh_before = cdgh;
  __m128i w[4];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    __m128i* now = &w[i & 3];
    if (i < 4) {
      *now = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i*)block + i), big_endian);
    } else {
      const __m128i last = w[(i + 3) & 3];
      const __m128i seventh = _mm_alignr_epi8(last, w[(i + 2) & 3], 4);
      *now = _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(*now, w[(i + 1) & 3]), seventh), last);
    }
    const __m128i sum = _mm_add_epi32(*now, _mm_loadu_si128((const __m128i*)(sha256_k + 4 * i)));
    cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
    abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
  }
  low = _mm_shuffle_epi32(_mm_add_epi32(abef, abef_before), 0x1b);
  high = _mm_shuffle_epi32(_mm_add_epi32(cdgh, cdgh_before), 0xb1);
  _mm_storeu_si128((__m128i*)s->state, _mm_blend_epi16(low, high, 0xf0));
  _mm_storeu_si128((__m128i*)(s->state + 4), _mm_alignr_epi8(high, low, 8));
}
#endif

static void sha256_compress(Sha256* s, const uint8_t* block) {
#ifdef __x86_64__
  if (s->by_instructions) {
    sha256_compress_by_instructions(s, block);
    return;
  }
#endif
  uint32_t w[64], v[8];
  for (int i = 0; i < 16; ++i) {
    w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
  }
  for (int i = 16; i < 64; ++i) {
    const uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (sha256_rotate(a, 7) ^ sha256_rotate(a, 18) ^ a >> 3) + w[i - 7] +
           (sha256_rotate(b, 17) ^ sha256_rotate(b, 19) ^ b >> 10);
  }
  memcpy(v, s->state, sizeof v);
  /* a..h are v[0 - i], v[1 - i], ... modulo 8: a round renames them */
#pragma GCC unroll 8
  for (int i = 0; i < 64; ++i) {
    const uint32_t a = v[(0 - i) & 7], b = v[(1 - i) & 7], c = v[(2 - i) & 7];
    const uint32_t e = v[(4 - i) & 7], f = v[(5 - i) & 7], g = v[(6 - i) & 7];
    const uint32_t t1 = v[(7 - i) & 7] + (sha256_rotate(e, 6) ^ sha256_rotate(e, 11) ^ sha256_rotate(e, 25)) +
                        ((e & f) ^ (~e & g)) + sha256_k[i] + w[i];
    const uint32_t t2 = (sha256_rotate(a, 2) ^ sha256_rotate(a, 13) ^ sha256_rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    v[(3 - i) & 7] += t1;
    v[(7 - i) & 7] = t1 + t2;
  }
  for (int i = 0; i < 8; ++i) s->state[i] += v[i];
}

static void sha256_start(Sha256* s) {
  static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  memcpy(s->state, first, sizeof first);
  s->total = 0;
#ifdef __x86_64__
  s->by_instructions = sha256_has_instructions();
#endif
}

static void sha256_add(Sha256* s, const void* data, size_t size) {
  const uint8_t* from = data;
  while (size != 0) {
    const size_t had = (size_t)(s->total % SHA256_BLOCK);
    const size_t taken = SHA256_BLOCK - had < size ? SHA256_BLOCK - had : size;
    if (had == 0 && taken == SHA256_BLOCK) {
      sha256_compress(s, from);
    } else {
      memcpy(s->block + had, from, taken);
      if (had + taken == SHA256_BLOCK) sha256_compress(s, s->block);
    }
    s->total += taken;
    from += taken;
    size -= taken;
  }
}

static void sha256_finish(Sha256* s, uint8_t out[SHA256_SIZE]) {
  static const uint8_t end[SHA256_BLOCK] = {0x80};
  const uint64_t bits = s->total * 8;
  uint8_t size[8];
  const size_t had = (size_t)(s->total % SHA256_BLOCK), last = SHA256_BLOCK - sizeof size;
  sha256_add(s, end, (had < last ? last : last + SHA256_BLOCK) - had);
  for (int i = 0; i < 8; ++i) size[i] = (uint8_t)(bits >> (56 - 8 * i));
  sha256_add(s, size, sizeof size);
  for (int i = 0; i < SHA256_SIZE; ++i) out[i] = (uint8_t)(s->state[i / 4] >> (24 - 8 * (i % 4)));
}

#endif /* TILEWRIGHT_SHA256_H_ */
