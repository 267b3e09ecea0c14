/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * What a kernel takes and how it is launched: read from JSON or from a library (TVM 0.8's FunctionInfo), and applied to
 * the arguments of a call. */
#include "gpu.h"

#include "../core/json.h"

#define DYNAMIC_SHARED "tir.use_dyn_shared_memory"

static void free_kernel(TwKernel* k) {
  free(k->name);
  free(k->types);
  tw_free_strings(k->tags, k->num_tags);
}

void tw_kernels_free(TwKernels* kernels) {
  for (size_t i = 0; i < kernels->count; ++i) free_kernel(&kernels->items[i]);
  free(kernels->items);
  *kernels = (TwKernels){NULL, 0};
}

bool tw_is_pointer(DLDataType type) { return type.code == kTVMOpaqueHandle; }

/* 0 to 2 for blockIdx.x to .z, 3 to 5 for threadIdx.x to .z, or -1. */
static int axis_of(const char* tag) {
  static const char* const names[] = {"blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z"};
  for (int i = 0; i < 6; ++i) {
    if (strcmp(tag, names[i]) == 0) return i;
  }
  return -1;
}

/* What is wrong with a kernel's description is said when it is read. */
static int check_kernel(const TwKernel* k) {
  char type[24];
  if (k->num_types + 1 > TW_MAX_KERNEL_ARGS) {
    return tw_fail("kernel %s takes %zu arguments; at most %d are possible", k->name, k->num_types, TW_MAX_KERNEL_ARGS - 1);
  }
  for (size_t i = 0; i < k->num_types; ++i) {
    const DLDataType t = k->types[i];
    const bool scalar = (t.code == kDLInt || t.code == kDLUInt || t.code == kDLFloat || t.code == kDLBfloat) && t.lanes == 1 &&
                        (t.bits == 1 || t.bits == 8 || t.bits == 16 || t.bits == 32 || t.bits == 64);
    if (!scalar && !tw_is_pointer(t)) {
      return tw_fail("argument %zu of kernel %s is of type %s; a kernel takes handles and numbers of 8 to 64 bits", i, k->name,
                     tw_type_name(t, type));
    }
  }
  for (size_t i = 0; i < k->num_tags; ++i) {
    const bool shared = strcmp(k->tags[i], DYNAMIC_SHARED) == 0;
    if (axis_of(k->tags[i]) < 0 && !shared) {
      return tw_fail("kernel %s has the launch parameter \"%s\"; known are blockIdx.x, .y, .z, threadIdx.x, .y, .z and " DYNAMIC_SHARED,
                     k->name, k->tags[i]);
    }
    if (shared && i + 1 != k->num_tags) return tw_fail("kernel %s: " DYNAMIC_SHARED " must be its last launch parameter", k->name);
  }
  return 0;
}

/* ---- JSON ---- */
static int bad_table(const char* what) {
  return tw_fail("the kernels of a device module are described by {\"name\": {\"arg_types\": [types], \"launch_param_tags\": [tags]}}; %s",
                 what);
}

static int parse_types(const Json* list, TwKernel* out) {
  if (list == NULL || list->kind != JSON_ARRAY) return bad_table("a kernel lacks arg_types");
  out->types = calloc(list->count + 1, sizeof *out->types);
  if (out->types == NULL) return tw_out_of_memory(list->count * sizeof *out->types);
  for (const Json* item = list->first; item != NULL; item = item->next) {
    if (item->kind != JSON_STRING) return bad_table("a type is no string");
    if (tw_parse_type(item->text, &out->types[out->num_types]) != 0) return -1;
    ++out->num_types;
  }
  return 0;
}

static int parse_tags(const Json* list, TwKernel* out) {
  if (list == NULL || list->kind != JSON_ARRAY) return bad_table("a kernel lacks launch_param_tags");
  out->tags = calloc(list->count + 1, sizeof *out->tags);
  if (out->tags == NULL) return tw_out_of_memory(list->count * sizeof *out->tags);
  for (const Json* item = list->first; item != NULL; item = item->next) {
    if (item->kind != JSON_STRING) return bad_table("a tag is no string");
    if ((out->tags[out->num_tags] = tw_strdup(item->text)) == NULL) return tw_out_of_memory(strlen(item->text));
    ++out->num_tags;
  }
  return 0;
}

static int parse_kernel(const Json* value, TwKernel* out) {
  if (value->kind != JSON_OBJECT) return bad_table("a kernel is no object");
  const Json* tags = json_member(value, "launch_param_tags");
  if (tags == NULL) tags = json_member(value, "thread_axis_tags"); /* of before TVM 0.8 */
  if ((out->name = tw_strdup(value->key)) == NULL) return tw_out_of_memory(strlen(value->key));
  if (parse_types(json_member(value, "arg_types"), out) != 0 || parse_tags(tags, out) != 0) return -1;
  return check_kernel(out);
}

int tw_kernels_parse(const char* json, size_t size, TwKernels* out) {
  Json* root = json_parse(json, size);
  *out = (TwKernels){NULL, 0};
  if (root == NULL) return -1;
  /* files of TVM hold the table in "func_info" beside the version of TVM */
  const Json* inner = root->kind == JSON_OBJECT ? json_member(root, "func_info") : NULL;
  const Json* table = inner != NULL ? inner : root;
  int rc = table->kind == JSON_OBJECT ? 0 : bad_table("it is no object");
  if (rc == 0 && (out->items = calloc(table->count + 1, sizeof *out->items)) == NULL) rc = tw_out_of_memory(table->count);
  for (const Json* item = rc == 0 ? table->first : NULL; item != NULL && rc == 0; item = item->next) {
    rc = parse_kernel(item, &out->items[out->count++]);
  }
  json_free(root);
  if (rc != 0) tw_kernels_free(out);
  return rc;
}

/* ---- libraries ---- */
static int read_kernel(TilewrightStream* s, TwKernel* k) {
  char* key = NULL;
  uint64_t count;
  if (tw_read_string(s, &key, NULL) != 0) return -1;
  free(key); /* the name follows once more */
  if (tw_read_string(s, &k->name, NULL) != 0 || tw_read_u64(s, &count) != 0) return -1;
  if (count > s->left / sizeof *k->types) return tw_fail("the data ends too early: %llu types", (unsigned long long)count);
  k->types = calloc((size_t)count + 1, sizeof *k->types);
  if (k->types == NULL) return tw_out_of_memory((size_t)count * sizeof *k->types);
  k->num_types = (size_t)count;
  if (TilewrightStreamRead(s, k->types, k->num_types * sizeof *k->types) != 0) return -1;
  return tw_read_strings(s, &k->tags, &k->num_tags) != 0 ? -1 : check_kernel(k);
}

int tw_kernels_read(TilewrightStream* s, TwKernels* out) {
  uint64_t count;
  *out = (TwKernels){NULL, 0};
  if (tw_read_u64(s, &count) != 0) return -1;
  if (count > s->left / sizeof(uint64_t)) return tw_fail("the data ends too early: %llu kernels", (unsigned long long)count);
  out->items = calloc((size_t)count + 1, sizeof *out->items);
  if (out->items == NULL) return tw_out_of_memory((size_t)count * sizeof *out->items);
  for (uint64_t i = 0; i < count; ++i) {
    if (read_kernel(s, &out->items[out->count++]) != 0) {
      tw_kernels_free(out);
      return -1;
    }
  }
  return 0;
}

int tw_kernels_write(TilewrightStream* s, const TwKernels* kernels) {
  int rc = tw_write_u64(s, kernels->count);
  for (size_t i = 0; rc == 0 && i < kernels->count; ++i) {
    const TwKernel* k = &kernels->items[i];
    rc = tw_write_string(s, k->name, strlen(k->name));
    if (rc == 0) rc = tw_write_string(s, k->name, strlen(k->name));
    if (rc == 0) rc = tw_write_u64(s, k->num_types);
    if (rc == 0) rc = TilewrightStreamWrite(s, k->types, k->num_types * sizeof *k->types);
    if (rc == 0) rc = tw_write_strings(s, k->tags, k->num_tags);
  }
  return rc;
}

/* ---- launches ---- */
/* The bits of a float next to a number, odd where it is not the number itself: rounded again, to fewer digits, it gives
   the nearest of those to the number. */
static uint32_t odd_float_of(double value) {
  const float single = (float)value;
  uint32_t bits;
  memcpy(&bits, &single, sizeof bits);
  if (single == value || value != value) return bits;
  const bool outwards = value > 0 ? single > value : single < value;
  return (bits - outwards) | 1;
}

/* The nearest float of 16 bits, ties to even. */
static uint16_t half_of(double value) {
  const uint32_t bits = odd_float_of(value);
  const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;  /* no number */
  if (magnitude >= 0x477ff000) return sign | 0x7c00; /* 65520 and more: infinite */
  if (magnitude < 0x33000001) return sign;           /* half of the least and less */
  const int exponent = (int)(magnitude >> 23) - 112; /* of the result, where it has one */
  const int drop = exponent > 0 ? 13 : 14 - exponent;
  const uint32_t digits = (magnitude & 0x7fffff) | (exponent > 0 ? (uint32_t)exponent << 23 : 0x800000);
  const uint32_t rest = digits & (((uint32_t)1 << drop) - 1), middle = (uint32_t)1 << (drop - 1);
  const uint32_t kept = digits >> drop;
  return (uint16_t)(sign | (kept + (rest > middle || (rest == middle && (kept & 1) != 0))));
}

static uint16_t bfloat_of(double value) {
  const uint32_t bits = odd_float_of(value);
  if (value != value) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static int bad_argument(const TwKernel* k, size_t i, const char* expected, int code) {
  return tw_fail("argument %zu of kernel %s must be %s; it is given a value of type code %d", i, k->name, expected, code);
}

static int read_pointer(const TwKernel* k, size_t i, TVMValue value, int code, int device_type, uint64_t* out) {
  void* pointer = value.v_handle;
  if (code == kTVMNDArrayHandle || code == kTVMDLTensorHandle) {
    const DLTensor* t = value.v_handle;
    if ((int)t->device.device_type != device_type) {
      char text[TW_DEVICE_TEXT];
      return tw_fail("argument %zu of kernel %s is an array on %s, which the kernel's device cannot reach", i, k->name,
                     tw_device_text(t->device, text));
    }
    pointer = (char*)t->data + t->byte_offset;
  } else if (code == kTVMNullptr) {
    pointer = NULL;
  } else if (code != kTVMOpaqueHandle) {
    return bad_argument(k, i, "an address or an array of the device", code);
  }
  *out = (uint64_t)(uintptr_t)pointer;
  return 0;
}

static int read_scalar(const TwKernel* k, size_t i, TVMValue value, int code, uint64_t* out) {
  const DLDataType type = k->types[i];
  const bool is_float = type.code == kDLFloat || type.code == kDLBfloat;
  if (!is_float) {
    if (code != kTVMArgInt) return bad_argument(k, i, "an integer", code);
    *out = (uint64_t)value.v_int64; /* little-endian: its first bytes are the narrower number */
    return 0;
  }
  if (code != kTVMArgFloat && code != kTVMArgInt) return bad_argument(k, i, "a number", code);
  const double number = code == kTVMArgInt ? (double)value.v_int64 : value.v_float64;
  const float single = (float)number;
  *out = 0;
  if (type.bits == 64) memcpy(out, &number, sizeof number);
  if (type.bits == 32) memcpy(out, &single, sizeof single);
  if (type.bits == 16) *out = type.code == kDLBfloat ? bfloat_of(number) : half_of(number);
  return 0;
}

static int read_extents(const TwKernel* k, const TVMValue* args, const int* codes, TwLaunch* out) {
  for (int i = 0; i < 3; ++i) out->grid[i] = out->block[i] = 1;
  out->dims = 1;
  for (size_t i = 0; i < k->num_tags; ++i) {
    const int axis = axis_of(k->tags[i]);
    const int64_t extent = args[i].v_int64;
    if (codes[i] != kTVMArgInt || extent < 0) {
      return tw_fail("kernel %s: its launch parameter %s must be an integer of 0 and more", k->name, k->tags[i]);
    }
    if (axis < 0) {
      out->shared = (size_t)extent;
      out->has_shared = true;
      continue;
    }
    (axis < 3 ? out->grid : out->block)[axis % 3] = (uint64_t)extent;
    if (extent == 0) out->empty = true;
    if (axis % 3 + 1 > out->dims) out->dims = axis % 3 + 1;
  }
  return 0;
}

int tw_launch_read(const TwKernel* k, const TVMValue* args, const int* codes, int n, int device_type, TwLaunch* out) {
  const size_t needed = k->num_types + k->num_tags;
  if (n < 0 || (size_t)n != needed) {
    return tw_fail("kernel %s takes %zu arguments and %zu launch parameters, and is given %d", k->name, k->num_types, k->num_tags, n);
  }
  out->kernel = k;
  out->shared = 0;
  out->has_shared = out->empty = false;
  for (size_t i = 0; i < k->num_types; ++i) {
    const bool pointer = tw_is_pointer(k->types[i]);
    out->sizes[i] = pointer ? sizeof(void*) : k->types[i].bits < 8 ? 1 : k->types[i].bits / 8;
    const int rc = pointer ? read_pointer(k, i, args[i], codes[i], device_type, &out->values[i])
                           : read_scalar(k, i, args[i], codes[i], &out->values[i]);
    if (rc != 0) return -1;
  }
  return read_extents(k, args + k->num_types, codes + k->num_types, out);
}

int tw_launch_check(const TwLaunch* l, const uint64_t* most_each, uint64_t most, const char* device) {
  const uint64_t *b = l->block, threads = b[0] * b[1] * b[2];
  const char* name = l->kernel->name;
  for (int i = 0; i < 3; ++i) {
    if (b[i] > most_each[i]) {
      return tw_fail("kernel %s asks for %llu threads in threadIdx.%c; %s allows %llu", name, (unsigned long long)b[i], 'x' + i,
                     device, (unsigned long long)most_each[i]);
    }
  }
  if (threads <= most) return 0;
  return tw_fail("kernel %s asks for %llu threads in a block (%llu, %llu, %llu); %s allows %llu", name, (unsigned long long)threads,
                 (unsigned long long)b[0], (unsigned long long)b[1], (unsigned long long)b[2], device, (unsigned long long)most);
}
