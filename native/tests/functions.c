/* Licensed under the Apache License, Version 2.0; see LICENSE. */
#include "test.h"

static int finalized;

static void count_finalization(void* resource) {
  (void)resource;
  ++finalized;
}

static int sum_ints(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  TVMValue out = {.v_int64 = *(int*)resource};
  for (int i = 0; i < n; ++i) {
    if (codes[i] != kTVMArgInt) {
      TVMAPISetLastError("integers, please");
      return -1;
    }
    out.v_int64 += args[i].v_int64;
  }
  int code = kTVMArgInt;
  return TVMCFuncSetReturn(ret, &out, &code, 1);
}

static int echo(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  (void)resource;
  return TVMCFuncSetReturn(ret, args, codes, n);
}

static int silent_failure(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  (void)args;
  (void)codes;
  (void)n;
  (void)ret;
  (void)resource;
  return 3;
}

static void functions_are_called_with_their_resource(void) {
  static int base = 100;
  TVMFunctionHandle f, g;
  TVMValue args[2] = {{.v_int64 = 1}, {.v_int64 = 2}}, ret;
  int codes[2] = {kTVMArgInt, kTVMArgInt}, code;
  OK(TVMFuncCreateFromCFunc(sum_ints, &base, count_finalization, &f));
  OK(TVMFuncCall(f, args, codes, 2, &ret, &code));
  CHECK(ret.v_int64 == 103 && code == kTVMArgInt);
  codes[1] = kTVMStr;
  FAILS(TVMFuncCall(f, args, codes, 2, &ret, &code), "integers, please");
  OK(TVMFuncRegisterGlobal("test.sum", f, 0));
  FAILS(TVMFuncRegisterGlobal("test.sum", f, 0), "already registered");
  OK(TVMFuncRegisterGlobal("test.sum", f, 1));
  OK(TVMFuncFree(f));
  OK(TVMFuncGetGlobal("test.sum", &g));
  CHECK(g == f && finalized == 0);
  OK(TVMFuncRemoveGlobal("test.sum"));
  OK(TVMFuncFree(g));
  CHECK(finalized == 1);
  OK(TVMFuncGetGlobal("test.sum", &g));
  CHECK(g == NULL);
}

static void strings_bytes_and_handles_come_back(void) {
  TVMFunctionHandle f;
  TVMValue arg = {.v_str = "text"}, ret;
  int code = kTVMStr, ret_code;
  OK(TVMFuncCreateFromCFunc(echo, NULL, NULL, &f));
  OK(TVMFuncCall(f, &arg, &code, 1, &ret, &ret_code));
  CHECK(ret_code == kTVMStr && strcmp(ret.v_str, "text") == 0 && ret.v_str != arg.v_str);
  TVMByteArray bytes = {"a\0b", 3};
  arg.v_handle = &bytes;
  code = kTVMBytes;
  OK(TVMFuncCall(f, &arg, &code, 1, &ret, &ret_code));
  const TVMByteArray* got = ret.v_handle;
  CHECK(ret_code == kTVMBytes && got->size == 3 && memcmp(got->data, "a\0b", 3) == 0);
  OK(TVMFuncCall(f, NULL, NULL, 0, &ret, &ret_code));
  CHECK(ret_code == kTVMNullptr);
  int64_t shape[1] = {1};
  TVMArrayHandle a = filled(1, shape, 1);
  arg.v_handle = a;
  code = kTVMNDArrayHandle;
  OK(TVMFuncCall(f, &arg, &code, 1, &ret, &ret_code));
  CHECK(ret.v_handle == a);
  TVMArrayFree(a);
  TVMArrayFree(ret.v_handle); /* the second reference */
  code = kTVMDLTensorHandle;
  FAILS(TVMFuncCall(f, &arg, &code, 1, &ret, &ret_code), "borrowed");
  TVMFuncFree(f);
}

static void a_failure_without_message_gets_one(void) {
  TVMFunctionHandle f;
  TVMValue ret;
  int ret_code;
  OK(TVMFuncCreateFromCFunc(silent_failure, NULL, NULL, &f));
  TVMAPISetLastError("an old message");
  FAILS(TVMFuncCall(f, NULL, NULL, 0, &ret, &ret_code), "code 3");
  TVMFuncFree(f);
  FAILS(TVMFuncCall(NULL, NULL, NULL, 0, &ret, &ret_code), "null function");
}

static void names_are_listed_in_order(void) {
  int count;
  const char** names;
  TVMFunctionHandle f;
  static int base;
  OK(TVMFuncCreateFromCFunc(sum_ints, &base, NULL, &f));
  for (int i = 0; i < 100; ++i) {
    char name[32];
    snprintf(name, sizeof name, "test.many%02d", i);
    OK(TVMFuncRegisterGlobal(name, f, 0));
  }
  OK(TVMFuncListGlobalNames(&count, &names));
  int found = 0;
  for (int i = 0; i < count; ++i) {
    CHECK(i == 0 || strcmp(names[i - 1], names[i]) < 0);
    found += strncmp(names[i], "test.many", 9) == 0;
  }
  CHECK(found == 100);
  for (int i = 0; i < 100; i += 2) {
    char name[32];
    snprintf(name, sizeof name, "test.many%02d", i);
    OK(TVMFuncRemoveGlobal(name));
  }
  for (int i = 0; i < 100; ++i) {
    char name[32];
    TVMFunctionHandle g;
    snprintf(name, sizeof name, "test.many%02d", i);
    OK(TVMFuncGetGlobal(name, &g));
    CHECK((g == NULL) == (i % 2 == 0));
    TVMFuncFree(g);
    OK(TVMFuncRemoveGlobal(name));
  }
  TVMFuncFree(f);
}

static void* use_registry(void* arg) {
  int number = *(int*)arg;
  static int base;
  for (int i = 0; i < 200; ++i) {
    char name[32];
    TVMFunctionHandle f, g;
    snprintf(name, sizeof name, "test.thread%d", (number + i) % 3);
    OK(TVMFuncCreateFromCFunc(sum_ints, &base, NULL, &f));
    OK(TVMFuncRegisterGlobal(name, f, 1));
    OK(TVMFuncGetGlobal(name, &g));
    if (g != NULL) {
      TVMValue ret;
      int code;
      OK(TVMFuncCall(g, NULL, NULL, 0, &ret, &code));
      TVMFuncFree(g);
    }
    OK(TVMFuncRemoveGlobal(name));
    TVMFuncFree(f);
    char text[32];
    snprintf(text, sizeof text, "thread %d", number);
    TVMAPISetLastError(text);
    CHECK(strcmp(TVMGetLastError(), text) == 0); /* errors are per thread */
  }
  return NULL;
}

static void the_registry_serves_several_threads(void) {
  pthread_t threads[4];
  int numbers[4] = {0, 1, 2, 3};
  for (int i = 0; i < 4; ++i) OK(pthread_create(&threads[i], NULL, use_registry, &numbers[i]));
  for (int i = 0; i < 4; ++i) OK(pthread_join(threads[i], NULL));
}

static void cpu_features_are_checked_by_name(void) {
  char all[4096];
  snprintf(all, sizeof all, "%s", TilewrightHostCpuFeatures());
  OK(TilewrightCheckCpuFeatures(all, "x.so"));
  OK(TilewrightCheckCpuFeatures("", "x.so"));
  FAILS(TilewrightCheckCpuFeatures("nonesuch,+other", "x.so"), "nonesuch, other");
}

void test_functions(void) {
  functions_are_called_with_their_resource();
  strings_bytes_and_handles_come_back();
  a_failure_without_message_gets_one();
  names_are_listed_in_order();
  the_registry_serves_several_threads();
  cpu_features_are_checked_by_name();
}
