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
#include <tilewright_model.h>
#include <time.h>

static const char usage[] =
    "usage: tilewright-run MODEL.so [-n RUNS] [-o PREFIX] [-z] [-d NAME=NUMBER]... [INPUT=FILE]...\n"
    "\n"
    "MODEL.so is an exported library, or - for the model that is linked into this program (with -rdynamic).\n"
    "Runs the model and prints the outputs' types, shapes and first values, and the fastest run's time.\n"
    "Files hold the plain values, row by row, as numpy's tofile writes them.\n"
    "  -n RUNS     run so many times (1)\n"
    "  -o PREFIX   write the outputs to PREFIX0, PREFIX1, ...\n"
    "  -z          inputs that are not given are 0; without it they are an error\n"
    "  -d NAME=NUMBER  a dimension that has a name\n"
    "The environment variable TVM_NUM_THREADS sets the number of threads.\n";

enum { MOST_DIMENSIONS = 64, MOST_RANK = 32 };
static char* dimensions[MOST_DIMENSIONS]; /* NAME=NUMBER */
static int num_dimensions;

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

static TilewrightTensorInfo input_info(const TilewrightModel* model, int index) {
  TilewrightTensorInfo info;
  check(TilewrightModelInputInfo(model, index, &info));
  return info;
}

/* The index of an input, or -1. */
static int find_input(const TilewrightModel* model, const char* name) {
  for (int i = 0; i < TilewrightModelNumInputs(model); ++i) {
    if (strcmp(input_info(model, i).name, name) == 0) return i;
  }
  return -1;
}

/* The names of the inputs, each behind a space. */
static const char* input_names(const TilewrightModel* model) {
  static char names[1024];
  size_t used = 0;
  for (int i = 0; i < TilewrightModelNumInputs(model) && used < sizeof names; ++i) {
    used += (size_t)snprintf(names + used, sizeof names - used, " %s", input_info(model, i).name);
  }
  return names;
}

/* The number that -d gives a dimension. */
static int64_t dimension(const TilewrightTensorInfo* input, int axis) {
  const char* name = input->dimensions[axis];
  if (name == NULL) die("dimension %d of the input %s has no name, and no number", axis, input->name);
  for (int i = 0; i < num_dimensions; ++i) {
    const size_t length = strcspn(dimensions[i], "=");
    if (strlen(name) == length && strncmp(dimensions[i], name, length) == 0) return strtoll(dimensions[i] + length + 1, NULL, 10);
  }
  die("the input %s has a dimension %s, which needs a number: -d %s=NUMBER", input->name, name, name);
}

/* An array of zeros for an input. */
static TVMArrayHandle new_array(const TilewrightTensorInfo* input) {
  TVMArrayHandle array;
  int64_t shape[MOST_RANK];
  if (input->ndim > MOST_RANK) die("the input %s has %d dimensions", input->name, input->ndim);
  for (int axis = 0; axis < input->ndim; ++axis) {
    shape[axis] = input->shape[axis] < 0 ? dimension(input, axis) : input->shape[axis];
  }
  check(TVMArrayAlloc(shape, input->ndim, input->dtype.code, input->dtype.bits, input->dtype.lanes, kDLCPU, 0, &array));
  memset(array->data, 0, byte_count(array));
  return array;
}

/* Fills the input named before the '=' of setting from the file named behind it. */
static void set_input(TilewrightModel* model, char* setting, bool* given) {
  char* path = strchr(setting, '=');
  if (path == NULL) die("%s is not of the form INPUT=FILE\n\n%s", setting, usage);
  *path++ = '\0';
  const int index = find_input(model, setting);
  if (index < 0) die("the model has no input %s; it has%s", setting, input_names(model));
  const TilewrightTensorInfo input = input_info(model, index);
  TVMArrayHandle array = new_array(&input);
  FILE* file = fopen(path, "rb");
  if (file == NULL) die("cannot read %s", path);
  const size_t expected = byte_count(array);
  const size_t found = fread(array->data, 1, expected, file);
  if (found != expected || fgetc(file) != EOF) {
    die("input %s takes %zu bytes, and %s has %s", setting, expected, path, found < expected ? "fewer" : "more");
  }
  fclose(file);
  check(TilewrightModelSetInput(model, setting, array));
  check(TVMArrayFree(array));
  given[index] = true;
}

static void set_zeros(TilewrightModel* model, const bool* given) {
  for (int i = 0; i < TilewrightModelNumInputs(model); ++i) {
    if (given[i]) continue;
    const TilewrightTensorInfo input = input_info(model, i);
    TVMArrayHandle array = new_array(&input);
    check(TilewrightModelSetInput(model, input.name, array));
    check(TVMArrayFree(array));
  }
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

static void show_output(TilewrightModel* model, int index, const char* prefix) {
  TVMArrayHandle array;
  TilewrightTensorInfo info;
  check(TilewrightModelOutputInfo(model, index, &info));
  check(TilewrightModelOutput(model, index, &array));
  const size_t size = byte_count(array);
  print_name(info.name);
  printf(": %s%d (", type_name(array->dtype), array->dtype.bits);
  for (int i = 0; i < array->ndim; ++i) printf("%s%" PRId64, i == 0 ? "" : ", ", array->shape[i]);
  printf(")");
  if (array->dtype.code == kDLFloat && array->dtype.bits == 32) {
    const float* values = (const float*)((const char*)array->data + array->byte_offset);
    for (size_t i = 0; i < 4 && i < size / sizeof(float); ++i) printf(" %g", values[i]);
  }
  printf("\n");
  if (prefix != NULL) {
    char path[4096];
    snprintf(path, sizeof path, "%s%d", prefix, index);
    FILE* file = fopen(path, "wb");
    const char* data = (const char*)array->data + array->byte_offset;
    if (file == NULL || fwrite(data, 1, size, file) != size || fclose(file) != 0) die("cannot write %s", path);
  }
  check(TVMArrayFree(array));
}

static double seconds_of_run(TilewrightModel* model) {
  struct timespec start, end;
  clock_gettime(CLOCK_MONOTONIC, &start);
  check(TilewrightModelRun(model));
  clock_gettime(CLOCK_MONOTONIC, &end);
  return (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) * 1e-9;
}

/* What the options say; inputs follow when all dimensions are known. */
typedef struct {
  const char* prefix;
  long runs;
  bool zeros;
} Options;

static bool takes_value(const char* option) {
  return strcmp(option, "-n") == 0 || strcmp(option, "-o") == 0 || strcmp(option, "-d") == 0;
}

static void add_dimension(char* setting) {
  if (strchr(setting, '=') == NULL) die("%s is not of the form NAME=NUMBER\n\n%s", setting, usage);
  if (num_dimensions == MOST_DIMENSIONS) die("more than %d dimensions", MOST_DIMENSIONS);
  dimensions[num_dimensions++] = setting;
}

static Options read_options(int argc, char** argv) {
  Options options = {.runs = 1};
  for (int i = 2; i < argc; ++i) {
    const char* option = argv[i];
    if (strcmp(option, "-z") == 0) options.zeros = true;
    if (!takes_value(option)) continue;
    if (++i == argc) die("%s takes a value\n\n%s", option, usage);
    if (option[1] == 'o') options.prefix = argv[i];
    if (option[1] == 'd') add_dimension(argv[i]);
    if (option[1] == 'n' && (options.runs = strtol(argv[i], NULL, 10)) < 1) die("%s is no number of runs", argv[i]);
  }
  return options;
}

int main(int argc, char** argv) {
  const bool inside = argc > 1 && strcmp(argv[1], "-") == 0;
  if (argc < 2 || (argv[1][0] == '-' && !inside)) {
    fputs(usage, stderr);
    return 2;
  }
  TilewrightModel* model;
  const Options options = read_options(argc, argv);
  check(TilewrightModelOpen(inside ? NULL : argv[1], (DLDevice){kDLCPU, 0}, &model));
  bool* given = calloc((size_t)TilewrightModelNumInputs(model) + 1, sizeof *given);
  if (given == NULL) die("out of memory");
  for (int i = 2; i < argc; ++i) {
    if (takes_value(argv[i])) {
      ++i;
    } else if (strcmp(argv[i], "-z") != 0) {
      set_input(model, argv[i], given);
    }
  }
  if (options.zeros) set_zeros(model, given);
  free(given);
  double best = seconds_of_run(model);
  for (long run = 1; run < options.runs; ++run) {
    const double seconds = seconds_of_run(model);
    if (seconds < best) best = seconds;
  }
  for (int i = 0; i < TilewrightModelNumOutputs(model); ++i) show_output(model, i, options.prefix);
  printf("%.3f ms\n", best * 1e3);
  TilewrightModelFree(model);
  return 0;
}
