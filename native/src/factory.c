/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Two modules that an exported model consists of beside its code: "GraphExecutorFactory" (the graph and its
 * parameters; makes executors), and "metadata" (constants for modules of other code generators). */
#include "graph.h"

/* ---- GraphExecutorFactory ---- */
typedef struct {
  char* json;
  size_t json_size;
  char* name;
  TwParams params;
  TwShared shared; /* under lock, as is lent */
  bool lent;       /* a caller has had a parameter and may write to it: executors to come must look again */
  pthread_mutex_t lock;
} Factory;

static void free_factory(Factory* f) {
  if (f == NULL) return;
  free(f->json);
  free(f->name);
  tw_free_params(&f->params);
  tw_free_shared(&f->shared);
  pthread_mutex_destroy(&f->lock);
  free(f);
}

static Factory* empty_factory(void) {
  Factory* f = calloc(1, sizeof *f);
  if (f == NULL) {
    tw_out_of_memory(sizeof *f);
  } else {
    pthread_mutex_init(&f->lock, NULL);
  }
  return f;
}

static TwModule* first_import(const TwModule* m) { return m->num_imports == 0 ? NULL : m->imports[0]; }

static int new_executor(TwModule* self, const DLDevice* devices, int num_devices, TilewrightGraph** out) {
  Factory* f = self->data;
  pthread_mutex_lock(&f->lock);
  TwShared* shared = f->lent ? NULL : &f->shared;
  int rc =
      tw_graph_create(f->json, f->json_size, first_import(self), devices, num_devices, &f->params, shared, out);
  pthread_mutex_unlock(&f->lock);
  return rc;
}

static int make_executor(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  TwModule* self = resource;
  const Factory* f = self->data;
  DLDevice* devices;
  TilewrightGraph* graph;
  int count;
  if (tw_arg_devices(args, codes, n, 0, f->name, &devices, &count) != 0) return -1;
  int rc = new_executor(self, devices, count, &graph);
  free(devices);
  if (rc != 0) return -1;
  TwModule* m = tw_graph_module(graph);
  if (m == NULL) return -1;
  tw_return_handle(ret, m, kTVMModuleHandle);
  return 0;
}

/* debug_create(name, device, ...): TVM's way to an executor that can be looked into, as every one here can. */
static int debug_create(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  const Factory* f = ((TwModule*)resource)->data;
  const char* name;
  if (tw_arg_str(args, codes, n, 0, "debug_create", &name) != 0) return -1;
  if (strcmp(name, f->name) != 0) return tw_fail("debug_create: there is no model \"%s\"; the module has \"%s\"", name, f->name);
  return make_executor(args + 1, codes + 1, n - 1, ret, resource);
}

static int get_graph_json(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  const Factory* f = ((TwModule*)resource)->data;
  (void)args;
  (void)codes;
  (void)n;
  return tw_return_string(ret, f->json);
}

static int get_num_params(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  const Factory* f = ((TwModule*)resource)->data;
  (void)args;
  (void)codes;
  (void)n;
  tw_return_int(ret, (int64_t)f->params.count);
  return 0;
}

static int param_argument(const Factory* f, TVMValue* args, int* codes, int n, size_t* index) {
  int64_t i;
  if (tw_arg_int(args, codes, n, 0, "get_param", &i) != 0) return -1;
  if (i < 0 || (size_t)i >= f->params.count) return tw_fail("the module has no parameter %lld", (long long)i);
  *index = (size_t)i;
  return 0;
}

static int get_param_name(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  const Factory* f = ((TwModule*)resource)->data;
  size_t i;
  return param_argument(f, args, codes, n, &i) != 0 ? -1 : tw_return_string(ret, f->params.names[i]);
}

static int get_param(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  Factory* f = ((TwModule*)resource)->data;
  size_t i;
  if (param_argument(f, args, codes, n, &i) != 0) return -1;
  pthread_mutex_lock(&f->lock);
  f->lent = true;
  pthread_mutex_unlock(&f->lock);
  tw_return_handle(ret, tw_array_retain(f->params.arrays[i]), kTVMNDArrayHandle);
  return 0;
}

static int remove_params(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource);

static int factory_function(TwModule* self, const char* name, TwFunc** out) {
  static const struct {
    const char* name;
    TVMPackedCFunc callback;
  } methods[] = {{"get_graph_json", get_graph_json}, {"get_num_params", get_num_params},
                 {"get_param_name", get_param_name}, {"get_param", get_param},
                 {"remove_params", remove_params}, {"debug_create", debug_create}};
  const Factory* f = self->data;
  TVMPackedCFunc callback = strcmp(name, f->name) == 0 ? make_executor : NULL;
  for (size_t i = 0; callback == NULL && i < sizeof methods / sizeof methods[0]; ++i) {
    if (strcmp(methods[i].name, name) == 0) callback = methods[i].callback;
  }
  if (callback == NULL) return 0;
  *out = tw_func_method(callback, self);
  return *out == NULL ? -1 : 0;
}

static int factory_save(TwModule* self, TilewrightStream* s) {
  const Factory* f = self->data;
  if (tw_write_string(s, f->json, f->json_size) != 0 || tw_write_named(s, &f->params) != 0) return -1;
  return tw_write_string(s, f->name, strlen(f->name));
}

static void factory_destroy(TwModule* self) { free_factory(self->data); }

static const TwModuleClass factory_class = {
    .get_function = factory_function, .save = factory_save, .destroy = factory_destroy};

/* Takes f over. */
static TwModule* factory_module(Factory* f) {
  TwModule* m = tw_module_new(&factory_class, "GraphExecutorFactory", f);
  if (m == NULL) free_factory(f);
  return m;
}

static Factory* new_factory(const char* json, size_t json_size, const char* name) {
  Factory* f = empty_factory();
  if (f == NULL) return NULL;
  f->json = malloc(json_size + 1);
  f->name = tw_strdup(name);
  if (f->json == NULL || f->name == NULL) {
    free_factory(f);
    tw_out_of_memory(json_size);
    return NULL;
  }
  memcpy(f->json, json, json_size);
  f->json[json_size] = '\0';
  f->json_size = json_size;
  return f;
}

/* The same graph and code without parameters, for exporting them apart. */
static int remove_params(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  TwModule* self = resource;
  const Factory* f = self->data;
  (void)args;
  (void)codes;
  (void)n;
  Factory* bare = new_factory(f->json, f->json_size, f->name);
  TwModule* m = bare == NULL ? NULL : factory_module(bare);
  if (m == NULL) return -1;
  for (int i = 0; i < self->num_imports; ++i) {
    if (tw_module_import(m, self->imports[i]) != 0) {
      tw_module_release(m);
      return -1;
    }
  }
  tw_return_handle(ret, m, kTVMModuleHandle);
  return 0;
}

/* runtime.module.loadbinary_GraphExecutorFactory(stream) */
static int load_factory(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  TilewrightStream* s;
  (void)resource;
  if (tw_loader_stream(args, codes, n, "runtime.module.loadbinary_GraphExecutorFactory", &s) != 0) return -1;
  Factory* f = empty_factory();
  if (f == NULL) return -1;
  int rc = tw_read_string(s, &f->json, &f->json_size);
  if (rc == 0) rc = tw_read_named(s, &f->params);
  if (rc == 0) rc = tw_read_string(s, &f->name, NULL);
  if (rc != 0) {
    free_factory(f);
    return -1;
  }
  TwModule* m = factory_module(f);
  if (m == NULL) return -1;
  tw_return_handle(ret, m, kTVMModuleHandle);
  return 0;
}

/* Takes up "count" pairs of name and array, from the argument "at" on. What was taken is in p also when it fails. */
static int params_of_args(TwParams* p, TVMValue* args, int* codes, int n, int at, size_t count, const char* who) {
  p->names = calloc(count + 1, sizeof(char*));
  p->arrays = calloc(count + 1, sizeof(TwArray*));
  if (p->names == NULL || p->arrays == NULL) return tw_out_of_memory(count * sizeof(char*));
  for (size_t i = 0; i < count; ++i, at += 2) {
    const char* name;
    if (tw_arg_str(args, codes, n, at, who, &name) != 0) return -1;
    if (at + 1 >= n || codes[at + 1] != kTVMNDArrayHandle) {
      return tw_fail("%s: parameter \"%s\" must be an NDArray", who, name);
    }
    if ((p->names[i] = tw_strdup(name)) == NULL) return tw_out_of_memory(strlen(name));
    p->arrays[i] = tw_array_retain(args[at + 1].v_handle);
    p->count = i + 1;
  }
  return 0;
}

/* tvm.graph_executor_factory.create(graph_json, lib, name, param_name, param, ...) */
static int create_factory(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  static const char who[] = "tvm.graph_executor_factory.create";
  TVMByteArray json;
  TwModule* lib;
  const char* name;
  (void)resource;
  if (tw_arg_bytes(args, codes, n, 0, who, &json) != 0 || tw_arg_module(args, codes, n, 1, who, &lib) != 0 ||
      tw_arg_str(args, codes, n, 2, who, &name) != 0) {
    return -1;
  }
  if (n % 2 == 0) return tw_fail("%s: parameters must come as pairs of name and array", who);
  Factory* f = new_factory(json.data, json.size, name);
  if (f == NULL) return -1;
  f->lent = true;
  int rc = params_of_args(&f->params, args, codes, n, 3, (size_t)(n - 3) / 2, who);
  if (rc != 0) {
    free_factory(f);
    return -1;
  }
  TwModule* m = factory_module(f);
  if (m == NULL) return -1;
  if (tw_module_import(m, lib) != 0) {
    tw_module_release(m);
    return -1;
  }
  tw_return_handle(ret, m, kTVMModuleHandle);
  return 0;
}

/* ---- metadata ---- */
typedef struct {
  TwParams constants;
  char** symbols; /* functions whose modules want constants */
  size_t num_symbols;
  char*** wanted; /* [num_symbols]: the constants' names, in order */
  size_t* num_wanted;
  bool* ready; /* [num_symbols], under lock */
  pthread_mutex_t lock;
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
  pthread_mutex_destroy(&d->lock);
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
    pthread_mutex_lock(&d->lock);
    int rc = d->ready[i] ? 0 : initialize_symbol(self, d, i);
    if (rc == 0) d->ready[i] = true;
    pthread_mutex_unlock(&d->lock);
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

static int read_symbols(Metadata* d, TilewrightStream* s) {
  uint64_t count;
  if (tw_read_strings(s, &d->symbols, &d->num_symbols) != 0 || tw_read_u64(s, &count) != 0) return -1;
  if (count != d->num_symbols) return tw_fail("damaged module table: constants of %zu symbols", d->num_symbols);
  d->wanted = calloc((size_t)count + 1, sizeof *d->wanted);
  d->num_wanted = calloc((size_t)count + 1, sizeof *d->num_wanted);
  d->ready = calloc((size_t)count + 1, sizeof *d->ready);
  if (d->wanted == NULL || d->num_wanted == NULL || d->ready == NULL) return tw_out_of_memory((size_t)count);
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
  d->wanted = calloc(count + 1, sizeof *d->wanted);
  d->num_wanted = calloc(count + 1, sizeof *d->num_wanted);
  d->ready = calloc(count + 1, sizeof *d->ready);
  if (d->symbols == NULL || d->wanted == NULL || d->num_wanted == NULL || d->ready == NULL) {
    return tw_out_of_memory(count);
  }
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

/* runtime.MetadataModuleCreate(n, name, array, ..., m, symbol, k, name, ..., ...): n constants, then m symbols, each
 * with the k constants that it wants. */
static int create_metadata(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  static const char who[] = "runtime.MetadataModuleCreate";
  size_t count;
  (void)resource;
  if (count_of_args(args, codes, n, 0, who, &count) != 0) return -1;
  Metadata* d = calloc(1, sizeof *d);
  if (d == NULL) return tw_out_of_memory(sizeof *d);
  pthread_mutex_init(&d->lock, NULL);
  TwModule* m = NULL;
  if (params_of_args(&d->constants, args, codes, n, 1, count, who) == 0 &&
      symbols_of_args(d, args, codes, n, 1 + 2 * (int)count, who) == 0) {
    m = tw_module_new(&metadata_class, "metadata", d);
  }
  if (m == NULL) {
    metadata_free(d);
    return -1;
  }
  tw_return_handle(ret, m, kTVMModuleHandle);
  return 0;
}

/* runtime.module.loadbinary_metadata(stream) */
static int load_metadata(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  TilewrightStream* s;
  (void)resource;
  if (tw_loader_stream(args, codes, n, "runtime.module.loadbinary_metadata", &s) != 0) return -1;
  Metadata* d = calloc(1, sizeof *d);
  if (d == NULL) return tw_out_of_memory(sizeof *d);
  pthread_mutex_init(&d->lock, NULL);
  TwModule* m = NULL;
  if (read_constants(d, s) == 0 && read_symbols(d, s) == 0) m = tw_module_new(&metadata_class, "metadata", d);
  if (m == NULL) {
    metadata_free(d);
    return -1;
  }
  tw_return_handle(ret, m, kTVMModuleHandle);
  return 0;
}

/* ---- plain C entry ---- */
int TilewrightGraphFromModuleOn(TVMModuleHandle lib, const char* name, const DLDevice* devices, int num_devices,
                                TilewrightGraph** out) {
  TwModule* m = lib;
  if (m->cls != &factory_class || strcmp(((const Factory*)m->data)->name, name) != 0) {
    return tw_fail("the module holds no graph named \"%s\"", name);
  }
  return new_executor(m, devices, num_devices, out);
}

int TilewrightGraphFromModule(TVMModuleHandle lib, const char* name, DLDevice device, TilewrightGraph** out) {
  return TilewrightGraphFromModuleOn(lib, name, &device, 1, out);
}

void tw_register_factory_functions(void) {
  tw_register_builtin("tvm.graph_executor_factory.create", create_factory);
  tw_register_builtin("runtime.module.loadbinary_GraphExecutorFactory", load_factory);
  tw_register_builtin("runtime.module.loadbinary_GraphRuntimeFactory", load_factory); /* its name before TVM 0.8 */
  tw_register_builtin("runtime.MetadataModuleCreate", create_metadata);
  tw_register_builtin("runtime.module.loadbinary_metadata", load_metadata);
  tw_register_builtin("runtime.module.loadbinary_const_loader", load_metadata); /* its name from TVM 0.9 on */
}
