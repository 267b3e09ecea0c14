/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * A model: its interface, and the executor behind it. */
#ifndef TILEWRIGHT_MODEL_PRIVATE_H_
#define TILEWRIGHT_MODEL_PRIVATE_H_

#include <tilewright_model.h>

#include "../module/module.h"

typedef struct {
  char* name;
  DLDataType type;
  int ndim;
  int64_t* shape;
  char** dimensions; /* NULL where a dimension has no name */
} ModelTensor;

typedef struct {
  char* name;
  int64_t min, max, multiple;
} ModelDimension;

typedef struct {
  ModelTensor* inputs;
  ModelTensor* outputs;
  ModelDimension* dimensions;
  int num_inputs, num_outputs, num_dimensions;
} ModelInterface;

/* Reads the text that a program of the virtual machine holds (vm/inputs.c tells its lines). What is in `out` is to be freed
 * when it fails too. */
int model_parse_interface(const char* text, size_t size, ModelInterface* out);
/* Appends a tensor; shape is copied. */
int model_add_tensor(ModelTensor** tensors, int* count, const char* name, const DLTensor* info);
void model_free_interface(ModelInterface* interface);

#endif /* TILEWRIGHT_MODEL_PRIVATE_H_ */
