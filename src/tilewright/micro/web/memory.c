/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The functions of <string.h> that a module of WebAssembly has; with bulk memory they are instructions. */
#include "string.h"

void* memcpy(void* restrict to, const void* restrict from, size_t count) {
  return __builtin_memcpy(to, from, count);
}

void* memmove(void* to, const void* from, size_t count) { return __builtin_memmove(to, from, count); }

void* memset(void* to, int value, size_t count) { return __builtin_memset(to, value, count); }

int memcmp(const void* left, const void* right, size_t count) {
  const unsigned char *a = left, *b = right;
  for (size_t i = 0; i < count; ++i) {
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  }
  return 0;
}
