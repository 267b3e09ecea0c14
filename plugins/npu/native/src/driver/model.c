/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Models: programs in the device's memory, under names; and their launches. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

/* ---- reading a program ---- */
static uint64_t part_bytes(const npu_program* p) {
  return sizeof *p + (uint64_t)p->region_count * sizeof(npu_region) + (uint64_t)p->layer_count * sizeof(npu_layer) +
         (uint64_t)p->command_count * NPU_COMMAND_BYTES + p->string_bytes + p->constant_bytes;
}

static int check_header(const npu_program* p, size_t bytes) {
  if (bytes < sizeof *p || p->magic != NPU_PROGRAM_MAGIC) return npu_fail(NPU_ERROR_PROGRAM, "%zu bytes that are no NPU program", bytes);
  if (p->isa_version != NPU_ISA_VERSION) {
    return npu_fail(NPU_ERROR_VERSION, "a program for version %u of the instruction set, where the chip has %u: compile the model again",
                    p->isa_version, NPU_ISA_VERSION);
  }
  if (p->total_bytes != bytes || part_bytes(p) != bytes) {
    return npu_fail(NPU_ERROR_PROGRAM, "a program of %" PRIu64 " bytes, of which %zu are given", part_bytes(p), bytes);
  }
  if (p->region_count > NPU_MAX_REGIONS) return npu_fail(NPU_ERROR_PROGRAM, "%u regions, of at most %d", p->region_count, NPU_MAX_REGIONS);
  if (p->sram_bytes > NPU_SRAM_BYTES) {
    return npu_fail(NPU_ERROR_OUT_OF_SRAM, "out of SRAM: the program uses %u bytes, of %d", p->sram_bytes, NPU_SRAM_BYTES);
  }
  return NPU_OK;
}

/* Regions against strings and constants. */
static int check_regions(const npu_model* model) {
  const npu_program* p = &model->header;
  uint64_t constants = 0;
  if (p->string_bytes == 0 || model->strings[p->string_bytes - 1] != 0 || p->name >= p->string_bytes) {
    return npu_fail(NPU_ERROR_PROGRAM, "its strings have no end");
  }
  for (uint32_t i = 0; i < p->region_count; ++i) {
    const npu_region* r = &model->regions[i];
    if (r->kind > NPU_OUTPUT || r->name >= p->string_bytes) return npu_fail(NPU_ERROR_PROGRAM, "region %u is of the unknown kind %u", i, r->kind);
    if (r->kind == NPU_CONSTANT && constants++ > 0) return npu_fail(NPU_ERROR_PROGRAM, "it has several regions of constants");
    if (r->kind == NPU_CONSTANT && r->bytes != p->constant_bytes) {
      return npu_fail(NPU_ERROR_PROGRAM, "its region of constants has %u bytes, of which %u are given", r->bytes, p->constant_bytes);
    }
  }
  return constants > 0 || p->constant_bytes == 0 ? NPU_OK : npu_fail(NPU_ERROR_PROGRAM, "constants without a region");
}

static int check_commands(const npu_model* model) {
  NpuSpace space = {.sram = {NULL, model->header.sram_bytes}, .region_count = model->header.region_count};
  for (uint32_t i = 0; i < space.region_count; ++i) space.regions[i].bytes = model->regions[i].bytes;
  for (uint32_t i = 0; i < model->header.command_count; ++i) {
    const int status = npu_check(&model->commands[i], &space);
    if (status == NPU_OK) continue;
    char why[400];
    snprintf(why, sizeof why, "%s", npu_last_error());
    return npu_fail((npu_status)status, "command %u: %s", i, why);
  }
  return NPU_OK;
}

static void* copy_of(const void* data, size_t bytes) {
  void* copy = malloc(bytes + 1);
  if (copy != NULL && bytes > 0) memcpy(copy, data, bytes);
  return copy;
}

/* A model's own copy of a program, apart from its constants, which begin at *constants. */
static int parse(npu_model* model, const uint8_t* data, size_t bytes, const uint8_t** constants) {
  npu_program* p = &model->header;
  if (bytes >= sizeof *p) memcpy(p, data, sizeof *p);
  const int status = check_header(p, bytes);
  if (status != NPU_OK) return status;
  const uint8_t* regions = data + sizeof *p;
  const uint8_t* commands = regions + p->region_count * sizeof(npu_region) + p->layer_count * sizeof(npu_layer);
  const uint8_t* strings = commands + (size_t)p->command_count * NPU_COMMAND_BYTES;
  model->regions = copy_of(regions, p->region_count * sizeof(npu_region));
  model->commands = copy_of(commands, (size_t)p->command_count * NPU_COMMAND_BYTES);
  model->strings = copy_of(strings, p->string_bytes);
  *constants = strings + p->string_bytes;
  if (model->regions == NULL || model->commands == NULL || model->strings == NULL) {
    return npu_fail(NPU_ERROR_HOST_MEMORY, "the driver is out of memory");
  }
  const int regions_status = check_regions(model);
  return regions_status != NPU_OK ? regions_status : check_commands(model);
}

/* ---- loading: with the mutex held ---- */
static void release(npu_model* model) {
  for (int i = 0; i < NPU_MAX_REGIONS; ++i) {
    if (model->fixed[i] != NULL) npu_heap_free(model->fixed[i]);
  }
  free(model->name);
  free(model->commands);
  free(model->regions);
  free(model->strings);
  free(model->trace);
  free(model);
}

void npu_model_destroy(npu_model* model) {
  npu_model** link = &model->context->models;
  while (*link != model) link = &(*link)->next;
  *link = model->next;
  release(model);
}

static npu_model* find(const npu_context* context, const char* name) {
  npu_model* model = context->models;
  while (model != NULL && strcmp(model->name, name) != 0) model = model->next;
  return model;
}

static int settle(npu_model* model, const uint8_t* constants) {
  npu_context* context = model->context;
  NpuDevice* device = context->device;
  int status = npu_device_usable(device);
  if (status != NPU_OK) return status;
  if (find(context, model->name) != NULL) return npu_fail(NPU_ERROR_EXISTS, "a model \"%s\" is loaded already", model->name);
  status = npu_heap_sram_left(device, model->header.sram_bytes);
  for (uint32_t i = 0; i < model->header.region_count && status == NPU_OK; ++i) {
    const npu_region* r = &model->regions[i];
    if (r->kind != NPU_CONSTANT && r->kind != NPU_WORKSPACE) continue;
    status = npu_heap_alloc(context, NPU_DDR, r->bytes, NPU_ALIGNMENT, &model->fixed[i]);
    if (status != NPU_OK || r->kind != NPU_CONSTANT || r->bytes == 0) continue;
    memcpy(device->heaps[NPU_DDR].storage.data + model->fixed[i]->offset, constants, r->bytes);
  }
  if (status != NPU_OK) return status;
  model->generation = device->generation;
  model->next = context->models;
  context->models = model;
  return NPU_OK;
}

/* ---- the API ---- */
int npu_model_load(npu_context* context, const char* name, const void* data, size_t bytes, npu_model** model) {
  NpuDevice* device = npu_device_of(context);
  if (device == NULL) return NPU_ERROR_INVALID;
  npu_model* made = calloc(1, sizeof *made);
  if (made == NULL || (made->name = copy_of(name, strlen(name) + 1)) == NULL) {
    free(made);
    return npu_fail(NPU_ERROR_HOST_MEMORY, "the driver is out of memory");
  }
  made->context = context;
  const uint8_t* constants = NULL;
  int status = parse(made, data, bytes, &constants);
  pthread_mutex_lock(&device->mutex);
  if (status == NPU_OK) status = settle(made, constants);
  if (status != NPU_OK) release(made);
  pthread_mutex_unlock(&device->mutex);
  if (status == NPU_OK) *model = made;
  return status;
}

int npu_model_choose(npu_context* context, const char* name, npu_model** model) {
  NpuDevice* device = npu_device_of(context);
  if (device == NULL) return NPU_ERROR_INVALID;
  pthread_mutex_lock(&device->mutex);
  *model = find(context, name);
  pthread_mutex_unlock(&device->mutex);
  return *model != NULL ? NPU_OK : npu_fail(NPU_ERROR_NOT_FOUND, "no model \"%s\" is loaded on NPU %d", name, device->number);
}

int npu_model_unload(npu_model* model) {
  if (model == NULL) return npu_fail(NPU_ERROR_INVALID, "no model is given");
  NpuDevice* device = model->context->device;
  pthread_mutex_lock(&device->mutex);
  const int status = npu_drain(device, model->context);
  if (status == NPU_OK) npu_model_destroy(model);
  pthread_mutex_unlock(&device->mutex);
  return status;
}

static bool is_argument(const npu_region* region) { return region->kind == NPU_INPUT || region->kind == NPU_OUTPUT; }

int npu_model_query(const npu_model* model, npu_model_info* info) {
  if (model == NULL) return npu_fail(NPU_ERROR_INVALID, "no model is given");
  *info = (npu_model_info){.commands = model->header.command_count, .sram_bytes = model->header.sram_bytes};
  for (uint32_t i = 0; i < model->header.region_count; ++i) {
    const npu_region* r = &model->regions[i];
    info->inputs += r->kind == NPU_INPUT;
    info->outputs += r->kind == NPU_OUTPUT;
    if (!is_argument(r)) info->ddr_bytes += r->bytes;
  }
  return NPU_OK;
}

int npu_model_argument(const npu_model* model, uint32_t index, npu_region* region) {
  if (model == NULL) return npu_fail(NPU_ERROR_INVALID, "no model is given");
  for (uint32_t i = 0, argument = 0; i < model->header.region_count; ++i) {
    if (!is_argument(&model->regions[i]) || argument++ != index) continue;
    *region = model->regions[i];
    return NPU_OK;
  }
  return npu_fail(NPU_ERROR_INVALID, "the model \"%s\" has no argument %u", model->name, index);
}

/* ---- launches ---- */
/* Where the program's regions are, with the mutex held. */
static int bind(const npu_model* model, const npu_address* arguments, uint32_t count, NpuSpace* space) {
  NpuDevice* device = model->context->device;
  uint32_t used = 0;
  *space = (NpuSpace){.sram = {device->heaps[NPU_SRAM].storage.data, model->header.sram_bytes}};
  space->region_count = model->header.region_count;
  for (uint32_t i = 0; i < space->region_count; ++i) {
    const npu_region* r = &model->regions[i];
    space->regions[i].bytes = r->bytes;
    if (model->fixed[i] != NULL) {
      space->regions[i].data = device->heaps[NPU_DDR].storage.data + model->fixed[i]->offset;
      continue;
    }
    if (used == count) return npu_fail(NPU_ERROR_INVALID, "the model \"%s\" needs more than the %u arguments given", model->name, count);
    char what[160];
    snprintf(what, sizeof what, "argument %u (%s) of the model \"%s\"", used, model->strings + r->name, model->name);
    const int status = npu_heap_resolve(device, arguments[used++], r->bytes, what, &space->regions[i].data);
    if (status != NPU_OK) return status;
    if (((uintptr_t)space->regions[i].data & 3) != 0) return npu_fail(NPU_ERROR_ADDRESS, "%s: no multiple of 4 bytes", what);
  }
  return used == count ? NPU_OK : npu_fail(NPU_ERROR_INVALID, "the model \"%s\" takes %u arguments, not %u", model->name, used, count);
}

/* What a test asked to go wrong. */
static int apply_fault(NpuDevice* device, NpuJob* job) {
  const npu_fault fault = device->fault;
  job->lost_at = fault == NPU_FAULT_GONE ? device->fault_when : UINT32_MAX;
  job->flipped_at = fault == NPU_FAULT_FLIP ? device->fault_when : UINT32_MAX;
  job->hangs = fault == NPU_FAULT_HANG;
  if (fault == NPU_FAULT_BUSY) {
    if (--device->fault_when == 0) device->fault = NPU_FAULT_NONE;
    return npu_fail(NPU_ERROR_BUSY, "NPU %d is busy: try again", device->number);
  }
  device->fault = NPU_FAULT_NONE;
  return NPU_OK;
}

static int prepare(npu_model* model, const npu_address* arguments, uint32_t count, npu_stream* stream, NpuJob* job) {
  NpuDevice* device = model->context->device;
  int status = npu_device_usable(device);
  if (status == NPU_OK && model->generation != device->generation) {
    status = npu_fail(NPU_ERROR_LOST, "the model \"%s\" was on NPU %d when that was lost: load it again", model->name, device->number);
  }
  if (status == NPU_OK) status = npu_heap_sram_left(device, model->header.sram_bytes);
  if (status == NPU_OK) status = bind(model, arguments, count, &job->space);
  if (status == NPU_OK) status = apply_fault(device, job);
  job->kind = NPU_JOB_LAUNCH, job->context = model->context, job->stream = stream, job->model = model;
  return status;
}

int npu_launch(npu_model* model, const npu_address* arguments, uint32_t count, npu_stream* stream) {
  if (model == NULL) return npu_fail(NPU_ERROR_INVALID, "no model is given");
  NpuDevice* device = model->context->device;
  if (stream != NULL && stream->context->device != device) return npu_fail(NPU_ERROR_INVALID, "the stream is of another device");
  NpuJob* job = calloc(1, sizeof *job);
  if (job == NULL) return npu_fail(NPU_ERROR_HOST_MEMORY, "the driver is out of memory");
  pthread_mutex_lock(&device->mutex);
  int status = prepare(model, arguments, count, stream, job);
  const bool kept = status == NPU_OK && stream != NULL;
  if (kept) {
    npu_submit(device, job);
  } else if (status == NPU_OK) {
    status = npu_perform(device, job);
  }
  pthread_mutex_unlock(&device->mutex);
  if (!kept) free(job);
  return status;
}

/* ---- in the worker ---- */
static void add_counters(npu_counters* sum, const npu_counters* c) {
  sum->launches += c->launches, sum->cycles += c->cycles;
  sum->bytes_loaded += c->bytes_loaded, sum->bytes_stored += c->bytes_stored;
  sum->macs += c->macs, sum->block_cycles += c->block_cycles;
  for (int e = 0; e < NPU_ENGINES; ++e) {
    sum->busy[e] += c->busy[e], sum->stalled[e] += c->stalled[e], sum->commands[e] += c->commands[e];
  }
}

/* The commands with one opcode turned, or NULL when the host has no memory for them. */
static npu_command* flipped(const npu_model* model, uint32_t at) {
  const uint32_t count = model->header.command_count;
  npu_command* commands = copy_of(model->commands, count * sizeof *commands);
  if (commands != NULL && at < count) commands[at].header.opcode ^= 0x80;
  return commands;
}

int npu_model_run(NpuJob* job, NpuScratch* scratch) {
  npu_model* model = job->model;
  NpuDevice* device = model->context->device;
  NpuRun run = {.commands = model->commands, .count = model->header.command_count, .space = job->space, .scratch = *scratch};
  run.cancelled = &job->cancelled, run.lost_at = job->lost_at;
  npu_command* changed = NULL;
  if (job->flipped_at != UINT32_MAX) run.commands = changed = flipped(model, job->flipped_at);
  pthread_mutex_lock(&device->mutex);
  run.check_races = model->check_races;
  const bool trace = model->trace_on;
  pthread_mutex_unlock(&device->mutex);
  if (trace) run.trace = calloc(run.count + 1, sizeof *run.trace);
  memset(run.space.sram.data, 0xff, run.space.sram.bytes); /* NaN, or -1: of what other programs left nothing is to be read */
  int status = run.commands == NULL || (trace && run.trace == NULL) ? npu_fail(NPU_ERROR_HOST_MEMORY, "the driver is out of memory") : npu_run(&run);
  *scratch = run.scratch;
  free(changed);
  pthread_mutex_lock(&device->mutex);
  add_counters(&model->counters, &run.counters);
  if (trace) {
    free(model->trace);
    model->trace = run.trace;
    model->trace_count = 0;
    for (int e = 0; e < NPU_ENGINES; ++e) model->trace_count += run.counters.commands[e];
  }
  pthread_mutex_unlock(&device->mutex);
  return status;
}

/* ---- counters and traces ---- */
int npu_model_counters(const npu_model* model, npu_counters* counters) {
  if (model == NULL) return npu_fail(NPU_ERROR_INVALID, "no model is given");
  pthread_mutex_lock(&model->context->device->mutex);
  *counters = model->counters;
  pthread_mutex_unlock(&model->context->device->mutex);
  return NPU_OK;
}

int npu_model_reset_counters(npu_model* model) {
  if (model == NULL) return npu_fail(NPU_ERROR_INVALID, "no model is given");
  pthread_mutex_lock(&model->context->device->mutex);
  memset(&model->counters, 0, sizeof model->counters);
  pthread_mutex_unlock(&model->context->device->mutex);
  return NPU_OK;
}

int npu_model_set_trace(npu_model* model, int on) {
  if (model == NULL) return npu_fail(NPU_ERROR_INVALID, "no model is given");
  pthread_mutex_lock(&model->context->device->mutex);
  model->trace_on = on != 0;
  pthread_mutex_unlock(&model->context->device->mutex);
  return NPU_OK;
}

int npu_model_set_race_check(npu_model* model, int on) {
  if (model == NULL) return npu_fail(NPU_ERROR_INVALID, "no model is given");
  pthread_mutex_lock(&model->context->device->mutex);
  model->check_races = on != 0;
  pthread_mutex_unlock(&model->context->device->mutex);
  return NPU_OK;
}

int npu_model_trace(const npu_model* model, npu_trace* entries, size_t room, size_t* count) {
  if (model == NULL) return npu_fail(NPU_ERROR_INVALID, "no model is given");
  pthread_mutex_lock(&model->context->device->mutex);
  *count = model->trace_count;
  const size_t some = room < *count ? room : *count;
  if (some > 0) memcpy(entries, model->trace, some * sizeof *entries);
  pthread_mutex_unlock(&model->context->device->mutex);
  return NPU_OK;
}
