/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Activations, and what oneDNN does in the same primitive as an operator: a bias, a sum, an activation. */
#include "dnnl.h"

static const char* const fusable[] = {"conv2d_transpose", "conv2d", "dense", "batch_matmul", NULL};

/* Moves *text past a token and its underscore. */
static bool takes(const char** text, const char* token) {
  size_t size = strlen(token);
  if (strncmp(*text, token, size) != 0) return false;
  *text += size;
  return true;
}

bool tw_fusion_parse(const TwNode* n, TwFusion* out) {
  const char* name = n->name;
  *out = (TwFusion){.attr = NULL};
  if (strlen(name) >= TW_MOST_NAME) return false;
  if (!takes(&name, "dnnl.")) {
    takes(&name, "nn.");
    strcpy(out->base, name);
    return true;
  }
  for (int i = 0; fusable[i] != NULL; ++i) {
    if (!takes(&name, fusable[i])) continue;
    strcpy(out->base, fusable[i]);
    out->bias = takes(&name, "_bias");
    out->sum = takes(&name, "_sum");
    strcpy(out->activation, name[0] == '_' ? name + 1 : name);
    return true;
  }
  strcpy(out->base, name);
  return true;
}

/* ---- activations ---- */
typedef struct {
  const char* name;
  TwActivation as;
  const char *alpha, *beta; /* attributes that say these, or NULL */
} Activation;

static const Activation activations[] = {
    {"relu", {ONEDNN_RELU, 0, 0}, NULL, NULL},
    {"leaky_relu", {ONEDNN_RELU, 0, 0}, "alpha", NULL},
    {"sigmoid", {ONEDNN_LOGISTIC, 0, 0}, NULL, NULL},
    {"tanh", {ONEDNN_TANH, 0, 0}, NULL, NULL},
    {"exp", {ONEDNN_EXP, 0, 0}, NULL, NULL},
    {"log", {ONEDNN_LOG, 0, 0}, NULL, NULL},
    {"sqrt", {ONEDNN_SQRT, 0, 0}, NULL, NULL},
    {"abs", {ONEDNN_ABS, 0, 0}, NULL, NULL},
    {"negative", {ONEDNN_LINEAR, -1, 0}, NULL, NULL},
    {"clip", {ONEDNN_CLIP, 0, 0}, "a_min", "a_max"},
    {"gelu", {ONEDNN_GELU_ERF, 0, 0}, NULL, NULL},
    {"swish", {ONEDNN_SWISH, 0, 0}, "beta", NULL},
};

bool tw_activation(const TwRegion* r, const TwNode* n, const char* name, TwActivation* out, int* rc) {
  for (size_t i = 0; i < sizeof activations / sizeof activations[0]; ++i) {
    const Activation* a = &activations[i];
    double alpha = a->as.alpha, beta = a->as.beta;
    if (strcmp(a->name, name) != 0) continue;
    *rc = a->alpha == NULL ? 0 : tw_attr_float(r, n, a->alpha, &alpha);
    if (*rc == 0 && a->beta != NULL) *rc = tw_attr_float(r, n, a->beta, &beta);
    *out = (TwActivation){a->as.algorithm, (float)alpha, (float)beta};
    bool by_tanh = a->as.algorithm == ONEDNN_GELU_ERF && strcmp(tw_attr_text(n, "approximate", "none"), "tanh") == 0;
    if (by_tanh) out->algorithm = ONEDNN_GELU_TANH;
    return true;
  }
  return false;
}

int tw_build_activation(TwNet* net, const TwNode* n) {
  const TwRegion* r = &net->region;
  TwFusion f;
  TwActivation a;
  TwArgs args = {.count = 0};
  OnednnPrimitiveDesc pd = NULL;
  int rc = 0;
  if (tw_expect_inputs(r, n, 1, 1) != 0 || tw_expect_shape(r, n, tw_input_shape(r, n, 0)) != 0) return -1;
  if (!tw_fusion_parse(n, &f) || !tw_activation(r, n, f.base, &a, &rc) || rc != 0) return -1;
  OnednnAttr attr = tw_attr(net);
  if (attr == NULL) return -1;
  int source = tw_input(net, n, 0);
  OnednnConstDesc desc = tw_desc(net, source);
  int status = net->api->eltwise_forward_primitive_desc_create(&pd, net->api->engine, ONEDNN_INFERENCE, a.algorithm, desc,
                                                               desc, a.alpha, a.beta, attr);
  net->api->primitive_attr_destroy(attr);
  if (tw_status(r, n, status) != 0) return -1;
  int result = tw_may_overwrite(net, source) ? source : tw_new_value(net, desc);
  if (result < 0) {
    net->api->primitive_desc_destroy(pd);
    return -1;
  }
  tw_add_arg(&args, ONEDNN_ARG_SRC, source);
  tw_add_arg(&args, ONEDNN_ARG_DST, result);
  return tw_append(net, n, pd, &args) != 0 ? -1 : tw_set_output(net, n, 0, result);
}

/* ---- fused ---- */
OnednnAttr tw_attr(TwNet* net) {
  OnednnAttr attr = NULL;
  if (net->api->primitive_attr_create(&attr) == ONEDNN_SUCCESS &&
      net->api->primitive_attr_set_scratchpad_mode(attr, ONEDNN_USER_SCRATCHPAD) == ONEDNN_SUCCESS) {
    return attr;
  }
  if (attr != NULL) net->api->primitive_attr_destroy(attr);
  tw_fail("dnnl_json: out of memory");
  return NULL;
}

static int add_post_ops(TwNet* net, const TwNode* n, const TwFusion* f, OnednnPostOps ops) {
  const TwRegion* r = &net->region;
  TwActivation a;
  int rc = 0;
  if (f->sum && tw_status(r, n, net->api->post_ops_append_sum(ops, 1.0f, 0, ONEDNN_F32)) != 0) return -1;
  if (f->activation[0] != '\0') {
    if (!tw_activation(r, n, f->activation, &a, &rc)) return tw_node_fail(r, n, "there is no activation \"%s\"", f->activation);
    if (rc != 0 || tw_status(r, n, net->api->post_ops_append_eltwise(ops, a.algorithm, a.alpha, a.beta)) != 0) return -1;
  }
  return tw_status(r, n, net->api->primitive_attr_set_post_ops(f->attr, ops));
}

int tw_fusion_attr(TwNet* net, const TwNode* n, TwFusion* f) {
  OnednnPostOps ops = NULL;
  f->attr = tw_attr(net);
  if (f->attr == NULL) return -1;
  if (tw_status(&net->region, n, net->api->post_ops_create(&ops)) != 0) return -1;
  int rc = add_post_ops(net, n, f, ops);
  net->api->post_ops_destroy(ops);
  return rc;
}

void tw_fusion_free(TwNet* net, TwFusion* f) {
  if (f->attr != NULL) net->api->primitive_attr_destroy(f->attr);
  f->attr = NULL;
}

/* Whether the summand's memory may take the result: nobody else reads it, also not this operator. */
static bool may_accumulate(const TwNet* net, const TwNode* n, int summand) {
  for (int i = 0; i + 1 < n->num_inputs; ++i) {
    int other = tw_input((TwNet*)net, n, i);
    if (net->tensors[other].buffer == net->tensors[summand].buffer) return false;
  }
  return tw_may_overwrite(net, summand);
}

int tw_fusion_result(TwNet* net, const TwNode* n, const TwFusion* f, OnednnConstDesc desc) {
  if (!f->sum) return tw_new_value(net, desc);
  const TwShape* shape = tw_input_shape(&net->region, n, n->num_inputs - 1);
  int summand = tw_input(net, n, n->num_inputs - 1);
  if (!tw_shape_equal(shape, &n->shapes[0])) {
    if (tw_shape_size(shape) != tw_shape_size(&n->shapes[0])) {
      return tw_node_fail(&net->region, n, "its summand has another shape than its result");
    }
    summand = tw_reshaped(net, summand, shape, &n->shapes[0]);
  }
  if (summand < 0) return -1;
  if (net->api->memory_desc_equal(tw_desc(net, summand), desc) && may_accumulate(net, n, summand)) return summand;
  int result = tw_new_value(net, desc);
  return result < 0 || tw_reorder_to(net, summand, result) != 0 ? -1 : result;
}
