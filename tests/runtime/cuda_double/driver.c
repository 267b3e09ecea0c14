/* A stand-in for CUDA's driver (libcuda.so.1), for tests of how the runtime calls it: it shows nothing about NVIDIA's driver or
 * hardware. It keeps what the driver's interface promises, on host memory:
 *
 * - Device addresses are none of the host's: touching one crashes. Copies must stay inside allocations.
 * - Work is queued, and done when something waits for it. Streams are of the kind that wait for the default stream and it for
 *   them, so that one queue for all is a right order. Pageable host memory is read when a copy is queued.
 * - A stream that captures puts its work into a graph; what may not be done meanwhile fails with CUDA's status.
 * - A thread must have made a context current.
 * - Kernels are those that a module's PTX declares. scaled_add and count_threads compute; of others the launch is recorded only.
 *
 * FAKE_CUDA_DEVICES (1), FAKE_CUDA_ARCHITECTURE (80), FAKE_CUDA_MEMORY (bytes) and FAKE_CUDA_LOG (a file, a line for each call of
 * interest) set it up. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_CONTEXT = 201, INVALID_PTX = 218, NOT_FOUND = 500,
       CAPTURE_UNSUPPORTED = 900, CAPTURE_IMPLICIT = 906, MOST_PARAMETERS = 64 };
static const uint64_t device_space = (uint64_t)1 << 62;

typedef struct Allocation {
  char* memory;
  size_t size;
  bool pinned; /* of the host */
  struct Allocation* next;
} Allocation;

typedef struct Function {
  char name[128];
  int sizes[MOST_PARAMETERS], count, max_threads, shared, most_dynamic;
  struct Function* next;
} Function;

typedef struct Work {
  enum { COPY, LAUNCH, STAMP } kind;
  char *to, *from, *staged;
  size_t size;
  const Function* function;
  unsigned grid[3], block[3];
  uint64_t values[MOST_PARAMETERS];
  double* stamp;
  struct Work* next;
} Work;

typedef struct {
  Work *first, **last;
} Queue;

typedef struct Stream {
  Queue* capturing;
  bool alive;
  int number; /* in the order in which they are made */
  struct Stream* next; /* none is ever freed, so that a use after its end is told */
} Stream;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Allocation* allocations;
static size_t used;
static Queue pending = {NULL, &pending.first};
static Stream* streams;
static int num_capturing;
static _Thread_local void* current;
static double clock_seconds; /* each launch takes a millisecond */

static long setting(const char* name, long otherwise) {
  const char* text = getenv(name);
  return text == NULL || text[0] == '\0' ? otherwise : atol(text);
}

static void note(const char* line) {
  const char* path = getenv("FAKE_CUDA_LOG");
  FILE* f = path == NULL ? NULL : fopen(path, "a");
  if (f == NULL) return;
  fprintf(f, "%s\n", line);
  fclose(f);
}

static void broken(const char* what) {
  fprintf(stderr, "fake libcuda: %s\n", what);
  abort();
}

/* The host's address of `size` bytes at a device address, or an end with a message. */
static char* reach(uint64_t address, size_t size, const char* what) {
  if ((address & device_space) == 0) broken(what);
  char* memory = (char*)(uintptr_t)(address & ~device_space);
  for (const Allocation* a = allocations; a != NULL; a = a->next) {
    if (!a->pinned && memory >= a->memory && memory + size <= a->memory + a->size) return memory;
  }
  broken(what);
  return NULL;
}

static bool is_pinned(const char* memory) {
  for (const Allocation* a = allocations; a != NULL; a = a->next) {
    if (a->pinned && memory >= a->memory && memory < a->memory + a->size) return true;
  }
  return false;
}

/* ---- kernels that compute ---- */
static void scaled_add(const Work* w, const unsigned* block, const unsigned* thread) {
  float scale;
  const int n = (int)w->values[4], i = (int)(block[0] * w->block[0] + thread[0]);
  memcpy(&scale, &w->values[3], sizeof scale);
  if (i >= n) return;
  const float a = ((float*)reach(w->values[0], (size_t)n * 4, "scaled_add reads past a"))[i];
  const float b = ((float*)reach(w->values[1], (size_t)n * 4, "scaled_add reads past b"))[i];
  ((float*)reach(w->values[2], (size_t)n * 4, "scaled_add writes past out"))[i] = a * scale + b;
}

static void count_threads(const Work* w, const unsigned* block, const unsigned* thread) {
  (void)block, (void)thread;
  *(int32_t*)reach(w->values[0], 4, "count_threads writes past out") += (int32_t)w->values[1];
}

static void run_kernel(const Work* w) {
  void (*code)(const Work*, const unsigned*, const unsigned*) = NULL;
  if (strcmp(w->function->name, "scaled_add") == 0) code = scaled_add;
  if (strcmp(w->function->name, "count_threads") == 0) code = count_threads;
  clock_seconds += 1e-3;
  if (code == NULL) return;
  for (unsigned b = 0; b < w->grid[0] * w->grid[1] * w->grid[2]; ++b) {
    const unsigned block[3] = {b % w->grid[0], b / w->grid[0] % w->grid[1], b / w->grid[0] / w->grid[1]};
    for (unsigned t = 0; t < w->block[0] * w->block[1] * w->block[2]; ++t) {
      const unsigned thread[3] = {t % w->block[0], t / w->block[0] % w->block[1], t / w->block[0] / w->block[1]};
      code(w, block, thread);
    }
  }
}

/* ---- work ---- */
static void run_work(const Work* w) {
  if (w->kind == COPY) memcpy(w->to, w->staged != NULL ? w->staged : w->from, w->size);
  if (w->kind == LAUNCH) run_kernel(w);
  if (w->kind == STAMP) *w->stamp = clock_seconds;
}

static void drain(void) {
  while (pending.first != NULL) {
    Work* w = pending.first;
    pending.first = w->next;
    run_work(w);
    free(w->staged);
    free(w);
  }
  pending.last = &pending.first;
}

static void append(Queue* queue, const Work* work) {
  Work* w = malloc(sizeof *w);
  *w = *work;
  w->next = NULL;
  *queue->last = w;
  queue->last = &w->next;
}

static int enqueue(void* stream, const Work* work) {
  Stream* s = stream;
  if (current == NULL) return INVALID_CONTEXT;
  if (s == NULL && num_capturing != 0) return CAPTURE_IMPLICIT;
  if (s != NULL && !s->alive) broken("a stream is used that was destroyed");
  append(s != NULL && s->capturing != NULL ? s->capturing : &pending, work);
  return OK;
}

/* ---- the driver and its devices ---- */
EXPORT int cuInit(unsigned flags) {
  (void)flags;
  return setting("FAKE_CUDA_DEVICES", 1) < 1 ? NO_DEVICE : OK;
}
EXPORT int cuDriverGetVersion(int* version) { return *version = 12040, OK; }
EXPORT int cuGetErrorName(int status, const char** out) {
  *out = status == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : status == NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_OF_SOME_KIND";
  return OK;
}
EXPORT int cuGetErrorString(int status, const char** out) {
  *out = status == NO_DEVICE ? "no CUDA-capable device is detected" : "what the fake driver says";
  return OK;
}
EXPORT int cuDeviceGetCount(int* count) { return *count = (int)setting("FAKE_CUDA_DEVICES", 1), OK; }
EXPORT int cuDeviceGet(int* device, int index) { return *device = 100 + index, OK; }
EXPORT int cuDeviceGetName(char* name, int size, int device) { return snprintf(name, (size_t)size, "Fake GPU %d", device - 100), OK; }
EXPORT int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  (void)device;
  return *bytes = (size_t)setting("FAKE_CUDA_MEMORY", 1 << 24), OK;
}
EXPORT int cuDeviceGetAttribute(int* value, int attribute, int device) {
  const int architecture = (int)setting("FAKE_CUDA_ARCHITECTURE", 80);
  (void)device;
  switch (attribute) {
    case 1: case 2: case 3: *value = 1024; break;
    case 4: *value = 64; break;
    case 5: *value = 2147483647; break;
    case 6: case 7: *value = 65535; break;
    case 8: *value = 49152; break;
    case 10: *value = 32; break;
    case 12: *value = 65536; break;
    case 13: *value = 1410000; break;
    case 16: *value = 108; break;
    case 75: *value = architecture / 10; break;
    case 76: *value = architecture % 10; break;
    case 97: *value = 166912; break;
    default: return INVALID_VALUE;
  }
  return OK;
}
EXPORT int cuDevicePrimaryCtxRetain(void** context, int device) { return *context = (void*)(uintptr_t)(0xc0 + device), OK; }
EXPORT int cuCtxSetCurrent(void* context) { return current = context, OK; }
EXPORT int cuCtxSynchronize(void) {
  pthread_mutex_lock(&lock);
  const int rc = current == NULL ? INVALID_CONTEXT : num_capturing != 0 ? CAPTURE_UNSUPPORTED : OK;
  if (rc == OK) drain();
  pthread_mutex_unlock(&lock);
  return rc;
}

/* ---- memory ---- */
static int allocate(size_t size, bool pinned, char** out) {
  if (current == NULL) return INVALID_CONTEXT;
  pthread_mutex_lock(&lock);
  const bool fits = pinned || used + size <= (size_t)setting("FAKE_CUDA_MEMORY", 1 << 24);
  Allocation* a = fits ? calloc(1, sizeof *a) : NULL;
  if (a != NULL) {
    *a = (Allocation){aligned_alloc(256, (size + 255) / 256 * 256), size, pinned, allocations};
    memset(a->memory, 0xcd, size);
    allocations = a;
    if (!pinned) used += size;
    *out = a->memory;
  }
  pthread_mutex_unlock(&lock);
  return a == NULL ? OUT_OF_MEMORY : OK;
}

static int give_back(char* memory, bool pinned) {
  pthread_mutex_lock(&lock);
  if (num_capturing == 0) drain();
  Allocation** link = &allocations;
  while (*link != NULL && ((*link)->memory != memory || (*link)->pinned != pinned)) link = &(*link)->next;
  Allocation* a = *link;
  if (a != NULL) {
    *link = a->next;
    if (!pinned) used -= a->size;
    free(a->memory);
    free(a);
  }
  pthread_mutex_unlock(&lock);
  return a == NULL ? INVALID_VALUE : OK;
}

EXPORT int cuMemAlloc_v2(uint64_t* out, size_t size) {
  char* memory = NULL;
  const int rc = allocate(size, false, &memory);
  *out = (uint64_t)(uintptr_t)memory | device_space;
  if (rc == OK) note("alloc");
  return rc;
}
EXPORT int cuMemFree_v2(uint64_t address) { return give_back((char*)(uintptr_t)(address & ~device_space), false); }
EXPORT int cuMemHostAlloc(void** out, size_t size, unsigned flags) {
  char* memory = NULL;
  (void)flags;
  const int rc = allocate(size, true, &memory);
  *out = memory;
  if (rc == OK) note("pin");
  return rc;
}
EXPORT int cuMemFreeHost(void* memory) { return give_back(memory, true); }

EXPORT int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t size, void* stream) {
  pthread_mutex_lock(&lock);
  const bool pinned = is_pinned(from);
  Work w = {.kind = COPY, .to = reach(to, size, "a copy to the device leaves its allocation"), .from = (char*)(uintptr_t)from, .size = size};
  if (!pinned) w.staged = memcpy(malloc(size + 1), from, size);
  const int rc = enqueue(stream, &w);
  pthread_mutex_unlock(&lock);
  note(pinned ? "copy pinned to device" : "copy to device");
  return rc;
}
EXPORT int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t size, void* stream) {
  pthread_mutex_lock(&lock);
  const Work w = {.kind = COPY, .to = to, .from = reach(from, size, "a copy to the host leaves its allocation"), .size = size};
  const int rc = enqueue(stream, &w);
  pthread_mutex_unlock(&lock);
  note("copy to host");
  return rc;
}
EXPORT int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, void* stream) {
  pthread_mutex_lock(&lock);
  const Work w = {.kind = COPY, .to = reach(to, size, "a copy leaves its target"), .from = reach(from, size, "a copy leaves its source"), .size = size};
  const int rc = enqueue(stream, &w);
  pthread_mutex_unlock(&lock);
  note("copy on device");
  return rc;
}
EXPORT int cuMemcpyPeerAsync(uint64_t to, void* to_context, uint64_t from, void* from_context, size_t size, void* stream) {
  if (to_context == from_context) return INVALID_VALUE;
  pthread_mutex_lock(&lock);
  const bool alone = pending.first == NULL;
  pthread_mutex_unlock(&lock);
  note(alone ? "copy to peer" : "copy to peer beside other work");
  return cuMemcpyDtoDAsync_v2(to, from, size, stream);
}

/* ---- streams and events ---- */
EXPORT int cuStreamCreate(void** out, unsigned flags) {
  if (current == NULL || flags != 0) return INVALID_VALUE;
  Stream* s = calloc(1, sizeof *s);
  s->alive = true;
  pthread_mutex_lock(&lock);
  s->next = streams;
  s->number = streams == NULL ? 1 : streams->number + 1;
  streams = s;
  pthread_mutex_unlock(&lock);
  *out = s;
  return OK;
}
EXPORT int cuStreamDestroy_v2(void* stream) { return ((Stream*)stream)->alive = false, OK; }
EXPORT int cuStreamSynchronize(void* stream) {
  const Stream* s = stream;
  pthread_mutex_lock(&lock);
  const bool capturing = (s != NULL && s->capturing != NULL) || (s == NULL && num_capturing != 0);
  if (!capturing) drain();
  pthread_mutex_unlock(&lock);
  note("wait");
  return capturing ? CAPTURE_UNSUPPORTED : OK;
}
EXPORT int cuStreamWaitEvent(void* stream, void* event, unsigned flags) { return (void)stream, (void)event, (void)flags, OK; }
EXPORT int cuEventCreate(void** event, unsigned flags) { return (void)flags, *event = calloc(1, sizeof(double)), OK; }
EXPORT int cuEventRecord(void* event, void* stream) {
  pthread_mutex_lock(&lock);
  const Work w = {.kind = STAMP, .stamp = event};
  const int rc = enqueue(stream, &w);
  pthread_mutex_unlock(&lock);
  return rc;
}
EXPORT int cuEventSynchronize(void* event) { return (void)event, cuStreamSynchronize(NULL); }
EXPORT int cuEventElapsedTime(float* milliseconds, void* start, void* end) {
  return *milliseconds = (float)((*(double*)end - *(double*)start) * 1e3), OK;
}
EXPORT int cuEventDestroy_v2(void* event) {
  pthread_mutex_lock(&lock);
  if (num_capturing == 0) drain();
  pthread_mutex_unlock(&lock);
  free(event);
  return OK;
}

/* ---- modules ---- */
/* Reads "name(.param .u64 a, .param .f32 b)": the sizes of the parameters. */
static void read_entry(const char* text, Function* f) {
  const size_t length = strcspn(text, " (\n");
  const char* body = strchr(text, '{');
  const char* limit = strstr(text, ".maxntid ");
  snprintf(f->name, sizeof f->name, "%.*s", (int)length, text);
  f->max_threads = limit != NULL && (body == NULL || limit < body) ? atoi(limit + 9) : 1024;
  const char* end = strchr(text, ')');
  for (const char* p = strstr(text, ".param ."); p != NULL && p < end && f->count < MOST_PARAMETERS; p = strstr(p, ".param .")) {
    p += 8;
    f->sizes[f->count++] = atoi(p + 1) / 8;
  }
  const char* next = strstr(text, ".entry ");
  const char* shared = strstr(text, ".shared ");
  if (shared != NULL && (next == NULL || shared < next)) f->shared = atoi(strchr(shared, '[') + 1);
}

EXPORT int cuModuleLoadDataEx(void** module, const void* image, unsigned count, int* options, void** values) {
  const char *text = image, *target = strstr(text, ".target sm_");
  Function* functions = NULL;
  char line[64];
  const bool later = target != NULL && strstr(target, ".version") != NULL;
  if (strncmp(text, ".version", 8) != 0 || target == NULL || later || strstr(text, "nonsense") != NULL) {
    for (unsigned i = 0; i < count; ++i) {
      if (options[i] == 5) strcpy(values[i], "ptxas fatal: what the fake compiler says");
    }
    return INVALID_PTX;
  }
  for (const char* entry = strstr(text, ".entry "); entry != NULL; entry = strstr(entry, ".entry ")) {
    Function* f = calloc(1, sizeof *f);
    entry += 7;
    read_entry(entry, f);
    f->next = functions;
    functions = f;
  }
  snprintf(line, sizeof line, "load sm_%d", atoi(target + 11));
  note(line);
  *module = functions;
  return OK;
}
EXPORT int cuModuleUnload(void* module) {
  pthread_mutex_lock(&lock);
  drain();
  pthread_mutex_unlock(&lock);
  for (Function* f = module; f != NULL;) {
    Function* next = f->next;
    free(f);
    f = next;
  }
  note("unload");
  return OK;
}
EXPORT int cuModuleGetFunction(void** out, void* module, const char* name) {
  for (Function* f = module; f != NULL; f = f->next) {
    if (strcmp(f->name, name) == 0) return *out = f, OK;
  }
  return NOT_FOUND;
}
EXPORT int cuFuncGetAttribute(int* value, int attribute, void* function) {
  const Function* f = function;
  *value = attribute == 0 ? f->max_threads : attribute == 1 ? f->shared : attribute == 4 ? 65536 / f->max_threads : 0;
  return OK;
}
EXPORT int cuFuncSetAttribute(void* function, int attribute, int value) {
  if (attribute != 8 || value > 166912) return INVALID_VALUE;
  return ((Function*)function)->most_dynamic = value, OK;
}
EXPORT int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                          void* stream, void** parameters, void** extra) {
  const Function* f = function;
  Work w = {.kind = LAUNCH, .function = f, .grid = {gx, gy, gz}, .block = {bx, by, bz}};
  char line[256];
  const unsigned most = f->most_dynamic != 0 ? (unsigned)f->most_dynamic : 49152;
  if (extra != NULL || gx * gy * gz == 0 || bx * by * bz == 0 || bx * by * bz > 1024 || shared > most) return INVALID_VALUE;
  for (int i = 0; i < f->count; ++i) memcpy(&w.values[i], parameters[i], (size_t)f->sizes[i]);
  pthread_mutex_lock(&lock);
  const int rc = enqueue(stream, &w);
  const bool captured = stream != NULL && ((Stream*)stream)->capturing != NULL;
  pthread_mutex_unlock(&lock);
  snprintf(line, sizeof line, "%s %s (%u, %u, %u) (%u, %u, %u) %u", captured ? "capture" : "launch", f->name, gx, gy, gz, bx, by, bz, shared);
  note(line);
  return rc;
}

/* ---- graphs ---- */
EXPORT int cuStreamBeginCapture_v2(void* stream, int mode) {
  Stream* s = stream;
  if (s == NULL || mode != 2) return INVALID_VALUE;
  s->capturing = calloc(1, sizeof *s->capturing);
  s->capturing->last = &s->capturing->first;
  pthread_mutex_lock(&lock);
  ++num_capturing;
  pthread_mutex_unlock(&lock);
  return OK;
}
EXPORT int cuStreamEndCapture(void* stream, void** graph) {
  Stream* s = stream;
  if (s->capturing == NULL) return INVALID_VALUE;
  *graph = s->capturing;
  s->capturing = NULL;
  pthread_mutex_lock(&lock);
  --num_capturing;
  pthread_mutex_unlock(&lock);
  return OK;
}
static Queue* copy_graph(const Queue* from) {
  Queue* copy = calloc(1, sizeof *copy);
  copy->last = &copy->first;
  for (const Work* w = from->first; w != NULL; w = w->next) {
    Work one = *w;
    if (w->staged != NULL) one.staged = memcpy(malloc(w->size + 1), w->staged, w->size);
    append(copy, &one);
  }
  return copy;
}
EXPORT int cuGraphInstantiateWithFlags(void** out, void* graph, unsigned long long flags) {
  return flags != 0 ? INVALID_VALUE : (*out = copy_graph(graph), OK);
}
EXPORT int cuGraphLaunch(void* graph, void* stream) {
  Queue* copy = copy_graph(graph);
  int rc = OK;
  pthread_mutex_lock(&lock);
  for (Work* w = copy->first; w != NULL && rc == OK; w = w->next) rc = enqueue(stream, w);
  pthread_mutex_unlock(&lock);
  for (Work* w = copy->first; w != NULL;) {
    Work* next = w->next;
    free(w);
    w = next;
  }
  free(copy);
  char line[64] = "launch graph";
  if (stream != NULL) snprintf(line, sizeof line, "launch graph on stream %d", ((Stream*)stream)->number);
  note(line);
  return rc;
}
EXPORT int cuGraphDestroy(void* graph) {
  for (Work* w = ((Queue*)graph)->first; w != NULL;) {
    Work* next = w->next;
    free(w->staged);
    free(w);
    w = next;
  }
  free(graph);
  return OK;
}
EXPORT int cuGraphExecDestroy(void* graph) { return cuGraphDestroy(graph); }
