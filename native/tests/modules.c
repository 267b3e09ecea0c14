/* Licensed under the Apache License, Version 2.0; see LICENSE. */
#include "test.h"

#include <unistd.h>

static int call_add_one(TVMModuleHandle m, const char* name, float from, float* to) {
  int64_t shape[2] = {7, 13};
  TVMArrayHandle a = filled(2, shape, from), b = filled(2, shape, 0);
  TVMValue args[2] = {{.v_handle = a}, {.v_handle = b}}, ret;
  int codes[2] = {kTVMNDArrayHandle, kTVMNDArrayHandle}, code;
  TVMFunctionHandle f;
  OK(TVMModGetFunction(m, name, 0, &f));
  CHECK(f != NULL);
  int rc = TVMFuncCall(f, args, codes, 2, &ret, &code);
  *to = ((float*)b->data)[90];
  TVMFuncFree(f);
  TVMArrayFree(a);
  TVMArrayFree(b);
  return rc;
}

static int answer(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  (void)args;
  (void)codes;
  (void)resource;
  TVMValue out = {.v_int64 = 40 + n};
  int code = kTVMArgInt;
  return TVMCFuncSetReturn(ret, &out, &code, 1);
}

static void libraries_are_loaded_and_called(const char* library) {
  TVMModuleHandle m, again;
  TVMFunctionHandle f;
  float out;
  OK(TVMModLoadFromFile(library, "", &m));
  CHECK(strcmp(TilewrightModTypeKey(m), "library") == 0);
  OK(call_add_one(m, "add_one", 4, &out));
  CHECK(out == 5);
  OK(call_add_one(m, "__tvm_main__", 5, &out));
  CHECK(out == 6);
  OK(TVMModGetFunction(m, "nonesuch", 1, &f));
  CHECK(f == NULL);
  /* the same file twice is one library with one context, which must outlive either module */
  OK(TVMModLoadFromFile(library, "so", &again));
  TVMModFree(again);
  TVMValue ret;
  int code;
  OK(TVMModGetFunction(m, "call_back", 0, &f));
  FAILS(TVMFuncCall(f, NULL, NULL, 0, &ret, &code), "test.from_compiled");
  TVMFunctionHandle g;
  OK(TVMFuncCreateFromCFunc(answer, NULL, NULL, &g));
  OK(TVMFuncRegisterGlobal("test.from_compiled", g, 0));
  OK(TVMFuncCall(f, NULL, NULL, 0, &ret, &code));
  CHECK(ret.v_int64 == 40);
  OK(TVMFuncRemoveGlobal("test.from_compiled"));
  TVMFuncFree(g);
  TVMModFree(m);
  OK(TVMFuncCall(f, NULL, NULL, 0, &ret, &code)); /* the function keeps its module and what it called */
  TVMFuncFree(f);
}

static void write_file(const char* path, const char* data, size_t size) {
  FILE* f = fopen(path, "wb");
  CHECK(f != NULL && fwrite(data, 1, size, f) == size);
  fclose(f);
}

static void damaged_libraries_are_refused(const char* library) {
  size_t size;
  char* data = read_file(library, &size);
  char path[] = "/tmp/tilewright-test-XXXXXX";
  int fd = mkstemp(path);
  CHECK(fd >= 0);
  close(fd);
  TVMModuleHandle m;
  for (size_t n = 0; n < size; n += n < 256 ? 1 : size / 97) {
    write_file(path, data, n);
    CHECK(TVMModLoadFromFile(path, "so", &m) == -1);
  }
  write_file(path, data, size - 1);
  FAILS(TVMModLoadFromFile(path, "so", &m), "truncated");
  data[18] = (char)183;
  write_file(path, data, size);
#ifndef __aarch64__
  FAILS(TVMModLoadFromFile(path, "so", &m), "is for aarch64; this machine is");
#endif
  write_file(path, "hello, this is a text, and not very short, is it, well, long enough", 66);
  FAILS(TVMModLoadFromFile(path, "so", &m), "not a shared library");
  unlink(path);
  free(data);
  FAILS(TVMModLoadFromFile("/nonexistent/x.so", "", &m), "No such file");
  FAILS(TVMModLoadFromFile("/tmp", "so", &m), "not a file");
  FAILS(TVMModLoadFromFile("model.xyz", "", &m), "no loader");
}

/* ---- module tables ---- */
static void recorded_module_tables_are_read(const char* golden) {
  char path[512];
  size_t size;
  snprintf(path, sizeof path, "%s/blob/tvm_dev_mblob.bin", golden);
  char* blob = read_file(path, &size);
  static const Kernel none[] = {{NULL, NULL}};
  TVMModuleHandle lib = module_of(none), root, metadata, import;
  char* key = memmem(blob, size, "dnnl_json", 9);
  key[0] = 'x';
  FAILS(TilewrightModFromBlob(blob, size, lib, &root), "xnnl_json");
  key[0] = 'd';
  OK(TilewrightModFromBlob(blob, size, lib, &root));
  CHECK(strcmp(TilewrightModTypeKey(root), "GraphExecutorFactory") == 0 && TilewrightModNumImports(root) == 1);
  OK(TilewrightModGetImport(root, 0, &metadata));
  CHECK(strcmp(TilewrightModTypeKey(metadata), "metadata") == 0 && TilewrightModNumImports(metadata) == 3);
  OK(TilewrightModGetImport(metadata, 2, &import));
  CHECK(import == lib);
  TVMModFree(import);
  CHECK(TilewrightModGetImport(metadata, 3, &import) == -1);
  TVMModFree(lib);
  TVMModFree(metadata);
  /* saved again, each module gives the bytes it was read from */
  char out[] = "/tmp/tilewright-test-XXXXXX";
  int fd = mkstemp(out);
  CHECK(fd >= 0);
  close(fd);
  OK(TilewrightModSaveToFile(root, out));
  size_t saved_size;
  char* saved = read_file(out, &saved_size);
  size_t offset = 8 + 8 + 8 + strlen("GraphExecutorFactory");
  CHECK(saved_size < size - offset && memcmp(saved, blob + offset, saved_size) == 0);
  unlink(out);
  free(saved);
  TVMModFree(root);
  /* cut anywhere, it is refused */
  for (size_t n = 0; n < size; n += 7) {
    char* cut = malloc(n + 1);
    memcpy(cut, blob, n);
    lib = module_of(none);
    CHECK(TilewrightModFromBlob(cut, n, lib, &root) == -1);
    if (n >= 8) {
      uint64_t announced = n - 8;
      memcpy(cut, &announced, 8);
      CHECK(TilewrightModFromBlob(cut, n, lib, &root) == -1);
    }
    TVMModFree(lib);
    free(cut);
  }
  free(blob);
}

static void import_cycles_are_refused(void) {
  static const Kernel none[] = {{NULL, NULL}}, one[] = {{"f", kernel_fail}, {NULL, NULL}};
  TVMModuleHandle a = module_of(none), b = module_of(none), c = module_of(one);
  OK(TVMModImport(a, b));
  OK(TVMModImport(b, c));
  FAILS(TVMModImport(c, a), "cycle");
  FAILS(TVMModImport(a, a), "cycle");
  TVMFunctionHandle f;
  OK(TVMModGetFunction(a, "f", 0, &f));
  CHECK(f == NULL);
  OK(TVMModGetFunction(a, "f", 1, &f));
  CHECK(f != NULL);
  TVMModFree(a);
  TVMModFree(b);
  TVMModFree(c);
  TVMValue ret;
  int code;
  FAILS(TVMFuncCall(f, NULL, NULL, 0, &ret, &code), "the kernel says no");
  TVMFuncFree(f);
  FAILS(TilewrightModSaveToFile(c = module_of(one), "/dev/null"), "cannot be saved");
  FAILS(TilewrightModGetSource(c, "", &ret, &code), "no source");
  TVMModFree(c);
}

static void code_finds_functions_of_modules_beside_it(void) {
  static const Kernel none[] = {{NULL, NULL}}, one[] = {{"f", kernel_fail}, {NULL, NULL}};
  static const Kernel other[] = {{"g", kernel_add}, {NULL, NULL}};
  TVMModuleHandle top = module_of(none), whole = module_of(none), library = module_of(other), beside = module_of(one);
  TVMFunctionHandle f, again;
  FAILS(TVMBackendGetFuncFromEnv(library, "f", &f), "nobody provides");
  OK(TVMModImport(whole, library));
  OK(TVMModImport(whole, beside));
  OK(TVMModImport(top, whole));
  OK(TVMBackendGetFuncFromEnv(library, "f", &f));
  OK(TVMBackendGetFuncFromEnv(library, "f", &again));
  CHECK(f != NULL && f == again);
  OK(TVMBackendGetFuncFromEnv(library, "g", &again)); /* its own, which must not keep it alive */
  CHECK(again != NULL);
  TVMModFree(top);
  TVMModFree(whole);
  TVMModFree(beside);
  FAILS(TVMBackendGetFuncFromEnv(library, "h", &again), "nobody provides");
  TVMValue ret;
  int code;
  FAILS(TVMFuncCall(f, NULL, NULL, 0, &ret, &code), "the kernel says no");
  TVMModFree(library);
}

static void linked_code_is_the_system_library(void) {
  void* address;
  TVMBackendPackedCFunc code = kernel_add;
  memcpy(&address, &code, sizeof address);
  OK(TVMBackendRegisterSystemLibSymbol("linked_add", address));
  TVMFunctionHandle system;
  OK(TVMFuncGetGlobal("runtime.SystemLib", &system));
  TVMValue ret;
  int ret_code;
  float out;
  OK(TVMFuncCall(system, NULL, NULL, 0, &ret, &ret_code));
  OK(call_add_one(ret.v_handle, "linked_add", 7, &out));
  CHECK(out == 8);
  TVMModFree(ret.v_handle);
  TVMFuncFree(system);
}

void test_modules(const char* golden, const char* library) {
  libraries_are_loaded_and_called(library);
  damaged_libraries_are_refused(library);
  recorded_module_tables_are_read(golden);
  import_cycles_are_refused();
  code_finds_functions_of_modules_beside_it();
  linked_code_is_the_system_library();
}
