/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Arrays and parameter sets in TVM's serialized form. */
#include "array.h"

static const uint64_t array_magic = 0xDD5E40F096B4A13Fu;
static const uint64_t apart_magic = 0xDD5E40F096B4A150u; /* the place and the checksum in a file of weights follow */
static const uint64_t params_magic = 0xF7E58D4F05049CB7u;

/* Arrays from this size are used where they lie in a library, when that is aligned. An array of zeros before each in a
 * factory's payload sees to it; its name is no input of any graph, so TVM passes over it. */
enum { MAPPED_BYTES = 4096 };
static const char padding_name[] = "__padding";

typedef struct {
  uint64_t magic, reserved;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
} ArrayHeader;

/* An array whose elements are in the file of weights. */
static int read_apart(TilewrightStream* s, const int64_t* shape, const ArrayHeader* h, uint64_t nbytes, TwArray** out) {
  uint64_t offset, checksum;
  const char* data;
  if (s->weights == NULL) return tw_fail("damaged array: its elements are in a file of weights, and none is named");
  if (tw_read_u64(s, &offset) != 0 || tw_read_u64(s, &checksum) != 0) return -1;
  if (tw_find_weight(s->weights, offset, nbytes, checksum, &data) != 0) return -1;
  *out = tw_array_mapped(s->weights, data, shape, h->ndim, h->dtype);
  return *out == NULL ? -1 : 0;
}

int tw_read_array(TilewrightStream* s, TwArray** out) {
  ArrayHeader h;
  if (TilewrightStreamRead(s, &h, sizeof h) != 0) return -1;
  if (h.magic != array_magic && h.magic != apart_magic) return tw_fail("not an array in TVM's serialized form");
  if (h.ndim < 0 || (size_t)h.ndim > s->left / sizeof(int64_t)) return tw_fail("damaged array: %d dimensions", h.ndim);
  int64_t* shape = malloc((size_t)h.ndim * sizeof(int64_t) + 1);
  if (shape == NULL) return tw_out_of_memory((size_t)h.ndim * sizeof(int64_t));
  TwArray* a = NULL;
  uint64_t nbytes;
  size_t expected;
  int rc = TilewrightStreamRead(s, shape, (size_t)h.ndim * sizeof(int64_t));
  if (rc == 0) rc = tw_read_u64(s, &nbytes);
  if (rc == 0 && (!tw_tensor_bytes(h.ndim, shape, h.dtype, &expected) || expected != nbytes ||
                  (h.magic == array_magic && nbytes > s->left))) {
    rc = tw_fail("damaged array: %llu bytes of data announced, %zu left", (unsigned long long)nbytes, s->left);
  }
  if (rc == 0 && h.magic == apart_magic) {
    rc = read_apart(s, shape, &h, nbytes, &a);
  } else if (rc == 0 && s->mapping != NULL && nbytes >= MAPPED_BYTES && (uintptr_t)s->data % TW_ALIGNMENT == 0) {
    a = tw_array_mapped(s->mapping, s->data, shape, h.ndim, h.dtype);
    rc = a == NULL ? -1 : 0;
    s->data += nbytes;
    s->left -= (size_t)nbytes;
  } else if (rc == 0) {
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

/* Whether an array may be a description, such as that of a program's inputs, which belongs into the library. */
static bool is_text(const DLTensor* t) { return t->ndim == 1 && t->dtype.bits == 8 && t->shape[0] < 1 << 20; }

/* Where the elements are in the file of weights, which gets them. */
static int write_apart(TilewrightStream* s, const TwArray* array, size_t nbytes) {
  uint64_t offset = 0, checksum = 0;
  if (s->counted == NULL && tw_weights_add(s->apart, array, nbytes, &offset, &checksum) != 0) return -1;
  return tw_write_u64(s, offset) != 0 ? -1 : tw_write_u64(s, checksum);
}

int tw_write_array(TilewrightStream* s, const TwArray* array) {
  const DLTensor* t = &array->tensor;
  size_t nbytes;
  const bool compact = tw_is_compact(t);
  if (!compact && (!tw_is_host(t->device) || t->ndim > 64)) return tw_fail("only compact arrays can be saved");
  if (!tw_tensor_bytes(t->ndim, t->shape, t->dtype, &nbytes)) return tw_fail("damaged array shape");
  const bool apart = s->apart != NULL && nbytes >= MAPPED_BYTES && !is_text(t);
  ArrayHeader h = {
      .magic = apart ? apart_magic : array_magic, .device = {kDLCPU, 0}, .ndim = t->ndim, .dtype = t->dtype};
  if (TilewrightStreamWrite(s, &h, sizeof h) != 0 ||
      TilewrightStreamWrite(s, t->shape, (size_t)t->ndim * sizeof(int64_t)) != 0 || tw_write_u64(s, nbytes) != 0) {
    return -1;
  }
  if (apart) return write_apart(s, array, nbytes);
  return s->counted != NULL ? TilewrightStreamWrite(s, NULL, nbytes) : tw_write_elements(s, array, nbytes);
}

static bool is_large(const TwArray* a) {
  size_t nbytes;
  return tw_tensor_bytes(a->tensor.ndim, a->tensor.shape, a->tensor.dtype, &nbytes) && nbytes >= MAPPED_BYTES;
}

/* An array of zeros, after which the elements of one with ndim dimensions are aligned. */
static int write_padding(TilewrightStream* s, int ndim) {
  long at = s->counted != NULL ? (long)*s->counted : s->file == NULL ? 0 : ftell(s->file);
  if (at < 0) return tw_fail("cannot tell the position in a file that is written");
  size_t heads = 2 * (sizeof(ArrayHeader) + sizeof(uint64_t)) + (size_t)(1 + ndim) * sizeof(int64_t);
  int64_t size = (int64_t)((TW_ALIGNMENT - ((size_t)at + heads) % TW_ALIGNMENT) % TW_ALIGNMENT);
  TwArray* zeros = tw_array_new(&size, 1, (DLDataType){kDLUInt, 8, 1}, (DLDevice){kDLCPU, 0});
  if (zeros == NULL) return -1;
  memset(zeros->tensor.data, 0, (size_t)size);
  int rc = tw_write_array(s, zeros);
  tw_array_release(zeros);
  return rc;
}

int tw_write_named(TilewrightStream* s, const TwParams* params) {
  const bool padded = s->apart == NULL;
  uint64_t count = params->count;
  for (size_t i = 0; padded && i < params->count; ++i) count += is_large(params->arrays[i]);
  int rc = tw_write_u64(s, count) != 0 || tw_write_u64(s, count) != 0 ? -1 : 0;
  for (size_t i = 0; rc == 0 && i < params->count; ++i) {
    if (padded && is_large(params->arrays[i])) rc = tw_write_string(s, padding_name, sizeof padding_name - 1);
    if (rc == 0) rc = tw_write_string(s, params->names[i], strlen(params->names[i]));
  }
  for (size_t i = 0; rc == 0 && i < params->count; ++i) {
    if (padded && is_large(params->arrays[i])) rc = write_padding(s, params->arrays[i]->tensor.ndim);
    if (rc == 0) rc = tw_write_array(s, params->arrays[i]);
  }
  return rc;
}

static void drop_padding(TwParams* p) {
  size_t kept = 0;
  for (size_t i = 0; i < p->count; ++i) {
    if (strcmp(p->names[i], padding_name) == 0) {
      free(p->names[i]);
      tw_array_release(p->arrays[i]);
    } else {
      p->names[kept] = p->names[i];
      p->arrays[kept++] = p->arrays[i];
    }
  }
  for (size_t i = kept; i < p->count; ++i) {
    p->names[i] = NULL;
    p->arrays[i] = NULL;
  }
  p->count = kept;
}

int tw_read_named(TilewrightStream* s, TwParams* out) {
  TwParams p = {0};
  uint64_t count;
  if (tw_read_u64(s, &count) != 0 || tw_read_strings(s, &p.names, &p.count) != 0) return -1;
  p.arrays = calloc(p.count + 1, sizeof(TwArray*));
  int rc = p.arrays == NULL ? tw_out_of_memory(p.count * sizeof(TwArray*)) : 0;
  if (rc == 0 && p.count != count) {
    rc = tw_fail("damaged module table: %zu parameter names for %llu arrays", p.count, (unsigned long long)count);
  }
  for (size_t i = 0; rc == 0 && i < p.count; ++i) rc = tw_read_array(s, &p.arrays[i]);
  if (rc != 0) {
    tw_free_params(&p);
    return -1;
  }
  drop_padding(&p);
  *out = p;
  return 0;
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
