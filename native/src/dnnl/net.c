/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * What a region becomes: buffers, tensors in them, and steps, which are primitives. Tensors keep the layout that the operator
 * before has chosen; reorders stand where the next one insists on another. Constants are reordered here, once. */
#include "dnnl.h"

/* Makes room for one more element in an array of count; capacities are powers of two. */
static int grow(void* array, int count, size_t size) {
  void** place = array;
  if (count != 0 && (count & (count - 1)) != 0) return 0;
  void* grown = realloc(*place, (count == 0 ? 1 : 2 * (size_t)count) * size);
  if (grown == NULL) return tw_out_of_memory((size_t)count * size);
  *place = grown;
  return 0;
}

int tw_status(const TwRegion* r, const TwNode* n, int status) {
  switch (status) {
    case ONEDNN_SUCCESS: return 0;
    case ONEDNN_OUT_OF_MEMORY: return tw_node_fail(r, n, "oneDNN is out of memory");
    case ONEDNN_INVALID_ARGUMENTS: return tw_node_fail(r, n, "oneDNN refuses its shapes or attributes");
    case ONEDNN_UNIMPLEMENTED: return tw_node_fail(r, n, "oneDNN has no implementation of it on this processor");
    default: return tw_node_fail(r, n, "oneDNN failed (status %d)", status);
  }
}

/* ---- buffers and tensors ---- */
int tw_new_buffer(TwNet* net, size_t size) {
  if (grow(&net->buffers, net->num_buffers, sizeof *net->buffers) != 0) return -1;
  net->buffers[net->num_buffers] = (TwBuffer){.kind = TW_OWN, .size = size, .first = -1, .last = -1};
  return net->num_buffers++;
}

int tw_new_tensor(TwNet* net, int buffer, OnednnDesc desc) {
  if (desc == NULL || buffer < 0 || grow(&net->tensors, net->num_tensors, sizeof *net->tensors) != 0) {
    if (desc != NULL) net->api->memory_desc_destroy(desc);
    return -1;
  }
  net->tensors[net->num_tensors] = (TwTensor){.buffer = buffer, .desc = desc};
  return net->num_tensors++;
}

static OnednnDesc copy_of(TwNet* net, OnednnConstDesc desc) {
  OnednnDesc copy = NULL;
  if (net->api->memory_desc_clone(&copy, desc) == ONEDNN_SUCCESS) return copy;
  tw_fail("dnnl_json: out of memory");
  return NULL;
}

int tw_new_value(TwNet* net, OnednnConstDesc desc) {
  OnednnDesc copy = copy_of(net, desc);
  int buffer = copy == NULL ? -1 : tw_new_buffer(net, net->api->memory_desc_get_size(desc));
  return tw_new_tensor(net, buffer, copy);
}

OnednnConstDesc tw_desc(const TwNet* net, int tensor) { return net->tensors[tensor].desc; }

/* oneDNN has no tensors without dimensions. */
static OnednnDesc described(TwNet* net, const TwShape* shape, bool any) {
  static const int64_t one[1] = {1};
  const int64_t* dims = shape->ndim == 0 ? one : shape->dims;
  int ndim = shape->ndim == 0 ? 1 : shape->ndim;
  int64_t strides[ONEDNN_MAX_NDIMS], stride = 1;
  OnednnDesc desc = NULL;
  for (int i = ndim - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= dims[i];
  }
  int status = any ? net->api->memory_desc_create_with_tag(&desc, ndim, dims, ONEDNN_F32, ONEDNN_ANY)
                   : net->api->memory_desc_create_with_strides(&desc, ndim, dims, ONEDNN_F32, strides);
  if (status == ONEDNN_SUCCESS) return desc;
  tw_fail("dnnl_json: oneDNN cannot describe a tensor (status %d)", status);
  return NULL;
}

OnednnDesc tw_plain(TwNet* net, const TwShape* shape) { return described(net, shape, false); }
OnednnDesc tw_any(TwNet* net, const TwShape* shape) { return described(net, shape, true); }

int tw_input(TwNet* net, const TwNode* n, int i) {
  const TwEntry* e = &n->inputs[i];
  return net->values[net->region.nodes[e->node].first_entry + e->output];
}

int tw_set_output(TwNet* net, const TwNode* n, int i, int tensor) {
  if (tensor < 0) return -1;
  net->values[n->first_entry + i] = tensor;
  net->buffers[net->tensors[tensor].buffer].uses += net->reads[n->first_entry + i];
  return 0;
}

bool tw_may_overwrite(const TwNet* net, int tensor) {
  const TwBuffer* b = &net->buffers[net->tensors[tensor].buffer];
  return b->kind == TW_OWN && b->uses == 0;
}

/* ---- primitives ---- */
void tw_add_arg(TwArgs* args, int arg, int tensor) {
  args->args[args->count] = arg;
  args->tensors[args->count++] = tensor;
}

static int add_step(TwNet* net, OnednnPrimitive primitive, const TwArgs* args) {
  if (grow(&net->steps, net->num_steps, sizeof *net->steps) != 0) return -1;
  TwStep* s = &net->steps[net->num_steps];
  *s = (TwStep){.num_args = args->count};
  s->args = calloc((size_t)args->count, sizeof *s->args);
  s->tensors = calloc((size_t)args->count, sizeof *s->tensors);
  ++net->num_steps;
  if (s->args == NULL || s->tensors == NULL) return tw_out_of_memory((size_t)args->count);
  s->primitive = primitive;
  for (int i = 0; i < args->count; ++i) {
    TwBuffer* b = &net->buffers[net->tensors[args->tensors[i]].buffer];
    s->args[i].arg = args->args[i];
    s->tensors[i] = args->tensors[i];
    if (b->first < 0) b->first = net->num_steps - 1;
    b->last = net->num_steps - 1;
  }
  return 0;
}

int tw_append(TwNet* net, const TwNode* n, OnednnPrimitiveDesc desc, TwArgs* args) {
  const Onednn* api = net->api;
  OnednnPrimitive primitive = NULL;
  OnednnConstDesc scratch = api->primitive_desc_query_md(desc, ONEDNN_QUERY_SCRATCHPAD, 0);
  int rc = 0;
  if (scratch != NULL && api->memory_desc_get_size(scratch) != 0) {
    int tensor = tw_new_value(net, scratch);
    rc = tensor < 0 ? -1 : 0;
    if (rc == 0) tw_add_arg(args, ONEDNN_ARG_SCRATCHPAD, tensor);
  }
  if (rc == 0) rc = tw_status(&net->region, n, api->primitive_create(&primitive, desc));
  if (rc == 0 && add_step(net, primitive, args) != 0) {
    if (net->num_steps == 0 || net->steps[net->num_steps - 1].primitive != primitive) api->primitive_destroy(primitive);
    rc = -1;
  }
  api->primitive_desc_destroy(desc);
  return rc;
}

bool tw_is_reference(const TwNet* net, OnednnConstPrimitiveDesc desc) {
  const char* name = "";
  net->api->primitive_desc_query(desc, ONEDNN_QUERY_NAME, 0, &name);
  return strncmp(name, "ref", 3) == 0;
}

/* ---- layouts ---- */
static int reorder_desc(TwNet* net, OnednnConstDesc from, OnednnConstDesc to, OnednnPrimitiveDesc* out) {
  const Onednn* api = net->api;
  OnednnAttr attr = NULL;
  int status = api->primitive_attr_create(&attr);
  if (status == ONEDNN_SUCCESS) status = api->primitive_attr_set_scratchpad_mode(attr, ONEDNN_USER_SCRATCHPAD);
  if (status == ONEDNN_SUCCESS) status = api->reorder_primitive_desc_create(out, from, api->engine, to, api->engine, attr);
  if (attr != NULL) api->primitive_attr_destroy(attr);
  return status == ONEDNN_SUCCESS ? 0 : tw_fail("dnnl_json: oneDNN cannot reorder a tensor (status %d)", status);
}

/* Runs a reorder now: of constants. */
static int reorder_now(TwNet* net, int from, int to) {
  const Onednn* api = net->api;
  OnednnPrimitiveDesc desc = NULL;
  OnednnPrimitive primitive = NULL;
  OnednnMemory memories[3] = {NULL, NULL, NULL};
  OnednnArg args[3];
  const int kinds[3] = {ONEDNN_ARG_SRC, ONEDNN_ARG_DST, ONEDNN_ARG_SCRATCHPAD};
  if (reorder_desc(net, tw_desc(net, from), tw_desc(net, to), &desc) != 0) return -1;
  OnednnConstDesc scratch = api->primitive_desc_query_md(desc, ONEDNN_QUERY_SCRATCHPAD, 0);
  size_t size = scratch == NULL ? 0 : api->memory_desc_get_size(scratch);
  char* room = size == 0 ? NULL : tw_aligned_alloc(size, TW_ALIGNMENT);
  int status = size != 0 && room == NULL ? ONEDNN_OUT_OF_MEMORY : api->primitive_create(&primitive, desc);
  OnednnConstDesc descs[3] = {tw_desc(net, from), tw_desc(net, to), scratch};
  void* data[3] = {net->buffers[net->tensors[from].buffer].data, net->buffers[net->tensors[to].buffer].data, room};
  int count = size == 0 ? 2 : 3;
  for (int i = 0; status == ONEDNN_SUCCESS && i < count; ++i) {
    status = api->memory_create(&memories[i], descs[i], api->engine, data[i]);
    args[i] = (OnednnArg){kinds[i], memories[i]};
  }
  if (status == ONEDNN_SUCCESS) status = api->primitive_execute(primitive, net->stream, count, args);
  if (status == ONEDNN_SUCCESS) status = api->stream_wait(net->stream);
  for (int i = 0; i < 3; ++i) {
    if (memories[i] != NULL) api->memory_destroy(memories[i]);
  }
  if (primitive != NULL) api->primitive_destroy(primitive);
  api->primitive_desc_destroy(desc);
  tw_aligned_free(room);
  return status == ONEDNN_SUCCESS ? 0 : tw_fail("dnnl_json: oneDNN failed to reorder a constant (status %d)", status);
}

static int new_constant(TwNet* net, OnednnConstDesc desc) {
  int tensor = tw_new_value(net, desc);
  if (tensor < 0) return -1;
  TwBuffer* b = &net->buffers[net->tensors[tensor].buffer];
  b->kind = TW_HELD;
  b->data = tw_aligned_alloc(b->size, TW_ALIGNMENT);
  b->owned = true;
  return b->data == NULL ? tw_out_of_memory(b->size) : tensor;
}

static int note_copy(TwNet* net, int from, int to) {
  if (grow(&net->copies, net->num_copies, sizeof *net->copies) != 0) return -1;
  net->copies[net->num_copies++] = (TwCopy){from, to};
  return to;
}

int tw_reorder_to(TwNet* net, int from, int to) {
  OnednnPrimitiveDesc desc = NULL;
  TwArgs args = {.count = 0};
  if (reorder_desc(net, tw_desc(net, from), tw_desc(net, to), &desc) != 0) return -1;
  tw_add_arg(&args, ONEDNN_ARG_SRC, from);
  tw_add_arg(&args, ONEDNN_ARG_DST, to);
  return tw_append(net, &net->region.nodes[0], desc, &args);
}

int tw_in_layout(TwNet* net, int tensor, OnednnConstDesc desc) {
  if (tensor < 0) return -1;
  if (net->api->memory_desc_equal(tw_desc(net, tensor), desc)) return tensor;
  for (int i = 0; i < net->num_copies; ++i) {
    if (net->copies[i].from == tensor && net->api->memory_desc_equal(tw_desc(net, net->copies[i].to), desc)) {
      return net->copies[i].to;
    }
  }
  bool constant = net->buffers[net->tensors[tensor].buffer].kind == TW_HELD;
  int to = constant ? new_constant(net, desc) : tw_new_value(net, desc);
  if (to < 0 || (constant ? reorder_now(net, tensor, to) : tw_reorder_to(net, tensor, to)) != 0) return -1;
  if (!constant) net->buffers[net->tensors[to].buffer].uses = 1; /* it may be found again: nobody writes over it */
  return note_copy(net, tensor, to);
}

int tw_in_plain(TwNet* net, int tensor, const TwShape* shape) {
  OnednnDesc plain = tw_plain(net, shape);
  if (plain == NULL) return -1;
  int found = tw_in_layout(net, tensor, plain);
  net->api->memory_desc_destroy(plain);
  return found;
}

int tw_reshaped(TwNet* net, int tensor, const TwShape* from, const TwShape* to) {
  static const int64_t one[1] = {1};
  OnednnDesc desc = NULL;
  int ndim = to->ndim == 0 ? 1 : to->ndim;
  const int64_t* dims = to->ndim == 0 ? one : to->dims;
  if (tensor < 0) return -1;
  if (net->api->memory_desc_reshape(&desc, tw_desc(net, tensor), ndim, dims) != ONEDNN_SUCCESS) {
    tensor = tw_in_plain(net, tensor, from);
    desc = tensor < 0 ? NULL : tw_plain(net, to);
  }
  return tensor < 0 ? -1 : tw_new_tensor(net, net->tensors[tensor].buffer, desc);
}

/* ---- the end ---- */
void tw_net_free(TwNet* net) {
  const Onednn* api = net->api;
  for (int i = 0; i < net->num_steps; ++i) {
    if (net->steps[i].primitive != NULL) api->primitive_destroy(net->steps[i].primitive);
    free(net->steps[i].args);
    free(net->steps[i].tensors);
  }
  for (int i = 0; i < net->num_tensors; ++i) {
    if (net->tensors[i].memory != NULL) api->memory_destroy(net->tensors[i].memory);
    api->memory_desc_destroy(net->tensors[i].desc);
  }
  for (int i = 0; i < net->num_buffers; ++i) {
    if (net->buffers[i].owned) tw_aligned_free(net->buffers[i].data);
  }
  if (net->stream != NULL) api->stream_destroy(net->stream);
  free(net->steps);
  free(net->tensors);
  free(net->buffers);
  free(net->copies);
  free(net->values);
  free(net->reads);
  tw_aligned_free(net->memory);
  tw_region_free(&net->region);
}
