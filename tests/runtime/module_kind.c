/* A kind of module in C: "counter" holds a number, which its function "count" returns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tilewright.h>

static int count(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* number) {
  (void)args;
  TVMValue value = {.v_int64 = *(int64_t*)number + n};
  int code = kTVMArgInt;
  (void)codes;
  return TVMCFuncSetReturn(ret, &value, &code, 1);
}

static int get_function(void* ctx, const char* name, TVMFunctionHandle* out) {
  if (strcmp(name, "count") != 0) return 0;
  int64_t* number = malloc(sizeof *number);
  *number = *(int64_t*)ctx;
  return TVMFuncCreateFromCFunc(count, number, free, out);
}

static int save(void* ctx, TilewrightStream* stream) { return TilewrightStreamWrite(stream, ctx, sizeof(int64_t)); }

static int save_file(void* ctx, const char* path, const char* format) {
  if (format[0] != '\0' && strcmp(format, "count") != 0) {
    TVMAPISetLastError("a counter is saved as .count only");
    return -1;
  }
  FILE* file = fopen(path, "wb");
  if (file == NULL) return -1;
  fprintf(file, "%lld", (long long)*(int64_t*)ctx);
  return fclose(file);
}

static int create(int64_t value, TVMRetValueHandle ret) {
  static const TilewrightModuleCallbacks callbacks = {
      .get_function = get_function, .save = save, .finalize = free, .save_file = save_file};
  int64_t* number = malloc(sizeof *number);
  *number = value;
  TVMValue out;
  int code = kTVMModuleHandle;
  if (TilewrightModCreate("counter", &callbacks, number, &out.v_handle) != 0) return -1;
  int rc = TVMCFuncSetReturn(ret, &out, &code, 1);
  TVMModFree(out.v_handle);
  return rc;
}

static int make(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  (void)codes, (void)n, (void)resource;
  return create(args[0].v_int64, ret);
}

static int load_binary(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  (void)codes, (void)n, (void)resource;
  int64_t value;
  return TilewrightStreamRead(args[0].v_handle, &value, sizeof value) != 0 ? -1 : create(value, ret);
}

static int load_file(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  (void)codes, (void)n, (void)resource;
  FILE* file = fopen(args[0].v_str, "rb");
  long long value;
  if (file == NULL || fscanf(file, "%lld", &value) != 1) return -1;
  fclose(file);
  return create(value, ret);
}

static int add(const char* name, TVMPackedCFunc callback) {
  TVMFunctionHandle f;
  if (TVMFuncCreateFromCFunc(callback, NULL, NULL, &f) != 0) return -1;
  int rc = TVMFuncRegisterGlobal(name, f, 1);
  TVMFuncFree(f);
  return rc;
}

int register_counter(void) {
  return add("test.make_counter", make) | add("runtime.module.loadbinary_counter", load_binary) |
         add("runtime.module.loadfile_count", load_file);
}
