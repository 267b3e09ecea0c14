/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * A device for the tests, type 100 ("npu", two of them) and 101 ("dsp"): its memory cannot be touched by the host. */
#ifndef TILEWRIGHT_TEST_NPU_H_
#define TILEWRIGHT_TEST_NPU_H_

#include "test.h"

enum { NPU = 100, DSP = 101 };
static const DLDevice npu0 = {NPU, 0}, npu1 = {NPU, 1}, dsp0 = {DSP, 0};

/* What the device has been asked for. */
typedef struct {
  atomic_int held;         /* allocations */
  atomic_int synchronized; /* calls */
  atomic_int made, gone;   /* executors */
  int id;                  /* of the last call of set or executor_made */
  bool refuse;             /* every call fails from now on */
  bool silent;             /* and says nothing */
  const char* scope;       /* of the last allocation */
  TVMStreamHandle stream;  /* of the last copy */
} Npu;

extern Npu npu, dsp;

/* Registers both, once. */
void plug_npu_in(void);
/* Runs code on data[0..nbytes) of the device while that can be touched. */
void npu_open(const void* data, size_t nbytes, bool open);

#endif /* TILEWRIGHT_TEST_NPU_H_ */
