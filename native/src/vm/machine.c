/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * "VirtualMachine": a machine as a module, with TVM 0.8's functions: init, set_input, invoke, ... */
#include "vm.h"

enum { DEFAULT_REGISTERS = 1 << 24 }; /* 256 MiB of slots */

static void free_inputs(Vm* vm, size_t function) {
  TwSlot* slots = vm->inputs[function];
  for (size_t i = 0; slots != NULL && i < vm->program->functions[function].num_params; ++i) tw_slot_clear(&slots[i]);
  free(slots);
  vm->inputs[function] = NULL;
}

static void drop_devices(Vm* vm) {
  for (size_t i = 0; vm->constants != NULL && i < vm->program->num_constants; ++i) tw_array_release(vm->constants[i]);
  for (size_t i = 0; i < vm->num_devices; ++i) tw_pool_release(vm->pools[i]);
  free(vm->constants);
  free(vm->devices);
  free(vm->pools);
  vm->constants = NULL;
  vm->devices = NULL;
  vm->pools = NULL;
  vm->num_devices = 0;
}

static void free_machine(Vm* vm) {
  const VmProgram* p = vm->program;
  tw_slot_clear(&vm->result);
  for (size_t i = 0; vm->inputs != NULL && i < p->num_functions; ++i) free_inputs(vm, i);
  for (size_t i = 0; vm->packed != NULL && i < p->num_packed; ++i) tw_func_release(vm->packed[i]);
  tw_findings_free(&vm->findings);
  drop_devices(vm);
  free(vm->inputs);
  free(vm->packed);
  free(vm->registers);
  free(vm->frames);
  free(vm->values);
  free(vm->codes);
  free(vm->made);
  free(vm->timings);
  tw_module_release(vm->executable);
  free(vm);
}

static void machine_destroy(TwModule* self) { free_machine(self->data); }

/* ---- values that come and go ---- */
static bool is_usable(const TwArray* a, DLDevice device) {
  const DLTensor* t = &a->tensor;
  if (!tw_is_compact(t) || t->device.device_type != device.device_type || t->device.device_id != device.device_id) return false;
  return device.device_type != kDLCPU || ((uintptr_t)t->data + t->byte_offset) % TW_ALIGNMENT == 0;
}

/* Whether an array is a view of memory with room, which is on the host. */
static bool has_room(const TwArray* a) { return a->parent != NULL && a->parent->room != NULL; }

static int copy_in(const DLTensor* t, DLDevice device, TwSlot* out) {
  TwArray* copy = tw_array_new(t->shape, t->ndim, t->dtype, device);
  if (copy == NULL || tw_copy(t, &copy->tensor) != 0) {
    tw_array_release(copy);
    return -1;
  }
  *out = (TwSlot){.kind = TW_TENSOR, .array = copy};
  return 0;
}

static int take_value(TVMValue value, int code, DLDevice device, TwSlot* out) {
  switch (code) {
    case kTVMNDArrayHandle:
      if (!is_usable(value.v_handle, device)) return copy_in(value.v_handle, device, out);
      *out = (TwSlot){.kind = TW_TENSOR, .array = tw_array_retain(value.v_handle)};
      return 0;
    case kTVMDLTensorHandle: return copy_in(value.v_handle, device, out);
    case kTVMObjectHandle: *out = (TwSlot){.kind = TW_OBJECT, .object = tw_object_retain(value.v_handle)}; return 0;
    default: return tw_fail("expected a tensor, a tuple or a value of a data type");
  }
}

static int give_slot(const TwSlot* slot, TVMRetValueHandle ret) {
  static const int64_t one = 1;
  static const DLDataType int64 = {kDLInt, 64, 1};
  if (slot->kind == TW_TENSOR && tw_array_is_read_only(slot->array)) {
    TwSlot copy;
    if (copy_in(&slot->array->tensor, slot->array->tensor.device, &copy) != 0) return -1;
    tw_return_handle(ret, copy.array, kTVMNDArrayHandle);
    return 0;
  }
  if (slot->kind == TW_TENSOR) tw_return_handle(ret, tw_array_retain(slot->array), kTVMNDArrayHandle);
  if (slot->kind == TW_OBJECT) tw_return_handle(ret, tw_object_retain(slot->object), kTVMObjectHandle);
  if (slot->kind == TW_INTEGER) {
    TwArray* number = tw_array_new(&one, 1, int64, (DLDevice){kDLCPU, 0});
    if (number == NULL) return -1;
    *(int64_t*)number->tensor.data = slot->integer;
    tw_return_handle(ret, number, kTVMNDArrayHandle);
  }
  return 0;
}

/* ---- the machine's functions ---- */
static int begin(Vm* vm) {
  if (!atomic_flag_test_and_set(&vm->busy)) {
    vm->forks = tw_forks();
    return 0;
  }
  if (vm->forks != tw_forks()) {
    return tw_fail("this process was forked while another thread ran this virtual machine; make one in this process");
  }
  return tw_fail("another thread is using this virtual machine; make one for each thread");
}

static int end(Vm* vm, int rc) {
  atomic_flag_clear(&vm->busy);
  return rc;
}

static int find(Vm* vm, TVMValue* args, int* codes, int n, const char* who, int* out) {
  const char* name;
  if (tw_arg_str(args, codes, n, 0, who, &name) != 0) return -1;
  *out = vm_find_function(vm->program, name);
  return *out < 0 ? -1 : 0;
}

static int place_constants(Vm* vm) {
  const VmProgram* p = vm->program;
  vm->constants = calloc(p->num_constants + 1, sizeof *vm->constants);
  if (vm->constants == NULL) return tw_out_of_memory(p->num_constants * sizeof *vm->constants);
  for (size_t i = 0; i < p->num_constants; ++i) {
    const DLDevice* device = vm_device(vm, p->constant_devices[i], NULL);
    TwSlot slot;
    if (device == NULL) return -1;
    if (take_value((TVMValue){.v_handle = p->constants[i]}, kTVMNDArrayHandle, *device, &slot) != 0) return -1;
    vm->constants[i] = slot.array;
    if (slot.array != p->constants[i]) slot.array->read_only = true;
  }
  return 0;
}

/* init(device type, device id, allocator, ...): 1 frees memory at once, 2 keeps it in a pool. */
static int init(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  enum { NAIVE = 1 };
  Vm* vm = ((TwModule*)resource)->data;
  (void)ret;
  if (n == 0 || n % 3 != 0) return tw_fail("init: expected a type, an index and an allocator for each device");
  drop_devices(vm);
  vm->devices = calloc((size_t)n / 3, sizeof *vm->devices);
  vm->pools = calloc((size_t)n / 3, sizeof *vm->pools);
  if (vm->devices == NULL || vm->pools == NULL) return tw_out_of_memory((size_t)n * sizeof *vm->pools);
  for (int i = 0; i < n; i += 3) {
    int64_t type, index, allocator;
    if (tw_arg_int(args, codes, n, i, "init", &type) != 0 || tw_arg_int(args, codes, n, i + 1, "init", &index) != 0 ||
        tw_arg_int(args, codes, n, i + 2, "init", &allocator) != 0) {
      return -1;
    }
    const DLDevice device = {(DLDeviceType)type, (int)index};
    if (tw_device_check(device) != 0) return -1;
    TwPool* pool = tw_pool_new(device);
    if (pool == NULL) return -1;
    if (allocator == NAIVE) tw_pool_set_bound(pool, 0);
    vm->devices[vm->num_devices] = device;
    vm->pools[vm->num_devices++] = pool;
  }
  return place_constants(vm);
}

/* Fails with the parameter's name before the message. */
static int bad_value(const VmFunction* f, size_t param) {
  char* text = tw_strdup(TVMGetLastError());
  tw_fail("the value of the parameter \"%s\" of \"%s\": %s", f->params[param], f->name, text == NULL ? "" : text);
  free(text);
  return -1;
}

static int take_param(Vm* vm, const VmFunction* f, size_t param, TVMValue value, int code, TwSlot* out) {
  if (f->takes_room[param] && code == kTVMNDArrayHandle && has_room(value.v_handle)) {
    *out = (TwSlot){.kind = TW_TENSOR, .array = tw_array_retain(value.v_handle)};
    return 0;
  }
  const DLDevice* device = vm_device(vm, f->param_devices[param], NULL);
  return device != NULL && take_value(value, code, *device, out) == 0 ? 0 : bad_value(f, param);
}

static int set_inputs(Vm* vm, int function, TVMValue* args, int* codes, int n, int at) {
  const VmFunction* f = &vm->program->functions[function];
  if ((size_t)(n - at) != f->num_params) {
    return tw_fail("%d values for the %zu parameters of \"%s\"", n - at, f->num_params, f->name);
  }
  free_inputs(vm, (size_t)function);
  TwSlot* slots = vm->inputs[function] = calloc(f->num_params + 1, sizeof(TwSlot));
  if (slots == NULL) return tw_out_of_memory(f->num_params * sizeof(TwSlot));
  for (size_t i = 0; i < f->num_params; ++i) {
    if (take_param(vm, f, i, args[at + (int)i], codes[at + (int)i], &slots[i]) == 0) continue;
    free_inputs(vm, (size_t)function);
    return -1;
  }
  return 0;
}

/* Replaces one input; all of them have values. */
static int replace_input(Vm* vm, int function, int64_t param, TVMValue value, int code) {
  const VmFunction* f = &vm->program->functions[function];
  TwSlot taken, *slots = vm->inputs[function];
  if (slots == NULL) return tw_fail("the parameters of \"%s\" have no values; call set_input first", f->name);
  if (param < 0 || (uint64_t)param >= f->num_params) return tw_fail("\"%s\" has no parameter %lld", f->name, (long long)param);
  if (take_param(vm, f, (size_t)param, value, code, &taken) != 0) return -1;
  tw_slot_clear(&slots[param]);
  slots[param] = taken;
  return 0;
}

/* set_input(function, value, ...) */
static int set_input(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  Vm* vm = ((TwModule*)resource)->data;
  int function;
  (void)ret;
  if (find(vm, args, codes, n, "set_input", &function) != 0 || begin(vm) != 0) return -1;
  return end(vm, set_inputs(vm, function, args, codes, n, 1));
}

/* Fails where the last run took the value of a parameter. */
static int check_carried(const Vm* vm, int function) {
  const VmFunction* f = &vm->program->functions[function];
  for (size_t i = 0; i < f->num_params; ++i) {
    if (!f->written[i] || vm->inputs[function][i].kind != TW_NOTHING) continue;
    return tw_fail("the last run wrote to the value of the parameter \"%s\" of \"%s\" in place: carry its output, or set the inputs, before each run",
                   f->params[i], f->name);
  }
  return 0;
}

static int run(Vm* vm, int function) {
  const VmFunction* f = &vm->program->functions[function];
  if (vm->num_devices == 0) return tw_fail("the virtual machine has no devices; call init first");
  if (f->num_params != 0 && vm->inputs[function] == NULL) {
    return tw_fail("the parameters of \"%s\" have no values; call set_input first", f->name);
  }
  if (check_carried(vm, function) != 0) return -1;
  return vm_run(vm, function);
}

/* invoke(function) -> what it gives */
static int invoke(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  Vm* vm = ((TwModule*)resource)->data;
  int function;
  if (find(vm, args, codes, n, "invoke", &function) != 0 || begin(vm) != 0) return -1;
  int rc = run(vm, function);
  return end(vm, rc == 0 ? give_slot(&vm->result, ret) : rc);
}

/* invoke_stateful(function): get_output gives what it gave */
static int invoke_stateful(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  Vm* vm = ((TwModule*)resource)->data;
  int function;
  (void)ret;
  if (find(vm, args, codes, n, "invoke_stateful", &function) != 0 || begin(vm) != 0) return -1;
  return end(vm, run(vm, function));
}

static int copy_result(const TwSlot* slot, DLDevice device, TwSlot* out) {
  if (slot->kind == TW_TENSOR) {
    return take_value((TVMValue){.v_handle = slot->array}, kTVMNDArrayHandle, device, out);
  }
  if (slot->kind != TW_OBJECT || slot->object->closure) return tw_fail("what the function gives is no tensor, and no tuple of tensors");
  TwObject* copy = tw_object_new(false, slot->object->tag, slot->object->size);
  if (copy == NULL) return -1;
  *out = (TwSlot){.kind = TW_OBJECT, .object = copy};
  for (size_t i = 0; i < copy->size; ++i) {
    const TwSlot* field = &slot->object->fields[i];
    if (field->kind != TW_TENSOR) {
      copy->fields[i] = tw_slot_copy(field);
    } else if (copy_result(field, device, &copy->fields[i]) != 0) {
      tw_slot_clear(out);
      return -1;
    }
  }
  return 0;
}

/* invoke_return_to_device(function, device type, device id, value, ...) */
static int invoke_return_to_device(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  static const char who[] = "invoke_return_to_device";
  Vm* vm = ((TwModule*)resource)->data;
  int function;
  int64_t type, index;
  if (find(vm, args, codes, n, who, &function) != 0 || tw_arg_int(args, codes, n, 1, who, &type) != 0 ||
      tw_arg_int(args, codes, n, 2, who, &index) != 0 || begin(vm) != 0) {
    return -1;
  }
  int rc = set_inputs(vm, function, args, codes, n, 3);
  TwSlot copy = {.kind = TW_NOTHING};
  if (rc == 0) rc = run(vm, function);
  if (rc == 0) rc = copy_result(&vm->result, (DLDevice){(DLDeviceType)type, (int)index}, &copy);
  if (rc == 0) rc = give_slot(&copy, ret);
  tw_slot_clear(&copy);
  return end(vm, rc);
}

static const TwSlot* output(const Vm* vm, int64_t index) {
  const TwSlot* slot = &vm->result;
  if (slot->kind != TW_OBJECT || slot->object->closure) return index == 0 ? slot : NULL;
  return index >= 0 && (uint64_t)index < slot->object->size ? &slot->object->fields[index] : NULL;
}

static int carry_over(Vm* vm, int function, const DLTensor* pairs) {
  const int64_t* pair = (const int64_t*)((const char*)pairs->data + pairs->byte_offset);
  for (int64_t i = 0; i < pairs->shape[0]; ++i, pair += 2) {
    const TwSlot* slot = output(vm, pair[1]);
    if (slot == NULL || slot->kind != TW_TENSOR) return tw_fail("carry: the last run gave no tensor %lld", (long long)pair[1]);
    if (replace_input(vm, function, pair[0], (TVMValue){.v_handle = slot->array}, kTVMNDArrayHandle) != 0) return -1;
    vm->inputs[function][pair[0]].carried = true;
  }
  return 0;
}

static int set_numbered(Vm* vm, int function, TVMValue* args, int* codes, int n, int at) {
  for (int i = at; i < n; i += 2) {
    int64_t param;
    if (tw_arg_int(args, codes, n, i, "carry", &param) != 0) return -1;
    if (replace_input(vm, function, param, args[i + 1], codes[i + 1]) != 0) return -1;
  }
  return 0;
}

/* carry(function, pairs, number, value, ...): inputs become outputs of the last run, without a copy where they grow in place;
 * then parameters become the values that follow their numbers, and the others stay. Pairs are int64[n, 2], the number of a
 * parameter and that of an output. */
static int carry(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  enum { FIRST_NUMBER = 2 };
  Vm* vm = ((TwModule*)resource)->data;
  int function;
  (void)ret;
  const bool given = n >= FIRST_NUMBER && n % 2 == 0 && (codes[1] == kTVMNDArrayHandle || codes[1] == kTVMDLTensorHandle);
  const DLTensor* pairs = given ? args[1].v_handle : NULL;
  if (pairs == NULL || pairs->ndim != 2 || pairs->shape[1] != 2 || pairs->dtype.code != kDLInt || pairs->dtype.bits != 64 ||
      pairs->dtype.lanes != 1 || !tw_is_host(pairs->device) || !tw_is_compact(pairs)) {
    return tw_fail("carry: expected a function, int64[n, 2] on the host: numbers of parameters and of outputs, and then numbers of "
                   "parameters, a value behind each");
  }
  if (find(vm, args, codes, n, "carry", &function) != 0 || begin(vm) != 0) return -1;
  int rc = carry_over(vm, function, pairs);
  return end(vm, rc == 0 ? set_numbered(vm, function, args, codes, n, FIRST_NUMBER) : rc);
}

/* get_output(index) */
static int get_output(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  Vm* vm = ((TwModule*)resource)->data;
  int64_t index;
  if (tw_arg_int(args, codes, n, 0, "get_output", &index) != 0) return -1;
  const TwSlot* slot = output(vm, index);
  return slot == NULL ? tw_fail("there is no output %lld", (long long)index) : give_slot(slot, ret);
}

static int get_num_outputs(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  const Vm* vm = ((TwModule*)resource)->data;
  (void)args, (void)codes, (void)n;
  tw_return_int(ret, vm->result.kind == TW_OBJECT ? (int64_t)vm->result.object->size : vm->result.kind == TW_NOTHING ? 0 : 1);
  return 0;
}

/* get_input_index(parameter, function), -1 when there is none */
static int get_input_index(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  static const char who[] = "get_input_index";
  const Vm* vm = ((TwModule*)resource)->data;
  const char *input, *function;
  if (tw_arg_str(args, codes, n, 0, who, &input) != 0 || tw_arg_str(args, codes, n, 1, who, &function) != 0) return -1;
  int index = vm_find_function(vm->program, function);
  if (index < 0) return -1;
  const VmFunction* f = &vm->program->functions[index];
  int64_t found = -1;
  for (size_t i = 0; i < f->num_params && found < 0; ++i) {
    if (strcmp(f->params[i], input) == 0) found = (int64_t)i;
  }
  tw_return_int(ret, found);
  return 0;
}

/* set_limits(registers in use, calls of one invocation or 0, bytes that a pool keeps); -1 leaves one as it is */
static int set_limits(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  static const char who[] = "set_limits";
  Vm* vm = ((TwModule*)resource)->data;
  int64_t registers, calls, idle;
  (void)ret;
  if (tw_arg_int(args, codes, n, 0, who, &registers) != 0 || tw_arg_int(args, codes, n, 1, who, &calls) != 0 ||
      tw_arg_int(args, codes, n, 2, who, &idle) != 0 || begin(vm) != 0) {
    return -1;
  }
  if (registers >= 0) vm->most_registers = (size_t)registers;
  if (calls >= 0) vm->most_calls = calls;
  for (size_t i = 0; idle >= 0 && i < vm->num_devices; ++i) tw_pool_set_bound(vm->pools[i], (size_t)idle);
  return end(vm, 0);
}

/* memory_usage() -> "idle used", of the pools of all devices, in bytes */
static int memory_usage(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  const Vm* vm = ((TwModule*)resource)->data;
  size_t idle = 0, used = 0;
  char text[64];
  (void)args, (void)codes, (void)n;
  for (size_t i = 0; i < vm->num_devices; ++i) {
    size_t more_idle, more_used;
    tw_pool_usage(vm->pools[i], &more_idle, &more_used);
    idle += more_idle;
    used += more_used;
  }
  snprintf(text, sizeof text, "%zu %zu", idle, used);
  return tw_return_string(ret, text);
}

static int profile_text(const Vm* vm, double whole, TVMRetValueHandle ret) {
  const VmProgram* p = vm->program;
  size_t room = 64, used = 0;
  for (size_t i = 0; i < p->num_packed; ++i) room += strlen(p->packed[i]) + 64;
  char* text = malloc(room);
  if (text == NULL) return tw_out_of_memory(room);
  used += (size_t)snprintf(text, room, "%.9f", whole);
  for (size_t i = 0; i < p->num_packed; ++i) {
    const VmTiming* t = &vm->timings[i];
    if (t->calls == 0) continue;
    used += (size_t)snprintf(text + used, room - used, "\n%s %lld %.9f", p->packed[i], (long long)t->calls, t->seconds);
  }
  int rc = tw_return_string(ret, text);
  free(text);
  return rc;
}

/* profile(function) -> the seconds of a run, then a line for each packed function: its name, calls and seconds */
static int profile(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  Vm* vm = ((TwModule*)resource)->data;
  int function;
  if (find(vm, args, codes, n, "profile", &function) != 0 || begin(vm) != 0) return -1;
  vm->timings = calloc(vm->program->num_packed + 1, sizeof *vm->timings);
  if (vm->timings == NULL) return end(vm, tw_out_of_memory(sizeof *vm->timings));
  const double start = tw_now();
  int rc = run(vm, function);
  if (rc == 0) rc = profile_text(vm, tw_now() - start, ret);
  free(vm->timings);
  vm->timings = NULL;
  return end(vm, rc);
}

static int machine_function(TwModule* self, const char* name, TwFunc** out) {
  static const struct {
    const char* name;
    TVMPackedCFunc callback;
  } methods[] = {{"init", init}, {"set_input", set_input}, {"carry", carry}, {"invoke", invoke},
                 {"invoke_stateful", invoke_stateful},
                 {"invoke_return_to_device", invoke_return_to_device}, {"get_output", get_output},
                 {"get_num_outputs", get_num_outputs}, {"get_input_index", get_input_index},
                 {"set_limits", set_limits}, {"memory_usage", memory_usage}, {"profile", profile}};
  for (size_t i = 0; i < sizeof methods / sizeof methods[0]; ++i) {
    if (strcmp(methods[i].name, name) != 0) continue;
    *out = tw_func_method(methods[i].callback, self);
    return *out == NULL ? -1 : 0;
  }
  return 0;
}

static const TwModuleClass machine_class = {.get_function = machine_function, .destroy = machine_destroy};

/* What the machine does itself. */
static bool is_instruction(const char* packed) {
  static const char* const names[] = {"tilewright.vm.ref_write", "tilewright.vm.append", "tilewright.vm.write_rows", "tilewright.vm.takes_room"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
    if (strcmp(packed, names[i]) == 0) return true;
  }
  return false;
}

static int find_packed(Vm* vm) {
  const VmProgram* p = vm->program;
  TwModule* lib = vm->executable->num_imports == 0 ? NULL : vm->executable->imports[0];
  for (size_t i = 0; i < p->num_packed; ++i) {
    if (is_instruction(p->packed[i])) continue;
    if (strncmp(p->packed[i], "tilewright.vm.", 14) == 0) {
      vm->packed[i] = tw_find_global(p->packed[i]);
    } else if (lib != NULL && tw_module_find(lib, p->packed[i], true, &vm->packed[i]) != 0) {
      return -1;
    }
    if (vm->packed[i] == NULL) {
      return tw_fail("the library lacks the function %s, which the bytecode calls; was it built from another program?", p->packed[i]);
    }
  }
  return 0;
}

int vm_new_machine(TwModule* executable, const VmProgram* program, TwModule** out) {
  Vm* vm = calloc(1, sizeof *vm);
  if (vm == NULL) return tw_out_of_memory(sizeof *vm);
  vm->executable = tw_module_retain(executable);
  vm->program = program;
  vm->most_registers = DEFAULT_REGISTERS;
  atomic_flag_clear(&vm->busy);
  vm->packed = calloc(program->num_packed + 1, sizeof *vm->packed);
  vm->inputs = calloc(program->num_functions + 1, sizeof *vm->inputs);
  int rc = vm->packed == NULL || vm->inputs == NULL ? tw_out_of_memory(sizeof *vm->packed) : find_packed(vm);
  *out = rc == 0 ? tw_module_new(&machine_class, "VirtualMachine", vm) : NULL;
  if (*out != NULL) return 0;
  free_machine(vm);
  return -1;
}

/* ---- objects of Python and others ---- */
/* runtime.ADT(tag, field, ...) */
static int make_data(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  int64_t tag;
  (void)resource;
  if (tw_arg_int(args, codes, n, 0, "runtime.ADT", &tag) != 0) return -1;
  TwObject* object = tw_object_new(false, tag, (size_t)n - 1);
  if (object == NULL) return -1;
  for (int i = 1; i < n; ++i) {
    if (take_value(args[i], codes[i], (DLDevice){kDLCPU, 0}, &object->fields[i - 1]) != 0) {
      tw_object_release(object);
      return -1;
    }
  }
  tw_return_handle(ret, object, kTVMObjectHandle);
  return 0;
}

static int object_argument(const TVMValue* args, const int* codes, int n, const char* who, TwObject** out) {
  if (n == 0 || codes[0] != kTVMObjectHandle) return tw_fail("%s: its argument must be an object", who);
  *out = args[0].v_handle;
  return 0;
}

static int object_tag(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  TwObject* object;
  (void)resource;
  if (object_argument(args, codes, n, "runtime.GetADTTag", &object) != 0) return -1;
  if (object->closure) return tw_fail("a closure has no tag");
  tw_return_int(ret, object->tag);
  return 0;
}

static int object_size(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  TwObject* object;
  (void)resource;
  if (object_argument(args, codes, n, "runtime.GetADTSize", &object) != 0) return -1;
  tw_return_int(ret, object->closure ? 0 : (int64_t)object->size);
  return 0;
}

static int object_field(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  TwObject* object;
  int64_t index;
  (void)resource;
  if (object_argument(args, codes, n, "runtime.GetADTFields", &object) != 0) return -1;
  if (tw_arg_int(args, codes, n, 1, "runtime.GetADTFields", &index) != 0) return -1;
  if (object->closure || index < 0 || (uint64_t)index >= object->size) return tw_fail("there is no field %lld", (long long)index);
  return give_slot(&object->fields[index], ret);
}

TW_GLOBAL_FUNCTIONS({"runtime.ADT", make_data}, {"runtime.GetADTTag", object_tag}, {"runtime.GetADTSize", object_size},
                    {"runtime.GetADTFields", object_field})
