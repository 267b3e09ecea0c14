/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Start-up of a Cortex-M processor, and what a program tells the debugger (or the emulator) by Arm's semihosting. */
#include "board.h"

extern uint32_t board_stack_top[], board_data_load[], board_data[], board_data_end[], board_bss[], board_bss_end[];
extern void (*const board_init[])(void);
extern void (*const board_init_end[])(void);
int main(void);

#define SYS_WRITE0 0x04
#define SYS_EXIT_EXTENDED 0x20
#define APPLICATION_EXIT 0x20026

static int32_t semihosting(int32_t operation, const void* argument) {
  register int32_t r0 __asm__("r0") = operation;
  register const void* r1 __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}

void board_print(const char* text) { semihosting(SYS_WRITE0, text); }

void board_exit(int status) {
  const uint32_t block[2] = {APPLICATION_EXIT, (uint32_t)status};
  for (;;) semihosting(SYS_EXIT_EXTENDED, block);
}

static void board_fault(void) {
  board_print("the processor reported a fault\n");
  board_exit(3);
}

void board_reset(void);

void board_reset(void) {
  *(volatile uint32_t*)0xe000ed88 |= 0xfu << 20; /* floating point and vectors: CPACR */
  __asm__ volatile("dsb\n\tisb");
  const uint32_t* from = board_data_load;
  for (uint32_t* to = board_data; to != board_data_end; ++to) *to = *from++;
  for (uint32_t* to = board_bss; to != board_bss_end; ++to) *to = 0;
  for (void (*const* init)(void) = board_init; init != board_init_end; ++init) (*init)();
  board_exit(main());
}

typedef union {
  uint32_t* stack;
  void (*handler)(void);
} Vector;

__attribute__((section(".vectors"), used)) static const Vector board_vectors[16] = {
    {.stack = board_stack_top},
    {.handler = board_reset},
    {.handler = board_fault}, /* not maskable */
    {.handler = board_fault}, /* hard fault, to which the others lead while they are not enabled */
};
