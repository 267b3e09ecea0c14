/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Global functions about devices and threads. */
#include "function.h"

/* ---- devices ---- */
static int device_attribute(DLDevice device, int64_t attr, TwReturn* ret) {
  if (attr < kTilewrightExist || attr > kTilewrightDriverVersion) {
    return tw_fail("a device has no attribute %lld", (long long)attr);
  }
  const bool remote = device.device_type > TILEWRIGHT_MAX_DEVICE_TYPE; /* the other machine knows */
  if (attr != kTilewrightExist || remote) return tw_device_attribute(device, (int)attr, ret);
  bool exists;
  if (tw_device_exists(device, &exists) != 0) return -1;
  tw_return_int(ret, exists);
  return 0;
}

int TilewrightDeviceGetAttr(DLDevice device, int attr, TVMValue* ret_val, int* ret_code) {
  TwReturn ret = {.value = {0}, .code = kTVMNullptr};
  if (device_attribute(device, attr, &ret) != 0) return -1;
  *ret_val = ret.value;
  *ret_code = ret.code;
  return 0;
}

/* runtime.GetDeviceAttr(device type, device id, attribute), as TVM's Device asks */
static int get_device_attr(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  static const char who[] = "runtime.GetDeviceAttr";
  DLDevice device;
  int64_t attr;
  int used;
  (void)resource;
  if (tw_arg_device(args, codes, n, 0, who, &device, &used) != 0 || tw_arg_int(args, codes, n, used, who, &attr) != 0) {
    return -1;
  }
  return device_attribute(device, attr, ret);
}

/* __tvm_set_device(device type, device id): what host code of other devices' kernels calls first */
static int set_device(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  DLDevice device;
  int used;
  (void)ret;
  (void)resource;
  return tw_arg_device(args, codes, n, 0, "__tvm_set_device", &device, &used) != 0 ? -1 : tw_device_set(device);
}

/* ---- checks on devices: what their host code calls before and after the launch ---- */
/* tilewright.findings(name of the indices, a tensor of the device, rows) -> the address of their records */
static int findings(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  static const char who[] = "tilewright.findings";
  const char* what;
  DLTensor* tensor;
  int64_t rows;
  (void)resource;
  if (tw_arg_str(args, codes, n, 0, who, &what) != 0 || tw_arg_tensor(args, codes, n, 1, who, &tensor) != 0 ||
      tw_arg_int(args, codes, n, 2, who, &rows) != 0) {
    return -1;
  }
  if (rows < 1 || rows > INT32_MAX) return tw_fail("%s: %lld rows", who, (long long)rows);
  void* record = tw_findings_record(what, tensor->device, (size_t)rows);
  if (record == NULL) return -1;
  tw_return_handle(ret, record, kTVMOpaqueHandle);
  return 0;
}

static int findings_launched(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  (void)args, (void)codes, (void)n, (void)ret, (void)resource;
  return tw_findings_launched();
}

/* tilewright.copy_to_host(a tensor of the device, memory of the host that holds as many bytes) */
static int copy_to_host(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  static const char who[] = "tilewright.copy_to_host";
  DLTensor* tensor;
  (void)ret, (void)resource;
  if (tw_arg_tensor(args, codes, n, 0, who, &tensor) != 0) return -1;
  if (n != 2 || codes[1] != kTVMOpaqueHandle) return tw_fail("%s: argument 1 must be memory of the host", who);
  DLTensor host = *tensor;
  host.data = args[1].v_handle;
  host.byte_offset = 0;
  host.device = (DLDevice){kDLCPU, 0};
  return tw_copy(tensor, &host);
}

/* ---- threads ---- */
static int config_threadpool(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  static const char who[] = "runtime.config_threadpool";
  int64_t mode, threads;
  (void)ret;
  (void)resource;
  /* the affinity mode is TVM's first argument; the system's own scheduling is kept */
  if (tw_arg_int(args, codes, n, 0, who, &mode) != 0 || tw_arg_int(args, codes, n, 1, who, &threads) != 0) return -1;
  return TilewrightSetNumThreads(threads < 0 || threads > INT32_MAX ? -1 : (int)threads);
}

static int num_threads(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  (void)args;
  (void)codes;
  (void)n;
  (void)resource;
  tw_return_int(ret, TilewrightNumThreads());
  return 0;
}

TW_GLOBAL_FUNCTIONS({"runtime.GetDeviceAttr", get_device_attr}, {"__tvm_set_device", set_device},
                    {"tilewright.findings", findings}, {"tilewright.findings_launched", findings_launched},
                    {"tilewright.copy_to_host", copy_to_host},
                    {"runtime.config_threadpool", config_threadpool}, {"runtime.NumThreads", num_threads})
