/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * A few lines of test harness. A test is a function; CHECK reports and ends the program. */
#ifndef TILEWRIGHT_TEST_H_
#define TILEWRIGHT_TEST_H_

#define _GNU_SOURCE

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tilewright.h>

#define CHECK(condition)                                                                             \
  do {                                                                                               \
    if (!(condition)) {                                                                              \
      fprintf(stderr, "%s:%d: not true: %s\n  last error: %s\n", __FILE__, __LINE__, #condition,     \
              TVMGetLastError());                                                                    \
      exit(1);                                                                                       \
    }                                                                                                \
  } while (0)

#define OK(call) CHECK((call) == 0)
/* The call fails and the error text contains the words. */
#define FAILS(call, words)                                                                           \
  do {                                                                                               \
    CHECK((call) == -1);                                                                             \
    CHECK(strstr(TVMGetLastError(), words) != NULL);                                                 \
  } while (0)

static const DLDevice cpu0 = {kDLCPU, 0};

/* Contents of a file with a NUL behind them; the caller frees. */
char* read_file(const char* path, size_t* size);
/* A float32 array filled with value. */
TVMArrayHandle filled(int ndim, const int64_t* shape, float value);
/* A module whose functions are given by name; ends with a NULL name. */
typedef struct {
  const char* name;
  TVMBackendPackedCFunc code;
} Kernel;
TVMModuleHandle module_of(const Kernel* kernels);
/* out = a + b + 1 over float32 in a parallel launch; with two arguments out = a + 1. */
int kernel_add(TVMValue* args, int* codes, int n, TVMValue* ret, int* ret_code, void* resource);
int kernel_fail(TVMValue* args, int* codes, int n, TVMValue* ret, int* ret_code, void* resource);

void test_arrays(void);
void test_devices(const char* library);
void test_functions(void);
void test_modules(const char* golden, const char* library);
void test_threads(void);
void test_fork(void);
void test_graph(const char* golden);
void test_placement(void);
void test_serving(void);
void test_rpc(void);
void test_cuda(void);
void test_opencl(void);

#endif /* TILEWRIGHT_TEST_H_ */
