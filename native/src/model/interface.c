/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Names, types and shapes of what a model takes and gives. */
#include "model.h"

enum { MOST_RANK = 32 };

static void free_tensors(ModelTensor* tensors, int count) {
  for (int i = 0; i < count; ++i) {
    for (int axis = 0; tensors[i].dimensions != NULL && axis < tensors[i].ndim; ++axis) free(tensors[i].dimensions[axis]);
    free(tensors[i].dimensions);
    free(tensors[i].shape);
    free(tensors[i].name);
  }
  free(tensors);
}

void model_free_interface(ModelInterface* interface) {
  free_tensors(interface->inputs, interface->num_inputs);
  free_tensors(interface->outputs, interface->num_outputs);
  for (int i = 0; i < interface->num_dimensions; ++i) free(interface->dimensions[i].name);
  free(interface->dimensions);
}

int model_add_tensor(ModelTensor** tensors, int* count, const char* name, const DLTensor* info) {
  ModelTensor* grown = realloc(*tensors, ((size_t)*count + 1) * sizeof *grown);
  if (grown == NULL) return tw_out_of_memory(sizeof *grown);
  *tensors = grown;
  ModelTensor* t = &grown[(*count)++];
  const size_t rank = (size_t)info->ndim;
  *t = (ModelTensor){tw_strdup(name), info->dtype, info->ndim, malloc((rank + 1) * sizeof(int64_t)), calloc(rank + 1, sizeof(char*))};
  if (t->name == NULL || t->shape == NULL || t->dimensions == NULL) return tw_out_of_memory(rank * sizeof(int64_t));
  if (rank != 0) memcpy(t->shape, info->shape, rank * sizeof(int64_t));
  return 0;
}

/* ---- text ---- */
/* Cuts `line` at the next `separator`, which becomes a NUL, and returns what is before it. */
static char* cut(char** line, char separator) {
  char* start = *line;
  char* end = strchr(start, separator);
  *line = end == NULL ? start + strlen(start) : end + 1;
  if (end != NULL) *end = '\0';
  return start;
}

static bool number(const char* text, int64_t* out) {
  char* end;
  *out = strtoll(text, &end, 10);
  return *text != '\0' && *end == '\0';
}

static int add_tensor(char* line, ModelTensor** tensors, int* count) {
  char* names[MOST_RANK] = {NULL};
  int64_t shape[MOST_RANK];
  DLTensor info = {.shape = shape};
  const char* type = cut(&line, '\t');
  char* dims = cut(&line, '\t');
  if (tw_parse_type(type, &info.dtype) != 0) return -1;
  while (*dims != '\0') {
    char* dim = cut(&dims, ',');
    if (info.ndim == MOST_RANK) return tw_fail("damaged interface: \"%s\" has more than %d dimensions", line, MOST_RANK);
    if (!number(dim, &shape[info.ndim])) {
      shape[info.ndim] = -1;
      if (strcmp(dim, "?") != 0) names[info.ndim] = dim;
    }
    ++info.ndim;
  }
  if (model_add_tensor(tensors, count, line, &info) != 0) return -1;
  for (int axis = 0; axis < info.ndim; ++axis) {
    if (names[axis] == NULL) continue;
    char* name = (*tensors)[*count - 1].dimensions[axis] = tw_strdup(names[axis]);
    if (name == NULL) return tw_out_of_memory(strlen(names[axis]));
  }
  return 0;
}

static int add_dimension(char* line, ModelInterface* out) {
  const char* name = cut(&line, '\t');
  ModelDimension dim;
  if (!number(cut(&line, '\t'), &dim.min) || !number(cut(&line, '\t'), &dim.max) || !number(line, &dim.multiple)) {
    return tw_fail("damaged interface: the dimension %s", name);
  }
  ModelDimension* grown = realloc(out->dimensions, ((size_t)out->num_dimensions + 1) * sizeof *grown);
  if (grown == NULL) return tw_out_of_memory(sizeof *grown);
  out->dimensions = grown;
  dim.name = tw_strdup(name);
  if (dim.name == NULL) return tw_out_of_memory(strlen(name));
  grown[out->num_dimensions++] = dim;
  return 0;
}

int model_parse_interface(const char* text, size_t size, ModelInterface* out) {
  char* copy = malloc(size + 1);
  if (copy == NULL) return tw_out_of_memory(size);
  memcpy(copy, text, size);
  copy[size] = '\0';
  int rc = 0;
  for (char* rest = copy; rc == 0 && *rest != '\0';) {
    char* line = cut(&rest, '\n');
    const char* kind = cut(&line, '\t');
    if (strcmp(kind, "input") == 0) rc = add_tensor(line, &out->inputs, &out->num_inputs);
    if (strcmp(kind, "output") == 0) rc = add_tensor(line, &out->outputs, &out->num_outputs);
    if (strcmp(kind, "dim") == 0) rc = add_dimension(line, out);
  }
  free(copy);
  return rc;
}
