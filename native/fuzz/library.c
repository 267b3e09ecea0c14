/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The bytes are a shared library, checked as it is before the system's loader sees it. That loader trusts what it reads, and
 * is not called. */
#include "fuzz.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  char path[64];
  int fd = memfd_create("library", 0);
  if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  (void)fuzz_read(tw_elf_check(path));
  close(fd);
  return 0;
}
