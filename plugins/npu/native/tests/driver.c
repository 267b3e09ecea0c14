/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The driver from C, on several threads; run under the sanitizers by tests/test_native.py. */
#include <npu_driver.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                             \
  do {                                                                                               \
    if (!(condition)) {                                                                              \
      fprintf(stderr, "%s:%d: %s; %s\n", __FILE__, __LINE__, #condition, npu_last_error());          \
      abort();                                                                                       \
    }                                                                                                \
  } while (0)
#define OK(call) CHECK((call) == NPU_OK)

enum { COUNT = 1000, BYTES = COUNT * 4, PROGRAM_BYTES = sizeof(npu_program) + 3 * sizeof(npu_region) + 4 * NPU_COMMAND_BYTES + 64 + BYTES };

static npu_command transfer(uint8_t engine, uint32_t near, uint8_t region) {
  npu_command c = {.dma = {.header = {.engine = engine, .opcode = NPU_OP_DMA, .layer = NPU_NO_LAYER}}};
  for (int d = 0; d < 4; ++d) c.dma.n[d] = 1;
  c.dma.n[3] = COUNT, c.dma.far_stride[3] = c.dma.near_stride[3] = 4;
  c.dma.near_address = near, c.dma.region = region, c.dma.element = 4;
  return c;
}

/* out = 2 * in + constants */
static size_t make_program(uint8_t* data) {
  npu_program p = {.magic = NPU_PROGRAM_MAGIC, .isa_version = NPU_ISA_VERSION, .region_count = 3, .command_count = 4};
  p.string_bytes = 64, p.constant_bytes = BYTES, p.sram_bytes = 65536;
  const npu_region regions[3] = {{NPU_CONSTANT, BYTES, 0, 0}, {NPU_INPUT, BYTES, 0, 0}, {NPU_OUTPUT, BYTES, 0, 0}};
  npu_command commands[4] = {transfer(NPU_LOAD, 0, 0), transfer(NPU_LOAD, 8192, 1), {.vector = {.dst = 16384, .a = 8192, .b = 0}},
                             transfer(NPU_STORE, 16384, 2)};
  npu_vector* v = &commands[2].vector;
  v->header = (npu_header){.engine = NPU_VECTOR, .opcode = NPU_OP_ADD, .flags = NPU_DEQUANTIZE_A, .wait = {2, 0, 0, 0}};
  v->header.push[NPU_STORE] = 1;
  for (int d = 0; d < 4; ++d) v->n[d] = 1;
  v->n[3] = COUNT, v->dst_stride[3] = v->a_stride[3] = v->b_stride[3] = 4;
  v->dst_type = v->a_type = v->b_type = NPU_F32, v->scale_a = 2.0f;
  commands[0].header.push[NPU_VECTOR] = commands[1].header.push[NPU_VECTOR] = 1;
  commands[3].header.wait[NPU_VECTOR] = 1;
  const char strings[64] = "twice";
  float constants[COUNT];
  for (int i = 0; i < COUNT; ++i) constants[i] = (float)i;
  p.total_bytes = (uint32_t)(sizeof p + sizeof regions + sizeof commands + sizeof strings + sizeof constants);
  uint8_t* to = data;
  memcpy(to, &p, sizeof p), to += sizeof p;
  memcpy(to, regions, sizeof regions), to += sizeof regions;
  memcpy(to, commands, sizeof commands), to += sizeof commands;
  memcpy(to, strings, sizeof strings), to += sizeof strings;
  memcpy(to, constants, sizeof constants), to += sizeof constants;
  return (size_t)(to - data);
}

static uint8_t program[PROGRAM_BYTES];
static size_t program_bytes;

static npu_address put(npu_context* context, npu_memory memory, float value, npu_buffer** buffer) {
  float data[COUNT];
  npu_address address;
  for (int i = 0; i < COUNT; ++i) data[i] = value;
  OK(npu_alloc(context, memory, BYTES, 64, buffer));
  OK(npu_buffer_map(*buffer, &address, NULL));
  OK(npu_write(context, address, data, BYTES, NULL));
  return address;
}

static void check_result(const float* data, float input) {
  for (int i = 0; i < COUNT; ++i) CHECK(data[i] == 2 * input + (float)i);
}

/* ---- each on a thread of its own ---- */
static void* launches(void* argument) {
  const int device = *(const int*)argument;
  npu_context* context;
  npu_model *model, *again;
  npu_stream* stream;
  npu_event* event;
  npu_buffer *in, *out;
  OK(npu_context_create(device, 0, &context));
  OK(npu_model_load(context, "twice", program, program_bytes, &model));
  OK(npu_model_choose(context, "twice", &again));
  CHECK(again == model && npu_model_load(context, "twice", program, program_bytes, &again) == NPU_ERROR_EXISTS);
  OK(npu_model_set_trace(model, 1));
  OK(npu_model_set_race_check(model, 1));
  OK(npu_stream_create(context, &stream));
  OK(npu_event_create(context, &event));
  for (int round = 0; round < 10; ++round) {
    float data[COUNT] = {0};
    const npu_address arguments[2] = {put(context, NPU_DDR, (float)round, &in), put(context, NPU_SRAM, 0, &out)};
    OK(npu_launch(model, arguments, 2, stream));
    OK(npu_event_record(event, stream));
    OK(npu_read(context, data, arguments[1], BYTES, stream));
    OK(npu_event_wait(event, -1));
    OK(npu_stream_wait(stream, -1));
    check_result(data, (float)round);
    OK(npu_free(in));
    OK(npu_free(out));
  }
  npu_counters counters;
  npu_trace trace[4];
  size_t count;
  OK(npu_model_counters(model, &counters));
  CHECK(counters.launches == 10 && counters.commands[NPU_LOAD] == 20 && counters.bytes_loaded == 20 * BYTES);
  OK(npu_model_trace(model, trace, 4, &count));
  CHECK(count == 4 && trace[3].command == 3 && trace[3].start >= trace[2].end);
  if (device == 0) OK(npu_model_unload(model)); /* else the context takes it along */
  OK(npu_context_destroy(context));
  return NULL;
}

static void run_threads(void) {
  enum { THREADS = 4 };
  pthread_t threads[THREADS];
  int devices[THREADS];
  for (int i = 0; i < THREADS; ++i) {
    devices[i] = i % 2;
    CHECK(pthread_create(&threads[i], NULL, launches, &devices[i]) == 0);
  }
  for (int i = 0; i < THREADS; ++i) pthread_join(threads[i], NULL);
}

/* ---- faults ---- */
static void run_faults(void) {
  npu_context *context, *other;
  npu_model* model;
  npu_stream* stream;
  npu_buffer *in, *out;
  OK(npu_context_create(0, 0, &context));
  OK(npu_model_load(context, "twice", program, program_bytes, &model));
  OK(npu_stream_create(context, &stream));
  const npu_address arguments[2] = {put(context, NPU_DDR, 1, &in), put(context, NPU_DDR, 0, &out)};
  CHECK(npu_context_create(0, NPU_EXCLUSIVE, &other) == NPU_ERROR_BUSY);
  OK(npu_inject(0, NPU_FAULT_BUSY, 1));
  CHECK(npu_launch(model, arguments, 2, NULL) == NPU_ERROR_BUSY);
  OK(npu_inject(0, NPU_FAULT_FLIP, 2));
  CHECK(npu_launch(model, arguments, 2, NULL) == NPU_ERROR_PROGRAM && strstr(npu_last_error(), "command 2 (VECTOR)") != NULL);
  OK(npu_inject(0, NPU_FAULT_HANG, 0));
  OK(npu_context_set_timeout(context, 20));
  CHECK(npu_launch(model, arguments, 2, NULL) == NPU_ERROR_TIMEOUT);
  OK(npu_launch(model, arguments, 2, NULL));
  OK(npu_inject(0, NPU_FAULT_HANG, 0));
  OK(npu_launch(model, arguments, 2, stream));
  OK(npu_launch(model, arguments, 2, stream)); /* behind it */
  CHECK(npu_stream_wait(stream, 10) == NPU_ERROR_TIMEOUT);
  CHECK(npu_free(in) == NPU_ERROR_BUSY);
  OK(npu_device_reset(0));
  CHECK(npu_stream_wait(stream, -1) == NPU_ERROR_CANCELLED);
  OK(npu_stream_wait(stream, -1));
  OK(npu_inject(0, NPU_FAULT_GONE, 1));
  CHECK(npu_launch(model, arguments, 2, NULL) == NPU_ERROR_LOST);
  CHECK(npu_launch(model, arguments, 2, NULL) == NPU_ERROR_LOST && npu_context_create(0, 0, &other) == NPU_ERROR_LOST);
  OK(npu_device_reset(0));
  CHECK(npu_launch(model, arguments, 2, NULL) == NPU_ERROR_LOST && strstr(npu_last_error(), "load it again") != NULL);
  OK(npu_model_unload(model));
  OK(npu_model_load(context, "twice", program, program_bytes, &model));
  OK(npu_launch(model, arguments, 2, NULL));
  OK(npu_inject(0, NPU_FAULT_HANG, 0));
  OK(npu_launch(model, arguments, 2, stream));
  OK(npu_context_destroy(context)); /* with a launch that hangs */
}

/* Streams of two devices, one of which waits for the other. */
static void run_across_devices(void) {
  npu_context* contexts[2];
  npu_stream* streams[2];
  npu_buffer *source, *target;
  npu_event* event;
  float data[COUNT] = {0};
  for (int i = 0; i < 2; ++i) {
    OK(npu_context_create(i, 0, &contexts[i]));
    OK(npu_stream_create(contexts[i], &streams[i]));
  }
  const npu_address from = put(contexts[0], NPU_DDR, 3, &source), to = put(contexts[1], NPU_DDR, 0, &target);
  OK(npu_event_create(contexts[0], &event));
  OK(npu_event_record(event, streams[0]));
  OK(npu_stream_wait_event(streams[1], event));
  OK(npu_copy(contexts[1], to, from, BYTES, streams[1]));
  OK(npu_read(contexts[1], data, to, BYTES, streams[1]));
  OK(npu_stream_wait(streams[1], -1));
  CHECK(data[0] == 3 && data[COUNT - 1] == 3);
  CHECK(npu_read(contexts[0], data, to, BYTES, NULL) == NPU_ERROR_ADDRESS);
  CHECK(npu_read(contexts[1], data, to + 4, BYTES, NULL) == NPU_ERROR_ADDRESS);
  OK(npu_event_destroy(event));
  for (int i = 0; i < 2; ++i) OK(npu_context_destroy(contexts[i]));
}

/* Every third byte of a program but the constants turned: refused or run, and nothing else happens. */
static void run_corrupt(void) {
  npu_context* context;
  npu_buffer *in, *out;
  OK(npu_context_create(1, 0, &context));
  OK(npu_context_set_timeout(context, 5000));
  const npu_address arguments[2] = {put(context, NPU_DDR, 1, &in), put(context, NPU_DDR, 0, &out)};
  int refused = 0;
  for (size_t at = 0; at < program_bytes - BYTES; at += 3) {
    npu_model* model;
    program[at] ^= 0x84;
    if (npu_model_load(context, "corrupt", program, program_bytes, &model) == NPU_OK) {
      refused += npu_launch(model, arguments, 2, NULL) != NPU_OK;
      OK(npu_model_unload(model));
    } else {
      ++refused;
    }
    program[at] ^= 0x84;
  }
  CHECK(refused > 60);
  for (size_t bytes = 0; bytes < program_bytes; bytes += 37) {
    npu_model* model;
    uint8_t* part = malloc(bytes + 1); /* so that reading behind it is seen */
    memcpy(part, program, bytes);
    CHECK(npu_model_load(context, "part", part, bytes, &model) == NPU_ERROR_PROGRAM);
    free(part);
  }
  OK(npu_context_destroy(context));
}

int main(void) {
  npu_held held;
  OK(npu_init(NPU_DRIVER_VERSION));
  CHECK(npu_init(NPU_DRIVER_VERSION + 0x10000) == NPU_ERROR_VERSION && npu_init(NPU_DRIVER_VERSION + 1) == NPU_ERROR_VERSION);
  program_bytes = make_program(program);
  run_threads();
  run_faults();
  run_across_devices();
  run_corrupt();
  OK(npu_count_held(&held));
  const npu_held none = {0};
  CHECK(memcmp(&held, &none, sizeof held) == 0);
  puts("ok");
  return 0;
}
