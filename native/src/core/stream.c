/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The serialized form that modules and parameters use: integers are little-endian u64, strings are their size and
 * bytes, vectors are their count and items. */
#include "core.h"

#include <errno.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the serialized form is little-endian; this runtime writes memory as it is"
#endif

int TilewrightStreamRead(TilewrightStream* s, void* data, size_t nbytes) {
  if (nbytes > s->left) {
    return tw_fail("the data ends too early: %zu more bytes are needed and %zu are left", nbytes, s->left);
  }
  if (nbytes != 0) memcpy(data, s->data, nbytes);
  s->data += nbytes;
  s->left -= nbytes;
  return 0;
}

int tw_saved(TilewrightSaving* saving, size_t nbytes) {
  if (saving == NULL) return 0;
  __atomic_fetch_add(&saving->written, nbytes, __ATOMIC_RELAXED);
  return __atomic_load_n(&saving->stop, __ATOMIC_RELAXED) == 0 ? 0 : tw_fail("saving was stopped");
}

int TilewrightStreamWrite(TilewrightStream* s, const void* data, size_t nbytes) {
  if (s->counted != NULL) {
    *s->counted += nbytes;
    return 0;
  }
  if (s->sink != NULL) return s->sink(s->ctx, data, nbytes);
  if (s->file == NULL) return tw_fail("this stream is for reading");
  for (size_t done = 0, n; done < nbytes; done += n) {
    n = nbytes - done < TW_SAVED_TOGETHER ? nbytes - done : TW_SAVED_TOGETHER;
    if (fwrite((const char*)data + done, 1, n, s->file) != n) {
      return tw_fail("writing %zu bytes failed: %s", nbytes, strerror(errno));
    }
    if (tw_saved(s->saving, n) != 0) return -1;
  }
  return 0;
}

int tw_read_u64(TilewrightStream* s, uint64_t* out) { return TilewrightStreamRead(s, out, sizeof *out); }

int tw_read_string(TilewrightStream* s, char** out, size_t* out_size) {
  uint64_t size;
  if (tw_read_u64(s, &size) != 0) return -1;
  if (size > s->left) {
    return tw_fail("the data ends too early: a string of %llu bytes, and %zu are left", (unsigned long long)size, s->left);
  }
  char* text = malloc((size_t)size + 1);
  if (text == NULL) return tw_out_of_memory((size_t)size + 1);
  memcpy(text, s->data, (size_t)size);
  text[size] = '\0';
  s->data += size;
  s->left -= (size_t)size;
  *out = text;
  if (out_size != NULL) *out_size = (size_t)size;
  return 0;
}

int tw_read_strings(TilewrightStream* s, char*** out, size_t* count) {
  uint64_t n;
  if (tw_read_u64(s, &n) != 0) return -1;
  /* each string takes at least its size field: bounds what a damaged count can allocate */
  if (n > s->left / sizeof(uint64_t)) return tw_fail("the data ends too early: %llu strings", (unsigned long long)n);
  char** strings = calloc((size_t)n + 1, sizeof(char*));
  if (strings == NULL) return tw_out_of_memory((size_t)n * sizeof(char*));
  for (size_t i = 0; i < n; ++i) {
    if (tw_read_string(s, &strings[i], NULL) != 0) {
      tw_free_strings(strings, i);
      return -1;
    }
  }
  *out = strings;
  *count = (size_t)n;
  return 0;
}

void tw_free_strings(char** strings, size_t count) {
  if (strings == NULL) return;
  for (size_t i = 0; i < count; ++i) free(strings[i]);
  free(strings);
}

int tw_write_u64(TilewrightStream* s, uint64_t value) { return TilewrightStreamWrite(s, &value, sizeof value); }

int tw_write_string(TilewrightStream* s, const char* text, size_t size) {
  return tw_write_u64(s, size) != 0 ? -1 : TilewrightStreamWrite(s, text, size);
}

int tw_write_strings(TilewrightStream* s, char* const* strings, size_t count) {
  if (tw_write_u64(s, count) != 0) return -1;
  for (size_t i = 0; i < count; ++i) {
    if (tw_write_string(s, strings[i], strlen(strings[i])) != 0) return -1;
  }
  return 0;
}
