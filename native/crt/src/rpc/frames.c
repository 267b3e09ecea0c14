/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Bytes in frames, so that noise on the line is noticed: 0xff 0xfd, how many bytes follow (1 to 255) and its complement, the
 * bytes, and their checksum (CRC-16-CCITT, from 0xffff, the lower byte first). What comes before the first frame is skipped. */
#include <string.h>

#include "board_rpc.h"

enum { MOST = 255, HEAD = 4, SUM = 2 };

static uint8_t in[MOST + SUM], out[HEAD + MOST + SUM];
static size_t at, end, held;
static int begun;

static uint16_t checksum(const uint8_t* bytes, size_t size) {
  uint16_t sum = 0xffff;
  for (; size != 0; --size, ++bytes) {
    sum = (uint16_t)(sum >> 8 | sum << 8) ^ *bytes;
    sum ^= (uint8_t)sum >> 4;
    sum ^= (uint16_t)(sum << 12);
    sum ^= (uint16_t)((sum & 0xff) << 5);
  }
  return sum;
}

static int is_head(const uint8_t* head) {
  return head[0] == 0xff && head[1] == 0xfd && head[2] != 0 && head[3] == (uint8_t)~head[2];
}

int BoardFrameFlush(void) {
  const size_t size = held;
  if (size == 0) return 0;
  const uint16_t sum = checksum(out + HEAD, size);
  out[0] = 0xff;
  out[1] = 0xfd;
  out[2] = (uint8_t)size;
  out[3] = (uint8_t)~size;
  out[HEAD + size] = (uint8_t)sum;
  out[HEAD + size + 1] = (uint8_t)(sum >> 8);
  held = 0;
  return BoardRpcWrite(out, HEAD + size + SUM);
}

/* Reads the next frame; what was written goes out before. */
static int fill(void) {
  uint8_t head[HEAD];
  if (BoardFrameFlush() != 0 || BoardRpcRead(head, HEAD) != 0) return -1;
  while (!is_head(head)) {
    if (begun) return -1;
    memmove(head, head + 1, HEAD - 1);
    if (BoardRpcRead(head + HEAD - 1, 1) != 0) return -1;
  }
  begun = 1;
  at = 0;
  end = head[2];
  if (BoardRpcRead(in, end + SUM) != 0) return -1;
  return checksum(in, end) == (in[end] | in[end + 1] << 8) ? 0 : -1;
}

int BoardFrameRead(void* to, size_t size) {
  uint8_t* bytes = to;
  while (size != 0) {
    if (at == end && fill() != 0) return -1;
    const size_t some = size < end - at ? size : end - at;
    memcpy(bytes, in + at, some);
    at += some;
    bytes += some;
    size -= some;
  }
  return 0;
}

int BoardFrameWrite(const void* from, size_t size) {
  const uint8_t* bytes = from;
  while (size != 0) {
    const size_t some = size < MOST - held ? size : MOST - held;
    memcpy(out + HEAD + held, bytes, some);
    held += some;
    bytes += some;
    size -= some;
    if (held == MOST && BoardFrameFlush() != 0) return -1;
  }
  return 0;
}
