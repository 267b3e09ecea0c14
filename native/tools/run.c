/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * tilewright-run: runs an exported model on a machine that has only the C runtime. See docs/deployment.md. */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tilewright.h>
#include <time.h>

static const char usage[] =
    "usage: tilewright-run MODEL.so [-n RUNS] [-o PREFIX] [-z] [INPUT=FILE]...\n"
    "\n"
    "MODEL.so is an exported library, or - for the model that is linked into this program (with -rdynamic).\n"
    "Runs the model and prints the outputs' types, shapes and first values, and the fastest run's time.\n"
    "Files hold the plain values, row by row, as numpy's tofile writes them.\n"
    "  -n RUNS     run so many times (1)\n"
    "  -o PREFIX   write the outputs to PREFIX0, PREFIX1, ...\n"
    "  -z          inputs that are not given are 0; without it they are an error\n"
    "The environment variable TVM_NUM_THREADS sets the number of threads.\n";

static _Noreturn void die(const char* format, ...) {
  va_list args;
  va_start(args, format);
  fputs("tilewright-run: ", stderr);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
  exit(1);
}

static void check(int rc) {
  if (rc != 0) die("%s", TVMGetLastError());
}

static size_t byte_count(const DLTensor* t) {
  size_t count = ((size_t)t->dtype.bits * t->dtype.lanes + 7) / 8;
  for (int i = 0; i < t->ndim; ++i) count *= (size_t)t->shape[i];
  return count;
}

/* The names of the inputs, each behind a space. */
static const char* input_names(const TilewrightGraph* graph) {
  static char names[1024];
  size_t used = 0;
  for (int i = 0; i < TilewrightGraphNumInputs(graph) && used < sizeof names; ++i) {
    if (TilewrightGraphInputIsParameter(graph, i)) continue;
    used += (size_t)snprintf(names + used, sizeof names - used, " %s", TilewrightGraphInputName(graph, i));
  }
  return names;
}

/* Fills the input named before the '=' of setting from the file named behind it. */
static void set_input(TilewrightGraph* graph, char* setting) {
  char* path = strchr(setting, '=');
  if (path == NULL) die("%s is not of the form INPUT=FILE\n\n%s", setting, usage);
  *path++ = '\0';
  int index = TilewrightGraphInputIndex(graph, setting);
  if (index < 0) die("the model has no input %s; it has%s", setting, input_names(graph));
  TVMArrayHandle array;
  check(TilewrightGraphGetInput(graph, index, &array));
  FILE* file = fopen(path, "rb");
  if (file == NULL) die("cannot read %s", path);
  const size_t expected = byte_count(array);
  const size_t found = fread(array->data, 1, expected, file);
  if (found != expected || fgetc(file) != EOF) {
    die("input %s takes %zu bytes, and %s has %s", setting, expected, path, found < expected ? "fewer" : "more");
  }
  fclose(file);
  check(TVMArrayFree(array));
}

static const char* type_name(DLDataType type) {
  static const char* const names[] = {"int", "uint", "float", "handle", "bfloat"};
  return type.code < sizeof names / sizeof *names ? names[type.code] : "type";
}

/* A name is a file's: control characters would drive the terminal. */
static void print_name(const char* name) {
  for (const unsigned char* p = (const unsigned char*)name; *p != 0; ++p) {
    const bool wide = p[0] == 0xc2 && p[1] < 0xa0; /* U+0080 to U+009F in UTF-8 */
    if (wide) ++p;
    printf(wide || *p < 0x20 || *p == 0x7f ? "\\x%02x" : "%c", *p);
  }
}

static void show_output(TilewrightGraph* graph, int index, const char* prefix) {
  TVMArrayHandle array;
  check(TilewrightGraphGetOutput(graph, index, &array));
  const size_t size = byte_count(array);
  print_name(TilewrightGraphOutputName(graph, index));
  printf(": %s%d (", type_name(array->dtype), array->dtype.bits);
  for (int i = 0; i < array->ndim; ++i) printf("%s%" PRId64, i == 0 ? "" : ", ", array->shape[i]);
  printf(")");
  if (array->dtype.code == kDLFloat && array->dtype.bits == 32) {
    for (size_t i = 0; i < 4 && i < size / sizeof(float); ++i) printf(" %g", ((const float*)array->data)[i]);
  }
  printf("\n");
  if (prefix != NULL) {
    char path[4096];
    snprintf(path, sizeof path, "%s%d", prefix, index);
    FILE* file = fopen(path, "wb");
    if (file == NULL || fwrite(array->data, 1, size, file) != size || fclose(file) != 0) die("cannot write %s", path);
  }
  check(TVMArrayFree(array));
}

static double seconds_of_run(TilewrightGraph* graph) {
  struct timespec start, end;
  clock_gettime(CLOCK_MONOTONIC, &start);
  check(TilewrightGraphRun(graph));
  clock_gettime(CLOCK_MONOTONIC, &end);
  return (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) * 1e-9;
}

int main(int argc, char** argv) {
  const bool inside = argc > 1 && strcmp(argv[1], "-") == 0;
  if (argc < 2 || (argv[1][0] == '-' && !inside)) {
    fputs(usage, stderr);
    return 2;
  }
  TVMModuleHandle library;
  TilewrightGraph* graph;
  check(inside ? TilewrightModLoadSelf(&library) : TVMModLoadFromFile(argv[1], "so", &library));
  check(TilewrightGraphFromModule(library, "default", (DLDevice){kDLCPU, 0}, &graph));
  const char* prefix = NULL;
  long runs = 1;
  bool zeros = false;
  for (int i = 2; i < argc; ++i) {
    const bool option = strcmp(argv[i], "-n") == 0 || strcmp(argv[i], "-o") == 0;
    if (option && i + 1 == argc) die("%s takes a value\n\n%s", argv[i], usage);
    if (strcmp(argv[i], "-z") == 0) {
      zeros = true;
    } else if (!option) {
      set_input(graph, argv[i]);
    } else if (argv[i][1] == 'o') {
      prefix = argv[++i];
    } else if ((runs = strtol(argv[++i], NULL, 10)) < 1) {
      die("%s is no number of runs", argv[i]);
    }
  }
  if (TilewrightGraphCheckInputs(graph) != 0 && !zeros) die("%s", TVMGetLastError());
  double best = seconds_of_run(graph);
  for (long run = 1; run < runs; ++run) {
    const double seconds = seconds_of_run(graph);
    if (seconds < best) best = seconds;
  }
  for (int i = 0; i < TilewrightGraphNumOutputs(graph); ++i) show_output(graph, i, prefix);
  printf("%.3f ms\n", best * 1e3);
  TilewrightGraphFree(graph);
  check(TVMModFree(library));
  return 0;
}
