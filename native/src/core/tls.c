/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Per-thread state and the error text. */
#include "core.h"

#include <stdarg.h>

static pthread_key_t thread_key;
static pthread_once_t thread_once = PTHREAD_ONCE_INIT;
static _Thread_local TwThread own; /* not allocated: it reports that memory ends */
static _Thread_local bool known;

static void destroy_thread(void* p) {
  TwThread* t = p;
  free(t->error);
  free(t->result);
  free(t->names);
  memset(t, 0, sizeof *t);
  known = false;
}

static void make_key(void) { pthread_key_create(&thread_key, destroy_thread); }

TwThread* tw_thread(void) {
  if (!known) {
    pthread_once(&thread_once, make_key);
    pthread_setspecific(thread_key, &own);
    known = true;
  }
  return &own;
}

const char* TVMGetLastError(void) {
  const char* text = tw_thread()->error;
  return text == NULL ? "" : text;
}

size_t tw_escape(const char* text, char* to) {
  static const char digits[] = "0123456789abcdef";
  size_t n = 0;
  for (const unsigned char* p = (const unsigned char*)text; *p != 0; ++p) {
    const bool wide = p[0] == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0; /* U+0080 to U+009F in UTF-8, one of which is CSI */
    if (!wide && (*p == '\n' || *p == '\t' || (*p >= 0x20 && *p != 0x7f))) {
      if (to != NULL) to[n] = (char)*p;
      ++n;
      continue;
    }
    if (wide) ++p;
    if (to != NULL) memcpy(to + n, (char[4]){'\\', 'x', digits[*p >> 4], digits[*p & 15]}, 4);
    n += 4;
  }
  if (to != NULL) to[n] = '\0';
  return n;
}

static void set_error(const char* msg, size_t size) {
  TwThread* t = tw_thread();
  if (size > t->error_capacity) {
    /* msg may lie inside the old buffer, so that one is freed last */
    char* grown = malloc(size);
    if (grown == NULL) return;
    memcpy(grown, msg, size);
    free(t->error);
    t->error = grown;
    t->error_capacity = size;
  } else {
    memmove(t->error, msg, size);
  }
}

void TVMAPISetLastError(const char* msg) {
  const size_t size = strlen(msg), escaped = tw_escape(msg, NULL);
  char* text = escaped == size ? NULL : malloc(escaped + 1);
  if (text != NULL) tw_escape(msg, text);
  set_error(text == NULL ? msg : text, (text == NULL ? size : escaped) + 1);
  free(text);
}

void tw_clear_error(void) {
  TwThread* t = tw_thread();
  if (t->error != NULL) t->error[0] = '\0';
}

void tw_set_error(const char* format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int size = vsnprintf(NULL, 0, format, args);
  va_end(args);
  char* text = size < 0 ? NULL : malloc((size_t)size + 1);
  if (text != NULL) {
    vsnprintf(text, (size_t)size + 1, format, again);
    TVMAPISetLastError(text);
    free(text);
  } else {
    TVMAPISetLastError("out of memory while reporting an error");
  }
  va_end(again);
}
