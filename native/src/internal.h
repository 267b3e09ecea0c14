/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * What the runtime's source files share. Everything here is hidden from users of the library. */
#ifndef TILEWRIGHT_INTERNAL_H_
#define TILEWRIGHT_INTERNAL_H_

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr and sched_getaffinity on glibc */
#endif

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
} TwThread;

TwThread* tw_thread(void);

void tw_set_error(const char* format, ...) __attribute__((format(printf, 1, 2)));
/* Sets the calling thread's error text and is -1, visibly to the compiler's flow analysis. */
#define tw_fail(...) (tw_set_error(__VA_ARGS__), tw_minus_one())
static inline int tw_minus_one(void) { return -1; }
void tw_clear_error(void);
#define tw_out_of_memory(nbytes) tw_fail("out of memory: could not allocate %zu bytes", (size_t)(nbytes))

/* ---- strings and maps (util.c) ---- */
char* tw_strdup(const char* text);
/* Memory of a huge page and more lies in huge pages where the system has them. */
#define TW_HUGE_PAGE ((size_t)2 << 20)
void* tw_aligned_alloc(size_t nbytes, size_t alignment);
/* nbytes rounded up to a multiple of unit. */
size_t tw_round_up(size_t nbytes, size_t unit);
/* Asks for huge pages. It costs no memory; where it cannot be done, nothing changes. */
void tw_advise_huge_pages(void* start, size_t nbytes);
/* Seconds on a clock that never goes back. */
double tw_now(void);

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

/* ---- mapped libraries (library.c) ---- */
/* A loaded library's place in memory, which arrays may point into. */
typedef struct TwMapping {
  atomic_int refs;
  void* handle;          /* of dlopen */
  uint64_t device, node; /* of the file; 0 where it is not known */
  struct TwMapping* next;
} TwMapping;

TwMapping* tw_mapping_retain(TwMapping* mapping);
void tw_mapping_release(TwMapping* mapping);

/* ---- streams (stream.c) ---- */
struct TilewrightStream {
  const char* data; /* reading from memory */
  size_t left;
  TwMapping* mapping; /* that the memory is part of, or NULL: then arrays are copied out */
  FILE* file; /* writing to a file */
};

int tw_read_u64(TilewrightStream* s, uint64_t* out);
/* A NUL-terminated copy; fails when the stream is shorter than it says. */
int tw_read_string(TilewrightStream* s, char** out, size_t* out_size);
int tw_read_strings(TilewrightStream* s, char*** out, size_t* count);
void tw_free_strings(char** strings, size_t count);
int tw_write_u64(TilewrightStream* s, uint64_t value);
int tw_write_string(TilewrightStream* s, const char* text, size_t size);
int tw_write_strings(TilewrightStream* s, char* const* strings, size_t count);

/* ---- arrays (ndarray.c, params.c) ---- */
typedef struct TwArray {
  DLTensor tensor; /* first, so that a handle is both */
  atomic_int refs;
  struct TwArray* parent;    /* whose memory this is a view of */
  DLManagedTensor* borrowed; /* whose memory this wraps */
  TwMapping* mapping;        /* whose memory this is in */
  void* allocation;          /* its own memory, which its device frees, or NULL */
  int64_t dims[];
} TwArray;

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
/* Between devices as well; on the default stream. */
int tw_copy(const DLTensor* from, DLTensor* to);
TwArray* tw_array_new(const int64_t* shape, int ndim, DLDataType type, DLDevice device);
/* An array that has memory of its device, which it frees with it; NULL, and the memory the caller's, on failure. */
TwArray* tw_array_adopt(void* data, const int64_t* shape, int ndim, DLDataType type, DLDevice device);
/* Filled with zeros, where tw_array_new gives memory as it lies. */
TwArray* tw_array_zeros(const int64_t* shape, int ndim, DLDataType type, DLDevice device);
/* A view of nbytes at byte_offset of parent, which it retains. */
TwArray* tw_array_view(TwArray* parent, uint64_t byte_offset, const int64_t* shape, int ndim, DLDataType type);
/* An array whose elements are at data, in a mapping, which it retains. */
TwArray* tw_array_mapped(TwMapping* mapping, const char* data, const int64_t* shape, int ndim, DLDataType type);
TwArray* tw_array_retain(TwArray* array);
void tw_array_release(TwArray* array);
int tw_read_array(TilewrightStream* s, TwArray** out);
int tw_write_array(TilewrightStream* s, const TwArray* array);
int tw_write_params(TilewrightStream* s, char* const* names, TwArray* const* arrays, size_t count);

typedef struct {
  char** names;
  TwArray** arrays;
  size_t count;
} TwParams;
/* A count, the names and the arrays, with padding that lets tw_read_named find the elements of large arrays aligned. */
int tw_write_named(TilewrightStream* s, const TwParams* params);
int tw_read_named(TilewrightStream* s, TwParams* out);
/* The contents of save_param_dict. */
int tw_read_params(TilewrightStream* s, TwParams* out);
void tw_free_params(TwParams* params);

/* ---- devices (device.c, device_cpu.c, plugin.c) ---- */
/* Finds the rows of device types above TILEWRIGHT_MAX_DEVICE_TYPE, which belong to RPC; or NULL. */
extern const TilewrightDeviceAPI* (*tw_find_remote_device)(int type);
extern const TilewrightDeviceAPI tw_cpu_device, tw_pinned_device;
/* "npu(0)" in a buffer of TW_DEVICE_TEXT bytes, which it returns. */
#define TW_DEVICE_TEXT 80
char* tw_device_text(DLDevice device, char* buffer);
/* The row of a device's type, or NULL and an error. */
const TilewrightDeviceAPI* tw_device_api(DLDevice device);
/* Fails when there is no such device. */
int tw_device_check(DLDevice device);
int tw_device_exists(DLDevice device, bool* out);
/* Whether the host may touch memory of the device. */
bool tw_is_host(DLDevice device);
/* Whether memory of one serves where memory of the other is wanted. */
bool tw_same_memory(DLDevice a, DLDevice b);
/* NULL and an error on failure. scope may be NULL. */
void* tw_device_alloc(DLDevice device, size_t nbytes, size_t alignment, DLDataType hint, const char* scope);
int tw_device_free(DLDevice device, void* ptr);
/* A place in memory of a device. */
typedef struct {
  void* data;
  size_t offset;
  DLDevice device;
} TwPlace;
/* Copies between any two devices. */
int tw_device_copy(const TwPlace* from, const TwPlace* to, size_t nbytes, DLDataType hint, TVMStreamHandle stream);
int tw_device_zero(DLDevice device, void* data, size_t nbytes);
/* Asks the device's get_attr, which may leave ret as it is. */
int tw_device_attribute(DLDevice device, int attr, TVMRetValueHandle ret);
int tw_device_set(DLDevice device);
/* Of devices that bring functions of their own for that. */
void* tw_device_workspace(DLDevice device, size_t nbytes, DLDataType hint);
int tw_device_workspace_free(DLDevice device, void* ptr);
int tw_device_synchronize(DLDevice device);
int tw_device_executor_made(DLDevice device, TVMModuleHandle module, void** state);
void tw_device_executor_gone(DLDevice device, void* state);

/* ---- functions (registry.c) ---- */
typedef struct TwModule TwModule;

typedef struct TwFunc {
  atomic_int refs;
  TVMBackendPackedCFunc direct; /* compiled code, or ... */
  TVMPackedCFunc callback;      /* ... a C function with its resource */
  void* resource;
  TVMPackedCFuncFinalizer finalizer;
  TwModule* owner; /* kept alive by the function */
} TwFunc;

/* What TVMRetValueHandle points to. */
typedef struct {
  TVMValue value;
  int code;
} TwReturn;

TwFunc* tw_func_direct(TVMBackendPackedCFunc code, TwModule* owner);
/* A C callback whose resource is owner itself. */
TwFunc* tw_func_method(TVMPackedCFunc callback, TwModule* owner);
TwFunc* tw_func_retain(TwFunc* f);
void tw_func_release(TwFunc* f);
void tw_return_int(TVMRetValueHandle ret, int64_t value);
/* Moves the caller's reference into ret. */
void tw_return_handle(TVMRetValueHandle ret, void* handle, int code);
int tw_return_string(TVMRetValueHandle ret, const char* text);
int tw_return_bytes(TVMRetValueHandle ret, const void* data, size_t size);
/* Owned reference, or NULL. */
TwFunc* tw_find_global(const char* name);
void tw_register_builtin(const char* name, TVMPackedCFunc callback);
void tw_register_builtins(void);

/* Argument checks of the built-in functions; each fails with a message that names the function. */
int tw_arg_int(const TVMValue* args, const int* codes, int n, int i, const char* who, int64_t* out);
int tw_arg_str(const TVMValue* args, const int* codes, int n, int i, const char* who, const char** out);
int tw_arg_module(const TVMValue* args, const int* codes, int n, int i, const char* who, TwModule** out);
int tw_arg_tensor(const TVMValue* args, const int* codes, int n, int i, const char* who, DLTensor** out);
int tw_arg_bytes(const TVMValue* args, const int* codes, int n, int i, const char* who, TVMByteArray* out);
/* A device given as one argument, or as type and id in two; *used says how many. */
int tw_arg_device(const TVMValue* args, const int* codes, int n, int i, const char* who, DLDevice* out, int* used);
/* Devices from argument i to the last; the caller frees them. */
int tw_arg_devices(const TVMValue* args, const int* codes, int n, int i, const char* who, DLDevice** out, int* count);

/* ---- modules (module.c) ---- */
typedef struct {
  int (*get_function)(TwModule* self, const char* name, TwFunc** out);
  int (*save)(TwModule* self, TilewrightStream* stream);
  int (*get_source)(TwModule* self, const char* format, TVMRetValueHandle ret);
  void (*destroy)(TwModule* self);
  int (*save_file)(TwModule* self, const char* path, const char* format);
} TwModuleClass;

struct TwModule {
  atomic_int refs;
  const TwModuleClass* cls;
  char* type_key;
  void* data;
  TwModule** imports;
  int num_imports;
  pthread_mutex_t env_lock;
  TwMap env; /* name to TwFunc, what TVMBackendGetFuncFromEnv gave out */
};

TwModule* tw_module_new(const TwModuleClass* cls, const char* type_key, void* data);
TwModule* tw_module_retain(TwModule* m);
void tw_module_release(TwModule* m);
/* *out (owned) stays NULL when there is none; searches the imports too when query_imports. */
int tw_module_find(TwModule* m, const char* name, bool query_imports, TwFunc** out);
int tw_module_import(TwModule* m, TwModule* dep);

/* Writes the runtime's addresses into the "__TVM..." variables that lookup finds. */
void tw_fill_context(void* (*lookup)(void* ctx, const char* name), void* ctx, TwModule* module);

/* ---- libraries (library.c, elf.c, blob.c) ---- */
int tw_library_open(const char* path, TwModule** out);
int tw_elf_check(const char* path);
/* The blob may lie in a mapping, or that is NULL. */
int tw_load_blob(const char* blob, size_t nbytes, TwMapping* mapping, TwModule* lib, TwModule** out);
TwModule* tw_system_lib(void);

/* ---- loaders (loaders.c) ---- */
/* Reads the payload of a module by the loader of its type key. */
int tw_load_binary(const char* key, TilewrightStream* s, TwModule** out);
/* What a loader "runtime.module.loadbinary_KEY" reads from; fails with a message that names it. */
int tw_loader_stream(const TVMValue* args, const int* codes, int n, const char* who, TilewrightStream** out);

/* ---- executor modules (graph_module.c) ---- */
TilewrightGraph* tw_module_graph(TwModule* m);
/* Takes graph over. */
TwModule* tw_graph_module(TilewrightGraph* graph);
void tw_register_graph_functions(void);
void tw_register_factory_functions(void);
void tw_register_library_functions(void);
void tw_register_thread_functions(void);

/* What executors of one graph and its parameters share. */
typedef struct {
  TwArray** prepared; /* results of calls that run once, in the order of nodes; none before the first executor has them */
  int num_prepared;
  struct TwPlacedParam* placed; /* parameters on other devices than the host */
} TwShared;
void tw_free_shared(TwShared* shared);

/* Creates an executor; params (may be NULL) are used in place, not copied, by entries on the host, and so is what shared (may
 * be NULL) has from other executors. */
int tw_graph_create(const char* json, size_t json_size, TwModule* lib, const DLDevice* devices, int num_devices,
                    const TwParams* params, TwShared* shared, TilewrightGraph** out);

#endif /* TILEWRIGHT_INTERNAL_H_ */
