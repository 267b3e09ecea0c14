/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * HMAC-SHA256 (RFC 2104). */
#ifndef TILEWRIGHT_HMAC_H_
#define TILEWRIGHT_HMAC_H_

#include "../src/core/sha256.h"

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

#endif /* TILEWRIGHT_HMAC_H_ */
