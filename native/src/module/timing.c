/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * How long functions take. */
#include "module.h"

typedef struct {
  TwFunc* func;
  TwFunc* prepare; /* called before each repeat; may be NULL */
  DLDevice device;
  int64_t number, repeat;
  double least_seconds;
} Evaluator;

static int call_and_free(TwFunc* f, TVMValue* args, int* codes, int n) {
  TVMValue ret;
  int code;
  if (TVMFuncCall(f, args, codes, n, &ret, &code) != 0) return -1;
  tw_drop_value(ret, code);
  return 0;
}

/* Seconds that so many calls take. */
static int time_calls(const Evaluator* e, TVMValue* args, int* codes, int n, int64_t number, double* elapsed) {
  TwTimer timer;
  double unused;
  if (tw_device_timer_start(e->device, &timer) != 0) return -1;
  for (int64_t i = 0; i < number; ++i) {
    if (call_and_free(e->func, args, codes, n) == 0) continue;
    char* said = tw_strdup(TVMGetLastError());
    tw_device_timer_stop(&timer, &unused);
    tw_fail("%s", said == NULL ? "out of memory" : said);
    free(said);
    return -1;
  }
  return tw_device_timer_stop(&timer, elapsed);
}

/* Seconds that one call takes, over at least `number` calls and `least_seconds`. */
static int time_repeat(const Evaluator* e, TVMValue* args, int* codes, int n, double* out) {
  int64_t number = e->number;
  double elapsed = 0;
  for (;;) {
    if (e->prepare != NULL && call_and_free(e->prepare, args, codes, n) != 0) return -1;
    if (time_calls(e, args, codes, n, number, &elapsed) != 0) return -1;
    if (elapsed >= e->least_seconds) break;
    double one = elapsed / (double)number;
    double needed = one > 0 ? e->least_seconds / one + 1 : (double)number * 2;
    double grown = (double)number * 1.618 + 1;
    number = (int64_t)(needed > grown ? needed : grown);
  }
  *out = elapsed / (double)number;
  return 0;
}

static int evaluate(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  const Evaluator* e = resource;
  double* seconds = malloc((size_t)e->repeat * sizeof(double));
  if (seconds == NULL) return tw_out_of_memory((size_t)e->repeat * sizeof(double));
  int rc = call_and_free(e->func, args, codes, n); /* the first call allocates; it is not counted */
  for (int64_t i = 0; rc == 0 && i < e->repeat; ++i) rc = time_repeat(e, args, codes, n, &seconds[i]);
  if (rc == 0) rc = tw_return_bytes(ret, seconds, (size_t)e->repeat * sizeof(double));
  free(seconds);
  return rc;
}

static void free_evaluator(void* resource) {
  Evaluator* e = resource;
  tw_func_release(e->func);
  tw_func_release(e->prepare);
  free(e);
}

/* runtime.RPCTimeEvaluator(module or None for global functions, function, device type, device id, number, repeat, min_repeat_ms, prepare)
 * -> function; called with the arguments it returns repeat doubles, seconds a call */
static int time_evaluator(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  static const char who[] = "runtime.RPCTimeEvaluator";
  TwModule* m = NULL;
  const char *name, *prepare;
  int64_t type, id, number, repeat, min_ms;
  (void)resource;
  const bool global = n > 0 && codes[0] == kTVMNullptr;
  if ((!global && tw_arg_module(args, codes, n, 0, who, &m) != 0) || tw_arg_str(args, codes, n, 1, who, &name) != 0 ||
      tw_arg_int(args, codes, n, 2, who, &type) != 0 || tw_arg_int(args, codes, n, 3, who, &id) != 0 ||
      tw_arg_int(args, codes, n, 4, who, &number) != 0 || tw_arg_int(args, codes, n, 5, who, &repeat) != 0 ||
      tw_arg_int(args, codes, n, 6, who, &min_ms) != 0 || tw_arg_str(args, codes, n, 7, who, &prepare) != 0) {
    return -1;
  }
  if (number < 1 || repeat < 1) return tw_fail("%s: number and repeat must be 1 or more", who);
  Evaluator* e = calloc(1, sizeof *e);
  if (e == NULL) return tw_out_of_memory(sizeof *e);
  *e = (Evaluator){.device = {(int32_t)type, (int32_t)id}, .number = number, .repeat = repeat,
                   .least_seconds = (double)min_ms * 1e-3};
  TVMFunctionHandle f = NULL;
  if (global) e->func = tw_find_global(name);
  int rc = global ? 0 : tw_module_find(m, name, true, &e->func);
  if (rc == 0 && e->func == NULL) rc = tw_fail("%s no function named \"%s\"", global ? "there is" : "the module has", name);
  if (rc == 0 && prepare[0] != '\0' && (e->prepare = tw_find_global(prepare)) == NULL) {
    rc = tw_fail("there is no global function named \"%s\"", prepare);
  }
  if (rc == 0) rc = TVMFuncCreateFromCFunc(evaluate, e, free_evaluator, &f);
  if (rc != 0) {
    free_evaluator(e);
    return -1;
  }
  tw_return_handle(ret, f, kTVMPackedFuncHandle);
  return 0;
}

TW_GLOBAL_FUNCTIONS({"runtime.RPCTimeEvaluator", time_evaluator})
