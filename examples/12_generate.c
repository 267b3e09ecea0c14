/* Tokens from a decoder with a cache: generate LIBRARY COUNT TOKEN...  prints the COUNT most likely tokens after those. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tilewright_model.h>

static void check(int rc) {
  if (rc == 0) return;
  fprintf(stderr, "%s\n", TVMGetLastError());
  exit(1);
}

static void set(TilewrightModel* model, const char* name, int64_t rows, int64_t* values) {
  DLTensor value = {values, {kDLCPU, 0}, 2, {kDLInt, 64, 1}, (int64_t[]){1, rows}, NULL, 0};
  check(TilewrightModelSetInput(model, name, &value));
}

/* The output that continues an input: present.0.key continues past_key_values.0.key. */
static int continued(TilewrightModel* model, const char* input) {
  TilewrightTensorInfo info;
  for (int i = 0; i < TilewrightModelNumOutputs(model); ++i) {
    check(TilewrightModelOutputInfo(model, i, &info));
    if (strncmp(info.name, "present.", 8) == 0 && strcmp(strchr(input, '.'), info.name + 7) == 0) return i;
  }
  return -1;
}

int main(int argc, char** argv) {
  TilewrightModel* model;
  TilewrightTensorInfo info;
  if (argc < 4) return fprintf(stderr, "usage: generate LIBRARY COUNT TOKEN...\n"), 1;
  check(TilewrightModelOpen(argv[1], (DLDevice){kDLCPU, 0}, &model));
  const int count = atoi(argv[2]);
  int64_t before = 0, now = argc - 3; /* tokens in the cache, and those of this run */
  int64_t* ids = calloc((size_t)(argc + count), 3 * sizeof(int64_t));
  int64_t *places = ids + argc + count, *mask = places + argc + count;
  for (int i = 0; i < argc - 3; ++i) ids[i] = atoll(argv[3 + i]);
  for (int step = 0; step < count; ++step) {
    for (int64_t i = 0; i < now; ++i) places[i] = before + i, mask[before + i] = 1;
    for (int i = 0; i < TilewrightModelNumInputs(model); ++i) {
      check(TilewrightModelInputInfo(model, i, &info));
      if (strncmp(info.name, "past", 4) != 0) continue;
      TVMArrayHandle cache;
      if (step == 0) {
        int64_t shape[4] = {1, info.shape[1], 0, info.shape[3]};
        check(TVMArrayAlloc(shape, 4, info.dtype.code, info.dtype.bits, 1, kDLCPU, 0, &cache));
      } else {
        check(TilewrightModelOutput(model, continued(model, info.name), &cache));
      }
      check(TilewrightModelShareInput(model, info.name, cache)); /* no copy: it grows where it is */
      check(TVMArrayFree(cache));
    }
    set(model, "input_ids", now, ids);
    set(model, "position_ids", now, places);
    set(model, "attention_mask", before + now, mask);
    check(TilewrightModelRun(model));
    TVMArrayHandle logits;
    check(TilewrightModelOutput(model, 0, &logits)); /* (1, now, vocabulary) */
    const float* row = (const float*)logits->data + (now - 1) * logits->shape[2];
    before += now, now = 1, ids[0] = 0;
    for (int64_t i = 1; i < logits->shape[2]; ++i) ids[0] = row[i] > row[ids[0]] ? i : ids[0];
    check(TVMArrayFree(logits));
    printf("%d\n", (int)ids[0]);
  }
  TilewrightModelFree(model);
  free(ids);
  return 0;
}
