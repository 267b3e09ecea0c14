/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * "metadata": the constants of modules that other code generators have made, handed to each when it is first asked for. */
#include "module.h"

typedef struct {
  TwParams constants;
  char** symbols; /* functions whose modules want constants */
  size_t num_symbols;
  char*** wanted; /* [num_symbols]: the constants' names, in order */
  size_t* num_wanted;
  bool* ready; /* [num_symbols], under lock */
  TwLock lock;
} Metadata;

static void metadata_free(Metadata* d) {
  for (size_t i = 0; i < d->num_symbols; ++i) {
    if (d->wanted != NULL) tw_free_strings(d->wanted[i], d->num_wanted[i]);
  }
  tw_free_strings(d->symbols, d->num_symbols);
  free(d->wanted);
  free(d->num_wanted);
  free(d->ready);
  tw_free_params(&d->constants);
  tw_lock_destroy(&d->lock);
  free(d);
}

static TwArray* find_constant(const Metadata* d, const char* name) {
  for (size_t i = 0; i < d->constants.count; ++i) {
    if (strcmp(d->constants.names[i], name) == 0) return d->constants.arrays[i];
  }
  return NULL;
}

/* Hands a module its constants through its function "__init_<symbol>". */
static int initialize_symbol(TwModule* self, Metadata* d, size_t index) {
  size_t count = d->num_wanted[index], size = strlen(d->symbols[index]) + 8;
  char* name = malloc(size);
  TVMValue* args = calloc(count + 1, sizeof *args);
  int* codes = calloc(count + 1, sizeof *codes);
  TwFunc* init = NULL;
  int rc = name == NULL || args == NULL || codes == NULL ? tw_out_of_memory(size) : 0;
  if (rc == 0) snprintf(name, size, "__init_%s", d->symbols[index]);
  for (int i = 0; rc == 0 && init == NULL && i < self->num_imports; ++i) {
    rc = tw_module_find(self->imports[i], name, true, &init);
  }
  for (size_t i = 0; rc == 0 && i < count; ++i) {
    args[i].v_handle = find_constant(d, d->wanted[index][i]);
    codes[i] = kTVMNDArrayHandle;
    if (args[i].v_handle == NULL) rc = tw_fail("constant \"%s\" is missing in the library", d->wanted[index][i]);
  }
  if (rc == 0 && init == NULL && count > 0) {
    rc = tw_fail("the module of %s needs constants but has no function %s", d->symbols[index], name);
  }
  if (rc == 0 && init != NULL) {
    TVMValue ret;
    int code;
    rc = TVMFuncCall(init, args, codes, (int)count, &ret, &code);
  }
  tw_func_release(init);
  free(name);
  free(args);
  free(codes);
  return rc;
}

static int metadata_function(TwModule* self, const char* name, TwFunc** out) {
  Metadata* d = self->data;
  for (size_t i = 0; i < d->num_symbols; ++i) {
    if (strcmp(d->symbols[i], name) != 0) continue;
    tw_lock(&d->lock);
    int rc = d->ready[i] ? 0 : initialize_symbol(self, d, i);
    if (rc == 0) d->ready[i] = true;
    tw_unlock(&d->lock);
    if (rc != 0) return -1;
  }
  for (int i = 0; *out == NULL && i < self->num_imports; ++i) {
    if (tw_module_find(self->imports[i], name, true, out) != 0) return -1;
  }
  return 0;
}

static int metadata_save(TwModule* self, TilewrightStream* s) {
  const Metadata* d = self->data;
  if (tw_write_strings(s, d->constants.names, d->constants.count) != 0 || tw_write_u64(s, d->constants.count) != 0) {
    return -1;
  }
  for (size_t i = 0; i < d->constants.count; ++i) {
    if (tw_write_array(s, d->constants.arrays[i]) != 0) return -1;
  }
  if (tw_write_strings(s, d->symbols, d->num_symbols) != 0 || tw_write_u64(s, d->num_symbols) != 0) return -1;
  for (size_t i = 0; i < d->num_symbols; ++i) {
    if (tw_write_strings(s, d->wanted[i], d->num_wanted[i]) != 0) return -1;
  }
  return 0;
}

static void metadata_destroy(TwModule* self) { metadata_free(self->data); }

static const TwModuleClass metadata_class = {
    .get_function = metadata_function, .save = metadata_save, .destroy = metadata_destroy};

/* Makes room for what "count" symbols want; the symbols themselves are not part of it. */
static int allocate_wanted(Metadata* d, size_t count) {
  d->wanted = calloc(count + 1, sizeof *d->wanted);
  d->num_wanted = calloc(count + 1, sizeof *d->num_wanted);
  d->ready = calloc(count + 1, sizeof *d->ready);
  return d->wanted == NULL || d->num_wanted == NULL || d->ready == NULL ? tw_out_of_memory(count) : 0;
}

static int read_symbols(Metadata* d, TilewrightStream* s) {
  uint64_t count;
  if (tw_read_strings(s, &d->symbols, &d->num_symbols) != 0 || tw_read_u64(s, &count) != 0) return -1;
  if (count != d->num_symbols) return tw_fail("damaged module table: constants of %zu symbols", d->num_symbols);
  if (allocate_wanted(d, d->num_symbols) != 0) return -1;
  for (size_t i = 0; i < count; ++i) {
    if (tw_read_strings(s, &d->wanted[i], &d->num_wanted[i]) != 0) return -1;
  }
  return 0;
}

static int read_constants(Metadata* d, TilewrightStream* s) {
  uint64_t count;
  TwParams* p = &d->constants;
  if (tw_read_strings(s, &p->names, &p->count) != 0) return -1;
  p->arrays = calloc(p->count + 1, sizeof(TwArray*));
  if (p->arrays == NULL) return tw_out_of_memory(p->count * sizeof(TwArray*));
  if (tw_read_u64(s, &count) != 0) return -1;
  if (count != p->count) return tw_fail("damaged module table: %zu names of constants", p->count);
  for (size_t i = 0; i < p->count; ++i) {
    if (tw_read_array(s, &p->arrays[i]) != 0) return -1;
  }
  return 0;
}

/* A number of things that follow, at most as many as there are arguments. */
static int count_of_args(TVMValue* args, int* codes, int n, int at, const char* who, size_t* out) {
  int64_t count;
  if (tw_arg_int(args, codes, n, at, who, &count) != 0) return -1;
  if (count < 0 || count > n) return tw_fail("%s: argument %d is a number of things that follow", who, at);
  *out = (size_t)count;
  return 0;
}

/* Takes up the symbols, each with the names of the constants that it wants, from the argument "at" on. */
static int symbols_of_args(Metadata* d, TVMValue* args, int* codes, int n, int at, const char* who) {
  size_t count;
  if (count_of_args(args, codes, n, at++, who, &count) != 0) return -1;
  d->symbols = calloc(count + 1, sizeof *d->symbols);
  if (d->symbols == NULL) return tw_out_of_memory(count);
  if (allocate_wanted(d, count) != 0) return -1;
  for (size_t i = 0; i < count; ++i) {
    const char* text;
    size_t wanted;
    if (tw_arg_str(args, codes, n, at++, who, &text) != 0) return -1;
    if ((d->symbols[i] = tw_strdup(text)) == NULL) return tw_out_of_memory(strlen(text));
    d->num_symbols = i + 1;
    if (count_of_args(args, codes, n, at++, who, &wanted) != 0) return -1;
    if ((d->wanted[i] = calloc(wanted + 1, sizeof(char*))) == NULL) return tw_out_of_memory(wanted);
    for (size_t k = 0; k < wanted; ++k) {
      if (tw_arg_str(args, codes, n, at++, who, &text) != 0) return -1;
      if ((d->wanted[i][k] = tw_strdup(text)) == NULL) return tw_out_of_memory(strlen(text));
      d->num_wanted[i] = k + 1;
    }
  }
  return 0;
}

static Metadata* metadata_new(void) {
  Metadata* d = calloc(1, sizeof *d);
  if (d == NULL) {
    tw_out_of_memory(sizeof *d);
    return NULL;
  }
  tw_lock_init(&d->lock);
  return d;
}

/* Ends a constructor: returns the module that owns "d", or frees it where filling it failed. */
static int return_metadata(Metadata* d, int rc, TVMRetValueHandle ret) {
  TwModule* m = rc == 0 ? tw_module_new(&metadata_class, "metadata", d) : NULL;
  if (m == NULL) {
    metadata_free(d);
    return -1;
  }
  tw_return_handle(ret, m, kTVMModuleHandle);
  return 0;
}

/* runtime.MetadataModuleCreate(n, name, array, ..., m, symbol, k, name, ..., ...): n constants, then m symbols, each
 * with the k constants that it wants. */
static int create_metadata(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  static const char who[] = "runtime.MetadataModuleCreate";
  size_t count;
  (void)resource;
  if (count_of_args(args, codes, n, 0, who, &count) != 0) return -1;
  Metadata* d = metadata_new();
  if (d == NULL) return -1;
  int rc = tw_arg_params(&d->constants, args, codes, n, 1, count, who);
  if (rc == 0) rc = symbols_of_args(d, args, codes, n, 1 + 2 * (int)count, who);
  return return_metadata(d, rc, ret);
}

/* runtime.module.loadbinary_metadata(stream) */
static int load_metadata(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  TilewrightStream* s;
  (void)resource;
  if (tw_loader_stream(args, codes, n, "runtime.module.loadbinary_metadata", &s) != 0) return -1;
  Metadata* d = metadata_new();
  if (d == NULL) return -1;
  int rc = read_constants(d, s);
  if (rc == 0) rc = read_symbols(d, s);
  return return_metadata(d, rc, ret);
}

TW_GLOBAL_FUNCTIONS({"runtime.MetadataModuleCreate", create_metadata},
                    {"runtime.module.loadbinary_metadata", load_metadata},
                    {"runtime.module.loadbinary_const_loader", load_metadata} /* its name from TVM 0.9 on */)
