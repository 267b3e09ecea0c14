/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * "VMExecutable": a program for the virtual machine as a module, which makes machines. */
#include "vm.h"

/* The file's bytes in memory that the caller frees. */
static int saved_bytes(const VmProgram* p, char** data, size_t* size) {
  FILE* file = open_memstream(data, size);
  if (file == NULL) return tw_out_of_memory(0);
  TilewrightStream s = {.file = file};
  int rc = vm_write_program(&s, p);
  if (fclose(file) != 0 && rc == 0) rc = tw_out_of_memory(*size);
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
  const VmProgram* p = ((TwModule*)resource)->data;
  int64_t index;
  if (constant_argument(p, args, codes, n, &index) != 0) return -1;
  tw_return_handle(ret, tw_array_retain(p->constants[index]), kTVMNDArrayHandle);
  return 0;
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
  (void)args, (void)codes, (void)n;
  if (vm_new_machine(self, self->data, &machine) != 0) return -1;
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

/* A module's payload is the file as one string, as in TVM 0.8. */
static int executable_save(TwModule* self, TilewrightStream* s) {
  uint64_t size = 0;
  TilewrightStream counting = {.counted = &size, .apart = s->apart};
  if (vm_write_program(&counting, self->data) != 0 || tw_write_u64(s, size) != 0) return -1;
  return vm_write_program(s, self->data);
}

static void executable_destroy(TwModule* self) {
  vm_free_program(self->data);
  free(self->data);
}

static const TwModuleClass executable_class = {
    .get_function = executable_function, .save = executable_save, .destroy = executable_destroy};

/* Reads a program from all that is left of a stream. */
static int new_executable(TilewrightStream* s, TwModule** out) {
  VmProgram* p = calloc(1, sizeof *p);
  if (p == NULL) return tw_out_of_memory(sizeof *p);
  int rc = vm_read_program(s, p);
  if (rc == 0 && s->left != 0) rc = tw_fail("damaged bytecode: %zu bytes follow its end", s->left);
  *out = rc == 0 ? tw_module_new(&executable_class, "VMExecutable", p) : NULL;
  if (*out != NULL) return 0;
  vm_free_program(p);
  free(p);
  return -1;
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

/* runtime.Load_Executable(bytecode, library), where the library may be None */
static int load_bytes(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  static const char who[] = "runtime.Load_Executable";
  TVMByteArray code;
  TwModule *m, *lib = NULL;
  (void)resource;
  if (tw_arg_bytes(args, codes, n, 0, who, &code) != 0) return -1;
  if (n > 1 && codes[1] != kTVMNullptr && tw_arg_module(args, codes, n, 1, who, &lib) != 0) return -1;
  TilewrightStream s = {.data = code.data, .left = code.size};
  if (new_executable(&s, &m) != 0) return -1;
  if (lib != NULL && tw_module_import(m, lib) != 0) {
    tw_module_release(m);
    return -1;
  }
  tw_return_handle(ret, m, kTVMModuleHandle);
  return 0;
}

TW_GLOBAL_FUNCTIONS({"runtime.module.loadbinary_VMExecutable", load_binary}, {"runtime.Load_Executable", load_bytes})
