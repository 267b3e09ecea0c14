/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The graph executor's inputs, outputs and parameters, and TilewrightGraphInfer, which does all of a run at once. */
#include "graph.h"

/* ---- what there is ---- */
int TilewrightGraphNumInputs(const TilewrightGraph* g) { return g->num_inputs; }

int TilewrightGraphNumOutputs(const TilewrightGraph* g) { return g->num_outputs; }

int TilewrightGraphInputIndex(const TilewrightGraph* g, const char* name) {
  return (int)(intptr_t)tw_map_get(&g->input_index, name) - 1;
}

const char* TilewrightGraphInputName(const TilewrightGraph* g, int index) {
  return index < 0 || index >= g->num_inputs ? NULL : g->nodes[g->inputs[index]].name;
}

/* The entry of an input whose index is right. */
static GraphEntry* input_at(const TilewrightGraph* g, int index) { return &g->entries[g->row_pointers[g->inputs[index]]]; }

int TilewrightGraphInputIsParameter(const TilewrightGraph* g, int index) {
  return index >= 0 && index < g->num_inputs && input_at(g, index)->parameter;
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

static int input_entry(const TilewrightGraph* g, int index, int* entry) {
  if (index < 0 || index >= g->num_inputs) {
    return tw_fail("input %d is out of range: the graph has %d inputs", index, g->num_inputs);
  }
  *entry = g->row_pointers[g->inputs[index]];
  return 0;
}

static int output_entry(const TilewrightGraph* g, int index, int* entry) {
  if (index < 0 || index >= g->num_outputs) {
    return tw_fail("output %d is out of range: the graph has %d outputs", index, g->num_outputs);
  }
  *entry = g->outputs[index];
  return 0;
}

/* A tensor without its memory. */
static DLTensor description(const TilewrightGraph* g, int entry) {
  const GraphEntry* e = &g->entries[entry];
  return (DLTensor){.device = e->device, .ndim = e->ndim, .dtype = e->type, .shape = e->shape};
}

int TilewrightGraphInputInfo(const TilewrightGraph* g, int index, DLTensor* out) {
  int entry;
  if (input_entry(g, index, &entry) != 0) return -1;
  *out = description(g, entry);
  return 0;
}

int TilewrightGraphOutputInfo(const TilewrightGraph* g, int index, DLTensor* out) {
  int entry;
  if (output_entry(g, index, &entry) != 0) return -1;
  *out = description(g, entry);
  return 0;
}

/* ---- lists of names, for messages ---- */
typedef struct {
  char* text; /* of GRAPH_NAMES_SIZE */
  size_t used;
} Names;

/* Adds a name to a list, or "..." in place of all that do not fit. */
static void add_name(Names* n, const char* name) {
  static const char rest[] = ", ...";
  const char* comma = n->used == 0 ? "" : ", ";
  const size_t size = strlen(comma) + strlen(name), room = GRAPH_NAMES_SIZE - sizeof rest;
  if (n->used > room) return;
  if (size > room - n->used) {
    memcpy(n->text + n->used, n->used == 0 ? rest + 2 : rest, sizeof rest - (n->used == 0 ? 2 : 0));
    n->used = GRAPH_NAMES_SIZE;
    return;
  }
  n->used += (size_t)sprintf(n->text + n->used, "%s%s", comma, name);
}

int graph_find_input(const TilewrightGraph* g, const char* name, int* index) {
  *index = TilewrightGraphInputIndex(g, name);
  if (*index >= 0) return 0;
  char text[GRAPH_NAMES_SIZE] = "";
  Names names = {text, 0};
  for (int i = 0; i < g->num_inputs; ++i) {
    if (!input_at(g, i)->parameter) add_name(&names, TilewrightGraphInputName(g, i));
  }
  return tw_fail("the graph has no input named \"%s\"; its inputs are: %s", name, text);
}

int graph_find_output(const TilewrightGraph* g, const char* name, int* index) {
  *index = TilewrightGraphOutputIndex(g, name);
  if (*index >= 0) return 0;
  char text[GRAPH_NAMES_SIZE] = "";
  Names names = {text, 0};
  for (int i = 0; i < g->num_outputs; ++i) add_name(&names, g->output_names[i]);
  return tw_fail("the graph has no output named \"%s\"; its outputs are: %s", name, text);
}

/* An empty tensor needs no value. */
void graph_unset_inputs(const TilewrightGraph* g, char* text) {
  Names names = {text, 0};
  text[0] = '\0';
  for (int i = 0; i < g->num_inputs; ++i) {
    const GraphEntry* e = input_at(g, i);
    if (!e->given && e->nbytes != 0) add_name(&names, TilewrightGraphInputName(g, i));
  }
}

static int check_given(const TilewrightGraph* g) {
  char names[GRAPH_NAMES_SIZE];
  graph_unset_inputs(g, names);
  return names[0] == '\0' ? 0 : tw_fail("nobody has set the inputs: %s", names);
}

int TilewrightGraphCheckInputs(TilewrightGraph* g) {
  if (graph_begin(g, false) != 0) return -1;
  int rc = check_given(g);
  g->warned = true;
  graph_end(g);
  return rc;
}

void graph_warn_unset(TilewrightGraph* g) {
  if (g->warned) return;
  char names[GRAPH_NAMES_SIZE];
  graph_unset_inputs(g, names);
  g->warned = true;
  if (names[0] != '\0') fprintf(stderr, "tilewright: warning: the graph runs with inputs that nobody has set: %s\n", names);
}

/* ---- inputs ---- */
static int check_tensor(const TilewrightGraph* g, int entry, const DLTensor* value, const char* what, const char* name) {
  const GraphEntry* e = &g->entries[entry];
  const DLTensor expected = description(g, entry);
  if (value->ndim == e->ndim && tw_same_shape(e->ndim, value->shape, e->shape) && tw_same_type(value->dtype, e->type)) {
    return 0;
  }
  char want[160], got[160], want_type[24], got_type[24];
  return tw_fail("%s \"%s\" takes shape %s of %s, but was given shape %s of %s", what, name,
                 tw_shape_text(&expected, want, sizeof want), tw_type_name(e->type, want_type),
                 tw_shape_text(value, got, sizeof got), tw_type_name(value->dtype, got_type));
}

static int check_input(const TilewrightGraph* g, int entry, const DLTensor* value) {
  const char* name = "";
  for (int i = 0; i < g->num_inputs; ++i) {
    if (g->row_pointers[g->inputs[i]] == entry) name = g->nodes[g->inputs[i]].name;
  }
  return check_tensor(g, entry, value, "input", name);
}

/* Whether calls can work on a caller's memory; what and copy, for the message: "input", "set_input". */
static int check_memory(const DLTensor* t, const char* what, const char* copy) {
  if (!tw_is_compact(t)) return tw_fail("an %s's memory must be compact (row-major without gaps)", what);
  if (!tw_is_host(t->device)) return 0; /* who knows what such an address means */
  if ((uintptr_t)((char*)t->data + t->byte_offset) % TW_ALIGNMENT == 0) return 0;
  return tw_fail("an %s's memory must be aligned to %d bytes; copy it with %s, or allocate it with nd.empty", what,
                 TW_ALIGNMENT, copy);
}

/* Makes the input's memory be array's (retained); fails when shape or type differ. */
static int replace_input(TilewrightGraph* g, int entry, TwArray* array, bool borrowed) {
  GraphEntry* e = &g->entries[entry];
  if (check_input(g, entry, &array->tensor) != 0 || check_memory(&array->tensor, "input", "set_input") != 0) return -1;
  e->given = true;
  if (e->feeds_once) g->stale = true;
  return graph_replace_array(g, entry, array, borrowed);
}

int graph_bind_param(TilewrightGraph* g, int index, TwArray* array, bool borrowed) {
  GraphEntry* e = input_at(g, index);
  const bool here = tw_same_memory(array->tensor.device, e->device);
  TwArray* placed = here ? tw_array_retain(array) : graph_copy_to(array, e->device);
  int rc = placed == NULL ? -1 : replace_input(g, g->row_pointers[g->inputs[index]], placed, borrowed && here);
  tw_array_release(placed);
  if (rc == 0) e->parameter = true;
  return rc;
}

/* A caller may write to the input's memory from now on without telling. */
static void expose_input(TilewrightGraph* g, int entry) {
  g->entries[entry].given = true;
  if (g->entries[entry].feeds_once) g->stale = g->exposed = true;
}

static int set_input(TilewrightGraph* g, int entry, const DLTensor* value) {
  GraphEntry* e = &g->entries[entry];
  if (check_input(g, entry, value) != 0 || graph_own_memory(g, entry) != 0) return -1;
  if (e->feeds_once) g->stale = true;
  e->given = true;
  return tw_copy(value, &e->array->tensor);
}

int TilewrightGraphSetInputAt(TilewrightGraph* g, int index, const DLTensor* value) {
  int entry;
  if (input_entry(g, index, &entry) != 0 || graph_begin(g, false) != 0) return -1;
  int rc = set_input(g, entry, value);
  graph_end(g);
  return rc;
}

int TilewrightGraphSetInput(TilewrightGraph* g, const char* name, const DLTensor* value) {
  int index;
  return graph_find_input(g, name, &index) != 0 ? -1 : TilewrightGraphSetInputAt(g, index, value);
}

static int check_place(const TilewrightGraph* g, int index, const TwArray* array) {
  const GraphEntry* e = input_at(g, index);
  char here[TW_DEVICE_TEXT], there[TW_DEVICE_TEXT];
  if (tw_same_memory(array->tensor.device, e->device)) return 0;
  return tw_fail("input \"%s\" lives on %s, and the array on %s; copy it with set_input", TilewrightGraphInputName(g, index),
                 tw_device_text(e->device, here), tw_device_text(array->tensor.device, there));
}

int graph_set_zero_copy(TilewrightGraph* g, int index, TwArray* array) {
  int entry;
  if (input_entry(g, index, &entry) != 0 || graph_begin(g, false) != 0) return -1;
  int rc = check_place(g, index, array);
  if (rc == 0) rc = replace_input(g, entry, array, true);
  if (rc == 0) expose_input(g, entry);
  graph_end(g);
  return rc;
}

/* An array that owns nothing, and stands for the caller's memory. */
static TwArray* callers_array(const DLTensor* value) {
  DLManagedTensor managed = {.dl_tensor = *value};
  TVMArrayHandle array;
  if (TVMArrayFromDLPack(&managed, &array) != 0) return NULL;
  ((TwArray*)array)->borrowed = NULL;
  return (TwArray*)array;
}

int TilewrightGraphSetInputZeroCopyAt(TilewrightGraph* g, int index, const DLTensor* value) {
  TwArray* array = callers_array(value);
  int rc = array == NULL ? -1 : graph_set_zero_copy(g, index, array);
  tw_array_release(array);
  return rc;
}

int TilewrightGraphGetInput(TilewrightGraph* g, int index, TVMArrayHandle* out) {
  int entry;
  if (input_entry(g, index, &entry) != 0 || graph_begin(g, false) != 0) return -1;
  expose_input(g, entry);
  *out = &tw_array_retain(g->entries[entry].array)->tensor;
  graph_end(g);
  return 0;
}

/* ---- outputs ---- */
int TilewrightGraphGetOutput(TilewrightGraph* g, int index, TVMArrayHandle* out) {
  int entry;
  if (output_entry(g, index, &entry) != 0 || graph_begin(g, false) != 0) return -1;
  *out = &tw_array_retain(g->entries[entry].array)->tensor;
  graph_end(g);
  return 0;
}

int TilewrightGraphCopyOutput(TilewrightGraph* g, int index, DLTensor* out) {
  int entry;
  if (output_entry(g, index, &entry) != 0 || graph_begin(g, false) != 0) return -1;
  int rc = tw_copy(&g->entries[entry].array->tensor, out);
  graph_end(g);
  return rc;
}

/* Whether another output is in a caller's memory, and this one in the same. */
static bool is_taken(const TilewrightGraph* g, int index) {
  const int root = g->entries[g->outputs[index]].root;
  for (int i = 0; i < g->num_outputs; ++i) {
    const GraphTarget* t = &g->targets[i];
    if (i != index && t->array != NULL && !t->copied && g->entries[g->outputs[i]].root == root) return true;
  }
  return false;
}

/* Puts the output, and what it is another shape of, into array. */
static int move_output(TilewrightGraph* g, int root, TwArray* array) {
  const GraphEntry* e = &g->entries[root];
  TwArray* view = tw_array_view(array, 0, e->shape, e->ndim, e->type);
  int rc = view == NULL ? -1 : graph_replace_array(g, root, view, true);
  tw_array_release(view);
  return rc;
}

static int set_target(TilewrightGraph* g, int index, TwArray* array) {
  const int entry = g->outputs[index], root = g->entries[entry].root;
  GraphTarget* target = &g->targets[index];
  if (check_tensor(g, entry, &array->tensor, "output", g->output_names[index]) != 0) return -1;
  if (check_memory(&array->tensor, "output", "get_output") != 0) return -1;
  const bool here = tw_same_memory(array->tensor.device, g->entries[entry].device);
  const bool copied = !here || is_taken(g, index) || !graph_is_movable(g, root);
  if (!copied && move_output(g, root, array) != 0) return -1;
  g->num_copied += copied - (target->array != NULL && target->copied);
  tw_array_retain(array);
  tw_array_release(target->array);
  *target = (GraphTarget){array, copied};
  return 0;
}

int graph_set_output_zero_copy(TilewrightGraph* g, int index, TwArray* array) {
  int entry;
  if (output_entry(g, index, &entry) != 0 || tw_device_api(array->tensor.device) == NULL || graph_begin(g, false) != 0) return -1;
  int rc = set_target(g, index, array);
  graph_end(g);
  return rc;
}

int TilewrightGraphSetOutputZeroCopyAt(TilewrightGraph* g, int index, const DLTensor* value) {
  TwArray* array = callers_array(value);
  int rc = array == NULL ? -1 : graph_set_output_zero_copy(g, index, array);
  tw_array_release(array);
  return rc;
}

int graph_copy_outputs(const TilewrightGraph* g) {
  for (int i = 0; i < g->num_outputs; ++i) {
    const GraphTarget* t = &g->targets[i];
    if (t->copied && tw_copy(&g->entries[g->outputs[i]].array->tensor, &t->array->tensor) != 0) return -1;
  }
  return 0;
}

/* ---- a whole run ---- */
static int infer_input(TilewrightGraph* g, const char* name, const DLTensor* value) {
  int index;
  if (graph_find_input(g, name, &index) != 0) return -1;
  if (input_at(g, index)->parameter) {
    return tw_fail("\"%s\" is a parameter, which infer does not take; set_input changes it for all runs to come", name);
  }
  return set_input(g, g->row_pointers[g->inputs[index]], value);
}

/* The values were those of one call: the next must bring its own. */
static void forget_inputs(TilewrightGraph* g, int count, const char* const* names) {
  for (int i = 0; i < count; ++i) {
    const int index = TilewrightGraphInputIndex(g, names[i]);
    if (index >= 0 && !input_at(g, index)->parameter) input_at(g, index)->given = false;
  }
}

int graph_infer(TilewrightGraph* g, int count, const char* const* names, const DLTensor* const* values,
                DLTensor* const* outputs) {
  if (graph_begin(g, true) != 0) return -1;
  int rc = 0;
  for (int i = 0; rc == 0 && i < count; ++i) rc = infer_input(g, names[i], values[i]);
  if (rc == 0) rc = check_given(g);
  if (rc == 0) rc = graph_run(g);
  for (int i = 0; rc == 0 && i < g->num_outputs; ++i) rc = tw_copy(&g->entries[g->outputs[i]].array->tensor, outputs[i]);
  forget_inputs(g, count, names);
  graph_end(g);
  return rc;
}

int TilewrightGraphInfer(TilewrightGraph* g, int count, const char* const* names, const DLTensor* const* values,
                         TVMArrayHandle* outputs) {
  int rc = 0, made = 0;
  for (; rc == 0 && made < g->num_outputs; ++made) {
    const GraphEntry* e = &g->entries[g->outputs[made]];
    TwArray* array = tw_array_new(e->shape, e->ndim, e->type, (DLDevice){kDLCPU, 0});
    outputs[made] = array == NULL ? NULL : &array->tensor;
    if (array == NULL) rc = -1;
  }
  if (rc == 0) rc = graph_infer(g, count, names, values, outputs);
  for (int i = 0; rc != 0 && i < made; ++i) {
    tw_array_release((TwArray*)outputs[i]);
    outputs[i] = NULL;
  }
  return rc;
}

/* ---- parameters ---- */
/* The arrays just read become the inputs' memory: nothing is copied again. */
static int bind_params(TilewrightGraph* g, const TwParams* p) {
  int rc = 0;
  for (size_t i = 0; rc == 0 && i < p->count; ++i) {
    int index = TilewrightGraphInputIndex(g, p->names[i]);
    if (index >= 0) rc = graph_bind_param(g, index, p->arrays[i], false);
  }
  return rc;
}

int TilewrightGraphLoadParams(TilewrightGraph* g, const char* params, size_t size) {
  TilewrightStream s = {.data = params, .left = size};
  TwParams p;
  if (tw_read_params(&s, &p) != 0) return -1;
  int rc = graph_begin(g, false);
  if (rc == 0) {
    rc = bind_params(g, &p);
    graph_end(g);
  }
  tw_free_params(&p);
  return rc;
}

/* Takes what another executor has prepared, where all parameters that this was made of are the same arrays. */
static int share_prepared(TilewrightGraph* g, TilewrightGraph* other) {
  bool same = !other->stale && g->num_nodes == other->num_nodes && g->num_entries == other->num_entries;
  for (int i = 0; same && i < g->num_entries; ++i) {
    const GraphEntry *mine = &g->entries[i], *theirs = &other->entries[i];
    same = mine->feeds_once == theirs->feeds_once && (!mine->feeds_once || mine->array == theirs->array);
  }
  same = same && g->num_prepared == other->num_prepared;
  for (int i = 0; same && i < g->num_prepared; ++i) {
    const int entry = g->prepared[i];
    same = entry == other->prepared[i] && tw_same_memory(g->entries[entry].device, other->entries[entry].device);
  }
  if (!same) return 0;
  for (int i = 0; i < g->num_prepared; ++i) {
    GraphEntry* theirs = &other->entries[g->prepared[i]];
    theirs->borrowed = true;
    if (graph_replace_array(g, g->prepared[i], theirs->array, true) != 0) return -1;
  }
  g->stale = g->exposed;
  return 0;
}

static int share_params(TilewrightGraph* g, TilewrightGraph* other, const TwParams* p) {
  for (size_t i = 0; i < p->count; ++i) {
    int mine = TilewrightGraphInputIndex(g, p->names[i]), theirs = TilewrightGraphInputIndex(other, p->names[i]);
    if (mine < 0 || theirs < 0) continue;
    GraphEntry* source = input_at(other, theirs);
    source->borrowed = true;
    if (graph_bind_param(g, mine, source->array, true) != 0) return -1;
    input_at(g, mine)->given = source->given;
  }
  return share_prepared(g, other);
}

int TilewrightGraphShareParams(TilewrightGraph* g, TilewrightGraph* other, const char* params, size_t size) {
  if (g == other) return 0;
  TilewrightStream s = {.data = params, .left = size};
  TwParams p;
  if (tw_read_params(&s, &p) != 0) return -1;
  int rc = graph_begin(g, false);
  if (rc == 0) {
    rc = graph_begin(other, false);
    if (rc == 0) {
      rc = share_params(g, other, &p);
      graph_end(other);
    }
    graph_end(g);
  }
  tw_free_params(&p);
  return rc;
}

void TilewrightGraphMemory(const TilewrightGraph* g, uint64_t* pooled_bytes, uint64_t* input_bytes) {
  *pooled_bytes = *input_bytes = 0;
  for (int i = 0; i < g->num_storage; ++i) {
    if (g->storage[i] != NULL) *pooled_bytes += (uint64_t)g->storage[i]->tensor.shape[0];
  }
  for (int i = 0; i < g->num_inputs; ++i) {
    const GraphEntry* e = input_at(g, i);
    if (e->array->parent == NULL) *input_bytes += e->nbytes;
  }
  for (int i = 0; i < g->num_prepared; ++i) *input_bytes += g->entries[g->prepared[i]].nbytes;
}
