/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * A graph executor's devices: which tensor lives where, parameters on devices of their own, and telling the devices'
 * drivers of the executor. */
#include "graph.h"

/* ---- the devices that were given ---- */
static bool is_same(DLDevice a, DLDevice b) { return a.device_type == b.device_type && a.device_id == b.device_id; }

static bool has_device(const TilewrightGraph* g, DLDevice device) {
  for (int i = 0; i < g->num_devices; ++i) {
    if (is_same(g->devices[i], device)) return true;
  }
  return false;
}

int graph_take_devices(TilewrightGraph* g, const DLDevice* devices, int count) {
  if (count < 1) return tw_fail("an executor needs a device to run on");
  g->devices = calloc((size_t)count, sizeof *g->devices);
  g->drivers = calloc((size_t)count, sizeof *g->drivers);
  if (g->devices == NULL || g->drivers == NULL) return tw_out_of_memory((size_t)count * sizeof *g->devices);
  for (int i = 0; i < count; ++i) {
    if (tw_device_check(devices[i]) != 0) return -1;
    if (!has_device(g, devices[i])) g->devices[g->num_devices++] = devices[i];
  }
  for (; g->num_made < g->num_devices; ++g->num_made) {
    if (tw_device_executor_made(g->devices[g->num_made], g->lib, &g->drivers[g->num_made]) != 0) return -1;
  }
  return 0;
}

void graph_leave_devices(TilewrightGraph* g) {
  while (g->num_made > 0) {
    --g->num_made;
    tw_device_executor_gone(g->devices[g->num_made], g->drivers[g->num_made]);
  }
  free(g->devices);
  free(g->drivers);
}

/* ---- the places of tensors ---- */
static int no_such_device(const TilewrightGraph* g, int type) {
  char given[512] = "", text[TW_DEVICE_TEXT];
  size_t used = 0;
  for (int i = 0; i < g->num_devices && used < sizeof given; ++i) {
    used += (size_t)snprintf(given + used, sizeof given - used, "%s%s", i == 0 ? "" : ", ",
                             tw_device_text(g->devices[i], text));
  }
  const char* name = TilewrightDeviceName(type);
  return tw_fail("the graph places tensors on device type %d (%s), and the executor was given %s; give it a device of each type",
                 type, name == NULL ? "no plug-in here has it" : name, given);
}

/* The first given device of the type that the graph names, here or in a session; without a name the first of all. */
static int place_entry(const TilewrightGraph* g, GraphEntry* e) {
  for (int i = 0; i < g->num_devices; ++i) {
    if (e->device_type != 0 && (int)g->devices[i].device_type % TW_SESSION_TYPES != e->device_type) continue;
    e->device = g->devices[i];
    return 0;
  }
  return no_such_device(g, e->device_type);
}

int graph_place_entries(TilewrightGraph* g) {
  for (int i = 0; i < g->num_entries; ++i) {
    if (place_entry(g, &g->entries[i]) != 0) return -1;
  }
  return 0;
}

/* ---- parameters ---- */
/* A copy of a parameter on another device than the host. */
struct TwPlacedParam {
  const TwArray* source;
  TwArray* copy;
  struct TwPlacedParam* next;
};

TwArray* graph_copy_to(TwArray* array, DLDevice device) {
  const DLTensor* t = &array->tensor;
  TwArray* copy = tw_array_new(t->shape, t->ndim, t->dtype, device);
  if (copy == NULL || tw_copy(t, &copy->tensor) == 0) return copy;
  tw_array_release(copy);
  return NULL;
}

/* What is on another machine has a handle for an address, to which nothing can be added here. */
void graph_point_at(DLTensor* argument, const DLTensor* array) {
  const bool is_far = (int)array->device.device_type >= TW_SESSION_TYPES;
  argument->data = is_far ? array->data : (char*)array->data + array->byte_offset;
  argument->byte_offset = is_far ? array->byte_offset : 0;
}

TwArray* graph_shared_param(TwShared* shared, TwArray* array, DLDevice device) {
  if (tw_same_memory(array->tensor.device, device)) return array;
  for (const struct TwPlacedParam* p = shared->placed; p != NULL; p = p->next) {
    if (p->source == array && is_same(p->copy->tensor.device, device)) return p->copy;
  }
  struct TwPlacedParam* p = calloc(1, sizeof *p);
  if (p == NULL) {
    tw_out_of_memory(sizeof *p);
    return NULL;
  }
  *p = (struct TwPlacedParam){array, graph_copy_to(array, device), shared->placed};
  if (p->copy == NULL) {
    free(p);
    return NULL;
  }
  shared->placed = p;
  return p->copy;
}

void tw_free_shared(TwShared* shared) {
  for (int i = 0; i < shared->num_prepared; ++i) tw_array_release(shared->prepared[i]);
  free(shared->prepared);
  while (shared->placed != NULL) {
    struct TwPlacedParam* p = shared->placed;
    shared->placed = p->next;
    tw_array_release(p->copy);
    free(p);
  }
}
