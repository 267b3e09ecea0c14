/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * What the driver keeps. All of a device's is guarded by its mutex; `changed` is signalled whenever work ends. */
#ifndef NPU_DRIVER_INTERNAL_H_
#define NPU_DRIVER_INTERNAL_H_

#include <pthread.h>
#include <sys/types.h>

#include "../chip/chip.h"
#include "status.h"

enum { NPU_DEVICES = 2, NPU_TEXT = 512 };

typedef struct npu_device NpuDevice;

struct npu_buffer {
  npu_context* context;
  npu_memory memory;
  uint64_t offset, bytes; /* in the memory; bytes as asked for */
  npu_buffer *below, *above;
};

typedef struct {
  NpuMemory storage;
  npu_buffer* lowest;
} NpuHeap;

/* ---- work ---- */
typedef enum { NPU_JOB_COPY, NPU_JOB_LAUNCH, NPU_JOB_RECORD, NPU_JOB_WAIT } NpuJobKind;

/* One piece of work. It is its stream's, or that of the caller who waits for it. */
typedef struct NpuJob {
  NpuJobKind kind;
  npu_context* context;
  npu_stream* stream; /* NULL: a caller waits */
  struct NpuJob* next;
  atomic_bool cancelled;
  bool done;
  int status;
  char text[NPU_TEXT];
  /* copies */
  const void* from;
  void* to;
  size_t bytes;
  /* launches */
  npu_model* model;
  NpuSpace space;
  bool hangs;
  uint32_t lost_at, flipped_at; /* commands; UINT32_MAX: none */
  /* events */
  npu_event* event;
  uint64_t ticket;
} NpuJob;

struct npu_stream {
  npu_context* context;
  uint64_t pending; /* jobs */
  int status;       /* of the first job that failed since the last wait; those behind it are not run */
  char text[NPU_TEXT];
  npu_stream* next;
};

/* Lives as long as someone refers to it: its context, or a job. */
struct npu_event {
  npu_context* context;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int references;
  uint64_t recorded, happened; /* tickets */
  npu_event* next;
};

struct npu_model {
  npu_context* context;
  char* name;
  npu_model* next;
  npu_command* commands;
  npu_region* regions;
  char* strings;
  npu_program header;
  npu_buffer* fixed[NPU_MAX_REGIONS]; /* constants and workspaces; NULL for arguments */
  uint64_t generation;                /* of the device, when it was loaded */
  npu_counters counters;
  bool trace_on, check_races;
  npu_trace* trace;
  size_t trace_count;
};

struct npu_context {
  NpuDevice* device;
  bool exclusive;
  int64_t timeout;
  npu_model* models;
  npu_stream* streams;
  npu_event* events;
  npu_context* next;
};

struct npu_device {
  int number;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  NpuHeap heaps[2]; /* by npu_memory */
  npu_context* contexts;
  bool lost;
  int64_t timeout; /* of contexts that have none */
  uint64_t generation; /* how often it was lost */
  /* the worker, which lives while there are contexts */
  pthread_t worker;
  pid_t process; /* that it is in */
  bool stopping;
  NpuJob *first, *last, *running;
  NpuScratch scratch;
  /* faults that were asked for */
  npu_fault fault;
  uint32_t fault_when;
};

/* ---- devices ---- */
/* NULL, with an error, where there is none of that number. */
NpuDevice* npu_device_get(int number);
NpuDevice* npu_device_of(const npu_context* context);
/* Whether this process was forked off from the one that has the worker. */
bool npu_device_is_parents(const NpuDevice* device);
/* With the mutex held. */
int npu_device_usable(const NpuDevice* device);
npu_address npu_heap_base(const NpuDevice* device, npu_memory memory);

/* ---- memory: with the mutex held ---- */
int npu_heap_alloc(npu_context* context, npu_memory memory, uint64_t bytes, uint64_t alignment, npu_buffer** buffer);
void npu_heap_free(npu_buffer* buffer);
/* The buffer that an address is in, or NULL. */
npu_buffer* npu_heap_find(NpuDevice* device, npu_address address);
/* The bytes at an address, all in one buffer; fails with what was meant in the text. */
int npu_heap_resolve(NpuDevice* device, npu_address address, uint64_t bytes, const char* what, uint8_t** data);
/* Whether a program of so much SRAM has it beside what was given out. */
int npu_heap_sram_left(NpuDevice* device, uint64_t bytes);

/* ---- work: with the mutex held ---- */
void* npu_worker(void* device);
/* Hands work of a stream over; the worker frees it. */
void npu_submit(NpuDevice* device, NpuJob* job);
/* Hands work over and waits for it; it is cancelled after the context's time-out. */
int npu_perform(NpuDevice* device, NpuJob* job);
/* Cancels the work of a context (NULL: of all) and waits until it has ended. */
void npu_cancel(NpuDevice* device, const npu_context* context);
/* Waits until all that was handed over until now is done, or for the context's time-out; then NPU_ERROR_BUSY. */
int npu_drain(NpuDevice* device, const npu_context* context);
/* Waits for a signal, until a point of time. False: it is past. */
bool npu_wait_until(pthread_cond_t* changed, pthread_mutex_t* mutex, const struct timespec* deadline);
/* How long work without a stream may take, in milliseconds; below 0: any time. */
int64_t npu_timeout(const npu_context* context);
/* In so many milliseconds; NULL when below 0. */
const struct timespec* npu_deadline(int64_t milliseconds, struct timespec* room);
void npu_cond_init(pthread_cond_t* cond);

void npu_model_destroy(npu_model* model);
void npu_event_release(npu_event* event);
/* In the worker, without the mutex. */
int npu_model_run(NpuJob* job, NpuScratch* scratch);

#endif /* NPU_DRIVER_INTERNAL_H_ */
