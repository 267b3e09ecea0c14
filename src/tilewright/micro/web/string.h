/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The functions of <string.h> that memory.c has. */
#ifndef TILEWRIGHT_WEB_STRING_H
#define TILEWRIGHT_WEB_STRING_H

#include <stddef.h>

void* memcpy(void* restrict to, const void* restrict from, size_t count);
void* memmove(void* to, const void* from, size_t count);
void* memset(void* to, int value, size_t count);
int memcmp(const void* left, const void* right, size_t count);

#endif
