/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * SHA-256 and HMAC-SHA256 (FIPS 180-4, RFC 2104), for programs that have no library for them. */
#ifndef TILEWRIGHT_SHA256_H_
#define TILEWRIGHT_SHA256_H_

#include <stdint.h>
#include <string.h>

#define SHA256_SIZE 32
#define SHA256_BLOCK 64

typedef struct {
  uint32_t state[8];
  uint64_t total; /* bytes so far */
  uint8_t block[SHA256_BLOCK];
} Sha256;

static uint32_t sha256_rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void sha256_compress(Sha256* s, const uint8_t* block) {
  static const uint32_t k[64] = {
      0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
      0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
      0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
      0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
      0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
      0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
      0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
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
  for (int i = 0; i < 64; ++i) {
    const uint32_t e = v[4], a = v[0];
    const uint32_t t1 = v[7] + (sha256_rotate(e, 6) ^ sha256_rotate(e, 11) ^ sha256_rotate(e, 25)) +
                        ((e & v[5]) ^ (~e & v[6])) + k[i] + w[i];
    const uint32_t t2 = (sha256_rotate(a, 2) ^ sha256_rotate(a, 13) ^ sha256_rotate(a, 22)) +
                        ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
    memmove(v + 1, v, 7 * sizeof v[0]);
    v[4] += t1;
    v[0] = t1 + t2;
  }
  for (int i = 0; i < 8; ++i) s->state[i] += v[i];
}

static void sha256_start(Sha256* s) {
  static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  memcpy(s->state, first, sizeof first);
  s->total = 0;
}

static void sha256_add(Sha256* s, const void* data, size_t size) {
  const uint8_t* from = data;
  for (size_t i = 0; i < size; ++i) {
    s->block[s->total++ % SHA256_BLOCK] = from[i];
    if (s->total % SHA256_BLOCK == 0) sha256_compress(s, s->block);
  }
}

static void sha256_finish(Sha256* s, uint8_t out[SHA256_SIZE]) {
  const uint64_t bits = s->total * 8;
  uint8_t size[8];
  sha256_add(s, "\x80", 1);
  while (s->total % SHA256_BLOCK != SHA256_BLOCK - sizeof size) sha256_add(s, "", 1);
  for (int i = 0; i < 8; ++i) size[i] = (uint8_t)(bits >> (56 - 8 * i));
  sha256_add(s, size, sizeof size);
  for (int i = 0; i < SHA256_SIZE; ++i) out[i] = (uint8_t)(s->state[i / 4] >> (24 - 8 * (i % 4)));
}

/* The HMAC of three texts, one after another. */
static void hmac_sha256(const char* key, const void* a, size_t a_size, const void* b, size_t b_size, const void* c,
                        size_t c_size, uint8_t out[SHA256_SIZE]) {
  uint8_t block[SHA256_BLOCK] = {0};
  Sha256 s;
  if (strlen(key) > SHA256_BLOCK) {
    sha256_start(&s);
    sha256_add(&s, key, strlen(key));
    sha256_finish(&s, block);
  } else {
    memcpy(block, key, strlen(key));
  }
  for (int i = 0; i < SHA256_BLOCK; ++i) block[i] ^= 0x36;
  sha256_start(&s);
  sha256_add(&s, block, sizeof block);
  sha256_add(&s, a, a_size);
  sha256_add(&s, b, b_size);
  sha256_add(&s, c, c_size);
  sha256_finish(&s, out);
  for (int i = 0; i < SHA256_BLOCK; ++i) block[i] ^= 0x36 ^ 0x5c;
  sha256_start(&s);
  sha256_add(&s, block, sizeof block);
  sha256_add(&s, out, SHA256_SIZE);
  sha256_finish(&s, out);
}

#endif /* TILEWRIGHT_SHA256_H_ */
