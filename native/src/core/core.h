/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * What all of the runtime stands on: threads, memory, strings, maps, streams, types. Everything in these headers is hidden
 * from users of the library. */
#ifndef TILEWRIGHT_CORE_H_
#define TILEWRIGHT_CORE_H_

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr and sched_getaffinity on glibc */
#endif

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tilewright.h>

#define TW_ALIGNMENT 64

/* ---- per-thread state (tls.c) ---- */
typedef struct {
  char* error;
  size_t error_capacity;
  char* result; /* string or bytes that the last call returned */
  size_t result_capacity;
  TVMByteArray result_bytes;
  const char** names; /* of TVMFuncListGlobalNames */
  bool in_parallel; /* inside a task of a parallel launch */
  int runs;         /* of models, one inside another */
} TwThread;

TwThread* tw_thread(void);

#ifdef __MINGW32__ /* whose own printf is another */
#define TW_PRINTF(text, first) __attribute__((format(gnu_printf, text, first)))
#else
#define TW_PRINTF(text, first) __attribute__((format(printf, text, first)))
#endif

void tw_set_error(const char* format, ...) TW_PRINTF(1, 2);
/* Sets the calling thread's error text and is -1, visibly to the compiler's flow analysis. */
#define tw_fail(...) (tw_set_error(__VA_ARGS__), tw_minus_one())
static inline int tw_minus_one(void) { return -1; }
void tw_clear_error(void);
/* Writes text with control characters escaped, but line feeds and tabs, which names from files could drive a terminal by:
 * ESC becomes \x1b. Gives the length; `to` may be NULL. */
size_t tw_escape(const char* text, char* to);
#define tw_out_of_memory(nbytes) tw_fail("out of memory: could not allocate %zu bytes", (size_t)(nbytes))

/* ---- cores (cores.c) ---- */
/* At least 1. */
int tw_usable_cores(void);
#ifdef __linux__
/* The processor time, in whole CPUs, that control groups under `root` leave a process whose groups the file `memberships`
 * lists as /proc/PID/cgroup does; 0 when unlimited. */
int tw_quota_cpus(const char* memberships, const char* root);
#endif

/* ---- locks (lock.c) ---- */
/* A mutex that is free in a child made by fork, whoever held it: threads do not survive fork, and would never give it back. */
typedef struct {
  pthread_mutex_t mutex;
  atomic_uint forks; /* what tw_forks gave when it was made or renewed */
  bool recursive;    /* whether the thread that holds it may take it again */
} TwLock;
#define TW_LOCK_INITIALIZER {PTHREAD_MUTEX_INITIALIZER, 0, false}
#define TW_RECURSIVE_LOCK_INITIALIZER {PTHREAD_MUTEX_INITIALIZER, UINT_MAX, true} /* made when it is first taken */
void tw_lock_init(TwLock* lock);
void tw_lock_init_recursive(TwLock* lock);
void tw_lock_destroy(TwLock* lock);
void tw_lock(TwLock* lock);
bool tw_try_lock(TwLock* lock);
void tw_unlock(TwLock* lock);
/* How many forks lie between this process and the first that loaded the runtime: who was busy before one is no more. */
unsigned tw_forks(void);

/* ---- runs of models (threadpool.c) ---- */
/* Around each run: runs of as many threads as there are cores leave no core for the pool, and do without it. */
void tw_run_begin(void);
void tw_run_end(void);

/* ---- strings and maps (util.c) ---- */
char* tw_strdup(const char* text);
/* A list of names with commas, for messages; it begins as {.used = 0}. */
typedef struct {
  size_t used;
  char text[1024];
} TwNames;
/* Adds a name, or "..." in place of all that do not fit. */
void tw_add_name(TwNames* names, const char* name);
/* Memory of a huge page and more lies in huge pages where the system has them. */
#define TW_HUGE_PAGE ((size_t)2 << 20)
void* tw_aligned_alloc(size_t nbytes, size_t alignment);
void tw_aligned_free(void* memory);
/* Gives a warning to the program's callback, or to stderr. */
void tw_warn(const char* text);
/* nbytes rounded up to a multiple of unit. */
size_t tw_round_up(size_t nbytes, size_t unit);
/* Asks for huge pages. It costs no memory; where it cannot be done, nothing changes. */
void tw_advise_huge_pages(void* start, size_t nbytes);
/* Seconds on a clock that never goes back. */
double tw_now(void);
/* Seconds that the calling thread has had a processor: what other programs use is not in it. */
double tw_thread_seconds(void);

/* String to pointer. Keys are copied, values are the caller's. */
typedef struct {
  struct TwMapSlot {
    char* key;
    void* value;
  }* slots;
  size_t capacity, count;
} TwMap;

void* tw_map_get(const TwMap* map, const char* key);
/* False when memory ran out. */
bool tw_map_set(TwMap* map, const char* key, void* value);
/* The removed value, or NULL. */
void* tw_map_remove(TwMap* map, const char* key);
void tw_map_clear(TwMap* map, void (*free_value)(void*));

/* ---- mapped libraries (mapping.c) ---- */
/* A loaded library's place in memory, or that of a file of data, which arrays may point into. */
typedef struct TwMapping {
  atomic_int refs;
  void* handle;          /* of dlopen; NULL for a file of data */
  uint64_t device, node; /* of the file; 0 where it is not known */
  char* start;           /* of a file of data, whose pages are private */
  size_t length;
  size_t index, indexed; /* of a file of weights: where its index is, and of how many tensors */
  char* name;
  struct TwMapping* next;
} TwMapping;

/* Maps the file of an absolute path; the message has path. */
TwMapping* tw_map_file(const char* full, const char* path);
/* A mapping of what is open already, which it takes over. */
TwMapping* tw_map_open(void* handle);
/* Maps an open file of data, which is not empty, and stays the caller's. */
TwMapping* tw_map_data(int fd, size_t length, const char* name);
TwMapping* tw_mapping_retain(TwMapping* mapping);
void tw_mapping_release(TwMapping* mapping);

/* ---- streams (stream.c) ---- */
struct TilewrightStream {
  const char* data; /* reading from memory */
  size_t left;
  TwMapping* mapping; /* that the memory is part of, or NULL: then arrays are copied out */
  TwMapping* weights; /* the file that arrays of the data may be in, or NULL */
  FILE* file;        /* writing to a file */
  uint64_t* counted; /* or only counting what would be written */
  int (*sink)(void* ctx, const void* data, size_t nbytes); /* or giving it to a function */
  void* ctx;
  struct TwWeights* apart; /* where large arrays are written, or NULL */
  TilewrightSaving* saving; /* who watches the writing to a file, or NULL */
};

/* Counts bytes that were written; fails where saving is to stop. */
int tw_saved(TilewrightSaving* saving, size_t nbytes);
/* Bytes that are written together, between which saving may stop. */
enum { TW_SAVED_TOGETHER = 4 << 20 };
int tw_read_u64(TilewrightStream* s, uint64_t* out);
/* A NUL-terminated copy; fails when the stream is shorter than it says. */
int tw_read_string(TilewrightStream* s, char** out, size_t* out_size);
int tw_read_strings(TilewrightStream* s, char*** out, size_t* count);
void tw_free_strings(char** strings, size_t count);
int tw_write_u64(TilewrightStream* s, uint64_t value);
int tw_write_string(TilewrightStream* s, const char* text, size_t size);
int tw_write_strings(TilewrightStream* s, char* const* strings, size_t count);

/* ---- types and shapes (dtype.c) ---- */
size_t tw_type_bytes(DLDataType type);
/* False when the product overflows. */
bool tw_tensor_bytes(int ndim, const int64_t* shape, DLDataType type, size_t* out);
bool tw_is_compact(const DLTensor* t);
bool tw_same_type(DLDataType a, DLDataType b);
/* The type's text ("float32x4") in a buffer of at least 24 bytes, which it returns. */
char* tw_type_name(DLDataType type, char* buffer);
bool tw_same_shape(int ndim, const int64_t* a, const int64_t* b);
/* "(1, 3, 224, 224)", cut when too long; returns buffer. */
char* tw_shape_text(const DLTensor* t, char* buffer, size_t size);
int tw_parse_type(const char* text, DLDataType* out);

/* ---- checks before a library is loaded (elf.c) ---- */
int tw_elf_check(const char* path);

#endif /* TILEWRIGHT_CORE_H_ */
