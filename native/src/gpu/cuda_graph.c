/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * A graph executor whose run is recorded as one CUDA graph, and launched as one. A recording holds addresses: when a tensor of
 * the executor has moved, or a parameter's preparation is due again, the run is recorded anew. */
#include "../executor/graph.h"
#include "cuda.h"

typedef struct {
  TwModule* executor;
  TilewrightGraph* graph; /* the executor's */
  int device;
  void *stream, *recording;
  TVMStreamHandle before; /* where the work of the thread that began a recording went */
  uint64_t addresses; /* of the tensors, when they were recorded */
  bool capturing;
} Recorder;

static uint64_t mix(uint64_t hash, const void* pointer) { return (hash ^ (uint64_t)(uintptr_t)pointer) * 0x100000001b3u; }

/* Changes when a recording would go to wrong places. */
static uint64_t addresses_of(const TilewrightGraph* g) {
  uint64_t hash = g->stale && !g->exposed ? 1 : 2;
  for (int i = 0; i < g->num_calls; ++i) {
    for (int k = 0; k < g->calls[i].num_args; ++k) hash = mix(hash, g->calls[i].tensors[k].data);
  }
  for (int i = 0; i < g->num_outputs; ++i) {
    const GraphTarget* t = &g->targets[i];
    if (t->copied) hash = mix(hash, (char*)t->array->tensor.data + t->array->tensor.byte_offset);
  }
  return hash;
}

static void drop_recording(Recorder* r) {
  if (r->recording != NULL && tw_cuda_device(r->device) != NULL) tw_cuda()->GraphExecDestroy(r->recording);
  r->recording = NULL;
}

/* ---- recording ---- */
static int begin_capture(Recorder* r) {
  const TwCuDevice* d = tw_cuda_device(r->device);
  if (d == NULL) return -1;
  const TwCuda* cu = tw_cuda();
  if (cu->StreamBeginCapture == NULL || cu->StreamEndCapture == NULL || cu->GraphInstantiate == NULL || cu->GraphLaunch == NULL ||
      cu->GraphExecDestroy == NULL || cu->GraphDestroy == NULL) {
    return tw_fail("this driver records no graphs, which CUDA 11.4's do; update it");
  }
  if (r->capturing) return tw_fail("a recording has begun already");
  drop_recording(r);
  if (tw_cuda_check(cu->StreamSynchronize(tw_cuda_stream(d, NULL)), "the device's work") != 0) return -1;
  if (r->stream == NULL && TVMStreamCreate(kDLCUDA, r->device, &r->stream) != 0) return -1;
  if (tw_cuda_check(cu->StreamBeginCapture(r->stream, CU_CAPTURE_RELAXED), "cuStreamBeginCapture") != 0) return -1;
  r->capturing = r->graph->findings.held = true;
  return 0;
}

/* Ends a recording; keeps it when what was to be recorded went well. */
static int end_capture(Recorder* r, bool keep) {
  void* graph = NULL;
  if (!r->capturing) return tw_fail("no recording has begun");
  if (tw_cuda_device(r->device) == NULL) return -1;
  const TwCuda* cu = tw_cuda();
  r->capturing = r->graph->findings.held = false;
  const int status = cu->StreamEndCapture(r->stream, &graph);
  int rc = keep ? tw_cuda_check(status, "cuStreamEndCapture") : -1;
  if (rc == 0) rc = tw_cuda_check(cu->GraphInstantiate(&r->recording, graph, 0), "cuGraphInstantiate");
  if (status == CU_OK && graph != NULL) cu->GraphDestroy(graph);
  if (rc != 0) r->recording = NULL;
  r->addresses = addresses_of(r->graph);
  return rc;
}

/* Makes the calling thread's work go to the stream that captures; gives what it went to before. */
static TVMStreamHandle swap_stream(const Recorder* r, TVMStreamHandle stream) {
  TVMStreamHandle before = tw_cuda_thread()->streams[r->device];
  tw_cuda_thread()->streams[r->device] = stream;
  return before;
}

/* Runs, which loads the code and takes temporary memory, and records a second run. */
static int record(Recorder* r) {
  if (TilewrightGraphRun(r->graph) != 0 || begin_capture(r) != 0) return -1;
  TVMStreamHandle before = swap_stream(r, r->stream);
  const int rc = TilewrightGraphRun(r->graph);
  char* said = rc == 0 ? NULL : tw_strdup(TVMGetLastError());
  swap_stream(r, before);
  const int ended = end_capture(r, rc == 0);
  if (rc != 0) tw_fail("the run cannot be recorded: %s", said == NULL ? "out of memory" : said);
  free(said);
  return rc != 0 ? rc : ended;
}

/* ---- functions of the module ---- */
static int call_start_capture(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  Recorder* r = ((TwModule*)resource)->data;
  (void)args, (void)codes, (void)n, (void)ret;
  if (begin_capture(r) != 0) return -1;
  r->before = swap_stream(r, r->stream);
  return 0;
}

static int call_end_capture(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  Recorder* r = ((TwModule*)resource)->data;
  (void)args, (void)codes, (void)n, (void)ret;
  if (r->capturing) swap_stream(r, r->before);
  return end_capture(r, true);
}

static int call_record(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  (void)args, (void)codes, (void)n, (void)ret;
  return record(((TwModule*)resource)->data);
}

/* On the thread's stream, where copies of inputs and outputs go too. */
static int call_run_cuda_graph(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  Recorder* r = ((TwModule*)resource)->data;
  (void)args, (void)codes, (void)n, (void)ret;
  if ((r->recording == NULL || r->addresses != addresses_of(r->graph)) && record(r) != 0) return -1;
  const TwCuDevice* d = tw_cuda_device(r->device);
  if (d == NULL || tw_cuda_check(tw_cuda()->GraphLaunch(r->recording, tw_cuda_stream(d, NULL)), "cuGraphLaunch") != 0) return -1;
  return tw_findings_read(&r->graph->findings);
}

static int recorder_function(TwModule* self, const char* name, TwFunc** out) {
  static const struct {
    const char* name;
    TVMPackedCFunc callback;
  } own[] = {{"start_capture", call_start_capture},
             {"end_capture", call_end_capture},
             {"record", call_record},
             {"run_cuda_graph", call_run_cuda_graph}};
  const Recorder* r = self->data;
  for (size_t i = 0; i < sizeof own / sizeof own[0]; ++i) {
    if (strcmp(own[i].name, name) != 0) continue;
    *out = tw_func_method(own[i].callback, self);
    return *out == NULL ? -1 : 0;
  }
  return tw_module_find(r->executor, name, false, out);
}

static void free_recorder(Recorder* r) {
  drop_recording(r);
  if (r->stream != NULL) TVMStreamFree(kDLCUDA, r->device, r->stream);
  tw_module_release(r->executor);
  free(r);
}

static void recorder_destroy(TwModule* self) { free_recorder(self->data); }

static const TwModuleClass recorder_class = {.get_function = recorder_function, .destroy = recorder_destroy};

/* The one GPU of the executor; other devices are the host's. */
static int find_gpu(const TilewrightGraph* g, int* out) {
  char text[TW_DEVICE_TEXT];
  for (int i = 0; i < g->num_devices; ++i) {
    if (g->devices[i].device_type != kDLCUDA) continue;
    *out = g->devices[i].device_id;
    return 0;
  }
  return tw_fail("CUDA records runs on its own devices; the executor was given %s", tw_device_text(g->devices[0], text));
}

/* tvm.graph_executor_cuda_graph.create(graph_json, lib, device, ...), as tvm.graph_executor.create */
static int create(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  TVMValue made;
  int code;
  (void)resource;
  TwFunc* inner = tw_find_global("tvm.graph_executor.create");
  if (inner == NULL) return tw_fail("there is no graph executor here");
  const int rc = TVMFuncCall(inner, args, codes, n, &made, &code);
  tw_func_release(inner);
  if (rc != 0) return -1;
  TilewrightGraph* graph = code == kTVMModuleHandle ? tw_module_graph(made.v_handle) : NULL;
  Recorder* r = graph == NULL ? NULL : calloc(1, sizeof *r);
  if (r == NULL) {
    tw_drop_value(made, code);
    return graph != NULL ? tw_out_of_memory(sizeof *r) : tw_fail("tvm.graph_executor.create gives another executor than this runtime's");
  }
  r->executor = made.v_handle;
  r->graph = graph;
  TwModule* m = find_gpu(r->graph, &r->device) == 0 ? tw_module_new(&recorder_class, "CudaGraphExecutor", r) : NULL;
  if (m == NULL) {
    free_recorder(r);
    return -1;
  }
  tw_return_handle(ret, m, kTVMModuleHandle);
  return 0;
}

TW_GLOBAL_FUNCTIONS({"tvm.graph_executor_cuda_graph.create", create})
