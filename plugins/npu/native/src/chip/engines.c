/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The engines side by side. A simulation by events: of the commands at the heads of the queues whose tokens are there, the one
 * that starts first is executed. What it waited for has ended by then, so data is what the chip would find. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../driver/status.h"
#include "chip.h"

static const char* const engine_names[] = {"LOAD", "STORE", "MATRIX", "VECTOR"};

/* Tokens that a command gave at once. */
typedef struct {
  uint64_t time;
  uint32_t command; /* number among the giver's, from 1 on */
  uint32_t left;
} Tokens;

/* A semaphore between two engines. */
typedef struct {
  Tokens* given;
  uint32_t first, count; /* those before `first` are used up */
  uint64_t there;
} Semaphore;

typedef struct {
  uint32_t* queue; /* indices of commands */
  uint32_t count, next;
  uint64_t free_at;
} Engine;

typedef struct {
  NpuRun* run;
  Engine engines[NPU_ENGINES];
  Semaphore semaphores[NPU_ENGINES][NPU_ENGINES]; /* [giver][taker] */
  NpuClock* clocks;                               /* of each command, when races are looked for: what has ended when it has */
  NpuShadow* shadow;
  uint32_t trace_count;
} Chip;

static void destroy(Chip* chip) {
  for (int e = 0; e < NPU_ENGINES; ++e) {
    free(chip->engines[e].queue);
    for (int other = 0; other < NPU_ENGINES; ++other) free(chip->semaphores[e][other].given);
  }
  free(chip->clocks);
  npu_shadow_destroy(chip->shadow);
}

static int no_memory(void) { return npu_fail(NPU_ERROR_HOST_MEMORY, "the emulator is out of memory"); }

/* An error of a command gets its index. */
static int at_command(const NpuRun* run, uint32_t index, int status) {
  char why[400];
  snprintf(why, sizeof why, "%s", npu_last_error());
  const uint8_t engine = run->commands[index].header.engine;
  const char* name = engine < NPU_ENGINES ? engine_names[engine] : "?";
  return npu_fail((npu_status)status, "command %u (%s): %s", index, name, why);
}

static int create(Chip* chip) {
  NpuRun* run = chip->run;
  for (uint32_t i = 0; i < run->count; ++i) {
    const uint8_t engine = run->commands[i].header.engine;
    if (engine >= NPU_ENGINES) return at_command(run, i, npu_check(&run->commands[i], &run->space));
    ++chip->engines[engine].count;
  }
  for (int e = 0; e < NPU_ENGINES; ++e) {
    Engine* engine = &chip->engines[e];
    if ((engine->queue = malloc((engine->count + 1) * sizeof *engine->queue)) == NULL) return no_memory();
    for (int other = 0; other < NPU_ENGINES; ++other) {
      Semaphore* s = &chip->semaphores[e][other];
      if ((s->given = malloc((engine->count + 1) * sizeof *s->given)) == NULL) return no_memory();
    }
    engine->count = 0;
  }
  for (uint32_t i = 0; i < run->count; ++i) {
    Engine* engine = &chip->engines[run->commands[i].header.engine];
    engine->queue[engine->count++] = i;
  }
  if (!run->check_races) return NPU_OK;
  if ((chip->clocks = calloc(run->count + 1, sizeof *chip->clocks)) == NULL) return no_memory();
  return npu_shadow_create(run, &chip->shadow);
}

/* ---- tokens ---- */
/* When `count` tokens are there that are not taken yet; false when they have not been given. */
static bool when(const Semaphore* s, uint32_t count, uint64_t* time) {
  if (s->there < count) return false;
  for (uint32_t i = s->first; count > 0; ++i) {
    const uint32_t some = s->given[i].left < count ? s->given[i].left : count;
    if (s->given[i].time > *time) *time = s->given[i].time;
    count -= some;
  }
  return true;
}

/* Takes tokens; *last becomes the last of the giver's commands that gave one of them. */
static void take(Semaphore* s, uint32_t count, uint32_t* last) {
  s->there -= count;
  while (count > 0) {
    Tokens* t = &s->given[s->first];
    const uint32_t some = t->left < count ? t->left : count;
    *last = t->command;
    t->left -= some;
    count -= some;
    if (t->left == 0) ++s->first;
  }
}

static void give(Semaphore* s, uint32_t count, uint64_t time, uint32_t command) {
  if (count == 0) return;
  s->given[s->count++] = (Tokens){time, command, count};
  s->there += count;
}

/* ---- one command ---- */
/* When the engine's next command starts; false where it has none, or tokens are missing. */
static bool can_start(const Chip* chip, int e, uint64_t* start) {
  const Engine* engine = &chip->engines[e];
  if (engine->next == engine->count) return false;
  const npu_header* h = &chip->run->commands[engine->queue[engine->next]].header;
  *start = engine->free_at;
  for (int giver = 0; giver < NPU_ENGINES; ++giver) {
    if (!when(&chip->semaphores[giver][e], h->wait[giver], start)) return false;
  }
  return true;
}

static int execute(NpuRun* run, const npu_command* c) {
  npu_counters* counters = &run->counters;
  const uint8_t opcode = c->header.opcode;
  if (opcode == NPU_OP_DMA) {
    npu_execute_dma(&c->dma, &run->space);
    *(c->header.engine == NPU_LOAD ? &counters->bytes_loaded : &counters->bytes_stored) += npu_dma_bytes(&c->dma);
  } else if (opcode == NPU_OP_GEMM) {
    const npu_gemm* g = &c->gemm;
    counters->macs += (uint64_t)g->m[0] * g->m[1] * g->k[0] * g->k[1] * g->k[2] * g->depth * g->columns;
    counters->block_cycles += npu_block_cycles(g);
    return npu_execute_gemm(g, run->space.sram.data, &run->scratch);
  } else if (npu_is_window(opcode)) {
    npu_execute_window(&c->window, run->space.sram.data);
  } else if (opcode != NPU_OP_NOP) {
    npu_execute_vector(&c->vector, run->space.sram.data);
  }
  return NPU_OK;
}

/* What has ended when the engine's next command starts; its tokens are taken. */
static NpuClock begin(Chip* chip, int e) {
  const Engine* engine = &chip->engines[e];
  const npu_header* h = &chip->run->commands[engine->queue[engine->next]].header;
  NpuClock clock = {{0}};
  if (chip->clocks != NULL && engine->next > 0) clock = chip->clocks[engine->queue[engine->next - 1]];
  for (int giver = 0; giver < NPU_ENGINES; ++giver) {
    if (h->wait[giver] == 0) continue;
    uint32_t last = 0;
    take(&chip->semaphores[giver][e], h->wait[giver], &last);
    if (chip->clocks == NULL) continue;
    const NpuClock* known = &chip->clocks[chip->engines[giver].queue[last - 1]];
    for (int k = 0; k < NPU_ENGINES; ++k) {
      if (known->done[k] > clock.done[k]) clock.done[k] = known->done[k];
    }
  }
  return clock;
}

/* Executes the next command of an engine, which starts at `start`. */
static int step(Chip* chip, int e, uint64_t start) {
  NpuRun* run = chip->run;
  Engine* engine = &chip->engines[e];
  const uint32_t index = engine->queue[engine->next];
  const npu_command* c = &run->commands[index];
  if (atomic_load(run->cancelled)) return npu_fail(NPU_ERROR_CANCELLED, "the launch was cancelled");
  if (index == run->lost_at) return npu_fail(NPU_ERROR_LOST, "the device is gone: it was lost at command %u of a launch", index);
  int status = npu_check(c, &run->space);
  const NpuClock before = begin(chip, e);
  if (status == NPU_OK && run->check_races) status = npu_shadow_touch(chip->shadow, c, engine->next + 1, &before);
  if (status == NPU_OK) status = execute(run, c);
  if (status != NPU_OK) return at_command(run, index, status);
  const uint64_t cycles = npu_cycles(c), end = start + cycles;
  run->counters.busy[e] += cycles;
  run->counters.stalled[e] += start - engine->free_at;
  ++run->counters.commands[e];
  if (end > run->counters.cycles) run->counters.cycles = end;
  if (run->trace != NULL) run->trace[chip->trace_count++] = (npu_trace){index, (uint32_t)e, start, end};
  engine->free_at = end;
  ++engine->next;
  if (chip->clocks != NULL) {
    chip->clocks[index] = before;
    chip->clocks[index].done[e] = engine->next;
  }
  for (int taker = 0; taker < NPU_ENGINES; ++taker) {
    give(&chip->semaphores[e][taker], c->header.push[taker], end, engine->next);
  }
  return NPU_OK;
}

/* Names each engine that waits, its command and the tokens that are missing. */
static int deadlock(const Chip* chip) {
  char text[400] = "";
  size_t used = 0;
  for (int e = 0; e < NPU_ENGINES; ++e) {
    const Engine* engine = &chip->engines[e];
    if (engine->next == engine->count) continue;
    const uint32_t index = engine->queue[engine->next];
    const npu_header* h = &chip->run->commands[index].header;
    for (int giver = 0; giver < NPU_ENGINES && used < sizeof text; ++giver) {
      const Semaphore* s = &chip->semaphores[giver][e];
      if (s->there >= h->wait[giver]) continue;
      used += (size_t)snprintf(text + used, sizeof text - used, "; %s at command %u for %u of %s (%u there)", engine_names[e], index,
                               h->wait[giver], engine_names[giver], (unsigned)s->there);
    }
  }
  return npu_fail(NPU_ERROR_DEADLOCK, "deadlock, every engine waits for tokens%s", text);
}

int npu_run(NpuRun* run) {
  Chip chip = {.run = run};
  int status = create(&chip);
  for (uint32_t left = run->count; status == NPU_OK && left > 0; --left) {
    uint64_t first = UINT64_MAX;
    int chosen = -1;
    for (int e = 0; e < NPU_ENGINES; ++e) {
      uint64_t start;
      if (can_start(&chip, e, &start) && start < first) first = start, chosen = e;
    }
    status = chosen < 0 ? deadlock(&chip) : step(&chip, chosen, first);
  }
  run->counters.launches = 1;
  destroy(&chip);
  return status;
}
