/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Where the executor's tensors lie.
 *
 * Memory of tensors begins as zeros: an input that nobody has set is 0, never what lay there before. */
#include "graph.h"

static bool is_on(const GraphEntry* e, DLDevice device) {
  return e->device.device_type == device.device_type && e->device.device_id == device.device_id;
}

/* A __nop (a reshape) shares its input's memory under another shape. */
int graph_find_roots(TilewrightGraph* g) {
  for (int i = 0; i < g->num_nodes; ++i) {
    if (!graph_is_nop(&g->nodes[i])) continue;
    int entry = g->row_pointers[i];
    if (g->nodes[i].num_inputs != 1) return tw_fail("bad graph JSON: __nop node \"%s\" needs one input", g->nodes[i].name);
    int from = g->nodes[i].inputs[0];
    if (g->entries[from].nbytes != g->entries[entry].nbytes) {
      return tw_fail("bad graph JSON: __nop node \"%s\" changes the size of its input", g->nodes[i].name);
    }
    if (!tw_same_memory(g->entries[from].device, g->entries[entry].device)) {
      return tw_fail("bad graph JSON: __nop node \"%s\" is on another device than its input", g->nodes[i].name);
    }
    g->entries[entry].root = g->entries[from].root;
  }
  return 0;
}

static bool is_part(const TilewrightGraph* g, const GraphNode* node, int entry) {
  const int first = g->row_pointers[node - g->nodes], end = g->row_pointers[node - g->nodes + 1];
  for (int e = first; e < end; ++e) {
    if (g->entries[e].root == entry) return true;
  }
  for (int i = 0; i < node->num_inputs; ++i) {
    if (g->entries[node->inputs[i]].root == entry) return true;
  }
  return false;
}

bool graph_is_movable(const TilewrightGraph* g, int entry) {
  for (int i = 0; i < g->num_nodes; ++i) {
    const GraphNode* node = &g->nodes[i];
    const bool made_here = g->row_pointers[i] <= entry && entry < g->row_pointers[i + 1];
    if (made_here && (node->function == NULL || node->once)) return false;
    if (graph_is_view(node) && is_part(g, node, entry)) return false;
  }
  return true;
}

/* The entries of calls that run once, in order; gives their number. */
static int prepared_entries(const TilewrightGraph* g, int* entries) {
  int count = 0;
  for (int i = 0; i < g->num_nodes; ++i) {
    for (int e = g->row_pointers[i]; g->nodes[i].once && e < g->row_pointers[i + 1]; ++e) entries[count++] = e;
  }
  return count;
}

/* Allocates the results on one device of calls that run once, one after the other: they share memory with nothing. */
static int allocate_prepared_on(TilewrightGraph* g, DLDevice device) {
  int64_t total = 0;
  int count = 0;
  for (int i = 0; i < g->num_prepared; ++i) {
    const GraphEntry* e = &g->entries[g->prepared[i]];
    if (!is_on(e, device)) continue;
    const uint64_t nbytes = e->nbytes;
    if (nbytes > INT64_MAX / 4 || total > INT64_MAX / 2) return tw_out_of_memory(e->nbytes);
    total += (int64_t)tw_round_up(e->nbytes, TW_ALIGNMENT);
    ++count;
  }
  TwArray* memory = count == 0 ? NULL : tw_array_zeros(&total, 1, (DLDataType){kDLUInt, 8, 1}, device);
  if (memory == NULL) return count == 0 ? 0 : -1;
  uint64_t offset = 0;
  int rc = 0;
  for (int i = 0; rc == 0 && i < g->num_prepared; ++i) {
    GraphEntry* e = &g->entries[g->prepared[i]];
    if (!is_on(e, device)) continue;
    e->array = tw_array_view(memory, offset, e->shape, e->ndim, e->type);
    if (e->array == NULL) rc = -1;
    offset += tw_round_up(e->nbytes, TW_ALIGNMENT);
  }
  tw_array_release(memory);
  return rc;
}

static int allocate_prepared(TilewrightGraph* g) {
  for (int i = 0; i < g->num_devices; ++i) {
    if (allocate_prepared_on(g, g->devices[i]) != 0) return -1;
  }
  return 0;
}

/* Whether another executor has left its results of calls that run once, where this one can use them. */
static bool can_take(const TilewrightGraph* g, const TwShared* shared) {
  if (shared == NULL || shared->num_prepared != g->num_prepared) return false;
  for (int i = 0; i < g->num_prepared; ++i) {
    if (!tw_same_memory(shared->prepared[i]->tensor.device, g->entries[g->prepared[i]].device)) return false;
  }
  return true;
}

/* Takes the results of calls that run once from another executor, or allocates them. */
int graph_place_prepared(TilewrightGraph* g, const TwShared* shared) {
  g->prepared = calloc((size_t)g->num_entries + 1, sizeof *g->prepared);
  if (g->prepared == NULL) return tw_out_of_memory((size_t)g->num_entries * sizeof *g->prepared);
  g->num_prepared = prepared_entries(g, g->prepared);
  g->stale = g->num_prepared > 0 && !can_take(g, shared);
  if (g->stale) return allocate_prepared(g);
  for (int i = 0; i < g->num_prepared; ++i) {
    GraphEntry* e = &g->entries[g->prepared[i]];
    e->array = tw_array_retain(shared->prepared[i]);
    e->borrowed = true;
  }
  return 0;
}

/* How large each storage is, and where. */
static int measure_storage(const TilewrightGraph* g, uint64_t* sizes, DLDevice* devices) {
  for (int i = 0; i < g->num_entries; ++i) {
    const GraphEntry* e = &g->entries[i];
    if (g->entries[e->root].array != NULL) continue;
    uint64_t end = e->storage_offset + e->nbytes;
    if (end == 0) continue;
    if (sizes[e->storage] == 0) devices[e->storage] = e->device;
    if (sizes[e->storage] < end) sizes[e->storage] = end;
    if (!is_on(e, devices[e->storage])) return tw_fail("bad graph JSON: storage %d is on two devices", e->storage);
  }
  return 0;
}

int graph_allocate_storage(TilewrightGraph* g) {
  uint64_t* sizes = calloc((size_t)g->num_storage + 1, sizeof(uint64_t));
  DLDevice* devices = calloc((size_t)g->num_storage + 1, sizeof(DLDevice));
  g->storage = calloc((size_t)g->num_storage + 1, sizeof(TwArray*));
  int rc = sizes == NULL || devices == NULL || g->storage == NULL
               ? tw_out_of_memory((size_t)g->num_storage * sizeof(uint64_t))
               : measure_storage(g, sizes, devices);
  for (int i = 0; rc == 0 && i < g->num_storage; ++i) {
    int64_t size = (int64_t)sizes[i];
    if (size == 0) continue;
    g->storage[i] = tw_array_zeros(&size, 1, (DLDataType){kDLUInt, 8, 1}, devices[i]);
    if (g->storage[i] == NULL) rc = -1;
  }
  free(sizes);
  free(devices);
  return rc;
}

/* Gives an entry the memory of its root, or of its storage. */
static int place_entry(TilewrightGraph* g, int index) {
  GraphEntry* e = &g->entries[index];
  TwArray* parent;
  uint64_t offset = 0;
  if (e->root != index) {
    parent = g->entries[e->root].array;
  } else if (e->nbytes == 0 && g->storage[e->storage] == NULL) {
    e->array = tw_array_zeros(e->shape, e->ndim, e->type, e->device);
    return e->array == NULL ? -1 : 0;
  } else {
    parent = g->storage[e->storage];
    offset = e->storage_offset;
  }
  TwArray* array = tw_array_view(parent, offset, e->shape, e->ndim, e->type);
  if (array == NULL) return -1;
  tw_array_release(e->array);
  e->array = array;
  return 0;
}

int graph_allocate_entries(TilewrightGraph* g) {
  /* roots precede what refers to them: edges go from earlier nodes to later ones */
  for (int i = 0; i < g->num_entries; ++i) {
    if (g->entries[i].array == NULL && place_entry(g, i) != 0) return -1;
  }
  return 0;
}

/* ---- changes ---- */
int graph_replace_array(TilewrightGraph* g, int entry, TwArray* array, bool borrowed) {
  GraphEntry* e = &g->entries[entry];
  tw_array_retain(array);
  tw_array_release(e->array);
  e->array = array;
  e->borrowed = borrowed;
  e->lent = false;
  for (int i = 0; i < e->num_uses; ++i) graph_point_at(e->uses[i], &array->tensor);
  for (int i = entry + 1; i < g->num_entries; ++i) {
    if (g->entries[i].root == entry && g->entries[i].array != NULL && place_entry(g, i) != 0) return -1;
  }
  return 0;
}

int graph_own_memory(TilewrightGraph* g, int entry) {
  GraphEntry* e = &g->entries[entry];
  if (!e->borrowed) return 0;
  TwArray* own = tw_array_zeros(e->shape, e->ndim, e->type, e->device);
  if (own == NULL) return -1;
  int rc = graph_replace_array(g, entry, own, false);
  tw_array_release(own);
  return rc;
}

void TilewrightGraphMemory(const TilewrightGraph* g, uint64_t* pooled_bytes, uint64_t* input_bytes) {
  *pooled_bytes = *input_bytes = 0;
  for (int i = 0; i < g->num_storage; ++i) {
    if (g->storage[i] != NULL) *pooled_bytes += (uint64_t)g->storage[i]->tensor.shape[0];
  }
  for (int i = 0; i < g->num_inputs; ++i) {
    const GraphEntry* e = graph_input(g, i);
    if (e->array->parent == NULL) *input_bytes += e->nbytes;
  }
  for (int i = 0; i < g->num_prepared; ++i) *input_bytes += g->entries[g->prepared[i]].nbytes;
}
