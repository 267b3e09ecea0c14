/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The driver of the NPU. Every function gives an npu_status; npu_last_error() says more about the calling thread's last
 * failure. Any thread may call any function at any time; a handle must not be destroyed while another thread uses it.
 *
 * A process that was forked off has none of its parent's contexts: it can but destroy them.
 *
 * Each device runs the work it is given in the order in which it was given, whatever the stream: copies and launches on a
 * stream return at once, those with stream NULL when they are done. An error of work on a stream is told by the next wait for
 * it. */
#ifndef NPU_DRIVER_H_
#define NPU_DRIVER_H_

#include <npu_isa.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NPU_API __attribute__((visibility("default")))

/* major << 16 | minor. A program built for another major version, or for a newer minor one, is refused by npu_init. */
#ifndef NPU_DRIVER_VERSION
#define NPU_DRIVER_VERSION 0x00010000u
#endif

typedef enum {
  NPU_OK = 0,
  NPU_ERROR_INVALID = 1,       /* an argument */
  NPU_ERROR_VERSION = 2,       /* the driver, or the ISA of a program */
  NPU_ERROR_NO_DEVICE = 3,     /* there is none of that number */
  NPU_ERROR_BUSY = 4,          /* held by another context, or used by work that is not done */
  NPU_ERROR_LOST = 5,          /* the device is gone, until npu_device_reset */
  NPU_ERROR_OUT_OF_SRAM = 6,
  NPU_ERROR_OUT_OF_DDR = 7,
  NPU_ERROR_ADDRESS = 8,       /* no memory of the device, or not all of it */
  NPU_ERROR_PROGRAM = 9,       /* a program or a command stream is corrupt */
  NPU_ERROR_DEADLOCK = 10,     /* every engine waits */
  NPU_ERROR_TIMEOUT = 11,
  NPU_ERROR_NOT_FOUND = 12,    /* no model of that name */
  NPU_ERROR_EXISTS = 13,       /* a model of that name is loaded */
  NPU_ERROR_CANCELLED = 14,    /* by npu_device_reset */
  NPU_ERROR_HOST_MEMORY = 15
} npu_status;

typedef struct npu_context npu_context;
typedef struct npu_model npu_model;
typedef struct npu_buffer npu_buffer;
typedef struct npu_stream npu_stream;
typedef struct npu_event npu_event;
typedef uint64_t npu_address; /* in a device's own space: of no meaning to the host, and different for each device */

typedef enum { NPU_DDR = 0, NPU_SRAM = 1 } npu_memory;

/* ---- the driver and its devices ---- */
/* Called first, with NPU_DRIVER_VERSION; more often does no harm. */
NPU_API int npu_init(uint32_t version);
NPU_API uint32_t npu_version(void);
NPU_API const char* npu_error_string(int status);
NPU_API const char* npu_last_error(void);

typedef struct {
  char name[32];
  uint32_t isa_version;
  uint32_t clock_khz;
  uint64_t sram_bytes, ddr_bytes;
  uint64_t sram_free, ddr_free;
} npu_device_info;

NPU_API int npu_device_count(int* count);
NPU_API int npu_device_query(int device, npu_device_info* info);
/* Cancels the device's work and brings a lost one back. Contexts, models and buffers stay, their contents are not kept
 * after a loss. */
NPU_API int npu_device_reset(int device);

/* ---- contexts ---- */
enum { NPU_EXCLUSIVE = 1 }; /* others on the device are NPU_ERROR_BUSY while it lives */
NPU_API int npu_context_create(int device, uint32_t flags, npu_context** context);
/* Waits for its work, unloads its models and frees its buffers, streams and events. */
NPU_API int npu_context_destroy(npu_context* context);
NPU_API int npu_context_device(const npu_context* context, int* device);

/* ---- memory ---- */
NPU_API int npu_alloc(npu_context* context, npu_memory memory, size_t bytes, size_t alignment, npu_buffer** buffer);
/* Waits for the device's work. */
NPU_API int npu_free(npu_buffer* buffer);
NPU_API int npu_buffer_map(npu_buffer* buffer, npu_address* address, size_t* bytes);
/* The buffer of any context that an address of the device is in. */
NPU_API int npu_buffer_find(int device, npu_address address, npu_buffer** buffer);
/* Host memory given to a copy on a stream must stay until the copy is done. */
NPU_API int npu_write(npu_context* context, npu_address to, const void* from, size_t bytes, npu_stream* stream);
NPU_API int npu_read(npu_context* context, void* to, npu_address from, size_t bytes, npu_stream* stream);
/* Within the device, or from another one. */
NPU_API int npu_copy(npu_context* context, npu_address to, npu_address from, size_t bytes, npu_stream* stream);

/* ---- models ---- */
/* Checks a program, gives its workspaces and constants memory of the DDR, and keeps it under a name. The data is not kept. */
NPU_API int npu_model_load(npu_context* context, const char* name, const void* data, size_t bytes, npu_model** model);
NPU_API int npu_model_choose(npu_context* context, const char* name, npu_model** model);
NPU_API int npu_model_unload(npu_model* model);
typedef struct {
  uint32_t commands, inputs, outputs;
  uint32_t sram_bytes;
  uint64_t ddr_bytes; /* constants and workspaces */
} npu_model_info;
NPU_API int npu_model_query(const npu_model* model, npu_model_info* info);
/* The bytes of an argument: of inputs and outputs in the order of the program's regions. */
NPU_API int npu_model_argument(const npu_model* model, uint32_t index, npu_region* region);

/* ---- running ---- */
/* arguments: the addresses of inputs and outputs. */
NPU_API int npu_launch(npu_model* model, const npu_address* arguments, uint32_t count, npu_stream* stream);

NPU_API int npu_stream_create(npu_context* context, npu_stream** stream);
NPU_API int npu_stream_destroy(npu_stream* stream);
/* Milliseconds; below 0: for as long as it takes. After NPU_ERROR_TIMEOUT the work is still under way. */
NPU_API int npu_stream_wait(npu_stream* stream, int64_t milliseconds);
/* The stream goes on only after the event. */
NPU_API int npu_stream_wait_event(npu_stream* stream, npu_event* event);
NPU_API int npu_event_create(npu_context* context, npu_event** event);
NPU_API int npu_event_destroy(npu_event* event);
/* It happens when what the stream was given until now is done. */
NPU_API int npu_event_record(npu_event* event, npu_stream* stream);
NPU_API int npu_event_wait(npu_event* event, int64_t milliseconds);
/* How long a launch or a copy with stream NULL may take before it is cancelled and is NPU_ERROR_TIMEOUT; below 0, as at first:
 * as long as the device allows. */
NPU_API int npu_context_set_timeout(npu_context* context, int64_t milliseconds);
/* The same for contexts that say nothing; at first NPU_WATCHDOG, below 0: any time. */
enum { NPU_WATCHDOG = 60000 };
NPU_API int npu_device_set_timeout(int device, int64_t milliseconds);

/* ---- counters ---- */
typedef struct {
  uint64_t launches;
  uint64_t cycles;
  uint64_t busy[NPU_ENGINES];    /* cycles in which the engine worked */
  uint64_t stalled[NPU_ENGINES]; /* cycles in which it waited for tokens with a command at hand */
  uint64_t commands[NPU_ENGINES];
  uint64_t bytes_loaded, bytes_stored; /* moved between DDR and SRAM; padding is not among them */
  uint64_t macs;                       /* of the matrix unit, as asked for: not those of its blocks' padding */
  uint64_t block_cycles;               /* of the matrix unit at work on blocks */
} npu_counters;

/* Sums over a model's launches since it was loaded, or reset. */
NPU_API int npu_model_counters(const npu_model* model, npu_counters* counters);
NPU_API int npu_model_reset_counters(npu_model* model);

typedef struct {
  uint32_t command; /* its index in the program */
  uint32_t engine;
  uint64_t start, end; /* cycles since the launch */
} npu_trace;

/* Keeps what each command of the last launch did, from the next launch on. */
NPU_API int npu_model_set_trace(npu_model* model, int on);
/* Copies at most `room` entries; *count is how many there are. */
NPU_API int npu_model_trace(const npu_model* model, npu_trace* entries, size_t room, size_t* count);
/* Refuses, at launch, programs in which two commands that no token orders touch the same SRAM and one writes it. */
NPU_API int npu_model_set_race_check(npu_model* model, int on);

/* ---- for tests ---- */
typedef enum {
  NPU_FAULT_NONE = 0,
  NPU_FAULT_GONE = 1,  /* the device is lost at command `when` of the next launch */
  NPU_FAULT_HANG = 2,  /* the next launch never ends by itself */
  NPU_FAULT_BUSY = 3,  /* the next `when` launches are NPU_ERROR_BUSY */
  NPU_FAULT_FLIP = 4   /* the next launch reads command `when` with a bit of its opcode turned */
} npu_fault;
NPU_API int npu_inject(int device, npu_fault fault, uint32_t when);

/* What the process holds. */
typedef struct {
  uint64_t contexts, models, buffers, streams, events;
  uint64_t sram_bytes, ddr_bytes;
} npu_held;
NPU_API int npu_count_held(npu_held* held);

#ifdef __cplusplus
}
#endif
#endif /* NPU_DRIVER_H_ */
