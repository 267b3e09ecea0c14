/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The graph executor's inputs, outputs and parameters, and TilewrightGraphInfer, which does all of a run at once. */
#include "graph.h"

static int check_given(const TilewrightGraph* g) {
  TwNames names;
  graph_unset_inputs(g, &names);
  return names.used == 0 ? 0 : tw_fail("nobody has set the inputs: %s", names.text);
}

int TilewrightGraphCheckInputs(TilewrightGraph* g) {
  if (graph_begin(g, false) != 0) return -1;
  int rc = check_given(g);
  g->warned = true;
  graph_end(g);
  return rc;
}

/* ---- inputs ---- */
static int check_tensor(const TilewrightGraph* g, int entry, const DLTensor* value, const char* what, const char* name) {
  const GraphEntry* e = &g->entries[entry];
  const DLTensor expected = graph_description(g, entry);
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
  GraphEntry* e = graph_input(g, index);
  const bool here = tw_same_memory(array->tensor.device, e->device);
  TwArray* placed = here ? tw_array_retain(array) : graph_copy_to(array, e->device);
  int rc = placed == NULL ? -1 : replace_input(g, g->row_pointers[g->inputs[index]], placed, borrowed && here);
  tw_array_release(placed);
  if (rc == 0) e->parameter = true;
  if (rc == 0) e->lent = borrowed && here;
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
  if (graph_input_entry(g, index, &entry) != 0 || graph_begin(g, false) != 0) return -1;
  int rc = set_input(g, entry, value);
  graph_end(g);
  return rc;
}

int TilewrightGraphSetInput(TilewrightGraph* g, const char* name, const DLTensor* value) {
  int index;
  return graph_find_input(g, name, &index) != 0 ? -1 : TilewrightGraphSetInputAt(g, index, value);
}

static int check_place(const TilewrightGraph* g, int index, const TwArray* array) {
  const GraphEntry* e = graph_input(g, index);
  char here[TW_DEVICE_TEXT], there[TW_DEVICE_TEXT];
  if (tw_same_memory(array->tensor.device, e->device)) return 0;
  return tw_fail("input \"%s\" lives on %s, and the array on %s; copy it with set_input", TilewrightGraphInputName(g, index),
                 tw_device_text(e->device, here), tw_device_text(array->tensor.device, there));
}

int graph_set_zero_copy(TilewrightGraph* g, int index, TwArray* array) {
  int entry;
  if (graph_input_entry(g, index, &entry) != 0 || graph_begin(g, false) != 0) return -1;
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
  if (graph_input_entry(g, index, &entry) != 0 || graph_begin(g, false) != 0) return -1;
  const GraphEntry* e = &g->entries[entry];
  if (!e->lent) expose_input(g, entry);
  TwArray* array = e->lent ? tw_array_read_only(e->array) : tw_array_retain(e->array);
  if (array != NULL) *out = &array->tensor;
  graph_end(g);
  return array == NULL ? -1 : 0;
}

/* ---- outputs ---- */
/* Whether an output is the model's own: a parameter, or what is made of parameters once, under whatever shape. */
static bool is_of_model(const TilewrightGraph* g, int entry) {
  const int root = g->entries[entry].root;
  for (int i = 0; i < g->num_prepared; ++i) {
    if (g->prepared[i] == root) return true;
  }
  return g->entries[root].parameter;
}

int TilewrightGraphGetOutput(TilewrightGraph* g, int index, TVMArrayHandle* out) {
  int entry;
  if (graph_output_entry(g, index, &entry) != 0 || graph_begin(g, false) != 0) return -1;
  const GraphEntry* e = &g->entries[entry];
  TwArray* array = is_of_model(g, entry) ? graph_copy_to(e->array, e->device) : tw_array_retain(e->array);
  if (array != NULL) *out = &array->tensor;
  graph_end(g);
  return array == NULL ? -1 : 0;
}

int TilewrightGraphCopyOutput(TilewrightGraph* g, int index, DLTensor* out) {
  int entry;
  if (graph_output_entry(g, index, &entry) != 0 || graph_begin(g, false) != 0) return -1;
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
  if (tw_array_is_read_only(array)) return tw_fail("an output cannot be written to an array that is read-only");
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
  if (graph_output_entry(g, index, &entry) != 0 || tw_device_api(array->tensor.device) == NULL || graph_begin(g, false) != 0) return -1;
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

/* ---- a whole run ---- */
static int infer_input(TilewrightGraph* g, const char* name, const DLTensor* value) {
  int index;
  if (graph_find_input(g, name, &index) != 0) return -1;
  if (graph_input(g, index)->parameter) {
    return tw_fail("\"%s\" is a parameter, which infer does not take; set_input changes it for all runs to come", name);
  }
  return set_input(g, g->row_pointers[g->inputs[index]], value);
}

/* The values were those of one call: the next must bring its own. */
static void forget_inputs(TilewrightGraph* g, int count, const char* const* names) {
  for (int i = 0; i < count; ++i) {
    const int index = TilewrightGraphInputIndex(g, names[i]);
    if (index >= 0 && !graph_input(g, index)->parameter) graph_input(g, index)->given = false;
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
    GraphEntry* source = graph_input(other, theirs);
    source->borrowed = source->lent = true;
    if (graph_bind_param(g, mine, source->array, true) != 0) return -1;
    graph_input(g, mine)->given = source->given;
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
