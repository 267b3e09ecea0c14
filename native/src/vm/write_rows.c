/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * tilewright.vm.write_rows(past, more, starts, axis, last): a buffer with new rows, in its own memory where nobody else has it.
 *
 *   past (2, 3, 128, 64), more (2, 3, 1, 64), starts (17, 20), axis 2:  row 17 of the three heads of item 0, row 20 of item 1
 *
 * Decoders keep keys and values of a fixed length so. What a caller holds is never written: whoever holds an array has counted
 * it, and it is copied then. `carry` of the machine makes outputs inputs without a count that stays. */
#include "vm.h"

static int64_t product(const int64_t* shape, int from, int to) {
  int64_t n = 1;
  for (int i = from; i < to; ++i) n *= shape[i];
  return n;
}

static int check(const DLTensor* past, const DLTensor* more, const DLTensor* starts, int64_t axis) {
  bool fits = past->ndim == more->ndim && axis >= 1 && axis < past->ndim && tw_same_type(past->dtype, more->dtype);
  for (int i = 0; fits && i < past->ndim; ++i) fits = i == axis || past->shape[i] == more->shape[i];
  if (!fits) {
    char a[64], b[64];
    return tw_fail("cannot write rows of shape %s to a buffer of shape %s along axis %lld: types and all other dimensions must be equal",
                   tw_shape_text(more, b, sizeof b), tw_shape_text(past, a, sizeof a), (long long)axis);
  }
  const int bits = starts->dtype.bits;
  if (starts->ndim != 1 || starts->dtype.code != kDLInt || starts->dtype.lanes != 1 || (bits != 32 && bits != 64) ||
      (starts->shape[0] != 1 && starts->shape[0] != past->shape[0])) {
    return tw_fail("rows begin where a vector of int32 or int64 says, of one element or as many as the batch has items");
  }
  const DLTensor* all[] = {past, more, starts};
  for (int i = 0; i < 3; ++i) {
    if (!tw_is_host(all[i]->device) || !tw_is_compact(all[i])) return tw_fail("rows are written to compact arrays on the host");
  }
  return 0;
}

/* Fails unless the rows of every item of the batch fit. */
static int read_start(const DLTensor* starts, int64_t item, int64_t most, int64_t* out) {
  const char* data = (const char*)starts->data + starts->byte_offset;
  const int64_t at = starts->shape[0] == 1 ? 0 : item;
  *out = starts->dtype.bits == 64 ? ((const int64_t*)data)[at] : ((const int32_t*)data)[at];
  if (*out >= 0 && *out <= most) return 0;
  return tw_fail("rows of item %lld begin at %lld; the buffer has room for them at 0 to %lld", (long long)item, (long long)*out, (long long)most);
}

/* Whether memory is an array's own, and nobody but who asks holds it. */
static bool is_sole(const TwArray* a) {
  return a->parent == NULL && a->borrowed == NULL && a->mapping == NULL && !a->read_only && atomic_load_explicit(&a->refs, memory_order_acquire) == 1;
}

static TwArray* copy_of(const DLTensor* t) {
  TwArray* copy = tw_array_zeros(t->shape, t->ndim, t->dtype, t->device);
  if (copy != NULL && tw_copy(t, &copy->tensor) == 0) return copy;
  tw_array_release(copy);
  return NULL;
}

TwArray* vm_write_rows(TwArray* past, const TwArray* more, const TwArray* starts, int64_t axis, bool last) {
  const DLTensor *p = &past->tensor, *m = &more->tensor, *s = &starts->tensor;
  if (check(p, m, s, axis) != 0) return NULL;
  const int64_t most = p->shape[axis] - m->shape[axis], heads = product(p->shape, 1, (int)axis);
  int64_t start;
  for (int64_t i = 0; i < p->shape[0]; ++i) {
    if (read_start(s, i, most, &start) != 0) return NULL;
  }
  TwArray* result = last && is_sole(past) ? tw_array_retain(past) : copy_of(p);
  if (result == NULL) return NULL;
  const size_t row = (size_t)product(p->shape, (int)axis + 1, p->ndim) * tw_type_bytes(p->dtype);
  const size_t size = row * (size_t)m->shape[axis], step = row * (size_t)p->shape[axis];
  char* to = (char*)result->tensor.data + result->tensor.byte_offset;
  const char* from = (const char*)m->data + m->byte_offset;
  for (int64_t i = 0; size != 0 && i < p->shape[0]; ++i) {
    if (read_start(s, i, most, &start) != 0) break;
    for (int64_t h = 0; h < heads; ++h, to += step, from += size) memcpy(to + row * (size_t)start, from, size);
  }
  return result;
}
