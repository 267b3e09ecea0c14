/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Making a graph executor, and its end. */
#include "graph.h"

/* ---- parameters ---- */
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

/* ---- parameters in the code (-link-params) ---- */
static void release_linked(DLManagedTensor* t) {
  tw_module_release(t->manager_ctx);
  free(t);
}

/* The array at data, in the memory of a module, which it retains. */
static TwArray* linked_array(TwModule* module, void* data, const GraphEntry* e) {
  DLManagedTensor* t = calloc(1, sizeof *t);
  if (t == NULL) {
    tw_out_of_memory(sizeof *t);
    return NULL;
  }
  t->dl_tensor = (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = e->ndim, .dtype = e->type, .shape = e->shape};
  t->manager_ctx = tw_module_retain(module);
  t->deleter = release_linked;
  TVMArrayHandle made = NULL;
  if (TVMArrayFromDLPack(t, &made) != 0) {
    release_linked(t);
    return NULL;
  }
  TwArray* array = (TwArray*)made;
  array->read_only = true;
  return array;
}

/* Gives an input the memory that the module's function of its storage tells, if it tells any. */
static int adopt_linked(TilewrightGraph* g, TwFunc* lookup, int index) {
  const GraphEntry* e = &g->entries[g->row_pointers[g->inputs[index]]];
  TVMValue storage = {.v_int64 = e->storage}, found = {0};
  int code = kTVMArgInt, found_code = kTVMNullptr;
  if (e->array != NULL) return 0;
  if (TVMFuncCall(lookup, &storage, &code, 1, &found, &found_code) != 0) return -1;
  if (found_code != kTVMOpaqueHandle || found.v_handle == NULL) return 0;
  TwArray* array = linked_array(g->lib, found.v_handle, e);
  const int rc = array == NULL ? -1 : graph_bind_param(g, index, array, true);
  tw_array_release(array);
  return rc;
}

/* Addresses of a module on another machine say nothing here: its parameters are set as inputs are. */
static int adopt_all_linked(TilewrightGraph* g) {
  TwFunc* lookup = NULL;
  if (g->lib == NULL || strcmp(g->lib->type_key, "rpc") == 0) return 0;
  if (tw_module_find(g->lib, "_lookup_linked_param", true, &lookup) != 0) return -1;
  int rc = 0;
  for (int i = 0; lookup != NULL && rc == 0 && i < g->num_inputs; ++i) rc = adopt_linked(g, lookup, i);
  tw_func_release(lookup);
  return rc;
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
      if (!fixed[node->inputs[k]] || graph_is_nop(node) || graph_is_view(node)) {
        rc = tw_fail("bad graph JSON: node \"%s\" cannot run once", node->name);
      }
      g->entries[root].feeds_once = true;
    }
  }
  free(fixed);
  return rc;
}

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
  if (graph_place_entries(g) != 0 || graph_find_roots(g) != 0 || mark_feeding(g) != 0) return -1;
  if (adopt_params(g, params, shared) != 0 || adopt_all_linked(g) != 0 || graph_place_prepared(g, shared) != 0) return -1;
  if (graph_allocate_storage(g) != 0 || graph_allocate_entries(g) != 0 || graph_prepare_calls(g) != 0) return -1;
  return prepare_params(g, shared);
}

int tw_graph_create(const char* json, size_t json_size, TwModule* lib, const DLDevice* devices, int num_devices,
                    const TwParams* params, TwShared* shared, TilewrightGraph** out) {
  TilewrightGraph* g = calloc(1, sizeof *g);
  if (g == NULL) return tw_out_of_memory(sizeof *g);
  tw_lock_init(&g->lock);
  pthread_cond_init(&g->idle, NULL);
  g->forks = tw_forks();
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

void TilewrightGraphFree(TilewrightGraph* g) {
  if (g == NULL) return;
  graph_free_calls(g);
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
  tw_findings_free(&g->findings);
  graph_leave_devices(g);
  tw_module_release(g->lib);
  tw_lock_destroy(&g->lock);
  pthread_cond_destroy(&g->idle);
  free(g);
}
