/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Remote calls for programs on boards, over any line of bytes: the requests of TVM 0.8's RPC protocol (native/src/rpc/rpc.h
 * describes its packets), for the functions of the system library and the arrays in the program's own memory. It allocates
 * nothing outside of the array that it is given, and serves one client. */
#ifndef BOARD_RPC_H
#define BOARD_RPC_H

#include <stddef.h>
#include <stdint.h>
#include <tvm/runtime/c_backend_api.h>

/* Limits, which a program may define otherwise: functions and arguments, bytes of the texts and descriptions in one packet,
 * and repeats of a measurement. */
#ifndef BOARD_RPC_FUNCTIONS
#define BOARD_RPC_FUNCTIONS 128
#endif
#ifndef BOARD_RPC_ARGUMENTS
#define BOARD_RPC_ARGUMENTS 64
#endif
#ifndef BOARD_RPC_PACKET_BYTES
#define BOARD_RPC_PACKET_BYTES 4096
#endif
#ifndef BOARD_RPC_REPEATS
#define BOARD_RPC_REPEATS 256
#endif

/* The line, which the program defines: all bytes, or -1 when the other side has gone. */
int BoardRpcRead(void* to, size_t size);
int BoardRpcWrite(const void* from, size_t size);

/* ---- frames on the line (frames.c): as above, and -1 when it has lost or changed bytes ---- */
int BoardFrameRead(void* to, size_t size); /* what was written goes out before */
int BoardFrameWrite(const void* from, size_t size);
int BoardFrameFlush(void);

/* Serves the client until it leaves, goes, or asks for the end of the program. */
void BoardRpcServe(void);

/* ---- memory of the program (heap.c): one array, whose blocks are aligned to 64 bytes ---- */
void BoardHeapInit(void* memory, size_t size);
void* BoardHeapAllocate(size_t size);
/* Frees a block; 0, or -1 for what is none. */
int BoardHeapFree(void* block);
/* Whether bytes are in a block that was allocated. */
int BoardHeapHolds(const void* from, uint64_t size);

/* ---- functions by name (functions.c) ---- */
typedef struct {
  const char* name;
  TVMBackendPackedCFunc call;
} BoardFunction;

/* The number of a function, from 1 on, or 0. */
uint32_t BoardFindFunction(const char* name);
const BoardFunction* BoardFunctionOf(uint64_t number); /* NULL for a number that none has */

/* Sets the text of TVMGetLastError, which is `before` and `after`; -1. */
int BoardFail(const char* before, const char* after);

/* ---- measurements (timing.c): functions that the server has by name ---- */
extern const BoardFunction board_timing_functions[];
/* Runs measurement `number` of a function with these arguments; see "runtime.RPCTimeEvaluator". */
int BoardMeasure(uint32_t number, TVMValue* args, int* codes, int count, TVMValue* ret, int* ret_code);
int BoardIsMeasure(uint64_t handle, uint32_t* number);

#endif
