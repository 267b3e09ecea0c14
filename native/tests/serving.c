/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * What programs that serve a model meet: names, inputs that nobody set, whole runs, several threads. */
#include "test.h"

#include <unistd.h>

/* x, y and w are inputs; sum = x + y + 1, and total = sum + w + 1; the outputs are total and sum. %s: metadata */
static const char network[] =
    "{\"nodes\": [{\"op\": \"null\", \"name\": \"x\", \"inputs\": []}, {\"op\": \"null\", \"name\": \"y\", \"inputs\": []},"
    " {\"op\": \"null\", \"name\": \"w\", \"inputs\": []},"
    " {\"op\": \"tvm_op\", \"name\": \"sum\", \"attrs\": {\"func_name\": \"add\"}, \"inputs\": [[0, 0, 0], [1, 0, 0]]},"
    " {\"op\": \"tvm_op\", \"name\": \"total\", \"attrs\": {\"func_name\": \"add\"}, \"inputs\": [[3, 0, 0], [2, 0, 0]]}],"
    " \"arg_nodes\": [0, 1, 2], \"heads\": [[4, 0, 0], [3, 0, 0]], \"node_row_ptr\": [0, 1, 2, 3, 4, 5],"
    " \"attrs\": {\"dltype\": [\"list_str\", [\"float32\", \"float32\", \"float32\", \"float32\", \"float32\"]],"
    "  \"storage_id\": [\"list_int\", [0, 1, 2, 3, 4]],"
    "  \"shape\": [\"list_shape\", [[3, 5], [3, 5], [3, 5], [3, 5], [3, 5]]]}%s}";
static const char named[] = ", \"metadata\": {\"outputs\": [\"total\", \"part\"], \"made_by\": \"a test\", \"inputs\": [\"x\", \"y\"]}";

static const Kernel kernels[] = {{"add", kernel_add}, {NULL, NULL}};
static const int64_t shape[2] = {3, 5};

static int create(const char* metadata, const Kernel* with, TilewrightGraph** out) {
  char json[2048];
  snprintf(json, sizeof json, network, metadata);
  TVMModuleHandle lib = module_of(with);
  int rc = TilewrightGraphCreate(json, strlen(json), lib, cpu0, out);
  TVMModFree(lib);
  return rc;
}

static TilewrightGraph* make(const char* metadata, const Kernel* with) {
  TilewrightGraph* g;
  OK(create(metadata, with, &g));
  return g;
}

static void set(TilewrightGraph* g, const char* name, float value) {
  TVMArrayHandle a = filled(2, shape, value);
  OK(TilewrightGraphSetInput(g, name, a));
  TVMArrayFree(a);
}

/* The value that every element of an output has. */
static float output(TilewrightGraph* g, int index) {
  TVMArrayHandle out;
  OK(TilewrightGraphGetOutput(g, index, &out));
  const float value = ((float*)out->data)[0];
  for (int i = 1; i < 15; ++i) CHECK(((float*)out->data)[i] == value);
  TVMArrayFree(out);
  return value;
}

static void outputs_and_parameters_have_names(void) {
  TilewrightGraph *g = make(named, kernels), *plain = make("", kernels);
  DLTensor info;
  CHECK(strcmp(TilewrightGraphOutputName(g, 0), "total") == 0 && strcmp(TilewrightGraphOutputName(g, 1), "part") == 0);
  CHECK(TilewrightGraphOutputName(g, 2) == NULL && TilewrightGraphOutputName(g, -1) == NULL);
  CHECK(TilewrightGraphOutputIndex(g, "part") == 1 && TilewrightGraphOutputIndex(g, "sum") == -1);
  CHECK(strcmp(TilewrightGraphOutputName(plain, 1), "output_1") == 0);
  CHECK(!TilewrightGraphInputIsParameter(g, 1) && TilewrightGraphInputIsParameter(g, 2));
  CHECK(!TilewrightGraphInputIsParameter(plain, 2) && !TilewrightGraphInputIsParameter(g, 3));
  FAILS(TilewrightGraphSetInput(g, "z", NULL), "no input named \"z\"; its inputs are: x, y");
  CHECK(strstr(TVMGetLastError(), "w") == NULL);
  OK(TilewrightGraphInputInfo(g, 2, &info));
  CHECK(info.ndim == 2 && info.shape[1] == 5 && info.dtype.code == kDLFloat && info.dtype.bits == 32 && info.data == NULL);
  OK(TilewrightGraphOutputInfo(g, 1, &info));
  CHECK(info.ndim == 2 && info.shape[0] == 3);
  FAILS(TilewrightGraphInputInfo(g, 3, &info), "input 3 is out of range");
  FAILS(TilewrightGraphOutputInfo(g, 2, &info), "output 2 is out of range");
  TilewrightGraphFree(g);
  TilewrightGraphFree(plain);
  static const char* const bad[] = {", \"metadata\": {\"outputs\": [\"a\"]}", ", \"metadata\": {\"outputs\": [1, 2]}",
                                    ", \"metadata\": {\"outputs\": 2}", ", \"metadata\": {\"inputs\": [\"z\"]}"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) FAILS(create(bad[i], kernels, &g), "bad graph JSON: metadata");
  /* what others may have written there */
  static const char* const strange[] = {", \"metadata\": null", ", \"metadata\": [1]", ", \"metadata\": {\"other\": 1}"};
  for (size_t i = 0; i < sizeof strange / sizeof strange[0]; ++i) TilewrightGraphFree(make(strange[i], kernels));
}

/* What lies in memory before an executor gets it, so far as a test can see to that. */
static void soil_memory(void) {
  enum { BLOCKS = 200 };
  void* blocks[BLOCKS];
  for (int i = 0; i < BLOCKS; ++i) {
    const size_t size = (size_t)64 << (i % 8);
    CHECK(posix_memalign(&blocks[i], 64, size) == 0);
    memset(blocks[i], 0xff, size);
  }
  for (int i = 0; i < BLOCKS; ++i) free(blocks[i]);
}

static void what_nobody_set_is_zero(void) {
  for (int round = 0; round < 10; ++round) {
    soil_memory();
    TilewrightGraph* g = make(named, kernels);
    CHECK(output(g, 0) == 0 && output(g, 1) == 0);
    FAILS(TilewrightGraphCheckInputs(g), "nobody has set the inputs: x, y, w");
    set(g, "x", 1);
    FAILS(TilewrightGraphCheckInputs(g), "nobody has set the inputs: y, w");
    OK(TilewrightGraphRun(g));
    CHECK(output(g, 0) == 3 && output(g, 1) == 2);
    TVMArrayHandle y;
    OK(TilewrightGraphGetInput(g, 1, &y)); /* who has the array may write to it */
    CHECK(((float*)y->data)[14] == 0);
    TVMArrayFree(y);
    set(g, "w", 1);
    OK(TilewrightGraphCheckInputs(g));
    TilewrightGraphFree(g);
  }
}

static void a_run_says_once_what_nobody_set(void) {
  char text[256] = {0};
  int ends[2], stderr_copy = dup(2);
  CHECK(stderr_copy >= 0 && pipe(ends) == 0);
  TilewrightGraph* g = make(named, kernels);
  set(g, "x", 1);
  fflush(stderr);
  CHECK(dup2(ends[1], 2) == 2);
  for (int i = 0; i < 3; ++i) OK(TilewrightGraphRun(g));
  fflush(stderr);
  CHECK(dup2(stderr_copy, 2) == 2);
  close(ends[1]);
  CHECK(read(ends[0], text, sizeof text - 1) > 0 && read(ends[0], text + 200, 1) == 0);
  CHECK(strcmp(text, "tilewright: warning: the graph runs with inputs that nobody has set: y, w\n") == 0);
  close(ends[0]);
  close(stderr_copy);
  TilewrightGraphFree(g);
}

static void large_memory_begins_as_zeros(void) {
  static const char large[] =
      "{\"nodes\": [{\"op\": \"null\", \"name\": \"x\", \"inputs\": []}], \"arg_nodes\": [0], \"heads\": [[0, 0, 0]],"
      " \"node_row_ptr\": [0, 1], \"attrs\": {\"dltype\": [\"list_str\", [\"uint8\"]], \"storage_id\": [\"list_int\", [0]],"
      " \"shape\": [\"list_shape\", [[9000001]]]}}";
  for (int round = 0; round < 3; ++round) {
    TilewrightGraph* g;
    TVMArrayHandle x;
    OK(TilewrightGraphCreate(large, strlen(large), NULL, cpu0, &g));
    OK(TilewrightGraphGetInput(g, 0, &x));
    CHECK((uintptr_t)x->data % 64 == 0);
    for (int i = 0; i < 9000001; ++i) CHECK(((char*)x->data)[i] == 0);
    memset(x->data, 1, 9000001);
    TilewrightGraphFree(g);
    TVMArrayFree(x);
  }
}

static int infer(TilewrightGraph* g, int count, float x, float y, TVMArrayHandle* outputs) {
  static const char* const names[] = {"x", "y"};
  TVMArrayHandle values[2] = {filled(2, shape, x), filled(2, shape, y)};
  int rc = TilewrightGraphInfer(g, count, names, (const DLTensor* const*)values, outputs);
  TVMArrayFree(values[0]);
  TVMArrayFree(values[1]);
  return rc;
}

static void infer_is_a_whole_run(void) {
  TilewrightGraph* g = make(named, kernels);
  TVMArrayHandle first[2], second[2];
  FAILS(infer(g, 2, 1, 2, first), "nobody has set the inputs: w");
  CHECK(first[0] == NULL && first[1] == NULL);
  set(g, "w", 10);
  OK(infer(g, 2, 1, 2, first));
  OK(infer(g, 2, 100, 2, second));
  CHECK(((float*)first[0]->data)[14] == 15 && ((float*)first[1]->data)[0] == 4); /* copies: the second run left them */
  CHECK(((float*)second[0]->data)[14] == 114);
  for (int i = 0; i < 2; ++i) TVMArrayFree(first[i]), TVMArrayFree(second[i]);
  /* no call sees the inputs of another */
  FAILS(infer(g, 1, 1, 0, first), "nobody has set the inputs: y");
  set(g, "y", 7);
  OK(infer(g, 1, 1, 0, first));
  CHECK(((float*)first[0]->data)[0] == 20);
  for (int i = 0; i < 2; ++i) TVMArrayFree(first[i]);
  static const char *const unknown[] = {"z"}, *const weight[] = {"w"};
  TVMArrayHandle value = filled(2, shape, 0), wrong = filled(1, shape, 0);
  FAILS(TilewrightGraphInfer(g, 1, unknown, (const DLTensor* const*)&value, first), "its inputs are: x, y");
  FAILS(TilewrightGraphInfer(g, 1, weight, (const DLTensor* const*)&value, first), "\"w\" is a parameter");
  static const char* const x[] = {"x"};
  FAILS(TilewrightGraphInfer(g, 1, x, (const DLTensor* const*)&wrong, first), "takes shape (3, 5)");
  TVMArrayFree(value);
  TVMArrayFree(wrong);
  TilewrightGraphFree(g);
}

typedef struct {
  TilewrightGraph* graph;
  int first;
} Client;

static void* infer_many(void* arg) {
  const Client* c = arg;
  for (int i = c->first; i < c->first + 100; ++i) {
    TVMArrayHandle out[2];
    OK(infer(c->graph, 2, (float)i, (float)(2 * i), out));
    for (int k = 0; k < 15; ++k) CHECK(((float*)out[0]->data)[k] == (float)(3 * i) + 12);
    CHECK(((float*)out[1]->data)[7] == (float)(3 * i) + 1);
    for (int k = 0; k < 2; ++k) TVMArrayFree(out[k]);
  }
  return NULL;
}

static void any_thread_may_infer(void) {
  enum { THREADS = 4 };
  TilewrightGraph* g = make(named, kernels);
  pthread_t threads[THREADS];
  Client clients[THREADS];
  set(g, "w", 10);
  for (int i = 0; i < THREADS; ++i) {
    clients[i] = (Client){g, 1000 * i};
    OK(pthread_create(&threads[i], NULL, infer_many, &clients[i]));
  }
  for (int i = 0; i < THREADS; ++i) OK(pthread_join(threads[i], NULL));
  TilewrightGraphFree(g);
}

/* A kernel that waits until it is let go. */
static atomic_int kernels_running, kernels_may_end;

static int kernel_wait(TVMValue* args, int* codes, int n, TVMValue* ret, int* ret_code, void* resource) {
  atomic_fetch_add(&kernels_running, 1);
  while (!atomic_load(&kernels_may_end)) usleep(100);
  return kernel_add(args, codes, n, ret, ret_code, resource);
}

static void* run_one(void* graph) {
  OK(TilewrightGraphRun(graph));
  return NULL;
}

static void* infer_one(void* graph) {
  TVMArrayHandle out[2];
  OK(infer(graph, 2, 5, 5, out));
  CHECK(((float*)out[0]->data)[0] == 22);
  for (int i = 0; i < 2; ++i) TVMArrayFree(out[i]);
  return NULL;
}

static void a_second_user_is_told(void) {
  static const Kernel waiting[] = {{"add", kernel_wait}, {NULL, NULL}};
  TilewrightGraph *g = make(named, waiting), *other = make(named, kernels);
  pthread_t runner, waiter;
  TVMArrayHandle a = filled(2, shape, 1), out;
  DLTensor* tensor = a;
  double seconds[5];
  for (const char* const* name = (const char* const[]){"x", "y", "w", NULL}; *name != NULL; ++name) set(g, *name, 10);
  OK(pthread_create(&runner, NULL, run_one, g));
  while (atomic_load(&kernels_running) == 0) usleep(100);
  static const char busy[] = "another thread is using this graph executor";
  FAILS(TilewrightGraphRun(g), busy);
  FAILS(TilewrightGraphSetInput(g, "x", tensor), busy);
  FAILS(TilewrightGraphSetInputZeroCopyAt(g, 0, tensor), busy);
  FAILS(TilewrightGraphGetInput(g, 0, &out), busy);
  FAILS(TilewrightGraphGetOutput(g, 0, &out), busy);
  FAILS(TilewrightGraphCopyOutput(g, 0, tensor), busy);
  FAILS(TilewrightGraphDebugGetOutput(g, 3, tensor), busy);
  FAILS(TilewrightGraphTimeNodes(g, 1, seconds), busy);
  FAILS(TilewrightGraphCheckInputs(g), busy);
  OK(pthread_create(&waiter, NULL, infer_one, g)); /* this one waits its turn */
  usleep(5000);
  atomic_store(&kernels_may_end, 1);
  OK(pthread_join(runner, NULL));
  OK(pthread_join(waiter, NULL));
  OK(TilewrightGraphRun(g));
  TilewrightGraphFree(g);
  TilewrightGraphFree(other);
  TVMArrayFree(a);
}

/* An operator that uses the executor which runs it, directly or from a parallel loop, is told so: it does not wait for itself. */
static TilewrightGraph* outer;

static int reenter_task(int task, TVMParallelGroupEnv* env, void* data) {
  TVMArrayHandle out[2];
  (void)task, (void)env, (void)data;
  return infer(outer, 2, 0, 0, out);
}

static int kernel_reenter(TVMValue* args, int* codes, int n, TVMValue* ret, int* ret_code, void* resource) {
  (void)args, (void)codes, (void)n, (void)ret, (void)ret_code, (void)resource;
  FAILS(TilewrightGraphRun(outer), "an operator uses the graph executor that is running it");
  return TVMBackendParallelLaunch(reenter_task, NULL, 2);
}

static void an_executor_inside_itself_is_refused(void) {
  static const Kernel inside[] = {{"add", kernel_reenter}, {NULL, NULL}};
  outer = make(named, inside);
  for (const char* const* name = (const char* const[]){"x", "y", "w", NULL}; *name != NULL; ++name) set(outer, *name, 1);
  OK(TilewrightSetNumThreads(2));
  CHECK(TilewrightGraphRun(outer) == -1);
  CHECK(strstr(TVMGetLastError(), "operator sum: ") == TVMGetLastError());
  TilewrightGraphFree(outer);
}

void test_serving(void) {
  outputs_and_parameters_have_names();
  what_nobody_set_is_zero();
  a_run_says_once_what_nobody_set();
  large_memory_begins_as_zeros();
  infer_is_a_whole_run();
  any_thread_may_infer();
  a_second_user_is_told();
  an_executor_inside_itself_is_refused();
}
