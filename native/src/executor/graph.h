/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The graph executor's data: a graph as read from JSON, and what is prepared to run it. */
#ifndef TILEWRIGHT_GRAPH_H_
#define TILEWRIGHT_GRAPH_H_

#include "../module/module.h"

/* One tensor of the graph: output `entry - row_pointers[node]` of its node. */
typedef struct {
  DLDataType type;
  int ndim;
  int64_t* shape;
  size_t nbytes;
  int device_type;         /* where the graph wants it, or 0 */
  DLDevice device;         /* where it lives */
  int storage;             /* which pool buffer holds it */
  uint64_t storage_offset; /* where in that buffer, in bytes */
  int root;                /* the entry whose memory this is under another shape (through __nop), or itself */
  TwArray* array;
  bool borrowed; /* the memory is not the executor's own: replace it before writing to it */
  bool lent;     /* borrowed from the library, whose other executors read it too */
  bool feeds_once; /* a parameter that a call that runs once reads */
  bool given;      /* an input that has a value */
  bool parameter;  /* an input whose value belongs to the model */
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

/* The caller's array that an output goes to. */
typedef struct {
  TwArray* array; /* NULL: no caller has given one */
  bool copied;    /* a run copies to it: the output's own memory is shared with other tensors of the graph */
} GraphTarget;

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
  char** output_names;
  GraphTarget* targets; /* [num_outputs] */
  int num_copied;       /* of targets */
  TwMap input_index; /* name to index + 1, as a pointer */
  TwArray** storage;
  int num_storage;
  GraphCall* calls; /* first those that run once */
  int num_calls, num_once;
  int* prepared; /* entries: the results of calls that run once */
  int num_prepared;
  bool stale;   /* what runs once has not run since a parameter changed */
  bool exposed; /* a caller can write to such a parameter at any time */
  bool warned;  /* a run has told which inputs nobody has set */
  int executed; /* the node up to which graph_execute_node has run, -1 after a run */
  bool busy;    /* under lock, as is the thread that uses the executor then */
  pthread_t user;
  TwLock lock;
  pthread_cond_t idle;
  unsigned forks; /* in which process it was used last (tw_forks) */
  DLDevice* devices; /* that it was made on, each once */
  int num_devices;
  void** drivers; /* what their executor_made left */
  int num_made;   /* of drivers */
  TwFindings findings;
  TwModule* lib;
};

/* What executors of one graph and its parameters share. */
typedef struct {
  TwArray** prepared; /* results of calls that run once, in the order of nodes; none before the first executor has them */
  int num_prepared;
  struct TwPlacedParam* placed; /* parameters on other devices than the host */
} TwShared;
void tw_free_shared(TwShared* shared);

/* ---- what there is (graph.c) ---- */
/* The executor is this thread's until graph_end. Another's use is an error, or is waited for. All that touches tensors runs
 * between these. */
int graph_begin(TilewrightGraph* g, bool wait);
void graph_end(TilewrightGraph* g);
/* A __nop (a reshape) shares its input's memory under another shape. */
bool graph_is_nop(const GraphNode* node);
/* A __view (a concatenation or a split) has nothing to do: its inputs and outputs are parts of the same storage. */
bool graph_is_view(const GraphNode* node);
/* The entry of an input whose index is right. */
GraphEntry* graph_input(const TilewrightGraph* g, int index);
/* The entry's number; fails for an index that is not right. */
int graph_input_entry(const TilewrightGraph* g, int index, int* entry);
int graph_output_entry(const TilewrightGraph* g, int index, int* entry);
/* A tensor without its memory. */
DLTensor graph_description(const TilewrightGraph* g, int entry);
/* Input or output by name; fails naming those that there are. */
int graph_find_input(const TilewrightGraph* g, const char* name, int* index);
int graph_find_output(const TilewrightGraph* g, const char* name, int* index);
/* Names, with commas, of inputs and parameters without a value. */
void graph_unset_inputs(const TilewrightGraph* g, TwNames* names);
/* Says on stderr, once, which inputs nobody has set. */
void graph_warn_unset(TilewrightGraph* g);

/* ---- reading (graph_json.c) ---- */
/* Fills the graph's structure (nodes to num_outputs, input_index); nothing is allocated for tensors yet. */
int graph_read_json(TilewrightGraph* g, const char* json, size_t json_size);

/* ---- devices (graph_devices.c) ---- */
/* Takes the devices and tells them; leaving undoes it. */
int graph_take_devices(TilewrightGraph* g, const DLDevice* devices, int count);
void graph_leave_devices(TilewrightGraph* g);
/* Gives each entry its device. */
int graph_place_entries(TilewrightGraph* g);
/* A new array; NULL and an error on failure. */
TwArray* graph_copy_to(TwArray* array, DLDevice device);
/* Makes an operator's argument have the memory of an array. */
void graph_point_at(DLTensor* argument, const DLTensor* array);
/* The parameter where the device can use it: array itself, or the copy that all executors share, which is not the caller's. */
TwArray* graph_shared_param(TwShared* shared, TwArray* array, DLDevice device);

/* ---- memory (graph_memory.c) ---- */
/* Finds which entries are others under another shape. */
int graph_find_roots(TilewrightGraph* g);
/* Takes the results of calls that run once from another executor, or allocates them. */
int graph_place_prepared(TilewrightGraph* g, const TwShared* shared);
/* Memory for what has none yet: first the storage, then the entries in it. */
int graph_allocate_storage(TilewrightGraph* g);
int graph_allocate_entries(TilewrightGraph* g);
/* Whether the entry's memory is its own alone, so that it may be put elsewhere: it is the result of an operator that runs
 * at each run, and no part of a concatenation or split. */
bool graph_is_movable(const TilewrightGraph* g, int entry);
/* Makes the entry's memory be array's (retained), also for calls and for what lies in it. */
int graph_replace_array(TilewrightGraph* g, int entry, TwArray* array, bool borrowed);
/* Memory of the executor's own where others may use the entry's. */
int graph_own_memory(TilewrightGraph* g, int entry);

/* ---- running (graph_run.c) ---- */
int graph_prepare_calls(TilewrightGraph* g);
void graph_free_calls(TilewrightGraph* g);
int graph_run(TilewrightGraph* g);
/* Parts of a run: what runs once, where that is due; one operator; and copying outputs to the callers' arrays that they
 * could not be put into. */
int graph_run_once(TilewrightGraph* g);
int graph_run_call(const TilewrightGraph* g, GraphCall* c);
int graph_copy_outputs(const TilewrightGraph* g);
/* TilewrightGraphTimeNodes by a clock, which tells seconds. */
int graph_time_nodes(TilewrightGraph* g, int number, double (*now)(void), double* seconds);

/* ---- inputs and outputs (graph_io.c) ---- */
/* Makes array (retained), or a copy where it lives elsewhere, the value of a parameter. */
int graph_bind_param(TilewrightGraph* g, int index, TwArray* array, bool borrowed);
/* Makes array (retained) the input's memory, which its owner may write to at any time. */
int graph_set_zero_copy(TilewrightGraph* g, int index, TwArray* array);
/* Makes runs write the output to array (retained). */
int graph_set_output_zero_copy(TilewrightGraph* g, int index, TwArray* array);
/* Sets inputs, runs, and copies all outputs out; waits for other threads. */
int graph_infer(TilewrightGraph* g, int count, const char* const* names, const DLTensor* const* values,
                DLTensor* const* outputs);

/* ---- making (graph_build.c), and as a module (graph_module.c) ---- */
TilewrightGraph* tw_module_graph(TwModule* m);
/* Returns graph, which it takes over, as a module. */
int tw_return_graph(TilewrightGraph* graph, TVMRetValueHandle ret);

/* Creates an executor; params (may be NULL) are used in place, not copied, by entries on the host, and so is what shared (may
 * be NULL) has from other executors. */
int tw_graph_create(const char* json, size_t json_size, TwModule* lib, const DLDevice* devices, int num_devices,
                    const TwParams* params, TwShared* shared, TilewrightGraph** out);

#endif /* TILEWRIGHT_GRAPH_H_ */
