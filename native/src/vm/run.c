/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The machine's loop. Registers of all frames lie in one array that grows, a call copies slots, and what a tail call gives is
 * its caller's result, in the caller's place: loops, which Relay writes as recursion, need no more room the longer they run.
 * Tensors' memory comes from pools. Numbers (tags, constants of If) are kept in their slots. */
#include "vm.h"

#include <limits.h>

/* ---- values ---- */
static int wrong(const char* expected, const TwSlot* found) {
  static const char* const kinds[] = {"nothing", "a number", "a tensor", "a tuple, value of a data type or closure"};
  return tw_fail("expected %s, found %s", expected, kinds[found->kind]);
}

static int integer_of(const DLTensor* t, int64_t* out) {
  const void* data = (const char*)t->data + t->byte_offset;
  if (!tw_is_host(t->device)) return tw_fail("expected a number, found a tensor of another device");
  for (int i = 0; i < t->ndim; ++i) {
    if (t->shape[i] != 1) return tw_fail("expected a number, found a tensor of %lld elements in dimension %d", (long long)t->shape[i], i);
  }
  if (t->dtype.code > kDLUInt || t->dtype.lanes != 1) return tw_fail("expected an integer, found a tensor of another type");
  switch (t->dtype.bits) {
    case 1:
    case 8: *out = *(const int8_t*)data; return 0;
    case 16: *out = *(const int16_t*)data; return 0;
    case 32: *out = *(const int32_t*)data; return 0;
    case 64: *out = *(const int64_t*)data; return 0;
    default: return tw_fail("expected an integer, found one of %d bits", t->dtype.bits);
  }
}

static int load_integer(const TwSlot* slot, int64_t* out) {
  if (slot->kind == TW_TENSOR) return integer_of(&slot->array->tensor, out);
  if (slot->kind != TW_INTEGER) return wrong("a number", slot);
  *out = slot->integer;
  return 0;
}

static inline void put(TwSlot* to, TwSlot value) {
  tw_slot_clear(to);
  *to = value;
}

static void put_array(TwSlot* to, TwArray* array) { put(to, (TwSlot){.kind = TW_TENSOR, .array = array}); }

const DLDevice* vm_device(const Vm* vm, int64_t type, TwPool** pool) {
  for (size_t i = 0; i < vm->num_devices; ++i) {
    if ((int64_t)vm->devices[i].device_type != type) continue;
    if (pool != NULL) *pool = vm->pools[i];
    return &vm->devices[i];
  }
  char text[TW_DEVICE_TEXT];
  tw_fail("the virtual machine was made without the device %s", tw_device_text((DLDevice){(DLDeviceType)type, 0}, text));
  return NULL;
}

/* The dimensions that a tensor of integers holds; *count of them at *out, in room for MOST_DIMS. */
enum { MOST_DIMS = 64 };
static int read_shape(const TwSlot* slot, int64_t* out, int* count) {
  if (slot->kind != TW_TENSOR) return wrong("a shape", slot);
  const DLTensor* t = &slot->array->tensor;
  const char* data = (const char*)t->data + t->byte_offset;
  const bool wide = t->dtype.bits == 64;
  if (!tw_is_host(t->device) || t->ndim > 1 || t->dtype.code != kDLInt || (!wide && t->dtype.bits != 32)) {
    return tw_fail("expected a shape: a vector of int64 or int32 on the host");
  }
  if (t->ndim == 1 && t->shape[0] > MOST_DIMS) return tw_fail("a shape of %lld dimensions", (long long)t->shape[0]);
  *count = t->ndim == 0 ? 0 : (int)t->shape[0];
  for (int i = 0; i < *count; ++i) out[i] = wide ? ((const int64_t*)data)[i] : ((const int32_t*)data)[i];
  return 0;
}

/* ---- memory ---- */
static int alloc_storage(Vm* vm, const VmInstruction* i, TwSlot* r) {
  int64_t size;
  TwPool* pool;
  if (load_integer(&r[i->a], &size) != 0 || vm_device(vm, i->c, &pool) == NULL) return -1;
  if (size < 0) return tw_fail("storage of %lld bytes: the shape that the program asks for does not fit its tensors", (long long)size);
  TwArray* block = tw_pool_take(pool, (size_t)size, i->type);
  if (block == NULL) return -1;
  put_array(&r[i->dst], block);
  return 0;
}

static int alloc_tensor(Vm* vm, const VmInstruction* i, TwSlot* r, const int64_t* shape, int ndim) {
  int64_t offset;
  size_t nbytes;
  TwPool* pool;
  if (load_integer(&r[i->b], &offset) != 0) return -1;
  if (r[i->a].kind != TW_TENSOR) return wrong("storage", &r[i->a]);
  TwArray* storage = r[i->a].array;
  if (!tw_tensor_bytes(ndim, shape, i->type, &nbytes)) return tw_fail("a tensor's shape must not be negative, nor its size overflow");
  if (storage->tensor.ndim != 1 || tw_type_bytes(storage->tensor.dtype) != 1) return tw_fail("expected storage, found another tensor");
  if (offset < 0 || offset > storage->dims[0] || nbytes > (size_t)(storage->dims[0] - offset)) {
    return tw_fail("a tensor of %zu bytes at %lld in storage of %lld bytes", nbytes, (long long)offset, (long long)storage->dims[0]);
  }
  if (vm_device(vm, storage->tensor.device.device_type, &pool) == NULL) return -1;
  TwArray* view = tw_pool_view(pool, storage, (uint64_t)offset, shape, ndim, i->type);
  if (view == NULL) return -1;
  put_array(&r[i->dst], view);
  return 0;
}

static int alloc_tensor_reg(Vm* vm, const VmInstruction* i, TwSlot* r) {
  int64_t shape[MOST_DIMS];
  int ndim;
  if (read_shape(&r[i->c], shape, &ndim) != 0) return -1;
  const bool stored = r[i->a].kind == TW_TENSOR;
  if (stored && vm_check_count(r[i->a].array->tensor.device, ndim, shape) != 0) return -1;
  return alloc_tensor(vm, i, r, shape, ndim);
}

static int new_numbers(Vm* vm, const int64_t* values, int ndim, int64_t count, TwArray** out) {
  static const DLDataType int64 = {kDLInt, 64, 1};
  TwPool* pool;
  if (vm_device(vm, kDLCPU, &pool) == NULL) return -1;
  TwArray* block = tw_pool_take(pool, (size_t)count * sizeof(int64_t), int64);
  if (block == NULL) return -1;
  if (count != 0) memcpy(block->tensor.data, values, (size_t)count * sizeof(int64_t));
  *out = tw_pool_view(pool, block, 0, &count, ndim, int64);
  tw_array_release(block);
  return *out == NULL ? -1 : 0;
}

static int shape_of(Vm* vm, const VmInstruction* i, TwSlot* r) {
  TwArray* shape;
  if (r[i->a].kind != TW_TENSOR) return wrong("a tensor", &r[i->a]);
  const DLTensor* t = &r[i->a].array->tensor;
  if (new_numbers(vm, t->shape, 1, t->ndim, &shape) != 0) return -1;
  put_array(&r[i->dst], shape);
  return 0;
}

static int reshape_tensor(Vm* vm, const VmInstruction* i, TwSlot* r) {
  int64_t shape[MOST_DIMS];
  int ndim;
  size_t before, after;
  TwPool* pool;
  if (r[i->a].kind != TW_TENSOR) return wrong("a tensor", &r[i->a]);
  if (read_shape(&r[i->b], shape, &ndim) != 0) return -1;
  TwArray* a = r[i->a].array;
  const DLTensor* t = &a->tensor;
  tw_tensor_bytes(t->ndim, t->shape, t->dtype, &before);
  if (!tw_tensor_bytes(ndim, shape, t->dtype, &after) || before != after) {
    char from[64], to[64];
    const DLTensor wanted = {.shape = shape, .ndim = ndim};
    return tw_fail("cannot reshape a tensor of shape %s to %s", tw_shape_text(t, from, sizeof from), tw_shape_text(&wanted, to, sizeof to));
  }
  if (!tw_is_compact(t)) return tw_fail("cannot reshape a strided tensor");
  if (vm_device(vm, t->device.device_type, &pool) == NULL) return -1;
  TwArray* view = tw_pool_view(pool, a, 0, shape, ndim, t->dtype);
  if (view == NULL) return -1;
  put_array(&r[i->dst], view);
  return 0;
}

static int device_copy(Vm* vm, const VmInstruction* i, TwSlot* r) {
  TwPool* pool;
  if (r[i->a].kind != TW_TENSOR) return wrong("a tensor", &r[i->a]);
  const DLDevice* device = vm_device(vm, i->c, &pool);
  if (device == NULL) return -1;
  const DLTensor* t = &r[i->a].array->tensor;
  if (vm_check_count(*device, t->ndim, t->shape) != 0) return -1;
  TwArray* copy = tw_array_new(t->shape, t->ndim, t->dtype, *device);
  if (copy == NULL || tw_copy(t, &copy->tensor) != 0) {
    tw_array_release(copy);
    return -1;
  }
  put_array(&r[i->dst], copy);
  return 0;
}

/* ---- objects ---- */
static int alloc_object(const VmInstruction* i, TwSlot* r) {
  TwObject* object = tw_object_new(i->op == VM_ALLOC_CLOSURE, i->value, (size_t)i->count);
  if (object == NULL) return -1;
  for (int k = 0; k < i->count; ++k) object->fields[k] = tw_slot_copy(&r[i->fields[k]]);
  put(&r[i->dst], (TwSlot){.kind = TW_OBJECT, .object = object});
  return 0;
}

static int data_of(const TwSlot* slot, TwObject** out) {
  if (slot->kind != TW_OBJECT || slot->object->closure) return wrong("a tuple or value of a data type", slot);
  *out = slot->object;
  return 0;
}

static int get_field(const VmInstruction* i, TwSlot* r) {
  TwObject* object;
  if (data_of(&r[i->a], &object) != 0) return -1;
  if ((size_t)i->value >= object->size) return tw_fail("field %lld of %zu", (long long)i->value, object->size);
  put(&r[i->dst], tw_slot_copy(&object->fields[i->value]));
  return 0;
}

static int get_tag(const VmInstruction* i, TwSlot* r) {
  TwObject* object;
  if (data_of(&r[i->a], &object) != 0) return -1;
  put(&r[i->dst], (TwSlot){.kind = TW_INTEGER, .integer = object->tag});
  return 0;
}

static int ref_write(const VmInstruction* i, TwSlot* r) {
  TwObject* object;
  if (data_of(&r[i->fields[0]], &object) != 0) return -1;
  if (object->size != 1) return tw_fail("expected a reference, found %zu fields", object->size);
  put(&object->fields[0], tw_slot_copy(&r[i->fields[1]]));
  return 0;
}

static int append(const VmInstruction* i, TwSlot* r) {
  int64_t axis;
  for (int k = 0; k < 2; ++k) {
    if (r[i->fields[k]].kind != TW_TENSOR) return wrong("a tensor", &r[i->fields[k]]);
  }
  if (load_integer(&r[i->fields[2]], &axis) != 0) return -1;
  TwArray* whole = vm_append(r[i->fields[0]].array, r[i->fields[1]].array, axis);
  if (whole == NULL) return -1;
  put_array(&r[i->fields[3]], whole);
  return 0;
}

static int write_rows(const VmInstruction* i, TwSlot* r) {
  int64_t axis, last;
  for (int k = 0; k < 3; ++k) {
    if (r[i->fields[k]].kind != TW_TENSOR) return wrong("a tensor", &r[i->fields[k]]);
  }
  if (load_integer(&r[i->fields[3]], &axis) != 0 || load_integer(&r[i->fields[4]], &last) != 0) return -1;
  TwArray* past = r[i->fields[0]].array;
  TwArray* written = vm_write_rows(past, r[i->fields[1]].array, r[i->fields[2]].array, axis, last != 0);
  if (written == NULL) return -1;
  put_array(&r[i->fields[5]], written);
  return 0;
}

/* ---- packed functions ---- */
static int make_room(Vm* vm, size_t count) {
  if (count <= vm->value_room) return 0;
  size_t room = count + 16;
  TVMValue* values = realloc(vm->values, room * sizeof *values);
  if (values != NULL) vm->values = values;
  int* codes = realloc(vm->codes, room * sizeof *codes);
  if (codes != NULL) vm->codes = codes;
  TwArray** made = realloc(vm->made, room * sizeof *made);
  if (made != NULL) vm->made = made;
  if (values == NULL || codes == NULL || made == NULL) return tw_out_of_memory(room * sizeof *values);
  vm->value_room = room;
  return 0;
}

/* Arguments of a call: tensors, tuples' fields one by one. *made counts numbers that became tensors. */
static int add_argument(Vm* vm, const TwSlot* slot, size_t* count, size_t* made) {
  if (make_room(vm, *count + 1) != 0) return -1;
  TwArray* array = slot->array;
  if (slot->kind == TW_INTEGER) {
    if (new_numbers(vm, &slot->integer, 1, 1, &array) != 0) return -1;
    vm->made[(*made)++] = array;
  } else if (slot->kind != TW_TENSOR) {
    return wrong("a tensor, or a tuple of tensors", slot);
  }
  vm->values[*count].v_handle = &array->tensor;
  vm->codes[(*count)++] = kTVMDLTensorHandle;
  return 0;
}

static int add_arguments(Vm* vm, const VmInstruction* i, const TwSlot* r, size_t* count, size_t* made) {
  for (int k = 0; k < i->count; ++k) {
    const TwSlot* slot = &r[i->fields[k]];
    if (slot->kind != TW_OBJECT || slot->object->closure) {
      if (add_argument(vm, slot, count, made) != 0) return -1;
      continue;
    }
    for (size_t n = 0; n < slot->object->size; ++n) {
      if (add_argument(vm, &slot->object->fields[n], count, made) != 0) return -1;
    }
  }
  return 0;
}

static bool is_empty(const DLTensor* t) {
  for (int i = 0; i < t->ndim; ++i) {
    if (t->shape[i] == 0) return true;
  }
  return false;
}

static int call_packed(Vm* vm, int64_t index, size_t count) {
  TVMValue ret;
  int code = kTVMNullptr;
  TwFunc* f = vm->packed[index];
  tw_clear_error();
  int rc = f->direct != NULL ? f->direct(vm->values, vm->codes, (int)count, &ret, &code, NULL)
                             : TVMFuncCall(f, vm->values, vm->codes, (int)count, &ret, &code);
  if (rc == 0) {
    if (f->direct == NULL) tw_drop_value(ret, code);
    return 0;
  }
  char* text = tw_strdup(TVMGetLastError());
  tw_fail("%s: %s", vm->program->packed[index], text == NULL || text[0] == '\0' ? "failed" : text);
  free(text);
  return -1;
}

static int invoke_packed(Vm* vm, const VmInstruction* i, const TwSlot* r) {
  size_t count = 0, made = 0;
  int rc = add_arguments(vm, i, r, &count, &made);
  const bool nothing_to_do = rc == 0 && i->b == 1 && count != 0 && is_empty(vm->values[count - 1].v_handle);
  if (rc == 0 && !nothing_to_do) {
    const double begin = vm->timings == NULL ? 0 : tw_now();
    rc = call_packed(vm, i->value, count);
    if (vm->timings != NULL) {
      vm->timings[i->value].seconds += tw_now() - begin;
      ++vm->timings[i->value].calls;
    }
  }
  while (made != 0) tw_array_release(vm->made[--made]);
  return rc;
}

/* ---- calls ---- */
/* Makes `count` more registers and one more frame fit. */
static int reserve(Vm* vm, size_t count) {
  if (vm->num_registers + count > vm->most_registers) {
    return tw_fail("recursion is too deep: %zu calls wait for one another (a machine's most_registers bounds it)", vm->num_frames);
  }
  if (vm->num_registers + count > vm->room) {
    size_t room = 2 * (vm->num_registers + count);
    TwSlot* grown = realloc(vm->registers, room * sizeof *grown);
    if (grown == NULL) return tw_out_of_memory(room * sizeof *grown);
    vm->registers = grown;
    vm->room = room;
  }
  if (vm->num_frames + 1 > vm->frame_room) {
    size_t room = 2 * (vm->num_frames + 1);
    VmFrame* grown = realloc(vm->frames, room * sizeof *grown);
    if (grown == NULL) return tw_out_of_memory(room * sizeof *grown);
    vm->frames = grown;
    vm->frame_room = room;
  }
  return 0;
}

static VmFrame* push_frame(Vm* vm, const VmFunction* f) {
  if (reserve(vm, (size_t)f->num_registers + 1) != 0) return NULL;
  VmFrame* frame = &vm->frames[vm->num_frames++];
  *frame = (VmFrame){f, vm->num_registers, 0};
  memset(&vm->registers[vm->num_registers], 0, (size_t)f->num_registers * sizeof(TwSlot));
  vm->num_registers += (size_t)f->num_registers;
  return frame;
}

static void pop_frame(Vm* vm) {
  const VmFrame* frame = &vm->frames[--vm->num_frames];
  while (vm->num_registers > frame->base) tw_slot_clear(&vm->registers[--vm->num_registers]);
}

/* The function and the number of values that come before the arguments. */
static int callee_of(const Vm* vm, const VmInstruction* i, const TwSlot* r, const VmFunction** f, const TwObject** closure) {
  *closure = NULL;
  if (i->op == VM_INVOKE) {
    *f = &vm->program->functions[i->value];
    return 0;
  }
  const TwSlot* slot = &r[i->a];
  if (slot->kind != TW_OBJECT || !slot->object->closure) return wrong("a closure", slot);
  *closure = slot->object;
  if (slot->object->tag < 0 || (size_t)slot->object->tag >= vm->program->num_functions) return tw_fail("a closure of another program");
  *f = &vm->program->functions[slot->object->tag];
  if (slot->object->size + (size_t)i->count == (*f)->num_params) return 0;
  return tw_fail("%zu values for the %zu parameters of \"%s\"", slot->object->size + (size_t)i->count, (*f)->num_params, (*f)->name);
}

static int count_step(Vm* vm) {
  if (vm->most_calls == 0 || --vm->calls_left >= 0) return 0;
  return tw_fail("the program makes more calls than it may: %lld, jumps back included, in a run (set_limits of the machine, --max-steps)",
                 (long long)vm->most_calls);
}

/* Puts the values of a call into the registers of the frame on top, which was pushed for it. */
static int enter(Vm* vm, const VmInstruction* i) {
  const VmFrame* caller = &vm->frames[vm->num_frames - 1];
  const VmFunction* f = NULL;
  const TwObject* closure;
  const size_t base = caller->base;
  if (count_step(vm) != 0) return -1;
  if (callee_of(vm, i, &vm->registers[base], &f, &closure) != 0) return -1;
  VmFrame* frame = push_frame(vm, f);
  if (frame == NULL) return -1;
  TwSlot *to = &vm->registers[frame->base], *from = &vm->registers[base];
  size_t at = 0;
  for (size_t k = 0; closure != NULL && k < closure->size; ++k) to[at++] = tw_slot_copy(&closure->fields[k]);
  for (int k = 0; k < i->count; ++k) to[at++] = tw_slot_copy(&from[i->fields[k]]);
  if (!i->tail) return 0;
  /* the caller is done: its registers go, and the callee's take their place */
  const size_t begin = frame->base, count = (size_t)f->num_registers;
  for (size_t k = base; k < begin; ++k) tw_slot_clear(&vm->registers[k]);
  memmove(&vm->registers[base], &vm->registers[begin], count * sizeof(TwSlot));
  vm->num_registers = base + count;
  --vm->num_frames;
  vm->frames[vm->num_frames - 1] = (VmFrame){f, base, 0};
  return 0;
}

/* What an instruction that neither jumps nor calls does. */
static int step(Vm* vm, const VmInstruction* i, TwSlot* r) {
  switch (i->op) {
    case VM_MOVE: put(&r[i->dst], tw_slot_copy(&r[i->a])); return 0;
    case VM_INVOKE_PACKED: return invoke_packed(vm, i, r);
    case VM_ALLOC_TENSOR: return alloc_tensor(vm, i, r, i->fields, i->count);
    case VM_ALLOC_TENSOR_REG: return alloc_tensor_reg(vm, i, r);
    case VM_ALLOC_ADT:
    case VM_ALLOC_CLOSURE: return alloc_object(i, r);
    case VM_GET_FIELD: return get_field(i, r);
    case VM_LOAD_CONST: put_array(&r[i->dst], tw_array_retain(vm->constants[i->value])); return 0;
    case VM_GET_TAG: return get_tag(i, r);
    case VM_LOAD_CONSTI: put(&r[i->dst], (TwSlot){.kind = TW_INTEGER, .integer = i->value}); return 0;
    case VM_ALLOC_STORAGE: return alloc_storage(vm, i, r);
    case VM_SHAPE_OF: return shape_of(vm, i, r);
    case VM_RESHAPE_TENSOR: return reshape_tensor(vm, i, r);
    case VM_DEVICE_COPY: return device_copy(vm, i, r);
    case VM_REF_WRITE: return ref_write(i, r);
    case VM_APPEND: return append(i, r);
    case VM_WRITE_ROWS: return write_rows(i, r);
    case VM_TAKES_ROOM: return 0;
    default: return tw_fail("the program has come to what cannot be: no clause of a match covers the value");
  }
}

static int branch(Vm* vm, const VmInstruction* i, const TwSlot* r, size_t* pc) {
  int64_t test, target;
  if (i->op == VM_GOTO) {
    if (i->jump[0] <= (int)*pc && count_step(vm) != 0) return -1;
    *pc = (size_t)i->jump[0];
    return 0;
  }
  if (load_integer(&r[i->a], &test) != 0 || load_integer(&r[i->b], &target) != 0) return -1;
  *pc = (size_t)i->jump[test == target ? 0 : 1];
  return 0;
}

/* Runs until the frame at the bottom returns; *at is the instruction that failed. */
static int run_loop(Vm* vm, size_t* at) {
  size_t pc = 0;
  for (;;) {
    const VmFrame* frame = &vm->frames[vm->num_frames - 1];
    const VmInstruction* code = frame->function->code;
    TwSlot* r = &vm->registers[frame->base];
    int rc = 0;
    while (rc == 0) {
      const VmInstruction* i = &code[pc];
      *at = pc;
      if (i->op == VM_INVOKE || i->op == VM_INVOKE_CLOSURE) {
        vm->frames[vm->num_frames - 1].pc = pc;
        rc = enter(vm, i);
        pc = 0;
        break;
      }
      if (i->op == VM_RET) {
        TwSlot result = tw_slot_copy(&r[i->a]);
        pop_frame(vm);
        if (vm->num_frames == 0) {
          put(&vm->result, result);
          return 0;
        }
        const VmFrame* back = &vm->frames[vm->num_frames - 1];
        put(&vm->registers[back->base + (size_t)back->function->code[back->pc].dst], result);
        pc = back->pc + 1;
        break;
      }
      if (i->op == VM_GOTO || i->op == VM_IF) {
        rc = branch(vm, i, r, &pc);
      } else {
        rc = step(vm, i, r);
        ++pc;
      }
    }
    if (rc != 0) return -1;
  }
}

static int run_function(Vm* vm, int function) {
  const VmFunction* f = &vm->program->functions[function];
  size_t at = 0;
  vm->calls_left = vm->most_calls;
  tw_slot_clear(&vm->result);
  VmFrame* frame = push_frame(vm, f);
  if (frame == NULL) return -1;
  for (size_t i = 0; i < f->num_params; ++i) {
    TwSlot* input = &vm->inputs[function][i];
    vm->registers[frame->base + i] = tw_slot_copy(input);
    if (f->written[i] && input->carried) tw_slot_clear(input);
  }
  int rc = run_loop(vm, &at);
  if (rc != 0) {
    char* text = tw_strdup(TVMGetLastError());
    const char* name = vm->num_frames == 0 ? f->name : vm->frames[vm->num_frames - 1].function->name;
    tw_fail("%s (in the function \"%s\", instruction %zu)", text == NULL ? "" : text, name, at);
    free(text);
  }
  while (vm->num_frames != 0) pop_frame(vm);
  return rc;
}

int vm_run(Vm* vm, int function) {
  TwFindings* before = tw_findings_begin(&vm->findings);
  tw_run_begin();
  const int rc = tw_findings_end(before, run_function(vm, function));
  tw_run_end();
  if (rc != 0) tw_slot_clear(&vm->result);
  return rc;
}
