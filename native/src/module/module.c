/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Modules: named functions, imports, and the lookups that compiled code makes. */
#include "module.h"

TwModule* tw_module_new(const TwModuleClass* cls, const char* type_key, void* data) {
  TwModule* m = calloc(1, sizeof *m);
  if (m != NULL) m->type_key = tw_strdup(type_key);
  if (m == NULL || m->type_key == NULL) {
    free(m);
    tw_out_of_memory(sizeof *m);
    return NULL;
  }
  atomic_init(&m->refs, 1);
  m->cls = cls;
  m->data = data;
  tw_lock_init(&m->env_lock);
  return m;
}

TwModule* tw_module_retain(TwModule* m) {
  atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
  return m;
}

static void release_func(void* f) { tw_func_release(f); }

static TwLock importers_lock = TW_LOCK_INITIALIZER;

static void set_importer(TwModule* m, TwModule* from, TwModule* to) {
  tw_lock(&importers_lock);
  if (m->importer == from) m->importer = to;
  tw_unlock(&importers_lock);
}

/* The importer of m, retained; NULL where there is none, or where it is about to be destroyed. */
static TwModule* importer_of(TwModule* m) {
  tw_lock(&importers_lock);
  TwModule* found = m->importer;
  int refs = found == NULL ? 0 : atomic_load_explicit(&found->refs, memory_order_relaxed);
  while (refs != 0 && !atomic_compare_exchange_weak_explicit(&found->refs, &refs, refs + 1, memory_order_acquire,
                                                             memory_order_relaxed)) {
  }
  tw_unlock(&importers_lock);
  return refs == 0 ? NULL : found;
}

void tw_module_release(TwModule* m) {
  if (m == NULL || atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) != 1) return;
  if (m->cls->leave != NULL) m->cls->leave(m);
  tw_map_clear(&m->env, release_func);
  for (int i = 0; i < m->num_imports; ++i) {
    set_importer(m->imports[i], m, NULL);
    tw_module_release(m->imports[i]);
  }
  if (m->cls->destroy != NULL) m->cls->destroy(m);
  tw_lock_destroy(&m->env_lock);
  free(m->imports);
  free(m->type_key);
  free(m);
}

int tw_module_find(TwModule* m, const char* name, bool query_imports, TwFunc** out) {
  *out = NULL;
  if (m->cls->get_function(m, name, out) != 0) return -1;
  for (int i = 0; query_imports && *out == NULL && i < m->num_imports; ++i) {
    if (tw_module_find(m->imports[i], name, true, out) != 0) return -1;
  }
  return 0;
}

/* Whether `to` is m or imported by it, directly or not. */
static bool reaches(const TwModule* m, const TwModule* to) {
  if (m == to) return true;
  for (int i = 0; i < m->num_imports; ++i) {
    if (reaches(m->imports[i], to)) return true;
  }
  return false;
}

int tw_module_import(TwModule* m, TwModule* dep) {
  if (reaches(dep, m)) return tw_fail("importing module %s into %s would make a cycle", dep->type_key, m->type_key);
  TwModule** grown = realloc(m->imports, (size_t)(m->num_imports + 1) * sizeof *grown);
  if (grown == NULL) return tw_out_of_memory(sizeof *grown);
  m->imports = grown;
  m->imports[m->num_imports++] = tw_module_retain(dep);
  set_importer(dep, NULL, m);
  return 0;
}

int TVMModImport(TVMModuleHandle mod, TVMModuleHandle dep) { return tw_module_import(mod, dep); }

int TVMModGetFunction(TVMModuleHandle mod, const char* func_name, int query_imports, TVMFunctionHandle* out) {
  TwFunc* f;
  if (tw_module_find(mod, func_name, query_imports != 0, &f) != 0) return -1;
  *out = f;
  return 0;
}

int TVMModFree(TVMModuleHandle mod) {
  tw_module_release(mod);
  return 0;
}

int TilewrightModRetain(TVMModuleHandle mod) {
  tw_module_retain(mod);
  return 0;
}

const char* TilewrightModTypeKey(TVMModuleHandle mod) { return ((TwModule*)mod)->type_key; }

int TilewrightModNumImports(TVMModuleHandle mod) { return ((TwModule*)mod)->num_imports; }

int TilewrightModGetImport(TVMModuleHandle mod, int index, TVMModuleHandle* out) {
  TwModule* m = mod;
  if (index < 0 || index >= m->num_imports) return tw_fail("module %s has no import %d", m->type_key, index);
  *out = tw_module_retain(m->imports[index]);
  return 0;
}

int TilewrightModGetSource(TVMModuleHandle mod, const char* format, TVMValue* ret_val, int* ret_code) {
  TwModule* m = mod;
  TwReturn ret = {.value = {0}, .code = kTVMNullptr};
  if (m->cls->get_source == NULL) return tw_fail("a module of type %s has no source text", m->type_key);
  if (m->cls->get_source(m, format, &ret) != 0) return -1;
  *ret_val = ret.value;
  *ret_code = ret.code;
  return 0;
}

static int save_to_file(TwModule* m, const char* path, struct TwWeights* apart, TilewrightSaving* saving) {
  if (m->cls->save == NULL) return tw_fail("a module of type %s cannot be saved", m->type_key);
  TilewrightStream s = {.file = fopen(path, "ab"), .apart = apart, .saving = saving};
  if (s.file == NULL) return tw_fail("cannot write %s", path);
  /* where to pad depends on the position, which append mode may not tell before the first write */
  int rc = fseek(s.file, 0, SEEK_END) != 0 ? tw_fail("cannot write %s", path) : m->cls->save(m, &s);
  if (fclose(s.file) != 0 && rc == 0) rc = tw_fail("cannot write %s", path);
  return rc;
}

int TilewrightModSaveToFile(TVMModuleHandle mod, const char* path) { return save_to_file(mod, path, NULL, NULL); }

int TilewrightModSaveWithWeights(TVMModuleHandle mod, const char* path, const char* old, const char* added,
                                 TilewrightSaving* saving) {
  if (added == NULL) return save_to_file(mod, path, NULL, saving);
  struct TwWeights* apart = tw_weights_open(old, added, saving);
  if (apart == NULL) return -1;
  int rc = save_to_file(mod, path, apart, saving);
  return tw_weights_close(apart) != 0 ? -1 : rc;
}

int TilewrightModSavedBytes(TVMModuleHandle mod, uint64_t* out) {
  TwModule* m = mod;
  if (m->cls->save == NULL) return tw_fail("a module of type %s cannot be saved", m->type_key);
  *out = 0;
  TilewrightStream s = {.counted = out};
  return m->cls->save(m, &s);
}

static int no_file(const TwModule* m) {
  return tw_fail("a module of type %s has no code to save in a file of its own; use export_library", m->type_key);
}

int TilewrightModSave(TVMModuleHandle mod, const char* path, const char* format) {
  TwModule* m = mod;
  return m->cls->save_file == NULL ? no_file(m) : m->cls->save_file(m, path, format);
}

/* ---- functions of modules ---- */
static void release_owner(void* owner) { tw_module_release(owner); }

static TwFunc* func_of(TwModule* owner) {
  TwFunc* f = tw_func_new();
  if (f == NULL || owner == NULL) return f;
  f->owner = tw_module_retain(owner);
  f->release_owner = release_owner;
  return f;
}

TwFunc* tw_func_direct(TVMBackendPackedCFunc code, TwModule* owner) {
  TwFunc* f = func_of(owner);
  if (f != NULL) f->direct = code;
  return f;
}

TwFunc* tw_func_method(TVMPackedCFunc callback, TwModule* owner) {
  TwFunc* f = func_of(owner);
  if (f == NULL) return NULL;
  f->callback = callback;
  f->resource = owner;
  return f;
}

/* ---- modules with callbacks ---- */
typedef struct {
  TilewrightModuleCallbacks callbacks;
  void* ctx;
} Custom;

static int custom_get_function(TwModule* self, const char* name, TwFunc** out) {
  const Custom* c = self->data;
  void* address = c->callbacks.resolve == NULL ? NULL : c->callbacks.resolve(c->ctx, name);
  if (address != NULL) {
    TVMBackendPackedCFunc code;
    memcpy(&code, &address, sizeof code); /* ISO C has no conversion from object to function pointer */
    *out = tw_func_direct(code, self);
    return *out == NULL ? -1 : 0;
  }
  TVMFunctionHandle f = NULL;
  if (c->callbacks.get_function != NULL && c->callbacks.get_function(c->ctx, name, &f) != 0) return -1;
  *out = f;
  return 0;
}

static int custom_save(TwModule* self, TilewrightStream* stream) {
  const Custom* c = self->data;
  if (c->callbacks.save == NULL) return tw_fail("a module of type %s cannot be saved", self->type_key);
  return c->callbacks.save(c->ctx, stream);
}

static int custom_get_source(TwModule* self, const char* format, TVMRetValueHandle ret) {
  const Custom* c = self->data;
  if (c->callbacks.get_source == NULL) return tw_fail("a module of type %s has no source text", self->type_key);
  return c->callbacks.get_source(c->ctx, format, ret);
}

static int custom_save_file(TwModule* self, const char* path, const char* format) {
  const Custom* c = self->data;
  return c->callbacks.save_file == NULL ? no_file(self) : c->callbacks.save_file(c->ctx, path, format);
}

static void custom_destroy(TwModule* self) {
  Custom* c = self->data;
  if (c->callbacks.finalize != NULL) c->callbacks.finalize(c->ctx);
  free(c);
}

static const TwModuleClass custom_class = {.get_function = custom_get_function, .save = custom_save,
                                           .get_source = custom_get_source, .destroy = custom_destroy,
                                           .save_file = custom_save_file};

int TilewrightModCreate(const char* type_key, const TilewrightModuleCallbacks* callbacks, void* ctx,
                        TVMModuleHandle* out) {
  Custom* c = malloc(sizeof *c);
  if (c == NULL) return tw_out_of_memory(sizeof *c);
  *c = (Custom){*callbacks, ctx};
  TwModule* m = tw_module_new(&custom_class, type_key, c);
  if (m == NULL) {
    free(c);
    return -1;
  }
  if (callbacks->resolve != NULL) tw_fill_context(callbacks->resolve, ctx, m);
  *out = m;
  return 0;
}

/* ---- what compiled code sees ---- */
#define CONTEXT_SYMBOLS(X)                                                                                       \
  X(TVMFuncCall) X(TVMAPISetLastError) X(TVMBackendGetFuncFromEnv) X(TVMBackendAllocWorkspace)                   \
  X(TVMBackendFreeWorkspace) X(TVMBackendParallelLaunch) X(TVMBackendParallelBarrier) X(TVMBackendRunOnce)

#define NAME_OF(symbol) #symbol,
static const char* const context_names[] = {CONTEXT_SYMBOLS(NAME_OF) NULL};

const char* const* TilewrightContextSymbolNames(void) { return context_names; }

void* TilewrightContextSymbol(const char* name) {
  void* address = NULL;
#define MATCH(symbol)                                \
  if (strcmp(name, #symbol) == 0) {                  \
    __typeof__(&symbol) function = &symbol;          \
    memcpy(&address, &function, sizeof address);     \
  }
  CONTEXT_SYMBOLS(MATCH)
  return address;
}

void tw_fill_context(void* (*lookup)(void* ctx, const char* name), void* ctx, TwModule* module) {
  char variable[64];
  for (const char* const* name = context_names; *name != NULL; ++name) {
    snprintf(variable, sizeof variable, "__%s", *name);
    void** cell = lookup(ctx, variable);
    if (cell != NULL) *cell = TilewrightContextSymbol(*name);
  }
  void** cell = lookup(ctx, "__tvm_module_ctx");
  if (cell != NULL) *cell = module;
}

/* Functions given to code without a module live as long as the process. */
static TwMap process_env;
static TwLock process_env_lock = TW_LOCK_INITIALIZER;

/* The function in what imports m, which may have it from another module beside m. A function of m itself does not keep m
 * alive: m is to keep it. */
static int find_beside(TwModule* m, const char* name, TwFunc** out) {
  TwModule* importer = importer_of(m);
  if (importer == NULL) return 0;
  int rc = tw_module_find(importer, name, true, out);
  if (rc == 0 && *out == NULL) rc = find_beside(importer, name, out);
  tw_module_release(importer);
  if (*out != NULL && (*out)->owner == m && atomic_load(&(*out)->refs) == 1) {
    (*out)->owner = NULL;
    tw_module_release(m);
  }
  return rc;
}

int TVMBackendGetFuncFromEnv(void* mod_node, const char* func_name, TVMFunctionHandle* out) {
  TwModule* m = mod_node;
  TwLock* lock = m == NULL ? &process_env_lock : &m->env_lock;
  TwMap* env = m == NULL ? &process_env : &m->env;
  tw_lock(lock);
  TwFunc* f = tw_map_get(env, func_name);
  tw_unlock(lock);
  if (f == NULL) {
    for (int i = 0; m != NULL && f == NULL && i < m->num_imports; ++i) {
      if (tw_module_find(m->imports[i], func_name, true, &f) != 0) return -1;
    }
    if (m != NULL && f == NULL && find_beside(m, func_name, &f) != 0) return -1;
    if (f == NULL) f = tw_find_global(func_name);
    if (f == NULL) return tw_fail("compiled code calls the function %s, which nobody provides", func_name);
    tw_lock(lock);
    TwFunc* other = tw_map_get(env, func_name);
    bool stored = other == NULL && tw_map_set(env, func_name, f);
    tw_unlock(lock);
    if (!stored) tw_func_release(f); /* another thread was first */
    if (!stored && other == NULL) return tw_out_of_memory(strlen(func_name));
    if (other != NULL) f = other;
  }
  *out = f;
  return 0;
}

/* Recursive: what runs once may itself run others once. */
static TwLock once_lock = TW_RECURSIVE_LOCK_INITIALIZER;
static int once_depth;      /* how many calls of the thread that has the lock are at work */
static unsigned once_forks; /* the process that the depth is of */

int TVMBackendRunOnce(void** handle, int (*f)(void*), void* cdata, int nbytes) {
  static char at_work, done; /* whose addresses are what a handle is */
  (void)nbytes;
  int rc = 0;
  tw_lock(&once_lock);
  if (once_forks != tw_forks()) once_depth = 0; /* a thread that was at work did not come along to this child */
  once_forks = tw_forks();
  if (*handle == NULL || (*handle == &at_work && once_depth == 0)) {
    *handle = &at_work;
    ++once_depth;
    rc = f(cdata);
    --once_depth;
    *handle = &done;
  }
  tw_unlock(&once_lock);
  return rc;
}
