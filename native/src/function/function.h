/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Packed functions and the table of global ones. */
#ifndef TILEWRIGHT_FUNCTION_H_
#define TILEWRIGHT_FUNCTION_H_

#include "../array/array.h"
/* ---- functions (registry.c) ---- */
typedef struct TwFunc {
  atomic_int refs;
  TVMBackendPackedCFunc direct; /* compiled code, or ... */
  TVMPackedCFunc callback;      /* ... a C function with its resource */
  void* resource;
  TVMPackedCFuncFinalizer finalizer;
  void* owner; /* kept alive by the function, which calls release_owner in the end; or NULL */
  void (*release_owner)(void* owner);
} TwFunc;

/* What TVMRetValueHandle points to. */
typedef struct {
  TVMValue value;
  int code;
} TwReturn;

/* A function with nothing to call yet; NULL and an error on failure. */
TwFunc* tw_func_new(void);
TwFunc* tw_func_retain(TwFunc* f);
void tw_func_release(TwFunc* f);
void tw_return_int(TVMRetValueHandle ret, int64_t value);
/* Moves the caller's reference into ret. */
void tw_return_handle(TVMRetValueHandle ret, void* handle, int code);
int tw_return_string(TVMRetValueHandle ret, const char* text);
int tw_return_bytes(TVMRetValueHandle ret, const void* data, size_t size);
/* Owned reference, or NULL. */
TwFunc* tw_find_global(const char* name);

/* A global function of the runtime's own. */
typedef struct {
  const char* name;
  TVMPackedCFunc callback;
} TwBuiltin;
void tw_register_builtins(const TwBuiltin* functions, size_t count);
/* Registers a file's global functions, {name, callback} each, when the runtime is loaded. */
#define TW_GLOBAL_FUNCTIONS(...)                                                    \
  __attribute__((constructor)) static void register_functions(void) {               \
    static const TwBuiltin functions[] = {__VA_ARGS__};                             \
    tw_register_builtins(functions, sizeof functions / sizeof functions[0]);        \
  }

/* Argument checks of the built-in functions; each fails with a message that names the function. */
int tw_arg_int(const TVMValue* args, const int* codes, int n, int i, const char* who, int64_t* out);
int tw_arg_str(const TVMValue* args, const int* codes, int n, int i, const char* who, const char** out);
int tw_arg_tensor(const TVMValue* args, const int* codes, int n, int i, const char* who, DLTensor** out);
int tw_arg_bytes(const TVMValue* args, const int* codes, int n, int i, const char* who, TVMByteArray* out);
/* A device given as one argument, or as type and id in two; *used says how many. */
int tw_arg_device(const TVMValue* args, const int* codes, int n, int i, const char* who, DLDevice* out, int* used);
/* Devices from argument i to the last; the caller frees them. */
int tw_arg_devices(const TVMValue* args, const int* codes, int n, int i, const char* who, DLDevice** out, int* count);

#endif /* TILEWRIGHT_FUNCTION_H_ */
