/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The graph executor as a module ("GraphExecutor"), with the functions of TVM 0.8. */
#include "graph.h"

/* An input given by name or index. */
static int input_argument(TilewrightGraph* g, TVMValue* args, int* codes, int n, const char* who, int* index) {
  int64_t i;
  if (n > 0 && codes[0] == kTVMStr) return graph_find_input(g, args[0].v_str, index);
  if (tw_arg_int(args, codes, n, 0, who, &i) != 0) return -1;
  *index = i < 0 || i > INT32_MAX ? -1 : (int)i;
  return 0;
}

static int set_input(TilewrightGraph* g, TVMValue* args, int* codes, int n, TVMRetValueHandle ret) {
  int index;
  DLTensor* value;
  (void)ret;
  if (input_argument(g, args, codes, n, "set_input", &index) != 0) return -1;
  if (tw_arg_tensor(args, codes, n, 1, "set_input", &value) != 0) return -1;
  return TilewrightGraphSetInputAt(g, index, value);
}

static int set_input_zero_copy(TilewrightGraph* g, TVMValue* args, int* codes, int n, TVMRetValueHandle ret) {
  int index, entry;
  DLTensor* value;
  (void)ret;
  if (input_argument(g, args, codes, n, "set_input_zero_copy", &index) != 0) return -1;
  if (tw_arg_tensor(args, codes, n, 1, "set_input_zero_copy", &value) != 0) return -1;
  if (codes[1] != kTVMNDArrayHandle) return TilewrightGraphSetInputZeroCopyAt(g, index, value);
  /* an array of ours can be kept alive */
  if (graph_input_entry(g, index, &entry) != 0 || tw_check_cpu(value->device) != 0) return -1;
  if (graph_replace_input(g, entry, (TwArray*)value, true) != 0) return -1;
  graph_expose_input(g, entry);
  return 0;
}

static int return_array(TVMArrayHandle array, TVMRetValueHandle ret) {
  tw_return_handle(ret, array, kTVMNDArrayHandle);
  return 0;
}

static int get_input(TilewrightGraph* g, TVMValue* args, int* codes, int n, TVMRetValueHandle ret) {
  int index;
  TVMArrayHandle array;
  if (input_argument(g, args, codes, n, "get_input", &index) != 0) return -1;
  return TilewrightGraphGetInput(g, index, &array) != 0 ? -1 : return_array(array, ret);
}

static int get_output(TilewrightGraph* g, TVMValue* args, int* codes, int n, TVMRetValueHandle ret) {
  int64_t index;
  DLTensor* out;
  TVMArrayHandle array;
  if (tw_arg_int(args, codes, n, 0, "get_output", &index) != 0) return -1;
  if (index < 0 || index > INT32_MAX) index = -1;
  if (n > 1) {
    if (tw_arg_tensor(args, codes, n, 1, "get_output", &out) != 0) return -1;
    return TilewrightGraphCopyOutput(g, (int)index, out);
  }
  return TilewrightGraphGetOutput(g, (int)index, &array) != 0 ? -1 : return_array(array, ret);
}

static int get_input_index(TilewrightGraph* g, TVMValue* args, int* codes, int n, TVMRetValueHandle ret) {
  const char* name;
  if (tw_arg_str(args, codes, n, 0, "get_input_index", &name) != 0) return -1;
  tw_return_int(ret, TilewrightGraphInputIndex(g, name));
  return 0;
}

static int get_input_name(TilewrightGraph* g, TVMValue* args, int* codes, int n, TVMRetValueHandle ret) {
  int64_t index;
  int entry;
  if (tw_arg_int(args, codes, n, 0, "get_input_name", &index) != 0) return -1;
  if (index < 0 || index > INT32_MAX) index = -1;
  if (graph_input_entry(g, (int)index, &entry) != 0) return -1;
  return tw_return_string(ret, TilewrightGraphInputName(g, (int)index));
}

static int get_num_inputs(TilewrightGraph* g, TVMValue* args, int* codes, int n, TVMRetValueHandle ret) {
  (void)args;
  (void)codes;
  (void)n;
  tw_return_int(ret, g->num_inputs);
  return 0;
}

static int get_num_outputs(TilewrightGraph* g, TVMValue* args, int* codes, int n, TVMRetValueHandle ret) {
  (void)args;
  (void)codes;
  (void)n;
  tw_return_int(ret, g->num_outputs);
  return 0;
}

static int run(TilewrightGraph* g, TVMValue* args, int* codes, int n, TVMRetValueHandle ret) {
  (void)args;
  (void)codes;
  (void)n;
  (void)ret;
  return TilewrightGraphRun(g);
}

static int load_params(TilewrightGraph* g, TVMValue* args, int* codes, int n, TVMRetValueHandle ret) {
  TVMByteArray bytes;
  (void)ret;
  if (tw_arg_bytes(args, codes, n, 0, "load_params", &bytes) != 0) return -1;
  return TilewrightGraphLoadParams(g, bytes.data, bytes.size);
}

static int share_params(TilewrightGraph* g, TVMValue* args, int* codes, int n, TVMRetValueHandle ret) {
  TwModule* other;
  TVMByteArray bytes;
  (void)ret;
  if (tw_arg_module(args, codes, n, 0, "share_params", &other) != 0) return -1;
  if (tw_arg_bytes(args, codes, n, 1, "share_params", &bytes) != 0) return -1;
  TilewrightGraph* source = tw_module_graph(other);
  if (source == NULL) return tw_fail("share_params: the first argument must be a graph executor");
  return TilewrightGraphShareParams(g, source, bytes.data, bytes.size);
}

static int node_argument(TilewrightGraph* g, TVMValue* args, int* codes, int n, int* node) {
  if (n > 0 && codes[0] == kTVMStr) {
    for (int i = 0; i < g->num_nodes; ++i) {
      if (strcmp(g->nodes[i].name, args[0].v_str) == 0) {
        *node = i;
        return 0;
      }
    }
    return tw_fail("the graph has no node named \"%s\"", args[0].v_str);
  }
  int64_t i;
  if (tw_arg_int(args, codes, n, 0, "debug_get_output", &i) != 0) return -1;
  *node = i < 0 || i > INT32_MAX ? -1 : (int)i;
  return 0;
}

static int debug_get_output(TilewrightGraph* g, TVMValue* args, int* codes, int n, TVMRetValueHandle ret) {
  int node;
  DLTensor* out;
  (void)ret;
  if (node_argument(g, args, codes, n, &node) != 0) return -1;
  if (tw_arg_tensor(args, codes, n, 1, "debug_get_output", &out) != 0) return -1;
  return TilewrightGraphDebugGetOutput(g, node, out);
}

static int get_num_nodes(TilewrightGraph* g, TVMValue* args, int* codes, int n, TVMRetValueHandle ret) {
  (void)args;
  (void)codes;
  (void)n;
  tw_return_int(ret, g->num_nodes);
  return 0;
}

static int get_node_name(TilewrightGraph* g, TVMValue* args, int* codes, int n, TVMRetValueHandle ret) {
  int64_t index;
  if (tw_arg_int(args, codes, n, 0, "get_node_name", &index) != 0) return -1;
  if (index < 0 || index >= g->num_nodes) return tw_fail("node %lld is out of range", (long long)index);
  return tw_return_string(ret, g->nodes[index].name);
}

/* time_nodes(number) -> doubles, seconds of each node */
static int time_nodes(TilewrightGraph* g, TVMValue* args, int* codes, int n, TVMRetValueHandle ret) {
  int64_t number;
  size_t size = (size_t)g->num_nodes * sizeof(double);
  if (tw_arg_int(args, codes, n, 0, "time_nodes", &number) != 0) return -1;
  double* seconds = malloc(size + 1);
  if (seconds == NULL) return tw_out_of_memory(size);
  int rc = TilewrightGraphTimeNodes(g, number > INT32_MAX ? INT32_MAX : (int)number, seconds);
  if (rc == 0) rc = tw_return_bytes(ret, seconds, size);
  free(seconds);
  return rc;
}

#define METHODS(X)                                                                                                \
  X(set_input) X(set_input_zero_copy) X(get_input) X(get_output) X(get_input_index) X(get_input_name)             \
  X(get_num_inputs) X(get_num_outputs) X(run) X(load_params) X(share_params) X(debug_get_output)                  \
  X(get_num_nodes) X(get_node_name) X(time_nodes)

#define DEFINE_CALLBACK(name)                                                                                     \
  static int call_##name(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* module) {                \
    return name(((TwModule*)module)->data, args, codes, n, ret);                                                  \
  }
METHODS(DEFINE_CALLBACK)

#define TABLE_ENTRY(name) {#name, call_##name},
static const struct {
  const char* name;
  TVMPackedCFunc callback;
} methods[] = {METHODS(TABLE_ENTRY)};

static int executor_function(TwModule* self, const char* name, TwFunc** out) {
  for (size_t i = 0; i < sizeof methods / sizeof methods[0]; ++i) {
    if (strcmp(methods[i].name, name) != 0) continue;
    *out = tw_func_method(methods[i].callback, self);
    return *out == NULL ? -1 : 0;
  }
  return 0;
}

static void executor_destroy(TwModule* self) { TilewrightGraphFree(self->data); }

static const TwModuleClass executor_class = {executor_function, NULL, NULL, executor_destroy};

TilewrightGraph* tw_module_graph(TwModule* m) { return m->cls == &executor_class ? m->data : NULL; }

TwModule* tw_graph_module(TilewrightGraph* graph) {
  TwModule* m = tw_module_new(&executor_class, "GraphExecutor", graph);
  if (m == NULL) TilewrightGraphFree(graph);
  return m;
}

/* tvm.graph_executor.create(graph_json, lib, device) */
static int create(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  static const char who[] = "tvm.graph_executor.create";
  TVMByteArray json;
  TwModule* lib;
  DLDevice device;
  TilewrightGraph* graph;
  int used;
  (void)resource;
  if (tw_arg_bytes(args, codes, n, 0, who, &json) != 0 || tw_arg_module(args, codes, n, 1, who, &lib) != 0 ||
      tw_arg_device(args, codes, n, 2, who, &device, &used) != 0 ||
      tw_graph_create(json.data, json.size, lib, device, NULL, NULL, &graph) != 0) {
    return -1;
  }
  TwModule* m = tw_graph_module(graph);
  if (m == NULL) return -1;
  tw_return_handle(ret, m, kTVMModuleHandle);
  return 0;
}

void tw_register_graph_functions(void) {
  tw_register_builtin("tvm.graph_executor.create", create);
  tw_register_factory_functions();
}
