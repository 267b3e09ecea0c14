/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * tilewright.vm.check_inputs(interface, input ...): inputs whose dimensions have names fit what a program was compiled for.
 * The interface is text, a vector of bytes, of lines (relay/backend/interface.py):
 *
 *   input <tab> dtype <tab> batch,seq,768 <tab> name      the inputs, in order; a dimension is a number, a name, a sum of such
 *                                                         (past+seq+1), or ?
 *   dim <tab> batch <tab> 1 <tab> 8 <tab> 1               the least and the largest (-1: none) of a name, and its multiple
 *
 * An empty line ends these, and what follows is for other readers, as are other lines. A name means one number in all inputs.
 *
 * tilewright.vm.dims_are(limits, input ..., flag): flag, an int32, becomes whether the inputs have the dimensions that a
 * specialised version of main is for. A row of limits, int64[n, 5], is the number of an input, its axis, the least and the
 * largest number (-1: none) that the dimension may be, and what it is a multiple of.
 *
 * tilewright.vm.sizes(rows, input ..., size ...): each size, a scalar int64, becomes the number that its row begins with, times
 * the dimensions of inputs that the row names: pairs of an input and its axis (-1: no more). */
#include "vm.h"

#include <limits.h>

enum { MOST_NAMES = 64, MOST_RANK = 32 };

typedef struct {
  const char *data, *end;
} Text;

typedef struct {
  Text name, input; /* the dimension's, and that of the input that says how large it is */
  int64_t value;
} Name;

typedef struct {
  Name names[MOST_NAMES];
  int count;
} Names;

static int length(Text t) { return t.end - t.data > 200 ? 200 : (int)(t.end - t.data); }

static bool same(Text a, Text b) { return a.end - a.data == b.end - b.data && memcmp(a.data, b.data, (size_t)(a.end - a.data)) == 0; }

static bool is(Text a, const char* word) { return (size_t)(a.end - a.data) == strlen(word) && memcmp(a.data, word, strlen(word)) == 0; }

/* What comes before the next `separator`; `from` begins behind it then. */
static Text cut(Text* from, char separator) {
  const char* end = from->data == from->end ? NULL : memchr(from->data, separator, (size_t)(from->end - from->data));
  Text part = {from->data, end == NULL ? from->end : end};
  from->data = end == NULL ? from->end : end + 1;
  return part;
}

static bool number(Text t, int64_t* out) {
  bool negative = t.data != t.end && *t.data == '-';
  int64_t value = 0;
  if (negative) ++t.data;
  if (t.data == t.end || t.end - t.data > 18) return false;
  for (; t.data != t.end; ++t.data) {
    if (*t.data < '0' || *t.data > '9') return false;
    value = value * 10 + (*t.data - '0');
  }
  *out = negative ? -value : value;
  return true;
}

static bool is_sum(Text dim) { return dim.data != dim.end && memchr(dim.data, '+', (size_t)(dim.end - dim.data)) != NULL; }

static int check_dim(Text dim, Text input, int axis, int64_t found, Names* names) {
  int64_t wanted;
  if (is(dim, "?") || is_sum(dim)) return 0;
  if (number(dim, &wanted)) {
    if (wanted == found) return 0;
    return tw_fail("input \"%.*s\": dimension %d is %lld, not %lld", length(input), input.data, axis, (long long)wanted, (long long)found);
  }
  for (int i = 0; i < names->count; ++i) {
    const Name* known = &names->names[i];
    if (!same(known->name, dim)) continue;
    if (known->value == found) return 0;
    return tw_fail("input \"%.*s\": dimension %d, %.*s, is %lld here and %lld in \"%.*s\"", length(input), input.data, axis,
                   length(dim), dim.data, (long long)found, (long long)known->value, length(known->input), known->input.data);
  }
  if (names->count == MOST_NAMES) return tw_fail("the program's interface names more than %d dimensions", MOST_NAMES);
  names->names[names->count++] = (Name){dim, input, found};
  return 0;
}

int vm_check_count(DLDevice device, int ndim, const int64_t* shape) {
  if (tw_is_host(device)) return 0; /* kernels of CPUs count in 64 bits where a dimension's range needs it */
  const int64_t most = ((int64_t)1 << 31) - ((int64_t)1 << 18); /* loops may go past the end by a tile of each axis */
  int64_t count = 1;
  for (int i = 0; i < ndim; ++i) {
    if (shape[i] <= 0) return 0; /* none, or refused elsewhere */
    count = shape[i] > most ? most + 1 : count * shape[i];
    if (count <= most) continue;
    for (int k = i + 1; k < ndim; ++k) {
      if (shape[k] <= 0) return 0;
    }
    char text[128];
    const DLTensor t = {.shape = (int64_t*)shape, .ndim = ndim};
    return tw_fail("a tensor of shape %s has more elements than kernels of this device count in 32 bits (%lld) where dimensions have "
                   "names; compile for numbers (--input-shape, or --dim NAME=NUMBER)",
                   tw_shape_text(&t, text, sizeof text), (long long)most);
  }
  return 0;
}

static int check_input(Text line, const DLTensor* t, Names* names) {
  char found[24], text[128];
  Text dtype = cut(&line, '\t'), dims = cut(&line, '\t'), name = line, rest = dims;
  tw_type_name(t->dtype, found);
  if (!is(dtype, found)) {
    return tw_fail("input \"%.*s\": expected %.*s, got %s", length(name), name.data, length(dtype), dtype.data, found);
  }
  int rank = 0;
  while (rest.data != rest.end && rank <= MOST_RANK) {
    cut(&rest, ',');
    ++rank;
  }
  if (rank != t->ndim) {
    return tw_fail("input \"%.*s\": expected %d dimensions, (%.*s), got %d: %s", length(name), name.data, rank, length(dims), dims.data,
                   t->ndim, tw_shape_text(t, text, sizeof text));
  }
  bool named = false;
  for (int axis = 0; axis < rank; ++axis) {
    int64_t value;
    const Text dim = cut(&dims, ',');
    if (check_dim(dim, name, axis, t->shape[axis], names) != 0) return -1;
    named = named || !number(dim, &value);
  }
  return named ? vm_check_count(t->device, rank, t->shape) : 0;
}

static int sum_of(Text dim, const Names* names, int64_t* out) {
  *out = 0;
  for (Text rest = dim; rest.data != rest.end;) {
    int64_t value = -1;
    const Text part = cut(&rest, '+');
    if (!number(part, &value)) {
      for (int i = 0; i < names->count; ++i) {
        if (same(names->names[i].name, part)) value = names->names[i].value;
      }
    }
    if (value < 0 || __builtin_add_overflow(*out, value, out)) return tw_fail("damaged interface: the dimension %.*s", length(dim), dim.data);
  }
  return 0;
}

/* Dimensions that are sums, when all names have values. */
static int check_sums(Text line, const DLTensor* t, const Names* names) {
  cut(&line, '\t');
  Text dims = cut(&line, '\t');
  for (int axis = 0; axis < t->ndim; ++axis) {
    int64_t wanted;
    const Text dim = cut(&dims, ',');
    if (!is_sum(dim)) continue;
    if (sum_of(dim, names, &wanted) != 0) return -1;
    if (wanted != t->shape[axis]) {
      return tw_fail("input \"%.*s\": dimension %d is %lld, and %.*s, of other inputs, is %lld", length(line), line.data, axis,
                     (long long)t->shape[axis], length(dim), dim.data, (long long)wanted);
    }
  }
  return 0;
}

static int check_range(Text line, const Names* names) {
  int64_t low, high, multiple;
  Text name = cut(&line, '\t');
  if (!number(cut(&line, '\t'), &low) || !number(cut(&line, '\t'), &high) || !number(line, &multiple) || multiple < 1) {
    return tw_fail("damaged interface: the dimension %.*s", length(name), name.data);
  }
  for (int i = 0; i < names->count; ++i) {
    const Name* known = &names->names[i];
    if (!same(known->name, name)) continue;
    if (known->value < low || (high >= 0 && known->value > high)) {
      const int64_t least = known->value < low ? known->value : low;
      char most[24] = "any number", wanted[24] = "";
      if (high >= 0) {
        snprintf(most, sizeof most, "%lld", (long long)high);
        snprintf(wanted, sizeof wanted, "%lld", (long long)(known->value > high ? known->value : high));
      }
      return tw_fail("input \"%.*s\": %.*s is %lld; the program was compiled for %lld to %s (tilewright compile --dim %.*s=%lld:%s takes it)",
                     length(known->input), known->input.data, length(name), name.data, (long long)known->value, (long long)low, most,
                     length(name), name.data, (long long)least, wanted);
    }
    if (known->value % multiple != 0) {
      return tw_fail("input \"%.*s\": %.*s is %lld; the program was compiled for multiples of %lld", length(known->input),
                     known->input.data, length(name), name.data, (long long)known->value, (long long)multiple);
    }
  }
  return 0;
}

static int check_tensors(const TVMValue* args, const int* codes, int n) {
  for (int i = 0; i < n; ++i) {
    const bool is_tensor = codes[i] == kTVMDLTensorHandle || codes[i] == kTVMNDArrayHandle;
    if (!is_tensor || args[i].v_handle == NULL) return tw_fail("argument %d is no tensor", i);
  }
  return 0;
}

/* Whether the elements of a tensor are of this type and here to be read. */
static bool is_readable(const DLTensor* t, int ndim, int code, int bits) {
  if (t->ndim != ndim || t->dtype.code != code || t->dtype.bits != bits || t->dtype.lanes != 1) return false;
  if (!tw_is_host(t->device) || (ndim > 0 && t->shape[0] < 0)) return false;
  return t->data != NULL || (ndim > 0 && t->shape[0] == 0);
}

static int check_inputs(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  (void)ret, (void)resource;
  if (check_tensors(args, codes, n) != 0) return -1;
  const DLTensor* t = n == 0 ? NULL : args[0].v_handle;
  if (t == NULL || !is_readable(t, 1, kDLUInt, 8)) return tw_fail("damaged interface: its text is no vector of bytes");
  const char* data = (const char*)t->data + t->byte_offset;
  const Text whole = {data, data + t->shape[0]};
  Names names = {.count = 0};
  int next = 1;
  for (Text rest = whole; rest.data != rest.end;) {
    Text line = cut(&rest, '\n');
    if (line.data == line.end) break;
    if (!is(cut(&line, '\t'), "input")) continue;
    if (next == n) return tw_fail("damaged interface: more inputs than the %d that came", n - 1);
    if (check_input(line, args[next++].v_handle, &names) != 0) return -1;
  }
  next = 1;
  for (Text rest = whole; rest.data != rest.end;) {
    Text line = cut(&rest, '\n');
    if (line.data == line.end) break;
    const Text kind = cut(&line, '\t');
    if (is(kind, "dim") && check_range(line, &names) != 0) return -1;
    if (is(kind, "input") && check_sums(line, args[next++].v_handle, &names) != 0) return -1;
  }
  return 0;
}

static bool within(int64_t found, const int64_t* row) {
  return found >= row[2] && (row[3] < 0 || found <= row[3]) && found % row[4] == 0;
}

static int dims_are(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  (void)ret, (void)resource;
  if (check_tensors(args, codes, n) != 0) return -1;
  const DLTensor* limits = n < 2 ? NULL : args[0].v_handle;
  const DLTensor* flag = n < 2 ? NULL : args[n - 1].v_handle;
  if (limits == NULL || !is_readable(limits, 2, kDLInt, 64) || limits->shape[1] != 5) {
    return tw_fail("damaged guard: its limits are no int64[n, 5]");
  }
  if (!is_readable(flag, 0, kDLInt, 32)) return tw_fail("damaged guard: its result is no int32");
  const int64_t* row = (const int64_t*)((const char*)limits->data + limits->byte_offset);
  bool fits = true;
  for (int64_t i = 0; i < limits->shape[0]; ++i, row += 5) {
    if (row[0] < 0 || row[0] >= n - 2 || row[4] < 1) return tw_fail("damaged guard: row %lld", (long long)i);
    const DLTensor* input = args[1 + row[0]].v_handle;
    if (row[1] < 0 || row[1] >= input->ndim) return tw_fail("damaged guard: row %lld", (long long)i);
    fits = fits && within(input->shape[row[1]], row);
  }
  *(int32_t*)((char*)flag->data + flag->byte_offset) = fits;
  return 0;
}

static int size_of(const int64_t* row, int64_t width, const TVMValue* inputs, int64_t count, int64_t* out) {
  *out = row[0];
  for (int64_t i = 1; i + 1 < width && row[i] >= 0; i += 2) {
    const DLTensor* input = row[i] < count ? inputs[row[i]].v_handle : NULL;
    if (input == NULL || row[i + 1] < 0 || row[i + 1] >= input->ndim) {
      return tw_fail("damaged sizes: dimension %lld of input %lld", (long long)row[i + 1], (long long)row[i]);
    }
    if (__builtin_mul_overflow(*out, input->shape[row[i + 1]], out)) return tw_out_of_memory(SIZE_MAX);
  }
  return 0;
}

static int sizes(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  (void)ret, (void)resource;
  if (check_tensors(args, codes, n) != 0) return -1;
  const DLTensor* rows = n == 0 ? NULL : args[0].v_handle;
  if (rows == NULL || !is_readable(rows, 2, kDLInt, 64) || rows->shape[1] < 1 || rows->shape[0] > n - 1) {
    return tw_fail("damaged sizes: their rows are no int64[n, m]");
  }
  const int64_t inputs = n - 1 - rows->shape[0], width = rows->shape[1];
  const int64_t* row = (const int64_t*)((const char*)rows->data + rows->byte_offset);
  for (int64_t i = 0; i < rows->shape[0]; ++i, row += width) {
    const DLTensor* size = args[1 + inputs + i].v_handle;
    if (!is_readable(size, 0, kDLInt, 64)) return tw_fail("damaged sizes: a result is no int64");
    if (size_of(row, width, args + 1, inputs, (int64_t*)((char*)size->data + size->byte_offset)) != 0) return -1;
  }
  return 0;
}

TW_GLOBAL_FUNCTIONS({"tilewright.vm.check_inputs", check_inputs}, {"tilewright.vm.dims_are", dims_are}, {"tilewright.vm.sizes", sizes})
