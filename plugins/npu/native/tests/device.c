/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The device "npu" in Tilewright's runtime, from C on several threads; run under the sanitizers by tests/test_native.py. */
#include <npu_driver.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tilewright.h>

#define CHECK(condition)                                                                     \
  do {                                                                                       \
    if (!(condition)) {                                                                      \
      fprintf(stderr, "%s:%d: %s; %s\n", __FILE__, __LINE__, #condition, TVMGetLastError()); \
      abort();                                                                               \
    }                                                                                        \
  } while (0)
#define OK(call) CHECK((call) == 0)

int TilewrightPluginInit(void);

enum { NPU = 90, COUNT = 5000 };
static const DLDataType bytes = {kDLInt, 8, 1};

static TVMArrayHandle make(int id) {
  TVMArrayHandle array;
  const tvm_index_t shape[1] = {COUNT};
  OK(TVMArrayAlloc(shape, 1, bytes.code, bytes.bits, bytes.lanes, NPU, id, &array));
  return array;
}

static void* copies(void* argument) {
  const int id = *(const int*)argument;
  char data[COUNT], back[COUNT];
  for (int round = 0; round < 30; ++round) {
    memset(data, round + id, COUNT);
    TVMArrayHandle first = make(id), second = make(1 - id);
    OK(TVMArrayCopyFromBytes(first, data, COUNT));
    OK(TVMArrayCopyFromTo(first, second, NULL));
    OK(TVMArrayCopyToBytes(second, back, COUNT));
    CHECK(memcmp(data, back, COUNT) == 0);
    OK(TVMArrayFree(first));
    OK(TVMArrayFree(second));
    TVMStreamHandle a, b;
    OK(TVMStreamCreate(NPU, id, &a));
    OK(TVMStreamCreate(NPU, id, &b));
    OK(TVMStreamStreamSynchronize(NPU, id, a, b));
    OK(TVMSynchronize(NPU, id, b));
    OK(TVMStreamFree(NPU, id, a));
    OK(TVMStreamFree(NPU, id, b));
  }
  return NULL;
}

int main(void) {
  enum { THREADS = 4 };
  pthread_t threads[THREADS];
  int devices[THREADS];
  OK(TilewrightPluginInit());
  for (int i = 0; i < THREADS; ++i) {
    devices[i] = i % 2;
    CHECK(pthread_create(&threads[i], NULL, copies, &devices[i]) == 0);
  }
  for (int i = 0; i < THREADS; ++i) pthread_join(threads[i], NULL);
  TVMArrayHandle array;
  const tvm_index_t too_many[1] = {(tvm_index_t)1 << 29};
  CHECK(TVMArrayAlloc(too_many, 1, bytes.code, bytes.bits, bytes.lanes, NPU, 0, &array) != 0);
  CHECK(strstr(TVMGetLastError(), "npu(0): out of DDR") != NULL);
  npu_held held;
  CHECK(npu_count_held(&held) == NPU_OK);
  const npu_held none = {0};
  CHECK(memcmp(&held, &none, sizeof held) == 0);
  puts("ok");
  return 0;
}
