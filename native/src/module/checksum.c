/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The checksum of a whole file, at its end: 32 bytes of text, and the SHA-256 of all before them. Loaders of ELF files and
 * readers of archives pass over what is behind. Python writes it (runtime/checksum.py). */
#include "module.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../core/sha256.h"
#include "../core/system.h"

enum { MARK = 32, READ_TOGETHER = 1 << 16 };
static const char mark[MARK + 1] = "Tilewright SHA-256 of all before";

/* Reads exactly so many bytes. */
static int read_all(int fd, const char* path, void* data, size_t nbytes) {
  for (size_t done = 0; done < nbytes;) {
    const ssize_t n = read(fd, (char*)data + done, nbytes - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return tw_fail("cannot read %s: %s", path, n == 0 ? "it ends too early" : strerror(errno));
    done += (size_t)n;
  }
  return 0;
}

static int compare(int fd, const char* path, uint64_t size) {
  uint8_t found[SHA256_SIZE];
  char end[MARK + SHA256_SIZE];
  Sha256 sum;
  char* block = malloc(READ_TOGETHER);
  if (block == NULL) return tw_out_of_memory(READ_TOGETHER);
  sha256_start(&sum);
  int rc = 0;
  while (rc == 0 && size > 0) {
    const size_t together = size < READ_TOGETHER ? (size_t)size : READ_TOGETHER;
    rc = read_all(fd, path, block, together);
    if (rc == 0) sha256_add(&sum, block, together);
    size -= together;
  }
  free(block);
  if (rc != 0 || read_all(fd, path, end, sizeof end) != 0) return -1;
  if (memcmp(end, mark, MARK) != 0) {
    return tw_fail("%s has no checksum at its end: a Tilewright before 0.2 made it, a tool such as strip changed it, or it is "
                   "damaged; make it again", path);
  }
  sha256_finish(&sum, found);
  if (memcmp(end + MARK, found, SHA256_SIZE) == 0) return 0;
  return tw_fail("%s is damaged: it has another checksum than the one at its end; copy or make it again", path);
}

int TilewrightVerifyFile(const char* path) {
  struct stat info;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || fstat(fd, &info) != 0) {
    tw_fail("cannot read %s: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    return -1;
  }
  const uint64_t size = info.st_size < MARK + SHA256_SIZE ? 0 : (uint64_t)info.st_size - MARK - SHA256_SIZE;
  int rc = !S_ISREG(info.st_mode) ? tw_fail("cannot read %s: it is no regular file", path) : compare(fd, path, size);
  close(fd);
  return rc;
}
