/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * What board.c does for a program without an operating system. Its main() is called with memory set up. */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

/* Prints a text where the debugger, or the emulator, prints. */
void board_print(const char* text);

/* Ends the program, for an emulator with this status. */
void board_exit(int status);

/* The first serial line: waits for a byte, and sends one. Not on boards without a C library. */
uint8_t board_receive(void);
void board_send(uint8_t byte);

/* Time since the first call. */
uint64_t board_nanoseconds(void);

#endif
