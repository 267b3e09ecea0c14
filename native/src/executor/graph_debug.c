/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Looking into a graph executor: the time of each operator, and tensors that a run does not keep. */
#include "graph.h"

static int check_node(const TilewrightGraph* g, int node_index) {
  if (node_index >= 0 && node_index < g->num_nodes) return 0;
  return tw_fail("node %d is out of range: the graph has %d nodes", node_index, g->num_nodes);
}

/* ---- time ---- */
/* Lets the node's device end what it has begun. */
static int wait_for(const TilewrightGraph* g, int node) {
  const DLDevice device = g->entries[g->row_pointers[node]].device;
  return tw_is_host(device) ? 0 : tw_device_synchronize(device);
}

static int time_nodes(TilewrightGraph* g, int number, double (*now)(void), double* seconds) {
  tw_clear_error();
  g->executed = -1;
  for (int i = 0; i < g->num_nodes; ++i) seconds[i] = 0;
  if (graph_run_once(g) != 0) return -1;
  for (int run = 0; run < number; ++run) {
    double start = now();
    for (int i = g->num_once; i < g->num_calls; ++i) {
      if (graph_run_call(g, &g->calls[i]) != 0 || wait_for(g, g->calls[i].node) != 0) return -1;
      double end = now();
      seconds[g->calls[i].node] += (end - start) / number;
      start = end;
    }
  }
  return g->num_copied == 0 ? 0 : graph_copy_outputs(g);
}

int graph_time_nodes(TilewrightGraph* g, int number, double (*now)(void), double* seconds) {
  if (number < 1) return tw_fail("the number of runs must be 1 or more, not %d", number);
  if (graph_begin(g, false) != 0) return -1;
  graph_warn_unset(g);
  int rc = time_nodes(g, number, now, seconds);
  graph_end(g);
  return rc;
}

int TilewrightGraphTimeNodes(TilewrightGraph* g, int number, double* seconds) {
  return graph_time_nodes(g, number, tw_now, seconds);
}

/* ---- tensors ---- */
/* Runs the calls of nodes after `after` up to and including `node`. */
static int run_nodes(TilewrightGraph* g, int after, int node) {
  tw_clear_error();
  g->executed = -1;
  if (graph_run_once(g) != 0) return -1;
  for (int i = g->num_once; i < g->num_calls && g->calls[i].node <= node; ++i) {
    if (g->calls[i].node > after && graph_run_call(g, &g->calls[i]) != 0) return -1;
  }
  g->executed = node;
  return 0;
}

int TilewrightGraphExecuteNode(TilewrightGraph* g, int node_index) {
  if (check_node(g, node_index) != 0 || graph_begin(g, false) != 0) return -1;
  graph_warn_unset(g);
  int rc = run_nodes(g, g->executed < node_index ? g->executed : -1, node_index);
  graph_end(g);
  return rc;
}

static int copy_node_output(const TilewrightGraph* g, int node_index, int output, TVMArrayHandle* out) {
  const GraphNode* node = &g->nodes[node_index];
  const int first = g->row_pointers[node_index], count = g->row_pointers[node_index + 1] - first;
  if (output < 0 || output >= count) {
    return tw_fail("node \"%s\" has %d outputs; there is no output %d", node->name, count, output);
  }
  if (node->function != NULL && g->executed != node_index) {
    return tw_fail("the memory of node \"%s\" may hold another tensor by now: call execute_node(%d) first", node->name,
                   node_index);
  }
  const GraphEntry* e = &g->entries[first + output];
  TwArray* copy = tw_array_new(e->shape, e->ndim, e->type, (DLDevice){kDLCPU, 0});
  if (copy == NULL) return -1;
  if (tw_copy(&e->array->tensor, &copy->tensor) != 0) {
    tw_array_release(copy);
    return -1;
  }
  *out = &copy->tensor;
  return 0;
}

int TilewrightGraphGetNodeOutput(TilewrightGraph* g, int node_index, int output, TVMArrayHandle* out) {
  if (check_node(g, node_index) != 0 || graph_begin(g, false) != 0) return -1;
  int rc = copy_node_output(g, node_index, output, out);
  graph_end(g);
  return rc;
}

int TilewrightGraphDebugGetOutput(TilewrightGraph* g, int node_index, DLTensor* out) {
  if (check_node(g, node_index) != 0 || graph_begin(g, false) != 0) return -1;
  graph_warn_unset(g);
  int rc = run_nodes(g, -1, node_index);
  if (rc == 0) rc = tw_copy(&g->entries[g->row_pointers[node_index]].array->tensor, out);
  graph_end(g);
  return rc;
}
