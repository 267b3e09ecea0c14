/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Arrays and parameter sets in TVM's serialized form. */
#include "array.h"

static const uint64_t array_magic = 0xDD5E40F096B4A13Fu;
static const uint64_t apart_magic = 0xDD5E40F096B4A150u; /* the place and the checksum in a file of weights follow */
static const uint64_t params_magic = 0xF7E58D4F05049CB7u;

/* Arrays from this size are used where they lie in a library, when that is aligned. An array of zeros before each in a
 * factory's payload sees to it; its name is no input of any graph, so TVM passes over it.
 *
 * Where there are many bytes, the first array holds the headers of all others once more, and small arrays come before
 * large ones: who opens a library then touches no page between weights, each of which the system reads from the disk
 * with 2 MiB around it. */
enum { MAPPED_BYTES = 4096 };
static const char padding_name[] = "__padding", headers_name[] = "__headers";

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

static size_t header_bytes(int ndim) { return sizeof(ArrayHeader) + (size_t)ndim * sizeof(int64_t) + sizeof(uint64_t); }

/* The elements of an array whose header has been read; with `skipped` there is none, only its place is passed over. */
static int read_elements(TilewrightStream* s, const ArrayHeader* h, const int64_t* shape, uint64_t nbytes, bool skipped,
                         TwArray** out) {
  size_t expected;
  if (!tw_tensor_bytes(h->ndim, shape, h->dtype, &expected) || expected != nbytes ||
      (h->magic == array_magic && nbytes > s->left)) {
    return tw_fail("damaged array: %llu bytes of data announced, %zu left", (unsigned long long)nbytes, s->left);
  }
  if (h->magic == apart_magic) return read_apart(s, shape, h, nbytes, out);
  const bool mapped = s->mapping != NULL && nbytes >= MAPPED_BYTES && (uintptr_t)s->data % TW_ALIGNMENT == 0;
  if (skipped || mapped) {
    if (!skipped) *out = tw_array_mapped(s->mapping, s->data, shape, h->ndim, h->dtype);
    s->data += nbytes;
    s->left -= (size_t)nbytes;
    return skipped || *out != NULL ? 0 : -1;
  }
  /* saved parameters always live on the CPU, whatever device they came from */
  *out = tw_array_new(shape, h->ndim, h->dtype, (DLDevice){kDLCPU, 0});
  return *out == NULL ? -1 : TilewrightStreamRead(s, (*out)->tensor.data, (size_t)nbytes);
}

/* Passes over a header that has been read elsewhere. */
static int skip_header(TilewrightStream* s, int ndim) {
  const size_t nbytes = header_bytes(ndim);
  if (nbytes > s->left) return tw_fail("damaged array: its header takes %zu bytes, and %zu are left", nbytes, s->left);
  s->data += nbytes;
  s->left -= nbytes;
  return 0;
}

/* An array of `s`, whose header is the next of `headers`; that may be `s` itself. */
static int read_array(TilewrightStream* headers, TilewrightStream* s, bool skipped, TwArray** out) {
  ArrayHeader h;
  if (TilewrightStreamRead(headers, &h, sizeof h) != 0) return -1;
  if (h.magic != array_magic && h.magic != apart_magic) return tw_fail("not an array in TVM's serialized form");
  if (h.ndim < 0 || (size_t)h.ndim > headers->left / sizeof(int64_t)) {
    return tw_fail("damaged array: %d dimensions", h.ndim);
  }
  int64_t* shape = malloc((size_t)h.ndim * sizeof(int64_t) + 1);
  if (shape == NULL) return tw_out_of_memory((size_t)h.ndim * sizeof(int64_t));
  TwArray* a = NULL;
  uint64_t nbytes;
  int rc = TilewrightStreamRead(headers, shape, (size_t)h.ndim * sizeof(int64_t));
  if (rc == 0) rc = tw_read_u64(headers, &nbytes);
  if (rc == 0 && headers != s) rc = skip_header(s, h.ndim);
  if (rc == 0) rc = read_elements(s, &h, shape, nbytes, skipped, &a);
  free(shape);
  if (rc != 0) {
    tw_array_release(a);
    return -1;
  }
  *out = a;
  return 0;
}

int tw_read_array(TilewrightStream* s, TwArray** out) { return read_array(s, s, false, out); }

/* Whether an array may be a description, such as that of a program's inputs, which belongs into the library. */
static bool is_text(const DLTensor* t) { return t->ndim == 1 && t->dtype.bits == 8 && t->shape[0] < 1 << 20; }

/* Where the elements are in the file of weights, which gets them. */
static int write_apart(TilewrightStream* s, const TwArray* array, size_t nbytes) {
  uint64_t offset = 0, checksum = 0;
  if (s->counted == NULL && tw_weights_add(s->apart, array, nbytes, &offset, &checksum) != 0) return -1;
  return tw_write_u64(s, offset) != 0 ? -1 : tw_write_u64(s, checksum);
}

static int write_header(TilewrightStream* s, uint64_t magic, int ndim, const int64_t* shape, DLDataType type, uint64_t nbytes) {
  const ArrayHeader h = {.magic = magic, .device = {kDLCPU, 0}, .ndim = ndim, .dtype = type};
  if (TilewrightStreamWrite(s, &h, sizeof h) != 0) return -1;
  return TilewrightStreamWrite(s, shape, (size_t)ndim * sizeof(int64_t)) != 0 ? -1 : tw_write_u64(s, nbytes);
}

int tw_write_array(TilewrightStream* s, const TwArray* array) {
  const DLTensor* t = &array->tensor;
  size_t nbytes;
  const bool compact = tw_is_compact(t);
  if (!compact && (!tw_is_host(t->device) || t->ndim > 64)) return tw_fail("only compact arrays can be saved");
  if (!tw_tensor_bytes(t->ndim, t->shape, t->dtype, &nbytes)) return tw_fail("damaged array shape");
  const bool apart = s->apart != NULL && nbytes >= MAPPED_BYTES && !is_text(t);
  if (write_header(s, apart ? apart_magic : array_magic, t->ndim, t->shape, t->dtype, nbytes) != 0) return -1;
  if (apart) return write_apart(s, array, nbytes);
  return s->counted != NULL ? TilewrightStreamWrite(s, NULL, nbytes) : tw_write_elements(s, array, nbytes);
}

static size_t bytes_of(const TwArray* a) {
  size_t nbytes;
  return tw_tensor_bytes(a->tensor.ndim, a->tensor.shape, a->tensor.dtype, &nbytes) ? nbytes : 0;
}

static bool is_large(const TwArray* a) { return bytes_of(a) >= MAPPED_BYTES; }

static const DLDataType byte_type = {kDLUInt, 8, 1};

/* How many zeros at a place, after their header, let the elements of an array with ndim dimensions be aligned. */
static int64_t padding_bytes(uint64_t at, int ndim) {
  return (int64_t)((TW_ALIGNMENT - (at + header_bytes(1) + header_bytes(ndim)) % TW_ALIGNMENT) % TW_ALIGNMENT);
}

int tw_stream_position(const TilewrightStream* s, uint64_t* at) {
  const long found = s->counted != NULL ? (long)*s->counted : s->file == NULL ? 0 : ftell(s->file);
  *at = (uint64_t)found;
  return found < 0 ? tw_fail("cannot tell the position in a file that is written") : 0;
}

/* An array of zeros, after which the elements of one with ndim dimensions are aligned. */
static int write_padding(TilewrightStream* s, int ndim) {
  static const char zeros[TW_ALIGNMENT];
  uint64_t at;
  if (tw_stream_position(s, &at) != 0) return -1;
  const int64_t size = padding_bytes(at, ndim);
  if (write_header(s, array_magic, 1, &size, byte_type, (uint64_t)size) != 0) return -1;
  return TilewrightStreamWrite(s, zeros, (size_t)size);
}

/* Writes the array that holds the headers of all that follow it. */
static int write_headers(TilewrightStream* s, const TwParams* params) {
  int64_t size = 0;
  uint64_t at;
  for (size_t i = 0; i < params->count; ++i) {
    const TwArray* a = params->arrays[i];
    size += (int64_t)(header_bytes(a->tensor.ndim) + (is_large(a) ? header_bytes(1) : 0));
  }
  if (write_header(s, array_magic, 1, &size, byte_type, (uint64_t)size) != 0 || tw_stream_position(s, &at) != 0) return -1;
  at += (uint64_t)size;
  for (size_t i = 0; i < params->count; ++i) {
    const DLTensor* t = &params->arrays[i]->tensor;
    const int64_t zeros = padding_bytes(at, t->ndim);
    const size_t nbytes = bytes_of(params->arrays[i]);
    if (nbytes >= MAPPED_BYTES) {
      if (write_header(s, array_magic, 1, &zeros, byte_type, (uint64_t)zeros) != 0) return -1;
      at += header_bytes(1) + (uint64_t)zeros;
    }
    if (write_header(s, array_magic, t->ndim, t->shape, t->dtype, nbytes) != 0) return -1;
    at += header_bytes(t->ndim) + nbytes;
  }
  return 0;
}

static int write_in_order(TilewrightStream* s, const TwParams* params, bool padded, bool indexed) {
  uint64_t count = params->count + indexed;
  for (size_t i = 0; padded && i < params->count; ++i) count += is_large(params->arrays[i]);
  int rc = tw_write_u64(s, count) != 0 || tw_write_u64(s, count) != 0 ? -1 : 0;
  if (rc == 0 && indexed) rc = tw_write_string(s, headers_name, sizeof headers_name - 1);
  for (size_t i = 0; rc == 0 && i < params->count; ++i) {
    if (padded && is_large(params->arrays[i])) rc = tw_write_string(s, padding_name, sizeof padding_name - 1);
    if (rc == 0) rc = tw_write_string(s, params->names[i], strlen(params->names[i]));
  }
  if (rc == 0 && indexed) rc = write_headers(s, params);
  for (size_t i = 0; rc == 0 && i < params->count; ++i) {
    if (padded && is_large(params->arrays[i])) rc = write_padding(s, params->arrays[i]->tensor.ndim);
    if (rc == 0) rc = tw_write_array(s, params->arrays[i]);
  }
  return rc;
}

int tw_write_named(TilewrightStream* s, const TwParams* params) {
  size_t nbytes = 0, next = 0;
  for (size_t i = 0; i < params->count; ++i) nbytes += bytes_of(params->arrays[i]);
  if (s->apart != NULL || nbytes < TW_INDEXED_BYTES) return write_in_order(s, params, s->apart == NULL, false);
  TwParams sorted = {.count = params->count};
  sorted.names = malloc(params->count * sizeof(char*));
  sorted.arrays = malloc(params->count * sizeof(TwArray*));
  const bool failed = sorted.names == NULL || sorted.arrays == NULL;
  for (int large = 0; !failed && large < 2; ++large) {
    for (size_t i = 0; i < params->count; ++i) {
      if (is_large(params->arrays[i]) != large) continue;
      sorted.names[next] = params->names[i];
      sorted.arrays[next++] = params->arrays[i];
    }
  }
  const int rc = failed ? tw_out_of_memory(params->count * sizeof(TwArray*)) : write_in_order(s, &sorted, true, true);
  free(sorted.names);
  free(sorted.arrays);
  return rc;
}

static void drop_padding(TwParams* p) {
  size_t kept = 0;
  for (size_t i = 0; i < p->count; ++i) {
    if (strcmp(p->names[i], padding_name) == 0 || strcmp(p->names[i], headers_name) == 0) {
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

/* Reads the arrays of the names. Where the data is mapped, headers are read in the first array, if it has them. */
static int read_arrays(TilewrightStream* s, TwParams* p) {
  TilewrightStream index, *headers = s;
  for (size_t i = 0; i < p->count; ++i) {
    const bool skipped = headers != s && strcmp(p->names[i], padding_name) == 0;
    if (read_array(headers, s, skipped, &p->arrays[i]) != 0) return -1;
    if (i != 0 || s->mapping == NULL || strcmp(p->names[0], headers_name) != 0) continue;
    index = (TilewrightStream){.data = p->arrays[0]->tensor.data, .left = bytes_of(p->arrays[0])};
    headers = &index;
  }
  return 0;
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
  if (rc == 0) rc = read_arrays(s, &p);
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
