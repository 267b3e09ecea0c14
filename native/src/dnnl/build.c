/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * From a region's graph to a sequence of primitives: operator by operator, between borders where tensors lie plainly. */
#include "dnnl.h"

/* The reads of an entry by nodes, and as results of the region. */
static void count_reads(TwNet* net, int* reads) {
  for (int i = 0; i < net->region.num_nodes; ++i) {
    const TwNode* n = &net->region.nodes[i];
    for (int k = 0; k < n->num_inputs; ++k) ++reads[net->region.nodes[n->inputs[k].node].first_entry + n->inputs[k].output];
  }
  for (int i = 0; i < net->region.num_heads; ++i) {
    const TwEntry* e = &net->region.heads[i];
    ++reads[net->region.nodes[e->node].first_entry + e->output];
  }
}

static const struct {
  const char* name;
  TwBuilder build;
} builders[] = {
    {"conv2d", tw_build_convolution}, {"conv2d_transpose", tw_build_convolution}, {"dense", tw_build_dense},
    {"batch_matmul", tw_build_batch_matmul}, {"max_pool2d", tw_build_pooling}, {"avg_pool2d", tw_build_pooling},
    {"global_max_pool2d", tw_build_pooling}, {"global_avg_pool2d", tw_build_pooling}, {"softmax", tw_build_softmax},
    {"log_softmax", tw_build_softmax}, {"layer_norm", tw_build_layer_norm}, {"batch_norm", tw_build_batch_norm},
    {"add", tw_build_binary}, {"subtract", tw_build_binary}, {"multiply", tw_build_binary}, {"divide", tw_build_binary},
    {"maximum", tw_build_binary}, {"minimum", tw_build_binary}, {"concatenate", tw_build_concat},
    {"reshape", tw_build_reshape}, {"squeeze", tw_build_reshape}, {"expand_dims", tw_build_reshape},
    {"batch_flatten", tw_build_reshape}, {"transpose", tw_build_transpose},
};

static int build_node(TwNet* net, const TwNode* n) {
  TwFusion f;
  TwActivation a;
  int rc = 0;
  for (int i = 0; i < n->num_inputs; ++i) {
    int tensor = tw_input(net, n, i);
    if (tensor < 0) return tw_node_fail(&net->region, n, "its input %d is an output that no operator computes", i);
    --net->buffers[net->tensors[tensor].buffer].uses;
  }
  if (tw_fusion_parse(n, &f)) {
    for (size_t i = 0; i < sizeof builders / sizeof builders[0]; ++i) {
      if (strcmp(builders[i].name, f.base) == 0) return builders[i].build(net, n);
    }
  }
  if (tw_activation(&net->region, n, f.base, &a, &rc)) return rc != 0 ? -1 : tw_build_activation(net, n);
  return tw_node_fail(&net->region, n, "this runtime knows no such operator; a newer one may");
}

/* A constant as it lies; weights may come transposed. */
static OnednnDesc constant_desc(TwNet* net, const TwNode* n, const DLTensor* t) {
  OnednnDesc desc = NULL;
  if (tw_is_compact(t)) return tw_plain(net, &n->shapes[0]);
  int status = net->api->memory_desc_create_with_strides(&desc, t->ndim, t->shape, ONEDNN_F32, t->strides);
  return tw_status(&net->region, n, status) != 0 ? NULL : desc;
}

/* The tensors that the region is given: arguments, and constants, which stay where they are. */
static int bind_leaf(TwNet* net, const TwNode* n, const DLTensor* const* constants, int* num_constants) {
  for (int i = 0; i < n->num_outputs; ++i) {
    OnednnDesc desc = n->kind == TW_CONST ? constant_desc(net, n, constants[*num_constants]) : tw_plain(net, &n->shapes[i]);
    int tensor = desc == NULL ? -1 : tw_new_tensor(net, tw_new_buffer(net, 0), desc);
    if (tw_set_output(net, n, i, tensor) != 0) return -1;
    TwBuffer* b = &net->buffers[net->tensors[tensor].buffer];
    b->size = net->api->memory_desc_get_size(tw_desc(net, tensor));
    if (n->kind == TW_CONST) {
      b->kind = TW_HELD;
      const DLTensor* t = constants[(*num_constants)++];
      b->data = (char*)t->data + t->byte_offset;
    } else {
      b->kind = TW_ARGUMENT;
      b->argument = net->num_arguments++;
    }
  }
  return 0;
}

/* A result goes to the caller's tensor: what computes it writes there, or it is reordered. */
static int bind_head(TwNet* net, const TwEntry* e) {
  const TwNode* n = &net->region.nodes[e->node];
  const TwShape* shape = &n->shapes[e->output];
  int argument = net->num_arguments++;
  int tensor = net->values[n->first_entry + e->output];
  OnednnDesc plain = tw_plain(net, shape);
  if (plain == NULL) return -1;
  if (tensor < 0) {
    net->api->memory_desc_destroy(plain);
    return tw_node_fail(&net->region, n, "output %d is a result, and no operator computes it", e->output);
  }
  size_t size = net->api->memory_desc_get_size(plain);
  TwBuffer* b = &net->buffers[net->tensors[tensor].buffer];
  if (b->kind == TW_OWN && b->size == size && net->api->memory_desc_equal(tw_desc(net, tensor), plain)) {
    net->api->memory_desc_destroy(plain);
    b->kind = TW_ARGUMENT;
    b->argument = argument;
    return 0;
  }
  int to = tw_new_tensor(net, tw_new_buffer(net, size), plain);
  if (to < 0) return -1;
  b = &net->buffers[net->tensors[to].buffer];
  b->kind = TW_ARGUMENT;
  b->argument = argument;
  return tw_reorder_to(net, tensor, to);
}

int tw_net_build(TwNet* net, const DLTensor* const* constants) {
  const TwRegion* r = &net->region;
  int num_constants = 0, status = net->api->stream_create(&net->stream, net->api->engine, ONEDNN_IN_ORDER);
  if (status != ONEDNN_SUCCESS) return tw_fail("dnnl_json: oneDNN cannot make a stream (status %d)", status);
  net->values = malloc(sizeof *net->values * (size_t)r->num_entries);
  net->reads = calloc((size_t)r->num_entries, sizeof *net->reads);
  if (net->values == NULL || net->reads == NULL) return tw_out_of_memory((size_t)r->num_entries);
  for (int i = 0; i < r->num_entries; ++i) net->values[i] = -1;
  count_reads(net, net->reads);
  for (int i = 0; i < r->num_nodes; ++i) {
    const TwNode* n = &r->nodes[i];
    if (n->kind != TW_KERNEL && bind_leaf(net, n, constants, &num_constants) != 0) return -1;
  }
  for (int i = 0; i < r->num_nodes; ++i) {
    if (r->nodes[i].kind == TW_KERNEL && build_node(net, &r->nodes[i]) != 0) return -1;
  }
  for (int i = 0; i < r->num_heads; ++i) {
    if (bind_head(net, &r->heads[i]) != 0) return -1;
  }
  return tw_net_plan(net);
}
