/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Instructions as they are saved (TVM 0.8's form: an opcode and a list of numbers) to instructions that are ready to run.
 * Whatever a file says of registers, jumps and indices is checked here, so that running trusts it. */
#include "vm.h"

#include <limits.h>

/* One instruction being read. */
typedef struct {
  const VmProgram* program;
  const VmFunction* function;
  size_t pc;
  const int64_t* fields;
  size_t count;
} Reader;

#define REFUSE(r, ...) refuse(r, (tw_set_error(__VA_ARGS__), TVMGetLastError()))

static int refuse(const Reader* r, const char* problem) {
  char* text = tw_strdup(problem);
  tw_fail("damaged bytecode: function \"%s\", instruction %zu: %s", r->function->name, r->pc, text == NULL ? "" : text);
  free(text);
  return -1;
}

static int need(const Reader* r, size_t count) {
  if (r->count == count) return 0;
  return REFUSE(r, "opcode %lld has %zu fields, not %zu", (long long)r->fields[0], r->count - 1, count - 1);
}

static int reg(const Reader* r, size_t field, int* out) {
  int64_t value = r->fields[field];
  if (value < 0 || value >= r->function->num_registers) {
    return REFUSE(r, "register %lld of %d", (long long)value, r->function->num_registers);
  }
  *out = (int)value;
  return 0;
}

/* The list behind `first` fields, which says its length in `field`. */
static int list(const Reader* r, size_t field, size_t first, VmInstruction* out) {
  int64_t count = r->count > first - 1 ? r->fields[field] : -1;
  if (count < 0 || count > INT_MAX || (uint64_t)count != r->count - first) {
    return REFUSE(r, "opcode %lld with %zu fields says that %lld follow", (long long)r->fields[0], r->count - 1,
                  (long long)count);
  }
  out->count = (int)count;
  out->fields = r->fields + first;
  return 0;
}

static int registers(const Reader* r, const VmInstruction* out) {
  int unused;
  for (int i = 0; i < out->count; ++i) {
    if (reg(r, (size_t)(out->fields - r->fields) + (size_t)i, &unused) != 0) return -1;
  }
  return 0;
}

static int index_of(const Reader* r, size_t field, size_t limit, const char* what, int64_t* out) {
  *out = r->fields[field];
  if (*out >= 0 && (uint64_t)*out < limit) return 0;
  return REFUSE(r, "%s %lld of %zu", what, (long long)*out, limit);
}

static int jump(const Reader* r, size_t field, int* out) {
  int64_t size = (int64_t)r->function->size, offset = r->fields[field];
  if (offset == 0 || offset < -(int64_t)r->pc || offset >= size - (int64_t)r->pc) {
    return REFUSE(r, "a jump by %lld in %lld instructions", (long long)offset, (long long)size);
  }
  *out = (int)((int64_t)r->pc + offset);
  return 0;
}

static int type(const Reader* r, size_t field, DLDataType* out) {
  const int64_t *t = r->fields + field;
  if (t[0] < 0 || t[0] > 255 || t[1] <= 0 || t[1] > 255 || t[2] <= 0 || t[2] > USHRT_MAX) {
    return REFUSE(r, "no data type: code %lld, %lld bits, %lld lanes", (long long)t[0], (long long)t[1], (long long)t[2]);
  }
  *out = (DLDataType){(uint8_t)t[0], (uint8_t)t[1], (uint16_t)t[2]};
  return 0;
}

static int device_type(const Reader* r, size_t field, int* out) {
  int64_t value = r->fields[field];
  if (value < 0 || value > INT_MAX) return REFUSE(r, "device type %lld", (long long)value);
  *out = (int)value;
  return 0;
}

static int decode_call(const Reader* r, VmInstruction* out) {
  if (r->count < 4) return need(r, 4);
  if (list(r, 2, 4, out) != 0) return -1;
  switch (out->op) {
    case VM_INVOKE_PACKED:
      if (index_of(r, 1, r->program->num_packed, "packed function", &out->value) != 0) return -1;
      if (r->fields[3] < 0 || r->fields[3] > out->count) return REFUSE(r, "%lld outputs of %d arguments", (long long)r->fields[3], out->count);
      out->b = (int)r->fields[3];
      if (strcmp(r->program->packed[out->value], "tilewright.vm.ref_write") == 0) {
        if (out->count != 2) return REFUSE(r, "ref_write takes a reference and a value, not %d arguments", out->count);
        out->op = VM_REF_WRITE;
      } else if (strcmp(r->program->packed[out->value], "tilewright.vm.append") == 0) {
        if (out->count != 4) return REFUSE(r, "append takes two tensors, an axis and a result, not %d arguments", out->count);
        out->op = VM_APPEND;
      } else if (strcmp(r->program->packed[out->value], "tilewright.vm.write_rows") == 0) {
        if (out->count != 6) return REFUSE(r, "write_rows takes three tensors, an axis, whether it is the last use, and a result, not %d arguments", out->count);
        out->op = VM_WRITE_ROWS;
      } else if (strcmp(r->program->packed[out->value], "tilewright.vm.takes_room") == 0) {
        out->op = VM_TAKES_ROOM;
      }
      return registers(r, out);
    case VM_INVOKE:
    case VM_ALLOC_CLOSURE:
      if (index_of(r, 1, r->program->num_functions, "function", &out->value) != 0) return -1;
      return reg(r, 3, &out->dst) != 0 ? -1 : registers(r, out);
    case VM_INVOKE_CLOSURE:
      return reg(r, 1, &out->a) != 0 || reg(r, 3, &out->dst) != 0 ? -1 : registers(r, out);
    default: /* VM_ALLOC_ADT */
      out->value = r->fields[1];
      return reg(r, 3, &out->dst) != 0 ? -1 : registers(r, out);
  }
}

static int decode_memory(const Reader* r, VmInstruction* out) {
  switch (out->op) {
    case VM_ALLOC_TENSOR:
      if (r->count < 8) return need(r, 8);
      if (reg(r, 1, &out->a) != 0 || reg(r, 2, &out->b) != 0 || type(r, 3, &out->type) != 0) return -1;
      return list(r, 6, 8, out) != 0 ? -1 : reg(r, 7, &out->dst);
    case VM_ALLOC_TENSOR_REG:
      if (need(r, 8) != 0 || reg(r, 1, &out->a) != 0 || reg(r, 2, &out->b) != 0 || reg(r, 3, &out->c) != 0) return -1;
      return type(r, 4, &out->type) != 0 ? -1 : reg(r, 7, &out->dst);
    case VM_ALLOC_STORAGE:
      if (need(r, 8) != 0 || reg(r, 1, &out->a) != 0 || type(r, 3, &out->type) != 0) return -1;
      out->value = r->fields[2];
      if (out->value > TW_ALIGNMENT) return REFUSE(r, "storage aligned to %lld bytes; %d is most", (long long)out->value, TW_ALIGNMENT);
      return device_type(r, 6, &out->c) != 0 ? -1 : reg(r, 7, &out->dst);
    default: /* VM_DEVICE_COPY */
      if (need(r, 5) != 0 || reg(r, 1, &out->a) != 0 || device_type(r, 2, &out->b) != 0) return -1;
      return device_type(r, 3, &out->c) != 0 ? -1 : reg(r, 4, &out->dst);
  }
}

static int decode_simple(const Reader* r, VmInstruction* out) {
  switch (out->op) {
    case VM_FATAL: return need(r, 1);
    case VM_RET: return need(r, 2) != 0 ? -1 : reg(r, 1, &out->a);
    case VM_GOTO: return need(r, 2) != 0 ? -1 : jump(r, 1, &out->jump[0]);
    case VM_LOAD_CONST:
      if (need(r, 3) != 0 || index_of(r, 1, r->program->num_constants, "constant", &out->value) != 0) return -1;
      return reg(r, 2, &out->dst);
    case VM_LOAD_CONSTI:
      if (need(r, 3) != 0) return -1;
      out->value = r->fields[1];
      return reg(r, 2, &out->dst);
    case VM_IF:
      if (need(r, 5) != 0 || reg(r, 1, &out->a) != 0 || reg(r, 2, &out->b) != 0) return -1;
      return jump(r, 3, &out->jump[0]) != 0 ? -1 : jump(r, 4, &out->jump[1]);
    case VM_GET_FIELD:
      if (need(r, 4) != 0 || index_of(r, 2, INT_MAX, "field", &out->value) != 0) return -1;
      return reg(r, 1, &out->a) != 0 ? -1 : reg(r, 3, &out->dst);
    case VM_RESHAPE_TENSOR:
      if (need(r, 4) != 0 || reg(r, 1, &out->a) != 0 || reg(r, 2, &out->b) != 0) return -1;
      return reg(r, 3, &out->dst);
    default: /* VM_MOVE, VM_GET_TAG, VM_SHAPE_OF */
      return need(r, 3) != 0 || reg(r, 1, &out->a) != 0 ? -1 : reg(r, 2, &out->dst);
  }
}

int vm_decode(const VmProgram* p, const VmFunction* f, size_t pc, const int64_t* fields, size_t count, VmInstruction* out) {
  const Reader r = {p, f, pc, fields, count};
  *out = (VmInstruction){.op = VM_NUM_OPCODES};
  if (count == 0 || fields[0] < 0 || fields[0] >= VM_NUM_OPCODES) {
    return REFUSE(&r, "there is no opcode %lld", count == 0 ? -1LL : (long long)fields[0]);
  }
  out->op = (VmOpcode)fields[0];
  switch (out->op) {
    case VM_INVOKE:
    case VM_INVOKE_CLOSURE:
    case VM_INVOKE_PACKED:
    case VM_ALLOC_ADT:
    case VM_ALLOC_CLOSURE: return decode_call(&r, out);
    case VM_ALLOC_TENSOR:
    case VM_ALLOC_TENSOR_REG:
    case VM_ALLOC_STORAGE:
    case VM_DEVICE_COPY: return decode_memory(&r, out);
    default: return decode_simple(&r, out);
  }
}

/* Whether what the call at pc gives is given on at once: only moves and jumps lie before the Ret. */
static bool is_tail(const VmFunction* f, size_t pc) {
  int value = f->code[pc].dst;
  size_t at = pc + 1;
  for (size_t steps = 0; steps < f->size && at < f->size; ++steps) {
    const VmInstruction* i = &f->code[at];
    if (i->op == VM_RET) return i->a == value;
    if (i->op == VM_GOTO) {
      at = (size_t)i->jump[0];
    } else if (i->op == VM_MOVE && i->a == value) {
      value = i->dst;
      ++at;
    } else {
      return false;
    }
  }
  return false;
}

static int link_instruction(const VmProgram* p, VmFunction* f, size_t pc) {
  VmInstruction* i = &f->code[pc];
  const Reader r = {p, f, pc, i->fields, 0};
  const bool ends = i->op == VM_RET || i->op == VM_GOTO || i->op == VM_IF || i->op == VM_FATAL;
  if (!ends && pc + 1 == f->size) return REFUSE(&r, "the function ends without a Ret");
  if (i->op == VM_INVOKE || i->op == VM_ALLOC_CLOSURE) {
    const VmFunction* callee = &p->functions[i->value];
    const bool fits = i->op == VM_INVOKE ? (size_t)i->count == callee->num_params : (size_t)i->count <= callee->num_params;
    if (!fits) return REFUSE(&r, "%d values for the %zu parameters of \"%s\"", i->count, callee->num_params, callee->name);
  }
  if (i->op == VM_INVOKE || i->op == VM_INVOKE_CLOSURE) i->tail = is_tail(f, pc);
  for (int k = 0; i->op == VM_TAKES_ROOM && k < i->count; ++k) {
    if ((uint64_t)i->fields[k] < f->num_params) f->takes_room[i->fields[k]] = true;
  }
  return 0;
}

/* Marks the parameter that an instruction writes to, or that it gives to a function that does; returns whether it is news. */
static bool mark_written(const VmProgram* p, VmFunction* f, const VmInstruction* i) {
  bool news = false;
  const int count = i->op == VM_WRITE_ROWS ? 1 : i->op == VM_INVOKE ? i->count : 0;
  for (int k = 0; k < count; ++k) {
    const bool written = i->op == VM_WRITE_ROWS || p->functions[i->value].written[k];
    if (!written || (uint64_t)i->fields[k] >= f->num_params || f->written[i->fields[k]]) continue;
    news = f->written[i->fields[k]] = true;
  }
  return news;
}

static void mark_all_written(VmProgram* p) {
  for (bool news = true; news;) {
    news = false;
    for (size_t n = 0; n < p->num_functions; ++n) {
      VmFunction* f = &p->functions[n];
      for (size_t pc = 0; pc < f->size; ++pc) news = mark_written(p, f, &f->code[pc]) || news;
    }
  }
}

int vm_link(VmProgram* p) {
  for (size_t n = 0; n < p->num_functions; ++n) {
    VmFunction* f = &p->functions[n];
    const Reader r = {p, f, 0, NULL, 0};
    if (f->size == 0) return REFUSE(&r, "a function without instructions");
    for (size_t pc = 0; pc < f->size; ++pc) {
      if (link_instruction(p, f, pc) != 0) return -1;
    }
  }
  mark_all_written(p);
  return 0;
}
