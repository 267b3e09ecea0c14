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
  void* allocation;          /* its own memory, which its device frees, or NULL */
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
/* An array whose elements are at data, in a mapping, which it retains. */
TwArray* tw_array_mapped(TwMapping* mapping, const char* data, const int64_t* shape, int ndim, DLDataType type);
TwArray* tw_array_retain(TwArray* array);
void tw_array_release(TwArray* array);
int tw_read_array(TilewrightStream* s, TwArray** out);
int tw_write_array(TilewrightStream* s, const TwArray* array);
int tw_write_params(TilewrightStream* s, char* const* names, TwArray* const* arrays, size_t count);

typedef struct {
  char** names;
  TwArray** arrays;
  size_t count;
} TwParams;
/* A count, the names and the arrays, with padding that lets tw_read_named find the elements of large arrays aligned. */
int tw_write_named(TilewrightStream* s, const TwParams* params);
int tw_read_named(TilewrightStream* s, TwParams* out);
/* The contents of save_param_dict. */
int tw_read_params(TilewrightStream* s, TwParams* out);
void tw_free_params(TwParams* params);

#endif /* TILEWRIGHT_ARRAY_H_ */
