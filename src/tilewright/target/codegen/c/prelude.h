#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "tvm/runtime/c_runtime_api.h"
#include "tvm/runtime/c_backend_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The runtime's functions are called through pointers that the loader of the library fills. */
#ifndef TILEWRIGHT_LINK_RUNTIME
TVM_DLL TW_WEAK int (*__TVMFuncCall)(TVMFunctionHandle, TVMValue*, int*, int, TVMValue*, int*);
TVM_DLL TW_WEAK void (*__TVMAPISetLastError)(const char*);
TVM_DLL TW_WEAK int (*__TVMBackendGetFuncFromEnv)(void*, const char*, TVMFunctionHandle*);
TVM_DLL TW_WEAK void* (*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int);
TVM_DLL TW_WEAK int (*__TVMBackendFreeWorkspace)(int, int, void*);
TVM_DLL TW_WEAK int (*__TVMBackendParallelLaunch)(FTVMParallelLambda, void*, int);
#define TVMFuncCall (*__TVMFuncCall)
#define TVMAPISetLastError (*__TVMAPISetLastError)
#define TVMBackendGetFuncFromEnv (*__TVMBackendGetFuncFromEnv)
#define TVMBackendAllocWorkspace (*__TVMBackendAllocWorkspace)
#define TVMBackendFreeWorkspace (*__TVMBackendFreeWorkspace)
#define TVMBackendParallelLaunch (*__TVMBackendParallelLaunch)
#endif
TVM_DLL TW_WEAK void* __tvm_module_ctx = NULL;

/* What an argument must be. flags: 1 a tensor, 2 any strides, 4 any byte offset. A dimension is a size, -1 for any, or
 * -2-k for symbol k, which is the same wherever it stands. dtype: code, bits and lanes, from the lowest byte up. */
typedef struct {
  const char* name;
  const int64_t* dims;
  int32_t ndim, dtype, device_type, alignment, flags;
} TwArgument;
