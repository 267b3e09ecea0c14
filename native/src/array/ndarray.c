/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Reference-counted arrays: a DLTensor with its owner. */
#include "array.h"

#include <limits.h>

#define MAX_NDIM 1024

TwArray* tw_array_header(const int64_t* shape, int ndim, int capacity, DLDataType type, DLDevice device) {
  if (ndim < 0 || ndim > MAX_NDIM) {
    tw_fail("an array cannot have %d dimensions", ndim);
    return NULL;
  }
  TwArray* a = calloc(1, sizeof(TwArray) + (size_t)capacity * sizeof(int64_t));
  if (a == NULL) {
    tw_out_of_memory(sizeof(TwArray));
    return NULL;
  }
  atomic_init(&a->refs, 1);
  if (ndim != 0) memcpy(a->dims, shape, (size_t)ndim * sizeof(int64_t));
  a->tensor = (DLTensor){.device = device, .ndim = ndim, .dtype = type, .shape = a->dims};
  return a;
}

static TwArray* array_header(const int64_t* shape, int ndim, DLDataType type, DLDevice device) {
  return tw_array_header(shape, ndim, ndim, type, device);
}

static TwArray* array_in(const int64_t* shape, int ndim, DLDataType type, DLDevice device, const char* scope) {
  size_t nbytes;
  if (!tw_tensor_bytes(ndim, shape, type, &nbytes)) {
    tw_fail("an array's shape must not be negative, nor its size overflow");
    return NULL;
  }
  TwArray* a = array_header(shape, ndim, type, device);
  if (a == NULL) return NULL;
  a->tensor.data = a->allocation = tw_device_alloc(device, nbytes, TW_ALIGNMENT, type, scope);
  if (a->tensor.data == NULL) {
    free(a);
    return NULL;
  }
  return a;
}

TwArray* tw_array_new(const int64_t* shape, int ndim, DLDataType type, DLDevice device) {
  return array_in(shape, ndim, type, device, NULL);
}

TwArray* tw_array_adopt(void* data, const int64_t* shape, int ndim, DLDataType type, DLDevice device) {
  TwArray* a = array_header(shape, ndim, type, device);
  if (a != NULL) a->tensor.data = a->allocation = data;
  return a;
}

TwArray* tw_array_zeros(const int64_t* shape, int ndim, DLDataType type, DLDevice device) {
  size_t nbytes;
  if (!tw_tensor_bytes(ndim, shape, type, &nbytes) || nbytes < TW_HUGE_PAGE || device.device_type != kDLCPU) {
    TwArray* filled = tw_array_new(shape, ndim, type, device);
    if (filled == NULL || tw_device_zero(device, filled->tensor.data, nbytes) == 0) return filled;
    tw_array_release(filled);
    return NULL;
  }
  /* of so much memory the system gives pages that are zero already, and that take no room until they are used */
  TwArray* a = array_header(shape, ndim, type, device);
  if (a == NULL) return NULL;
  a->allocation = nbytes > SIZE_MAX - TW_HUGE_PAGE ? NULL : calloc(1, nbytes + TW_HUGE_PAGE);
  if (a->allocation == NULL) {
    free(a);
    tw_out_of_memory(nbytes);
    return NULL;
  }
  a->tensor.data = (void*)tw_round_up((uintptr_t)a->allocation, TW_HUGE_PAGE);
  tw_advise_huge_pages(a->tensor.data, nbytes / TW_HUGE_PAGE * TW_HUGE_PAGE);
  return a;
}

TwArray* tw_array_view(TwArray* parent, uint64_t byte_offset, const int64_t* shape, int ndim, DLDataType type) {
  TwArray* a = array_header(shape, ndim, type, parent->tensor.device);
  if (a != NULL) tw_array_bind(a, parent, byte_offset, shape, ndim, type);
  return a;
}

void tw_array_bind(TwArray* a, TwArray* parent, uint64_t byte_offset, const int64_t* shape, int ndim, DLDataType type) {
  if (ndim != 0) memcpy(a->dims, shape, (size_t)ndim * sizeof(int64_t));
  a->parent = tw_array_retain(parent);
  a->tensor = (DLTensor){.data = parent->tensor.data, .device = parent->tensor.device, .ndim = ndim, .dtype = type,
                         .shape = a->dims, .byte_offset = parent->tensor.byte_offset + byte_offset};
  if (tw_is_host(parent->tensor.device)) {
    a->tensor.data = (char*)a->tensor.data + a->tensor.byte_offset;
    a->tensor.byte_offset = 0;
  }
}

TwArray* tw_array_read_only(TwArray* parent) {
  if (parent->read_only) return tw_array_retain(parent);
  const DLTensor* t = &parent->tensor;
  TwArray* a = tw_array_header(t->shape, t->ndim, 2 * t->ndim, t->dtype, t->device);
  if (a == NULL) return NULL;
  tw_array_bind(a, parent, 0, t->shape, t->ndim, t->dtype);
  if (t->strides != NULL) a->tensor.strides = memcpy(a->dims + t->ndim, t->strides, (size_t)t->ndim * sizeof(int64_t));
  a->read_only = true;
  return a;
}

bool tw_array_is_read_only(const TwArray* array) {
  while (array != NULL && !array->read_only) array = array->parent;
  return array != NULL;
}

TwArray* tw_array_mapped(TwMapping* mapping, const char* data, const int64_t* shape, int ndim, DLDataType type) {
  TwArray* a = array_header(shape, ndim, type, (DLDevice){kDLCPU, 0});
  if (a == NULL) return NULL;
  a->mapping = tw_mapping_retain(mapping);
  a->tensor.data = (char*)(uintptr_t)data; /* pages of the mapping are private: writing to one changes no file */
  return a;
}

TwArray* tw_array_retain(TwArray* array) {
  atomic_fetch_add_explicit(&array->refs, 1, memory_order_relaxed);
  return array;
}

void tw_array_release(TwArray* array) {
  if (array == NULL || atomic_fetch_sub_explicit(&array->refs, 1, memory_order_acq_rel) != 1) return;
  if (array->parent != NULL) tw_array_release(array->parent);
  if (array->recycle != NULL) {
    array->recycle(array);
    return;
  }
  if (array->borrowed != NULL) TVMDLManagedTensorCallDeleter(array->borrowed);
  if (array->mapping != NULL) tw_mapping_release(array->mapping);
  if (array->allocation != NULL) tw_device_free(array->tensor.device, array->allocation);
  free(array->room);
  free(array);
}

static int64_t element_count(const DLTensor* t) {
  int64_t n = 1;
  for (int i = 0; i < t->ndim; ++i) n *= t->shape[i];
  return n;
}

/* Copies between tensors of one shape of which at least one is strided: runs that lie together in both at once. */
static int copy_strided(const DLTensor* from, DLTensor* to, size_t item) {
  int ndim = from->ndim;
  int64_t* work = calloc((size_t)ndim * 3 + 1, sizeof(int64_t));
  if (work == NULL) return tw_out_of_memory((size_t)ndim * 3 * sizeof(int64_t));
  int64_t *index = work, *from_stride = work + ndim, *to_stride = work + 2 * ndim;
  int64_t step = 1;
  for (int i = ndim - 1; i >= 0; --i) {
    from_stride[i] = (from->strides == NULL ? step : from->strides[i]) * (int64_t)item;
    to_stride[i] = (to->strides == NULL ? step : to->strides[i]) * (int64_t)item;
    step *= from->shape[i];
  }
  int64_t run = 1; /* elements */
  while (ndim > 0 && from_stride[ndim - 1] == run * (int64_t)item && to_stride[ndim - 1] == run * (int64_t)item) {
    run *= from->shape[--ndim];
  }
  const char* src = (const char*)from->data + from->byte_offset;
  char* dst = (char*)to->data + to->byte_offset;
  for (int64_t left = element_count(from); left > 0; left -= run) {
    memcpy(dst, src, (size_t)run * item);
    for (int i = ndim - 1; i >= 0; --i) {
      src += from_stride[i];
      dst += to_stride[i];
      if (++index[i] < from->shape[i]) break;
      src -= from_stride[i] * index[i];
      dst -= to_stride[i] * index[i];
      index[i] = 0;
    }
  }
  free(work);
  return 0;
}

/* What copying between these takes, in bytes; both are checked. */
static int copy_size(const DLTensor* from, const DLTensor* to, size_t* nbytes) {
  size_t to_bytes;
  char a[64], b[64];
  if (tw_device_api(from->device) == NULL || tw_device_api(to->device) == NULL) return -1;
  if (!tw_tensor_bytes(from->ndim, from->shape, from->dtype, nbytes) ||
      !tw_tensor_bytes(to->ndim, to->shape, to->dtype, &to_bytes)) {
    return tw_fail("an array's shape must not be negative, nor its size overflow");
  }
  if (*nbytes == to_bytes) return 0;
  return tw_fail("cannot copy an array of shape %s (%zu bytes) to one of shape %s (%zu bytes)",
                 tw_shape_text(from, a, sizeof a), *nbytes, tw_shape_text(to, b, sizeof b), to_bytes);
}

static int copy_compact(const DLTensor* from, DLTensor* to, size_t nbytes, TVMStreamHandle stream) {
  const TwPlace source = {from->data, from->byte_offset, from->device}, target = {to->data, to->byte_offset, to->device};
  return tw_device_copy(&source, &target, nbytes, from->dtype, stream);
}

/* Copies between the host and a device, where the host's side is strided: by way of a compact copy on the host. */
static int copy_strided_to_device(const DLTensor* from, DLTensor* to, size_t nbytes) {
  const bool out = tw_is_host(from->device);
  const DLTensor* far_side = out ? to : from;
  if (!tw_is_compact(far_side)) {
    char text[TW_DEVICE_TEXT];
    return tw_fail("an array on %s is strided, which cannot be copied from or to another device; make it compact there",
                   tw_device_text(far_side->device, text));
  }
  TwArray* between = tw_array_new(from->shape, from->ndim, from->dtype, (DLDevice){kDLCPU, 0});
  if (between == NULL) return -1;
  int rc = out ? copy_strided(from, &between->tensor, tw_type_bytes(from->dtype))
               : copy_compact(from, &between->tensor, nbytes, NULL);
  if (rc == 0) {
    rc = out ? copy_compact(&between->tensor, to, nbytes, NULL)
             : copy_strided(&between->tensor, to, tw_type_bytes(from->dtype));
  }
  tw_array_release(between);
  return rc;
}

static int copy_on(const DLTensor* from, DLTensor* to, TVMStreamHandle stream) {
  size_t nbytes;
  char a[64], b[64];
  if (copy_size(from, to, &nbytes) != 0) return -1;
  if (nbytes == 0) return 0;
  if (tw_is_compact(from) && tw_is_compact(to)) return copy_compact(from, to, nbytes, stream);
  bool same = from->ndim == to->ndim && tw_type_bytes(from->dtype) == tw_type_bytes(to->dtype) &&
              tw_same_shape(from->ndim, from->shape, to->shape);
  if (!same) {
    return tw_fail("a strided array can be copied only to one of its own shape: %s to %s",
                   tw_shape_text(from, a, sizeof a), tw_shape_text(to, b, sizeof b));
  }
  const bool host = tw_is_host(from->device) && tw_is_host(to->device);
  return host ? copy_strided(from, to, tw_type_bytes(from->dtype)) : copy_strided_to_device(from, to, nbytes);
}

int tw_copy(const DLTensor* from, DLTensor* to) { return copy_on(from, to, NULL); }

int tw_array_settle(TwArray** array) {
  const DLTensor* t = &(*array)->tensor;
  if (!tw_is_host(t->device)) return 0;
  const uintptr_t address = (uintptr_t)t->data + (uintptr_t)t->byte_offset;
  if (tw_is_compact(t) && address % TW_ALIGNMENT == 0) return 0;
  TwArray* ready = tw_array_new(t->shape, t->ndim, t->dtype, t->device);
  if (ready == NULL || tw_copy(t, &ready->tensor) != 0) {
    tw_array_release(ready);
    return -1;
  }
  ready->read_only = (*array)->read_only;
  tw_array_release(*array);
  *array = ready;
  return 0;
}

int TVMDeviceCopyDataFromTo(DLTensor* from, DLTensor* to, TVMStreamHandle stream) { return copy_on(from, to, stream); }

int TilewrightArrayAlloc(const int64_t* shape, int ndim, DLDataType type, DLDevice device, const char* mem_scope,
                         TVMArrayHandle* out) {
  TwArray* a = array_in(shape, ndim, type, device, mem_scope);
  if (a == NULL) return -1;
  *out = &a->tensor;
  return 0;
}

int TVMArrayAlloc(const tvm_index_t* shape, int ndim, int dtype_code, int dtype_bits, int dtype_lanes, int device_type,
                  int device_id, TVMArrayHandle* out) {
  DLDataType type = {(uint8_t)dtype_code, (uint8_t)dtype_bits, (uint16_t)dtype_lanes};
  TwArray* a = tw_array_new(shape, ndim, type, (DLDevice){device_type, device_id});
  if (a == NULL) return -1;
  *out = &a->tensor;
  return 0;
}

int TVMArrayFree(TVMArrayHandle handle) {
  tw_array_release((TwArray*)handle);
  return 0;
}

int TilewrightArrayRetain(TVMArrayHandle array) {
  tw_array_retain((TwArray*)array);
  return 0;
}

int TilewrightArrayIsReadOnly(TVMArrayHandle array) { return tw_array_is_read_only((const TwArray*)array); }

/* A compact CPU tensor like t over nbytes of plain memory. */
static int over_bytes(const DLTensor* t, void* data, size_t nbytes, DLTensor* out) {
  size_t size;
  if (!tw_tensor_bytes(t->ndim, t->shape, t->dtype, &size) || size != nbytes) {
    char text[64];
    return tw_fail("an array of shape %s holds another number of bytes than %zu", tw_shape_text(t, text, sizeof text),
                   nbytes);
  }
  *out = *t;
  out->data = data;
  out->byte_offset = 0;
  out->strides = NULL;
  out->device = (DLDevice){kDLCPU, 0};
  return 0;
}

int TVMArrayCopyFromBytes(TVMArrayHandle handle, void* data, size_t nbytes) {
  DLTensor plain;
  return over_bytes(handle, data, nbytes, &plain) != 0 ? -1 : tw_copy(&plain, handle);
}

int TVMArrayCopyToBytes(TVMArrayHandle handle, void* data, size_t nbytes) {
  DLTensor plain;
  return over_bytes(handle, data, nbytes, &plain) != 0 ? -1 : tw_copy(handle, &plain);
}

int TVMArrayCopyFromTo(TVMArrayHandle from, TVMArrayHandle to, TVMStreamHandle stream) {
  return copy_on(from, to, stream);
}

int TVMArrayFromDLPack(DLManagedTensor* from, TVMArrayHandle* out) {
  const DLTensor* t = &from->dl_tensor;
  /* room for the strides behind the shape: the producer's arrays may go before the tensor does */
  int64_t dims[2 * 64];
  if (t->ndim < 0 || t->ndim > 64) return tw_fail("cannot take a DLPack tensor of %d dimensions", t->ndim);
  for (int i = 0; i < t->ndim; ++i) {
    dims[i] = t->shape[i];
    dims[t->ndim + i] = t->strides == NULL ? 0 : t->strides[i];
  }
  TwArray* a = array_header(dims, 2 * t->ndim, t->dtype, t->device);
  if (a == NULL) return -1;
  a->tensor.ndim = t->ndim;
  a->tensor.data = t->data;
  a->tensor.byte_offset = t->byte_offset;
  a->tensor.strides = tw_is_compact(t) ? NULL : a->dims + t->ndim;
  a->borrowed = from;
  /* TVM's bool is uint1 kept in a byte; DLPack later got a type of its own for that */
  if (t->dtype.code == kDLBool && t->dtype.bits == 8) a->tensor.dtype = (DLDataType){kDLUInt, 1, t->dtype.lanes};
  *out = &a->tensor;
  return 0;
}

static void release_exported(DLManagedTensor* self) {
  tw_array_release(self->manager_ctx);
  free(self);
}

int TVMArrayToDLPack(TVMArrayHandle from, DLManagedTensor** out) {
  DLManagedTensor* managed = malloc(sizeof *managed);
  if (managed == NULL) return tw_out_of_memory(sizeof *managed);
  *managed = (DLManagedTensor){
      .dl_tensor = *from, .manager_ctx = tw_array_retain((TwArray*)from), .deleter = release_exported};
  DLDataType* type = &managed->dl_tensor.dtype;
  if (type->code == kDLUInt && type->bits == 1) *type = (DLDataType){kDLBool, 8, type->lanes};
  *out = managed;
  return 0;
}

void TVMDLManagedTensorCallDeleter(DLManagedTensor* dltensor) {
  if (dltensor != NULL && dltensor->deleter != NULL) dltensor->deleter(dltensor);
}
