/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * What tuning asks of a board: times of functions, and data to run them on. */
#include <string.h>
#include <tvm/runtime/crt/platform.h>

#include "board_rpc.h"

#define MEASURES 4
#define FIRST_HANDLE ((uint64_t)1 << 24)

typedef struct {
  uint32_t function;
  int64_t number, repeat, least_ms;
} Measure;

static Measure measures[MEASURES];
static uint32_t next_measure;
static double seconds[BOARD_RPC_REPEATS];
static TVMByteArray bytes;

int BoardIsMeasure(uint64_t handle, uint32_t* number) {
  *number = (uint32_t)(handle - FIRST_HANDLE);
  return handle >= FIRST_HANDLE && handle - FIRST_HANDLE < MEASURES;
}

/* runtime.RPCTimeEvaluator(module, name, device type, device, number, repeat, least milliseconds of a repeat, what runs
 * before each repeat): a function that takes the measured one's arguments and returns seconds of a run as bytes. There are
 * four at a time; the oldest makes room. */
static int time_evaluator(TVMValue* args, int* codes, int count, TVMValue* ret, int* ret_code, void* resource) {
  (void)resource;
  if (count < 7 || codes[1] != kTVMStr) return BoardFail("runtime.RPCTimeEvaluator takes a module, a name and numbers", "");
  const Measure m = {BoardFindFunction(args[1].v_str), args[4].v_int64, args[5].v_int64, args[6].v_int64};
  if (m.function == 0) return BoardFail("there is no function ", args[1].v_str);
  if (m.number < 1 || m.repeat < 1 || m.repeat > BOARD_RPC_REPEATS) {
    return BoardFail("a measurement takes 1 run at least, and up to BOARD_RPC_REPEATS repeats", "");
  }
  measures[next_measure] = m;
  ret->v_int64 = (int64_t)(FIRST_HANDLE + next_measure);
  *ret_code = kTVMPackedFuncHandle;
  next_measure = (next_measure + 1) % MEASURES;
  return 0;
}

/* Seconds of `number` runs. */
static int run(TVMBackendPackedCFunc call, int64_t number, TVMValue* args, int* codes, int count, double* elapsed) {
  TVMValue value;
  int code = kTVMNullptr;
  if (TVMPlatformTimerStart() != kTvmErrorNoError) return BoardFail("the board's timer does not start", "");
  for (int64_t i = 0; i < number; ++i) {
    if (call(args, codes, count, &value, &code, NULL) != 0) return -1;
  }
  if (TVMPlatformTimerStop(elapsed) != kTvmErrorNoError) return BoardFail("the board's timer does not stop", "");
  return 0;
}

int BoardMeasure(uint32_t number, TVMValue* args, int* codes, int count, TVMValue* ret, int* ret_code) {
  Measure* m = &measures[number];
  const BoardFunction* f = BoardFunctionOf(m->function);
  double elapsed = 0;
  if (f == NULL) return BoardFail("a measurement is run that there is not", "");
  if (run(f->call, 1, args, codes, count, &elapsed) != 0) return -1; /* caches are warm then, and pages are there */
  for (int64_t i = 0; i < m->repeat; ++i) {
    for (;;) {
      if (run(f->call, m->number, args, codes, count, &elapsed) != 0) return -1;
      if (elapsed * 1e3 >= (double)m->least_ms) break;
      const double needed = (double)m->least_ms * 1e-3 / (elapsed > 1e-9 ? elapsed : 1e-9) * (double)m->number;
      const int64_t grown = m->number + m->number / 2 + 1;
      m->number = needed > (double)(m->number * 16) ? m->number * 16 : (int64_t)needed > grown ? (int64_t)needed + 1 : grown;
    }
    seconds[i] = elapsed / (double)m->number;
  }
  bytes = (TVMByteArray){(const char*)seconds, (size_t)m->repeat * sizeof *seconds};
  ret->v_handle = &bytes;
  *ret_code = kTVMBytes;
  return 0;
}

/* tvm.contrib.random.random_fill(array): floats from 0 to 1, integers from 0 to 15. Marsaglia, "Xorshift RNGs", 2003. */
static int random_fill(TVMValue* args, int* codes, int count, TVMValue* ret, int* ret_code, void* resource) {
  static uint32_t state = 2463534242u;
  (void)ret, (void)ret_code, (void)resource;
  if (count != 1 || codes[0] != kTVMDLTensorHandle) return BoardFail("random_fill takes an array", "");
  const DLTensor* t = args[0].v_handle;
  uint64_t size = (uint64_t)(t->dtype.bits * t->dtype.lanes + 7) / 8;
  for (int i = 0; i < t->ndim; ++i) size *= (uint64_t)t->shape[i];
  char* data = (char*)t->data + t->byte_offset;
  const int is_float = t->dtype.code == kDLFloat && t->dtype.bits == 32;
  const uint64_t step = is_float ? sizeof(float) : 1;
  for (uint64_t at = 0; at + step <= size; at += step) {
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    const float small = (float)(state >> 8) / 16777216.0f;
    if (is_float) memcpy(data + at, &small, sizeof small);
    else data[at] = (char)(at % (t->dtype.bits < 8 ? 1 : t->dtype.bits / 8) == 0 && t->dtype.code != kDLFloat ? state & 15 : 0);
  }
  return 0;
}

/* Boards have no caches to clear, or small ones. */
static int flush(TVMValue* args, int* codes, int count, TVMValue* ret, int* ret_code, void* resource) {
  (void)args, (void)codes, (void)count, (void)ret, (void)ret_code, (void)resource;
  return 0;
}

const BoardFunction board_timing_functions[] = {{"runtime.RPCTimeEvaluator", time_evaluator},
                                                {"tvm.contrib.random.random_fill", random_fill},
                                                {"cache_flush_cpu_non_first_arg", flush},
                                                {NULL, NULL}};
