/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * What compiled code calls: names, signatures and behaviour of TVM 0.8. A compiled library does not link to these;
 * it exports pointer variables named "__" + the function's name, and the loader fills them. */
#ifndef TVM_RUNTIME_C_BACKEND_API_H_
#define TVM_RUNTIME_C_BACKEND_API_H_

#include <tvm/runtime/c_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The signature of every compiled function. */
typedef int (*TVMBackendPackedCFunc)(TVMValue* args, int* type_codes, int num_args, TVMValue* out_ret_value,
                                     int* out_ret_tcode, void* resource_handle);

/* Finds a function among mod_node's imports, then in the global registry. The result is owned by mod_node. */
TVM_DLL int TVMBackendGetFuncFromEnv(void* mod_node, const char* func_name, TVMFunctionHandle* out);

/* Makes a compiled symbol part of the system library (code linked statically into the program). */
TVM_DLL int TVMBackendRegisterSystemLibSymbol(const char* name, void* ptr);

/* Temporary memory of the calling thread, 64-byte aligned, fastest when freed in reverse order. NULL on failure. */
TVM_DLL void* TVMBackendAllocWorkspace(int device_type, int device_id, uint64_t nbytes, int dtype_code_hint,
                                       int dtype_bits_hint);
TVM_DLL int TVMBackendFreeWorkspace(int device_type, int device_id, void* ptr);

typedef struct {
  void* sync_handle;
  int32_t num_task;
} TVMParallelGroupEnv;

/* One task of a parallel launch; returns 0 for success. */
typedef int (*FTVMParallelLambda)(int task_id, TVMParallelGroupEnv* penv, void* cdata);

/* Runs num_task tasks (0: as many as there are threads) and waits for all. Inside a task, or while another thread
 * occupies the pool, the tasks run on the calling thread. */
TVM_DLL int TVMBackendParallelLaunch(FTVMParallelLambda flambda, void* cdata, int num_task);
/* Waits until every task of the launch has arrived here. */
TVM_DLL int TVMBackendParallelBarrier(int task_id, TVMParallelGroupEnv* penv);

/* Runs f(cdata) the first time that *handle is seen as NULL, and sets *handle. */
TVM_DLL int TVMBackendRunOnce(void** handle, int (*f)(void*), void* cdata, int nbytes);

#ifdef __cplusplus
}
#endif
#endif /* TVM_RUNTIME_C_BACKEND_API_H_ */
