/* Licensed under the Apache License, Version 2.0; see LICENSE. */
#include "test.h"

static void arrays_are_aligned_and_counted(void) {
  int64_t shape[3] = {2, 3, 5};
  TVMArrayHandle a;
  OK(TVMArrayAlloc(shape, 3, kDLInt, 64, 1, kDLCPU, 0, &a));
  CHECK((uintptr_t)a->data % 64 == 0 && a->ndim == 3 && a->shape[2] == 5 && a->strides == NULL);
  OK(TilewrightArrayRetain(a));
  OK(TVMArrayFree(a));
  CHECK(a->shape[0] == 2);
  OK(TVMArrayFree(a));
}

static void bad_allocations_are_refused(void) {
  TVMArrayHandle a;
  int64_t negative[1] = {-1}, huge[3] = {1LL << 40, 1LL << 40, 8}, big[1] = {1LL << 60};
  FAILS(TVMArrayAlloc(negative, 1, kDLFloat, 32, 1, kDLCPU, 0, &a), "negative");
  FAILS(TVMArrayAlloc(huge, 3, kDLFloat, 32, 1, kDLCPU, 0, &a), "overflow");
  FAILS(TVMArrayAlloc(big, 1, kDLInt, 8, 1, kDLCPU, 0, &a), "out of memory");
  FAILS(TVMArrayAlloc(big, -1, kDLInt, 8, 1, kDLCPU, 0, &a), "dimensions");
  FAILS(TVMArrayAlloc(big, 1, kDLInt, 8, 1, kDLMetal, 1, &a), "metal(1)");
}

static void zero_size_and_scalar_arrays_work(void) {
  int64_t shape[2] = {0, 7};
  TVMArrayHandle a, s;
  OK(TVMArrayAlloc(shape, 2, kDLFloat, 32, 1, kDLCPU, 0, &a));
  OK(TVMArrayCopyFromBytes(a, NULL, 0));
  OK(TVMArrayAlloc(NULL, 0, kDLFloat, 32, 1, kDLCPU, 0, &s));
  float x = 3, y = 0;
  OK(TVMArrayCopyFromBytes(s, &x, sizeof x));
  OK(TVMArrayCopyToBytes(s, &y, sizeof y));
  CHECK(y == 3);
  FAILS(TVMArrayCopyToBytes(s, &y, 8), "number of bytes");
  FAILS(TVMArrayCopyFromTo(a, s, NULL), "(0, 7)");
  TVMArrayFree(a);
  TVMArrayFree(s);
}

static int deleted;

static void count_deletion(DLManagedTensor* self) {
  (void)self;
  ++deleted;
}

static void strided_tensors_are_taken_and_copied(void) {
  float data[6] = {0, 1, 2, 3, 4, 5}, out[6];
  int64_t shape[2] = {3, 2}, strides[2] = {1, 3}; /* the transpose of a 2x3 matrix */
  DLManagedTensor managed = {
      .dl_tensor = {data, cpu0, 2, {kDLFloat, 32, 1}, shape, strides, 0}, .deleter = count_deletion};
  TVMArrayHandle view, copy;
  OK(TVMArrayFromDLPack(&managed, &view));
  OK(TVMArrayCopyToBytes(view, out, sizeof out));
  CHECK(out[1] == 3 && out[2] == 1 && out[5] == 5);
  OK(TVMArrayAlloc(shape, 2, kDLFloat, 32, 1, kDLCPU, 0, &copy));
  OK(TVMArrayCopyFromTo(view, copy, NULL));
  CHECK(((float*)copy->data)[1] == 3);
  OK(TVMArrayCopyFromTo(copy, view, NULL));
  CHECK(data[4] == 4);
  CHECK(deleted == 0);
  TVMArrayFree(view);
  CHECK(deleted == 1);
  TVMArrayFree(copy);
}

static void dlpack_keeps_the_array_alive(void) {
  int64_t shape[1] = {4};
  TVMArrayHandle a = filled(1, shape, 2), again;
  DLManagedTensor* managed;
  OK(TVMArrayToDLPack(a, &managed));
  TVMArrayFree(a);
  OK(TVMArrayFromDLPack(managed, &again));
  CHECK(((float*)again->data)[3] == 2);
  TVMArrayFree(again);
}

static void workspaces_are_reused(void) {
  void* a = TVMBackendAllocWorkspace(kDLCPU, 0, 1000, kDLFloat, 32);
  void* b = TVMBackendAllocWorkspace(kDLCPU, 0, 100000, kDLFloat, 32);
  CHECK(a != NULL && b != NULL && a != b && (uintptr_t)a % 64 == 0 && (uintptr_t)b % 64 == 0);
  memset(a, 1, 1000);
  memset(b, 2, 100000);
  OK(TVMBackendFreeWorkspace(kDLCPU, 0, b));
  OK(TVMBackendFreeWorkspace(kDLCPU, 0, a));
  CHECK(TVMBackendAllocWorkspace(kDLCPU, 0, 90000, kDLFloat, 32) == b);
  CHECK(TVMBackendAllocWorkspace(kDLCPU, 0, 0, kDLFloat, 32) == a);
  OK(TVMBackendFreeWorkspace(kDLCPU, 0, a));
  OK(TVMBackendFreeWorkspace(kDLCPU, 0, b));
  CHECK(TVMBackendFreeWorkspace(kDLCPU, 0, b) == -1);
  CHECK(TVMBackendAllocWorkspace(kDLCPU, 0, UINT64_MAX, kDLFloat, 32) == NULL);
  CHECK(TVMBackendAllocWorkspace(kDLMetal, 0, 8, kDLFloat, 32) == NULL);
}

void test_arrays(void) {
  arrays_are_aligned_and_counted();
  bad_allocations_are_refused();
  zero_size_and_scalar_arrays_work();
  strided_tensors_are_taken_and_copied();
  dlpack_keeps_the_array_alive();
  workspaces_are_reused();
}
