/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The bytes are a module table, __tvm_dev_mblob: read from a caller's memory, and then as a part of a mapped library, whose
 * parameters are used where they lie. */
#include "fuzz.h"

#include <dlfcn.h>

static int call(TVMModuleHandle m, const char* name, TVMValue* args, int* codes, int n, TVMValue* ret, int* code) {
  TVMFunctionHandle f = NULL;
  if (TVMModGetFunction(m, name, 0, &f) != 0 || f == NULL) return -1;
  int rc = TVMFuncCall(f, args, codes, n, ret, code);
  TVMFuncFree(f);
  return rc;
}

static void use_params(TVMModuleHandle m) {
  TVMValue count, ret;
  int code, arg_code = kTVMArgInt;
  if (call(m, "get_num_params", NULL, NULL, 0, &count, &code) != 0) return;
  for (int64_t i = 0; i < count.v_int64; ++i) {
    TVMValue index = {.v_int64 = i};
    if (call(m, "get_param_name", &index, &arg_code, 1, &ret, &code) != 0) abort();
    if (call(m, "get_param", &index, &arg_code, 1, &ret, &code) != 0) abort();
    fuzz_touch(ret.v_handle);
    TVMArrayFree(ret.v_handle);
  }
}

static void use(TVMModuleHandle m, int depth) {
  TilewrightGraph* graph;
  TVMValue ret;
  int code;
  if (strcmp(TilewrightModTypeKey(m), "GraphExecutorFactory") == 0) {
    if (TilewrightGraphFromModule(m, "default", (DLDevice){kDLCPU, 0}, &graph) == 0) {
      fuzz_graph(graph);
      TilewrightGraphFree(graph);
    }
    if (call(m, "remove_params", NULL, NULL, 0, &ret, &code) == 0) TVMModFree(ret.v_handle);
    use_params(m);
  }
  (void)call(m, "tvmgen_default_dnnl_main_0", NULL, NULL, 0, &ret, &code);
  (void)call(m, "get_const_vars", NULL, NULL, 0, &ret, &code);
  for (int i = 0; depth < 8 && i < TilewrightModNumImports(m) && i < 8; ++i) {
    TVMModuleHandle import;
    if (TilewrightModGetImport(m, i, &import) != 0) abort();
    use(import, depth + 1);
    TVMModFree(import);
  }
}

/* A copy at a library's alignment, in which parameters of a page and more are used in place. */
static void use_mapped(const uint8_t* data, size_t size, TVMModuleHandle lib) {
  char* copy = tw_aligned_alloc(size + 1, TW_ALIGNMENT);
  TwMapping* mapping = tw_map_open(dlopen(NULL, RTLD_NOW));
  TwModule* m;
  if (copy == NULL || mapping == NULL) abort();
  memcpy(copy, data, size);
  if (size >= 8 && fuzz_read(tw_load_blob(copy + 8, size - 8, mapping, lib, &m))) {
    use(m, 0);
    tw_module_release(m);
  }
  tw_mapping_release(mapping);
  free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  TVMModuleHandle lib = fuzz_library(), m;
  if (fuzz_read(TilewrightModFromBlob((const char*)data, size, lib, &m))) {
    use(m, 0);
    TVMModFree(m);
  }
  TVMModFree(lib);
  lib = fuzz_library();
  use_mapped(data, size, lib);
  TVMModFree(lib);
  return 0;
}
