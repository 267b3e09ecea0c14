/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * nn.dense and nn.batch_matmul, as oneDNN's matmul: rows by inner by columns. */
#include "dnnl.h"

/* The product of two tensors of the same number of dimensions; what comes of it has the shape product. */
typedef struct {
  int data, weights;
  TwShape product, data_shape, weight_shape;
  bool constant; /* weights, which may then lie as oneDNN likes */
} Product;

static int product_desc(TwNet* net, const TwNode* n, const Product* p, const TwFusion* f, OnednnPrimitiveDesc* out) {
  const Onednn* api = net->api;
  TwShape bias = {p->product.ndim, {0}};
  for (int i = 0; i < bias.ndim; ++i) bias.dims[i] = 1;
  bias.dims[bias.ndim - 1] = p->product.dims[bias.ndim - 1];
  OnednnDesc any = tw_any(net, &p->weight_shape);
  OnednnDesc result = tw_plain(net, &p->product);
  OnednnDesc biases = f->bias ? tw_plain(net, &bias) : NULL;
  int status = ONEDNN_OUT_OF_MEMORY;
  if (any != NULL && result != NULL && (biases != NULL || !f->bias)) {
    status = api->matmul_primitive_desc_create(out, api->engine, tw_desc(net, p->data),
                                               p->constant ? any : tw_desc(net, p->weights), biases, result, f->attr);
  }
  if (any != NULL) api->memory_desc_destroy(any);
  if (result != NULL) api->memory_desc_destroy(result);
  if (biases != NULL) api->memory_desc_destroy(biases);
  return tw_status(&net->region, n, status);
}

/* Operands that lie in strides may have no fast implementation; copies that lie plainly do. */
static int fast_product_desc(TwNet* net, const TwNode* n, Product* p, const TwFusion* f, OnednnPrimitiveDesc* out) {
  if (product_desc(net, n, p, f, out) != 0) return -1;
  if (!tw_is_reference(net, *out)) return 0;
  Product plain = *p;
  plain.data = tw_in_plain(net, p->data, &p->data_shape);
  plain.weights = p->constant ? p->weights : tw_in_plain(net, p->weights, &p->weight_shape);
  if (plain.data < 0 || plain.weights < 0) return -1;
  if (plain.data == p->data && plain.weights == p->weights) return 0;
  net->api->primitive_desc_destroy(*out);
  *out = NULL;
  *p = plain;
  return product_desc(net, n, p, f, out);
}

/* Operands and result: *result is the node's, and what the primitive writes is the same memory in the product's shape. */
static int product_args(TwNet* net, const TwNode* n, const Product* p, const TwFusion* f, OnednnConstPrimitiveDesc pd,
                        TwArgs* args, int* result) {
  const Onednn* api = net->api;
  int weights = tw_in_layout(net, p->weights, api->primitive_desc_query_md(pd, ONEDNN_QUERY_WEIGHTS, 0));
  if (weights < 0) return -1;
  tw_add_arg(args, ONEDNN_ARG_SRC, p->data);
  tw_add_arg(args, ONEDNN_ARG_WEIGHTS, weights);
  if (f->bias) {
    const TwShape* given = tw_input_shape(&net->region, n, 2);
    TwShape shape = {p->product.ndim, {0}};
    for (int i = 0; i < shape.ndim; ++i) shape.dims[i] = 1;
    shape.dims[shape.ndim - 1] = p->product.dims[shape.ndim - 1];
    if (tw_shape_size(given) != tw_shape_size(&shape)) {
      return tw_node_fail(&net->region, n, "its bias has not one value for each output");
    }
    int bias = tw_reshaped(net, tw_in_plain(net, tw_input(net, n, 2), given), given, &shape);
    if (bias < 0) return -1;
    tw_add_arg(args, ONEDNN_ARG_BIAS, bias);
  }
  OnednnDesc plain = tw_plain(net, &n->shapes[0]);
  *result = plain == NULL ? -1 : tw_fusion_result(net, n, f, plain);
  if (plain != NULL) api->memory_desc_destroy(plain);
  int product = tw_reshaped(net, *result, &n->shapes[0], &p->product);
  if (product < 0) return -1;
  tw_add_arg(args, ONEDNN_ARG_DST, product);
  return 0;
}

static int build_product(TwNet* net, const TwNode* n, Product* p, TwFusion* f) {
  TwArgs args = {.count = 0};
  OnednnPrimitiveDesc pd = NULL;
  int result = -1;
  int rc = tw_fusion_attr(net, n, f);
  if (rc == 0) rc = fast_product_desc(net, n, p, f, &pd);
  tw_fusion_free(net, f);
  if (rc == 0) rc = product_args(net, n, p, f, pd, &args, &result);
  if (rc == 0) return tw_append(net, n, pd, &args) != 0 ? -1 : tw_set_output(net, n, 0, result);
  if (pd != NULL) net->api->primitive_desc_destroy(pd);
  return -1;
}

static bool is_constant(const TwNet* net, int tensor) {
  return net->buffers[net->tensors[tensor].buffer].kind == TW_HELD;
}

/* The tensor with its last two dimensions exchanged. */
static int exchanged(TwNet* net, const TwNode* n, int tensor, TwShape* shape) {
  int axes[ONEDNN_MAX_NDIMS], last = shape->ndim - 1;
  OnednnDesc desc = NULL;
  for (int i = 0; i < shape->ndim; ++i) axes[i] = i;
  axes[last] = last - 1;
  axes[last - 1] = last;
  int64_t extent = shape->dims[last];
  shape->dims[last] = shape->dims[last - 1];
  shape->dims[last - 1] = extent;
  if (tensor < 0 || tw_status(&net->region, n, net->api->memory_desc_permute_axes(&desc, tw_desc(net, tensor), axes)) != 0) return -1;
  return tw_new_tensor(net, net->tensors[tensor].buffer, desc);
}

int tw_build_dense(TwNet* net, const TwNode* n) {
  const TwRegion* r = &net->region;
  TwFusion f;
  if (!tw_fusion_parse(n, &f)) return -1;
  int wanted = 2 + f.bias + f.sum;
  if (tw_expect_inputs(r, n, wanted, wanted) != 0) return -1;
  const TwShape *data = tw_input_shape(r, n, 0), *weight = tw_input_shape(r, n, 1);
  if (data->ndim < 1 || weight->ndim != 2 || data->dims[data->ndim - 1] != weight->dims[1]) {
    return tw_node_fail(r, n, "its data is [..., inputs] and its weights [outputs, inputs]");
  }
  int64_t inner = weight->dims[1], rows = tw_shape_size(data) / inner;
  TwShape made = *data;
  made.dims[made.ndim - 1] = weight->dims[0];
  if (tw_expect_shape(r, n, &made) != 0) return -1;
  Product p = {.data_shape = {2, {rows, inner}}, .weight_shape = *weight, .product = {2, {rows, weight->dims[0]}}};
  p.data = tw_reshaped(net, tw_input(net, n, 0), data, &p.data_shape);
  p.constant = is_constant(net, tw_input(net, n, 1));
  p.weights = exchanged(net, n, tw_in_plain(net, tw_input(net, n, 1), weight), &p.weight_shape);
  return p.data < 0 || p.weights < 0 ? -1 : build_product(net, n, &p, &f);
}

int tw_build_batch_matmul(TwNet* net, const TwNode* n) {
  const TwRegion* r = &net->region;
  TwFusion f;
  int64_t transposed[2];
  if (!tw_fusion_parse(n, &f)) return -1;
  int wanted = 2 + f.bias + f.sum;
  if (tw_expect_inputs(r, n, wanted, wanted) != 0) return -1;
  if (tw_attr_int(r, n, "transpose_a", 0, &transposed[0]) != 0 || tw_attr_int(r, n, "transpose_b", 1, &transposed[1]) != 0) return -1;
  Product p = {.data_shape = *tw_input_shape(r, n, 0), .weight_shape = *tw_input_shape(r, n, 1)};
  if (p.data_shape.ndim != 3 || p.weight_shape.ndim != 3) return tw_node_fail(r, n, "its operands have to have 3 dimensions");
  p.data = tw_input(net, n, 0);
  p.weights = tw_input(net, n, 1);
  p.constant = is_constant(net, p.weights);
  if (transposed[0] != 0) p.data = exchanged(net, n, p.data, &p.data_shape);
  if (transposed[1] != 0) p.weights = exchanged(net, n, p.weights, &p.weight_shape);
  if (p.data < 0 || p.weights < 0) return -1;
  const int64_t *a = p.data_shape.dims, *b = p.weight_shape.dims;
  if (a[2] != b[1] || (a[0] != b[0] && a[0] != 1 && b[0] != 1)) {
    return tw_node_fail(r, n, "its operands do not fit: [%lld, %lld, %lld] by [%lld, %lld, %lld]", (long long)a[0],
                        (long long)a[1], (long long)a[2], (long long)b[0], (long long)b[1], (long long)b[2]);
  }
  p.product = (TwShape){3, {a[0] == 1 ? b[0] : a[0], a[1], b[2]}};
  return tw_expect_shape(r, n, &p.product) != 0 ? -1 : build_product(net, n, &p, &f);
}
