/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Device modules: on CUDA against the stand-in for its driver (tests/runtime/cuda_double), which TILEWRIGHT_CUDA names; on
 * OpenCL against what is here. */
#include "test.h"

#include <tilewright_device.h>

enum { N = 1000, ROUNDS = 20 };
static const DLDataType f32 = {kDLFloat, 32, 1};

static const char ptx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry scaled_add(.param .u64 a, .param .u64 b, .param .u64 c, .param .f32 scale, .param .u32 n) { ret; }\n";
static const char cl[] =
    "__kernel void scaled_add(__global float* a, __global float* b, __global float* c, float scale, int n) {\n"
    "  int i = get_global_id(0);\n  if (i < n) c[i] = a[i] * scale + b[i];\n}\n";
static const char table[] =
    "{\"scaled_add\": {\"arg_types\": [\"handle\", \"handle\", \"handle\", \"float32\", \"int32\"], "
    "\"launch_param_tags\": [\"blockIdx.x\", \"threadIdx.x\"]}}";

typedef struct {
  TVMModuleHandle module;
  DLDevice device;
  TVMStreamHandle stream; /* or NULL */
} Launcher;

static TVMModuleHandle create(const char* name, const char* data, const char* format, const char* kernels, int* rc) {
  TVMValue args[4] = {{.v_str = data}, {.v_str = format}, {.v_str = kernels}, {.v_str = ""}}, ret;
  int codes[4] = {kTVMStr, kTVMStr, kTVMStr, kTVMStr}, code;
  TVMFunctionHandle make;
  OK(TVMFuncGetGlobal(name, &make));
  CHECK(make != NULL);
  *rc = TVMFuncCall(make, args, codes, 4, &ret, &code);
  TVMFuncFree(make);
  if (*rc != 0) return NULL;
  CHECK(code == kTVMModuleHandle);
  return ret.v_handle;
}

static int launch(const Launcher* l, TVMArrayHandle a, TVMArrayHandle b, TVMArrayHandle c, int64_t blocks, int64_t threads) {
  TVMValue args[7] = {{.v_handle = a}, {.v_handle = b}, {.v_handle = c}, {.v_float64 = 2}, {.v_int64 = N}, {.v_int64 = blocks}, {.v_int64 = threads}};
  int codes[7] = {kTVMNDArrayHandle, kTVMNDArrayHandle, kTVMNDArrayHandle, kTVMArgFloat, kTVMArgInt, kTVMArgInt, kTVMArgInt}, code;
  TVMValue ret;
  TVMFunctionHandle kernel;
  OK(TVMModGetFunction(l->module, "scaled_add", 0, &kernel));
  CHECK(kernel != NULL);
  const int rc = TVMFuncCall(kernel, args, codes, 7, &ret, &code);
  TVMFuncFree(kernel);
  return rc;
}

static TVMArrayHandle array_on(DLDevice device, float value) {
  const int64_t size = N;
  TVMArrayHandle there, here = filled(1, &size, value);
  OK(TVMArrayAlloc(&size, 1, f32.code, f32.bits, f32.lanes, (int)device.device_type, device.device_id, &there));
  OK(TVMArrayCopyFromTo(here, there, NULL));
  OK(TVMArrayFree(here));
  return there;
}

/* c = 2a + b again and again, each time with arrays of its own. */
static void* launch_often(void* launcher) {
  const Launcher* l = launcher;
  float result[N];
  OK(TVMSetStream((int)l->device.device_type, l->device.device_id, l->stream));
  for (int i = 0; i < ROUNDS; ++i) {
    TVMArrayHandle a = array_on(l->device, (float)i), b = array_on(l->device, 1), c = array_on(l->device, 0);
    OK(launch(l, a, b, c, (N + 31) / 32, 32));
    OK(TVMArrayCopyToBytes(c, result, sizeof result));
    for (int k = 0; k < N; ++k) CHECK(result[k] == (float)(2 * i + 1));
    OK(TVMArrayFree(a));
    OK(TVMArrayFree(b));
    OK(TVMArrayFree(c));
  }
  OK(TVMSetStream((int)l->device.device_type, l->device.device_id, NULL));
  return NULL;
}

static void threads_launch_at_once(const Launcher* l) {
  pthread_t threads[4];
  Launcher own[4];
  for (int i = 0; i < 4; ++i) {
    own[i] = *l;
    if (i % 2 == 1) OK(TVMStreamCreate((int)l->device.device_type, l->device.device_id, &own[i].stream));
    CHECK(pthread_create(&threads[i], NULL, launch_often, &own[i]) == 0);
  }
  for (int i = 0; i < 4; ++i) {
    CHECK(pthread_join(threads[i], NULL) == 0);
    if (own[i].stream != NULL) OK(TVMStreamFree((int)l->device.device_type, l->device.device_id, own[i].stream));
  }
}

static void mistakes_are_told(const Launcher* l, const char* maker, const char* format) {
  int rc;
  char text[256];
  TVMArrayHandle a = array_on(l->device, 1);
  FAILS(launch(l, a, a, a, 1, 1 << 20), "kernel scaled_add asks for 1048576 threads");
  OK(TVMArrayFree(a));
  CHECK(create(maker, "", "nonsense", "{}", &rc) == NULL && strstr(TVMGetLastError(), "has the format \"nonsense\"") != NULL);
  CHECK(create(maker, "", format, "{\"f\": {}}", &rc) == NULL && strstr(TVMGetLastError(), "lacks arg_types") != NULL);
  CHECK(create(maker, "", format, "{\"f\": ", &rc) == NULL);
  const int64_t huge = (int64_t)1 << 50;
  snprintf(text, sizeof text, "%s(0): out of device memory: 1125899906842624 bytes", TilewrightDeviceName((int)l->device.device_type));
  FAILS(TVMArrayAlloc(&huge, 1, kDLInt, 8, 1, (int)l->device.device_type, 0, &a), text);
  TVMStreamHandle stream;
  FAILS(TVMStreamCreate((int)l->device.device_type, 99, &stream), "there is no device");
}

static void test_kind(DLDevice device, const char* maker, const char* data, const char* format) {
  int rc;
  Launcher l = {create(maker, data, format, table, &rc), device, NULL};
  OK(rc);
  TVMValue name;
  int code;
  OK(TilewrightDeviceGetAttr(device, kTilewrightDeviceName, &name, &code));
  CHECK(code == kTVMStr && name.v_str[0] != '\0');
  launch_often(&l);
  threads_launch_at_once(&l);
  mistakes_are_told(&l, maker, format);
  OK(TVMModFree(l.module));
}

void test_cuda(void) {
  if (getenv("TILEWRIGHT_CUDA") != NULL) test_kind((DLDevice){kDLCUDA, 0}, "runtime.module.create_cuda", ptx, "ptx");
}

void test_opencl(void) { test_kind((DLDevice){kDLOpenCL, 0}, "runtime.module.create_opencl", cl, "cl"); }
