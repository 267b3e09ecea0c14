/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * "VMExecutable": a program for the virtual machine as a module, which makes machines. */
#include "vm.h"

#include "../core/system.h"

/* The file's bytes in memory that the caller frees. */
static int saved_bytes(const VmProgram* p, char** data, size_t* size) {
  FILE* file = tw_memory_file(data, size);
  if (file == NULL) return tw_out_of_memory(0);
  TilewrightStream s = {.file = file};
  int rc = vm_write_program(&s, p, false);
  if (tw_memory_file_close(file, data, size) != 0 && rc == 0) rc = tw_out_of_memory(*size);
  return rc;
}

static int save(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  char* data = NULL;
  size_t size = 0;
  (void)args, (void)codes, (void)n;
  int rc = saved_bytes(((TwModule*)resource)->data, &data, &size);
  if (rc == 0) rc = tw_return_bytes(ret, data, size);
  free(data);
  return rc;
}

static int get_head(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  const VmProgram* p = ((TwModule*)resource)->data;
  (void)args, (void)codes, (void)n;
  return tw_return_bytes(ret, p->head, p->head_size);
}

static int get_tail(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  const VmProgram* p = ((TwModule*)resource)->data;
  (void)args, (void)codes, (void)n;
  return tw_return_bytes(ret, p->tail, p->tail_size);
}

static int get_num_constants(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  const VmProgram* p = ((TwModule*)resource)->data;
  (void)args, (void)codes, (void)n;
  tw_return_int(ret, (int64_t)p->num_constants);
  return 0;
}

static int constant_argument(const VmProgram* p, TVMValue* args, int* codes, int n, int64_t* index) {
  if (tw_arg_int(args, codes, n, 0, "get_constant", index) != 0) return -1;
  if (*index < 0 || (size_t)*index >= p->num_constants) return tw_fail("the executable has no constant %lld", (long long)*index);
  return 0;
}

static int get_constant(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  VmProgram* p = ((TwModule*)resource)->data;
  int64_t index;
  if (constant_argument(p, args, codes, n, &index) != 0) return -1;
  tw_lock(&p->lock);
  const int rc = tw_array_settle(&p->constants[index]);
  if (rc == 0) tw_return_handle(ret, tw_array_retain(p->constants[index]), kTVMNDArrayHandle);
  tw_unlock(&p->lock);
  return rc;
}

static int get_constant_device(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  const VmProgram* p = ((TwModule*)resource)->data;
  int64_t index;
  if (constant_argument(p, args, codes, n, &index) != 0) return -1;
  tw_return_int(ret, p->constant_devices[index]);
  return 0;
}

static int get_lib(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  const TwModule* self = resource;
  (void)args, (void)codes, (void)n;
  if (self->num_imports != 0) tw_return_handle(ret, tw_module_retain(self->imports[0]), kTVMModuleHandle);
  return 0;
}

static int function_argument(const VmProgram* p, TVMValue* args, int* codes, int n, const VmFunction** out) {
  const char* name;
  if (tw_arg_str(args, codes, n, 0, "the virtual machine's executable", &name) != 0) return -1;
  int index = vm_find_function(p, name);
  if (index < 0) return -1;
  *out = &p->functions[index];
  return 0;
}

static int get_function_arity(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  const VmFunction* f;
  if (function_argument(((TwModule*)resource)->data, args, codes, n, &f) != 0) return -1;
  tw_return_int(ret, (int64_t)f->num_params);
  return 0;
}

static int get_function_param_name(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  const VmFunction* f;
  int64_t index;
  if (function_argument(((TwModule*)resource)->data, args, codes, n, &f) != 0) return -1;
  if (tw_arg_int(args, codes, n, 1, "get_function_param_name", &index) != 0) return -1;
  if (index < 0 || (size_t)index >= f->num_params) {
    return tw_fail("the function \"%s\" has no parameter %lld", f->name, (long long)index);
  }
  return tw_return_string(ret, f->params[index]);
}

static int load_executable(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  TwModule *self = resource, *machine;
  VmProgram* p = self->data;
  int rc = 0;
  (void)args, (void)codes, (void)n;
  tw_lock(&p->lock);
  for (size_t i = 0; rc == 0 && i < p->num_constants; ++i) rc = tw_array_settle(&p->constants[i]);
  tw_unlock(&p->lock);
  if (rc != 0 || vm_new_machine(self, p, &machine) != 0) return -1;
  tw_return_handle(ret, machine, kTVMModuleHandle);
  return 0;
}

static int executable_function(TwModule* self, const char* name, TwFunc** out) {
  static const struct {
    const char* name;
    TVMPackedCFunc callback;
  } methods[] = {{"save", save}, {"get_head", get_head}, {"get_tail", get_tail}, {"get_lib", get_lib},
                 {"get_num_constants", get_num_constants}, {"get_constant", get_constant},
                 {"get_constant_device", get_constant_device}, {"get_function_arity", get_function_arity},
                 {"get_function_param_name", get_function_param_name}, {"vm_load_executable", load_executable}};
  for (size_t i = 0; i < sizeof methods / sizeof methods[0]; ++i) {
    if (strcmp(methods[i].name, name) != 0) continue;
    *out = tw_func_method(methods[i].callback, self);
    return *out == NULL ? -1 : 0;
  }
  return 0;
}

/* A module's payload is the file as one string, as in TVM 0.8. What is counted is where it will be, behind its size: that
 * decides on padding. */
static int executable_save(TwModule* self, TilewrightStream* s) {
  uint64_t start, end;
  if (tw_stream_position(s, &start) != 0) return -1;
  start += sizeof start;
  end = start;
  TilewrightStream counting = {.counted = &end, .apart = s->apart};
  if (vm_write_program(&counting, self->data, true) != 0 || tw_write_u64(s, end - start) != 0) return -1;
  return vm_write_program(s, self->data, true);
}

static VmProgram* empty_program(void) {
  VmProgram* p = calloc(1, sizeof *p);
  if (p == NULL) {
    tw_out_of_memory(sizeof *p);
  } else {
    tw_lock_init(&p->lock);
  }
  return p;
}

static void free_program(VmProgram* p) {
  vm_free_program(p);
  tw_lock_destroy(&p->lock);
  free(p);
}

static void executable_destroy(TwModule* self) { free_program(self->data); }

static const TwModuleClass executable_class = {
    .get_function = executable_function, .save = executable_save, .destroy = executable_destroy};

/* A module of a program that `rc` says was made; it takes it over. */
static int program_module(int rc, VmProgram* p, TwModule** out) {
  *out = rc == 0 ? tw_module_new(&executable_class, "VMExecutable", p) : NULL;
  if (*out != NULL) return 0;
  free_program(p);
  return -1;
}

/* Reads a program from all that is left of a stream. */
static int new_executable(TilewrightStream* s, TwModule** out) {
  VmProgram* p = empty_program();
  if (p == NULL) return -1;
  int rc = vm_read_program(s, p);
  if (rc == 0 && s->left != 0) rc = tw_fail("damaged bytecode: %zu bytes follow its end", s->left);
  return program_module(rc, p, out);
}

/* runtime.module.loadbinary_VMExecutable(stream) */
static int load_binary(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  TilewrightStream* s;
  uint64_t size;
  TwModule* m;
  (void)resource;
  if (tw_loader_stream(args, codes, n, "runtime.module.loadbinary_VMExecutable", &s) != 0) return -1;
  if (tw_read_u64(s, &size) != 0) return -1;
  if (size > s->left) return tw_fail("the data ends too early: bytecode of %llu bytes, and %zu are left", (unsigned long long)size, s->left);
  TilewrightStream part = {.data = s->data, .left = (size_t)size, .mapping = s->mapping, .weights = s->weights};
  s->data += size;
  s->left -= (size_t)size;
  if (new_executable(&part, &m) != 0) return -1;
  tw_return_handle(ret, m, kTVMModuleHandle);
  return 0;
}

/* Returns an executable that imports a library, or NULL. */
static int return_with_library(TwModule* m, TwModule* lib, TVMRetValueHandle ret) {
  if (lib != NULL && tw_module_import(m, lib) != 0) {
    tw_module_release(m);
    return -1;
  }
  tw_return_handle(ret, m, kTVMModuleHandle);
  return 0;
}

static int library_argument(TVMValue* args, int* codes, int n, int i, const char* who, TwModule** lib) {
  *lib = NULL;
  return n > i && codes[i] != kTVMNullptr ? tw_arg_module(args, codes, n, i, who, lib) : 0;
}

/* runtime.Load_Executable(bytecode, library), where the library may be None */
static int load_bytes(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  static const char who[] = "runtime.Load_Executable";
  TVMByteArray code;
  TwModule *m, *lib;
  (void)resource;
  if (tw_arg_bytes(args, codes, n, 0, who, &code) != 0 || library_argument(args, codes, n, 1, who, &lib) != 0) return -1;
  TilewrightStream s = {.data = code.data, .left = code.size};
  return new_executable(&s, &m) != 0 ? -1 : return_with_library(m, lib, ret);
}

/* tilewright.vm.create_executable(head, tail, library, a type of device and a constant, ...) */
static int create(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  enum { FIRST = 3 };
  static const char who[] = "tilewright.vm.create_executable";
  const size_t count = n < FIRST ? 0 : (size_t)(n - FIRST) / 2;
  TwModule *m = NULL, *lib;
  VmParts parts = {.num_constants = count};
  (void)resource;
  if (tw_arg_bytes(args, codes, n, 0, who, &parts.head) != 0 || tw_arg_bytes(args, codes, n, 1, who, &parts.tail) != 0 ||
      library_argument(args, codes, n, 2, who, &lib) != 0) {
    return -1;
  }
  int64_t* devices = malloc(count * sizeof *devices + 1);
  parts.constants = malloc(count * sizeof *parts.constants + 1);
  parts.constant_devices = devices;
  int rc = devices == NULL || parts.constants == NULL ? tw_out_of_memory(count * sizeof *devices) : 0;
  for (size_t i = 0; rc == 0 && i < count; ++i) {
    const int at = FIRST + 2 * (int)i;
    rc = tw_arg_int(args, codes, n, at, who, &devices[i]);
    if (rc == 0 && codes[at + 1] != kTVMNDArrayHandle) rc = tw_fail("%s: constant %zu must be an NDArray", who, i);
    parts.constants[i] = args[at + 1].v_handle;
  }
  VmProgram* p = rc == 0 ? empty_program() : NULL;
  rc = p == NULL ? -1 : program_module(vm_make_program(&parts, p), p, &m);
  free(devices);
  free(parts.constants);
  return rc != 0 ? -1 : return_with_library(m, lib, ret);
}

TW_GLOBAL_FUNCTIONS({"runtime.module.loadbinary_VMExecutable", load_binary}, {"runtime.Load_Executable", load_bytes},
                    {"tilewright.vm.create_executable", create})
