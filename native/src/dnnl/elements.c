/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Softmax, normalizations, arithmetic of two tensors, concatenation; and changes of shape, which are other descriptions of
 * the same memory. */
#include "dnnl.h"

/* Makes the primitive, whose first argument is the source, with a result in that layout. */
static int finish(TwNet* net, const TwNode* n, int status, OnednnPrimitiveDesc pd, OnednnAttr attr, TwArgs* args, int result) {
  if (attr != NULL) net->api->primitive_attr_destroy(attr);
  if (tw_status(&net->region, n, status) != 0) return -1;
  if (result < 0) result = tw_new_value(net, net->api->primitive_desc_query_md(pd, ONEDNN_QUERY_DST, 0));
  if (result < 0) {
    net->api->primitive_desc_destroy(pd);
    return -1;
  }
  tw_add_arg(args, ONEDNN_ARG_DST, result);
  return tw_append(net, n, pd, args) != 0 ? -1 : tw_set_output(net, n, 0, result);
}

/* An axis attribute that counts from the end where it is negative. */
static int axis_of(const TwRegion* r, const TwNode* n, int64_t fallback, int ndim, int* out) {
  int64_t axis;
  if (tw_attr_int(r, n, "axis", fallback, &axis) != 0) return -1;
  if (axis < -ndim || axis >= ndim) return tw_node_fail(r, n, "it has no axis %lld", (long long)axis);
  *out = (int)(axis < 0 ? axis + ndim : axis);
  return 0;
}

int tw_build_softmax(TwNet* net, const TwNode* n) {
  const TwRegion* r = &net->region;
  TwArgs args = {.count = 0};
  OnednnPrimitiveDesc pd = NULL;
  int axis;
  if (tw_expect_inputs(r, n, 1, 1) != 0 || tw_expect_shape(r, n, tw_input_shape(r, n, 0)) != 0) return -1;
  if (axis_of(r, n, -1, n->shapes[0].ndim, &axis) != 0) return -1;
  int source = tw_input(net, n, 0), algorithm = strstr(n->name, "log_") != NULL ? ONEDNN_LOG_SOFTMAX : ONEDNN_SOFTMAX;
  OnednnConstDesc desc = tw_desc(net, source);
  OnednnAttr attr = tw_attr(net);
  if (attr == NULL) return -1;
  int status = net->api->softmax_forward_primitive_desc_create(&pd, net->api->engine, ONEDNN_INFERENCE, algorithm, desc,
                                                               desc, axis, attr);
  tw_add_arg(&args, ONEDNN_ARG_SRC, source);
  return finish(net, n, status, pd, attr, &args, tw_may_overwrite(net, source) ? source : -1);
}

/* Adds inputs, vectors of that length, as arguments. */
static int add_vectors(TwNet* net, const TwNode* n, int first, int count, const int* kinds, int64_t size, TwArgs* args) {
  TwShape vector = {1, {size}};
  for (int i = 0; i < count; ++i) {
    const TwShape* given = tw_input_shape(&net->region, n, first + i);
    if (tw_shape_size(given) != size) {
      return tw_node_fail(&net->region, n, "its input %d has to have %lld values", first + i, (long long)size);
    }
    int tensor = tw_reshaped(net, tw_in_plain(net, tw_input(net, n, first + i), given), given, &vector);
    if (tensor < 0) return -1;
    tw_add_arg(args, kinds[i], tensor);
  }
  return 0;
}

/* Which of scale and shift the attributes "scale" and "center" ask for. */
static int norm_flags(const TwRegion* r, const TwNode* n, unsigned* flags) {
  int64_t scale, center;
  if (tw_attr_int(r, n, "scale", 1, &scale) != 0 || tw_attr_int(r, n, "center", 1, &center) != 0) return -1;
  *flags |= (scale != 0 ? ONEDNN_SCALE : 0u) | (center != 0 ? ONEDNN_SHIFT : 0u);
  return 0;
}

static int add_scale_and_shift(TwNet* net, const TwNode* n, unsigned flags, int64_t size, TwArgs* args) {
  static const int kinds[2] = {ONEDNN_ARG_SCALE, ONEDNN_ARG_SHIFT};
  if ((flags & ONEDNN_SCALE) != 0 && add_vectors(net, n, 1, 1, &kinds[0], size, args) != 0) return -1;
  return (flags & ONEDNN_SHIFT) == 0 ? 0 : add_vectors(net, n, 2, 1, &kinds[1], size, args);
}

int tw_build_layer_norm(TwNet* net, const TwNode* n) {
  const TwRegion* r = &net->region;
  TwArgs args = {.count = 0};
  OnednnPrimitiveDesc pd = NULL;
  unsigned flags = 0;
  double epsilon;
  int axis;
  if (tw_expect_inputs(r, n, 3, 3) != 0 || tw_expect_shape(r, n, tw_input_shape(r, n, 0)) != 0) return -1;
  const TwShape* shape = &n->shapes[0];
  if (axis_of(r, n, -1, shape->ndim, &axis) != 0 || tw_attr_float(r, n, "epsilon", &epsilon) != 0) return -1;
  if (axis != shape->ndim - 1 || shape->ndim < 2) return tw_node_fail(r, n, "it normalizes along the last of 2 or more axes");
  int source = tw_in_plain(net, tw_input(net, n, 0), shape);
  if (source < 0 || norm_flags(r, n, &flags) != 0) return -1;
  tw_add_arg(&args, ONEDNN_ARG_SRC, source);
  if (add_scale_and_shift(net, n, flags, shape->dims[axis], &args) != 0) return -1;
  OnednnConstDesc desc = tw_desc(net, source);
  OnednnAttr attr = tw_attr(net);
  if (attr == NULL) return -1;
  int status = net->api->layer_normalization_forward_primitive_desc_create(
      &pd, net->api->engine, ONEDNN_INFERENCE, desc, desc, NULL, (float)epsilon, flags, attr);
  return finish(net, n, status, pd, attr, &args, tw_may_overwrite(net, source) ? source : -1);
}

int tw_build_batch_norm(TwNet* net, const TwNode* n) {
  static const int statistics[2] = {ONEDNN_ARG_MEAN, ONEDNN_ARG_VARIANCE};
  const TwRegion* r = &net->region;
  TwArgs args = {.count = 0};
  OnednnPrimitiveDesc pd = NULL;
  unsigned flags = ONEDNN_GLOBAL_STATS;
  double epsilon;
  int axis;
  if (tw_expect_inputs(r, n, 5, 5) != 0 || tw_expect_shape(r, n, tw_input_shape(r, n, 0)) != 0) return -1;
  const TwShape* shape = &n->shapes[0];
  if (axis_of(r, n, 1, shape->ndim, &axis) != 0 || tw_attr_float(r, n, "epsilon", &epsilon) != 0) return -1;
  if (axis != 1 || shape->ndim < 2 || shape->ndim > 5) return tw_node_fail(r, n, "its channels are axis 1 of 2 to 5");
  int source = tw_input(net, n, 0);
  tw_add_arg(&args, ONEDNN_ARG_SRC, source);
  if (norm_flags(r, n, &flags) != 0 || add_scale_and_shift(net, n, flags, shape->dims[1], &args) != 0 ||
      add_vectors(net, n, 3, 2, statistics, shape->dims[1], &args) != 0) {
    return -1;
  }
  OnednnConstDesc desc = tw_desc(net, source);
  OnednnAttr attr = tw_attr(net);
  if (attr == NULL) return -1;
  int status = net->api->batch_normalization_forward_primitive_desc_create(
      &pd, net->api->engine, ONEDNN_INFERENCE, desc, desc, (float)epsilon, flags, attr);
  return finish(net, n, status, pd, attr, &args, tw_may_overwrite(net, source) ? source : -1);
}

/* ---- arithmetic of two tensors ---- */
static const struct {
  const char* name;
  int algorithm;
} arithmetic[] = {{"add", ONEDNN_ADD},     {"subtract", ONEDNN_SUB}, {"multiply", ONEDNN_MUL},
                  {"divide", ONEDNN_DIV}, {"maximum", ONEDNN_MAX},  {"minimum", ONEDNN_MIN}};

/* The shapes of numpy's broadcasting: both operands get as many dimensions as the result has, at least one. */
static int broadcast(const TwRegion* r, const TwNode* n, TwShape* a, TwShape* b) {
  TwShape made = {a->ndim > b->ndim ? a->ndim : b->ndim, {0}};
  TwShape* operands[2] = {a, b};
  for (int k = 0; k < 2; ++k) {
    TwShape wide = {made.ndim, {0}};
    for (int i = 0; i < made.ndim; ++i) {
      int at = i - (made.ndim - operands[k]->ndim);
      wide.dims[i] = at < 0 ? 1 : operands[k]->dims[at];
    }
    *operands[k] = wide;
  }
  for (int i = 0; i < made.ndim; ++i) {
    if (a->dims[i] != b->dims[i] && a->dims[i] != 1 && b->dims[i] != 1) {
      return tw_node_fail(r, n, "its operands have %lld and %lld elements along axis %d", (long long)a->dims[i],
                          (long long)b->dims[i], i);
    }
    made.dims[i] = a->dims[i] == 1 ? b->dims[i] : a->dims[i];
  }
  return tw_expect_shape(r, n, &made);
}

int tw_build_binary(TwNet* net, const TwNode* n) {
  const TwRegion* r = &net->region;
  TwArgs args = {.count = 0};
  OnednnPrimitiveDesc pd = NULL;
  int algorithm = 0;
  if (tw_expect_inputs(r, n, 2, 2) != 0) return -1;
  for (size_t i = 0; i < sizeof arithmetic / sizeof arithmetic[0]; ++i) {
    if (strcmp(n->name, arithmetic[i].name) == 0) algorithm = arithmetic[i].algorithm;
  }
  TwShape shapes[2] = {*tw_input_shape(r, n, 0), *tw_input_shape(r, n, 1)};
  if (broadcast(r, n, &shapes[0], &shapes[1]) != 0) return -1;
  int tensors[2];
  for (int i = 0; i < 2; ++i) tensors[i] = tw_reshaped(net, tw_input(net, n, i), tw_input_shape(r, n, i), &shapes[i]);
  if (tensors[0] < 0 || tensors[1] < 0) return -1;
  bool commutes = algorithm != ONEDNN_SUB && algorithm != ONEDNN_DIV;
  int first = commutes && tw_shape_size(&shapes[0]) < tw_shape_size(&shapes[1]) ? 1 : 0;
  int whole = tensors[first], other = tensors[1 - first];
  bool full = tw_shape_equal(&shapes[first], &n->shapes[0]) || n->shapes[0].ndim == 0;
  if (full && tw_shape_equal(&shapes[0], &shapes[1])) other = tw_in_layout(net, other, tw_desc(net, whole));
  if (other < 0) return -1;
  OnednnDesc result = full ? NULL : tw_plain(net, &n->shapes[0]);
  OnednnAttr attr = tw_attr(net);
  if (attr == NULL || (!full && result == NULL)) return -1;
  int status = net->api->binary_primitive_desc_create(&pd, net->api->engine, algorithm, tw_desc(net, whole),
                                                      tw_desc(net, other), full ? tw_desc(net, whole) : result, attr);
  if (result != NULL) net->api->memory_desc_destroy(result);
  tw_add_arg(&args, ONEDNN_ARG_SRC, whole);
  tw_add_arg(&args, ONEDNN_ARG_SRC_1, other);
  bool aliased = net->tensors[whole].buffer == net->tensors[other].buffer && whole != other;
  return finish(net, n, status, pd, attr, &args, full && !aliased && tw_may_overwrite(net, whole) ? whole : -1);
}

/* ---- concatenation ---- */
int tw_build_concat(TwNet* net, const TwNode* n) {
  const TwRegion* r = &net->region;
  TwArgs args = {.count = 0};
  OnednnPrimitiveDesc pd = NULL;
  OnednnConstDesc descs[TW_MOST_ARGS];
  int axis;
  if (tw_expect_inputs(r, n, 1, TW_MOST_ARGS - 2) != 0) return -1;
  TwShape made = *tw_input_shape(r, n, 0);
  if (axis_of(r, n, 0, made.ndim, &axis) != 0) return -1;
  for (int i = 0; i < n->num_inputs; ++i) {
    TwShape part = *tw_input_shape(r, n, i);
    int64_t extent = part.ndim > axis ? part.dims[axis] : 0;
    int tensor = tw_input(net, n, i);
    part.dims[axis] = made.dims[axis];
    if (!tw_shape_equal(&part, &made)) return tw_node_fail(r, n, "its input %d does not fit the first one", i);
    if (i > 0) made.dims[axis] += extent;
    descs[i] = tw_desc(net, tensor);
    tw_add_arg(&args, ONEDNN_ARG_MULTIPLE_SRC + i, tensor);
  }
  if (tw_expect_shape(r, n, &made) != 0) return -1;
  OnednnAttr attr = tw_attr(net);
  if (attr == NULL) return -1;
  int status = net->api->concat_primitive_desc_create(&pd, net->api->engine, NULL, n->num_inputs, axis, descs, attr);
  return finish(net, n, status, pd, attr, &args, -1);
}

/* ---- shapes ---- */
int tw_build_reshape(TwNet* net, const TwNode* n) {
  const TwRegion* r = &net->region;
  if (tw_expect_inputs(r, n, 1, 1) != 0) return -1;
  const TwShape* from = tw_input_shape(r, n, 0);
  if (tw_shape_size(from) != tw_shape_size(&n->shapes[0])) {
    return tw_node_fail(r, n, "it has %lld elements and its shape is said to have %lld", (long long)tw_shape_size(from),
                        (long long)tw_shape_size(&n->shapes[0]));
  }
  return tw_set_output(net, n, 0, tw_reshaped(net, tw_input(net, n, 0), from, &n->shapes[0]));
}

int tw_build_transpose(TwNet* net, const TwNode* n) {
  const TwRegion* r = &net->region;
  int64_t axes[ONEDNN_MAX_NDIMS];
  int inverse[ONEDNN_MAX_NDIMS];
  OnednnDesc desc = NULL;
  if (tw_expect_inputs(r, n, 1, 1) != 0) return -1;
  const TwShape* from = tw_input_shape(r, n, 0);
  TwShape made = {from->ndim, {0}};
  int given = tw_attr_count(n, "axes");
  if (given == 1 && tw_attr_text(n, "axes", "")[0] == '\0') given = 0; /* no axes, also written [[""]]: turn them all round */
  if (given != 0 && tw_attr_ints(r, n, "axes", from->ndim, -from->ndim, axes) != 0) return -1;
  for (int i = 0; i < from->ndim; ++i) inverse[i] = -1;
  for (int i = 0; i < from->ndim; ++i) {
    int64_t axis = given == 0 ? from->ndim - 1 - i : axes[i] < 0 ? axes[i] + from->ndim : axes[i];
    if (axis >= from->ndim || inverse[axis] >= 0) return tw_node_fail(r, n, "its axes are no permutation");
    inverse[axis] = i;
    made.dims[i] = from->dims[axis];
  }
  if (tw_expect_shape(r, n, &made) != 0) return -1;
  int source = tw_input(net, n, 0);
  if (from->ndim == 0) return tw_set_output(net, n, 0, source);
  if (tw_status(r, n, net->api->memory_desc_permute_axes(&desc, tw_desc(net, source), inverse)) != 0) return -1;
  return tw_set_output(net, n, 0, tw_new_tensor(net, net->tensors[source].buffer, desc));
}
