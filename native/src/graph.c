/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The graph executor: storage, the prepared calls, and running them. run() walks an array of calls; it allocates
 * nothing and looks nothing up.
 *
 * Calls that run once. Some calls read parameters only: they bring weights that are larger when they are ready for use
 * than in the file to that form. They run when the executor is made, and again before the next run when a parameter
 * that they read has changed. Executors of one library share their results.
 *
 * One user at a time. Whatever touches tensors begins with graph_begin and ends with graph_end. A second thread is told so, or
 * waits where that is the point of the call (TilewrightGraphInfer).
 *
 * Memory of tensors begins as zeros: an input that nobody has set is 0, never what lay there before. */
#include "graph.h"

/* ---- one user at a time ---- */
int graph_begin(TilewrightGraph* g, bool wait) {
  pthread_mutex_lock(&g->lock);
  const bool inside = g->busy && pthread_equal(g->user, pthread_self());
  /* who waits inside a parallel loop may keep the loop that is waited for from ending */
  while (wait && g->busy && !inside && !tw_thread()->in_parallel) pthread_cond_wait(&g->idle, &g->lock);
  const bool mine = !g->busy;
  if (mine) {
    g->busy = true;
    g->user = pthread_self();
  }
  pthread_mutex_unlock(&g->lock);
  if (mine) return 0;
  if (inside) return tw_fail("an operator uses the graph executor that is running it");
  return tw_fail("another thread is using this graph executor; call infer, which waits, or give each thread an executor "
                 "of its own (they share the weights of one library)");
}

void graph_end(TilewrightGraph* g) {
  pthread_mutex_lock(&g->lock);
  g->busy = false;
  pthread_cond_signal(&g->idle);
  pthread_mutex_unlock(&g->lock);
}

/* ---- life ---- */
static void free_calls(TilewrightGraph* g) {
  for (int i = 0; i < g->num_calls; ++i) {
    GraphCall* c = &g->calls[i];
    tw_func_release(c->func);
    free(c->args);
    free(c->codes);
    free(c->tensors);
    free(c->flat_shapes);
  }
  free(g->calls);
}

void TilewrightGraphFree(TilewrightGraph* g) {
  if (g == NULL) return;
  free_calls(g);
  for (int i = 0; i < g->num_entries && g->entries != NULL; ++i) {
    tw_array_release(g->entries[i].array);
    free(g->entries[i].shape);
    free(g->entries[i].uses);
  }
  for (int i = 0; i < g->num_nodes && g->nodes != NULL; ++i) {
    free(g->nodes[i].name);
    free(g->nodes[i].function);
    free(g->nodes[i].inputs);
  }
  for (int i = 0; i < g->num_storage && g->storage != NULL; ++i) tw_array_release(g->storage[i]);
  for (int i = 0; i < g->num_outputs && g->targets != NULL; ++i) tw_array_release(g->targets[i].array);
  tw_map_clear(&g->input_index, NULL);
  free(g->storage);
  free(g->entries);
  free(g->nodes);
  free(g->row_pointers);
  free(g->prepared);
  free(g->inputs);
  free(g->outputs);
  free(g->targets);
  tw_free_strings(g->output_names, (size_t)g->num_outputs);
  graph_leave_devices(g);
  tw_module_release(g->lib);
  pthread_mutex_destroy(&g->lock);
  pthread_cond_destroy(&g->idle);
  free(g);
}

/* ---- storage ---- */
static bool is_on(const GraphEntry* e, DLDevice device) {
  return e->device.device_type == device.device_type && e->device.device_id == device.device_id;
}

static bool is_nop(const GraphNode* node) { return node->function != NULL && strcmp(node->function, "__nop") == 0; }

/* A __view (a concatenation or a split) has nothing to do: its inputs and outputs are parts of the same storage. */
static bool is_view(const GraphNode* node) { return node->function != NULL && strcmp(node->function, "__view") == 0; }

/* A __nop (a reshape) shares its input's memory under another shape. */
static int find_roots(TilewrightGraph* g) {
  for (int i = 0; i < g->num_nodes; ++i) {
    if (!is_nop(&g->nodes[i])) continue;
    int entry = g->row_pointers[i];
    if (g->nodes[i].num_inputs != 1) return tw_fail("bad graph JSON: __nop node \"%s\" needs one input", g->nodes[i].name);
    int from = g->nodes[i].inputs[0];
    if (g->entries[from].nbytes != g->entries[entry].nbytes) {
      return tw_fail("bad graph JSON: __nop node \"%s\" changes the size of its input", g->nodes[i].name);
    }
    if (!tw_same_memory(g->entries[from].device, g->entries[entry].device)) {
      return tw_fail("bad graph JSON: __nop node \"%s\" is on another device than its input", g->nodes[i].name);
    }
    g->entries[entry].root = g->entries[from].root;
  }
  return 0;
}

static bool is_part(const TilewrightGraph* g, const GraphNode* node, int entry) {
  const int first = g->row_pointers[node - g->nodes], end = g->row_pointers[node - g->nodes + 1];
  for (int e = first; e < end; ++e) {
    if (g->entries[e].root == entry) return true;
  }
  for (int i = 0; i < node->num_inputs; ++i) {
    if (g->entries[node->inputs[i]].root == entry) return true;
  }
  return false;
}

bool graph_is_movable(const TilewrightGraph* g, int entry) {
  for (int i = 0; i < g->num_nodes; ++i) {
    const GraphNode* node = &g->nodes[i];
    const bool made_here = g->row_pointers[i] <= entry && entry < g->row_pointers[i + 1];
    if (made_here && (node->function == NULL || node->once)) return false;
    if (is_view(node) && is_part(g, node, entry)) return false;
  }
  return true;
}

/* Gives parameters their place before storage is allocated, so that none is allocated for them. */
static int adopt_params(TilewrightGraph* g, const TwParams* params, TwShared* shared) {
  for (size_t i = 0; params != NULL && i < params->count; ++i) {
    int index = TilewrightGraphInputIndex(g, params->names[i]);
    if (index < 0) continue;
    TwArray* array = params->arrays[i];
    if (shared != NULL) array = graph_shared_param(shared, array, g->entries[g->row_pointers[g->inputs[index]]].device);
    if (array == NULL || graph_bind_param(g, index, array, true) != 0) return -1;
  }
  return 0;
}

/* Marks the parameters that calls that run once read; the graph must not run such a call on anything else. */
static int mark_feeding(TilewrightGraph* g) {
  bool* fixed = calloc((size_t)g->num_entries + 1, sizeof *fixed); /* of entries: an input, or a result of such a call */
  if (fixed == NULL) return tw_out_of_memory((size_t)g->num_entries);
  int rc = 0;
  for (int i = 0; rc == 0 && i < g->num_nodes; ++i) {
    const GraphNode* node = &g->nodes[i];
    for (int e = g->row_pointers[i]; e < g->row_pointers[i + 1]; ++e) fixed[e] = node->function == NULL || node->once;
    for (int k = 0; rc == 0 && node->once && k < node->num_inputs; ++k) {
      int root = g->entries[node->inputs[k]].root;
      if (!fixed[node->inputs[k]] || is_nop(node) || is_view(node)) {
        rc = tw_fail("bad graph JSON: node \"%s\" cannot run once", node->name);
      }
      g->entries[root].feeds_once = true;
    }
  }
  free(fixed);
  return rc;
}

/* The entries of calls that run once, in order; gives their number. */
static int prepared_entries(const TilewrightGraph* g, int* entries) {
  int count = 0;
  for (int i = 0; i < g->num_nodes; ++i) {
    for (int e = g->row_pointers[i]; g->nodes[i].once && e < g->row_pointers[i + 1]; ++e) entries[count++] = e;
  }
  return count;
}

/* Allocates the results on one device of calls that run once, one after the other: they share memory with nothing. */
static int allocate_prepared_on(TilewrightGraph* g, DLDevice device) {
  int64_t total = 0;
  int count = 0;
  for (int i = 0; i < g->num_prepared; ++i) {
    const GraphEntry* e = &g->entries[g->prepared[i]];
    if (!is_on(e, device)) continue;
    if (e->nbytes > INT64_MAX / 4 || total > INT64_MAX / 2) return tw_out_of_memory(e->nbytes);
    total += (int64_t)tw_round_up(e->nbytes, TW_ALIGNMENT);
    ++count;
  }
  TwArray* memory = count == 0 ? NULL : tw_array_zeros(&total, 1, (DLDataType){kDLUInt, 8, 1}, device);
  if (memory == NULL) return count == 0 ? 0 : -1;
  uint64_t offset = 0;
  int rc = 0;
  for (int i = 0; rc == 0 && i < g->num_prepared; ++i) {
    GraphEntry* e = &g->entries[g->prepared[i]];
    if (!is_on(e, device)) continue;
    e->array = tw_array_view(memory, offset, e->shape, e->ndim, e->type);
    if (e->array == NULL) rc = -1;
    offset += tw_round_up(e->nbytes, TW_ALIGNMENT);
  }
  tw_array_release(memory);
  return rc;
}

static int allocate_prepared(TilewrightGraph* g) {
  for (int i = 0; i < g->num_devices; ++i) {
    if (allocate_prepared_on(g, g->devices[i]) != 0) return -1;
  }
  return 0;
}

/* Whether another executor has left its results of calls that run once, where this one can use them. */
static bool can_take(const TilewrightGraph* g, const TwShared* shared) {
  if (shared == NULL || shared->num_prepared != g->num_prepared) return false;
  for (int i = 0; i < g->num_prepared; ++i) {
    if (!tw_same_memory(shared->prepared[i]->tensor.device, g->entries[g->prepared[i]].device)) return false;
  }
  return true;
}

/* Takes the results of calls that run once from another executor, or allocates them. */
static int place_prepared(TilewrightGraph* g, const TwShared* shared) {
  g->prepared = calloc((size_t)g->num_entries + 1, sizeof *g->prepared);
  if (g->prepared == NULL) return tw_out_of_memory((size_t)g->num_entries * sizeof *g->prepared);
  g->num_prepared = prepared_entries(g, g->prepared);
  g->stale = g->num_prepared > 0 && !can_take(g, shared);
  if (g->stale) return allocate_prepared(g);
  for (int i = 0; i < g->num_prepared; ++i) {
    GraphEntry* e = &g->entries[g->prepared[i]];
    e->array = tw_array_retain(shared->prepared[i]);
    e->borrowed = true;
  }
  return 0;
}

/* How large each storage is, and where. */
static int measure_storage(const TilewrightGraph* g, uint64_t* sizes, DLDevice* devices) {
  for (int i = 0; i < g->num_entries; ++i) {
    const GraphEntry* e = &g->entries[i];
    if (g->entries[e->root].array != NULL) continue;
    uint64_t end = e->storage_offset + e->nbytes;
    if (end == 0) continue;
    if (sizes[e->storage] == 0) devices[e->storage] = e->device;
    if (sizes[e->storage] < end) sizes[e->storage] = end;
    if (!is_on(e, devices[e->storage])) return tw_fail("bad graph JSON: storage %d is on two devices", e->storage);
  }
  return 0;
}

static int allocate_storage(TilewrightGraph* g) {
  uint64_t* sizes = calloc((size_t)g->num_storage + 1, sizeof(uint64_t));
  DLDevice* devices = calloc((size_t)g->num_storage + 1, sizeof(DLDevice));
  g->storage = calloc((size_t)g->num_storage + 1, sizeof(TwArray*));
  int rc = sizes == NULL || devices == NULL || g->storage == NULL
               ? tw_out_of_memory((size_t)g->num_storage * sizeof(uint64_t))
               : measure_storage(g, sizes, devices);
  for (int i = 0; rc == 0 && i < g->num_storage; ++i) {
    int64_t size = (int64_t)sizes[i];
    if (size == 0) continue;
    g->storage[i] = tw_array_zeros(&size, 1, (DLDataType){kDLUInt, 8, 1}, devices[i]);
    if (g->storage[i] == NULL) rc = -1;
  }
  free(sizes);
  free(devices);
  return rc;
}

/* Gives an entry the memory of its root, or of its storage. */
static int place_entry(TilewrightGraph* g, int index) {
  GraphEntry* e = &g->entries[index];
  TwArray* parent;
  uint64_t offset = 0;
  if (e->root != index) {
    parent = g->entries[e->root].array;
  } else if (e->nbytes == 0 && g->storage[e->storage] == NULL) {
    e->array = tw_array_zeros(e->shape, e->ndim, e->type, e->device);
    return e->array == NULL ? -1 : 0;
  } else {
    parent = g->storage[e->storage];
    offset = e->storage_offset;
  }
  TwArray* array = tw_array_view(parent, offset, e->shape, e->ndim, e->type);
  if (array == NULL) return -1;
  tw_array_release(e->array);
  e->array = array;
  return 0;
}

static int place_entries(TilewrightGraph* g) {
  /* roots precede what refers to them: edges go from earlier nodes to later ones */
  for (int i = 0; i < g->num_entries; ++i) {
    if (g->entries[i].array == NULL && place_entry(g, i) != 0) return -1;
  }
  return 0;
}

/* ---- calls ---- */
/* Copies tensors[0] to tensors[1]; TVM's __copy moves data between devices. */
static int run_copy(GraphCall* c) { return tw_copy(&c->tensors[0], &c->tensors[1]); }

static int add_use(GraphEntry* e, DLTensor* t) {
  DLTensor** grown = realloc(e->uses, (size_t)(e->num_uses + 1) * sizeof *grown);
  if (grown == NULL) return tw_out_of_memory(sizeof *grown);
  e->uses = grown;
  e->uses[e->num_uses++] = t;
  return 0;
}

static int prepare_call(TilewrightGraph* g, GraphCall* c, int index) {
  const GraphNode* node = &g->nodes[index];
  int first = g->row_pointers[index], num_outputs = g->row_pointers[index + 1] - first;
  int n = c->num_args = node->num_inputs + num_outputs;
  c->node = index;
  c->args = calloc((size_t)n + 1, sizeof *c->args);
  c->codes = calloc((size_t)n + 1, sizeof *c->codes);
  c->tensors = calloc((size_t)n + 1, sizeof *c->tensors);
  c->flat_shapes = calloc((size_t)n + 1, sizeof *c->flat_shapes);
  if (c->args == NULL || c->codes == NULL || c->tensors == NULL || c->flat_shapes == NULL) {
    return tw_out_of_memory((size_t)n * sizeof *c->tensors);
  }
  for (int i = 0; i < n; ++i) {
    int entry = i < node->num_inputs ? node->inputs[i] : first + i - node->num_inputs;
    const GraphEntry* e = &g->entries[entry];
    DLTensor* t = &c->tensors[i];
    *t = e->array->tensor;
    t->data = (char*)t->data + t->byte_offset;
    t->byte_offset = 0;
    t->device = e->device; /* which is not the array's where devices share memory; kernels look at it */
    t->strides = NULL;
    t->shape = e->shape;
    if (node->flatten) {
      c->flat_shapes[i] = 1;
      for (int d = 0; d < t->ndim; ++d) c->flat_shapes[i] *= t->shape[d];
      t->ndim = 1;
      t->shape = &c->flat_shapes[i];
    }
    c->args[i].v_handle = t;
    c->codes[i] = kTVMDLTensorHandle;
    if (add_use(&g->entries[e->root], t) != 0) return -1;
  }
  return 0;
}

static int find_function(TilewrightGraph* g, GraphCall* c, const char* name, char** missing) {
  if (g->lib != NULL && tw_module_find(g->lib, name, true, &c->func) != 0) return -1;
  if (c->func != NULL) {
    c->direct = c->func->direct;
    return 0;
  }
  size_t used = *missing == NULL ? 0 : strlen(*missing);
  char* grown = realloc(*missing, used + strlen(name) + 3);
  if (grown == NULL) return tw_out_of_memory(used);
  sprintf(grown + used, "%s%s", used == 0 ? "" : ", ", name);
  *missing = grown;
  return 0;
}

/* Prepares the calls that run once, or the others. */
static int prepare_some(TilewrightGraph* g, bool once, char** missing) {
  for (int i = 0; i < g->num_nodes; ++i) {
    const GraphNode* node = &g->nodes[i];
    if (node->function == NULL || is_nop(node) || is_view(node) || node->once != once) continue;
    GraphCall* c = &g->calls[g->num_calls++];
    if (prepare_call(g, c, i) != 0) return -1;
    if (strcmp(node->function, "__copy") != 0) {
      if (find_function(g, c, node->function, missing) != 0) return -1;
    } else if (c->num_args != 2) {
      return tw_fail("bad graph JSON: __copy node \"%s\" needs one input and one output", node->name);
    }
  }
  return 0;
}

static int prepare_calls(TilewrightGraph* g) {
  g->calls = calloc((size_t)g->num_nodes + 1, sizeof *g->calls);
  if (g->calls == NULL) return tw_out_of_memory((size_t)g->num_nodes * sizeof *g->calls);
  char* missing = NULL;
  int rc = prepare_some(g, true, &missing);
  g->num_once = g->num_calls;
  if (rc == 0) rc = prepare_some(g, false, &missing);
  if (rc == 0 && missing != NULL) {
    rc = tw_fail("the library lacks functions that the graph calls: %s; was it built from another model?", missing);
  }
  free(missing);
  return rc;
}

/* ---- running ---- */
static int operator_failed(const TilewrightGraph* g, const GraphCall* c, int rc) {
  char* text = tw_strdup(TVMGetLastError());
  const char* name = g->nodes[c->node].name;
  if (text == NULL || text[0] == '\0') {
    tw_fail("operator %s failed with code %d", name, rc);
  } else {
    tw_fail("operator %s: %s", name, text);
  }
  free(text);
  return -1;
}

int graph_run_call(const TilewrightGraph* g, GraphCall* c) {
  TVMValue ret;
  int ret_code = kTVMNullptr, rc;
  if (c->direct != NULL) {
    rc = c->direct(c->args, c->codes, c->num_args, &ret, &ret_code, NULL);
  } else if (c->func != NULL) {
    rc = TVMFuncCall(c->func, c->args, c->codes, c->num_args, &ret, &ret_code);
  } else {
    rc = run_copy(c);
  }
  return rc == 0 ? 0 : operator_failed(g, c, rc);
}

int graph_replace_array(TilewrightGraph* g, int entry, TwArray* array, bool borrowed) {
  GraphEntry* e = &g->entries[entry];
  char* data = (char*)array->tensor.data + array->tensor.byte_offset;
  tw_array_retain(array);
  tw_array_release(e->array);
  e->array = array;
  e->borrowed = borrowed;
  for (int i = 0; i < e->num_uses; ++i) e->uses[i]->data = data;
  for (int i = entry + 1; i < g->num_entries; ++i) {
    if (g->entries[i].root == entry && g->entries[i].array != NULL && place_entry(g, i) != 0) return -1;
  }
  return 0;
}

int graph_own_memory(TilewrightGraph* g, int entry) {
  GraphEntry* e = &g->entries[entry];
  if (!e->borrowed) return 0;
  TwArray* own = tw_array_zeros(e->shape, e->ndim, e->type, e->device);
  if (own == NULL) return -1;
  int rc = graph_replace_array(g, entry, own, false);
  tw_array_release(own);
  return rc;
}

int graph_run_once(TilewrightGraph* g) {
  if (!g->stale) return 0;
  for (int i = 0; i < g->num_once; ++i) {
    int node = g->calls[i].node;
    for (int e = g->row_pointers[node]; e < g->row_pointers[node + 1]; ++e) {
      if (graph_own_memory(g, e) != 0) return -1;
    }
    if (graph_run_call(g, &g->calls[i]) != 0) return -1;
  }
  g->stale = g->exposed;
  return 0;
}

int graph_run(TilewrightGraph* g) {
  tw_clear_error();
  if (graph_run_once(g) != 0) return -1;
  for (int i = g->num_once; i < g->num_calls; ++i) {
    if (graph_run_call(g, &g->calls[i]) != 0) return -1;
  }
  g->executed = -1;
  return g->num_copied == 0 ? 0 : graph_copy_outputs(g);
}

int TilewrightGraphRun(TilewrightGraph* g) {
  if (graph_begin(g, false) != 0) return -1;
  graph_warn_unset(g);
  int rc = graph_run(g);
  graph_end(g);
  return rc;
}

/* ---- making an executor ---- */
/* Whether all parameters have their memory that calls that run once read. */
static bool has_prepared_params(const TilewrightGraph* g) {
  for (int i = 0; i < g->num_inputs; ++i) {
    const GraphEntry* e = &g->entries[g->row_pointers[g->inputs[i]]];
    if (e->feeds_once && !e->borrowed) return false;
  }
  return true;
}

/* Leaves what has been prepared to other executors. */
static int lend_prepared(TilewrightGraph* g, TwShared* shared) {
  shared->prepared = calloc((size_t)g->num_prepared, sizeof *shared->prepared);
  if (shared->prepared == NULL) return tw_out_of_memory((size_t)g->num_prepared * sizeof *shared->prepared);
  shared->num_prepared = g->num_prepared;
  for (int i = 0; i < g->num_prepared; ++i) {
    GraphEntry* e = &g->entries[g->prepared[i]];
    shared->prepared[i] = tw_array_retain(e->array);
    e->borrowed = true;
  }
  return 0;
}

/* Runs what runs once, unless another executor has. */
static int prepare_params(TilewrightGraph* g, TwShared* shared) {
  if (!g->stale || !has_prepared_params(g)) return 0;
  if (graph_run_once(g) != 0) return -1;
  return shared == NULL || shared->num_prepared != 0 ? 0 : lend_prepared(g, shared);
}

static int build_graph(TilewrightGraph* g, const char* json, size_t json_size, const DLDevice* devices, int num_devices,
                       const TwParams* params, TwShared* shared) {
  if (graph_take_devices(g, devices, num_devices) != 0 || graph_read_json(g, json, json_size) != 0) return -1;
  if (graph_place_entries(g) != 0 || find_roots(g) != 0 || mark_feeding(g) != 0) return -1;
  if (adopt_params(g, params, shared) != 0 || place_prepared(g, shared) != 0) return -1;
  if (allocate_storage(g) != 0 || place_entries(g) != 0 || prepare_calls(g) != 0) return -1;
  return prepare_params(g, shared);
}

int tw_graph_create(const char* json, size_t json_size, TwModule* lib, const DLDevice* devices, int num_devices,
                    const TwParams* params, TwShared* shared, TilewrightGraph** out) {
  TilewrightGraph* g = calloc(1, sizeof *g);
  if (g == NULL) return tw_out_of_memory(sizeof *g);
  pthread_mutex_init(&g->lock, NULL);
  pthread_cond_init(&g->idle, NULL);
  g->executed = -1;
  g->lib = lib == NULL ? NULL : tw_module_retain(lib);
  if (build_graph(g, json, json_size, devices, num_devices, params, shared) != 0) {
    TilewrightGraphFree(g);
    return -1;
  }
  *out = g;
  return 0;
}

int TilewrightGraphCreateOn(const char* graph_json, size_t json_size, TVMModuleHandle lib, const DLDevice* devices,
                            int num_devices, TilewrightGraph** out) {
  return tw_graph_create(graph_json, json_size, lib, devices, num_devices, NULL, NULL, out);
}

int TilewrightGraphCreate(const char* graph_json, size_t json_size, TVMModuleHandle lib, DLDevice device,
                          TilewrightGraph** out) {
  return TilewrightGraphCreateOn(graph_json, json_size, lib, &device, 1, out);
}
