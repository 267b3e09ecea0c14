/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Loaders of modules are global functions: "runtime.module.loadbinary_KEY" reads the payload of a module of type KEY from
 * a stream, "runtime.module.loadfile_FORMAT" reads a file (its path, its format). Both return the module. */
#include "module.h"

/* Where there is no loader of a name, the function "runtime.module.find_loader" may have it registered: Python's asks the
 * packages that are installed. */
static int find_loader(const char* name, TwFunc** out) {
  *out = tw_find_global(name);
  TwFunc* finder = *out == NULL ? tw_find_global("runtime.module.find_loader") : NULL;
  if (finder == NULL) return 0;
  TVMValue arg = {.v_str = name}, ret;
  int arg_code = kTVMStr, code;
  int rc = TVMFuncCall(finder, &arg, &arg_code, 1, &ret, &code);
  tw_func_release(finder);
  if (rc == 0) *out = tw_find_global(name);
  return rc;
}

/* Calls a loader, which it releases. */
static int call_loader(TwFunc* loader, const char* name, TVMValue* args, int* codes, int n, TwModule** out) {
  TVMValue ret;
  int code;
  int rc = TVMFuncCall(loader, args, codes, n, &ret, &code);
  tw_func_release(loader);
  if (rc != 0) return -1;
  if (code != kTVMModuleHandle) return tw_fail("%s did not return a module", name);
  *out = ret.v_handle;
  return 0;
}

/* What the modules of TVM 0.8's own kinds are for, in parentheses; "" for other kinds. */
static const char* purpose_of(const char* key) {
  static const struct {
    const char *key, *purpose;
  } known[] = {
      {"cuda", " (kernels for CUDA)"}, {"hip", " (kernels for ROCm)"}, {"opencl", " (kernels for OpenCL)"},
      {"metal", " (kernels for Metal)"}, {"vulkan", " (kernels for Vulkan)"}, {"hexagon", " (kernels for Hexagon)"},
      {"aocl", " (kernels for Intel FPGAs)"}, {"sdaccel", " (kernels for Xilinx FPGAs)"},
      {"tensorrt", " (regions for NVIDIA's TensorRT)"}, {"bnns_json", " (regions for Apple's BNNS)"},
      {"arm_compute_lib", " (regions for the Arm Compute Library)"}, {"ethos-n", " (regions for Arm's Ethos-N)"},
      {"coreml", " (regions for Apple's Core ML)"}, {"VitisAIRuntime", " (regions for Xilinx's Vitis AI)"},
      {"examplejson", " (of TVM's example of a JSON runtime)"}, {"stackvm", " (TVM's interpreted code)"},
      {"AotExecutorFactory", " (of the ahead-of-time executor)"}};
  for (size_t i = 0; i < sizeof known / sizeof known[0]; ++i) {
    if (strcmp(known[i].key, key) == 0) return known[i].purpose;
  }
  return "";
}

int tw_load_binary(const char* key, TilewrightStream* s, TwModule** out) {
  char name[256];
  TwFunc* loader;
  int length = snprintf(name, sizeof name, "runtime.module.loadbinary_%s", key);
  if (length >= (int)sizeof name) return tw_fail("damaged module table: a type key of %zu characters", strlen(key));
  if (find_loader(name, &loader) != 0) return -1;
  if (loader == NULL) {
    return tw_fail("the library holds a module of type \"%s\"%s, and nothing here can load it: the global function %s is "
                   "not registered; install, or import (in C: link, and call), the package that made the module", key, purpose_of(key), name);
  }
  TVMValue arg = {.v_handle = s};
  int code = kTVMOpaqueHandle;
  return call_loader(loader, name, &arg, &code, 1, out);
}

int tw_loader_stream(const TVMValue* args, const int* codes, int n, const char* who, TilewrightStream** out) {
  if (n != 1 || codes[0] != kTVMOpaqueHandle) return tw_fail("%s: its argument must be a stream", who);
  *out = args[0].v_handle;
  return 0;
}

static const char* extension_of(const char* path) {
  const char* slash = strrchr(path, '/');
  const char* dot = strrchr(slash == NULL ? path : slash, '.');
  return dot == NULL ? "" : dot + 1;
}

int TVMModLoadFromFile(const char* file_name, const char* format, TVMModuleHandle* out) {
  char name[256];
  TwFunc* loader;
  TwModule* m;
  if (format == NULL || format[0] == '\0') format = extension_of(file_name);
  if (strcmp(format, "dll") == 0 || strcmp(format, "dylib") == 0 || strcmp(format, "dso") == 0) format = "so";
  int length = snprintf(name, sizeof name, "runtime.module.loadfile_%s", format);
  if (length >= (int)sizeof name) return tw_fail("cannot load %s: no format has so long a name", file_name);
  if (find_loader(name, &loader) != 0) return -1;
  if (loader == NULL) {
    return tw_fail("cannot load %s: there is no loader for files of format \"%s\" (the global function %s is not "
                   "registered)", file_name, format, name);
  }
  TVMValue args[2] = {{.v_str = file_name}, {.v_str = format}};
  int codes[2] = {kTVMStr, kTVMStr};
  if (call_loader(loader, name, args, codes, 2, &m) != 0) return -1;
  *out = m;
  return 0;
}
