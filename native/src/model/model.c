/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Models of either executor: libraries hold a graph ("default"), or a program of the virtual machine ("vm_load_executable"). */
#include "model.h"

#include "../executor/graph.h"
#include "../vm/vm.h"

struct TilewrightModel {
  TwModule* lib;
  DLDevice device;
  ModelInterface interface;
  TilewrightGraph* graph; /* or NULL, and then there are these: */
  int* graph_inputs;      /* the graph's index of each input: parameters are inputs of a graph too */
  TwModule* machine;
  struct ModelValue {
    TwArray* array;
    bool shared; /* with the caller */
  }* values; /* of the inputs */
};

/* ---- the virtual machine ---- */
static int call(TwModule* m, const char* name, TVMValue* args, int* codes, int n, TwReturn* ret) {
  TwFunc* f = NULL;
  if (tw_module_find(m, name, true, &f) != 0) return -1;
  if (f == NULL) return tw_fail("the module has no function \"%s\"", name);
  int rc = TVMFuncCall(f, args, codes, n, &ret->value, &ret->code);
  tw_func_release(f);
  return rc;
}

/* The module below `m` that holds the program, or NULL. */
static const TwModule* find_program(const TwModule* m) {
  if (strcmp(m->type_key, "VMExecutable") == 0) return m;
  for (int i = 0; i < m->num_imports; ++i) {
    const TwModule* found = find_program(m->imports[i]);
    if (found != NULL) return found;
  }
  return NULL;
}

/* A runtime may be built without the machine; no library that loads there has a program for it. */
#pragma weak vm_find_function

/* Main's first instructions load its interface and check its inputs by it. */
static const TwArray* interface_text(const VmProgram* p) {
  const int main = vm_find_function == NULL ? -1 : vm_find_function(p, "main");
  const VmFunction* f = main < 0 ? NULL : &p->functions[main];
  if (f == NULL || f->size < 2 || f->code[0].op != VM_LOAD_CONST || f->code[1].op != VM_INVOKE_PACKED) return NULL;
  const bool checks = strcmp(p->packed[f->code[1].value], "tilewright.vm.check_inputs") == 0;
  return checks ? p->constants[f->code[0].value] : NULL;
}

static int read_interface(TilewrightModel* model) {
  const TwModule* program = find_program(model->lib);
  const TwArray* text = program == NULL ? NULL : interface_text(program->data);
  if (text == NULL) return tw_fail("the library holds a program of the virtual machine without a description of its inputs");
  const DLTensor* t = &text->tensor;
  if (t->ndim != 1 || t->dtype.bits != 8) return tw_fail("damaged interface: its text is no vector of bytes");
  return model_parse_interface((const char*)t->data + t->byte_offset, (size_t)t->shape[0], &model->interface);
}

static int open_program(TilewrightModel* model) {
  enum { POOLED = 2 };
  TwReturn made = {.code = kTVMNullptr}, none = {.code = kTVMNullptr};
  if (read_interface(model) != 0 || call(model->lib, "vm_load_executable", NULL, NULL, 0, &made) != 0) return -1;
  model->machine = made.value.v_handle;
  model->values = calloc((size_t)model->interface.num_inputs + 1, sizeof *model->values);
  if (model->values == NULL) return tw_out_of_memory(sizeof *model->values);
  TVMValue args[6] = {{.v_int64 = model->device.device_type}, {.v_int64 = model->device.device_id}, {.v_int64 = POOLED},
                      {.v_int64 = kDLCPU}, {.v_int64 = 0}, {.v_int64 = POOLED}};
  int codes[6] = {kTVMArgInt, kTVMArgInt, kTVMArgInt, kTVMArgInt, kTVMArgInt, kTVMArgInt};
  return call(model->machine, "init", args, codes, model->device.device_type == kDLCPU ? 3 : 6, &none);
}

static TwArray* copy_to(const DLTensor* t, DLDevice device) {
  TwArray* copy = tw_array_new(t->shape, t->ndim, t->dtype, device);
  if (copy != NULL && tw_copy(t, &copy->tensor) == 0) return copy;
  tw_array_release(copy);
  return NULL;
}

/* Takes `array` over. */
static void set_value(TilewrightModel* model, int index, TwArray* array, bool shared) {
  tw_array_release(model->values[index].array);
  model->values[index] = (struct ModelValue){array, shared};
}

static int check_values(const TilewrightModel* model) {
  TwNames names = {.used = 0};
  for (int i = 0; i < model->interface.num_inputs; ++i) {
    if (model->values[i].array == NULL) tw_add_name(&names, model->interface.inputs[i].name);
  }
  return names.used == 0 ? 0 : tw_fail("nobody has set the inputs: %s", names.text);
}

static int run_program(TilewrightModel* model) {
  const int n = model->interface.num_inputs;
  if (check_values(model) != 0) return -1;
  TVMValue* args = malloc(((size_t)n + 1) * sizeof *args);
  int* codes = malloc(((size_t)n + 1) * sizeof *codes);
  TwReturn none = {.code = kTVMNullptr};
  int rc = args == NULL || codes == NULL ? tw_out_of_memory(((size_t)n + 1) * sizeof *args) : 0;
  for (int i = 0; rc == 0 && i <= n; ++i) {
    args[i] = i == 0 ? (TVMValue){.v_str = "main"} : (TVMValue){.v_handle = model->values[i - 1].array};
    codes[i] = i == 0 ? kTVMStr : kTVMNDArrayHandle;
  }
  if (rc == 0) rc = call(model->machine, "set_input", args, codes, n + 1, &none);
  if (rc == 0) rc = call(model->machine, "invoke_stateful", args, codes, 1, &none);
  free(args);
  free(codes);
  return rc;
}

/* The tensor that is number *index among those of a result, one tuple's after the other; NULL and *index less their number. */
static const TwSlot* find_tensor(const TwSlot* slot, int* index) {
  if (slot->kind != TW_OBJECT) return (*index)-- == 0 ? slot : NULL;
  const TwSlot* found = NULL;
  for (size_t i = 0; found == NULL && i < slot->object->size; ++i) found = find_tensor(&slot->object->fields[i], index);
  return found;
}

/* Whether the memory is that of an input which the caller does not know. */
static bool is_input(const TilewrightModel* model, const TwArray* array) {
  for (int i = 0; i < model->interface.num_inputs; ++i) {
    const struct ModelValue* value = &model->values[i];
    if (value->array != NULL && !value->shared && value->array->tensor.data == array->tensor.data) return true;
  }
  return false;
}

static int program_output(const TilewrightModel* model, int index, TVMArrayHandle* out) {
  const TwSlot* slot = find_tensor(&((const Vm*)model->machine->data)->result, &index);
  if (slot == NULL || slot->kind == TW_NOTHING) return tw_fail("the model has not run");
  if (slot->kind != TW_TENSOR) return tw_fail("the output is no tensor");
  const bool copied = tw_array_is_read_only(slot->array) || is_input(model, slot->array);
  TwArray* array = copied ? copy_to(&slot->array->tensor, slot->array->tensor.device) : tw_array_retain(slot->array);
  if (array == NULL) return -1;
  *out = &array->tensor;
  return 0;
}

/* ---- graphs ---- */
static int open_graph(TilewrightModel* model) {
  if (TilewrightGraphFromModule(model->lib, "default", model->device, &model->graph) != 0) return -1;
  const TilewrightGraph* g = model->graph;
  ModelInterface* interface = &model->interface;
  DLTensor info;
  model->graph_inputs = malloc(((size_t)TilewrightGraphNumInputs(g) + 1) * sizeof(int));
  if (model->graph_inputs == NULL) return tw_out_of_memory(sizeof(int));
  for (int i = 0; i < TilewrightGraphNumInputs(g); ++i) {
    if (TilewrightGraphInputIsParameter(g, i)) continue;
    model->graph_inputs[interface->num_inputs] = i;
    if (TilewrightGraphInputInfo(g, i, &info) != 0) return -1;
    if (model_add_tensor(&interface->inputs, &interface->num_inputs, TilewrightGraphInputName(g, i), &info) != 0) return -1;
  }
  for (int i = 0; i < TilewrightGraphNumOutputs(g); ++i) {
    if (TilewrightGraphOutputInfo(g, i, &info) != 0) return -1;
    if (model_add_tensor(&interface->outputs, &interface->num_outputs, TilewrightGraphOutputName(g, i), &info) != 0) return -1;
  }
  return 0;
}

static int run_graph(TilewrightGraph* graph) {
  return TilewrightGraphCheckInputs(graph) != 0 ? -1 : TilewrightGraphRun(graph);
}

/* An output that is an input is a copy: callers may write to what they get. */
static int graph_output(const TilewrightModel* model, int index, TVMArrayHandle* out) {
  TilewrightGraph* g = model->graph;
  const int root = g->entries[g->outputs[index]].root;
  bool is_input = false;
  if (TilewrightGraphGetOutput(g, index, out) != 0) return -1;
  for (int i = 0; i < g->num_inputs; ++i) is_input = is_input || g->row_pointers[g->inputs[i]] == root;
  if (!is_input) return 0;
  TwArray* copy = copy_to(*out, (*out)->device);
  TVMArrayFree(*out);
  if (copy == NULL) return -1;
  *out = &copy->tensor;
  return 0;
}

/* ---- either ---- */
static int open_executor(TilewrightModel* model) {
  TwFunc* f = NULL;
  if (tw_module_find(model->lib, "vm_load_executable", true, &f) != 0) return -1;
  if (f != NULL) {
    tw_func_release(f);
    return open_program(model);
  }
  if (tw_module_find(model->lib, "default", true, &f) != 0) return -1;
  if (f == NULL) return tw_fail("the library has no network named 'default', as `tilewright compile` makes");
  tw_func_release(f);
  return open_graph(model);
}

int TilewrightModelFromModule(TVMModuleHandle lib, DLDevice device, TilewrightModel** out) {
  TilewrightModel* model = calloc(1, sizeof *model);
  if (model == NULL) return tw_out_of_memory(sizeof *model);
  model->lib = tw_module_retain(lib);
  model->device = device;
  if (open_executor(model) != 0) {
    TilewrightModelFree(model);
    return -1;
  }
  *out = model;
  return 0;
}

int TilewrightModelOpen(const char* path, DLDevice device, TilewrightModel** out) {
  TVMModuleHandle lib;
  if ((path == NULL ? TilewrightModLoadSelf(&lib) : TVMModLoadFromFile(path, "so", &lib)) != 0) return -1;
  int rc = TilewrightModelFromModule(lib, device, out);
  tw_module_release(lib);
  return rc;
}

int TilewrightModelOpenLinked(const TilewrightSymbol* symbols, DLDevice device, TilewrightModel** out) {
  TVMModuleHandle lib;
  if (TilewrightModFromSymbols(symbols, &lib) != 0) return -1;
  int rc = TilewrightModelFromModule(lib, device, out);
  tw_module_release(lib);
  return rc;
}

int TilewrightModelClone(const TilewrightModel* model, TilewrightModel** out) {
  return TilewrightModelFromModule(model->lib, model->device, out);
}

void TilewrightModelFree(TilewrightModel* model) {
  if (model == NULL) return;
  for (int i = 0; model->values != NULL && i < model->interface.num_inputs; ++i) tw_array_release(model->values[i].array);
  free(model->values);
  free(model->graph_inputs);
  TilewrightGraphFree(model->graph);
  tw_module_release(model->machine);
  model_free_interface(&model->interface);
  tw_module_release(model->lib);
  free(model);
}

int TilewrightModelNumInputs(const TilewrightModel* model) { return model->interface.num_inputs; }
int TilewrightModelNumOutputs(const TilewrightModel* model) { return model->interface.num_outputs; }
int TilewrightModelNumDimensions(const TilewrightModel* model) { return model->interface.num_dimensions; }

static int tensor_info(const ModelTensor* tensors, int count, int index, const char* what, TilewrightTensorInfo* out) {
  if (index < 0 || index >= count) return tw_fail("%s %d is out of range: the model has %d", what, index, count);
  const ModelTensor* t = &tensors[index];
  *out = (TilewrightTensorInfo){t->name, t->type, t->ndim, t->shape, (const char* const*)t->dimensions};
  return 0;
}

int TilewrightModelInputInfo(const TilewrightModel* model, int index, TilewrightTensorInfo* out) {
  return tensor_info(model->interface.inputs, model->interface.num_inputs, index, "input", out);
}

int TilewrightModelOutputInfo(const TilewrightModel* model, int index, TilewrightTensorInfo* out) {
  return tensor_info(model->interface.outputs, model->interface.num_outputs, index, "output", out);
}

int TilewrightModelDimensionInfo(const TilewrightModel* model, int index, TilewrightDimensionInfo* out) {
  const ModelInterface* interface = &model->interface;
  if (index < 0 || index >= interface->num_dimensions) {
    return tw_fail("dimension %d is out of range: the model has %d", index, interface->num_dimensions);
  }
  const ModelDimension* dim = &interface->dimensions[index];
  *out = (TilewrightDimensionInfo){dim->name, dim->min, dim->max, dim->multiple};
  return 0;
}

static int find_input(const TilewrightModel* model, const char* name, int* index) {
  const ModelInterface* interface = &model->interface;
  TwNames names = {.used = 0};
  for (*index = 0; *index < interface->num_inputs; ++*index) {
    const char* known = interface->inputs[*index].name;
    if (strcmp(known, name) == 0) return 0;
    tw_add_name(&names, known);
  }
  return tw_fail("the model has no input named \"%s\"; its inputs are: %s", name, names.text);
}

int TilewrightModelSetInput(TilewrightModel* model, const char* name, const DLTensor* value) {
  int index;
  if (name == NULL || value == NULL) return tw_fail("an input needs a name and a value");
  if (find_input(model, name, &index) != 0) return -1;
  if (model->graph != NULL) return TilewrightGraphSetInputAt(model->graph, model->graph_inputs[index], value);
  TwArray* copy = copy_to(value, (DLDevice){kDLCPU, 0});
  if (copy == NULL) return -1;
  set_value(model, index, copy, false);
  return 0;
}

int TilewrightModelShareInput(TilewrightModel* model, const char* name, TVMArrayHandle value) {
  int index;
  if (name == NULL || value == NULL) return tw_fail("an input needs a name and a value");
  if (find_input(model, name, &index) != 0) return -1;
  if (model->graph != NULL) return TilewrightGraphSetInputAt(model->graph, model->graph_inputs[index], value);
  set_value(model, index, tw_array_retain((TwArray*)value), true);
  return 0;
}

int TilewrightModelSetMaxSteps(TilewrightModel* model, int64_t steps) {
  TVMValue args[3] = {{.v_int64 = -1}, {.v_int64 = steps}, {.v_int64 = -1}};
  int codes[3] = {kTVMArgInt, kTVMArgInt, kTVMArgInt};
  TwReturn none = {.code = kTVMNullptr};
  if (steps < 0) return tw_fail("a limit of %lld steps", (long long)steps);
  return model->graph != NULL ? 0 : call(model->machine, "set_limits", args, codes, 3, &none);
}

int TilewrightModelRun(TilewrightModel* model) {
  return model->graph == NULL ? run_program(model) : run_graph(model->graph);
}

int TilewrightModelOutput(TilewrightModel* model, int index, TVMArrayHandle* out) {
  TilewrightTensorInfo info;
  if (TilewrightModelOutputInfo(model, index, &info) != 0) return -1;
  return model->graph == NULL ? program_output(model, index, out) : graph_output(model, index, out);
}

const char* TilewrightVersion(void) { return TILEWRIGHT_VERSION; }
