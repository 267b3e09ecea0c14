/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Device modules, saved in TVM 0.8's bytes: the format, the kernels, the data. The driver compiles the data when a device
 * first launches one of its kernels. */
#include "gpu.h"

#include <errno.h>

typedef struct {
  TwModule* module; /* not retained: a function of the module holds it */
  size_t index;
} Reference;

typedef struct Program {
  int device;
  void* program;
  struct Program* next;
} Program;

struct TwGpuModule {
  const TwGpuDriver* driver;
  char *format, *data, *source;
  size_t data_size;
  TwKernels kernels;
  Reference* references; /* [kernels.count] */
  _Atomic(Program*) programs; /* one for each device that has launched; added to under the lock */
  TwLock lock;
};

/* ---- launching ---- */
static Program* program_of(const TwGpuModule* g, int device) {
  Program* p = atomic_load_explicit(&g->programs, memory_order_acquire);
  while (p != NULL && p->device != device) p = p->next;
  return p;
}

static Program* load_program(TwGpuModule* g, int device) {
  Program* p = calloc(1, sizeof *p);
  if (p == NULL) {
    tw_out_of_memory(sizeof *p);
    return NULL;
  }
  p->device = device;
  if (g->driver->load(device, g->format, g->data, g->data_size, &g->kernels, &p->program) != 0) {
    free(p);
    return NULL;
  }
  p->next = atomic_load_explicit(&g->programs, memory_order_relaxed);
  atomic_store_explicit(&g->programs, p, memory_order_release);
  return p;
}

/* The module compiled for a device, which the first caller does and others wait for. */
static Program* ready_program(TwGpuModule* g, int device) {
  Program* p = program_of(g, device);
  if (p != NULL) return p;
  tw_lock(&g->lock);
  p = program_of(g, device);
  if (p == NULL) p = load_program(g, device);
  tw_unlock(&g->lock);
  return p;
}

/* KERNEL(arguments..., extents...) */
static int call_kernel(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  const Reference* r = resource;
  TwGpuModule* g = r->module->data;
  TwLaunch launch;
  (void)ret;
  if (tw_launch_read(&g->kernels.items[r->index], args, codes, n, g->driver->device_type, &launch) != 0) return -1;
  if (launch.empty) return 0;
  Program* p = ready_program(g, g->driver->thread()->device);
  return p == NULL ? -1 : g->driver->launch(p->program, r->index, &launch);
}

static int module_function(TwModule* self, const char* name, TwFunc** out) {
  TwGpuModule* g = self->data;
  for (size_t i = 0; i < g->kernels.count; ++i) {
    if (strcmp(g->kernels.items[i].name, name) != 0) continue;
    *out = tw_func_method(call_kernel, self);
    if (*out == NULL) return -1;
    (*out)->resource = &g->references[i];
    return 0;
  }
  return 0;
}

/* ---- the module ---- */
static int module_save(TwModule* self, TilewrightStream* s) {
  const TwGpuModule* g = self->data;
  if (tw_write_string(s, g->format, strlen(g->format)) != 0 || tw_kernels_write(s, &g->kernels) != 0) return -1;
  return tw_write_string(s, g->data, g->data_size);
}

static int module_source(TwModule* self, const char* format, TVMRetValueHandle ret) {
  const TwGpuModule* g = self->data;
  const bool readable = strcmp(g->format, g->driver->text) == 0;
  if (format[0] != '\0' && strcmp(format, g->format) == 0) {
    return readable ? tw_return_string(ret, g->data) : tw_return_bytes(ret, g->data, g->data_size);
  }
  if (g->source[0] != '\0') return tw_return_string(ret, g->source);
  return tw_return_string(ret, readable ? g->data : "");
}

static int module_save_file(TwModule* self, const char* path, const char* format) {
  const TwGpuModule* g = self->data;
  const char* dot = strrchr(path, '.');
  if (format == NULL || format[0] == '\0') format = dot == NULL ? "" : dot + 1;
  if (strcmp(format, g->format) != 0) {
    return tw_fail("a module of type %s in format \"%s\" cannot be saved as \"%s\"; export_library saves it with its kernels' types",
                   self->type_key, g->format, format);
  }
  FILE* f = fopen(path, "wb");
  if (f == NULL) return tw_fail("cannot write %s: %s", path, strerror(errno));
  const bool written = fwrite(g->data, 1, g->data_size, f) == g->data_size;
  return fclose(f) == 0 && written ? 0 : tw_fail("cannot write %s", path);
}

static void free_module(TwGpuModule* g) {
  if (g == NULL) return;
  for (Program* p = atomic_load_explicit(&g->programs, memory_order_acquire); p != NULL;) {
    Program* next = p->next;
    g->driver->unload(p->program);
    free(p);
    p = next;
  }
  tw_kernels_free(&g->kernels);
  free(g->format);
  free(g->data);
  free(g->source);
  free(g->references);
  tw_lock_destroy(&g->lock);
  free(g);
}

static void module_destroy(TwModule* self) { free_module(self->data); }

static const TwModuleClass module_class = {.get_function = module_function, .save = module_save, .get_source = module_source,
                                           .destroy = module_destroy, .save_file = module_save_file};

/* ---- making one ---- */
static TwGpuModule* new_module(const TwGpuDriver* driver) {
  TwGpuModule* g = calloc(1, sizeof *g);
  if (g == NULL) {
    tw_out_of_memory(sizeof *g);
    return NULL;
  }
  g->driver = driver;
  tw_lock_init(&g->lock);
  return g;
}

static int check_format(const TwGpuModule* g) {
  for (const char* const* f = g->driver->formats; *f != NULL; ++f) {
    if (strcmp(*f, g->format) == 0) return 0;
  }
  return tw_fail("a module of type %s has the format \"%s\", which this runtime does not know; it takes \"%s\"", g->driver->key,
                 g->format, g->driver->formats[0]);
}

/* Takes g over. */
static int finish(TwGpuModule* g, int rc, TVMRetValueHandle ret) {
  if (rc == 0 && g->source == NULL && (g->source = tw_strdup("")) == NULL) rc = tw_out_of_memory(1);
  if (rc == 0) rc = check_format(g);
  if (rc == 0 && (g->references = calloc(g->kernels.count + 1, sizeof *g->references)) == NULL) rc = tw_out_of_memory(g->kernels.count);
  TwModule* m = rc == 0 ? tw_module_new(&module_class, g->driver->key, g) : NULL;
  if (m == NULL) {
    free_module(g);
    return -1;
  }
  for (size_t i = 0; i < g->kernels.count; ++i) g->references[i] = (Reference){m, i};
  tw_return_handle(ret, m, kTVMModuleHandle);
  return 0;
}

static char* copy_bytes(const char* data, size_t size) {
  char* copy = malloc(size + 1);
  if (copy == NULL) {
    tw_out_of_memory(size + 1);
    return NULL;
  }
  if (size != 0) memcpy(copy, data, size);
  copy[size] = '\0';
  return copy;
}

int tw_gpu_create(const TwGpuDriver* driver, TVMValue* args, int* codes, int n, TVMRetValueHandle ret) {
  const char *format, *source;
  TVMByteArray data, table;
  char who[64];
  snprintf(who, sizeof who, "runtime.module.create_%s", driver->key);
  if (tw_arg_bytes(args, codes, n, 0, who, &data) != 0 || tw_arg_str(args, codes, n, 1, who, &format) != 0 ||
      tw_arg_bytes(args, codes, n, 2, who, &table) != 0 || tw_arg_str(args, codes, n, 3, who, &source) != 0) {
    return -1;
  }
  TwGpuModule* g = new_module(driver);
  if (g == NULL) return -1;
  g->format = tw_strdup(format);
  g->source = tw_strdup(source);
  g->data = copy_bytes(data.data, data.size);
  g->data_size = data.size;
  int rc = g->format == NULL || g->source == NULL || g->data == NULL ? tw_out_of_memory(data.size) : 0;
  if (rc == 0) rc = tw_kernels_parse(table.data, table.size, &g->kernels);
  return finish(g, rc, ret);
}

int tw_gpu_load(const TwGpuDriver* driver, TVMValue* args, int* codes, int n, TVMRetValueHandle ret) {
  TilewrightStream* s;
  char who[64];
  snprintf(who, sizeof who, "runtime.module.loadbinary_%s", driver->key);
  if (tw_loader_stream(args, codes, n, who, &s) != 0) return -1;
  TwGpuModule* g = new_module(driver);
  if (g == NULL) return -1;
  int rc = tw_read_string(s, &g->format, NULL);
  if (rc == 0) rc = tw_kernels_read(s, &g->kernels);
  if (rc == 0) rc = tw_read_string(s, &g->data, &g->data_size);
  return finish(g, rc, ret);
}
