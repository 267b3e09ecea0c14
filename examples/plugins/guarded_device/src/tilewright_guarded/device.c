/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * A device for Tilewright: "guarded", number 65, one of it. It computes on the host's processor, in memory that the host
 * cannot touch: every allocation lies on pages of its own, which are closed (mprotect) unless a copy or a launch is under
 * way. What mixes up memory of host and device ends in SIGSEGV here, as it would give wrong numbers with a real one.
 *
 * Beside the device there is a driver, as global functions:
 *
 *   guarded.launch(function, arguments...)   calls function while memory of the arguments that are arrays on the device is open
 *   guarded.executors()                      how many executors are on the device
 *   guarded.allocated()                      how many bytes it has given out */
#define _GNU_SOURCE

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <tilewright.h>
#include <unistd.h>

enum { GUARDED = 65 };

static int fail(const char* message) {
  TVMAPISetLastError(message);
  return -1;
}

/* ---- memory ---- */
typedef struct Allocation {
  char* start;
  size_t nbytes; /* asked for */
  size_t size;   /* mapped: whole pages */
  int open;      /* by how many */
  struct Allocation* next;
} Allocation;

static Allocation* allocations;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The link to the allocation that an address is in, with the lock held; to NULL where there is none. */
static Allocation** find(const void* address) {
  Allocation** link = &allocations;
  while (*link != NULL && !((*link)->start <= (const char*)address && (const char*)address < (*link)->start + (*link)->size)) {
    link = &(*link)->next;
  }
  return link;
}

/* Opens the memory at an address once more, or closes it once. */
static int open_memory(const void* address, bool open) {
  int rc = 0;
  pthread_mutex_lock(&lock);
  Allocation* a = *find(address);
  if (a == NULL) {
    rc = fail("this address is no memory of the device");
  } else {
    const int was = a->open;
    a->open += open ? 1 : -1;
    if ((was == 0) != (a->open == 0)) rc = mprotect(a->start, a->size, open ? PROT_READ | PROT_WRITE : PROT_NONE);
    if (rc != 0) rc = fail("mprotect failed");
  }
  pthread_mutex_unlock(&lock);
  return rc;
}

static int guarded_count(void* ctx, int* out) {
  (void)ctx;
  *out = 1;
  return 0;
}

static int guarded_alloc(void* ctx, int id, size_t nbytes, size_t alignment, DLDataType type_hint, const char* mem_scope,
                         void** out) {
  (void)ctx, (void)id, (void)type_hint;
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  if (alignment > page) return fail("it aligns memory to its pages at most");
  if (mem_scope != NULL && strcmp(mem_scope, "global") != 0) return fail("its only memory scope is \"global\"");
  if (nbytes > SIZE_MAX - page) return fail("it has no room for so much");
  Allocation* a = calloc(1, sizeof *a);
  if (a == NULL) return fail("the driver is out of memory");
  a->nbytes = nbytes;
  a->size = nbytes == 0 ? page : (nbytes + page - 1) / page * page;
  a->start = mmap(NULL, a->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (a->start == MAP_FAILED) {
    free(a);
    char text[64];
    snprintf(text, sizeof text, "it has no room for %zu bytes", nbytes);
    return fail(text);
  }
  pthread_mutex_lock(&lock);
  a->next = allocations;
  allocations = a;
  pthread_mutex_unlock(&lock);
  *out = a->start;
  return 0;
}

static int guarded_free(void* ctx, int id, void* ptr) {
  (void)ctx, (void)id;
  pthread_mutex_lock(&lock);
  Allocation** link = find(ptr);
  Allocation* a = *link;
  if (a != NULL) *link = a->next;
  pthread_mutex_unlock(&lock);
  if (a == NULL) return fail("this address is no memory of the device");
  munmap(a->start, a->size);
  free(a);
  return 0;
}

static int guarded_copy(void* ctx, const void* from, size_t from_offset, DLDevice from_device, void* to, size_t to_offset,
                        DLDevice to_device, size_t nbytes, DLDataType type_hint, TVMStreamHandle stream) {
  (void)ctx, (void)type_hint, (void)stream;
  const bool reads = from_device.device_type == GUARDED, writes = to_device.device_type == GUARDED;
  if (reads && open_memory(from, true) != 0) return -1;
  if (writes && open_memory(to, true) != 0) {
    if (reads) open_memory(from, false);
    return -1;
  }
  memmove((char*)to + to_offset, (const char*)from + from_offset, nbytes);
  int rc = reads ? open_memory(from, false) : 0;
  if (writes && open_memory(to, false) != 0) rc = -1;
  return rc;
}

static int guarded_get_attr(void* ctx, int id, int attr, TVMRetValueHandle ret) {
  (void)ctx, (void)id;
  TVMValue value = {.v_str = "pages of the host, closed"};
  int code = kTVMStr;
  return attr == kTilewrightDeviceName ? TVMCFuncSetReturn(ret, &value, &code, 1) : 0;
}

/* ---- executors ---- */
static int executors;

/* A driver would make its context here, and load what the module brings for it. */
static int executor_made(void* ctx, int id, TVMModuleHandle module, void** state) {
  (void)ctx, (void)id, (void)module;
  *state = NULL;
  pthread_mutex_lock(&lock);
  ++executors;
  pthread_mutex_unlock(&lock);
  return 0;
}

static void executor_gone(void* ctx, int id, void* state) {
  (void)ctx, (void)id, (void)state;
  pthread_mutex_lock(&lock);
  --executors;
  pthread_mutex_unlock(&lock);
}

/* ---- the driver ---- */
/* Opens the memory of those arguments that are arrays on the device, or closes it; of the first count. */
static int open_arrays(const TVMValue* args, const int* codes, int count, bool open, int* done) {
  for (*done = 0; *done < count; ++*done) {
    if (codes[*done] != kTVMDLTensorHandle && codes[*done] != kTVMNDArrayHandle) continue;
    const DLTensor* t = args[*done].v_handle;
    if (t->device.device_type == GUARDED && open_memory(t->data, open) != 0) return -1;
  }
  return 0;
}

static int launch(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  (void)ret, (void)resource;
  if (n < 1 || codes[0] != kTVMPackedFuncHandle) return fail("guarded.launch: argument 0 must be a function");
  TVMValue result;
  int code, opened, closed;
  int rc = open_arrays(args + 1, codes + 1, n - 1, true, &opened);
  if (rc == 0) rc = TVMFuncCall(args[0].v_handle, args + 1, codes + 1, n - 1, &result, &code);
  if (open_arrays(args + 1, codes + 1, opened, false, &closed) != 0) rc = -1;
  return rc;
}

static int return_int(TVMRetValueHandle ret, int64_t number) {
  TVMValue value = {.v_int64 = number};
  int code = kTVMArgInt;
  return TVMCFuncSetReturn(ret, &value, &code, 1);
}

static int count_executors(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  (void)args, (void)codes, (void)n, (void)resource;
  pthread_mutex_lock(&lock);
  const int count = executors;
  pthread_mutex_unlock(&lock);
  return return_int(ret, count);
}

static int count_allocated(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  (void)args, (void)codes, (void)n, (void)resource;
  size_t total = 0;
  pthread_mutex_lock(&lock);
  for (const Allocation* a = allocations; a != NULL; a = a->next) total += a->nbytes;
  pthread_mutex_unlock(&lock);
  return return_int(ret, (int64_t)total);
}

static int register_function(const char* name, TVMPackedCFunc callback) {
  TVMFunctionHandle f;
  if (TVMFuncCreateFromCFunc(callback, NULL, NULL, &f) != 0) return -1;
  int rc = TVMFuncRegisterGlobal(name, f, 0);
  TVMFuncFree(f);
  return rc;
}

TVM_DLL int TilewrightPluginInit(void) {
  const TilewrightDeviceAPI api = {.struct_size = sizeof api,
                                   .name = "guarded",
                                   .device_type = GUARDED,
                                   .count = guarded_count,
                                   .alloc = guarded_alloc,
                                   .free = guarded_free,
                                   .copy = guarded_copy,
                                   .get_attr = guarded_get_attr,
                                   .executor_made = executor_made,
                                   .executor_gone = executor_gone};
  if (TilewrightDeviceRegister(&api) != 0) return -1;
  if (register_function("guarded.launch", launch) != 0) return -1;
  if (register_function("guarded.executors", count_executors) != 0) return -1;
  return register_function("guarded.allocated", count_allocated);
}
