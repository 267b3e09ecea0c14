/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The virtual machine: programs of bytecode (program.c, decode.c) and what runs them (machine.c, run.c).
 * docs/vm.md tells of the instructions. */
#ifndef TILEWRIGHT_VM_H_
#define TILEWRIGHT_VM_H_

#include "../module/module.h"

typedef enum {
  VM_MOVE, VM_RET, VM_INVOKE, VM_INVOKE_CLOSURE, VM_INVOKE_PACKED, VM_ALLOC_TENSOR, VM_ALLOC_TENSOR_REG, VM_ALLOC_ADT,
  VM_ALLOC_CLOSURE, VM_GET_FIELD, VM_IF, VM_LOAD_CONST, VM_GOTO, VM_GET_TAG, VM_LOAD_CONSTI, VM_FATAL, VM_ALLOC_STORAGE,
  VM_SHAPE_OF, VM_RESHAPE_TENSOR, VM_DEVICE_COPY,
  VM_NUM_OPCODES,
  VM_REF_WRITE, /* InvokePacked of "tilewright.vm.ref_write", of "tilewright.vm.append" */
  VM_APPEND,
  VM_WRITE_ROWS, /* and of "tilewright.vm.write_rows" */
  VM_TAKES_ROOM /* and of "tilewright.vm.takes_room", which does nothing: see takes_room of functions */
} VmOpcode;

/* Registers are checked to be those of the function, and jumps, functions and constants to be there, when it is loaded. */
typedef struct {
  VmOpcode op;
  bool tail;         /* of a call: what it gives is what the function gives */
  int dst, a, b, c;  /* registers; what c is says the opcode */
  int count;         /* of args or of shape */
  int jump[2];       /* where Goto goes to; where If does, when equal and when not */
  int64_t value;     /* a number, or the index of a constant, a function, a packed function or a field, or a tag */
  const int64_t* fields; /* registers of arguments, or the shape */
  DLDataType type;
} VmInstruction;

typedef struct {
  char* name;
  char** params;
  size_t num_params;
  int64_t* param_devices; /* device types */
  bool* written;          /* of each parameter: it may be written to in place, so a run takes it if it was carried */
  bool* takes_room;       /* of each parameter: it may be a view of memory with room, whose strides are not those of its shape */
  int num_registers;
  VmInstruction* code;
  size_t size;
  int64_t* fields; /* of all instructions */
} VmFunction;

typedef struct {
  VmFunction* functions;
  size_t num_functions;
  TwArray** constants; /* under lock: what the compiler left as a view of a file is made ready on use */
  TwLock lock;
  int64_t* constant_devices;
  size_t num_constants;
  char** packed;
  size_t num_packed;
  char* head; /* the file's bytes before the constants, and behind them */
  size_t head_size;
  char* tail;
  size_t tail_size;
} VmProgram;

/* Decodes and checks an instruction of a function: fields[0] is the opcode. */
int vm_decode(const VmProgram* p, const VmFunction* f, size_t pc, const int64_t* fields, size_t count, VmInstruction* out);
/* Checks what needs the whole program, and marks tail calls. */
int vm_link(VmProgram* p);

/* Reads what Executable.save wrote, of TVM 0.8 as well. */
int vm_read_program(TilewrightStream* s, VmProgram* p);
/* TVM's form; `to_library` lets many bytes of constants be arranged so that they are mapped. */
int vm_write_program(TilewrightStream* s, const VmProgram* p, bool to_library);
/* A program whose constants, in memory, are used where they lie. */
typedef struct {
  TVMByteArray head, tail; /* of the file: what is before its constants, and behind them */
  TwArray** constants;
  const int64_t* constant_devices;
  size_t num_constants;
} VmParts;
int vm_make_program(const VmParts* parts, VmProgram* p);
void vm_free_program(VmProgram* p);
/* The index of a function, or -1 and an error. */
int vm_find_function(const VmProgram* p, const char* name);

/* A machine, which holds its executable. One thread runs it at a time. */
typedef struct {
  const VmFunction* function;
  size_t base; /* of its registers */
  size_t pc;   /* of the call that waits for what the frame above gives */
} VmFrame;

typedef struct {
  double seconds;
  int64_t calls;
} VmTiming;

typedef struct {
  TwModule* executable;
  const VmProgram* program;
  TwFunc** packed;
  DLDevice* devices; /* those it runs on, and their pools */
  TwPool** pools;
  size_t num_devices;
  TwArray** constants; /* on their devices */
  TwSlot** inputs;     /* by function, or NULL */
  TwSlot result;
  TwSlot* registers;
  size_t num_registers, room;
  VmFrame* frames;
  size_t num_frames, frame_room;
  TVMValue* values; /* of a call of a packed function */
  int* codes;
  TwArray** made; /* arrays that were made of numbers for it */
  size_t value_room;
  size_t most_registers; /* that may be in use: what bounds recursion */
  int64_t most_calls;    /* of one invocation, jumps back included; 0: no bound */
  int64_t calls_left;
  VmTiming* timings;     /* of packed functions while profiling, or NULL */
  TwFindings findings;
  atomic_flag busy;
  unsigned forks; /* in which process (tw_forks) it became busy */
} Vm;

/* Fails where a tensor of dimensions that are known when it runs has more elements than its kernels count. */
int vm_check_count(DLDevice device, int ndim, const int64_t* shape);
/* Runs a function on its inputs; what it gives is in vm->result. */
int vm_run(Vm* vm, int function);
/* Both tensors one after the other along an axis, where it can in the memory of the first; NULL and an error. */
TwArray* vm_append(TwArray* past, TwArray* more, int64_t axis);
/* `past` with rows of `more` along an axis, from starts[i] on in item i of its batch: `past` itself if `last` says that nothing
 * reads it behind and nobody else holds it, else a copy. NULL and an error. */
TwArray* vm_write_rows(TwArray* past, const TwArray* more, const TwArray* starts, int64_t axis, bool last);
/* The machine's device of a type, with its pool; NULL and an error when it has none. */
const DLDevice* vm_device(const Vm* vm, int64_t type, TwPool** pool);
/* A module "VirtualMachine". */
int vm_new_machine(TwModule* executable, const VmProgram* program, TwModule** out);

#endif /* TILEWRIGHT_VM_H_ */
