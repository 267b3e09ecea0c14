/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Start-up of a RISC-V processor without an operating system, what a program tells the emulator by semihosting, and the
 * functions of <string.h> that compiled code calls: this board's compiler comes without a C library. */
#include "board.h"

#include <stddef.h>

#pragma GCC optimize("no-tree-loop-distribute-patterns") /* which makes memcpy of a loop */

extern uint32_t board_data_load[], board_data[], board_data_end[], board_bss[], board_bss_end[];
extern void (*const board_init[])(void);
extern void (*const board_init_end[])(void);
int main(void);

#define SYS_WRITE0 0x04
#define SYS_EXIT_EXTENDED 0x20
#define APPLICATION_EXIT 0x20026

/* The two instructions around ebreak mark it; the three are in one page, and none is compressed. */
__attribute__((noinline, aligned(16))) static int32_t semihosting(int32_t operation, const void* argument) {
  register int32_t a0 __asm__("a0") = operation;
  register const void* a1 __asm__("a1") = argument;
  __asm__ volatile(
      ".option push\n\t.option norvc\n\t.balign 16\n\t"
      "slli x0, x0, 0x1f\n\tebreak\n\tsrai x0, x0, 7\n\t.option pop"
      : "+r"(a0)
      : "r"(a1)
      : "memory");
  return a0;
}

void board_print(const char* text) { semihosting(SYS_WRITE0, text); }

void board_exit(int status) {
  const uint32_t block[2] = {APPLICATION_EXIT, (uint32_t)status};
  for (;;) semihosting(SYS_EXIT_EXTENDED, block);
}

__attribute__((used, aligned(4))) static void board_fault(void) {
  board_print("the processor reported a fault\n");
  board_exit(3);
}

__attribute__((used)) static void board_main(void) {
  const uint32_t* from = board_data_load;
  for (uint32_t* to = board_data; to != board_data_end; ++to) *to = *from++;
  for (uint32_t* to = board_bss; to != board_bss_end; ++to) *to = 0;
  for (void (*const* init)(void) = board_init; init != board_init_end; ++init) (*init)();
  board_exit(main());
}

void board_reset(void);

__attribute__((section(".vectors"), naked, used)) void board_reset(void) {
  __asm__ volatile("la sp, board_stack_top\n\tla t0, board_fault\n\tcsrw mtvec, t0\n\tj board_main");
}

void* memcpy(void* restrict to, const void* restrict from, size_t count) {
  uint8_t* t = to;
  for (const uint8_t* f = from; count != 0; --count) *t++ = *f++;
  return to;
}

void* memmove(void* to, const void* from, size_t count) {
  uint8_t* t = to;
  const uint8_t* f = from;
  if (t < f) return memcpy(to, from, count);
  while (count != 0) --count, t[count] = f[count];
  return to;
}

void* memset(void* to, int value, size_t count) {
  for (uint8_t* t = to; count != 0; --count) *t++ = (uint8_t)value;
  return to;
}

int memcmp(const void* left, const void* right, size_t count) {
  const uint8_t *a = left, *b = right;
  for (; count != 0; --count, ++a, ++b) {
    if (*a != *b) return *a < *b ? -1 : 1;
  }
  return 0;
}
