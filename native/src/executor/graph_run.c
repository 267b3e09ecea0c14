/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The executor's calls: preparing them, and running them. A run walks an array of calls; it allocates nothing and looks
 * nothing up.
 *
 * Calls that run once. Some calls read parameters only: they bring weights that are larger when they are ready for use
 * than in the file to that form. They run when the executor is made, and again before the next run when a parameter
 * that they read has changed. Executors of one library share their results. */
#include "graph.h"

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
    graph_point_at(t, &e->array->tensor);
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
    if (node->function == NULL || graph_is_nop(node) || graph_is_view(node) || node->once != once) continue;
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

int graph_prepare_calls(TilewrightGraph* g) {
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

void graph_free_calls(TilewrightGraph* g) {
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

int graph_copy_outputs(const TilewrightGraph* g) {
  for (int i = 0; i < g->num_outputs; ++i) {
    const GraphTarget* t = &g->targets[i];
    if (t->copied && tw_copy(&g->entries[g->outputs[i]].array->tensor, &t->array->tensor) != 0) return -1;
  }
  return 0;
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

static int run_calls(TilewrightGraph* g) {
  if (graph_run_once(g) != 0) return -1;
  for (int i = g->num_once; i < g->num_calls; ++i) {
    if (graph_run_call(g, &g->calls[i]) != 0) return -1;
  }
  g->executed = -1;
  return g->num_copied == 0 ? 0 : graph_copy_outputs(g);
}

int graph_run(TilewrightGraph* g) {
  tw_clear_error();
  TwFindings* before = tw_findings_begin(&g->findings);
  tw_run_begin();
  const int rc = run_calls(g);
  tw_run_end();
  return tw_findings_end(before, rc);
}

int TilewrightGraphRun(TilewrightGraph* g) {
  if (graph_begin(g, false) != 0) return -1;
  graph_warn_unset(g);
  int rc = graph_run(g);
  graph_end(g);
  return rc;
}
