/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * What this runtime adds to TVM's C API: models (tilewright_model.h), the graph executor as plain C functions, modules with
 * callbacks, and the stream through which modules are saved and loaded. Functions that return
 * an int give 0, or -1 with a message in TVMGetLastError, unless they say otherwise. */
#ifndef TILEWRIGHT_H_
#define TILEWRIGHT_H_

#include <tilewright_device.h>
#include <tilewright_model.h>
#include <tvm/runtime/c_backend_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- graph executor ---- */
typedef struct TilewrightGraph TilewrightGraph;

/* Builds an executor for a TVM 0.8 graph JSON whose operators are functions of lib (or of its imports). */
TVM_DLL int TilewrightGraphCreate(const char* graph_json, size_t json_size, TVMModuleHandle lib, DLDevice device,
                                  TilewrightGraph** out);
/* Same, from a module exported with its graph: name is the model's name, "default" unless another was given. */
TVM_DLL int TilewrightGraphFromModule(TVMModuleHandle lib, const char* name, DLDevice device, TilewrightGraph** out);
/* Both for a graph whose tensors live on several devices: one of each type that it names. */
TVM_DLL int TilewrightGraphCreateOn(const char* graph_json, size_t json_size, TVMModuleHandle lib, const DLDevice* devices,
                                    int num_devices, TilewrightGraph** out);
TVM_DLL int TilewrightGraphFromModuleOn(TVMModuleHandle lib, const char* name, const DLDevice* devices, int num_devices,
                                        TilewrightGraph** out);
TVM_DLL void TilewrightGraphFree(TilewrightGraph* graph);

/* Inputs, of which parameters (weights that the model brings) are some, in the order of the graph. */
TVM_DLL int TilewrightGraphNumInputs(const TilewrightGraph* graph);
TVM_DLL int TilewrightGraphNumOutputs(const TilewrightGraph* graph);
/* -1 when there is no such input or output. */
TVM_DLL int TilewrightGraphInputIndex(const TilewrightGraph* graph, const char* name);
TVM_DLL int TilewrightGraphOutputIndex(const TilewrightGraph* graph, const char* name);
/* NULL when the index is out of range. An output that the model does not name is output_0, output_1, ... */
TVM_DLL const char* TilewrightGraphInputName(const TilewrightGraph* graph, int index);
TVM_DLL const char* TilewrightGraphOutputName(const TilewrightGraph* graph, int index);
/* 1 for a parameter, else 0. */
TVM_DLL int TilewrightGraphInputIsParameter(const TilewrightGraph* graph, int index);
/* Shape and type; data is NULL, and shape is the executor's and lives as long. */
TVM_DLL int TilewrightGraphInputInfo(const TilewrightGraph* graph, int index, DLTensor* out);
TVM_DLL int TilewrightGraphOutputInfo(const TilewrightGraph* graph, int index, DLTensor* out);

/* Sets the inputs named, runs, and gives copies on the host of all outputs: outputs has room for TilewrightGraphNumOutputs
 * arrays, which the caller frees (TVMArrayFree). Any thread may call this at any time: calls wait for one another. Every input
 * that is no parameter needs a value, from this call or from one of the functions below; what this call sets counts for it
 * alone. */
TVM_DLL int TilewrightGraphInfer(TilewrightGraph* graph, int num_inputs, const char* const* names,
                                 const DLTensor* const* values, TVMArrayHandle* outputs);

/* What follows is for one thread at a time: a call fails when another thread is using the executor. To run a model on
 * several threads, use the above, or an executor for each; executors from one module share its weights. */

/* Inputs that nobody has set are 0; the first run with such names them on stderr. */
TVM_DLL int TilewrightGraphRun(TilewrightGraph* graph);
/* Fails, naming them, when inputs or parameters have no value. */
TVM_DLL int TilewrightGraphCheckInputs(TilewrightGraph* graph);
/* Copies the tensor's contents into the input. */
TVM_DLL int TilewrightGraphSetInput(TilewrightGraph* graph, const char* name, const DLTensor* value);
TVM_DLL int TilewrightGraphSetInputAt(TilewrightGraph* graph, int index, const DLTensor* value);
/* Makes the input refer to value's memory, which must be compact, 64-byte aligned and outlive its use. */
TVM_DLL int TilewrightGraphSetInputZeroCopyAt(TilewrightGraph* graph, int index, const DLTensor* value);
/* Makes runs write the output to value's memory, under the same conditions; it lasts until the next such call. An output that
 * shares its memory with another tensor (an input, a part of a concatenation, another output) is copied there instead. */
TVM_DLL int TilewrightGraphSetOutputZeroCopyAt(TilewrightGraph* graph, int index, const DLTensor* value);
/* A view of the executor's memory, which the caller may write to; the caller owns a reference and sees the contents change
 * with the next run. An input counts as set once a caller has its array. Two kinds are no such views: of a parameter that
 * several executors read, GetInput gives a read-only view (TilewrightArrayIsReadOnly; write with SetInput, which gives this
 * executor its own); of an output that is made of parameters alone, GetOutput gives a copy. */
TVM_DLL int TilewrightGraphGetInput(TilewrightGraph* graph, int index, TVMArrayHandle* out);
TVM_DLL int TilewrightGraphGetOutput(TilewrightGraph* graph, int index, TVMArrayHandle* out);
TVM_DLL int TilewrightGraphCopyOutput(TilewrightGraph* graph, int index, DLTensor* out);
/* params is what save_param_dict wrote. */
TVM_DLL int TilewrightGraphLoadParams(TilewrightGraph* graph, const char* params, size_t size);
/* Uses other's arrays for the parameters that params names, so that both hold one copy. */
TVM_DLL int TilewrightGraphShareParams(TilewrightGraph* graph, TilewrightGraph* other, const char* params, size_t size);
/* Runs up to and including node_index, then copies that node's first output. */
TVM_DLL int TilewrightGraphDebugGetOutput(TilewrightGraph* graph, int node_index, DLTensor* out);
/* Runs up to and including node_index, from the node after the one that the last such call ended with where that is earlier;
 * then that node's outputs, copied, to the CPU. A run in between begins anew. */
TVM_DLL int TilewrightGraphExecuteNode(TilewrightGraph* graph, int node_index);
TVM_DLL int TilewrightGraphGetNodeOutput(TilewrightGraph* graph, int node_index, int output, TVMArrayHandle* out);
TVM_DLL int TilewrightGraphNumNodes(const TilewrightGraph* graph);
/* NULL when the index is out of range. */
TVM_DLL const char* TilewrightGraphNodeName(const TilewrightGraph* graph, int node_index);
/* Runs the graph number times; seconds[node_index] becomes the mean time of the node's call (0 for inputs). */
TVM_DLL int TilewrightGraphTimeNodes(TilewrightGraph* graph, int number, double* seconds);
/* The bytes of activation storage and of parameter storage that the executor holds. */
TVM_DLL void TilewrightGraphMemory(const TilewrightGraph* graph, uint64_t* pooled_bytes, uint64_t* input_bytes);

/* ---- streams, through which modules are saved and loaded ---- */
typedef struct TilewrightStream TilewrightStream;
TVM_DLL int TilewrightStreamRead(TilewrightStream* stream, void* data, size_t nbytes);
TVM_DLL int TilewrightStreamWrite(TilewrightStream* stream, const void* data, size_t nbytes);

/* ---- modules with callbacks ---- */
/* A module of a kind of its own. In an exported library it is its type key and what save wrote; loading the library calls
 * the global function "runtime.module.loadbinary_KEY" (TVMFuncRegisterGlobal) with the stream, a kTVMOpaqueHandle, and takes
 * the module that it returns. A file by itself is loaded by "runtime.module.loadfile_FORMAT"(path, format). */
typedef struct {
  /* Address of a compiled function (TVMBackendPackedCFunc), or NULL. May be NULL itself. */
  void* (*resolve)(void* ctx, const char* name);
  /* A function that the caller then owns; *out stays NULL when there is none. May be NULL itself. */
  int (*get_function)(void* ctx, const char* name, TVMFunctionHandle* out);
  /* Writes what the loader of this type key reads back. NULL: the module cannot be saved. */
  int (*save)(void* ctx, TilewrightStream* stream);
  /* Sets *ret through TVMCFuncSetReturn to a string. May be NULL itself. */
  int (*get_source)(void* ctx, const char* format, TVMRetValueHandle ret);
  void (*finalize)(void* ctx);
  /* Writes a file with the module's code in a format ("" for the one that the path's suffix says). May be NULL itself. */
  int (*save_file)(void* ctx, const char* path, const char* format);
} TilewrightModuleCallbacks;

TVM_DLL int TilewrightModCreate(const char* type_key, const TilewrightModuleCallbacks* callbacks, void* ctx,
                                TVMModuleHandle* out);
/* The model that this runtime was linked with: exported with standalone=True, or linked into the program. */
TVM_DLL int TilewrightModLoadSelf(TVMModuleHandle* out);
/* A model exported with a symbol prefix and linked into the program. */
TVM_DLL int TilewrightModFromSymbols(const TilewrightSymbol* symbols, TVMModuleHandle* out);
/* Takes one more reference. */
TVM_DLL int TilewrightModRetain(TVMModuleHandle mod);
TVM_DLL const char* TilewrightModTypeKey(TVMModuleHandle mod);
TVM_DLL int TilewrightModNumImports(TVMModuleHandle mod);
/* The caller owns a reference. */
TVM_DLL int TilewrightModGetImport(TVMModuleHandle mod, int index, TVMModuleHandle* out);
/* Text of the module through *ret_val (kTVMStr, thread-local). */
TVM_DLL int TilewrightModGetSource(TVMModuleHandle mod, const char* format, TVMValue* ret_val, int* ret_code);
/* Writes the module's own code to a file, in a format ("": the one that the suffix says). */
TVM_DLL int TilewrightModSave(TVMModuleHandle mod, const char* path, const char* format);
/* Appends the module's own payload to a file. */
TVM_DLL int TilewrightModSaveToFile(TVMModuleHandle mod, const char* path);
/* How far saving is, in bytes. Another thread may set `stop`: saving then fails. */
typedef struct {
  uint64_t written;
  int32_t stop;
} TilewrightSaving;
/* The same, but the elements of large arrays go to a file of weights: those that the file `old` lacks (or "") are written to
 * `added`, at the places that they have once both are one file. */
TVM_DLL int TilewrightModSaveWithWeights(TVMModuleHandle mod, const char* path, const char* old, const char* added,
                                         TilewrightSaving* saving);
/* Compares the checksums of tensors in a library's file of weights: place, size in bytes and checksum of each. */
TVM_DLL int TilewrightCheckWeights(const char* library, const char* name, const uint64_t* tensors, size_t count);
/* How many bytes that is without such a file; padding may differ by less than 64 for each array. */
TVM_DLL int TilewrightModSavedBytes(TVMModuleHandle mod, uint64_t* out);
/* Reads a blob (u64 size + module table), as found in __tvm_dev_mblob. lib stands for its "_lib" entry. */
TVM_DLL int TilewrightModFromBlob(const char* blob, size_t nbytes, TVMModuleHandle lib, TVMModuleHandle* out);

/* ---- remote procedure calls ---- */
/* Serves an RPC client (TVM 0.8's protocol, after its greeting) at the other end of two descriptors, which may be the same
 * socket; returns when it leaves. See docs/rpc.md. */
TVM_DLL int TilewrightRpcServe(int read_fd, int write_fd);
/* A connection by other means. Both functions give 0, or -1 with an error set (TVMAPISetLastError). */
typedef struct {
  /* Sends all bytes. */
  int (*send)(void* context, const void* data, size_t size);
  /* Receives between least and most bytes; *received is less when the other side has closed. */
  int (*receive)(void* context, void* data, size_t least, size_t most, size_t* received);
  void (*close)(void* context);
} TilewrightRpcCallbacks;
/* TilewrightRpcServe over it. The context is closed in the end, whatever happens. */
TVM_DLL int TilewrightRpcServeOver(const TilewrightRpcCallbacks* callbacks, void* context);
/* A session over it, after the greeting, as a module; it ends after so many seconds, unless they are 0. The arguments are
 * name and arguments of the server's function that makes the session, if it is to be another than its own. */
TVM_DLL int TilewrightRpcConnectOver(const TilewrightRpcCallbacks* callbacks, void* context, double seconds,
                                     TVMValue* arg_values, int* type_codes, int num_args, TVMModuleHandle* out);
/* Calls a function of a session, which gives bytes, and puts them into the memory that room(context, their number) gives; it
 * is called once, and may give NULL for none. */
TVM_DLL int TilewrightRpcCallForBytes(TVMFunctionHandle function, TVMValue* arg_values, int* type_codes, int num_args,
                                      void* (*room)(void* context, size_t size), void* context);

/* ---- functions, arrays, threads, processor ---- */
/* The callback and resource of a function made by TVMFuncCreateFromCFunc; *func is NULL for any other. */
TVM_DLL int TilewrightFuncCallback(TVMFunctionHandle f, TVMPackedCFunc* func, void** resource_handle);
/* TVMArrayAlloc in one of the device's memories: mem_scope is NULL, "global" or a name of the device's own. */
TVM_DLL int TilewrightArrayAlloc(const int64_t* shape, int ndim, DLDataType type, DLDevice device, const char* mem_scope,
                                 TVMArrayHandle* out);
/* Takes one more reference. */
TVM_DLL int TilewrightArrayRetain(TVMArrayHandle array);
/* 1 for a view of memory that others read too, such as weights that several executors share; nothing may write there. Else 0.
 * It has to be an array of this runtime, not any DLTensor. */
TVM_DLL int TilewrightArrayIsReadOnly(TVMArrayHandle array);
/* Gives up a reference to what a packed function returned as kTVMObjectHandle: a tuple or value of the virtual machine. */
TVM_DLL int TilewrightObjectFree(TVMObjectHandle object);
/* Makes "custom[name]bits" an element type, whose code is one of 129 to 255. */
TVM_DLL int TilewrightRegisterDataType(const char* name, int code);
TVM_DLL int TilewrightNumThreads(void);
/* 0 restores the default: TVM_NUM_THREADS, OMP_NUM_THREADS, or the cores this process may use now. */
TVM_DLL int TilewrightSetNumThreads(int num_threads);
/* Gives parallel loops to threads of the program's own. `launch` calls task(data, index) for each index from 0 to count - 1, once,
 * in any order and on any threads, and returns when all have ended: 0, or not 0 where it could not. It may be called by several
 * threads at once; count is TilewrightNumThreads() for most loops. NULL gives loops back to the runtime's own pool. The pool
 * has to outlive the runs that use it. */
typedef void (*TilewrightTask)(void* data, int index);
typedef int (*TilewrightLaunchTasks)(void* pool, TilewrightTask task, void* data, int count);
TVM_DLL int TilewrightSetThreadPool(TilewrightLaunchTasks launch, void* pool);
/* Comma-separated features of this processor, in LLVM's names. */
TVM_DLL const char* TilewrightHostCpuFeatures(void);
/* Fails, naming them, when this processor lacks some of the comma-separated features. */
TVM_DLL int TilewrightCheckCpuFeatures(const char* features, const char* who);
/* Address of a backend function by name ("TVMFuncCall", ...), or NULL; names[] ends with NULL. */
TVM_DLL void* TilewrightContextSymbol(const char* name);
TVM_DLL const char* const* TilewrightContextSymbolNames(void);

#ifdef __cplusplus
}
#endif
#endif /* TILEWRIGHT_H_ */
