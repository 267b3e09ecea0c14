/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * tilewright.vm.append(past, new, axis): both, one after the other, without copying `past` where its memory has room behind it.
 *
 * Memory with room holds `outer` runs of `capacity` rows, a row being what one step along the axis is. A tensor in it is a view
 * of the first rows of each run, so its strides are those of the whole:
 *
 *   (1, 12, 130, 64) along axis 2 in room for 256:  12 runs of 256 rows of 64 numbers; strides (196608, 16384, 64, 1)
 *
 * Rows that a view shows are never written again: the room says how many are taken, and only who extends the longest view
 * writes in place. Who extends a shorter one (a search that branches) gets memory of its own. Thus nobody can tell that
 * memory is shared, but by how long it takes. */
#include "vm.h"

typedef struct TwRoom {
  atomic_llong rows; /* that are taken */
  int64_t capacity, outer;
  size_t row; /* bytes */
} TwRoom;

enum { LEAST_CAPACITY = 16, LEAST_BYTES = 1 << 16, SLAB_BYTES = 16 << 20, SLABS = 8 };

/* How a tensor lies in runs of rows. */
typedef struct {
  int64_t outer, rows;
  size_t row, step; /* bytes of a row, and from one run to the next */
} Runs;

static bool runs_of(const DLTensor* t, int axis, Runs* out) {
  const size_t item = tw_type_bytes(t->dtype);
  *out = (Runs){.outer = 1, .rows = t->shape[axis], .row = item};
  for (int i = 0; i < axis; ++i) out->outer *= t->shape[i];
  for (int i = axis + 1; i < t->ndim; ++i) out->row *= (size_t)t->shape[i];
  out->step = out->row * (size_t)out->rows;
  if (tw_is_compact(t)) return true;
  int64_t inside = 1;
  for (int i = t->ndim - 1; i >= axis; --i) {
    if (t->shape[i] != 1 && t->strides[i] != inside) return false;
    inside *= t->shape[i];
  }
  if (axis == 0 || t->strides[axis - 1] < inside) return false;
  int64_t step = t->strides[axis - 1];
  out->step = (size_t)step * item;
  for (int i = axis - 1; i >= 0; --i) {
    if (t->strides[i] != step) return false;
    step *= t->shape[i];
  }
  return true;
}

/* The room that a tensor lies in, where that goes on behind its rows. */
static TwRoom* room_behind(const TwArray* a, const Runs* r) {
  TwRoom* room = a->parent == NULL ? NULL : a->parent->room;
  if (room == NULL || a->tensor.data != a->parent->tensor.data || a->tensor.byte_offset != 0) return NULL;
  if (r->outer != room->outer || r->row != room->row) return NULL;
  return r->rows == 0 || r->outer == 1 || r->step == room->row * (size_t)room->capacity ? room : NULL;
}

/* A tensor of the first `rows` rows of memory with room. */
static TwArray* view_of(TwArray* memory, const DLTensor* like, int axis, int64_t rows) {
  const TwRoom* room = memory->room;
  const int ndim = like->ndim;
  TwArray* view = tw_array_header(like->shape, ndim, 2 * ndim, like->dtype, like->device);
  if (view == NULL) return NULL;
  tw_array_bind(view, memory, 0, like->shape, ndim, like->dtype);
  view->dims[axis] = rows;
  if (room->outer == 1) return view;
  int64_t* strides = view->tensor.strides = view->dims + ndim;
  int64_t step = 1;
  for (int i = ndim - 1; i >= 0; --i) {
    strides[i] = step;
    step *= i == axis ? room->capacity : view->dims[i];
  }
  return view;
}

/* The slab that memory comes from, and how much of it is taken. Those of the past are kept: the first use of a huge page may take
 * the system milliseconds, in which it makes room for it. Under the lock. */
static struct {
  TwLock lock;
  TwArray* kept[SLABS];
  int current;
  int64_t used;
} slabs = {.lock = TW_LOCK_INITIALIZER};

static bool is_idle(const TwArray* slab) { return slab != NULL && atomic_load_explicit(&slab->refs, memory_order_acquire) == 1; }

/* Makes one with room for `size` bytes the current one. Under the lock. */
static TwArray* slab_for(int64_t size, DLDevice device) {
  static const DLDataType bytes = {kDLUInt, 8, 1};
  static const int64_t whole = SLAB_BYTES;
  TwArray* slab = slabs.kept[slabs.current];
  if (is_idle(slab)) slabs.used = 0;
  if (slab != NULL && slabs.used + size <= SLAB_BYTES) return slab;
  int next = -1;
  for (int i = 0; next < 0 && i < SLABS; ++i) next = is_idle(slabs.kept[i]) ? i : -1;
  for (int i = 0; next < 0 && i < SLABS; ++i) next = slabs.kept[i] == NULL ? i : -1;
  if (next < 0) next = (slabs.current + 1) % SLABS;
  if (!is_idle(slabs.kept[next])) {
    tw_array_release(slabs.kept[next]); /* by what lies in it alone it is held from now on */
    slabs.kept[next] = tw_array_zeros(&whole, 1, bytes, device);
  }
  slabs.current = next;
  slabs.used = 0;
  return slabs.kept[next];
}

/* Memory for `size` bytes that tensors grow in. Decoders read all of their caches in each step, at half the speed where pages are
 * small: 8.8 for 16.5 GB/s. So caches of less than a huge page lie side by side in slabs of some of these. */
static TwArray* new_memory(int64_t size, DLDevice device) {
  static const DLDataType bytes = {kDLUInt, 8, 1};
  if (size < LEAST_BYTES || device.device_type != kDLCPU) return tw_array_new(&size, 1, bytes, device);
  if (size >= (int64_t)TW_HUGE_PAGE) return tw_array_zeros(&size, 1, bytes, device);
  tw_lock(&slabs.lock);
  TwArray* slab = slab_for(size, device);
  TwArray* memory = slab == NULL ? NULL : tw_array_view(slab, (uint64_t)slabs.used, &size, 1, bytes);
  slabs.used += (size + TW_ALIGNMENT - 1) / TW_ALIGNMENT * TW_ALIGNMENT;
  tw_unlock(&slabs.lock);
  return memory;
}

/* Memory with room for `capacity` rows, of which as many as `t` has are a copy of it. */
static TwArray* copy_with_room(const DLTensor* t, int axis, const Runs* r, int64_t capacity) {
  int64_t size;
  if (__builtin_mul_overflow(capacity, r->outer, &size) || __builtin_mul_overflow(size, (int64_t)r->row, &size)) {
    tw_out_of_memory(SIZE_MAX);
    return NULL;
  }
  TwRoom* room = malloc(sizeof *room);
  TwArray* memory = room == NULL ? NULL : new_memory(size, t->device);
  if (memory == NULL) {
    if (room == NULL) tw_out_of_memory(sizeof *room);
    free(room);
    return NULL;
  }
  atomic_init(&room->rows, r->rows);
  room->capacity = capacity;
  room->outer = r->outer;
  room->row = r->row;
  memory->room = room;
  const size_t filled = r->row * (size_t)r->rows, step = r->row * (size_t)capacity;
  const char* from = (const char*)t->data + t->byte_offset;
  for (int64_t i = 0; filled != 0 && i < r->outer; ++i) {
    memcpy((char*)memory->tensor.data + (size_t)i * step, from + (size_t)i * r->step, filled);
  }
  TwArray* view = view_of(memory, t, axis, r->rows);
  tw_array_release(memory);
  return view;
}

/* Room for as many rows again, and not for a few rows alone unless rows are large. */
static int64_t capacity_for(int64_t twice, const Runs* r) {
  const bool small = twice < LEAST_CAPACITY && (r->row == 0 || r->outer <= (int64_t)(LEAST_BYTES / LEAST_CAPACITY / r->row));
  return small ? LEAST_CAPACITY : twice;
}

static int check(const DLTensor* past, const DLTensor* more, int64_t axis) {
  char a[64], b[64];
  size_t unused;
  for (const DLTensor* t = past;; t = more) {
    if (!tw_tensor_bytes(t->ndim, t->shape, t->dtype, &unused)) return tw_fail("an array's shape must not be negative, nor its size overflow");
    if (t == more) break;
  }
  bool fits = past->ndim == more->ndim && axis >= 0 && axis < past->ndim && tw_same_type(past->dtype, more->dtype);
  for (int i = 0; fits && i < past->ndim; ++i) fits = i == axis || past->shape[i] == more->shape[i];
  if (fits && tw_is_host(past->device) && tw_is_host(more->device)) return 0;
  return tw_fail("cannot append a tensor of shape %s to one of shape %s along axis %lld: types and all other dimensions must be equal", tw_shape_text(more, b, sizeof b),
                 tw_shape_text(past, a, sizeof a), (long long)axis);
}

/* Takes `more` of the rows behind those of a view, if they are there and nobody has them. */
static bool take_rows(TwRoom* room, int64_t rows, int64_t more) {
  long long found = rows;
  if (more > room->capacity - rows) return false;
  return atomic_compare_exchange_strong_explicit(&room->rows, &found, rows + more, memory_order_acq_rel, memory_order_relaxed);
}

TwArray* vm_append(TwArray* past, TwArray* more, int64_t axis) {
  Runs old, new;
  if (check(&past->tensor, &more->tensor, axis) != 0) return NULL;
  if (!runs_of(&past->tensor, (int)axis, &old) || !runs_of(&more->tensor, (int)axis, &new)) {
    tw_fail("cannot append tensors that are strided other than by room along the axis");
    return NULL;
  }
  int64_t rows, twice;
  if (__builtin_add_overflow(old.rows, new.rows, &rows) || __builtin_mul_overflow(rows, 2, &twice)) {
    tw_out_of_memory(SIZE_MAX);
    return NULL;
  }
  TwRoom* room = room_behind(past, &old);
  TwArray *copy = NULL, *source = past;
  if (room == NULL || !take_rows(room, old.rows, new.rows)) {
    source = copy = copy_with_room(&past->tensor, (int)axis, &old, capacity_for(twice, &old));
    if (copy == NULL) return NULL;
    room = copy->parent->room;
    take_rows(room, old.rows, new.rows);
  }
  char* to = (char*)source->parent->tensor.data + old.row * (size_t)old.rows;
  const char* from = (const char*)more->tensor.data + more->tensor.byte_offset;
  const size_t size = new.row * (size_t)new.rows;
  for (int64_t i = 0; size != 0 && i < room->outer; ++i) {
    memcpy(to + (size_t)i * room->row * (size_t)room->capacity, from + (size_t)i * new.step, size);
  }
  TwArray* result = view_of(source->parent, &past->tensor, (int)axis, rows);
  tw_array_release(copy);
  return result;
}

/* tilewright.vm.with_room(array, axis, capacity): a copy that grows to `capacity` rows in place. */
static int with_room(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  static const char who[] = "tilewright.vm.with_room";
  int64_t axis, capacity;
  Runs runs;
  (void)resource;
  if (n != 3 || (codes[0] != kTVMNDArrayHandle && codes[0] != kTVMDLTensorHandle)) return tw_fail("%s: expected an array, an axis and a capacity", who);
  if (tw_arg_int(args, codes, n, 1, who, &axis) != 0 || tw_arg_int(args, codes, n, 2, who, &capacity) != 0) return -1;
  const DLTensor* t = args[0].v_handle;
  if (!tw_is_host(t->device)) return tw_fail("%s: the array is not on the host", who);
  if (axis < 0 || axis >= t->ndim) return tw_fail("%s: axis %lld of %d dimensions", who, (long long)axis, t->ndim);
  if (!runs_of(t, (int)axis, &runs)) return tw_fail("%s: the array is strided; make it compact", who);
  if (capacity < runs.rows) return tw_fail("%s: a capacity of %lld for %lld rows", who, (long long)capacity, (long long)runs.rows);
  TwArray* copy = copy_with_room(t, (int)axis, &runs, capacity);
  if (copy == NULL) return -1;
  tw_return_handle(ret, copy, kTVMNDArrayHandle);
  return 0;
}

TW_GLOBAL_FUNCTIONS({"tilewright.vm.with_room", with_room})
