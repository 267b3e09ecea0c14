/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Reads TVM 0.8's graph JSON:
 *
 *   nodes          [{"op": "null" | "tvm_op", "name", "inputs": [[node, output, version]...],
 *                    "attrs": {"func_name", "num_inputs", "num_outputs", "flatten_data", ...}}]; optionally
 *                  "run_once" (ours: it reads parameters only, directly or through others of these)
 *   arg_nodes      the input nodes            heads           the outputs, as [node, output, version]
 *   node_row_ptr   first entry of each node
 *   attrs          {"dltype": ["list_str", [...]], "shape": ["list_shape", [[...]...]],
 *                   "storage_id": ["list_int", [...]]}, one item an entry; optionally
 *                  "device_index": ["list_int", [...]], the type of the device on which each lives (absent, or 0: the first), and
 *                  "storage_offset": ["list_int64", [...]], byte offsets into the storage (ours; TVM 0.8's executor
 *                  refuses lists of this type, and does not run a graph whose offsets it does not know)
 *   metadata       optional: {"inputs": [names of what is no parameter], "outputs": [the outputs' names], ...} (ours;
 *                  TVM 0.8's executor stops reading here, so this is the last member) */
#include "graph.h"
#include "../core/json.h"

#include <limits.h>

static int bad(const char* what) { return tw_fail("bad graph JSON: %s", what); }

static const Json* array_member(const Json* object, const char* key) {
  const Json* m = json_member(object, key);
  if (m == NULL || m->kind != JSON_ARRAY || m->count > INT_MAX / 4) {
    tw_fail("bad graph JSON: \"%s\" must be an array", key);
    return NULL;
  }
  return m;
}

static const char* string_member(const Json* object, const char* key) {
  const Json* m = json_member(object, key);
  return m != NULL && m->kind == JSON_STRING ? m->text : NULL;
}

static bool is_set(const Json* object, const char* key) {
  const char* text = string_member(object, key);
  return text != NULL && strcmp(text, "1") == 0;
}

static void* zeros(size_t count, size_t size) {
  void* p = calloc(count + 1, size);
  if (p == NULL) tw_out_of_memory(count * size);
  return p;
}

/* A JSON array of integers in [least, most]. */
static int read_ints(const Json* array, int64_t least, int64_t most, int** out) {
  int* v = zeros(array->count, sizeof(int));
  if (v == NULL) return -1;
  *out = v;
  for (const Json* item = array->first; item != NULL; item = item->next) {
    int64_t n;
    if (!json_int(item, least, most, &n)) return bad("an index is out of range");
    *v++ = (int)n;
  }
  return 0;
}

static int read_row_pointers(TilewrightGraph* g, const Json* root) {
  const Json* rows = array_member(root, "node_row_ptr");
  if (rows == NULL) return -1;
  if (rows->count != (size_t)g->num_nodes + 1) return bad("\"node_row_ptr\" must have one item more than \"nodes\"");
  if (read_ints(rows, 0, INT_MAX / 4, &g->row_pointers) != 0) return -1;
  if (g->row_pointers[0] != 0) return bad("\"node_row_ptr\" must begin with 0");
  for (int i = 0; i < g->num_nodes; ++i) {
    if (g->row_pointers[i + 1] <= g->row_pointers[i]) return bad("\"node_row_ptr\" must ascend");
  }
  g->num_entries = g->row_pointers[g->num_nodes];
  return 0;
}

/* The entry that [node, output, version] names, among the first num_nodes nodes. */
static int read_entry(const TilewrightGraph* g, const Json* triple, int num_nodes, int* out) {
  int64_t node, output;
  if (triple->kind != JSON_ARRAY || triple->count < 2 || !json_int(triple->first, 0, num_nodes - 1, &node)) {
    return bad("an edge must be [node, output, version] and come from an earlier node");
  }
  int count = g->row_pointers[node + 1] - g->row_pointers[node];
  if (!json_int(triple->first->next, 0, count - 1, &output)) return bad("an edge names an output that its node lacks");
  *out = g->row_pointers[node] + (int)output;
  return 0;
}

static int read_entries(const TilewrightGraph* g, const Json* array, int num_nodes, int** out) {
  int* v = zeros(array->count, sizeof(int));
  if (v == NULL) return -1;
  *out = v;
  for (const Json* item = array->first; item != NULL; item = item->next) {
    if (read_entry(g, item, num_nodes, v++) != 0) return -1;
  }
  return 0;
}

static int read_operator(TilewrightGraph* g, int index, const Json* json) {
  GraphNode* node = &g->nodes[index];
  const Json* attrs = json_member(json, "attrs");
  const char* function = string_member(attrs, "func_name");
  const char* outputs = string_member(attrs, "num_outputs");
  const Json* inputs = array_member(json, "inputs");
  if (inputs == NULL) return -1;
  if (function == NULL) return tw_fail("bad graph JSON: node \"%s\" has no \"func_name\"", node->name);
  node->function = tw_strdup(function);
  if (node->function == NULL) return tw_out_of_memory(strlen(function));
  node->flatten = is_set(attrs, "flatten_data");
  node->once = is_set(attrs, "run_once");
  if (outputs != NULL && atoi(outputs) != g->row_pointers[index + 1] - g->row_pointers[index]) {
    return tw_fail("bad graph JSON: node \"%s\": \"num_outputs\" and \"node_row_ptr\" differ", node->name);
  }
  node->num_inputs = (int)inputs->count;
  return read_entries(g, inputs, index, &node->inputs);
}

static int read_nodes(TilewrightGraph* g, const Json* nodes) {
  int i = 0;
  for (const Json* json = nodes->first; json != NULL; json = json->next, ++i) {
    const char *op = string_member(json, "op"), *name = string_member(json, "name");
    if (op == NULL || name == NULL) return bad("a node needs \"op\" and \"name\"");
    g->nodes[i].name = tw_strdup(name);
    if (g->nodes[i].name == NULL) return tw_out_of_memory(strlen(name));
    if (strcmp(op, "null") == 0) continue;
    if (strcmp(op, "tvm_op") != 0) {
      return tw_fail("bad graph JSON: node \"%s\": \"op\" is \"%s\", not null or tvm_op", name, op);
    }
    if (read_operator(g, i, json) != 0) return -1;
  }
  return 0;
}

/* The list in attrs[key], which is written as [type, list], with one item an entry; NULL and an error otherwise. */
static const Json* entry_attr(const TilewrightGraph* g, const Json* attrs, const char* key, const char* type) {
  const Json* pair = json_member(attrs, key);
  if (pair == NULL || pair->kind != JSON_ARRAY || pair->count != 2 || pair->first->kind != JSON_STRING ||
      strcmp(pair->first->text, type) != 0 || pair->first->next->kind != JSON_ARRAY ||
      pair->first->next->count != (size_t)g->num_entries) {
    tw_fail("bad graph JSON: attrs[\"%s\"] must be [\"%s\", [one item for each of %d entries]]", key, type,
            g->num_entries);
    return NULL;
  }
  return pair->first->next;
}

static int read_shape(GraphEntry* e, const Json* shape) {
  if (shape->kind != JSON_ARRAY || shape->count > 1024) return bad("a shape must be an array");
  e->shape = zeros(shape->count, sizeof(int64_t));
  if (e->shape == NULL) return -1;
  for (const Json* d = shape->first; d != NULL; d = d->next) {
    if (!json_int(d, 0, INT64_MAX, &e->shape[e->ndim++])) return bad("a shape must hold integers of 0 or more");
  }
  if (!tw_tensor_bytes(e->ndim, e->shape, e->type, &e->nbytes)) return bad("a shape is too large");
  return 0;
}

static int read_tensor_attrs(TilewrightGraph* g, const Json* attrs) {
  const Json* types = entry_attr(g, attrs, "dltype", "list_str");
  const Json* shapes = types == NULL ? NULL : entry_attr(g, attrs, "shape", "list_shape");
  const Json* ids = shapes == NULL ? NULL : entry_attr(g, attrs, "storage_id", "list_int");
  if (ids == NULL) return -1;
  const Json *offsets = NULL, *devices = NULL;
  if (json_member(attrs, "device_index") != NULL) {
    devices = entry_attr(g, attrs, "device_index", "list_int");
    if (devices == NULL) return -1;
  }
  if (json_member(attrs, "storage_offset") != NULL) {
    offsets = entry_attr(g, attrs, "storage_offset", "list_int64");
    if (offsets == NULL) return -1;
  }
  const Json *type = types->first, *shape = shapes->first, *id = ids->first;
  const Json *at = offsets ? offsets->first : NULL, *device = devices ? devices->first : NULL;
  for (int i = 0; i < g->num_entries; ++i, type = type->next, shape = shape->next, id = id->next) {
    GraphEntry* e = &g->entries[i];
    int64_t storage, offset = 0, device_type = 0;
    if (type->kind != JSON_STRING || tw_parse_type(type->text, &e->type) != 0) return bad("unknown \"dltype\"");
    if (read_shape(e, shape) != 0) return -1;
    if (!json_int(id, 0, g->num_entries - 1, &storage)) return bad("\"storage_id\" out of range");
    if (at != NULL) {
      if (!json_int(at, 0, INT64_MAX / 2, &offset) || offset % TW_ALIGNMENT != 0) {
        return bad("\"storage_offset\" must be a multiple of 64");
      }
      at = at->next;
    }
    if (device != NULL) {
      if (!json_int(device, 0, TILEWRIGHT_MAX_DEVICE_TYPE, &device_type)) return bad("\"device_index\" must hold device types");
      device = device->next;
    }
    e->device_type = (int)device_type;
    e->storage = (int)storage;
    e->storage_offset = (uint64_t)offset;
    e->root = i;
    if (e->storage >= g->num_storage) g->num_storage = e->storage + 1;
  }
  return 0;
}

static int index_inputs(TilewrightGraph* g) {
  for (int i = 0; i < g->num_inputs; ++i) {
    const char* name = g->nodes[g->inputs[i]].name;
    if (g->nodes[g->inputs[i]].function != NULL) return bad("\"arg_nodes\" names an operator");
    if (tw_map_get(&g->input_index, name) != NULL) return tw_fail("bad graph JSON: two inputs are named \"%s\"", name);
    if (!tw_map_set(&g->input_index, name, (void*)(intptr_t)(i + 1))) return tw_out_of_memory(64);
  }
  return 0;
}

/* metadata[key], an array of strings, or NULL: there is none. */
static int read_names(const Json* metadata, const char* key, const Json** out) {
  const Json* names = metadata != NULL && metadata->kind == JSON_OBJECT ? json_member(metadata, key) : NULL;
  *out = names;
  if (names != NULL && names->kind != JSON_ARRAY) return tw_fail("bad graph JSON: metadata[\"%s\"] must be an array", key);
  for (const Json* name = names == NULL ? NULL : names->first; name != NULL; name = name->next) {
    if (name->kind != JSON_STRING) return tw_fail("bad graph JSON: metadata[\"%s\"] must hold strings", key);
  }
  return 0;
}

/* An input that metadata knows and does not list is a parameter. */
static int read_input_names(TilewrightGraph* g, const Json* metadata) {
  const Json* names;
  if (read_names(metadata, "inputs", &names) != 0) return -1;
  for (int i = 0; names != NULL && i < g->num_inputs; ++i) g->entries[g->row_pointers[g->inputs[i]]].parameter = true;
  for (const Json* name = names == NULL ? NULL : names->first; name != NULL; name = name->next) {
    int index = TilewrightGraphInputIndex(g, name->text);
    if (index < 0) return tw_fail("bad graph JSON: metadata names \"%s\", which is no input", name->text);
    g->entries[g->row_pointers[g->inputs[index]]].parameter = false;
  }
  return 0;
}

/* Outputs that have no name are output_0, output_1, ... */
static int read_output_names(TilewrightGraph* g, const Json* metadata) {
  const Json* names;
  if (read_names(metadata, "outputs", &names) != 0) return -1;
  if (names != NULL && names->count != (size_t)g->num_outputs) return bad("metadata[\"outputs\"] must name each output");
  g->output_names = zeros((size_t)g->num_outputs, sizeof(char*));
  g->targets = zeros((size_t)g->num_outputs, sizeof *g->targets);
  if (g->output_names == NULL || g->targets == NULL) return -1;
  const Json* name = names == NULL ? NULL : names->first;
  for (int i = 0; i < g->num_outputs; ++i) {
    char made_up[32];
    snprintf(made_up, sizeof made_up, "output_%d", i);
    g->output_names[i] = tw_strdup(name == NULL ? made_up : name->text);
    if (g->output_names[i] == NULL) return tw_out_of_memory(sizeof made_up);
    if (name != NULL) name = name->next;
  }
  return 0;
}

static int read_root(TilewrightGraph* g, const Json* root) {
  if (root->kind != JSON_OBJECT) return bad("it must be an object");
  const Json* nodes = array_member(root, "nodes");
  if (nodes == NULL) return -1;
  g->num_nodes = (int)nodes->count;
  g->nodes = zeros(nodes->count, sizeof(GraphNode));
  if (g->nodes == NULL || read_row_pointers(g, root) != 0) return -1;
  g->entries = zeros((size_t)g->num_entries, sizeof(GraphEntry));
  if (g->entries == NULL || read_nodes(g, nodes) != 0) return -1;
  const Json* heads = array_member(root, "heads");
  if (heads == NULL || read_entries(g, heads, g->num_nodes, &g->outputs) != 0) return -1;
  g->num_outputs = (int)heads->count;
  const Json* arg_nodes = array_member(root, "arg_nodes");
  if (arg_nodes == NULL || read_ints(arg_nodes, 0, g->num_nodes - 1, &g->inputs) != 0) return -1;
  g->num_inputs = (int)arg_nodes->count;
  if (read_tensor_attrs(g, json_member(root, "attrs")) != 0) return -1;
  const Json* metadata = json_member(root, "metadata");
  if (index_inputs(g) != 0 || read_input_names(g, metadata) != 0) return -1;
  return read_output_names(g, metadata);
}

int graph_read_json(TilewrightGraph* g, const char* json, size_t json_size) {
  Json* root = json_parse(json, json_size);
  if (root == NULL) return -1;
  int rc = read_root(g, root);
  json_free(root);
  return rc;
}
