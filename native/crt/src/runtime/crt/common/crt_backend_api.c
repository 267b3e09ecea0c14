/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * What compiled code calls, on a board: memory of the platform, and loops of one task. */
#include <tvm/runtime/c_backend_api.h>
#include <tvm/runtime/crt/platform.h>

void* TVMBackendAllocWorkspace(int device_type, int device_id, uint64_t nbytes, int dtype_code_hint,
                               int dtype_bits_hint) {
  const DLDevice device = {(DLDeviceType)device_type, device_id};
  void* block = NULL;
  (void)dtype_code_hint, (void)dtype_bits_hint;
  if (nbytes > (size_t)-1) return NULL;
  return TVMPlatformMemoryAllocate((size_t)nbytes, device, &block) == kTvmErrorNoError ? block : NULL;
}

int TVMBackendFreeWorkspace(int device_type, int device_id, void* ptr) {
  const DLDevice device = {(DLDeviceType)device_type, device_id};
  return TVMPlatformMemoryFree(ptr, device) == kTvmErrorNoError ? 0 : -1;
}

int TVMBackendParallelLaunch(FTVMParallelLambda flambda, void* cdata, int num_task) {
  TVMParallelGroupEnv env = {NULL, 1};
  (void)num_task;
  return flambda(0, &env, cdata);
}

int TVMBackendParallelBarrier(int task_id, TVMParallelGroupEnv* penv) {
  (void)task_id, (void)penv;
  return 0;
}

int TVMBackendRegisterSystemLibSymbol(const char* name, void* ptr) {
  return TVMFuncRegisterGlobal(name, ptr, 0);
}
