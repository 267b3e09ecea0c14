/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The bytes are a graph JSON, of which an executor is made. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  TVMModuleHandle lib = fuzz_library();
  TilewrightGraph* graph;
  if (TilewrightGraphCreate((const char*)data, size, lib, (DLDevice){kDLCPU, 0}, &graph) == 0) {
    fuzz_graph(graph);
    TilewrightGraphFree(graph);
  }
  TVMModFree(lib);
  return 0;
}
