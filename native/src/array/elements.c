/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The elements of arrays in files, in row-major order. */
#include "array.h"

/* Writes the elements of a strided array on the host in row-major order, by way of a piece of memory. */
static int write_strided(TilewrightStream* s, const DLTensor* t, size_t item) {
  enum { PIECE = 1 << 20 };
  int64_t index[64] = {0}, run = 1, count = 1;
  int ndim = t->ndim;
  for (int i = 0; i < ndim; ++i) count *= t->shape[i];
  while (ndim > 0 && t->strides[ndim - 1] == run) run *= t->shape[--ndim];
  const size_t nbytes = (size_t)run * item;
  char* piece = malloc(PIECE);
  if (piece == NULL) return tw_out_of_memory(PIECE);
  const char* from = (const char*)t->data + t->byte_offset;
  size_t filled = 0;
  int rc = 0;
  for (int64_t left = count; rc == 0 && left > 0; left -= run) {
    if (filled + nbytes > PIECE) {
      rc = TilewrightStreamWrite(s, piece, filled);
      filled = 0;
    }
    if (nbytes > PIECE) {
      rc = rc != 0 ? rc : TilewrightStreamWrite(s, from, nbytes);
    } else {
      memcpy(piece + filled, from, nbytes);
      filled += nbytes;
    }
    for (int i = ndim - 1; i >= 0; --i) {
      from += t->strides[i] * (int64_t)item;
      if (++index[i] < t->shape[i]) break;
      from -= t->strides[i] * (int64_t)item * index[i];
      index[i] = 0;
    }
  }
  if (rc == 0) rc = TilewrightStreamWrite(s, piece, filled);
  free(piece);
  return rc;
}

int tw_write_elements(TilewrightStream* s, const TwArray* array, size_t nbytes) {
  const DLTensor* t = &array->tensor;
  if (!tw_is_compact(t)) return write_strided(s, t, tw_type_bytes(t->dtype));
  if (tw_is_host(t->device)) return TilewrightStreamWrite(s, (const char*)t->data + t->byte_offset, nbytes);
  TwArray* here = tw_array_new(t->shape, t->ndim, t->dtype, (DLDevice){kDLCPU, 0});
  int rc = here == NULL ? -1 : tw_copy(t, &here->tensor);
  if (rc == 0) rc = TilewrightStreamWrite(s, here->tensor.data, nbytes);
  tw_array_release(here);
  return rc;
}
