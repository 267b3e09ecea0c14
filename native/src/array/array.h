/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Arrays and sets of them. */
#ifndef TILEWRIGHT_ARRAY_H_
#define TILEWRIGHT_ARRAY_H_

#include "../device/device.h"
/* ---- arrays (ndarray.c, params.c) ---- */
typedef struct TwArray {
  DLTensor tensor; /* first, so that a handle is both */
  atomic_int refs;
  struct TwArray* parent;    /* whose memory this is a view of */
  DLManagedTensor* borrowed; /* whose memory this wraps */
  TwMapping* mapping;        /* whose memory this is in */
  bool read_only;            /* others read this memory too: nobody writes to it through this array, nor through its views */
  void* allocation;          /* its own memory, which its device frees, or NULL */
  struct TwRoom* room;       /* of memory that tensors grow in (vm/append.c), or NULL */
  struct TwPool* pool;       /* whose memory it has, or NULL; then recycle takes it when nobody holds it */
  void (*recycle)(struct TwArray* array);
  int64_t dims[];
} TwArray;

/* Between devices as well; on the default stream. */
int tw_copy(const DLTensor* from, DLTensor* to);
TwArray* tw_array_new(const int64_t* shape, int ndim, DLDataType type, DLDevice device);
/* An array that has memory of its device, which it frees with it; NULL, and the memory the caller's, on failure. */
TwArray* tw_array_adopt(void* data, const int64_t* shape, int ndim, DLDataType type, DLDevice device);
/* Filled with zeros, where tw_array_new gives memory as it lies. */
TwArray* tw_array_zeros(const int64_t* shape, int ndim, DLDataType type, DLDevice device);
/* A view of nbytes at byte_offset of parent, which it retains. */
TwArray* tw_array_view(TwArray* parent, uint64_t byte_offset, const int64_t* shape, int ndim, DLDataType type);
/* A view of the whole of parent that nobody writes through; parent itself, retained, where it is that already. */
TwArray* tw_array_read_only(TwArray* parent);
/* Whether an array, or what it is a view of, is read-only. */
bool tw_array_is_read_only(const TwArray* array);
/* Lets an array be ready for use: one that the compiler left as a view of a file, in another order or not aligned, is
 * replaced by a copy. */
int tw_array_settle(TwArray** array);
/* An array whose elements are at data, in a mapping, which it retains. */
TwArray* tw_array_mapped(TwMapping* mapping, const char* data, const int64_t* shape, int ndim, DLDataType type);
/* An array without memory, with room for `capacity` dimensions. */
TwArray* tw_array_header(const int64_t* shape, int ndim, int capacity, DLDataType type, DLDevice device);
/* Makes a header, of enough capacity, a view of nbytes at byte_offset of parent, which it retains. */
void tw_array_bind(TwArray* a, TwArray* parent, uint64_t byte_offset, const int64_t* shape, int ndim, DLDataType type);
TwArray* tw_array_retain(TwArray* array);
void tw_array_release(TwArray* array);
int tw_read_array(TilewrightStream* s, TwArray** out);
int tw_write_array(TilewrightStream* s, const TwArray* array);
/* Its nbytes of elements alone, in row-major order. */
int tw_write_elements(TilewrightStream* s, const TwArray* array, size_t nbytes);
int tw_write_params(TilewrightStream* s, char* const* names, TwArray* const* arrays, size_t count);

typedef struct {
  char** names;
  TwArray** arrays;
  size_t count;
} TwParams;
/* Whether sets of so many bytes are worth an index of their headers, and the padding that lets them be mapped. */
enum { TW_INDEXED_BYTES = 4 << 20 };
/* Where a stream is in its file, or would be in the one whose bytes it counts. */
int tw_stream_position(const TilewrightStream* s, uint64_t* at);
/* A count, the names and the arrays, with padding that lets tw_read_named find the elements of large arrays aligned. */
int tw_write_named(TilewrightStream* s, const TwParams* params);
int tw_read_named(TilewrightStream* s, TwParams* out);
/* The contents of save_param_dict. */
int tw_read_params(TilewrightStream* s, TwParams* out);
void tw_free_params(TwParams* params);

/* ---- files of weights (weights.c) ---- */
/* Maps the file of a name relative to the folder of a library, whose arrays the stream then may refer to. */
int tw_open_weights(TilewrightStream* s, const char* library, const char* name);
/* Finds a tensor's elements, and checks that they are those that a library means. */
int tw_find_weight(const TwMapping* file, uint64_t offset, uint64_t nbytes, uint64_t checksum, const char** out);
/* Adds to the file `old` (or "": there is none) what it lacks: `added` gets it, at the places behind the old. */
struct TwWeights* tw_weights_open(const char* old, const char* added, TilewrightSaving* saving);
int tw_weights_add(struct TwWeights* weights, const TwArray* array, size_t nbytes, uint64_t* offset, uint64_t* checksum);
int tw_weights_close(struct TwWeights* weights);

/* ---- pools (pool.c) ---- */
/* Memory of one device that is kept for the next who wants as much. Any thread may take of it and give back. */
typedef struct TwPool TwPool;
TwPool* tw_pool_new(DLDevice device);
TwPool* tw_pool_retain(TwPool* pool);
void tw_pool_release(TwPool* pool);
/* Bytes that may lie idle; what comes back beyond them is freed. */
void tw_pool_set_bound(TwPool* pool, size_t nbytes);
/* Bytes that lie idle, and bytes that are in use. */
void tw_pool_usage(TwPool* pool, size_t* idle, size_t* used);
/* A block of at least nbytes: an array of bytes, whose one dimension says how many were asked for. */
TwArray* tw_pool_take(TwPool* pool, size_t nbytes, DLDataType hint);
/* A view of nbytes at byte_offset of parent, whose header is the pool's. */
TwArray* tw_pool_view(TwPool* pool, TwArray* parent, uint64_t byte_offset, const int64_t* shape, int ndim, DLDataType type);

/* ---- objects (object.c) ---- */
/* What a register of the virtual machine holds, and a field of an object. */
typedef enum { TW_NOTHING, TW_INTEGER, TW_TENSOR, TW_OBJECT } TwSlotKind;
typedef struct {
  TwSlotKind kind;
  bool carried; /* of an input of the virtual machine: it came by carry, so the run may take it and write to it */
  union {
    int64_t integer;
    TwArray* array;
    struct TwObject* object;
  };
} TwSlot;

/* A value of a data type (tuples have tag 0), a reference (a tuple of one that is written to), or a closure. */
typedef struct TwObject {
  atomic_int refs;
  bool closure;
  int64_t tag;           /* the constructor's, or the function's index */
  struct TwObject* next; /* of those being freed */
  size_t size;
  TwSlot fields[];
} TwObject;

/* Fields hold nothing yet. */
TwObject* tw_object_new(bool closure, int64_t tag, size_t size);
TwObject* tw_object_retain(TwObject* object);
/* Frees however deep a structure without recursion. */
void tw_object_release(TwObject* object);
void tw_slot_clear(TwSlot* slot);
TwSlot tw_slot_copy(const TwSlot* slot);

#endif /* TILEWRIGHT_ARRAY_H_ */
