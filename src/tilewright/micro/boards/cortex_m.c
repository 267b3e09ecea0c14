/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Start-up of a Cortex-M processor, what a program tells the debugger (or the emulator) by Arm's semihosting, the serial line of
 * Arm's CMSDK at BOARD_UART, and time by the processor's timer, which counts at BOARD_CLOCK_HZ. */
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

/* ---- the serial line ---- */
#define UART ((volatile uint32_t*)BOARD_UART)
enum { UART_DATA, UART_STATE, UART_CONTROL, UART_DIVISOR = 4 };

static void begin_serial(void) {
  if (UART[UART_CONTROL] == 3) return;
  UART[UART_DIVISOR] = 16;
  UART[UART_CONTROL] = 3; /* both directions */
}

uint8_t board_receive(void) {
  begin_serial();
  while ((UART[UART_STATE] & 2) == 0) continue;
  return (uint8_t)UART[UART_DATA];
}

void board_send(uint8_t byte) {
  begin_serial();
  while ((UART[UART_STATE] & 1) != 0) continue;
  UART[UART_DATA] = byte;
}

/* ---- time ---- */
#define TIMER ((volatile uint32_t*)0xe000e010)
enum { TIMER_CONTROL, TIMER_RELOAD, TIMER_VALUE };

static volatile uint32_t wraps;

static void board_tick(void) { ++wraps; }

uint64_t board_nanoseconds(void) {
  uint32_t before, value;
  if (TIMER[TIMER_CONTROL] == 0) {
    TIMER[TIMER_RELOAD] = 0xffffff;
    TIMER[TIMER_VALUE] = 0;
    TIMER[TIMER_CONTROL] = 7; /* it runs, by the processor's clock, and interrupts */
  }
  do {
    before = wraps;
    value = TIMER[TIMER_VALUE];
  } while (before != wraps);
  return (((uint64_t)before << 24) + (0xffffff - value)) * 1000 / (BOARD_CLOCK_HZ / 1000000);
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
    [15] = {.handler = board_tick},
};
