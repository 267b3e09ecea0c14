/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Packed functions: creation, calls, and the table of global functions. */
#include "function.h"

static TwLock table_lock = TW_LOCK_INITIALIZER;
static pthread_once_t table_once = PTHREAD_ONCE_INIT;
static TwMap table;

/* ---- lifetime ---- */
TwFunc* tw_func_new(void) {
  TwFunc* f = calloc(1, sizeof *f);
  if (f == NULL) {
    tw_out_of_memory(sizeof *f);
    return NULL;
  }
  atomic_init(&f->refs, 1);
  return f;
}

TwFunc* tw_func_retain(TwFunc* f) {
  atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
  return f;
}

void tw_func_release(TwFunc* f) {
  if (f == NULL || atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel) != 1) return;
  if (f->finalizer != NULL) f->finalizer(f->resource);
  if (f->owner != NULL) f->release_owner(f->owner);
  free(f);
}

int TVMFuncFree(TVMFunctionHandle func) {
  tw_func_release(func);
  return 0;
}

int TVMFuncCreateFromCFunc(TVMPackedCFunc func, void* resource_handle, TVMPackedCFuncFinalizer fin,
                           TVMFunctionHandle* out) {
  TwFunc* f = tw_func_new();
  if (f == NULL) return -1;
  f->callback = func;
  f->resource = resource_handle;
  f->finalizer = fin;
  *out = f;
  return 0;
}

int TilewrightFuncCallback(TVMFunctionHandle func, TVMPackedCFunc* callback, void** resource_handle) {
  const TwFunc* f = func;
  *callback = f->callback;
  *resource_handle = f->resource;
  return 0;
}

/* ---- calls and return values ---- */
int TVMFuncCall(TVMFunctionHandle func, TVMValue* arg_values, int* type_codes, int num_args, TVMValue* ret_val,
                int* ret_type_code) {
  TwFunc* f = func;
  TwReturn ret = {.value = {0}, .code = kTVMNullptr};
  if (f == NULL) return tw_fail("a null function is called");
  tw_clear_error();
  int rc = f->direct != NULL ? f->direct(arg_values, type_codes, num_args, &ret.value, &ret.code, NULL)
                             : f->callback(arg_values, type_codes, num_args, &ret, f->resource);
  if (rc != 0) {
    if (TVMGetLastError()[0] == '\0') tw_fail("a function failed with code %d and left no message", rc);
    return -1;
  }
  *ret_val = ret.value;
  *ret_type_code = ret.code;
  return 0;
}

static int keep_result(const void* data, size_t size) {
  TwThread* t = tw_thread();
  if (size + 1 > t->result_capacity) {
    char* grown = malloc(size + 1);
    if (grown == NULL) return tw_out_of_memory(size + 1);
    if (size != 0) memcpy(grown, data, size);
    free(t->result);
    t->result = grown;
    t->result_capacity = size + 1;
  } else if (size != 0) {
    memmove(t->result, data, size);
  }
  t->result[size] = '\0';
  t->result_bytes = (TVMByteArray){.data = t->result, .size = size};
  return 0;
}

void tw_return_int(TVMRetValueHandle ret, int64_t value) {
  TwReturn* r = ret;
  r->value.v_int64 = value;
  r->code = kTVMArgInt;
}

void tw_return_handle(TVMRetValueHandle ret, void* handle, int code) {
  TwReturn* r = ret;
  r->value.v_handle = handle;
  r->code = code;
}

int tw_return_string(TVMRetValueHandle ret, const char* text) {
  TwReturn* r = ret;
  if (keep_result(text, strlen(text)) != 0) return -1;
  r->value.v_str = tw_thread()->result;
  r->code = kTVMStr;
  return 0;
}

int tw_return_bytes(TVMRetValueHandle ret, const void* data, size_t size) {
  TwReturn* r = ret;
  if (keep_result(data, size) != 0) return -1;
  r->value.v_handle = &tw_thread()->result_bytes;
  r->code = kTVMBytes;
  return 0;
}

/* ---- the global table ---- */
static void lock_table(void) { tw_lock(&table_lock); }
static void unlock_table(void) { tw_unlock(&table_lock); }

static void init_table(void) {
  /* a child process must not inherit a table that another thread was changing */
  pthread_atfork(lock_table, unlock_table, unlock_table);
}

static void register_builtin(const TwBuiltin* builtin) {
  TwFunc* f = tw_func_new();
  if (f == NULL) return;
  f->callback = builtin->callback;
  lock_table();
  bool ok = tw_map_set(&table, builtin->name, f);
  unlock_table();
  if (!ok) tw_func_release(f);
}

void tw_register_builtins(const TwBuiltin* functions, size_t count) {
  pthread_once(&table_once, init_table);
  for (size_t i = 0; i < count; ++i) register_builtin(&functions[i]);
}

int TVMFuncRegisterGlobal(const char* name, TVMFunctionHandle f, int override) {
  pthread_once(&table_once, init_table);
  lock_table();
  TwFunc* old = tw_map_get(&table, name);
  bool taken = old != NULL && !override;
  bool ok = !taken && tw_map_set(&table, name, tw_func_retain(f));
  unlock_table();
  if (taken) return tw_fail("global function %s is already registered; pass override=True to replace it", name);
  if (!ok) {
    tw_func_release(f);
    return tw_out_of_memory(strlen(name));
  }
  tw_func_release(old);
  return 0;
}

TwFunc* tw_find_global(const char* name) {
  pthread_once(&table_once, init_table);
  lock_table();
  TwFunc* f = tw_map_get(&table, name);
  if (f != NULL) tw_func_retain(f);
  unlock_table();
  return f;
}

int TVMFuncGetGlobal(const char* name, TVMFunctionHandle* out) {
  *out = tw_find_global(name);
  return 0;
}

int TVMFuncRemoveGlobal(const char* name) {
  pthread_once(&table_once, init_table);
  lock_table();
  TwFunc* old = tw_map_remove(&table, name);
  unlock_table();
  tw_func_release(old);
  return 0;
}

static int compare_names(const void* a, const void* b) { return strcmp(*(char* const*)a, *(char* const*)b); }

int TVMFuncListGlobalNames(int* out_size, const char*** out_array) {
  pthread_once(&table_once, init_table);
  TwThread* t = tw_thread();
  lock_table();
  size_t text = 0;
  for (size_t i = 0; i < table.capacity; ++i) text += table.slots[i].key == NULL ? 0 : strlen(table.slots[i].key) + 1;
  /* one block: the pointers, then the characters, so that a name removed later stays readable */
  const char** names = malloc(table.count * sizeof(char*) + text + 1);
  size_t n = 0;
  if (names != NULL) {
    char* to = (char*)(names + table.count);
    for (size_t i = 0; i < table.capacity; ++i) {
      if (table.slots[i].key == NULL) continue;
      names[n++] = strcpy(to, table.slots[i].key);
      to += strlen(to) + 1;
    }
  }
  unlock_table();
  if (names == NULL) return tw_out_of_memory(text);
  qsort(names, n, sizeof(char*), compare_names);
  free(t->names);
  t->names = names;
  *out_size = (int)n;
  *out_array = names;
  return 0;
}

/* ---- arguments of built-in functions ---- */
static int arg_code(const int* codes, int n, int i) { return i < n ? codes[i] : -1; }

int tw_arg_int(const TVMValue* args, const int* codes, int n, int i, const char* who, int64_t* out) {
  if (arg_code(codes, n, i) != kTVMArgInt) return tw_fail("%s: argument %d must be an integer", who, i);
  *out = args[i].v_int64;
  return 0;
}

int tw_arg_str(const TVMValue* args, const int* codes, int n, int i, const char* who, const char** out) {
  if (arg_code(codes, n, i) != kTVMStr) return tw_fail("%s: argument %d must be a string", who, i);
  *out = args[i].v_str;
  return 0;
}

int tw_arg_tensor(const TVMValue* args, const int* codes, int n, int i, const char* who, DLTensor** out) {
  int code = arg_code(codes, n, i);
  if (code != kTVMNDArrayHandle && code != kTVMDLTensorHandle) {
    return tw_fail("%s: argument %d must be an array", who, i);
  }
  *out = args[i].v_handle;
  return 0;
}

int tw_arg_bytes(const TVMValue* args, const int* codes, int n, int i, const char* who, TVMByteArray* out) {
  int code = arg_code(codes, n, i);
  if (code == kTVMBytes) {
    *out = *(const TVMByteArray*)args[i].v_handle;
  } else if (code == kTVMStr) {
    *out = (TVMByteArray){.data = args[i].v_str, .size = strlen(args[i].v_str)};
  } else {
    return tw_fail("%s: argument %d must be bytes", who, i);
  }
  return 0;
}

int tw_arg_device(const TVMValue* args, const int* codes, int n, int i, const char* who, DLDevice* out, int* used) {
  if (arg_code(codes, n, i) == kDLDevice) {
    *out = args[i].v_device;
    *used = 1;
    return 0;
  }
  int64_t type, id;
  if (arg_code(codes, n, i) != kTVMArgInt) return tw_fail("%s: argument %d must be a device", who, i);
  if (tw_arg_int(args, codes, n, i, who, &type) != 0 || tw_arg_int(args, codes, n, i + 1, who, &id) != 0) return -1;
  *out = (DLDevice){(int32_t)type, (int32_t)id};
  *used = 2;
  return 0;
}

int tw_arg_devices(const TVMValue* args, const int* codes, int n, int i, const char* who, DLDevice** out, int* count) {
  DLDevice* devices = calloc((size_t)n + 1, sizeof *devices);
  if (devices == NULL) return tw_out_of_memory((size_t)n * sizeof *devices);
  int used;
  *count = 0;
  do {
    if (tw_arg_device(args, codes, n, i, who, &devices[*count], &used) != 0) {
      free(devices);
      return -1;
    }
    ++*count;
    i += used;
  } while (i < n);
  *out = devices;
  return 0;
}
