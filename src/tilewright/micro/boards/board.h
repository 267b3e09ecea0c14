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

#endif
