/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The graph executor's data: a graph as read from JSON, and what is prepared to run it. */
#ifndef TILEWRIGHT_GRAPH_H_
#define TILEWRIGHT_GRAPH_H_

#include "internal.h"

/* One tensor of the graph: output `entry - row_pointers[node]` of its node. */
typedef struct {
  DLDataType type;
  int ndim;
  int64_t* shape;
  size_t nbytes;
  int storage;             /* which pool buffer holds it */
  uint64_t storage_offset; /* where in that buffer, in bytes */
  int root;                /* the entry whose memory this is under another shape (through __nop), or itself */
  TwArray* array;
  bool borrowed; /* the memory is not the executor's own: replace it before writing to it */
  bool feeds_once; /* a parameter that a call that runs once reads */
  DLTensor** uses; /* arguments of calls that point at this memory; kept at the root */
  int num_uses;
} GraphEntry;

typedef struct {
  char* name;
  char* function; /* NULL for inputs and constants */
  bool flatten;
  bool once; /* reads parameters only, so that one run serves all runs of the graph */
  int* inputs; /* entries */
  int num_inputs;
} GraphNode;

/* One operator, ready to be called. */
typedef struct {
  TVMBackendPackedCFunc direct; /* the compiled code, or NULL: then func is called */
  TwFunc* func;                 /* NULL for __copy */
  TVMValue* args;
  int* codes;
  DLTensor* tensors;
  int64_t* flat_shapes;
  int num_args;
  int node;
} GraphCall;

struct TilewrightGraph {
  GraphNode* nodes;
  int num_nodes;
  GraphEntry* entries;
  int num_entries;
  int* row_pointers; /* [num_nodes + 1]: the first entry of each node */
  int* inputs;       /* nodes */
  int num_inputs;
  int* outputs; /* entries */
  int num_outputs;
  TwMap input_index; /* name to index + 1, as a pointer */
  TwArray** storage;
  int num_storage;
  GraphCall* calls; /* first those that run once */
  int num_calls, num_once;
  int* prepared; /* entries: the results of calls that run once */
  int num_prepared;
  bool stale;   /* what runs once has not run since a parameter changed */
  bool exposed; /* a caller can write to such a parameter at any time */
  DLDevice device;
  TwModule* lib;
};

/* Fills the graph's structure (nodes to num_outputs, input_index); nothing is allocated for tensors yet. */
int graph_read_json(TilewrightGraph* g, const char* json, size_t json_size);
/* The entry of an input; fails when the index is out of range. */
int graph_input_entry(const TilewrightGraph* g, int index, int* entry);
/* Makes the input's memory be array's (retained); fails when shape or type differ. */
int graph_replace_input(TilewrightGraph* g, int entry, TwArray* array, bool borrowed);
/* A caller may write to the input's memory from now on without telling. */
void graph_expose_input(TilewrightGraph* g, int entry);
/* Input by name; fails naming the inputs there are. */
int graph_find_input(const TilewrightGraph* g, const char* name, int* index);

#endif /* TILEWRIGHT_GRAPH_H_ */
