/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Finds oneDNN, once in a process: the file that TILEWRIGHT_DNNL names, what the global function
 * "runtime.dnnl.find_library" gives (Python's looks for the package onednn), or libdnnl.so.3 on the system's path.
 *
 * PyPI's libdnnl.so names the libraries beside it without saying where they are; they are opened from there. */
#include "dnnl.h"

#include <dlfcn.h>

#define REMEDY "install it with `pip install tilewright[dnnl]`, or name libdnnl.so.3 in the environment variable TILEWRIGHT_DNNL"
#define MOST_DEPENDENCIES 64

static TwLock lock = TW_LOCK_INITIALIZER;
static Onednn onednn; /* complete when its engine is there; under lock until then */
static void* handle;  /* of libdnnl; never closed: its threads outlive what we do */

/* ---- loading ---- */
/* The file that dlerror's message says is missing: "libtbb.so.12: cannot open shared object file: ...". */
static bool missing_file(const char* message, char* name, size_t size) {
  const char* colon = strchr(message, ':');
  if (colon == NULL || strstr(colon, "cannot open shared object file") == NULL) return false;
  size_t length = (size_t)(colon - message);
  if (length == 0 || length >= size || memchr(message, '/', length) != NULL) return false;
  memcpy(name, message, length);
  name[length] = '\0';
  return true;
}

/* dlopen, with what the library needs taken from its own folder where the system does not find it. */
static void* open_with_neighbours(const char* path, int* budget) {
  const char* slash = strrchr(path, '/');
  int folder = slash == NULL ? 0 : (int)(slash - path);
  for (;;) {
    void* opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (opened != NULL) return opened;
    const char* message = dlerror();
    char name[256], neighbour[4096];
    if (slash == NULL || (*budget)-- <= 0 || !missing_file(message, name, sizeof name) ||
        snprintf(neighbour, sizeof neighbour, "%.*s/%s", folder, path, name) >= (int)sizeof neighbour) {
      tw_set_error("oneDNN cannot be loaded: %s; " REMEDY, message);
      return NULL;
    }
    if (open_with_neighbours(neighbour, budget) == NULL) return NULL;
  }
}

/* The path from Python's side, in the thread's result buffer, or NULL. */
static int ask_for_path(const char** out) {
  TVMValue ret = {0}, unused = {0};
  int code = kTVMNullptr, unused_code = kTVMNullptr;
  TwFunc* finder = tw_find_global("runtime.dnnl.find_library");
  if (finder == NULL) return 0;
  int rc = TVMFuncCall(finder, &unused, &unused_code, 0, &ret, &code);
  tw_func_release(finder);
  if (rc == 0 && code == kTVMStr && ret.v_str[0] != '\0') *out = ret.v_str;
  return rc;
}

static int open_library(void) {
  const char* path = getenv("TILEWRIGHT_DNNL");
  char copy[4096];
  int budget = MOST_DEPENDENCIES;
  if ((path == NULL || path[0] == '\0') && (path = NULL, ask_for_path(&path)) != 0) return -1;
  if (snprintf(copy, sizeof copy, "%s", path == NULL ? "libdnnl.so.3" : path) >= (int)sizeof copy) {
    return tw_fail("oneDNN cannot be loaded: its path is too long");
  }
  handle = open_with_neighbours(copy, &budget);
  if (handle == NULL) return -1;
  char* slash = strrchr(copy, '/');
  if (slash == NULL) return 0;
  *slash = '\0';
  tw_sycl_begin(copy);
  return 0;
}

static int find_functions(Onednn* found) {
#define FIND(result, name, parameters)                                                          \
  {                                                                                             \
    void* address = dlsym(handle, "dnnl_" #name);                                               \
    if (address == NULL) return tw_fail("this oneDNN has no function dnnl_" #name "; version 3 is needed: " REMEDY); \
    memcpy(&found->name, &address, sizeof address);                                             \
  }
  ONEDNN_FUNCTIONS(FIND)
  return 0;
}

/* ---- threads ---- */
/* tbb::global_control of oneTBB (libtbb.so.12), which limits the threads of all arenas of the process while it lives. */
typedef struct {
  size_t value;
  intptr_t reserved;
  int parameter; /* 0: max_allowed_parallelism */
} GlobalControl;

static void limit_tbb(int threads) {
  static GlobalControl control;
  static bool active;
  void (*create)(GlobalControl*);
  void (*destroy)(GlobalControl*);
  void* addresses[2] = {dlsym(handle, "_ZN3tbb6detail2r16createERNS0_2d114global_controlE"),
                        dlsym(handle, "_ZN3tbb6detail2r17destroyERNS0_2d114global_controlE")};
  if (addresses[0] == NULL || addresses[1] == NULL) return;
  memcpy(&create, &addresses[0], sizeof create);
  memcpy(&destroy, &addresses[1], sizeof destroy);
  if (active) destroy(&control);
  control = (GlobalControl){.value = (size_t)threads};
  create(&control);
  active = true;
}

static void limit_openmp(int threads) {
  void (*set)(int);
  void* address = dlsym(handle, "omp_set_num_threads");
  if (address == NULL) return;
  memcpy(&set, &address, sizeof set);
  set(threads);
}

void tw_dnnl_use_threads(void) {
  static int used; /* under lock */
  int threads = TilewrightNumThreads();
  if (onednn.version()->cpu_runtime == ONEDNN_RUNTIME_OMP) {
    limit_openmp(threads); /* of the calling thread */
    return;
  }
  tw_lock(&lock);
  if (threads != used) limit_tbb(threads); /* SYCL's work on processors is TBB's too */
  used = threads;
  tw_unlock(&lock);
}

/* ---- what the others call ---- */
static int make_engine(Onednn* found) {
  int major = found->version()->major;
  if (major != 3) return tw_fail("oneDNN %d was found, and version 3 is needed: " REMEDY, major);
  if (found->engine_get_count(ONEDNN_CPU) == 0) {
    return tw_fail("oneDNN finds no processor to run on: it needs Intel's OpenCL for processors (package intel-opencl-rt), "
                   "beside libdnnl or named in OCL_ICD_FILENAMES; " REMEDY);
  }
  int status = found->engine_create(&found->engine, ONEDNN_CPU, 0);
  return status == ONEDNN_SUCCESS ? 0 : tw_fail("oneDNN cannot use this processor (status %d)", status);
}

const Onednn* tw_onednn(void) {
  tw_lock(&lock);
  int rc = 0;
  if (onednn.engine == NULL) {
    if (handle == NULL) rc = open_library();
    if (rc == 0) rc = find_functions(&onednn);
    if (rc == 0) rc = make_engine(&onednn);
    tw_sycl_end();
  }
  tw_unlock(&lock);
  return rc == 0 ? &onednn : NULL;
}
