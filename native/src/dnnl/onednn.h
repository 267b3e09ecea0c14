/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The part of oneDNN 3's C interface that this runtime calls. It is declared here, and found with dlopen when the first
 * dnnl_json module is made, so that neither building nor loading the runtime needs oneDNN. tests/runtime/test_onednn_header.py
 * compares every value and signature with oneDNN's own headers. */
#ifndef TILEWRIGHT_ONEDNN_H_
#define TILEWRIGHT_ONEDNN_H_

#include <stddef.h>
#include <stdint.h>

#define ONEDNN_MAX_NDIMS 12

typedef struct dnnl_engine* OnednnEngine;
typedef struct dnnl_stream* OnednnStream;
typedef struct dnnl_memory_desc* OnednnDesc;
typedef const struct dnnl_memory_desc* OnednnConstDesc;
typedef struct dnnl_memory* OnednnMemory;
typedef struct dnnl_primitive_attr* OnednnAttr;
typedef const struct dnnl_primitive_attr* OnednnConstAttr;
typedef struct dnnl_post_ops* OnednnPostOps;
typedef const struct dnnl_post_ops* OnednnConstPostOps;
typedef struct dnnl_primitive_desc* OnednnPrimitiveDesc;
typedef const struct dnnl_primitive_desc* OnednnConstPrimitiveDesc;
typedef struct dnnl_primitive* OnednnPrimitive;
typedef const struct dnnl_primitive* OnednnConstPrimitive;

typedef struct {
  int arg;
  OnednnMemory memory;
} OnednnArg;

typedef struct {
  int major, minor, patch;
  const char* hash;
  unsigned cpu_runtime, gpu_runtime;
} OnednnVersion;

enum { ONEDNN_SUCCESS = 0, ONEDNN_OUT_OF_MEMORY = 1, ONEDNN_INVALID_ARGUMENTS = 2, ONEDNN_UNIMPLEMENTED = 3 };
enum { ONEDNN_RUNTIME_OMP = 2, ONEDNN_RUNTIME_TBB = 4, ONEDNN_RUNTIME_SYCL = 512 };
enum { ONEDNN_CPU = 1, ONEDNN_IN_ORDER = 1, ONEDNN_F32 = 3, ONEDNN_ANY = 1, ONEDNN_INFERENCE = 96, ONEDNN_USER_SCRATCHPAD = 1 };
enum { ONEDNN_CONVOLUTION_AUTO = 3, ONEDNN_DECONVOLUTION_DIRECT = 10, ONEDNN_SOFTMAX = 0x30000, ONEDNN_LOG_SOFTMAX = 0x30001 };
enum { ONEDNN_MAX_POOL = 0x1ff, ONEDNN_AVG_POOL_WITH_PADDING = 0x2ff, ONEDNN_AVG_POOL = 0x3ff };
enum { ONEDNN_GLOBAL_STATS = 1, ONEDNN_SCALE = 2, ONEDNN_SHIFT = 4 };
enum {
  ONEDNN_ADD = 0x1fff0, ONEDNN_MUL = 0x1fff1, ONEDNN_MAX = 0x1fff2, ONEDNN_MIN = 0x1fff3, ONEDNN_DIV = 0x1fff4, ONEDNN_SUB = 0x1fff5
};
enum {
  ONEDNN_RELU = 32, ONEDNN_TANH = 33, ONEDNN_ABS = 36, ONEDNN_SQRT = 37, ONEDNN_LINEAR = 38, ONEDNN_LOGISTIC = 41,
  ONEDNN_EXP = 42, ONEDNN_GELU_TANH = 43, ONEDNN_SWISH = 44, ONEDNN_LOG = 45, ONEDNN_CLIP = 46, ONEDNN_GELU_ERF = 49
};
enum {
  ONEDNN_QUERY_NAME = 8, ONEDNN_QUERY_SRC = 129, ONEDNN_QUERY_WEIGHTS = 131, ONEDNN_QUERY_DST = 133,
  ONEDNN_QUERY_SCRATCHPAD = 136
};
enum {
  ONEDNN_ARG_SRC = 1, ONEDNN_ARG_SRC_1 = 2, ONEDNN_ARG_DST = 17, ONEDNN_ARG_WEIGHTS = 33, ONEDNN_ARG_BIAS = 41,
  ONEDNN_ARG_MEAN = 49, ONEDNN_ARG_VARIANCE = 50, ONEDNN_ARG_SCALE = 51, ONEDNN_ARG_SHIFT = 52, ONEDNN_ARG_SCRATCHPAD = 80,
  ONEDNN_ARG_MULTIPLE_SRC = 1024, ONEDNN_ARG_POST_OP = 32768
};

/* X(result, name, parameters) for each function; enumerations are passed as int. */
#define ONEDNN_FUNCTIONS(X)                                                                                              \
  X(const OnednnVersion*, version, (void))                                                                               \
  X(size_t, engine_get_count, (int kind))                                                                                \
  X(int, engine_create, (OnednnEngine*, int kind, size_t index))                                                         \
  X(int, stream_create, (OnednnStream*, OnednnEngine, unsigned flags))                                                   \
  X(int, stream_destroy, (OnednnStream))                                                                                 \
  X(int, stream_wait, (OnednnStream))                                                                                    \
  X(int, memory_desc_create_with_tag, (OnednnDesc*, int ndims, const int64_t* dims, int type, int tag))                  \
  X(int, memory_desc_create_with_strides, (OnednnDesc*, int ndims, const int64_t* dims, int type, const int64_t*))       \
  X(int, memory_desc_destroy, (OnednnDesc))                                                                              \
  X(int, memory_desc_clone, (OnednnDesc*, OnednnConstDesc))                                                              \
  X(int, memory_desc_reshape, (OnednnDesc*, OnednnConstDesc, int ndims, const int64_t* dims))                            \
  X(int, memory_desc_permute_axes, (OnednnDesc*, OnednnConstDesc, const int* permutation))                               \
  X(int, memory_desc_equal, (OnednnConstDesc, OnednnConstDesc))                                                          \
  X(size_t, memory_desc_get_size, (OnednnConstDesc))                                                                     \
  X(int, memory_create, (OnednnMemory*, OnednnConstDesc, OnednnEngine, void* data))                                      \
  X(int, memory_destroy, (OnednnMemory))                                                                                 \
  X(int, memory_set_data_handle, (OnednnMemory, void* data))                                                             \
  X(int, primitive_attr_create, (OnednnAttr*))                                                                           \
  X(int, primitive_attr_destroy, (OnednnAttr))                                                                           \
  X(int, primitive_attr_set_scratchpad_mode, (OnednnAttr, int mode))                                                     \
  X(int, primitive_attr_set_post_ops, (OnednnAttr, OnednnConstPostOps))                                                  \
  X(int, post_ops_create, (OnednnPostOps*))                                                                              \
  X(int, post_ops_destroy, (OnednnPostOps))                                                                              \
  X(int, post_ops_append_eltwise, (OnednnPostOps, int algorithm, float alpha, float beta))                               \
  X(int, post_ops_append_sum, (OnednnPostOps, float scale, int32_t zero_point, int type))                                \
  X(int, post_ops_append_binary, (OnednnPostOps, int algorithm, OnednnConstDesc))                                        \
  X(int, convolution_forward_primitive_desc_create,                                                                      \
    (OnednnPrimitiveDesc*, OnednnEngine, int kind, int algorithm, OnednnConstDesc src, OnednnConstDesc weights,          \
     OnednnConstDesc bias, OnednnConstDesc dst, const int64_t* strides, const int64_t* dilates, const int64_t* before,   \
     const int64_t* after, OnednnConstAttr))                                                                             \
  X(int, deconvolution_forward_primitive_desc_create,                                                                    \
    (OnednnPrimitiveDesc*, OnednnEngine, int kind, int algorithm, OnednnConstDesc src, OnednnConstDesc weights,          \
     OnednnConstDesc bias, OnednnConstDesc dst, const int64_t* strides, const int64_t* dilates, const int64_t* before,   \
     const int64_t* after, OnednnConstAttr))                                                                             \
  X(int, matmul_primitive_desc_create,                                                                                   \
    (OnednnPrimitiveDesc*, OnednnEngine, OnednnConstDesc src, OnednnConstDesc weights, OnednnConstDesc bias,             \
     OnednnConstDesc dst, OnednnConstAttr))                                                                              \
  X(int, pooling_forward_primitive_desc_create,                                                                          \
    (OnednnPrimitiveDesc*, OnednnEngine, int kind, int algorithm, OnednnConstDesc src, OnednnConstDesc dst,              \
     const int64_t* strides, const int64_t* kernel, const int64_t* dilates, const int64_t* before,                       \
     const int64_t* after, OnednnConstAttr))                                                                             \
  X(int, eltwise_forward_primitive_desc_create,                                                                          \
    (OnednnPrimitiveDesc*, OnednnEngine, int kind, int algorithm, OnednnConstDesc src, OnednnConstDesc dst,              \
     float alpha, float beta, OnednnConstAttr))                                                                          \
  X(int, binary_primitive_desc_create,                                                                                   \
    (OnednnPrimitiveDesc*, OnednnEngine, int algorithm, OnednnConstDesc, OnednnConstDesc, OnednnConstDesc dst,           \
     OnednnConstAttr))                                                                                                   \
  X(int, softmax_forward_primitive_desc_create,                                                                          \
    (OnednnPrimitiveDesc*, OnednnEngine, int kind, int algorithm, OnednnConstDesc src, OnednnConstDesc dst, int axis,    \
     OnednnConstAttr))                                                                                                   \
  X(int, layer_normalization_forward_primitive_desc_create,                                                              \
    (OnednnPrimitiveDesc*, OnednnEngine, int kind, OnednnConstDesc src, OnednnConstDesc dst, OnednnConstDesc statistics, \
     float epsilon, unsigned flags, OnednnConstAttr))                                                                    \
  X(int, batch_normalization_forward_primitive_desc_create,                                                              \
    (OnednnPrimitiveDesc*, OnednnEngine, int kind, OnednnConstDesc src, OnednnConstDesc dst, float epsilon,              \
     unsigned flags, OnednnConstAttr))                                                                                   \
  X(int, concat_primitive_desc_create,                                                                                   \
    (OnednnPrimitiveDesc*, OnednnEngine, OnednnConstDesc dst, int count, int axis, OnednnConstDesc const* sources,       \
     OnednnConstAttr))                                                                                                   \
  X(int, reorder_primitive_desc_create,                                                                                  \
    (OnednnPrimitiveDesc*, OnednnConstDesc src, OnednnEngine, OnednnConstDesc dst, OnednnEngine, OnednnConstAttr))       \
  X(OnednnConstDesc, primitive_desc_query_md, (OnednnConstPrimitiveDesc, int what, int index))                           \
  X(int, primitive_desc_query, (OnednnConstPrimitiveDesc, int what, int index, void* result))                            \
  X(int, primitive_desc_destroy, (OnednnPrimitiveDesc))                                                                  \
  X(int, primitive_create, (OnednnPrimitive*, OnednnConstPrimitiveDesc))                                                 \
  X(int, primitive_destroy, (OnednnPrimitive))                                                                           \
  X(int, primitive_execute, (OnednnConstPrimitive, OnednnStream, int count, const OnednnArg* args))

#define ONEDNN_MEMBER(result, name, parameters) result(*name) parameters;

/* oneDNN as it was found: its functions, and the engine that all modules of the process share. */
typedef struct {
  ONEDNN_FUNCTIONS(ONEDNN_MEMBER)
  OnednnEngine engine;
} Onednn;

#endif /* TILEWRIGHT_ONEDNN_H_ */
