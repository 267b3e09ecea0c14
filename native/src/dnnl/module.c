/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * "dnnl_json" as a module, saved in TVM 0.8's bytes: the symbol, the JSON, the names of the constants. Its function takes
 * the inputs, then the results. Primitives are made when it is given its constants, or on the first call where it has none. */
#include "dnnl.h"

typedef struct {
  char *symbol, *json;
  size_t json_size;
  char** constants;
  size_t num_constants;
  TwLock lock; /* of what follows: calls wait for one another */
  TwArray** values;     /* [num_constants] once they are given */
  TwNet net;
  bool ready;
} Region;

static void drop_net(Region* d) {
  tw_net_free(&d->net);
  d->net = (TwNet){.api = NULL};
  for (size_t i = 0; d->values != NULL && i < d->num_constants; ++i) tw_array_release(d->values[i]);
  free(d->values);
  d->values = NULL;
  d->ready = false;
}

static void free_region(Region* d) {
  if (d == NULL) return;
  drop_net(d);
  free(d->symbol);
  free(d->json);
  tw_free_strings(d->constants, d->num_constants);
  tw_lock_destroy(&d->lock);
  free(d);
}

/* ---- initialization ---- */
/* The JSON's constants and those that are handed over are the same, in the same order. */
static int check_constants(const Region* d, const TwRegion* r) {
  int at = 0;
  if ((size_t)r->num_constants != d->num_constants) {
    return tw_fail("dnnl_json: %s has %d constants in its graph and %zu names of constants", d->symbol, r->num_constants,
                   d->num_constants);
  }
  for (int i = 0; i < r->num_nodes; ++i) {
    const TwNode* n = &r->nodes[i];
    if (n->kind != TW_CONST) continue;
    if (strcmp(n->name, d->constants[at]) != 0) {
      return tw_node_fail(r, n, "the constant at this place is \"%s\" in the list of names", d->constants[at]);
    }
    ++at;
  }
  return 0;
}

static int check_tensor(const TwRegion* r, const TwNode* n, const TwShape* shape, const DLTensor* t) {
  char found[128], type[24];
  if (t->dtype.code != kDLFloat || t->dtype.bits != 32 || t->dtype.lanes != 1) {
    return tw_node_fail(r, n, "it is given a tensor of %s; expected float32", tw_type_name(t->dtype, type));
  }
  if (t->ndim != shape->ndim || !tw_same_shape(t->ndim, t->shape, shape->dims)) {
    return tw_node_fail(r, n, "it is given a tensor of shape %s, which is not what the graph says",
                        tw_shape_text(t, found, sizeof found));
  }
  return n->kind == TW_CONST || tw_is_compact(t) ? 0 : tw_node_fail(r, n, "it is given a tensor with strides; expected a compact one");
}

static void* data_of(const DLTensor* t) { return (char*)t->data + t->byte_offset; }

static int build(Region* d) {
  const DLTensor** tensors = calloc(d->num_constants + 1, sizeof *tensors);
  size_t at = 0;
  int rc = tensors == NULL ? tw_out_of_memory(d->num_constants * sizeof *tensors) : 0;
  if (rc == 0) rc = tw_region_parse(d->json, d->json_size, &d->net.region);
  if (rc == 0) rc = check_constants(d, &d->net.region);
  const TwRegion* r = &d->net.region;
  for (int i = 0; rc == 0 && i < r->num_nodes; ++i) {
    if (r->nodes[i].kind != TW_CONST) continue;
    const DLTensor* t = &d->values[at]->tensor;
    rc = check_tensor(r, &r->nodes[i], &r->nodes[i].shapes[0], t);
    tensors[at++] = t;
  }
  if (rc == 0) rc = (d->net.api = tw_onednn()) == NULL ? -1 : 0;
  if (rc == 0) tw_dnnl_use_threads();
  if (rc == 0) rc = tw_net_build(&d->net, tensors);
  free(tensors);
  d->ready = rc == 0;
  return rc;
}

/* "__init_SYMBOL": takes the constants, each an argument. */
static int initialize(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  Region* d = ((TwModule*)resource)->data;
  if ((size_t)n != d->num_constants) {
    return tw_fail("__init_%s: it takes %zu constants and is given %d", d->symbol, d->num_constants, n);
  }
  for (int i = 0; i < n; ++i) {
    if (codes[i] != kTVMNDArrayHandle) return tw_fail("__init_%s: its argument %d is no array", d->symbol, i);
  }
  tw_lock(&d->lock);
  drop_net(d);
  d->values = calloc((size_t)n + 1, sizeof *d->values);
  int rc = d->values == NULL ? tw_out_of_memory((size_t)n * sizeof *d->values) : 0;
  for (int i = 0; rc == 0 && i < n; ++i) d->values[i] = tw_array_retain(args[i].v_handle);
  if (rc == 0) rc = build(d);
  tw_unlock(&d->lock);
  if (rc == 0) tw_return_int(ret, 0);
  return rc;
}

/* ---- running ---- */
static int check_arguments(const Region* d, const TVMValue* args, const int* codes, int n) {
  const TwRegion* r = &d->net.region;
  int at = 0;
  if (n != r->num_inputs + r->num_heads) {
    return tw_fail("%s: it takes %d tensors and %d results, and is given %d", d->symbol, r->num_inputs, r->num_heads, n);
  }
  for (int i = 0; i < n; ++i) {
    if (codes[i] != kTVMNDArrayHandle && codes[i] != kTVMDLTensorHandle) {
      return tw_fail("%s: its argument %d is no tensor", d->symbol, i);
    }
  }
  for (int i = 0; i < r->num_nodes; ++i) {
    const TwNode* node = &r->nodes[i];
    for (int k = 0; node->kind == TW_INPUT && k < node->num_outputs; ++k) {
      if (check_tensor(r, node, &node->shapes[k], args[at++].v_handle) != 0) return -1;
    }
  }
  for (int i = 0; i < r->num_heads; ++i) {
    const TwNode* node = &r->nodes[r->heads[i].node];
    if (check_tensor(r, node, &node->shapes[r->heads[i].output], args[at++].v_handle) != 0) return -1;
  }
  return 0;
}

static int execute(Region* d, const TVMValue* args) {
  TwNet* net = &d->net;
  int status = ONEDNN_SUCCESS;
  for (int i = 0; i < net->num_tensors; ++i) {
    const TwBuffer* b = &net->buffers[net->tensors[i].buffer];
    if (b->kind != TW_ARGUMENT) continue;
    net->api->memory_set_data_handle(net->tensors[i].memory, data_of(args[b->argument].v_handle));
  }
  /* Waiting for each is faster than queueing them: SYCL then runs a primitive in 9 us and not in 20 to 100. */
  for (int i = 0; i < net->num_steps && status == ONEDNN_SUCCESS; ++i) {
    const TwStep* s = &net->steps[i];
    status = net->api->primitive_execute(s->primitive, net->stream, s->num_args, s->args);
    if (status == ONEDNN_SUCCESS) status = net->api->stream_wait(net->stream);
  }
  return status == ONEDNN_SUCCESS ? 0 : tw_fail("%s: oneDNN failed (status %d)", d->symbol, status);
}

static int run(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  Region* d = ((TwModule*)resource)->data;
  (void)ret;
  tw_lock(&d->lock);
  int rc = 0;
  if (!d->ready && d->num_constants != 0) rc = tw_fail("%s: __init_%s has not given it its constants", d->symbol, d->symbol);
  if (rc == 0 && !d->ready) {
    drop_net(d);
    rc = build(d);
  }
  if (rc == 0) rc = check_arguments(d, args, codes, n);
  if (rc == 0) tw_dnnl_use_threads();
  if (rc == 0) rc = execute(d, args);
  tw_unlock(&d->lock);
  return rc;
}

/* ---- the module ---- */
static int get_symbol(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  (void)args;
  (void)codes;
  (void)n;
  return tw_return_string(ret, ((Region*)((TwModule*)resource)->data)->symbol);
}

/* The names of the constants, a line each. */
static int get_const_vars(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  const Region* d = ((TwModule*)resource)->data;
  size_t size = 1, used = 0;
  (void)args;
  (void)codes;
  (void)n;
  for (size_t i = 0; i < d->num_constants; ++i) size += strlen(d->constants[i]) + 1;
  char* text = malloc(size);
  if (text == NULL) return tw_out_of_memory(size);
  text[0] = '\0';
  for (size_t i = 0; i < d->num_constants; ++i) {
    used += (size_t)snprintf(text + used, size - used, i == 0 ? "%s" : "\n%s", d->constants[i]);
  }
  int rc = tw_return_string(ret, text);
  free(text);
  return rc;
}

static int region_function(TwModule* self, const char* name, TwFunc** out) {
  const Region* d = self->data;
  TVMPackedCFunc callback = NULL;
  if (strcmp(name, d->symbol) == 0) callback = run;
  if (strcmp(name, "get_symbol") == 0) callback = get_symbol;
  if (strcmp(name, "get_const_vars") == 0) callback = get_const_vars;
  if (strncmp(name, "__init_", 7) == 0 && strcmp(name + 7, d->symbol) == 0) callback = initialize;
  if (callback == NULL) return 0;
  *out = tw_func_method(callback, self);
  return *out == NULL ? -1 : 0;
}

static int region_save(TwModule* self, TilewrightStream* s) {
  const Region* d = self->data;
  if (tw_write_string(s, d->symbol, strlen(d->symbol)) != 0 || tw_write_string(s, d->json, d->json_size) != 0) return -1;
  return tw_write_strings(s, d->constants, d->num_constants);
}

static int region_source(TwModule* self, const char* format, TVMRetValueHandle ret) {
  (void)format;
  return tw_return_string(ret, ((const Region*)self->data)->json);
}

static void region_destroy(TwModule* self) { free_region(self->data); }

static const TwModuleClass region_class = {
    .get_function = region_function, .save = region_save, .get_source = region_source, .destroy = region_destroy};

static Region* new_region(void) {
  Region* d = calloc(1, sizeof *d);
  if (d == NULL) {
    tw_out_of_memory(sizeof *d);
  } else {
    tw_lock_init(&d->lock);
  }
  return d;
}

/* Takes d over. */
static int return_region(Region* d, int rc, TVMRetValueHandle ret) {
  TwModule* m = rc != 0 ? NULL : tw_module_new(&region_class, "dnnl_json", d);
  if (m == NULL) {
    free_region(d);
    return -1;
  }
  tw_return_handle(ret, m, kTVMModuleHandle);
  return 0;
}

/* runtime.module.loadbinary_dnnl_json(stream) */
static int load_region(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  TilewrightStream* s;
  (void)resource;
  if (tw_loader_stream(args, codes, n, "runtime.module.loadbinary_dnnl_json", &s) != 0) return -1;
  Region* d = new_region();
  if (d == NULL) return -1;
  int rc = tw_read_string(s, &d->symbol, NULL);
  if (rc == 0) rc = tw_read_string(s, &d->json, &d->json_size);
  if (rc == 0) rc = tw_read_strings(s, &d->constants, &d->num_constants);
  return return_region(d, rc, ret);
}

/* runtime.dnnl.create(symbol, json, name of a constant, ...) */
static int create_region(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  static const char who[] = "runtime.dnnl.create";
  const char* symbol;
  TVMByteArray json;
  (void)resource;
  if (tw_arg_str(args, codes, n, 0, who, &symbol) != 0 || tw_arg_bytes(args, codes, n, 1, who, &json) != 0) return -1;
  Region* d = new_region();
  if (d == NULL) return -1;
  d->symbol = tw_strdup(symbol);
  d->json = malloc(json.size + 1);
  d->json_size = json.size;
  d->constants = calloc((size_t)n - 1, sizeof *d->constants);
  int rc = d->symbol == NULL || d->json == NULL || d->constants == NULL ? tw_out_of_memory(json.size) : 0;
  if (rc == 0) memcpy(d->json, json.data, json.size);
  if (rc == 0) d->json[json.size] = '\0';
  for (int i = 2; rc == 0 && i < n; ++i) {
    const char* name;
    rc = tw_arg_str(args, codes, n, i, who, &name);
    if (rc == 0) rc = (d->constants[i - 2] = tw_strdup(name)) == NULL ? tw_out_of_memory(strlen(name)) : 0;
    if (rc == 0) ++d->num_constants;
  }
  return return_region(d, rc, ret);
}

/* ---- kernels for generated C ---- */
static TwMap kernels; /* text to TwModule*, which stay; under kernels_lock */
static TwLock kernels_lock = TW_LOCK_INITIALIZER;

static TwModule* new_kernel(const char* text) {
  TVMValue args[2] = {{.v_str = "kernel"}, {.v_str = text}};
  int codes[2] = {kTVMStr, kTVMStr};
  TwReturn made = {.code = kTVMNullptr};
  if (create_region(args, codes, 2, &made, NULL) != 0) return NULL;
  if (tw_map_set(&kernels, text, made.value.v_handle)) return made.value.v_handle;
  tw_module_release(made.value.v_handle);
  tw_out_of_memory(strlen(text));
  return NULL;
}

/* runtime.dnnl.kernel(text, input, ..., result, ...): runs a region without constants. What is made for a text is kept. */
static int call_kernel(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  const char* text;
  (void)resource;
  if (tw_arg_str(args, codes, n, 0, "runtime.dnnl.kernel", &text) != 0) return -1;
  tw_lock(&kernels_lock);
  TwModule* kernel = tw_map_get(&kernels, text);
  if (kernel == NULL) kernel = new_kernel(text);
  tw_unlock(&kernels_lock);
  return kernel == NULL ? -1 : run(args + 1, codes + 1, n - 1, ret, kernel);
}

TW_GLOBAL_FUNCTIONS({"runtime.dnnl.kernel", call_kernel},
                    {"runtime.dnnl.create", create_region}, {"runtime.module.loadbinary_dnnl_json", load_region})
