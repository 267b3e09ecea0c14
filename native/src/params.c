/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Arrays and parameter sets in TVM's serialized form. */
#include "internal.h"

static const uint64_t array_magic = 0xDD5E40F096B4A13Fu;
static const uint64_t params_magic = 0xF7E58D4F05049CB7u;

typedef struct {
  uint64_t magic, reserved;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
} ArrayHeader;

int tw_read_array(TilewrightStream* s, TwArray** out) {
  ArrayHeader h;
  if (TilewrightStreamRead(s, &h, sizeof h) != 0) return -1;
  if (h.magic != array_magic) return tw_fail("not an array in TVM's serialized form");
  if (h.ndim < 0 || (size_t)h.ndim > s->left / sizeof(int64_t)) return tw_fail("damaged array: %d dimensions", h.ndim);
  int64_t* shape = malloc((size_t)h.ndim * sizeof(int64_t) + 1);
  if (shape == NULL) return tw_out_of_memory((size_t)h.ndim * sizeof(int64_t));
  TwArray* a = NULL;
  uint64_t nbytes;
  size_t expected;
  int rc = TilewrightStreamRead(s, shape, (size_t)h.ndim * sizeof(int64_t));
  if (rc == 0) rc = tw_read_u64(s, &nbytes);
  if (rc == 0 && (!tw_tensor_bytes(h.ndim, shape, h.dtype, &expected) || expected != nbytes || nbytes > s->left)) {
    rc = tw_fail("damaged array: %llu bytes of data announced, %zu left", (unsigned long long)nbytes, s->left);
  }
  if (rc == 0) {
    /* saved parameters always live on the CPU, whatever device they came from */
    a = tw_array_new(shape, h.ndim, h.dtype, (DLDevice){kDLCPU, 0});
    rc = a == NULL ? -1 : TilewrightStreamRead(s, a->tensor.data, (size_t)nbytes);
  }
  free(shape);
  if (rc != 0) {
    tw_array_release(a);
    return -1;
  }
  *out = a;
  return 0;
}

int tw_write_array(TilewrightStream* s, const TwArray* array) {
  const DLTensor* t = &array->tensor;
  size_t nbytes;
  if (!tw_is_compact(t)) return tw_fail("only compact arrays can be saved");
  if (!tw_tensor_bytes(t->ndim, t->shape, t->dtype, &nbytes)) return tw_fail("damaged array shape");
  ArrayHeader h = {.magic = array_magic, .device = {kDLCPU, 0}, .ndim = t->ndim, .dtype = t->dtype};
  if (TilewrightStreamWrite(s, &h, sizeof h) != 0 ||
      TilewrightStreamWrite(s, t->shape, (size_t)t->ndim * sizeof(int64_t)) != 0 || tw_write_u64(s, nbytes) != 0) {
    return -1;
  }
  return TilewrightStreamWrite(s, (const char*)t->data + t->byte_offset, nbytes);
}

void tw_free_params(TwParams* params) {
  tw_free_strings(params->names, params->count);
  for (size_t i = 0; params->arrays != NULL && i < params->count; ++i) tw_array_release(params->arrays[i]);
  free(params->arrays);
  *params = (TwParams){0};
}

int tw_read_params(TilewrightStream* s, TwParams* out) {
  uint64_t magic, reserved, count;
  TwParams p = {0};
  if (tw_read_u64(s, &magic) != 0) return -1;
  if (magic != params_magic) return tw_fail("not a parameter file: it does not start as save_param_dict writes it");
  if (tw_read_u64(s, &reserved) != 0 || tw_read_strings(s, &p.names, &p.count) != 0) return -1;
  p.arrays = calloc(p.count + 1, sizeof(TwArray*));
  int rc = p.arrays == NULL ? tw_out_of_memory(p.count * sizeof(TwArray*)) : tw_read_u64(s, &count);
  if (rc == 0 && count != p.count) {
    rc = tw_fail("damaged parameter file: %zu names and %llu arrays", p.count, (unsigned long long)count);
  }
  for (size_t i = 0; rc == 0 && i < p.count; ++i) rc = tw_read_array(s, &p.arrays[i]);
  if (rc != 0) {
    tw_free_params(&p);
    return -1;
  }
  *out = p;
  return 0;
}

int tw_write_params(TilewrightStream* s, char* const* names, TwArray* const* arrays, size_t count) {
  int rc = tw_write_u64(s, params_magic);
  if (rc == 0) rc = tw_write_u64(s, 0);
  if (rc == 0) rc = tw_write_strings(s, names, count);
  if (rc == 0) rc = tw_write_u64(s, count);
  for (size_t i = 0; rc == 0 && i < count; ++i) rc = tw_write_array(s, arrays[i]);
  return rc;
}
