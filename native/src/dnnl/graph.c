/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Reads a region's JSON, in the form of TVM 0.8 (relay/backend/json_serializer.py shows it). Nothing that the text says
 * is believed: indices point backwards, shapes are of at most 12 positive extents, sizes fit. */
#include "dnnl.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>

#define MOST_NODES (1 << 20)
#define MOST_OUTPUTS 64
#define MOST_VALUE (1 << 24) /* of a stride and the like: products of it and an extent fit */

int tw_node_fail(const TwRegion* r, const TwNode* n, const char* format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return tw_fail("dnnl_json: node %d (%s): %s", (int)(n - r->nodes), n->name, text);
}

/* ---- shapes ---- */
bool tw_shape_equal(const TwShape* a, const TwShape* b) {
  return a->ndim == b->ndim && memcmp(a->dims, b->dims, sizeof(int64_t) * (size_t)a->ndim) == 0;
}

int64_t tw_shape_size(const TwShape* shape) {
  int64_t size = 1;
  for (int i = 0; i < shape->ndim; ++i) size *= shape->dims[i];
  return size;
}

static const char* shape_text(const TwShape* s, char* buffer, size_t size) {
  DLTensor t = {.ndim = s->ndim, .shape = (int64_t*)s->dims};
  return tw_shape_text(&t, buffer, size);
}

int tw_expect_shape(const TwRegion* r, const TwNode* n, const TwShape* shape) {
  char said[128], made[128];
  if (tw_shape_equal(&n->shapes[0], shape)) return 0;
  return tw_node_fail(r, n, "its shape is said to be %s, and what it computes has the shape %s",
                      shape_text(&n->shapes[0], said, sizeof said), shape_text(shape, made, sizeof made));
}

const TwShape* tw_input_shape(const TwRegion* r, const TwNode* n, int i) {
  return &r->nodes[n->inputs[i].node].shapes[n->inputs[i].output];
}

int tw_expect_inputs(const TwRegion* r, const TwNode* n, int least, int most) {
  if (n->num_inputs >= least && n->num_inputs <= most) return 0;
  return tw_node_fail(r, n, "it has %d inputs; expected %d to %d", n->num_inputs, least, most);
}

/* ---- attributes ---- */
/* The list of strings inside of an attribute, whose form is [["1", "2"]]. */
static const Json* attr_list(const TwNode* n, const char* key) {
  const Json* value = n->attrs == NULL ? NULL : json_member(n->attrs, key);
  if (value == NULL || value->kind != JSON_ARRAY || value->count != 1 || value->first->kind != JSON_ARRAY) return NULL;
  return value->first;
}

int tw_attr_count(const TwNode* n, const char* key) {
  const Json* list = attr_list(n, key);
  return list == NULL || list->count > INT_MAX ? 0 : (int)list->count;
}

const char* tw_attr_text(const TwNode* n, const char* key, const char* fallback) {
  const Json* list = attr_list(n, key);
  return list == NULL || list->count == 0 || list->first->kind != JSON_STRING ? fallback : list->first->text;
}

static int parse_int(const Json* item, int64_t* out) {
  char* end;
  if (item->kind != JSON_STRING) return -1;
  errno = 0;
  long long value = strtoll(item->text, &end, 10);
  if (end == item->text || *end != '\0' || errno != 0) return -1;
  *out = value;
  return 0;
}

int tw_attr_ints(const TwRegion* r, const TwNode* n, const char* key, int count, int64_t least, int64_t* out) {
  const Json* list = attr_list(n, key);
  if (list == NULL || list->count != (size_t)count) {
    return tw_node_fail(r, n, "its attribute \"%s\" is not a list of %d integers", key, count);
  }
  const Json* item = list->first;
  for (int i = 0; i < count; ++i, item = item->next) {
    if (parse_int(item, &out[i]) != 0 || out[i] < least || out[i] > MOST_VALUE) {
      return tw_node_fail(r, n, "its attribute \"%s\" has \"%s\"; expected an integer of %lld or more", key,
                          item->kind == JSON_STRING ? item->text : "no string", (long long)least);
    }
  }
  return 0;
}

int tw_attr_int(const TwRegion* r, const TwNode* n, const char* key, int64_t fallback, int64_t* out) {
  *out = fallback;
  return tw_attr_count(n, key) == 0 ? 0 : tw_attr_ints(r, n, key, 1, INT_MIN, out);
}

int tw_attr_float(const TwRegion* r, const TwNode* n, const char* key, double* out) {
  const char* text = tw_attr_text(n, key, "");
  char* end;
  *out = strtod(text, &end);
  return end != text && *end == '\0' ? 0 : tw_node_fail(r, n, "its attribute \"%s\" is not a number", key);
}

/* ---- nodes ---- */
static int parse_shape(const TwRegion* r, const TwNode* n, const Json* value, TwShape* out) {
  if (value->kind != JSON_ARRAY || value->count > ONEDNN_MAX_NDIMS) {
    return tw_node_fail(r, n, "a shape is a list of at most %d extents", ONEDNN_MAX_NDIMS);
  }
  int64_t size = (int64_t)sizeof(float);
  for (const Json* item = value->first; item != NULL; item = item->next) {
    if (!json_int(item, 1, INT_MAX, &out->dims[out->ndim])) return tw_node_fail(r, n, "an extent is not a positive integer");
    if (__builtin_mul_overflow(size, out->dims[out->ndim++], &size)) return tw_node_fail(r, n, "a shape is too large");
  }
  return 0;
}

static int parse_types(const TwRegion* r, TwNode* n) {
  const Json* shapes = attr_list(n, "shape");
  const Json* types = attr_list(n, "dtype");
  if (shapes == NULL || types == NULL || shapes->count != types->count || shapes->count == 0 || shapes->count > MOST_OUTPUTS) {
    return tw_node_fail(r, n, "its shapes and data types are missing, or not of one number");
  }
  n->shapes = calloc(shapes->count, sizeof *n->shapes);
  if (n->shapes == NULL) return tw_out_of_memory(shapes->count * sizeof *n->shapes);
  const Json* type = types->first;
  for (const Json* shape = shapes->first; shape != NULL; shape = shape->next, type = type->next) {
    if (parse_shape(r, n, shape, &n->shapes[n->num_outputs++]) != 0) return -1;
    if (type->kind != JSON_STRING || strcmp(type->text, "float32") != 0) {
      return tw_node_fail(r, n, "its data type is %s; there is float32", type->kind == JSON_STRING ? type->text : "no string");
    }
  }
  return 0;
}

static int parse_entries(const TwRegion* r, const Json* list, int num_nodes, TwEntry** out, int* count) {
  if (list == NULL || list->kind != JSON_ARRAY || list->count > MOST_NODES) return tw_fail("dnnl_json: expected a list of entries");
  *out = calloc(list->count + 1, sizeof **out);
  if (*out == NULL) return tw_out_of_memory(list->count * sizeof **out);
  for (const Json* item = list->first; item != NULL; item = item->next) {
    int64_t node, output;
    if (item->kind != JSON_ARRAY || item->count < 2 || !json_int(item->first, 0, num_nodes - 1, &node) ||
        !json_int(item->first->next, 0, r->nodes[node].num_outputs - 1, &output)) {
      return tw_fail("dnnl_json: an entry is not [node, output, version] of one of the %d nodes before it", num_nodes);
    }
    (*out)[(*count)++] = (TwEntry){(int)node, (int)output};
  }
  return 0;
}

static int parse_node(TwRegion* r, const Json* value, int index) {
  static const char* const kinds[] = {"input", "const", "kernel"};
  TwNode* n = &r->nodes[index];
  const Json* op = json_member(value, "op");
  const Json* name = json_member(value, "name");
  int kind = 0;
  if (op == NULL || op->kind != JSON_STRING || name == NULL || name->kind != JSON_STRING) {
    return tw_fail("dnnl_json: node %d has no \"op\" and \"name\"", index);
  }
  while (kind < 3 && strcmp(op->text, kinds[kind]) != 0) ++kind;
  n->name = name->text;
  if (kind == 3) return tw_node_fail(r, n, "a node is \"input\", \"const\" or \"kernel\", not \"%s\"", op->text);
  n->kind = kind == 0 ? TW_INPUT : kind == 1 ? TW_CONST : TW_KERNEL;
  n->attrs = json_member(value, "attrs");
  n->first_entry = r->num_entries;
  if (parse_types(r, n) != 0) return -1;
  r->num_entries += n->num_outputs;
  if (n->kind == TW_INPUT) r->num_inputs += n->num_outputs;
  if (n->kind == TW_CONST && n->num_outputs != 1) return tw_node_fail(r, n, "a constant is one tensor");
  if (n->kind == TW_CONST) ++r->num_constants;
  if (n->kind != TW_KERNEL) return 0;
  return parse_entries(r, json_member(value, "inputs"), index, &n->inputs, &n->num_inputs);
}

static int parse_document(TwRegion* r) {
  const Json* nodes = r->document->kind == JSON_OBJECT ? json_member(r->document, "nodes") : NULL;
  if (nodes == NULL || nodes->kind != JSON_ARRAY || nodes->count == 0 || nodes->count > MOST_NODES) {
    return tw_fail("dnnl_json: the graph has no list of nodes");
  }
  r->nodes = calloc(nodes->count, sizeof *r->nodes);
  if (r->nodes == NULL) return tw_out_of_memory(nodes->count * sizeof *r->nodes);
  for (const Json* value = nodes->first; value != NULL; value = value->next) {
    ++r->num_nodes;
    if (parse_node(r, value, r->num_nodes - 1) != 0) return -1;
  }
  if (parse_entries(r, json_member(r->document, "heads"), r->num_nodes, &r->heads, &r->num_heads) != 0) return -1;
  return r->num_heads == 0 ? tw_fail("dnnl_json: the graph has no results") : 0;
}

int tw_region_parse(const char* text, size_t size, TwRegion* out) {
  *out = (TwRegion){.document = json_parse(text, size)};
  if (out->document != NULL && parse_document(out) == 0) return 0;
  tw_region_free(out);
  return -1;
}

void tw_region_free(TwRegion* r) {
  for (int i = 0; i < r->num_nodes; ++i) {
    free(r->nodes[i].inputs);
    free(r->nodes[i].shapes);
  }
  free(r->nodes);
  free(r->heads);
  json_free(r->document);
  *r = (TwRegion){.document = NULL};
}
