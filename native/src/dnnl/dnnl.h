/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * "dnnl_json": regions of a network that oneDNN runs. A region comes as a graph in JSON (graph.c), becomes a sequence of
 * primitives (build.c, net.c and the files of operators), is given memory (memory.c) and is run (module.c). */
#ifndef TILEWRIGHT_DNNL_H_
#define TILEWRIGHT_DNNL_H_

#include "../module/module.h"
#include "../core/json.h"
#include "onednn.h"

/* ---- oneDNN itself (library.c) ---- */
/* Loaded on the first call; NULL, and an error that says how to get it. */
const Onednn* tw_onednn(void);
/* Has oneDNN use as many threads as kernels do; called before it works. */
void tw_dnnl_use_threads(void);

/* ---- what PyPI's oneDNN runs on (sycl.c) ---- */
/* Between the two, oneDNN finds SYCL's OpenCL loader and Intel's OpenCL for processors in its folder. */
void tw_sycl_begin(const char* folder);
void tw_sycl_end(void);

/* ---- the graph (graph.c) ---- */
typedef struct {
  int ndim;
  int64_t dims[ONEDNN_MAX_NDIMS];
} TwShape;

typedef struct {
  int node, output;
} TwEntry;

typedef struct {
  enum { TW_INPUT, TW_CONST, TW_KERNEL } kind;
  const char* name; /* of the JSON's */
  const Json* attrs;
  TwEntry* inputs;
  int num_inputs;
  TwShape* shapes; /* of its outputs */
  int num_outputs;
  int first_entry; /* the number of its first output among those of all nodes */
} TwNode;

typedef struct {
  Json* document;
  TwNode* nodes;
  int num_nodes, num_entries;
  TwEntry* heads;
  int num_heads;
  int num_inputs;    /* input tensors, in the order of the nodes */
  int num_constants; /* const nodes, in theirs */
} TwRegion;

int tw_region_parse(const char* text, size_t size, TwRegion* out);
void tw_region_free(TwRegion* region);
/* Fails with the number and the name of the node before the message. */
int tw_node_fail(const TwRegion* r, const TwNode* n, const char* format, ...) __attribute__((format(printf, 3, 4)));
int tw_expect_inputs(const TwRegion* r, const TwNode* n, int least, int most);
const TwShape* tw_input_shape(const TwRegion* r, const TwNode* n, int i);
bool tw_shape_equal(const TwShape* a, const TwShape* b);
int64_t tw_shape_size(const TwShape* shape);
/* Fails unless the node's first output has this shape. */
int tw_expect_shape(const TwRegion* r, const TwNode* n, const TwShape* shape);
/* Attributes are lists of strings; these fail when one is missing or no such number. count is how many there have to be. */
int tw_attr_ints(const TwRegion* r, const TwNode* n, const char* key, int count, int64_t least, int64_t* out);
int tw_attr_int(const TwRegion* r, const TwNode* n, const char* key, int64_t fallback, int64_t* out);
int tw_attr_float(const TwRegion* r, const TwNode* n, const char* key, double* out);
/* How many strings there are, 0 where there is no such attribute. */
int tw_attr_count(const TwNode* n, const char* key);
/* The first string, or the fallback. */
const char* tw_attr_text(const TwNode* n, const char* key, const char* fallback);

/* ---- what it becomes (net.c, build.c) ---- */
/* A piece of memory: the caller's tensor, a constant, or a part of the region's own memory. */
typedef struct {
  enum { TW_ARGUMENT, TW_HELD, TW_OWN } kind;
  size_t size;
  int argument;      /* of an ARGUMENT: which */
  void* data;        /* of a HELD constant */
  bool owned;        /* whether data is the region's to free */
  int first, last;   /* the steps that use it; of an OWN one */
  size_t offset;     /* of an OWN one, in the region's memory */
  int uses;          /* reads by nodes that are not built yet */
} TwBuffer;

/* A tensor as it lies in a buffer. */
typedef struct {
  int buffer;
  OnednnDesc desc;
  OnednnMemory memory;
} TwTensor;

#define TW_MOST_ARGS 64
typedef struct {
  OnednnPrimitive primitive;
  OnednnArg* args; /* their memories are set when all tensors have theirs */
  int* tensors;
  int num_args;
} TwStep;

typedef struct {
  int from, to;
} TwCopy;

typedef struct {
  const Onednn* api;
  TwRegion region;
  TwBuffer* buffers;
  TwTensor* tensors;
  TwStep* steps;
  TwCopy* copies; /* tensors that lie in another layout too */
  int num_buffers, num_tensors, num_steps, num_copies;
  int* values; /* the tensor of each entry, or -1 */
  int* reads;  /* how often each entry is read, by nodes and as a result */
  int num_arguments;
  char* memory;
  OnednnStream stream;
} TwNet;

/* A primitive in the making: what it reads and writes, by oneDNN's numbers of arguments. */
typedef struct {
  int count;
  int args[TW_MOST_ARGS], tensors[TW_MOST_ARGS];
} TwArgs;

/* Constants, in the order of the graph, have to stay where they are. */
int tw_net_build(TwNet* net, const DLTensor* const* constants);
void tw_net_free(TwNet* net);
int tw_net_plan(TwNet* net);

int tw_new_buffer(TwNet* net, size_t size);
/* Takes desc over, also when it fails (-1). */
int tw_new_tensor(TwNet* net, int buffer, OnednnDesc desc);
/* A tensor of that layout in new memory. */
int tw_new_value(TwNet* net, OnednnConstDesc desc);
int tw_input(TwNet* net, const TwNode* n, int i);
/* Gives the node's output number i its tensor. */
int tw_set_output(TwNet* net, const TwNode* n, int i, int tensor);
/* The tensor in that layout: itself, a copy that is there already, or what a reorder makes. */
int tw_in_layout(TwNet* net, int tensor, OnednnConstDesc desc);
/* Writes a tensor into another of the same shape. */
int tw_reorder_to(TwNet* net, int from, int to);
/* The tensor in a plain layout. */
int tw_in_plain(TwNet* net, int tensor, const TwShape* shape);
/* The same elements under another shape. */
int tw_reshaped(TwNet* net, int tensor, const TwShape* from, const TwShape* to);
/* Whether the node may write over the tensor: nobody reads it later. */
bool tw_may_overwrite(const TwNet* net, int tensor);
OnednnConstDesc tw_desc(const TwNet* net, int tensor);
OnednnDesc tw_plain(TwNet* net, const TwShape* shape);
OnednnDesc tw_any(TwNet* net, const TwShape* shape);
int tw_status(const TwRegion* r, const TwNode* n, int status);
void tw_add_arg(TwArgs* args, int arg, int tensor);
/* Makes the primitive of desc, which it takes over, with its scratchpad, and appends it. */
int tw_append(TwNet* net, const TwNode* n, OnednnPrimitiveDesc desc, TwArgs* args);
bool tw_is_reference(const TwNet* net, OnednnConstPrimitiveDesc desc);

/* ---- what follows an operator in the same primitive (post_ops.c) ---- */
#define TW_MOST_NAME 64
typedef struct {
  char base[TW_MOST_NAME];       /* the operator's name, without "nn." or "dnnl." and what follows */
  char activation[TW_MOST_NAME]; /* or empty */
  bool bias, sum;
  OnednnAttr attr;
} TwFusion;

typedef struct {
  int algorithm;
  float alpha, beta;
} TwActivation;

/* What an operator's name says: "dnnl.conv2d_bias_sum_relu" is conv2d with a bias, a summand and relu. Where there are these
 * inputs, they come after the operator's own, in this order. False when the name is too long. */
bool tw_fusion_parse(const TwNode* n, TwFusion* out);
/* Attributes for a primitive that does all of it. */
int tw_fusion_attr(TwNet* net, const TwNode* n, TwFusion* f);
/* The tensor that the result goes to, of that layout. With a summand it holds the summand: the result is added to it. */
int tw_fusion_result(TwNet* net, const TwNode* n, const TwFusion* f, OnednnConstDesc desc);
void tw_fusion_free(TwNet* net, TwFusion* f);
/* False where there is no activation of that name; *rc is -1 where its attributes are wrong. */
bool tw_activation(const TwRegion* r, const TwNode* n, const char* name, TwActivation* out, int* rc);
/* A plain attribute: with the caller's scratchpad and nothing else. */
OnednnAttr tw_attr(TwNet* net);

/* ---- operators ---- */
typedef int (*TwBuilder)(TwNet* net, const TwNode* n);
int tw_build_convolution(TwNet* net, const TwNode* n);
int tw_build_dense(TwNet* net, const TwNode* n);
int tw_build_batch_matmul(TwNet* net, const TwNode* n);
int tw_build_pooling(TwNet* net, const TwNode* n);
int tw_build_softmax(TwNet* net, const TwNode* n);
int tw_build_layer_norm(TwNet* net, const TwNode* n);
int tw_build_batch_norm(TwNet* net, const TwNode* n);
int tw_build_activation(TwNet* net, const TwNode* n);
int tw_build_binary(TwNet* net, const TwNode* n);
int tw_build_concat(TwNet* net, const TwNode* n);
int tw_build_reshape(TwNet* net, const TwNode* n);
int tw_build_transpose(TwNet* net, const TwNode* n);

#endif /* TILEWRIGHT_DNNL_H_ */
