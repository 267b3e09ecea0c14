/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * A program for an emulated board: it serves remote calls over the board's serial line, with what memory is left. */
#include <tvm/runtime/crt/platform.h>

#include "board.h"
#include "board_rpc.h"

extern char end[];
extern char board_stack_top[];

#define STACK_BYTES (32 << 10)

static uint64_t start;

int BoardRpcRead(void* to, size_t size) {
  for (uint8_t* at = to; size != 0; --size) *at++ = board_receive();
  return 0;
}

int BoardRpcWrite(const void* from, size_t size) {
  for (const uint8_t* at = from; size != 0; --size) board_send(*at++);
  return 0;
}

tvm_crt_error_t TVMPlatformTimerStart(void) {
  start = board_nanoseconds();
  return kTvmErrorNoError;
}

tvm_crt_error_t TVMPlatformTimerStop(double* elapsed_time_seconds) {
  *elapsed_time_seconds = (double)(board_nanoseconds() - start) * 1e-9;
  return kTvmErrorNoError;
}

void TVMPlatformAbort(tvm_crt_error_t code) {
  board_exit((int)code);
  for (;;) continue;
}

/* What the C library's printing of errors would ask of a system; its memory is not for us. */
void* _sbrk(intptr_t size) {
  (void)size;
  return (void*)-1;
}

int main(void) {
  BoardHeapInit(end, (size_t)(board_stack_top - end) - STACK_BYTES);
  BoardRpcServe();
  return 0;
}
