/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Builds the regions of the files that it is given, graphs in JSON without constants, and prints for each what came of it.
 * tests/runtime/test_dnnl_graphs.py runs it under the sanitizers with graphs that lie. */
#include <stdio.h>
#include <stdlib.h>
#include <tilewright.h>

static char* read_text(const char* path) {
  FILE* f = fopen(path, "rb");
  if (f == NULL) exit(2);
  char* text = calloc(1 << 20, 1);
  size_t size = fread(text, 1, (1 << 20) - 1, f);
  fclose(f);
  char* exact = malloc(size + 1); /* so that reading behind its end is seen */
  for (size_t i = 0; i <= size; ++i) exact[i] = i < size ? text[i] : '\0';
  free(text);
  return exact;
}

int main(int argc, char** argv) {
  TVMFunctionHandle create, run;
  if (TVMFuncGetGlobal("runtime.dnnl.create", &create) != 0) return 1;
  for (int i = 1; i < argc; ++i) {
    char* text = read_text(argv[i]);
    TVMValue args[2] = {{.v_str = "region"}, {.v_str = text}}, module, none;
    int codes[2] = {kTVMStr, kTVMStr}, code;
    if (TVMFuncCall(create, args, codes, 2, &module, &code) != 0) return 1;
    if (TVMModGetFunction(module.v_handle, "region", 0, &run) != 0) return 1;
    /* without arguments: the region is built, and then misses them */
    if (TVMFuncCall(run, args, codes, 0, &none, &code) == 0) return 1;
    printf("%s\n", TVMGetLastError());
    TVMFuncFree(run);
    TVMModFree(module.v_handle);
    free(text);
  }
  TVMFuncFree(create);
  return 0;
}
