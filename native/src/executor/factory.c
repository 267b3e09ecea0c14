/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * "GraphExecutorFactory": a graph and its parameters as a module, which makes executors. */
#include "graph.h"

typedef struct {
  char* json;
  size_t json_size;
  char* name;
  TwParams params;
  TwShared shared; /* under lock, as is lent */
  bool lent;       /* a caller has had a parameter and may write to it: executors to come must look again */
  TwLock lock;
} Factory;

static void free_factory(Factory* f) {
  if (f == NULL) return;
  free(f->json);
  free(f->name);
  tw_free_params(&f->params);
  tw_free_shared(&f->shared);
  tw_lock_destroy(&f->lock);
  free(f);
}

static Factory* empty_factory(void) {
  Factory* f = calloc(1, sizeof *f);
  if (f == NULL) {
    tw_out_of_memory(sizeof *f);
  } else {
    tw_lock_init(&f->lock);
  }
  return f;
}

static TwModule* first_import(const TwModule* m) { return m->num_imports == 0 ? NULL : m->imports[0]; }

/* Makes all parameters ready for use, with the lock held. */
static int settle_all(Factory* f) {
  int rc = 0;
  for (size_t i = 0; rc == 0 && i < f->params.count; ++i) rc = tw_array_settle(&f->params.arrays[i]);
  return rc;
}

static int new_executor(TwModule* self, const DLDevice* devices, int num_devices, TilewrightGraph** out) {
  Factory* f = self->data;
  tw_lock(&f->lock);
  TwShared* shared = f->lent ? NULL : &f->shared;
  int rc = settle_all(f);
  if (rc == 0) {
    rc = tw_graph_create(f->json, f->json_size, first_import(self), devices, num_devices, &f->params, shared, out);
  }
  tw_unlock(&f->lock);
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
  return rc != 0 ? -1 : tw_return_graph(graph, ret);
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
  tw_lock(&f->lock);
  f->lent = true;
  int rc = tw_array_settle(&f->params.arrays[i]);
  if (rc == 0) tw_return_handle(ret, tw_array_retain(f->params.arrays[i]), kTVMNDArrayHandle);
  tw_unlock(&f->lock);
  return rc;
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
  int rc = tw_arg_params(&f->params, args, codes, n, 3, (size_t)(n - 3) / 2, who);
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

TW_GLOBAL_FUNCTIONS({"tvm.graph_executor_factory.create", create_factory},
                    {"runtime.module.loadbinary_GraphExecutorFactory", load_factory},
                    {"runtime.module.loadbinary_GraphRuntimeFactory", load_factory} /* its name before TVM 0.8 */)
