/* Licensed under the Apache License, Version 2.0; see LICENSE. */
#include "test.h"

/* x and w are inputs; sum = x + w + 1, flat = __nop(sum), last = flat + 1 */
static const char small[] =
    "{\"nodes\": [{\"op\": \"null\", \"name\": \"x\", \"inputs\": []}, {\"op\": \"null\", \"name\": \"w\", \"inputs\": []},"
    " {\"op\": \"tvm_op\", \"name\": \"sum\", \"attrs\": {\"num_outputs\": \"1\", \"num_inputs\": \"2\","
    "  \"flatten_data\": \"0\", \"func_name\": \"add\"}, \"inputs\": [[0, 0, 0], [1, 0, 0]]},"
    " {\"op\": \"tvm_op\", \"name\": \"flat\", \"attrs\": {\"num_outputs\": \"1\", \"num_inputs\": \"1\","
    "  \"flatten_data\": \"0\", \"func_name\": \"__nop\"}, \"inputs\": [[2, 0, 0]]},"
    " {\"op\": \"tvm_op\", \"name\": \"last\", \"attrs\": {\"num_outputs\": \"1\", \"num_inputs\": \"1\","
    "  \"flatten_data\": \"0\", \"func_name\": \"add\"}, \"inputs\": [[3, 0, 0]]}],"
    " \"arg_nodes\": [0, 1], \"heads\": [[4, 0, 0], [3, 0, 0]], \"node_row_ptr\": [0, 1, 2, 3, 4, 5],"
    " \"attrs\": {\"dltype\": [\"list_str\", [\"float32\", \"float32\", \"float32\", \"float32\", \"float32\"]],"
    "  \"storage_id\": [\"list_int\", [0, 1, 2, 2, 3]],"
    "  \"shape\": [\"list_shape\", [[3, 5], [3, 5], [3, 5], [15], [15]]]}}";

static const Kernel kernels[] = {{"add", kernel_add}, {NULL, NULL}};
static const int64_t shape[2] = {3, 5}, flat_shape[1] = {15};

static TilewrightGraph* make(TVMModuleHandle lib) {
  TilewrightGraph* g;
  OK(TilewrightGraphCreate(small, strlen(small), lib, cpu0, &g));
  return g;
}

static float output(TilewrightGraph* g, int index) {
  TVMArrayHandle out;
  OK(TilewrightGraphGetOutput(g, index, &out));
  float value = ((float*)out->data)[14];
  TVMArrayFree(out);
  return value;
}

static void set(TilewrightGraph* g, const char* name, float value) {
  TVMArrayHandle a = filled(2, shape, value);
  OK(TilewrightGraphSetInput(g, name, a));
  TVMArrayFree(a);
}

static void graphs_run(void) {
  TVMModuleHandle lib = module_of(kernels);
  TilewrightGraph* g = make(lib);
  TVMModFree(lib);
  CHECK(TilewrightGraphNumInputs(g) == 2 && TilewrightGraphNumOutputs(g) == 2);
  CHECK(TilewrightGraphInputIndex(g, "w") == 1 && TilewrightGraphInputIndex(g, "v") == -1);
  CHECK(strcmp(TilewrightGraphInputName(g, 0), "x") == 0 && TilewrightGraphInputName(g, 2) == NULL);
  set(g, "x", 10);
  set(g, "w", 20);
  OK(TilewrightGraphRun(g));
  CHECK(output(g, 0) == 32 && output(g, 1) == 31);
  TVMArrayHandle copy = filled(1, flat_shape, 0), wrong = filled(1, shape, 0), outcome;
  OK(TilewrightGraphCopyOutput(g, 0, copy));
  CHECK(((float*)copy->data)[0] == 32);
  FAILS(TilewrightGraphCopyOutput(g, 0, wrong), "cannot copy");
  FAILS(TilewrightGraphGetOutput(g, 2, &outcome), "output 2 is out of range");
  FAILS(TilewrightGraphGetInput(g, -1, &outcome), "input -1 is out of range");
  FAILS(TilewrightGraphSetInput(g, "z", copy), "no input named \"z\"; its inputs are: x, w");
  FAILS(TilewrightGraphSetInput(g, "x", copy), "input \"x\" takes shape (3, 5) of float32, but was given shape (15,)");
  TVMArrayFree(wrong);
  OK(TilewrightGraphGetInput(g, 0, &outcome));
  CHECK(((float*)outcome->data)[3] == 10);
  TVMArrayFree(outcome);
  TVMArrayHandle debug = filled(2, shape, 0);
  OK(TilewrightGraphDebugGetOutput(g, 2, debug));
  CHECK(((float*)debug->data)[3] == 31);
  FAILS(TilewrightGraphDebugGetOutput(g, 5, debug), "node 5 is out of range");
  TVMArrayFree(debug);
  TVMArrayFree(copy);
  double seconds[5];
  CHECK(TilewrightGraphNumNodes(g) == 5 && strcmp(TilewrightGraphNodeName(g, 4), "last") == 0);
  CHECK(TilewrightGraphNodeName(g, 5) == NULL);
  OK(TilewrightGraphTimeNodes(g, 3, seconds));
  CHECK(seconds[0] == 0 && seconds[2] > 0 && seconds[3] == 0 && seconds[4] > 0);
  FAILS(TilewrightGraphTimeNodes(g, 0, seconds), "1 or more");
  uint64_t pooled, inputs;
  TilewrightGraphMemory(g, &pooled, &inputs);
  CHECK(pooled == 4 * 60 && inputs == 0);
  TilewrightGraphFree(g);
}

static void inputs_can_be_the_callers_memory(void) {
  TVMModuleHandle lib = module_of(kernels);
  TilewrightGraph* g = make(lib);
  TVMModFree(lib);
  TVMArrayHandle x = filled(2, shape, 1);
  set(g, "w", 0);
  OK(TilewrightGraphSetInputZeroCopyAt(g, 0, x));
  for (int i = 0; i < 15; ++i) ((float*)x->data)[i] = 5;
  OK(TilewrightGraphRun(g));
  CHECK(output(g, 0) == 7);
  /* a copy afterwards goes to memory of the executor's own */
  set(g, "x", 100);
  OK(TilewrightGraphRun(g));
  CHECK(output(g, 0) == 102 && ((float*)x->data)[0] == 5);
  DLTensor odd = *x;
  odd.data = (char*)x->data + 4;
  FAILS(TilewrightGraphSetInputZeroCopyAt(g, 0, &odd), "aligned to 64 bytes");
  TilewrightGraphFree(g);
  TVMArrayFree(x);
}

static void append(char** to, const void* data, size_t size) {
  memcpy(*to, data, size);
  *to += size;
}

/* save_param_dict of {"w": filled with value, "other": ...} */
static size_t params_of(char* buffer, float value) {
  char* p = buffer;
  const uint64_t magic = 0xF7E58D4F05049CB7u, array = 0xDD5E40F096B4A13Fu, zero = 0, two = 2, one = 1, five = 5;
  append(&p, &magic, 8), append(&p, &zero, 8), append(&p, &two, 8);
  append(&p, &one, 8), append(&p, "w", 1), append(&p, &five, 8), append(&p, "other", 5), append(&p, &two, 8);
  for (int i = 0; i < 2; ++i) {
    int32_t head[3] = {kDLCPU, 0, 2};
    DLDataType type = {kDLFloat, 32, 1};
    int64_t size = 60;
    append(&p, &array, 8), append(&p, &zero, 8), append(&p, head, 12), append(&p, &type, 4);
    append(&p, shape, 16), append(&p, &size, 8);
    for (int j = 0; j < 15; ++j) append(&p, &value, 4);
  }
  return (size_t)(p - buffer);
}

static void parameters_are_loaded_and_shared(void) {
  char bytes[1024];
  size_t size = params_of(bytes, 40);
  TVMModuleHandle lib = module_of(kernels);
  TilewrightGraph *g = make(lib), *other = make(lib);
  TVMModFree(lib);
  OK(TilewrightGraphLoadParams(g, bytes, size));
  OK(TilewrightGraphShareParams(other, g, bytes, size));
  TVMArrayHandle a, b;
  OK(TilewrightGraphGetInput(g, 1, &a));
  OK(TilewrightGraphGetInput(other, 1, &b));
  CHECK(a->data == b->data);
  TVMArrayFree(a);
  TVMArrayFree(b);
  set(g, "x", 1);
  set(other, "x", 2);
  set(g, "w", 0); /* must not change what the other one sees */
  OK(TilewrightGraphRun(g));
  TilewrightGraphFree(g);
  OK(TilewrightGraphRun(other));
  CHECK(output(other, 0) == 44);
  for (size_t n = 0; n < size; ++n) CHECK(TilewrightGraphLoadParams(other, bytes, n) == -1);
  for (size_t n = 0; n < 100; ++n) {
    bytes[n] ^= 0x55; /* damaged rather than cut: any outcome but a crash */
    (void)TilewrightGraphLoadParams(other, bytes, size);
    bytes[n] ^= 0x55;
  }
  TilewrightGraphFree(other);
}

/* ready = w + 1, which runs once; sum = x + ready, late = sum + 1, and %d: whether that is said to run once too */
static const char with_once[] =
    "{\"nodes\": [{\"op\": \"null\", \"name\": \"x\", \"inputs\": []}, {\"op\": \"null\", \"name\": \"w\", \"inputs\": []},"
    " {\"op\": \"tvm_op\", \"name\": \"ready\", \"attrs\": {\"func_name\": \"prepare\", \"run_once\": \"1\"},"
    "  \"inputs\": [[1, 0, 0]]},"
    " {\"op\": \"tvm_op\", \"name\": \"sum\", \"attrs\": {\"func_name\": \"add\"}, \"inputs\": [[0, 0, 0], [2, 0, 0]]},"
    " {\"op\": \"tvm_op\", \"name\": \"late\", \"attrs\": {\"func_name\": \"add\", \"run_once\": \"%d\"},"
    "  \"inputs\": [[3, 0, 0]]}],"
    " \"arg_nodes\": [0, 1], \"heads\": [[4, 0, 0], [2, 0, 0]], \"node_row_ptr\": [0, 1, 2, 3, 4, 5],"
    " \"attrs\": {\"dltype\": [\"list_str\", [\"float32\", \"float32\", \"float32\", \"float32\", \"float32\"]],"
    "  \"storage_id\": [\"list_int\", [0, 1, 2, 3, 4]],"
    "  \"shape\": [\"list_shape\", [[3, 5], [3, 5], [3, 5], [3, 5], [3, 5]]]}}";

static int times_prepared;

static int count_and_add(TVMValue* args, int* codes, int n, TVMValue* ret, int* ret_code, void* resource) {
  ++times_prepared;
  return kernel_add(args, codes, n, ret, ret_code, resource);
}

static void parameters_are_prepared_once(void) {
  static const Kernel both[] = {{"add", kernel_add}, {"prepare", count_and_add}, {NULL, NULL}};
  char json[2048], bytes[1024];
  size_t size = params_of(bytes, 40);
  TVMModuleHandle lib = module_of(both);
  TilewrightGraph *g, *other;
  snprintf(json, sizeof json, with_once, 1);
  FAILS(TilewrightGraphCreate(json, strlen(json), lib, cpu0, &g), "node \"late\" cannot run once");
  snprintf(json, sizeof json, with_once, 0);
  OK(TilewrightGraphCreate(json, strlen(json), lib, cpu0, &g));
  OK(TilewrightGraphCreate(json, strlen(json), lib, cpu0, &other));
  times_prepared = 0;
  OK(TilewrightGraphLoadParams(g, bytes, size));
  for (int x = 0; x < 3; ++x) {
    set(g, "x", (float)x);
    OK(TilewrightGraphRun(g));
    CHECK(output(g, 0) == (float)x + 43 && output(g, 1) == 41 && times_prepared == 1);
  }
  /* another executor with the same parameters takes what is ready */
  OK(TilewrightGraphShareParams(other, g, bytes, size));
  set(other, "x", 0);
  OK(TilewrightGraphRun(other));
  CHECK(output(other, 0) == 43 && times_prepared == 1);
  /* a changed parameter is prepared again, for that executor alone */
  set(g, "w", 50);
  OK(TilewrightGraphRun(g));
  OK(TilewrightGraphRun(g));
  CHECK(output(g, 0) == 55 && times_prepared == 2);
  OK(TilewrightGraphRun(other));
  CHECK(output(other, 0) == 43 && output(other, 1) == 41 && times_prepared == 2);
  double seconds[5];
  OK(TilewrightGraphTimeNodes(g, 2, seconds));
  CHECK(seconds[2] == 0 && seconds[3] > 0 && times_prepared == 2);
  TVMArrayHandle copy = filled(2, shape, 0), w;
  OK(TilewrightGraphDebugGetOutput(g, 2, copy));
  CHECK(((float*)copy->data)[0] == 51 && times_prepared == 2);
  TVMArrayFree(copy);
  uint64_t pooled, inputs;
  TilewrightGraphMemory(g, &pooled, &inputs);
  CHECK(pooled == 4 * 60 && inputs == 2 * 60); /* x, w, sum, late; the memory of w since it was set, and ready */
  /* who holds the parameter's memory may write to it before any run */
  OK(TilewrightGraphGetInput(g, 1, &w));
  for (float value = 7; value < 9; ++value) {
    for (int i = 0; i < 15; ++i) ((float*)w->data)[i] = value;
    OK(TilewrightGraphRun(g));
    CHECK(output(g, 0) == value + 5);
  }
  TVMArrayFree(w);
  TilewrightGraphFree(g);
  OK(TilewrightGraphRun(other));
  CHECK(output(other, 0) == 43);
  TilewrightGraphFree(other);
  /* what fails while preparing names the operator */
  static const Kernel failing[] = {{"add", kernel_add}, {"prepare", kernel_fail}, {NULL, NULL}};
  TVMModuleHandle bad = module_of(failing);
  OK(TilewrightGraphCreate(json, strlen(json), bad, cpu0, &g));
  for (int i = 0; i < 2; ++i) FAILS(TilewrightGraphRun(g), "operator ready: the kernel says no");
  TilewrightGraphFree(g);
  TVMModFree(bad);
  TVMModFree(lib);
}

static void* run_many(void* arg) {
  TilewrightGraph* g = arg;
  for (int i = 0; i < 200; ++i) {
    set(g, "x", (float)i);
    OK(TilewrightGraphRun(g));
    CHECK(output(g, 0) == (float)i + 42);
  }
  return NULL;
}

static void executors_run_on_several_threads(void) {
  char bytes[1024];
  size_t size = params_of(bytes, 40);
  TVMModuleHandle lib = module_of(kernels);
  TilewrightGraph* graphs[3];
  pthread_t threads[3];
  for (int i = 0; i < 3; ++i) {
    graphs[i] = make(lib);
    if (i == 0) {
      OK(TilewrightGraphLoadParams(graphs[0], bytes, size));
    } else {
      OK(TilewrightGraphShareParams(graphs[i], graphs[0], bytes, size));
    }
  }
  TVMModFree(lib);
  for (int i = 0; i < 3; ++i) OK(pthread_create(&threads[i], NULL, run_many, graphs[i]));
  for (int i = 0; i < 3; ++i) OK(pthread_join(threads[i], NULL));
  for (int i = 0; i < 3; ++i) TilewrightGraphFree(graphs[i]);
}

static void errors_name_the_operator(void) {
  static const Kernel failing[] = {{"add", kernel_fail}, {NULL, NULL}}, none[] = {{NULL, NULL}};
  TVMModuleHandle lib = module_of(failing);
  TilewrightGraph* g = make(lib);
  FAILS(TilewrightGraphRun(g), "operator sum: the kernel says no");
  TilewrightGraphFree(g);
  TVMModFree(lib);
  lib = module_of(none);
  FAILS(TilewrightGraphCreate(small, strlen(small), lib, cpu0, &g), "lacks functions that the graph calls: add");
  TVMModFree(lib);
}

/* Every text is either a graph (and then runs or fails in order) or refused; none crashes. */
static void try_text(const char* text, size_t size, TVMModuleHandle lib) {
  TilewrightGraph* g = NULL;
  /* an exact copy, so that the address sanitizer sees a read beyond the end */
  char* copy = malloc(size + (size == 0));
  memcpy(copy, text, size);
  if (TilewrightGraphCreate(copy, size, lib, cpu0, &g) == 0) {
    TilewrightGraphFree(g);
  } else {
    CHECK(TVMGetLastError()[0] != '\0');
  }
  free(copy);
}

static void damaged_graphs_are_refused(const char* golden) {
  char path[512];
  size_t size;
  snprintf(path, sizeof path, "%s/graph_json/conv_bias_relu.llvm.opt3.json", golden);
  char* text = read_file(path, &size);
  TVMModuleHandle lib = module_of(kernels);
  TilewrightGraph* g;
  size_t last = size;
  while (text[last - 1] != '}') --last; /* white space may follow */
  for (size_t n = 0; n < last; ++n) {
    char* cut = malloc(n + 1);
    memcpy(cut, text, n);
    CHECK(TilewrightGraphCreate(cut, n, lib, cpu0, &g) == -1);
    CHECK(strstr(TVMGetLastError(), "JSON") != NULL);
    free(cut);
  }
  FAILS(TilewrightGraphCreate(text, size, lib, cpu0, &g), "tvmgen_default_fused_layout_transform");
  free(text);
  /* one character changed, in a graph that otherwise works */
  static const char others[] = "0129-[]{},:\"x\\ ";
  char* changed = malloc(sizeof small);
  for (size_t i = 0; i + 1 < sizeof small; ++i) {
    for (const char* c = others; *c != '\0'; ++c) {
      memcpy(changed, small, sizeof small);
      changed[i] = *c;
      try_text(changed, sizeof small - 1, lib);
    }
  }
  free(changed);
  static const char* const bad[] = {"", "[", "nul", "{}", "[1, 2", "\"\\ud800\"", "\"\\u12", "1e", "-", "{\"a\" 1}",
                                    "{\"nodes\": []}", "\"\x01\"", "[1] 2", "01"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    FAILS(TilewrightGraphCreate(bad[i], strlen(bad[i]), lib, cpu0, &g), "JSON");
  }
  char deep[200];
  memset(deep, '[', sizeof deep);
  FAILS(TilewrightGraphCreate(deep, sizeof deep, lib, cpu0, &g), "nested too deeply");
  TVMModFree(lib);
}

void test_graph(const char* golden) {
  graphs_run();
  inputs_can_be_the_callers_memory();
  parameters_are_loaded_and_shared();
  parameters_are_prepared_once();
  executors_run_on_several_threads();
  errors_name_the_operator();
  damaged_graphs_are_refused(golden);
}
