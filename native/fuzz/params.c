/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The bytes are a parameter file, which an executor loads, and which two executors then share. */
#include "fuzz.h"

static const char json[] =
    "{\"nodes\": [{\"op\": \"null\", \"name\": \"a\", \"inputs\": []}, {\"op\": \"null\", \"name\": \"b\", \"inputs\": []},"
    " {\"op\": \"tvm_op\", \"name\": \"y\", \"attrs\": {\"func_name\": \"f\", \"num_inputs\": \"2\", \"num_outputs\": \"1\","
    " \"flatten_data\": \"0\"}, \"inputs\": [[0, 0, 0], [1, 0, 0]]}], \"arg_nodes\": [0, 1], \"heads\": [[2, 0, 0]],"
    " \"node_row_ptr\": [0, 1, 2, 3], \"attrs\": {\"dltype\": [\"list_str\", [\"float32\", \"int64\", \"float32\"]],"
    " \"storage_id\": [\"list_int\", [0, 1, 2]], \"shape\": [\"list_shape\", [[2, 3], [], [2, 3]]]}}";

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  TVMModuleHandle lib = fuzz_library();
  TilewrightGraph *first, *second;
  const DLDevice cpu = {kDLCPU, 0};
  if (TilewrightGraphCreate(json, sizeof json - 1, lib, cpu, &first) != 0) abort();
  if (TilewrightGraphCreate(json, sizeof json - 1, lib, cpu, &second) != 0) abort();
  (void)fuzz_read(TilewrightGraphLoadParams(first, (const char*)data, size));
  (void)fuzz_read(TilewrightGraphShareParams(second, first, (const char*)data, size));
  fuzz_graph(first);
  TilewrightGraphFree(first);
  fuzz_graph(second);
  TilewrightGraphFree(second);
  TVMModFree(lib);
  return 0;
}
