/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * What a graph executor's files share: one user at a time, and what inputs, outputs and nodes there are.
 *
 * One user at a time. Whatever touches tensors begins with graph_begin and ends with graph_end. A second thread is told so, or
 * waits where that is the point of the call (TilewrightGraphInfer). */
#include "graph.h"

/* ---- one user at a time ---- */
int graph_begin(TilewrightGraph* g, bool wait) {
  tw_lock(&g->lock);
  const bool inside = g->busy && pthread_equal(g->user, pthread_self());
  if (g->forks != tw_forks()) { /* whoever used or awaited it was a thread of the parent, but for this one */
    g->forks = tw_forks();
    g->busy = inside;
    pthread_cond_init(&g->idle, NULL);
  }
  /* who waits inside a parallel loop may keep the loop that is waited for from ending */
  while (wait && g->busy && !inside && !tw_thread()->in_parallel) pthread_cond_wait(&g->idle, &g->lock.mutex);
  const bool mine = !g->busy;
  if (mine) {
    g->busy = true;
    g->user = pthread_self();
  }
  tw_unlock(&g->lock);
  if (mine) return 0;
  if (inside) return tw_fail("an operator uses the graph executor that is running it");
  return tw_fail("another thread is using this graph executor; call infer, which waits, or give each thread an executor "
                 "of its own (they share the weights of one library)");
}

void graph_end(TilewrightGraph* g) {
  tw_lock(&g->lock);
  g->busy = false;
  pthread_cond_signal(&g->idle);
  tw_unlock(&g->lock);
}

/* ---- what there is ---- */
int TilewrightGraphNumInputs(const TilewrightGraph* g) { return g->num_inputs; }

int TilewrightGraphNumOutputs(const TilewrightGraph* g) { return g->num_outputs; }

int TilewrightGraphInputIndex(const TilewrightGraph* g, const char* name) {
  return (int)(intptr_t)tw_map_get(&g->input_index, name) - 1;
}

const char* TilewrightGraphInputName(const TilewrightGraph* g, int index) {
  return index < 0 || index >= g->num_inputs ? NULL : g->nodes[g->inputs[index]].name;
}

GraphEntry* graph_input(const TilewrightGraph* g, int index) { return &g->entries[g->row_pointers[g->inputs[index]]]; }

int TilewrightGraphInputIsParameter(const TilewrightGraph* g, int index) {
  return index >= 0 && index < g->num_inputs && graph_input(g, index)->parameter;
}

int TilewrightGraphOutputIndex(const TilewrightGraph* g, const char* name) {
  for (int i = 0; i < g->num_outputs; ++i) {
    if (strcmp(g->output_names[i], name) == 0) return i;
  }
  return -1;
}

const char* TilewrightGraphOutputName(const TilewrightGraph* g, int index) {
  return index < 0 || index >= g->num_outputs ? NULL : g->output_names[index];
}

int graph_input_entry(const TilewrightGraph* g, int index, int* entry) {
  if (index < 0 || index >= g->num_inputs) {
    return tw_fail("input %d is out of range: the graph has %d inputs", index, g->num_inputs);
  }
  *entry = g->row_pointers[g->inputs[index]];
  return 0;
}

int graph_output_entry(const TilewrightGraph* g, int index, int* entry) {
  if (index < 0 || index >= g->num_outputs) {
    return tw_fail("output %d is out of range: the graph has %d outputs", index, g->num_outputs);
  }
  *entry = g->outputs[index];
  return 0;
}

/* A tensor without its memory. */
DLTensor graph_description(const TilewrightGraph* g, int entry) {
  const GraphEntry* e = &g->entries[entry];
  return (DLTensor){.device = e->device, .ndim = e->ndim, .dtype = e->type, .shape = e->shape};
}

int TilewrightGraphInputInfo(const TilewrightGraph* g, int index, DLTensor* out) {
  int entry;
  if (graph_input_entry(g, index, &entry) != 0) return -1;
  *out = graph_description(g, entry);
  return 0;
}

int TilewrightGraphOutputInfo(const TilewrightGraph* g, int index, DLTensor* out) {
  int entry;
  if (graph_output_entry(g, index, &entry) != 0) return -1;
  *out = graph_description(g, entry);
  return 0;
}

int TilewrightGraphNumNodes(const TilewrightGraph* g) { return g->num_nodes; }

const char* TilewrightGraphNodeName(const TilewrightGraph* g, int node_index) {
  return node_index < 0 || node_index >= g->num_nodes ? NULL : g->nodes[node_index].name;
}

bool graph_is_nop(const GraphNode* node) { return node->function != NULL && strcmp(node->function, "__nop") == 0; }

bool graph_is_view(const GraphNode* node) { return node->function != NULL && strcmp(node->function, "__view") == 0; }

int graph_find_input(const TilewrightGraph* g, const char* name, int* index) {
  *index = TilewrightGraphInputIndex(g, name);
  if (*index >= 0) return 0;
  TwNames names = {.used = 0};
  for (int i = 0; i < g->num_inputs; ++i) {
    if (!graph_input(g, i)->parameter) tw_add_name(&names, TilewrightGraphInputName(g, i));
  }
  return tw_fail("the graph has no input named \"%s\"; its inputs are: %s", name, names.text);
}

int graph_find_output(const TilewrightGraph* g, const char* name, int* index) {
  *index = TilewrightGraphOutputIndex(g, name);
  if (*index >= 0) return 0;
  TwNames names = {.used = 0};
  for (int i = 0; i < g->num_outputs; ++i) tw_add_name(&names, g->output_names[i]);
  return tw_fail("the graph has no output named \"%s\"; its outputs are: %s", name, names.text);
}

/* An empty tensor needs no value. */
void graph_unset_inputs(const TilewrightGraph* g, TwNames* names) {
  *names = (TwNames){.used = 0};
  for (int i = 0; i < g->num_inputs; ++i) {
    const GraphEntry* e = graph_input(g, i);
    if (!e->given && e->nbytes != 0) tw_add_name(names, TilewrightGraphInputName(g, i));
  }
}

void graph_warn_unset(TilewrightGraph* g) {
  if (g->warned) return;
  TwNames names;
  graph_unset_inputs(g, &names);
  g->warned = true;
  if (names.used == 0) return;
  char text[4 * sizeof names.text + 64];
  const int length = snprintf(text, sizeof text, "the graph runs with inputs that nobody has set: ");
  tw_escape(names.text, text + length);
  tw_warn(text);
}
