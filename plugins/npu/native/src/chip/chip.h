/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The emulated chip: it checks commands, executes them on memory of the host's and counts cycles. docs/isa.md is what it
 * implements. Functions give an npu_status, with the text by npu_fail. */
#ifndef NPU_CHIP_H_
#define NPU_CHIP_H_

#include <npu_driver.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef struct {
  uint8_t* data; /* aligned to NPU_ALIGNMENT */
  uint64_t bytes;
} NpuMemory;

/* What a program's commands may touch. */
typedef struct {
  NpuMemory sram;
  NpuMemory regions[NPU_MAX_REGIONS];
  uint32_t region_count;
} NpuSpace;

/* Working memory of the units, which grows as they need it. */
typedef struct {
  float* data;
  size_t count;
} NpuScratch;

/* A run of a command stream. */
typedef struct {
  const npu_command* commands;
  uint32_t count;
  NpuSpace space;
  const atomic_bool* cancelled; /* looked at before each command */
  uint32_t lost_at;             /* the device goes at this command; UINT32_MAX: it does not */
  bool check_races;
  npu_trace* trace; /* NULL, or room for each command */
  npu_counters counters;
  NpuScratch scratch;
} NpuRun;

/* Whether a command can be executed: its engine, opcode, types, and every byte that it would touch; without looking at the data of
 * the memories. The text does not name the command. */
int npu_check(const npu_command* command, const NpuSpace* space);
/* Executes all commands. Fills counters and trace as far as it came. The space was bound, the commands need not be checked. */
int npu_run(NpuRun* run);

/* ---- the units: each executes a checked command ---- */
void npu_execute_dma(const npu_dma* dma, const NpuSpace* space);
int npu_execute_gemm(const npu_gemm* gemm, uint8_t* sram, NpuScratch* scratch);
void npu_execute_vector(const npu_vector* vector, uint8_t* sram);
void npu_execute_window(const npu_window* window, uint8_t* sram);
/* How long a checked command takes. */
uint64_t npu_cycles(const npu_command* command);
/* Among them those in which the matrix unit multiplies. */
uint64_t npu_block_cycles(const npu_gemm* gemm);
uint64_t npu_dma_bytes(const npu_dma* dma);

/* ---- races ---- */
/* For each engine, how many of its commands are known to have ended. */
typedef struct {
  uint32_t done[NPU_ENGINES];
} NpuClock;

typedef struct NpuShadow NpuShadow;
int npu_shadow_create(const NpuRun* run, NpuShadow** shadow);
void npu_shadow_destroy(NpuShadow* shadow);
/* Notes what a checked command touches: it is number `sequence` of its engine (from 1 on), and starts after `before`. Fails where
 * another has touched it that has not ended by then, and one of both writes. */
int npu_shadow_touch(NpuShadow* shadow, const npu_command* command, uint32_t sequence, const NpuClock* before);

static inline uint32_t npu_type_bytes(uint8_t type) { return type <= NPU_U8 ? 1 : 4; }
static inline uint64_t npu_divide_up(uint64_t a, uint64_t b) { return (a + b - 1) / b; }
static inline bool npu_is_rows(uint8_t opcode) { return opcode == NPU_OP_ROW_SUM || opcode == NPU_OP_ROW_MAX; }
static inline bool npu_is_binary(uint8_t opcode) { return opcode >= NPU_OP_ADD && opcode <= NPU_OP_MIN; }
static inline bool npu_is_window(uint8_t opcode) { return opcode >= NPU_OP_POOL_MAX && opcode <= NPU_OP_DEPTHWISE; }

#endif /* NPU_CHIP_H_ */
