/* Licensed under the Apache License, Version 2.0; see LICENSE. */
#include "npu.h"

#include <stddef.h>

static const DLDataType f32 = {kDLFloat, 32, 1};

static void rows_are_checked(void) {
  plug_npu_in();
  const TilewrightDeviceAPI good = *TilewrightDeviceFind(DSP);
  TilewrightDeviceAPI api = good;
  FAILS(TilewrightDeviceRegister(&api), "\"dsp\" takes device type 101, which belongs to \"dsp\"");
  api.device_type = 102;
  FAILS(TilewrightDeviceRegister(&api), "\"dsp\" takes device type 102, but device type 101 has that name already");
  api.name = "other";
  api.device_type = NPU;
  FAILS(TilewrightDeviceRegister(&api), "\"other\" takes device type 100, which belongs to \"npu\"");
  api.device_type = kDLOpenCL;
  FAILS(TilewrightDeviceRegister(&api), "\"other\" takes device type 4, which belongs to \"opencl\"");
  api.device_type = 128;
  FAILS(TilewrightDeviceRegister(&api), "device types are 1 to 127");
  api.device_type = 0;
  FAILS(TilewrightDeviceRegister(&api), "device types are 1 to 127");
  api.device_type = 102;
  api.name = "1st";
  FAILS(TilewrightDeviceRegister(&api), "begins with a letter");
  api.name = NULL;
  FAILS(TilewrightDeviceRegister(&api), "must have a name");
  api = good;
  api.name = "other";
  api.device_type = 102;
  api.copy = NULL;
  FAILS(TilewrightDeviceRegister(&api), "\"other\" lacks the function copy");
  api.copy = good.copy;
  api.stream_create = TilewrightDeviceFind(NPU)->stream_create;
  FAILS(TilewrightDeviceRegister(&api), "1 of stream_create, stream_free and stream_set");
  CHECK(TilewrightDeviceFind(102) == NULL && TilewrightDeviceFind(-1) == NULL && TilewrightDeviceFind(1000) == NULL);
}

/* Plug-ins of older and of newer headers. */
static void structs_of_other_sizes_are_read(void) {
  struct {
    TilewrightDeviceAPI api;
    void (*later)(void);
  } newer = {.api = *TilewrightDeviceFind(DSP)};
  newer.api.struct_size = offsetof(TilewrightDeviceAPI, copy);
  FAILS(TilewrightDeviceRegister(&newer.api), "set struct_size to sizeof(TilewrightDeviceAPI)");
  newer.api.struct_size = 0;
  FAILS(TilewrightDeviceRegister(&newer.api), "a size of 0 bytes");
  newer.api.struct_size = sizeof newer;
  newer.later = plug_npu_in;
  newer.api.name = "newer";
  newer.api.device_type = 102;
  FAILS(TilewrightDeviceRegister(&newer.api), "built for a newer runtime");
  newer.later = NULL;
  OK(TilewrightDeviceRegister(&newer.api));
  newer.api.struct_size = offsetof(TilewrightDeviceAPI, set); /* nothing behind is read */
  newer.api.set = (int (*)(void*, int))(void (*)(void))plug_npu_in;
  newer.api.name = "older";
  newer.api.device_type = 103;
  OK(TilewrightDeviceRegister(&newer.api));
  CHECK(TilewrightDeviceFind(103)->set == NULL);
}

static void devices_have_names(void) {
  CHECK(strcmp(TilewrightDeviceName(kDLCPU), "cpu") == 0 && strcmp(TilewrightDeviceName(NPU), "npu") == 0);
  CHECK(strcmp(TilewrightDeviceName(kDLMetal), "metal") == 0 && TilewrightDeviceFind(kDLMetal) == NULL);
  CHECK(TilewrightDeviceName(99) == NULL && TilewrightDeviceName(-4) == NULL);
  CHECK(TilewrightDeviceType("npu") == NPU && TilewrightDeviceType("cuda") == kDLCUDA && TilewrightDeviceType("x") == 0);
}

static TVMArrayHandle made_on(DLDevice device, int64_t size) {
  TVMArrayHandle a;
  OK(TVMArrayAlloc(&size, 1, kDLInt, 8, 1, device.device_type, device.device_id, &a));
  return a;
}

/* Host to device to device to host gives what went in, for sizes around those of pages and of nothing. */
static void arrays_round_trip(DLDevice first, DLDevice second) {
  const int64_t sizes[] = {0, 1, 7, 4095, 4096, 4097, 70001};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
    const int64_t size = sizes[i];
    char *in = malloc((size_t)size + 1), *out = calloc((size_t)size + 1, 1);
    for (int64_t k = 0; k < size; ++k) in[k] = (char)(k * 37 + 11);
    TVMArrayHandle a = made_on(first, size), b = made_on(second, size);
    OK(TVMArrayCopyFromBytes(a, in, (size_t)size));
    OK(TVMArrayCopyFromTo(a, b, NULL));
    OK(TVMArrayCopyToBytes(b, out, (size_t)size));
    CHECK(memcmp(in, out, (size_t)size) == 0);
    TVMArrayFree(a);
    TVMArrayFree(b);
    free(in);
    free(out);
  }
  CHECK(npu.held == 0 && dsp.held == 0);
}

static void bad_devices_are_refused(void) {
  TVMArrayHandle a;
  int64_t size = 8;
  FAILS(TVMArrayAlloc(&size, 1, kDLInt, 8, 1, NPU, 2, &a), "there is no device npu(2)");
  FAILS(TVMArrayAlloc(&size, 1, kDLInt, 8, 1, NPU, -1, &a), "there is no device npu(-1)");
  FAILS(TVMArrayAlloc(&size, 1, kDLInt, 8, 1, 99, 0, &a), "device type 99 (0)");
  FAILS(TVMArrayAlloc(&size, 1, kDLInt, 8, 1, kDLMetal, 3, &a), "device metal(3) (type 8) is not available");
}

static void memories_are_named(void) {
  TVMArrayHandle a;
  int64_t shape[2] = {3, 5};
  void* data;
  OK(TilewrightArrayAlloc(shape, 2, f32, npu1, "scratch", &a));
  CHECK(npu.scope != NULL && strcmp(npu.scope, "scratch") == 0 && a->device.device_id == 1);
  TVMArrayFree(a);
  FAILS(TilewrightArrayAlloc(shape, 2, f32, npu0, "texture", &a), "npu(0): there is no such memory");
  FAILS(TilewrightArrayAlloc(shape, 2, f32, cpu0, "texture", &a), "memory scope \"texture\" does not exist");
  OK(TilewrightArrayAlloc(shape, 2, f32, cpu0, "global", &a));
  TVMArrayFree(a);
  OK(TVMDeviceAllocDataSpaceWithScope(npu0, 2, shape, f32, "scratch", &data));
  OK(TVMDeviceFreeDataSpace(npu0, data));
  OK(TVMDeviceAllocDataSpace(npu0, 60, 64, f32, &data));
  OK(TVMDeviceFreeDataSpace(npu0, data));
  FAILS(TVMDeviceAllocDataSpace(npu0, 60, 48, f32, &data), "not a power of two");
  CHECK(npu.held == 0);
}

static void strided_tensors_of_the_host_are_copied(void) {
  float data[6] = {0, 1, 2, 3, 4, 5}, out[6] = {0}, back[6] = {0};
  int64_t shape[2] = {3, 2}, strides[2] = {1, 3}; /* the transpose of a 2x3 matrix */
  DLTensor from = {data, cpu0, 2, f32, shape, strides, 0}, to = {back, cpu0, 2, f32, shape, strides, 0};
  TVMArrayHandle a;
  OK(TVMArrayAlloc(shape, 2, kDLFloat, 32, 1, NPU, 0, &a));
  OK(TVMArrayCopyFromTo(&from, a, NULL));
  OK(TVMArrayCopyToBytes(a, out, sizeof out));
  CHECK(out[1] == 3 && out[2] == 1 && out[5] == 5);
  OK(TVMArrayCopyFromTo(a, &to, NULL));
  CHECK(memcmp(back, data, sizeof data) == 0);
  DLTensor far_side = *a;
  far_side.strides = strides;
  FAILS(TVMArrayCopyFromTo(&far_side, &to, NULL), "an array on npu(0) is strided");
  TVMArrayFree(a);
}

static void failures_name_the_device(void) {
  TVMArrayHandle a = made_on(npu0, 8), other;
  char bytes[8] = {0};
  int64_t size = 8;
  npu.refuse = true;
  FAILS(TVMArrayAlloc(&size, 1, kDLInt, 8, 1, NPU, 1, &other), "npu(1): the memory is full");
  FAILS(TVMArrayCopyFromBytes(a, bytes, 8), "npu(0): the link is down");
  npu.silent = true;
  FAILS(TVMArrayAlloc(&size, 1, kDLInt, 8, 1, NPU, 1, &other), "npu(1): alloc failed with code 7 and left no message");
  npu.refuse = npu.silent = false;
  TVMArrayFree(a);
}

static int64_t attribute(DLDevice device, int attr, TVMValue* value) {
  TVMFunctionHandle f;
  OK(TVMFuncGetGlobal("runtime.GetDeviceAttr", &f));
  TVMValue args[3] = {{.v_int64 = device.device_type}, {.v_int64 = device.device_id}, {.v_int64 = attr}};
  int codes[3] = {kTVMArgInt, kTVMArgInt, kTVMArgInt}, code = -1;
  if (TVMFuncCall(f, args, codes, 3, value, &code) != 0) code = -1;
  TVMFuncFree(f);
  return code;
}

static void attributes_are_asked_for(void) {
  TVMValue v;
  CHECK(attribute(npu1, kTilewrightExist, &v) == kTVMArgInt && v.v_int64 == 1);
  CHECK(attribute((DLDevice){NPU, 2}, kTilewrightExist, &v) == kTVMArgInt && v.v_int64 == 0);
  CHECK(attribute((DLDevice){kDLMetal, 0}, kTilewrightExist, &v) == kTVMArgInt && v.v_int64 == 0);
  CHECK(attribute(cpu0, kTilewrightExist, &v) == kTVMArgInt && v.v_int64 == 1);
  CHECK(attribute(npu1, kTilewrightDeviceName, &v) == kTVMStr && strcmp(v.v_str, "NPU one") == 0);
  CHECK(attribute(npu0, kTilewrightMultiProcessorCount, &v) == kTVMArgInt && v.v_int64 == 4);
  CHECK(attribute(npu0, kTilewrightWarpSize, &v) == kTVMNullptr);
  CHECK(attribute(cpu0, kTilewrightDeviceName, &v) == kTVMNullptr);
  CHECK(attribute(dsp0, kTilewrightDeviceName, &v) == kTVMNullptr);
  CHECK(attribute((DLDevice){kDLMetal, 0}, kTilewrightDeviceName, &v) == -1 && strstr(TVMGetLastError(), "metal(0)") != NULL);
  CHECK(attribute(npu0, 77, &v) == -1 && strstr(TVMGetLastError(), "no attribute 77") != NULL);
}

static void streams_are_the_devices(void) {
  TVMStreamHandle stream;
  TVMArrayHandle a = made_on(npu0, 8), b = filled(1, (int64_t[]){2}, 1);
  OK(TVMStreamCreate(NPU, 0, &stream));
  CHECK(stream == &npu);
  OK(TVMSetStream(NPU, 0, stream));
  npu.synchronized = 0;
  OK(TVMArrayCopyFromTo(b, a, stream));
  CHECK(npu.stream == stream && npu.synchronized == 0); /* the caller waits for a stream of his own */
  OK(TVMSynchronize(NPU, 0, stream));
  CHECK(npu.synchronized == 1);
  OK(TVMArrayCopyFromTo(b, a, NULL));
  CHECK(npu.stream == NULL && npu.synchronized == 2);
  OK(TVMStreamStreamSynchronize(NPU, 0, stream, NULL));
  CHECK(npu.synchronized == 3);
  OK(TVMStreamFree(NPU, 0, stream));
  FAILS(TVMStreamCreate(NPU, 5, &stream), "no device npu(5)");
  FAILS(TVMSynchronize(kDLMetal, 0, NULL), "metal(0)");
  /* a device without streams has the default one */
  OK(TVMStreamCreate(DSP, 0, &stream));
  CHECK(stream == NULL);
  OK(TVMSetStream(DSP, 0, NULL));
  OK(TVMSynchronize(DSP, 0, NULL));
  OK(TVMStreamStreamSynchronize(DSP, 0, NULL, NULL));
  OK(TVMStreamFree(DSP, 0, stream));
  OK(TVMStreamCreate(kDLCPU, 0, &stream));
  OK(TVMStreamFree(kDLCPU, 0, stream));
  TVMArrayFree(a);
  TVMArrayFree(b);
}

static void* use_workspaces(void* unused) {
  void* a = TVMBackendAllocWorkspace(NPU, 0, 1000, kDLFloat, 32);
  void* b = TVMBackendAllocWorkspace(kDLCPU, 0, 1000, kDLFloat, 32);
  void* c = TVMBackendAllocWorkspace(NPU, 1, 1000, kDLFloat, 32);
  CHECK(a != NULL && b != NULL && c != NULL && npu.held == 2);
  memset(b, 1, 1000);
  FAILS(TVMBackendFreeWorkspace(NPU, 1, a), "does not hold");
  OK(TVMBackendFreeWorkspace(NPU, 1, c));
  OK(TVMBackendFreeWorkspace(kDLCPU, 0, b));
  OK(TVMBackendFreeWorkspace(NPU, 0, a));
  CHECK(TVMBackendAllocWorkspace(NPU, 0, 900, kDLFloat, 32) == a); /* kept for the next */
  OK(TVMBackendFreeWorkspace(NPU, 0, a));
  npu.refuse = true;
  CHECK(TVMBackendAllocWorkspace(NPU, 0, 1 << 20, kDLFloat, 32) == NULL);
  CHECK(strstr(TVMGetLastError(), "npu(0): the memory is full") != NULL);
  npu.refuse = false;
  a = TVMBackendAllocWorkspace(NPU, 0, 0, kDLFloat, 32);
  CHECK(a != NULL);
  OK(TVMBackendFreeWorkspace(NPU, 0, a));
  return unused;
}

static void workspaces_are_on_the_device_and_go_with_the_thread(void) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, use_workspaces, NULL) == 0);
  pthread_join(thread, NULL);
  CHECK(npu.held == 0);
}

static void a_device_is_set(void) {
  TVMFunctionHandle f;
  TVMValue args[2] = {{.v_int64 = NPU}, {.v_int64 = 1}}, ret;
  int codes[2] = {kTVMArgInt, kTVMArgInt}, code;
  OK(TVMFuncGetGlobal("__tvm_set_device", &f));
  OK(TVMFuncCall(f, args, codes, 2, &ret, &code));
  CHECK(npu.id == 1);
  args[0].v_int64 = DSP; /* which has no such function, */
  args[1].v_int64 = 0;
  OK(TVMFuncCall(f, args, codes, 2, &ret, &code));
  args[1].v_int64 = 5; /* and is one */
  FAILS(TVMFuncCall(f, args, codes, 2, &ret, &code), "no device dsp(5)");
  TVMFuncFree(f);
}

static void what_is_no_plugin_is_refused(const char* library) {
  FAILS(TilewrightLoadPlugin("/no/such/plugin.so"), "cannot load the plug-in /no/such/plugin.so");
  FAILS(TilewrightLoadPlugin(library), "has no function TilewrightPluginInit");
}

void test_devices(const char* library) {
  rows_are_checked();
  structs_of_other_sizes_are_read();
  devices_have_names();
  arrays_round_trip(npu0, npu0);
  arrays_round_trip(npu0, npu1);
  arrays_round_trip(cpu0, npu1);
  arrays_round_trip(npu1, dsp0);
  arrays_round_trip(dsp0, npu0);
  bad_devices_are_refused();
  memories_are_named();
  strided_tensors_of_the_host_are_copied();
  failures_name_the_device();
  attributes_are_asked_for();
  streams_are_the_devices();
  workspaces_are_on_the_device_and_go_with_the_thread();
  a_device_is_set();
  what_is_no_plugin_is_refused(library);
}
