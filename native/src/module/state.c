/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * "tilewright.state": the first values of inputs that a model keeps from run to run; the output NAME.next of a run is the
 * next value of the input NAME. */
#include "module.h"

/* state_count() */
static int state_count(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  const TwParams* state = ((TwModule*)resource)->data;
  (void)args, (void)codes, (void)n;
  tw_return_int(ret, (int64_t)state->count);
  return 0;
}

static int index_of_args(const TwParams* state, TVMValue* args, int* codes, int n, const char* who, size_t* out) {
  int64_t index;
  if (tw_arg_int(args, codes, n, 0, who, &index) != 0) return -1;
  if (index < 0 || (uint64_t)index >= state->count) {
    return tw_fail("%s: the index %lld is not one of %zu", who, (long long)index, state->count);
  }
  *out = (size_t)index;
  return 0;
}

/* state_name(index) */
static int state_name(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  const TwParams* state = ((TwModule*)resource)->data;
  size_t index;
  if (index_of_args(state, args, codes, n, "state_name", &index) != 0) return -1;
  return tw_return_string(ret, state->names[index]);
}

/* state_value(index) */
static int state_value(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  const TwParams* state = ((TwModule*)resource)->data;
  size_t index;
  if (index_of_args(state, args, codes, n, "state_value", &index) != 0) return -1;
  tw_return_handle(ret, tw_array_retain(state->arrays[index]), kTVMNDArrayHandle);
  return 0;
}

static int state_function(TwModule* self, const char* name, TwFunc** out) {
  static const TwBuiltin functions[] = {
      {"state_count", state_count}, {"state_name", state_name}, {"state_value", state_value}};
  for (size_t i = 0; i < sizeof functions / sizeof functions[0]; ++i) {
    if (strcmp(functions[i].name, name) != 0) continue;
    *out = tw_func_method(functions[i].callback, self);
    return *out == NULL ? -1 : 0;
  }
  return 0;
}

static int state_save(TwModule* self, TilewrightStream* s) { return tw_write_named(s, self->data); }

static void state_free(TwParams* state) {
  tw_free_params(state);
  free(state);
}

static void state_destroy(TwModule* self) { state_free(self->data); }

static int return_state(TwParams* state, int rc, TVMRetValueHandle ret) {
  static const TwModuleClass class = {.get_function = state_function, .save = state_save, .destroy = state_destroy};
  TwModule* m = rc == 0 ? tw_module_new(&class, "tilewright.state", state) : NULL;
  if (m == NULL) {
    state_free(state);
    return -1;
  }
  tw_return_handle(ret, m, kTVMModuleHandle);
  return 0;
}

/* tilewright.StateModuleCreate(name, array, ...) */
static int create_state(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  static const char who[] = "tilewright.StateModuleCreate";
  (void)resource;
  TwParams* state = calloc(1, sizeof *state);
  if (state == NULL) return tw_out_of_memory(sizeof *state);
  return return_state(state, tw_arg_params(state, args, codes, n, 0, ((size_t)n + 1) / 2, who), ret);
}

/* runtime.module.loadbinary_tilewright.state(stream) */
static int load_state(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  TilewrightStream* s;
  (void)resource;
  if (tw_loader_stream(args, codes, n, "runtime.module.loadbinary_tilewright.state", &s) != 0) return -1;
  TwParams* state = calloc(1, sizeof *state);
  if (state == NULL) return tw_out_of_memory(sizeof *state);
  return return_state(state, tw_read_named(s, state), ret);
}

TW_GLOBAL_FUNCTIONS({"tilewright.StateModuleCreate", create_state},
                    {"runtime.module.loadbinary_tilewright.state", load_state})
