/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The graph executor as a module ("GraphExecutor"), with the functions of TVM 0.8. */
#include "graph.h"

/* An index; -1 for one that does not fit. */
static int index_argument(const TVMValue* args, const int* codes, int n, const char* who, int* index) {
  int64_t i;
  if (tw_arg_int(args, codes, n, 0, who, &i) != 0) return -1;
  *index = i < 0 || i > INT32_MAX ? -1 : (int)i;
  return 0;
}

/* An input, or output, given by name or index. */
static int input_argument(TilewrightGraph* g, TVMValue* args, int* codes, int n, const char* who, int* index) {
  if (n > 0 && codes[0] == kTVMStr) return graph_find_input(g, args[0].v_str, index);
  return index_argument(args, codes, n, who, index);
}

static int output_argument(TilewrightGraph* g, TVMValue* args, int* codes, int n, const char* who, int* index) {
  if (n > 0 && codes[0] == kTVMStr) return graph_find_output(g, args[0].v_str, index);
  return index_argument(args, codes, n, who, index);
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
  int index;
  DLTensor* value;
  (void)ret;
  if (input_argument(g, args, codes, n, "set_input_zero_copy", &index) != 0) return -1;
  if (tw_arg_tensor(args, codes, n, 1, "set_input_zero_copy", &value) != 0) return -1;
  /* an array of ours can be kept alive */
  if (codes[1] == kTVMNDArrayHandle) return graph_set_zero_copy(g, index, (TwArray*)value);
  return TilewrightGraphSetInputZeroCopyAt(g, index, value);
}

static int set_output_zero_copy(TilewrightGraph* g, TVMValue* args, int* codes, int n, TVMRetValueHandle ret) {
  int index;
  DLTensor* value;
  (void)ret;
  if (output_argument(g, args, codes, n, "set_output_zero_copy", &index) != 0) return -1;
  if (tw_arg_tensor(args, codes, n, 1, "set_output_zero_copy", &value) != 0) return -1;
  if (codes[1] == kTVMNDArrayHandle) return graph_set_output_zero_copy(g, index, (TwArray*)value);
  return TilewrightGraphSetOutputZeroCopyAt(g, index, value);
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
  int index;
  DLTensor* out;
  TVMArrayHandle array;
  if (output_argument(g, args, codes, n, "get_output", &index) != 0) return -1;
  if (n > 1) {
    if (tw_arg_tensor(args, codes, n, 1, "get_output", &out) != 0) return -1;
    return TilewrightGraphCopyOutput(g, index, out);
  }
  return TilewrightGraphGetOutput(g, index, &array) != 0 ? -1 : return_array(array, ret);
}

static int get_input_index(TilewrightGraph* g, TVMValue* args, int* codes, int n, TVMRetValueHandle ret) {
  const char* name;
  if (tw_arg_str(args, codes, n, 0, "get_input_index", &name) != 0) return -1;
  tw_return_int(ret, TilewrightGraphInputIndex(g, name));
  return 0;
}

static int get_input_name(TilewrightGraph* g, TVMValue* args, int* codes, int n, TVMRetValueHandle ret) {
  int index;
  DLTensor info;
  if (index_argument(args, codes, n, "get_input_name", &index) != 0) return -1;
  if (TilewrightGraphInputInfo(g, index, &info) != 0) return -1;
  return tw_return_string(ret, TilewrightGraphInputName(g, index));
}

static int get_output_name(TilewrightGraph* g, TVMValue* args, int* codes, int n, TVMRetValueHandle ret) {
  int index;
  DLTensor info;
  if (index_argument(args, codes, n, "get_output_name", &index) != 0) return -1;
  if (TilewrightGraphOutputInfo(g, index, &info) != 0) return -1;
  return tw_return_string(ret, TilewrightGraphOutputName(g, index));
}

static int get_output_index(TilewrightGraph* g, TVMValue* args, int* codes, int n, TVMRetValueHandle ret) {
  const char* name;
  if (tw_arg_str(args, codes, n, 0, "get_output_index", &name) != 0) return -1;
  tw_return_int(ret, TilewrightGraphOutputIndex(g, name));
  return 0;
}

static int is_parameter(TilewrightGraph* g, TVMValue* args, int* codes, int n, TVMRetValueHandle ret) {
  int index;
  if (input_argument(g, args, codes, n, "is_parameter", &index) != 0) return -1;
  tw_return_int(ret, TilewrightGraphInputIsParameter(g, index));
  return 0;
}

/* i64 code, bits and lanes of the type, then the shape. */
static int return_info(const DLTensor* t, TVMRetValueHandle ret) {
  const size_t size = ((size_t)t->ndim + 3) * sizeof(int64_t);
  int64_t* numbers = malloc(size);
  if (numbers == NULL) return tw_out_of_memory(size);
  numbers[0] = t->dtype.code;
  numbers[1] = t->dtype.bits;
  numbers[2] = t->dtype.lanes;
  for (int i = 0; i < t->ndim; ++i) numbers[3 + i] = t->shape[i];
  int rc = tw_return_bytes(ret, numbers, size);
  free(numbers);
  return rc;
}

static int describe_input(TilewrightGraph* g, TVMValue* args, int* codes, int n, TVMRetValueHandle ret) {
  int index;
  DLTensor info;
  if (input_argument(g, args, codes, n, "describe_input", &index) != 0) return -1;
  return TilewrightGraphInputInfo(g, index, &info) != 0 ? -1 : return_info(&info, ret);
}

static int describe_output(TilewrightGraph* g, TVMValue* args, int* codes, int n, TVMRetValueHandle ret) {
  int index;
  DLTensor info;
  if (output_argument(g, args, codes, n, "describe_output", &index) != 0) return -1;
  return TilewrightGraphOutputInfo(g, index, &info) != 0 ? -1 : return_info(&info, ret);
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

/* A copy of an output on a device, or NULL. */
static TwArray* output_on(TilewrightGraph* g, int index, DLDevice device) {
  const GraphEntry* e = &g->entries[g->outputs[index]];
  TwArray* copy = tw_array_new(e->shape, e->ndim, e->type, device);
  if (copy == NULL || TilewrightGraphCopyOutput(g, index, &copy->tensor) == 0) return copy;
  tw_array_release(copy);
  return NULL;
}

/* run_from_inputs(device_type, device_id, name, value, ...): sets inputs, runs, copies all outputs to that device. A packed
 * function gives one value: the copy of the first output. */
static int run_from_inputs(TilewrightGraph* g, TVMValue* args, int* codes, int n, TVMRetValueHandle ret) {
  DLDevice device;
  int used;
  if (tw_arg_device(args, codes, n, 0, "run_from_inputs", &device, &used) != 0) return -1;
  if ((n - used) % 2 != 0) return tw_fail("run_from_inputs: inputs come as pairs of name and value");
  for (int i = used; i < n; i += 2) {
    if (set_input(g, args + i, codes + i, 2, ret) != 0) return -1;
  }
  if (TilewrightGraphRun(g) != 0) return -1;
  TwArray* first = NULL;
  for (int i = 0; i < g->num_outputs; ++i) {
    TwArray* copy = output_on(g, i, device);
    if (copy == NULL) {
      tw_array_release(first);
      return -1;
    }
    if (i == 0) first = copy;
    if (i != 0) tw_array_release(copy);
  }
  return first == NULL ? 0 : return_array(&first->tensor, ret);
}

/* Names, with commas, of the inputs that have no value. The caller has then been told: a run says it no more. */
static int unset_inputs(TilewrightGraph* g, TVMValue* args, int* codes, int n, TVMRetValueHandle ret) {
  TwNames names;
  (void)args;
  (void)codes;
  (void)n;
  if (graph_begin(g, false) != 0) return -1;
  graph_unset_inputs(g, &names);
  g->warned = true;
  graph_end(g);
  return tw_return_string(ret, names.text);
}

/* infer(count, name, value, ..., output, ...): count inputs, and arrays for all outputs */
static int infer(TilewrightGraph* g, TVMValue* args, int* codes, int n, TVMRetValueHandle ret) {
  int count;
  (void)ret;
  if (index_argument(args, codes, n, "infer", &count) != 0) return -1;
  if (count < 0 || count > n || n != 1 + 2 * count + g->num_outputs) {
    return tw_fail("infer: needs the number of inputs, pairs of name and value, and an array for each output");
  }
  const char** names = calloc((size_t)count + 1, sizeof *names);
  DLTensor** tensors = calloc((size_t)n + 1, sizeof *tensors);
  int rc = names == NULL || tensors == NULL ? tw_out_of_memory((size_t)n * sizeof *tensors) : 0;
  for (int i = 0; rc == 0 && i < count; ++i) {
    rc = tw_arg_str(args, codes, n, 1 + 2 * i, "infer", &names[i]);
    if (rc == 0) rc = tw_arg_tensor(args, codes, n, 2 + 2 * i, "infer", &tensors[i]);
  }
  for (int i = 0; rc == 0 && i < g->num_outputs; ++i) {
    rc = tw_arg_tensor(args, codes, n, 1 + 2 * count + i, "infer", &tensors[count + i]);
  }
  if (rc == 0) rc = graph_infer(g, count, names, (const DLTensor* const*)tensors, tensors + count);
  free(names);
  free(tensors);
  return rc;
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

/* ---- looking into it ---- */
static int node_argument(TilewrightGraph* g, TVMValue* args, int* codes, int n, const char* who, int* node) {
  if (n > 0 && codes[0] == kTVMStr) {
    for (int i = 0; i < g->num_nodes; ++i) {
      if (strcmp(g->nodes[i].name, args[0].v_str) == 0) {
        *node = i;
        return 0;
      }
    }
    return tw_fail("the graph has no node named \"%s\"", args[0].v_str);
  }
  return index_argument(args, codes, n, who, node);
}

static int debug_get_output(TilewrightGraph* g, TVMValue* args, int* codes, int n, TVMRetValueHandle ret) {
  int node;
  DLTensor* out;
  (void)ret;
  if (node_argument(g, args, codes, n, "debug_get_output", &node) != 0) return -1;
  if (tw_arg_tensor(args, codes, n, 1, "debug_get_output", &out) != 0) return -1;
  return TilewrightGraphDebugGetOutput(g, node, out);
}

static int execute_node(TilewrightGraph* g, TVMValue* args, int* codes, int n, TVMRetValueHandle ret) {
  int node;
  (void)ret;
  return node_argument(g, args, codes, n, "execute_node", &node) != 0 ? -1 : TilewrightGraphExecuteNode(g, node);
}

static int get_node_output(TilewrightGraph* g, TVMValue* args, int* codes, int n, TVMRetValueHandle ret) {
  int node;
  int64_t output;
  TVMArrayHandle array;
  if (node_argument(g, args, codes, n, "get_node_output", &node) != 0) return -1;
  if (tw_arg_int(args, codes, n, 1, "get_node_output", &output) != 0) return -1;
  if (output > INT32_MAX) output = -1;
  return TilewrightGraphGetNodeOutput(g, node, (int)output, &array) != 0 ? -1 : return_array(array, ret);
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

/* time_nodes(number[, processor]) -> doubles, seconds of each node; of the calling thread's processor time if asked */
static int time_nodes(TilewrightGraph* g, TVMValue* args, int* codes, int n, TVMRetValueHandle ret) {
  int64_t number, processor = 0;
  size_t size = (size_t)g->num_nodes * sizeof(double);
  if (tw_arg_int(args, codes, n, 0, "time_nodes", &number) != 0) return -1;
  if (n > 1 && tw_arg_int(args, codes, n, 1, "time_nodes", &processor) != 0) return -1;
  double* seconds = malloc(size + 1);
  if (seconds == NULL) return tw_out_of_memory(size);
  const int runs = number > INT32_MAX ? INT32_MAX : (int)number;
  int rc = graph_time_nodes(g, runs, processor != 0 ? tw_thread_seconds : tw_now, seconds);
  if (rc == 0) rc = tw_return_bytes(ret, seconds, size);
  free(seconds);
  return rc;
}

/* Mean seconds of each node over `number` runs, or more that take min_repeat_ms in all. */
static int time_for(TilewrightGraph* g, int64_t number, int64_t min_repeat_ms, double* seconds) {
  for (;;) {
    const double start = tw_now();
    if (TilewrightGraphTimeNodes(g, (int)number, seconds) != 0) return -1;
    const double spent = (tw_now() - start) * 1e3;
    if (spent >= (double)min_repeat_ms || number > INT32_MAX / 2) return 0;
    const double wanted = (double)min_repeat_ms / (spent / (double)number + 1e-9) + 1;
    number = wanted < 2 * (double)number ? 2 * number : wanted > INT32_MAX / 2 ? INT32_MAX / 2 : (int64_t)wanted;
  }
}

/* run_individual(number, repeat, min_repeat_ms) -> seconds of each node, with commas; of the last repetition, as in TVM */
static int run_individual(TilewrightGraph* g, TVMValue* args, int* codes, int n, TVMRetValueHandle ret) {
  int64_t settings[3]; /* number, repeat, min_repeat_ms */
  for (int i = 0; i < 3; ++i) {
    if (tw_arg_int(args, codes, n, i, "run_individual", &settings[i]) != 0) return -1;
    if (settings[i] < (i < 2) || settings[i] > INT32_MAX) {
      return tw_fail("run_individual: number and repeat must be 1 or more, min_repeat_ms 0 or more");
    }
  }
  enum { kWidth = 25 }; /* of "%.9g," and more */
  double* seconds = malloc(sizeof(double) * (size_t)g->num_nodes + 1);
  char* text = malloc(kWidth * (size_t)g->num_nodes + 1);
  int rc = seconds == NULL || text == NULL ? tw_out_of_memory(kWidth * (size_t)g->num_nodes) : TilewrightGraphRun(g);
  for (int64_t i = 0; rc == 0 && i < settings[1]; ++i) rc = time_for(g, settings[0], settings[2], seconds);
  size_t used = 0;
  for (int i = 0; rc == 0 && i < g->num_nodes; ++i) {
    used += (size_t)snprintf(text + used, kWidth, "%.9g,", seconds[i]);
  }
  if (rc == 0) {
    text[used] = '\0';
    rc = tw_return_string(ret, text);
  }
  free(seconds);
  free(text);
  return rc;
}

#define METHODS(X)                                                                                                \
  X(set_input) X(set_input_zero_copy) X(get_input) X(get_output) X(get_input_index) X(get_input_name)             \
  X(get_output_index) X(get_output_name) X(describe_input) X(describe_output) X(is_parameter) X(unset_inputs)      \
  X(infer) X(set_output_zero_copy) X(run_from_inputs) X(execute_node) X(get_node_output) X(run_individual)        \
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

static const TwModuleClass executor_class = {.get_function = executor_function, .destroy = executor_destroy};

TilewrightGraph* tw_module_graph(TwModule* m) { return m->cls == &executor_class ? m->data : NULL; }

int tw_return_graph(TilewrightGraph* graph, TVMRetValueHandle ret) {
  TwModule* m = tw_module_new(&executor_class, "GraphExecutor", graph);
  if (m == NULL) {
    TilewrightGraphFree(graph);
    return -1;
  }
  tw_return_handle(ret, m, kTVMModuleHandle);
  return 0;
}

/* tvm.graph_executor.create(graph_json, lib, device, ...), each device in one argument or as type and id in two */
static int create(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  static const char who[] = "tvm.graph_executor.create";
  TVMByteArray json;
  TwModule* lib;
  DLDevice* devices;
  TilewrightGraph* graph;
  int count;
  (void)resource;
  if (tw_arg_bytes(args, codes, n, 0, who, &json) != 0 || tw_arg_module(args, codes, n, 1, who, &lib) != 0 ||
      tw_arg_devices(args, codes, n, 2, who, &devices, &count) != 0) {
    return -1;
  }
  int rc = tw_graph_create(json.data, json.size, lib, devices, count, NULL, NULL, &graph);
  free(devices);
  return rc != 0 ? -1 : tw_return_graph(graph, ret);
}

/* every executor can be looked into */
TW_GLOBAL_FUNCTIONS({"tvm.graph_executor.create", create}, {"tvm.graph_executor_debug.create", create})
