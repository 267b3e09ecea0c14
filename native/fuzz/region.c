/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The bytes are the JSON of a region for oneDNN, which is read and whose attributes are asked for; oneDNN itself is not. */
#include "../src/dnnl/dnnl.h"
#include "fuzz.h"

static void ask(const TwRegion* r, const TwNode* n) {
  static const char* const keys[] = {"strides", "padding", "dilation", "axis", "groups", "pool_size", "newshape", "axes"};
  int64_t values[8];
  double number;
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; ++i) {
    int count = tw_attr_count(n, keys[i]);
    if (count >= 0 && count <= 8) (void)tw_attr_ints(r, n, keys[i], count, INT64_MIN, values);
    (void)tw_attr_int(r, n, keys[i], 0, values);
  }
  (void)tw_attr_float(r, n, "epsilon", &number);
  (void)tw_expect_inputs(r, n, 1, 2);
  for (int i = 0; n->kind != TW_INPUT && i < n->num_inputs; ++i) (void)tw_expect_shape(r, n, tw_input_shape(r, n, i));
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  TwRegion region = {0};
  if (!fuzz_read(tw_region_parse((const char*)data, size, &region))) return 0;
  for (int i = 0; i < region.num_nodes; ++i) ask(&region, &region.nodes[i]);
  for (int i = 0; i < region.num_heads; ++i) {
    if (tw_shape_size(&region.nodes[region.heads[i].node].shapes[region.heads[i].output]) < 0) abort();
  }
  tw_region_free(&region);
  return 0;
}
