/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Connections: TCP with TVM's handshake, and programs that serve their pipes.
 *
 *     client: i32 RPC_MAGIC | i32 size | "client:KEY -option=value ..."
 *     server: i32 RPC_MAGIC | i32 size | "server:KEY ..."
 *     or a refusal: i32 RPC_MAGIC + 1 (the key is in use) or + 2 (no such key); of Tilewright's i32 size | reason may follow */
#include "rpc.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

/* Seconds after which a peer that says nothing, not even by TCP's probes, is gone. */
#define SILENCE 4
/* How long to wait for one's turn: a server serves one client at a time. */
#define TURN_SECONDS 60
#define MAX_KEY 4096

static void set_option(int fd, int level, int name, int value) { setsockopt(fd, level, name, &value, sizeof value); }

/* No delays, and an end to connections whose other side is silent. */
static void tune(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
#ifdef TCP_KEEPIDLE
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 2);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, SILENCE - 2);
#endif
#ifdef TCP_USER_TIMEOUT
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, SILENCE * 1000);
#endif
}

/* Connects within the seconds; -1 with errno set when it cannot. */
static int connect_within(int fd, const struct addrinfo* address, double seconds) {
  int error = 0;
  socklen_t size = sizeof error;
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  if (connect(fd, address->ai_addr, address->ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return -1;
  struct pollfd p = {.fd = fd, .events = POLLOUT};
  int n = poll(&p, 1, (int)(seconds * 1e3));
  if (n == 0) errno = ETIMEDOUT;
  if (n <= 0) return -1;
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  errno = error;
  return error == 0 ? 0 : -1;
}

static int open_connection(const char* host, int port, double seconds) {
  char service[16];
  struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found;
  snprintf(service, sizeof service, "%d", port);
  int rc = getaddrinfo(host, service, &hints, &found);
  if (rc != 0) return tw_fail("RPCError: the host \"%s\" is not known: %s", host, gai_strerror(rc));
  int fd = -1, error = 0;
  for (const struct addrinfo* a = found; a != NULL && fd < 0; a = a->ai_next) {
    fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
    if (fd >= 0 && connect_within(fd, a, seconds) == 0) break;
    error = errno;
    if (fd >= 0) close(fd);
    fd = -1;
  }
  freeaddrinfo(found);
  if (fd < 0) return tw_fail("RPCError: cannot connect to %s:%d: %s", host, port, strerror(error));
  tune(fd);
  return fd;
}

/* Bytes of the channel that are in no packet. */
static int get_plain(RpcChannel* c, void* data, size_t size) {
  c->packet_left = size;
  return rpc_get(c, data, size);
}

/* Fails with the reason that follows a refusal, or with the usual one. */
static int refused(RpcChannel* c, const char* host, int port, const char* key) {
  char reason[MAX_KEY + 1];
  int32_t size;
  if (get_plain(c, &size, sizeof size) == 0 && size > 0 && size <= MAX_KEY && get_plain(c, reason, (size_t)size) == 0) {
    reason[size] = '\0';
    return tw_fail("RPCError: %s:%d refuses: %s", host, port, reason);
  }
  return tw_fail("RPCError: no server at %s:%d has the key \"%s\"", host, port, key);
}

static int shake_hands(RpcChannel* c, const char* host, int port, const char* key) {
  int32_t magic = RPC_MAGIC, size = (int32_t)strlen(key);
  if (rpc_put(c, &magic, sizeof magic) != 0 || rpc_put(c, &size, sizeof size) != 0 ||
      rpc_put(c, key, (size_t)size) != 0 || rpc_flush(c) != 0 || get_plain(c, &magic, sizeof magic) != 0) {
    return -1;
  }
  if (magic == RPC_MAGIC + 1) return tw_fail("RPCError: the key \"%s\" is in use at %s:%d", key, host, port);
  if (magic == RPC_MAGIC + 2) return refused(c, host, port, key);
  if (magic != RPC_MAGIC) return tw_fail("RPCError: %s:%d is no RPC server", host, port);
  char answer[MAX_KEY + 1];
  if (get_plain(c, &size, sizeof size) != 0) return -1;
  if (size < 0 || size > MAX_KEY) return tw_fail("RPCError: %s:%d tells a key of %d bytes", host, port, size);
  if (get_plain(c, answer, (size_t)size) != 0) return -1;
  answer[size] = '\0';
  if (strstr(answer, " -secure=") == NULL) return 0;
  return tw_fail("RPCError: %s:%d refuses: it wants a secret, or to be paired with its clients (tilewright rpc-pair)", host, port);
}

int rpc_connect(const char* host, int port, const char* key, double seconds, RpcChannel** out) {
  int fd = open_connection(host, port, seconds);
  if (fd < 0) return -1;
  RpcChannel* c = rpc_channel_over_fds(fd, fd);
  if (c == NULL) {
    close(fd);
    return -1;
  }
  c->deadline = tw_now() + TURN_SECONDS;
  c->overdue = "RPCError: the server accepted the connection and then said nothing; it may be serving another client";
  if (shake_hands(c, host, port, key) != 0) {
    rpc_channel_free(c);
    return -1;
  }
  c->deadline = 0;
  *out = c;
  return 0;
}

/* ---- programs ---- */
#define MAX_WORDS 64

static void run_program(const char* const* command, int count, int read_fd, int write_fd) {
  char numbers[2][16];
  char* words[MAX_WORDS + 3];
  snprintf(numbers[0], sizeof numbers[0], "%d", read_fd);
  snprintf(numbers[1], sizeof numbers[1], "%d", write_fd);
  for (int i = 0; i < count; ++i) words[i] = (char*)(uintptr_t)command[i];
  words[count] = numbers[0];
  words[count + 1] = numbers[1];
  words[count + 2] = NULL;
  execvp(words[0], words);
  _exit(127);
}

int rpc_start_program(const char* const* command, int count, RpcChannel** out) {
  int to[2], from[2];
  if (count < 1 || count > MAX_WORDS) return tw_fail("RPCError: a command has 1 to %d words, not %d", MAX_WORDS, count);
  if (access(command[0], X_OK) != 0) return tw_fail("RPCError: cannot run %s: %s", command[0], strerror(errno));
  if (pipe(to) != 0) return tw_fail("RPCError: no pipe: %s", strerror(errno));
  if (pipe(from) != 0) {
    close(to[0]);
    close(to[1]);
    return tw_fail("RPCError: no pipe: %s", strerror(errno));
  }
  pid_t child = fork();
  if (child == 0) {
    close(to[1]);
    close(from[0]);
    run_program(command, count, to[0], from[1]);
  }
  close(to[0]);
  close(from[1]);
  fcntl(to[1], F_SETFD, FD_CLOEXEC);
  fcntl(from[0], F_SETFD, FD_CLOEXEC);
  RpcChannel* c = child < 0 ? NULL : rpc_channel_over_fds(from[0], to[1]);
  if (c == NULL) {
    if (child < 0) tw_fail("RPCError: no process: %s", strerror(errno));
    close(to[1]);
    close(from[0]);
    return -1;
  }
  c->child = child;
  *out = c;
  return 0;
}
