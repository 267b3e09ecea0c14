/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Channels over descriptors (sockets, pipes) and over callbacks (TLS in Python). */
#include "rpc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define BUFFER ((size_t)64 << 10)

/* ---- over descriptors ---- */
static int wait_for(RpcChannel* c, int fd, short events) {
  struct pollfd p = {.fd = fd, .events = events};
  for (;;) {
    int timeout = -1;
    if (c->deadline != 0) {
      double left = c->deadline - tw_now();
      if (left <= 0) return tw_fail("%s", c->overdue);
      timeout = left > 1e6 ? 1000000000 : (int)(left * 1e3) + 1;
    }
    int n = poll(&p, 1, timeout);
    if (n > 0) return 0;
    if (n < 0 && errno != EINTR) return tw_fail("RPCError: waiting for the other side failed: %s", strerror(errno));
  }
}

static bool would_block(void) { return errno == EAGAIN || errno == EWOULDBLOCK; }

static int send_to_fd(RpcChannel* c, const void* data, size_t size) {
  const char* from = data;
  while (size != 0) {
    ssize_t n = write(c->write_fd, from, size);
    if (n >= 0) {
      from += n;
      size -= (size_t)n;
    } else if (would_block()) {
      if (wait_for(c, c->write_fd, POLLOUT) != 0) return -1;
    } else if (errno != EINTR) {
      return tw_fail("RPCError: the connection to the other side is lost: %s", strerror(errno));
    }
  }
  return 0;
}

static int receive_from_fd(RpcChannel* c, void* data, size_t least, size_t most, size_t* received) {
  size_t got = 0;
  while (got < least) {
    ssize_t n = read(c->read_fd, (char*)data + got, most - got);
    if (n > 0) {
      got += (size_t)n;
    } else if (n == 0) {
      if (got == 0) break;
      return tw_fail("RPCError: the other side closed the connection in the middle of a packet");
    } else if (would_block()) {
      if (wait_for(c, c->read_fd, POLLIN) != 0) return -1;
    } else if (errno != EINTR) {
      return tw_fail("RPCError: the connection to the other side is lost: %s", strerror(errno));
    }
  }
  *received = got;
  return 0;
}

static void close_fds(RpcChannel* c) {
  close(c->read_fd);
  if (c->write_fd != c->read_fd) close(c->write_fd);
  if (c->child == 0) return;
  /* it ends by itself when its input does; one that does not is in an endless call */
  for (int i = 0; i < 50; ++i) {
    if (waitpid(c->child, NULL, WNOHANG) != 0) return;
    usleep(2000);
  }
  kill(c->child, SIGKILL);
  waitpid(c->child, NULL, 0);
}

static const RpcChannelClass fd_class = {send_to_fd, receive_from_fd, close_fds};

static RpcChannel* channel_new(const RpcChannelClass* cls) {
  RpcChannel* c = calloc(1, sizeof *c + 2 * BUFFER);
  if (c == NULL) {
    tw_out_of_memory(sizeof *c + 2 * BUFFER);
    return NULL;
  }
  c->cls = cls;
  c->out = (char*)(c + 1);
  c->in = c->out + BUFFER;
  return c;
}

RpcChannel* rpc_channel_over_fds(int read_fd, int write_fd) {
  RpcChannel* c = channel_new(&fd_class);
  if (c == NULL) return NULL;
  c->read_fd = read_fd;
  c->write_fd = write_fd;
  const int fds[] = {read_fd, write_fd};
  for (int i = 0; i < 2; ++i) {
    int flags = fcntl(fds[i], F_GETFL);
    fcntl(fds[i], F_SETFL, flags | O_NONBLOCK);
  }
  return c;
}

/* ---- over callbacks ---- */
static int send_by_callback(RpcChannel* c, const void* data, size_t size) { return c->callbacks.send(c->context, data, size); }

static int receive_by_callback(RpcChannel* c, void* data, size_t least, size_t most, size_t* received) {
  if (c->callbacks.receive(c->context, data, least, most, received) != 0) return -1;
  if (*received == 0 || (*received >= least && *received <= most)) return 0;
  return tw_fail("RPCError: the other side closed the connection in the middle of a packet");
}

static void close_callbacks(RpcChannel* c) { c->callbacks.close(c->context); }

static const RpcChannelClass callback_class = {send_by_callback, receive_by_callback, close_callbacks};

RpcChannel* rpc_channel_over_callbacks(const TilewrightRpcCallbacks* callbacks, void* context) {
  RpcChannel* c = channel_new(&callback_class);
  if (c == NULL) {
    callbacks->close(context);
    return NULL;
  }
  c->callbacks = *callbacks;
  c->context = context;
  return c;
}

void rpc_channel_free(RpcChannel* c) {
  if (c == NULL) return;
  c->cls->close(c);
  free(c);
}

/* ---- buffers ---- */
int rpc_flush(RpcChannel* c) {
  size_t size = c->out_size;
  c->out_size = 0;
  return size == 0 ? 0 : c->cls->send(c, c->out, size);
}

int rpc_put(RpcChannel* c, const void* data, size_t size) {
  if (size > BUFFER - c->out_size) {
    if (rpc_flush(c) != 0) return -1;
    if (size >= BUFFER) return c->cls->send(c, data, size);
  }
  if (size != 0) memcpy(c->out + c->out_size, data, size);
  c->out_size += size;
  return 0;
}

/* Reads bytes of the channel, of any packet; *closed when it ends before the first of them. */
static int read_bytes(RpcChannel* c, char* to, size_t size, bool* closed) {
  size_t have = c->in_end - c->in_start, part = have < size ? have : size;
  bool first = part == 0;
  memcpy(to, c->in + c->in_start, part);
  c->in_start += part;
  to += part;
  size -= part;
  *closed = false;
  if (size == 0) return 0;
  size_t got;
  if (size >= BUFFER) { /* straight to where it goes */
    if (c->cls->receive(c, to, size, size, &got) != 0) return -1;
  } else {
    if (c->cls->receive(c, c->in, size, BUFFER, &got) != 0) return -1;
    c->in_start = got == 0 ? 0 : size;
    c->in_end = got;
    if (got != 0) memcpy(to, c->in, size);
  }
  if (got != 0) return 0;
  if (!first) return tw_fail("RPCError: the other side closed the connection in the middle of a packet");
  *closed = true;
  return 0;
}

int rpc_begin_packet(RpcChannel* c, int32_t* code) {
  bool closed;
  *code = RPC_NONE;
  do {
    if (read_bytes(c, (char*)&c->packet_left, sizeof c->packet_left, &closed) != 0) return -1;
    if (closed) return 0;
  } while (c->packet_left == 0);
  return rpc_get(c, code, sizeof *code);
}

int rpc_get(RpcChannel* c, void* data, size_t size) {
  bool closed;
  if (size > c->packet_left) {
    return tw_fail("RPCError: a packet ends too early: %zu more bytes are needed and %llu are left", size,
                   (unsigned long long)c->packet_left);
  }
  if (size == 0) return 0;
  if (read_bytes(c, data, size, &closed) != 0) return -1;
  if (closed) return tw_fail("RPCError: the other side closed the connection in the middle of a packet");
  c->packet_left -= size;
  return 0;
}

int rpc_end_packet(RpcChannel* c) {
  char skipped[4096];
  while (c->packet_left != 0) {
    if (rpc_get(c, skipped, c->packet_left < sizeof skipped ? (size_t)c->packet_left : sizeof skipped) != 0) return -1;
  }
  return 0;
}
