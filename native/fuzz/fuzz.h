/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * What the fuzz targets share. Each target is a program of its own (`make fuzz` builds and runs them): libFuzzer gives it
 * bytes, a loader reads them, and what it makes of them is used as a program would, every byte of its tensors included. */
#ifndef TILEWRIGHT_FUZZ_H_
#define TILEWRIGHT_FUZZ_H_

#include "../src/module/module.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

/* A module that has every function: each reads and writes all bytes of all its arguments. */
TVMModuleHandle fuzz_library(void);
/* Runs an executor and looks at all that it gives. */
void fuzz_graph(TilewrightGraph* graph);
/* Reads and writes an array's bytes. */
void fuzz_touch(const DLTensor* tensor);
/* Whether a loader has read its input. One that has not says why; and it has asked for no memory that a size in the input
 * announced and that the input is too short for. */
bool fuzz_read(int rc);

#endif /* TILEWRIGHT_FUZZ_H_ */
