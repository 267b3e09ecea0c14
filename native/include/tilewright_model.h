/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Models: exported libraries behind one interface, whichever executor runs them. A whole program is in docs/runtime.md,
 * "In C"; tilewright.hpp is the same for C++. Functions that return an int give 0, or -1 with a message in TVMGetLastError,
 * unless they say otherwise. */
#ifndef TILEWRIGHT_MODEL_H_
#define TILEWRIGHT_MODEL_H_

#include <tvm/runtime/c_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of these headers; TilewrightVersion tells that of the library that the program runs with. */
#define TILEWRIGHT_VERSION_MAJOR 0
#define TILEWRIGHT_VERSION_MINOR 1
#define TILEWRIGHT_VERSION_PATCH 0
#define TILEWRIGHT_VERSION "0.1.0"
TVM_DLL const char* TilewrightVersion(void);

/* ---- the program around it ---- */
/* Where arrays and the memory of activations come from, with at least that alignment; alloc returns NULL when there is none. Of
 * the process, so it fails while arrays of the host exist. Two NULLs restore the C library's. */
TVM_DLL int TilewrightSetHostAllocator(void* (*alloc)(void* context, size_t nbytes, size_t alignment),
                                       void (*free)(void* context, void* memory), void* context);
/* Takes each warning, a line of text without its end, in place of stderr; NULL restores that. Set it before threads run models. */
TVM_DLL void TilewrightSetMessageCallback(void (*take)(void* context, const char* text), void* context);

/* ---- models ---- */
typedef struct TilewrightModel TilewrightModel;

/* What a model takes or gives. All of it is the model's and lives as long. */
typedef struct {
  const char* name;
  DLDataType dtype;
  int ndim;
  const int64_t* shape;          /* -1 for a dimension that is known when the model runs */
  const char* const* dimensions; /* the name of each, NULL for one that has none, as numbers have */
} TilewrightTensorInfo;

/* What a named dimension may be. One name means one number in all inputs of a run. */
typedef struct {
  const char* name;
  int64_t min, max; /* max is -1 where there is no limit */
  int64_t multiple; /* of which it has to be a multiple */
} TilewrightDimensionInfo;

/* Opens an exported library; path is NULL for the model that is linked into the program or exported with standalone=True. */
TVM_DLL int TilewrightModelOpen(const char* path, DLDevice device, TilewrightModel** out);
/* Compares a library with the checksum at its end (SHA-256), without running anything of it: opening one with a byte that
 * changed may crash. Weights in a file beside it are compared when it is opened with TILEWRIGHT_VERIFY_WEIGHTS=1. */
TVM_DLL int TilewrightVerifyFile(const char* path);
/* Opens a model that was exported as an object file with a symbol prefix and linked into the program, of which there may be
 * several, static programs included: with the prefix NAME its symbols are `extern const TilewrightSymbol NAME_model[];`. */
typedef struct {
  const char* name; /* NULL behind the last */
  void* address;
} TilewrightSymbol;
TVM_DLL int TilewrightModelOpenLinked(const TilewrightSymbol* symbols, DLDevice device, TilewrightModel** out);
/* Same, from a module that is loaded already; the model keeps a reference of its own. */
TVM_DLL int TilewrightModelFromModule(TVMModuleHandle lib, DLDevice device, TilewrightModel** out);
/* A second executor for the same weights: each thread that runs a model has its own. */
TVM_DLL int TilewrightModelClone(const TilewrightModel* model, TilewrightModel** out);
TVM_DLL void TilewrightModelFree(TilewrightModel* model);

TVM_DLL int TilewrightModelNumInputs(const TilewrightModel* model);
TVM_DLL int TilewrightModelNumOutputs(const TilewrightModel* model);
TVM_DLL int TilewrightModelNumDimensions(const TilewrightModel* model);
TVM_DLL int TilewrightModelInputInfo(const TilewrightModel* model, int index, TilewrightTensorInfo* out);
TVM_DLL int TilewrightModelOutputInfo(const TilewrightModel* model, int index, TilewrightTensorInfo* out);
TVM_DLL int TilewrightModelDimensionInfo(const TilewrightModel* model, int index, TilewrightDimensionInfo* out);

/* Copies the value of an input, for all runs until it is set again. */
TVM_DLL int TilewrightModelSetInput(TilewrightModel* model, const char* name, const DLTensor* value);
/* Makes the input refer to an array of this runtime, without a copy where its memory will do: an output of the last run, such
 * as a cache that grows, becomes an input of the next. Outputs may then be in its memory. */
TVM_DLL int TilewrightModelShareInput(TilewrightModel* model, const char* name, TVMArrayHandle value);
/* Runs end with an error after so many calls and jumps back (0: any number). Graphs have neither. */
TVM_DLL int TilewrightModelSetMaxSteps(TilewrightModel* model, int64_t steps);
/* Fails, naming them, when inputs have no value, and when one does not fit. */
TVM_DLL int TilewrightModelRun(TilewrightModel* model);
/* An output of the last run, on the host or the model's device. The caller frees it (TVMArrayFree); the next run may write
 * to it. */
TVM_DLL int TilewrightModelOutput(TilewrightModel* model, int index, TVMArrayHandle* out);

#ifdef __cplusplus
}
#endif
#endif /* TILEWRIGHT_MODEL_H_ */
