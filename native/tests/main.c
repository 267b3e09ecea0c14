/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * usage: runtime_tests GOLDEN_FOLDER LIBRARY [AREA...]
 *   LIBRARY is kernels.c as a shared library; areas are arrays devices functions modules threads fork graph placement serving
 *   rpc cuda (all without), and opencl, whose drivers the sanitizers find fault with. */
#include "test.h"

char* read_file(const char* path, size_t* size) {
  FILE* f = fopen(path, "rb");
  if (f == NULL) {
    fprintf(stderr, "cannot read %s\n", path);
    exit(1);
  }
  fseek(f, 0, SEEK_END);
  *size = (size_t)ftell(f);
  rewind(f);
  char* data = malloc(*size + 1);
  CHECK(data != NULL && fread(data, 1, *size, f) == *size);
  data[*size] = '\0';
  fclose(f);
  return data;
}

static int64_t count_of(const DLTensor* t) {
  int64_t n = 1;
  for (int i = 0; i < t->ndim; ++i) n *= t->shape[i];
  return n;
}

TVMArrayHandle filled(int ndim, const int64_t* shape, float value) {
  TVMArrayHandle a;
  OK(TVMArrayAlloc(shape, ndim, kDLFloat, 32, 1, kDLCPU, 0, &a));
  for (int64_t i = 0; i < count_of(a); ++i) ((float*)a->data)[i] = value;
  return a;
}

static void* resolve(void* ctx, const char* name) {
  for (const Kernel* k = ctx; k->name != NULL; ++k) {
    if (strcmp(k->name, name) != 0) continue;
    void* address;
    memcpy(&address, &k->code, sizeof address);
    return address;
  }
  return NULL;
}

TVMModuleHandle module_of(const Kernel* kernels) {
  TilewrightModuleCallbacks callbacks = {.resolve = resolve};
  TVMModuleHandle m;
  OK(TilewrightModCreate("test", &callbacks, (void*)kernels, &m));
  return m;
}

typedef struct {
  const float *a, *b;
  float* out;
  int64_t n;
} Add;

static int add_part(int task, TVMParallelGroupEnv* env, void* data) {
  const Add* add = data;
  int64_t step = (add->n + env->num_task - 1) / env->num_task, end = step * (task + 1);
  for (int64_t i = step * task; i < end && i < add->n; ++i) {
    add->out[i] = add->a[i] + (add->b == NULL ? 0.0f : add->b[i]) + 1.0f;
  }
  return 0;
}

int kernel_add(TVMValue* args, int* codes, int n, TVMValue* ret, int* ret_code, void* resource) {
  (void)ret;
  (void)ret_code;
  (void)resource;
  for (int i = 0; i < n; ++i) CHECK(codes[i] == kTVMDLTensorHandle || codes[i] == kTVMNDArrayHandle);
  const DLTensor *a = args[0].v_handle, *out = args[n - 1].v_handle;
  const DLTensor* b = n == 3 ? args[1].v_handle : NULL;
  CHECK((uintptr_t)out->data % 64 == 0 && out->byte_offset == 0);
  Add add = {a->data, b == NULL ? NULL : b->data, out->data, count_of(out)};
  return TVMBackendParallelLaunch(add_part, &add, 0);
}

int kernel_fail(TVMValue* args, int* codes, int n, TVMValue* ret, int* ret_code, void* resource) {
  (void)args;
  (void)codes;
  (void)n;
  (void)ret;
  (void)ret_code;
  (void)resource;
  TVMAPISetLastError("the kernel says no");
  return -1;
}

static bool wanted(int argc, char** argv, const char* area) {
  for (int i = 3; i < argc; ++i) {
    if (strcmp(argv[i], area) == 0) return true;
  }
  return argc <= 3;
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  if (wanted(argc, argv, "arrays")) test_arrays();
  if (wanted(argc, argv, "devices")) test_devices(argv[2]);
  if (wanted(argc, argv, "functions")) test_functions();
  if (wanted(argc, argv, "modules")) test_modules(argv[1], argv[2]);
  if (wanted(argc, argv, "threads")) test_threads();
  if (wanted(argc, argv, "fork")) test_fork();
  if (wanted(argc, argv, "graph")) test_graph(argv[1]);
  if (wanted(argc, argv, "placement")) test_placement();
  if (wanted(argc, argv, "serving")) test_serving();
  if (wanted(argc, argv, "rpc")) test_rpc();
  if (wanted(argc, argv, "cuda")) test_cuda();
  if (argc > 3 && wanted(argc, argv, "opencl")) test_opencl();
  puts("ok");
  return 0;
}
