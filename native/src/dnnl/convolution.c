/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * nn.conv2d and nn.conv2d_transpose, grouped or not, and pooling. */
#include "dnnl.h"

/* Height and width, each the first of the lists that oneDNN takes. */
typedef struct {
  int64_t strides[2], dilations[2], before[2], after[2], kernel[2];
} Window;

/* One number for both directions, or two. */
static int pair(const TwRegion* r, const TwNode* n, const char* key, int64_t least, int64_t* out) {
  if (tw_attr_count(n, key) != 1) return tw_attr_ints(r, n, key, 2, least, out);
  if (tw_attr_ints(r, n, key, 1, least, out) != 0) return -1;
  out[1] = out[0];
  return 0;
}

/* Padding on all sides, top and left (as bottom and right), or top, left, bottom, right. */
static int padding(const TwRegion* r, const TwNode* n, Window* w) {
  int64_t sides[4];
  if (tw_attr_count(n, "padding") == 4) {
    if (tw_attr_ints(r, n, "padding", 4, 0, sides) != 0) return -1;
    memcpy(w->before, sides, sizeof w->before);
    memcpy(w->after, sides + 2, sizeof w->after);
    return 0;
  }
  if (pair(r, n, "padding", 0, w->before) != 0) return -1;
  memcpy(w->after, w->before, sizeof w->after);
  return 0;
}

static int window(const TwRegion* r, const TwNode* n, Window* w) {
  if (pair(r, n, "strides", 1, w->strides) != 0 || padding(r, n, w) != 0) return -1;
  w->dilations[0] = w->dilations[1] = 1;
  return tw_attr_count(n, "dilation") == 0 ? 0 : pair(r, n, "dilation", 1, w->dilations);
}

static int64_t reach(const Window* w, int i) { return (w->kernel[i] - 1) * w->dilations[i] + 1; }

static int layout_is(const TwRegion* r, const TwNode* n, const char* key, const char* expected) {
  const char* found = tw_attr_text(n, key, expected);
  return strcmp(found, expected) == 0 ? 0 : tw_node_fail(r, n, "its %s is %s; there is %s", key, found, expected);
}

/* ---- convolution ---- */
typedef struct {
  Window window;
  bool transposed;
  int64_t groups, in, out; /* channels, of all groups */
} Convolution;

static int read_convolution(const TwRegion* r, const TwNode* n, const TwFusion* f, Convolution* c) {
  const TwShape *data = tw_input_shape(r, n, 0), *weight = tw_input_shape(r, n, 1);
  c->transposed = strcmp(f->base, "conv2d_transpose") == 0;
  if (window(r, n, &c->window) != 0 || tw_attr_int(r, n, "groups", 1, &c->groups) != 0) return -1;
  if (layout_is(r, n, "data_layout", "NCHW") != 0) return -1;
  /* of transposed ones inputs come first, under either name: TVM's own is OIHW */
  if (!(c->transposed && strcmp(tw_attr_text(n, "kernel_layout", ""), "IOHW") == 0) && layout_is(r, n, "kernel_layout", "OIHW") != 0) {
    return -1;
  }
  if (data->ndim != 4 || weight->ndim != 4) return tw_node_fail(r, n, "its data and weights have to have 4 dimensions");
  int64_t first = weight->dims[0], second = weight->dims[1];
  c->in = data->dims[1];
  c->out = c->transposed ? second * c->groups : first;
  int64_t in = c->transposed ? first : second * c->groups;
  if (c->groups < 1 || in != c->in || c->in % c->groups != 0 || c->out % c->groups != 0) {
    return tw_node_fail(r, n, "its weights are for %lld channels in %lld groups, and its data has %lld", (long long)in,
                        (long long)c->groups, (long long)c->in);
  }
  c->window.kernel[0] = weight->dims[2];
  c->window.kernel[1] = weight->dims[3];
  return 0;
}

static int expect_convolved(const TwRegion* r, const TwNode* n, Convolution* c) {
  const TwShape* data = tw_input_shape(r, n, 0);
  TwShape made = {4, {data->dims[0], c->out}};
  Window* w = &c->window;
  int64_t extra[2] = {0, 0};
  if (c->transposed && tw_attr_count(n, "output_padding") != 0 && pair(r, n, "output_padding", 0, extra) != 0) return -1;
  for (int i = 0; i < 2; ++i) {
    int64_t extent = data->dims[2 + i], room = extent + w->before[i] + w->after[i] - reach(w, i);
    if (!c->transposed && room < 0) return tw_node_fail(r, n, "its window is larger than the padded data");
    made.dims[2 + i] = c->transposed ? (extent - 1) * w->strides[i] + reach(w, i) - w->before[i] - w->after[i] + extra[i]
                                     : room / w->strides[i] + 1;
    w->after[i] -= extra[i];
  }
  return tw_expect_shape(r, n, &made);
}

/* The weights' shape as oneDNN has it: [groups,] outputs, inputs, height, width. */
static TwShape weight_shape(const Convolution* c) {
  int64_t out = c->out / c->groups, in = c->in / c->groups;
  const int64_t* k = c->window.kernel;
  return c->groups == 1 ? (TwShape){4, {out, in, k[0], k[1]}} : (TwShape){5, {c->groups, out, in, k[0], k[1]}};
}

/* The node's weights under that shape. */
static int weights_of(TwNet* net, const TwNode* n, const Convolution* c) {
  static const int plain[4] = {1, 0, 2, 3}, grouped[5] = {0, 2, 1, 3, 4};
  const TwShape* given = tw_input_shape(&net->region, n, 1);
  TwShape wanted = weight_shape(c), stored = wanted;
  OnednnDesc desc = NULL;
  int at = wanted.ndim - 4;
  if (c->transposed) {
    stored.dims[at] = wanted.dims[at + 1];
    stored.dims[at + 1] = wanted.dims[at];
  }
  int tensor = tw_in_plain(net, tw_input(net, n, 1), given);
  tensor = tensor < 0 ? -1 : tw_reshaped(net, tensor, given, &stored);
  if (tensor < 0 || !c->transposed) return tensor;
  int status = net->api->memory_desc_permute_axes(&desc, tw_desc(net, tensor), at == 0 ? plain : grouped);
  if (tw_status(&net->region, n, status) != 0) return -1;
  return tw_new_tensor(net, net->tensors[tensor].buffer, desc);
}

static int convolution_desc(TwNet* net, const TwNode* n, const Convolution* c, const TwFusion* f, OnednnPrimitiveDesc* out) {
  const Onednn* api = net->api;
  TwShape weight = weight_shape(c), bias = {1, {c->out}};
  OnednnDesc descs[4] = {tw_any(net, tw_input_shape(&net->region, n, 0)), tw_any(net, &weight),
                         f->bias ? tw_plain(net, &bias) : NULL, tw_any(net, &n->shapes[0])};
  const Window* w = &c->window;
  int64_t dilates[2] = {w->dilations[0] - 1, w->dilations[1] - 1};
  int status = ONEDNN_OUT_OF_MEMORY;
  if (descs[0] != NULL && descs[1] != NULL && descs[3] != NULL && (descs[2] != NULL || !f->bias)) {
    status = c->transposed
                 ? api->deconvolution_forward_primitive_desc_create(
                       out, api->engine, ONEDNN_INFERENCE, ONEDNN_DECONVOLUTION_DIRECT, descs[0], descs[1], descs[2],
                       descs[3], w->strides, dilates, w->before, w->after, f->attr)
                 : api->convolution_forward_primitive_desc_create(
                       out, api->engine, ONEDNN_INFERENCE, ONEDNN_CONVOLUTION_AUTO, descs[0], descs[1], descs[2],
                       descs[3], w->strides, dilates, w->before, w->after, f->attr);
  }
  for (int i = 0; i < 4; ++i) {
    if (descs[i] != NULL) api->memory_desc_destroy(descs[i]);
  }
  return tw_status(&net->region, n, status);
}

static int convolution_args(TwNet* net, const TwNode* n, const Convolution* c, const TwFusion* f,
                            OnednnConstPrimitiveDesc pd, TwArgs* args, int* result) {
  const Onednn* api = net->api;
  int data = tw_in_layout(net, tw_input(net, n, 0), api->primitive_desc_query_md(pd, ONEDNN_QUERY_SRC, 0));
  int weights = data < 0 ? -1 : weights_of(net, n, c);
  weights = tw_in_layout(net, weights, api->primitive_desc_query_md(pd, ONEDNN_QUERY_WEIGHTS, 0));
  if (weights < 0) return -1;
  tw_add_arg(args, ONEDNN_ARG_SRC, data);
  tw_add_arg(args, ONEDNN_ARG_WEIGHTS, weights);
  if (f->bias) {
    TwShape shape = {1, {c->out}};
    const TwShape* given = tw_input_shape(&net->region, n, 2);
    if (tw_shape_size(given) != c->out) return tw_node_fail(&net->region, n, "its bias has not one value for each output channel");
    int bias = tw_reshaped(net, tw_in_plain(net, tw_input(net, n, 2), given), given, &shape);
    if (bias < 0) return -1;
    tw_add_arg(args, ONEDNN_ARG_BIAS, bias);
  }
  *result = tw_fusion_result(net, n, f, api->primitive_desc_query_md(pd, ONEDNN_QUERY_DST, 0));
  if (*result < 0) return -1;
  tw_add_arg(args, ONEDNN_ARG_DST, *result);
  return 0;
}

int tw_build_convolution(TwNet* net, const TwNode* n) {
  TwFusion f;
  Convolution c;
  TwArgs args = {.count = 0};
  OnednnPrimitiveDesc pd = NULL;
  int result = -1;
  if (!tw_fusion_parse(n, &f)) return -1;
  int wanted = 2 + f.bias + f.sum;
  if (tw_expect_inputs(&net->region, n, wanted, wanted) != 0 || read_convolution(&net->region, n, &f, &c) != 0 ||
      expect_convolved(&net->region, n, &c) != 0) {
    return -1;
  }
  int rc = tw_fusion_attr(net, n, &f);
  if (rc == 0) rc = convolution_desc(net, n, &c, &f, &pd);
  tw_fusion_free(net, &f);
  if (rc == 0) rc = convolution_args(net, n, &c, &f, pd, &args, &result);
  if (rc == 0) return tw_append(net, n, pd, &args) != 0 ? -1 : tw_set_output(net, n, 0, result);
  if (pd != NULL) net->api->primitive_desc_destroy(pd);
  return -1;
}

/* ---- pooling ---- */
typedef struct {
  Window window;
  int algorithm;
} Pooling;

static int read_pooling(const TwRegion* r, const TwNode* n, const TwFusion* f, Pooling* p) {
  const TwShape* data = tw_input_shape(r, n, 0);
  bool whole = strncmp(f->base, "global_", 7) == 0;
  p->algorithm = strstr(f->base, "max") != NULL ? ONEDNN_MAX_POOL : ONEDNN_AVG_POOL;
  if (layout_is(r, n, "layout", "NCHW") != 0) return -1;
  if (data->ndim != 4) return tw_node_fail(r, n, "its data has to have 4 dimensions");
  if (whole) {
    p->window = (Window){.strides = {1, 1}, .dilations = {1, 1}, .kernel = {data->dims[2], data->dims[3]}};
    return 0;
  }
  if (window(r, n, &p->window) != 0 || pair(r, n, "pool_size", 1, p->window.kernel) != 0) return -1;
  int64_t include = 0;
  if (tw_attr_int(r, n, "count_include_pad", 0, &include) != 0) return -1;
  if (include != 0 && p->algorithm == ONEDNN_AVG_POOL) p->algorithm = ONEDNN_AVG_POOL_WITH_PADDING;
  return 0;
}

static int expect_pooled(const TwRegion* r, const TwNode* n, Pooling* p) {
  const TwShape* data = tw_input_shape(r, n, 0);
  TwShape made = *data;
  Window* w = &p->window;
  int64_t ceil_mode;
  if (tw_attr_int(r, n, "ceil_mode", 0, &ceil_mode) != 0) return -1;
  for (int i = 0; i < 2; ++i) {
    int64_t room = data->dims[2 + i] + w->before[i] + w->after[i] - reach(w, i);
    if (room < 0) return tw_node_fail(r, n, "its window is larger than the padded data");
    if (w->before[i] >= reach(w, i)) return tw_node_fail(r, n, "a whole window would lie in the padding");
    made.dims[2 + i] = (room + (ceil_mode != 0 ? w->strides[i] - 1 : 0)) / w->strides[i] + 1;
    int64_t needed = (made.dims[2 + i] - 1) * w->strides[i] - room;
    if (needed > 0 && p->algorithm == ONEDNN_AVG_POOL_WITH_PADDING) {
      return tw_node_fail(r, n, "ceil_mode adds padding, which an average with count_include_pad would count");
    }
    if (needed > 0) w->after[i] += needed;
  }
  return tw_expect_shape(r, n, &made);
}

int tw_build_pooling(TwNet* net, const TwNode* n) {
  const Onednn* api = net->api;
  const TwRegion* r = &net->region;
  TwFusion f;
  Pooling p;
  TwArgs args = {.count = 0};
  OnednnPrimitiveDesc pd = NULL;
  if (!tw_fusion_parse(n, &f) || tw_expect_inputs(r, n, 1, 1) != 0 || read_pooling(r, n, &f, &p) != 0) return -1;
  if (expect_pooled(r, n, &p) != 0) return -1;
  const Window* w = &p.window;
  int64_t dilates[2] = {w->dilations[0] - 1, w->dilations[1] - 1};
  int source = tw_input(net, n, 0);
  OnednnAttr attr = tw_attr(net);
  OnednnDesc any = attr == NULL ? NULL : tw_any(net, &n->shapes[0]);
  int status = any == NULL ? ONEDNN_OUT_OF_MEMORY
                           : api->pooling_forward_primitive_desc_create(&pd, api->engine, ONEDNN_INFERENCE, p.algorithm,
                                                                        tw_desc(net, source), any, w->strides, w->kernel,
                                                                        dilates, w->before, w->after, attr);
  if (any != NULL) api->memory_desc_destroy(any);
  if (attr != NULL) api->primitive_attr_destroy(attr);
  if (tw_status(r, n, status) != 0) return -1;
  int result = tw_new_value(net, api->primitive_desc_query_md(pd, ONEDNN_QUERY_DST, 0));
  if (result < 0) {
    api->primitive_desc_destroy(pd);
    return -1;
  }
  tw_add_arg(&args, ONEDNN_ARG_SRC, source);
  tw_add_arg(&args, ONEDNN_ARG_DST, result);
  return tw_append(net, n, pd, &args) != 0 ? -1 : tw_set_output(net, n, 0, result);
}
