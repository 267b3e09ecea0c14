/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Modules: libraries, tables of modules, loaders. */
#ifndef TILEWRIGHT_MODULE_H_
#define TILEWRIGHT_MODULE_H_

#include "../function/function.h"
/* ---- modules (module.c) ---- */
typedef struct TwModule TwModule;

typedef struct {
  int (*get_function)(TwModule* self, const char* name, TwFunc** out);
  int (*save)(TwModule* self, TilewrightStream* stream);
  int (*get_source)(TwModule* self, const char* format, TVMRetValueHandle ret);
  void (*destroy)(TwModule* self);
  int (*save_file)(TwModule* self, const char* path, const char* format);
  void (*leave)(TwModule* self); /* before what it gave out and its imports are let go; may take env over */
} TwModuleClass;

struct TwModule {
  atomic_int refs;
  const TwModuleClass* cls;
  char* type_key;
  void* data;
  TwModule** imports;
  int num_imports;
  TwModule* importer; /* the first module that imports it, while that lives; under a lock of module.c */
  TwLock env_lock;
  TwMap env; /* name to TwFunc, what TVMBackendGetFuncFromEnv gave out */
};

/* Functions that keep their module alive: compiled code, and a C callback whose resource is the module itself. */
TwFunc* tw_func_direct(TVMBackendPackedCFunc code, TwModule* owner);
TwFunc* tw_func_method(TVMPackedCFunc callback, TwModule* owner);

TwModule* tw_module_new(const TwModuleClass* cls, const char* type_key, void* data);
TwModule* tw_module_retain(TwModule* m);
void tw_module_release(TwModule* m);
/* *out (owned) stays NULL when there is none; searches the imports too when query_imports. */
int tw_module_find(TwModule* m, const char* name, bool query_imports, TwFunc** out);
int tw_module_import(TwModule* m, TwModule* dep);

/* Writes the runtime's addresses into the "__TVM..." variables that lookup finds. */
void tw_fill_context(void* (*lookup)(void* ctx, const char* name), void* ctx, TwModule* module);

/* ---- values (values.c) ---- */
int tw_arg_module(const TVMValue* args, const int* codes, int n, int i, const char* who, TwModule** out);
/* Takes up count pairs of name and array, from argument `at` on. What was taken is in p also when it fails. */
int tw_arg_params(TwParams* p, TVMValue* args, int* codes, int n, int at, size_t count, const char* who);
/* Gives up what a function has returned. */
void tw_drop_value(TVMValue value, int code);

/* ---- libraries (library.c, blob.c) ---- */
int tw_library_open(const char* path, TwModule** out);
/* The blob may lie in a mapping, and in the library at path, or they are NULL. */
int tw_load_blob(const char* blob, size_t nbytes, TwMapping* mapping, const char* path, TwModule* lib, TwModule** out);
TwModule* tw_system_lib(void);

/* ---- loaders (loaders.c) ---- */
/* Reads the payload of a module by the loader of its type key. */
int tw_load_binary(const char* key, TilewrightStream* s, TwModule** out);
/* What a loader "runtime.module.loadbinary_KEY" reads from; fails with a message that names it. */
int tw_loader_stream(const TVMValue* args, const int* codes, int n, const char* who, TilewrightStream** out);

#endif /* TILEWRIGHT_MODULE_H_ */
