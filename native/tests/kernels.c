/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * What a compiled library looks like, by hand: pointer variables that the loader fills, functions of the packed
 * signature, and the entry's name. Tests build it as a shared library and as an object. */
#include <stddef.h>
#include <string.h>
#include <tvm/runtime/c_backend_api.h>

int (*__TVMFuncCall)(TVMFunctionHandle, TVMValue*, int*, int, TVMValue*, int*);
int (*__TVMBackendGetFuncFromEnv)(void*, const char*, TVMFunctionHandle*);
int (*__TVMBackendParallelLaunch)(FTVMParallelLambda, void*, int);
void* (*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int);
int (*__TVMBackendFreeWorkspace)(int, int, void*);
void (*__TVMAPISetLastError)(const char*);
void* __tvm_module_ctx;
const char __tvm_main__[] = "add_one";
#ifdef NEEDED_FEATURES
const char __tilewright_cpu_features[] = NEEDED_FEATURES;
#endif

static int fail(const char* text) {
  __TVMAPISetLastError(text);
  return -1;
}

static int64_t count_of(const DLTensor* t) {
  int64_t n = 1;
  for (int i = 0; i < t->ndim; ++i) n *= t->shape[i];
  return n;
}

typedef struct {
  const float* in;
  float* out;
  int64_t n;
} Part;

static int add_one_part(int task, TVMParallelGroupEnv* env, void* data) {
  const Part* p = data;
  int64_t step = (p->n + env->num_task - 1) / env->num_task, end = step * (task + 1);
  for (int64_t i = step * task; i < end && i < p->n; ++i) p->out[i] = p->in[i] + 1.0f;
  return 0;
}

/* out = in + 1, by way of a workspace */
int add_one(TVMValue* args, int* codes, int n, TVMValue* ret, int* ret_code, void* resource) {
  (void)ret;
  (void)ret_code;
  (void)resource;
  if (n != 2 || (codes[0] != kTVMDLTensorHandle && codes[0] != kTVMNDArrayHandle)) {
    return fail("Assert fail: add_one takes 2 tensors");
  }
  const DLTensor *in = args[0].v_handle, *out = args[1].v_handle;
  if (in->dtype.code != kDLFloat || in->dtype.bits != 32) return fail("Assert fail: add_one takes float32");
  int64_t count = count_of(in);
  float* temporary = __TVMBackendAllocWorkspace(kDLCPU, 0, (uint64_t)count * sizeof(float), kDLFloat, 32);
  if (temporary == NULL) return -1;
  Part p = {in->data, temporary, count};
  int rc = __TVMBackendParallelLaunch(add_one_part, &p, 0);
  memcpy(out->data, temporary, (size_t)count * sizeof(float));
  return __TVMBackendFreeWorkspace(kDLCPU, 0, temporary) != 0 ? -1 : rc;
}

/* out = a + b; with flattened arguments it sees one dimension */
int add_flat(TVMValue* args, int* codes, int n, TVMValue* ret, int* ret_code, void* resource) {
  (void)codes;
  (void)ret;
  (void)ret_code;
  (void)resource;
  const DLTensor *a = args[0].v_handle, *b = args[1].v_handle, *out = args[2].v_handle;
  if (n != 3 || a->ndim != 1 || b->ndim != 1 || out->ndim != 1) return fail("Assert fail: flat tensors expected");
  for (int64_t i = 0; i < out->shape[0]; ++i) {
    ((float*)out->data)[i] = ((const float*)a->data)[i] + ((const float*)b->data)[i];
  }
  return 0;
}

/* Passes its arguments to the global function "test.from_compiled" and returns its integer. */
int call_back(TVMValue* args, int* codes, int n, TVMValue* ret, int* ret_code, void* resource) {
  (void)resource;
  TVMFunctionHandle f;
  if (__TVMBackendGetFuncFromEnv(__tvm_module_ctx, "test.from_compiled", &f) != 0) return -1;
  return __TVMFuncCall(f, args, codes, n, ret, ret_code);
}
