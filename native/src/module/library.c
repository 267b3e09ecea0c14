/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Modules from shared libraries, and the system library of code linked into the program. */
#include "module.h"

#include "../core/system.h"

#include <errno.h>
#include <limits.h>
#ifndef _WIN32
#include <link.h>
#endif

#define HUGE_PAGES_FROM (4u << 20) /* bytes of a module table that holds a whole huge page, wherever it begins */

typedef struct Library {
  void* handle;
  TwMapping* mapping; /* of the handle; its arrays may outlive the module */
  TwModule* module;
  TwMap* kept; /* [num_kept] functions that modules before on the same code were given */
  size_t num_kept;
  struct Library* next;
} Library;

/* Loaded libraries. One file loaded twice is one copy in memory with one __tvm_module_ctx, which must stay valid
 * until the last module on it goes. */
static Library* libraries;
static TwLock libraries_lock = TW_LOCK_INITIALIZER;

/* The function of a name among the symbols that lookup finds; __tvm_main__ is a symbol that holds the name of one. */
static int find_compiled(TwModule* self, void* (*lookup)(void* ctx, const char* name), void* ctx, const char* name, TwFunc** out) {
  const char* entry = strcmp(name, "__tvm_main__") == 0 ? lookup(ctx, name) : name;
  void* address = entry == NULL ? NULL : lookup(ctx, entry);
  if (address == NULL) return 0;
  TVMBackendPackedCFunc code;
  memcpy(&code, &address, sizeof code);
  *out = tw_func_direct(code, self);
  return *out == NULL ? -1 : 0;
}

static void* lookup_symbol(void* ctx, const char* name) { return dlsym(((Library*)ctx)->handle, name); }

static int library_function(TwModule* self, const char* name, TwFunc** out) {
  return find_compiled(self, lookup_symbol, self->data, name, out);
}

static void release_func(void* f) { tw_func_release(f); }

/* Code remembers the functions that it was given: they stay with another module on it, where there is one. */
static void library_leave(TwModule* self) {
  Library* lib = self->data;
  tw_lock(&libraries_lock);
  Library* other = libraries;
  while (other != NULL && (other == lib || other->handle != lib->handle)) other = other->next;
  const size_t count = lib->num_kept + 1;
  TwMap* grown = other == NULL ? NULL : realloc(other->kept, (other->num_kept + count) * sizeof *grown);
  if (grown != NULL) {
    other->kept = grown;
    other->kept[other->num_kept++] = self->env;
    self->env = (TwMap){.slots = NULL};
    for (size_t i = 0; i < lib->num_kept; ++i) other->kept[other->num_kept++] = lib->kept[i];
    lib->num_kept = 0;
  }
  tw_unlock(&libraries_lock);
}

static void library_destroy(TwModule* self) {
  Library* lib = self->data;
  tw_lock(&libraries_lock);
  Library** link = &libraries;
  while (*link != lib) link = &(*link)->next;
  *link = lib->next;
  void** ctx = dlsym(lib->handle, "__tvm_module_ctx");
  if (ctx != NULL && *ctx == self) {
    Library* other = libraries;
    while (other != NULL && other->handle != lib->handle) other = other->next;
    *ctx = other == NULL ? NULL : other->module;
  }
  tw_unlock(&libraries_lock);
  for (size_t i = 0; i < lib->num_kept; ++i) tw_map_clear(&lib->kept[i], release_func);
  free(lib->kept);
  tw_mapping_release(lib->mapping);
  free(lib);
}

static const TwModuleClass library_class = {
    .get_function = library_function, .destroy = library_destroy, .leave = library_leave};

/* A module for a mapped library; takes the mapping over. */
static TwModule* wrap_library(TwMapping* mapping) {
  Library* lib = calloc(1, sizeof *lib);
  TwModule* m = lib == NULL ? NULL : tw_module_new(&library_class, "library", lib);
  if (m == NULL) {
    free(lib);
    tw_mapping_release(mapping);
    tw_out_of_memory(sizeof *lib);
    return NULL;
  }
  lib->handle = mapping->handle;
  lib->mapping = mapping;
  lib->module = m;
  tw_lock(&libraries_lock);
  lib->next = libraries;
  libraries = lib;
  tw_fill_context(lookup_symbol, lib, m);
  tw_unlock(&libraries_lock);
  return m;
}

/* Weights stay where the file is mapped. A network reads all of them in each run, and the processor then looks up an
 * address for 2 MiB instead of for 4 KiB. The linker has put them where it can (runtime/export.py). */
static void advise_weights(const char* start, uint64_t size) {
  uintptr_t page = (uintptr_t)tw_page_size(), first = (uintptr_t)start & ~(page - 1);
  if (size >= HUGE_PAGES_FROM) tw_advise_huge_pages((void*)first, (uintptr_t)start - first + size);
}

#ifndef _WIN32
typedef struct {
  uintptr_t address;
  bool writable;
} Place;

static int look_at_segments(struct dl_phdr_info* info, size_t size, void* data) {
  Place* place = data;
  (void)size;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    uintptr_t start = (uintptr_t)info->dlpi_addr + (uintptr_t)info->dlpi_phdr[i].p_vaddr;
    if (info->dlpi_phdr[i].p_type != PT_LOAD || place->address - start >= info->dlpi_phdr[i].p_memsz) continue;
    place->writable = (info->dlpi_phdr[i].p_flags & PF_W) != 0;
    return 1;
  }
  return 0;
}

/* Whether memory of a loaded library may be written to. On Windows system_windows.c has it. Callers may write to the parameters that they get, so those of a
 * table among constants, which is where TVM's libraries have it, must be copied. */
static bool tw_is_writable(const void* address) {
  Place place = {(uintptr_t)address, false};
  dl_iterate_phdr(look_at_segments, &place);
  return place.writable;
}
#endif

/* The root of a module table whose "_lib" is m, which it takes over; m itself where there is no table. */
static int open_table(TwModule* m, const char* blob, TwMapping* mapping, const char* path, TwModule** out) {
  uint64_t size;
  *out = m;
  if (blob == NULL) return 0;
  memcpy(&size, blob, sizeof size);
  advise_weights(blob, size);
  int rc = tw_load_blob(blob + sizeof size, (size_t)size, tw_is_writable(blob) ? mapping : NULL, path, m, out);
  tw_module_release(m); /* the root holds what it needs */
  return rc;
}

/* The module of a mapped library with its module table; takes the mapping over. */
static int open_module(TwMapping* mapping, const char* path, TwModule** out) {
  void* handle = mapping->handle;
  const char* features = dlsym(handle, "__tilewright_cpu_features");
  if (features != NULL && TilewrightCheckCpuFeatures(features, path) != 0) {
    tw_mapping_release(mapping);
    return -1;
  }
  TwModule* m = wrap_library(mapping);
  return m == NULL ? -1 : open_table(m, dlsym(handle, "__tvm_dev_mblob"), mapping, path, out);
}

int tw_library_open(const char* path, TwModule** out) {
  /* an absolute path, because dlopen searches the system's folders for a plain name */
  char* full = realpath(path, NULL);
  if (full == NULL) return tw_fail("cannot load %s: %s", path, strerror(errno));
  TwMapping* mapping = tw_elf_check(full) == 0 ? tw_map_file(full, path) : NULL;
  free(full);
  return mapping == NULL ? -1 : open_module(mapping, path, out);
}

int TilewrightModLoadSelf(TVMModuleHandle* out) {
  Dl_info info;
  TwModule* m;
  void* self = TilewrightContextSymbol("TVMFuncCall");
  if (dladdr(self, &info) == 0) return tw_fail("cannot find the library that this runtime is part of: %s", dlerror());
  /* inside the main program dlopen knows it by no name */
  void* handle = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  if (handle == NULL) handle = dlopen(NULL, RTLD_NOW);
  if (handle == NULL) return tw_fail("cannot look at %s: %s", info.dli_fname, dlerror());
  if (dlsym(handle, "__tvm_module_ctx") == NULL && dlsym(handle, "__tvm_dev_mblob") == NULL) {
    dlclose(handle);
    return tw_fail("%s holds no compiled model beside the runtime (a program needs -rdynamic to show one)",
                   info.dli_fname);
  }
  TwMapping* mapping = tw_map_open(handle);
  if (mapping == NULL || open_module(mapping, info.dli_fname, &m) != 0) return -1;
  *out = m;
  return 0;
}

/* ---- models linked into the program under names of their own ---- */
typedef struct Linked {
  const TilewrightSymbol* symbols;
  TwModule* root; /* stays: the code refers to the module */
  struct Linked* next;
} Linked;

static Linked* linked;
static TwLock linked_lock = TW_LOCK_INITIALIZER;
static TwMapping program = {.refs = 1}; /* the running program, which is not unmapped */

static void* linked_symbol(void* ctx, const char* name) {
  const TilewrightSymbol* symbol = ctx;
  while (symbol->name != NULL && strcmp(symbol->name, name) != 0) ++symbol;
  return symbol->address;
}

static int linked_function(TwModule* self, const char* name, TwFunc** out) {
  return find_compiled(self, linked_symbol, self->data, name, out);
}

static const TwModuleClass linked_class = {.get_function = linked_function};

/* Opens a model that is not open yet, with the lock held. */
static Linked* open_linked(const TilewrightSymbol* symbols) {
  void* ctx = (void*)symbols;
  const char* features = linked_symbol(ctx, "__tilewright_cpu_features");
  if (features != NULL && TilewrightCheckCpuFeatures(features, "the linked model") != 0) return NULL;
  Linked* found = calloc(1, sizeof *found);
  TwModule* m = found == NULL ? NULL : tw_module_new(&linked_class, "library", ctx);
  if (m == NULL) {
    free(found);
    tw_out_of_memory(sizeof *found);
    return NULL;
  }
  tw_fill_context(linked_symbol, ctx, m);
  if (open_table(m, linked_symbol(ctx, "__tvm_dev_mblob"), &program, NULL, &found->root) != 0) {
    free(found);
    return NULL;
  }
  found->symbols = symbols;
  found->next = linked;
  return linked = found;
}

int TilewrightModFromSymbols(const TilewrightSymbol* symbols, TVMModuleHandle* out) {
  if (symbols == NULL) return tw_fail("a linked model needs its table of symbols");
  tw_lock(&linked_lock);
  Linked* found = linked;
  while (found != NULL && found->symbols != symbols) found = found->next;
  if (found == NULL) found = open_linked(symbols);
  if (found != NULL) *out = tw_module_retain(found->root);
  tw_unlock(&linked_lock);
  return found == NULL ? -1 : 0;
}

/* ---- the system library ---- */
static TwMap system_symbols;
static TwModule* system_module;
static TwLock system_lock = TW_LOCK_INITIALIZER;

static void* system_symbol(void* ctx, const char* name) {
  (void)ctx;
  tw_lock(&system_lock);
  void* address = tw_map_get(&system_symbols, name);
  tw_unlock(&system_lock);
  return address;
}

static int system_function(TwModule* self, const char* name, TwFunc** out) {
  return find_compiled(self, system_symbol, NULL, name, out);
}

static const TwModuleClass system_class = {.get_function = system_function};

/* A new reference to the module of everything registered so far. */
TwModule* tw_system_lib(void) {
  tw_lock(&system_lock);
  if (system_module == NULL) system_module = tw_module_new(&system_class, "system_lib", NULL);
  TwModule* m = system_module == NULL ? NULL : tw_module_retain(system_module);
  void** ctx = tw_map_get(&system_symbols, "__tvm_module_ctx");
  if (ctx != NULL) *ctx = m;
  tw_unlock(&system_lock);
  return m;
}

int TVMBackendRegisterSystemLibSymbol(const char* name, void* ptr) {
  tw_lock(&system_lock);
  const void* before = tw_map_get(&system_symbols, name);
  bool ok = tw_map_set(&system_symbols, name, ptr);
  tw_unlock(&system_lock);
  if (before != NULL && before != ptr && strncmp(name, "__", 2) != 0) {
    char text[512];
    snprintf(text, sizeof text, "the system library has two functions %s, and takes the later; give networks names (mod_name)", name);
    tw_warn(text);
  }
  return ok ? 0 : tw_out_of_memory(strlen(name));
}

/* ---- loaders ---- */
/* runtime.module.loadfile_so(path, format) */
static int load_file(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  const char* path;
  TwModule* m;
  (void)resource;
  if (tw_arg_str(args, codes, n, 0, "runtime.module.loadfile_so", &path) != 0) return -1;
  if (tw_library_open(path, &m) != 0) return -1;
  tw_return_handle(ret, m, kTVMModuleHandle);
  return 0;
}

/* runtime.SystemLib() */
static int system_lib(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  (void)args;
  (void)codes;
  (void)n;
  (void)resource;
  TwModule* m = tw_system_lib();
  if (m == NULL) return -1;
  tw_return_handle(ret, m, kTVMModuleHandle);
  return 0;
}

TW_GLOBAL_FUNCTIONS({"runtime.module.loadfile_so", load_file}, {"runtime.SystemLib", system_lib})
