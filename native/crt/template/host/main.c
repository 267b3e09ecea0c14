/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * A program that stands for a board on this machine: it serves its standard input and output. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <tvm/runtime/crt/platform.h>
#include <unistd.h>

#include "board_rpc.h"

#ifndef BOARD_HEAP_BYTES
#define BOARD_HEAP_BYTES (64 << 20)
#endif

static char memory[BOARD_HEAP_BYTES];
static struct timespec start;

int BoardRpcRead(void* to, size_t size) {
  for (char* at = to; size != 0;) {
    const ssize_t n = read(0, at, size);
    if (n <= 0) return -1;
    at += n;
    size -= (size_t)n;
  }
  return 0;
}

int BoardRpcWrite(const void* from, size_t size) {
  for (const char* at = from; size != 0;) {
    const ssize_t n = write(1, at, size);
    if (n <= 0) return -1;
    at += n;
    size -= (size_t)n;
  }
  return 0;
}

tvm_crt_error_t TVMPlatformTimerStart(void) {
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
  return kTvmErrorNoError;
}

tvm_crt_error_t TVMPlatformTimerStop(double* elapsed_time_seconds) {
  struct timespec end;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
  *elapsed_time_seconds = (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) * 1e-9;
  return kTvmErrorNoError;
}

void TVMPlatformAbort(tvm_crt_error_t code) {
  fprintf(stderr, "the program ends with the error 0x%x\n", (unsigned)code);
  exit(1);
}

int main(void) {
  BoardHeapInit(memory, sizeof memory);
  BoardRpcServe();
  return 0;
}
