/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * tilewright-rpc-server: serves a board that has no Python to RPC clients. See docs/rpc.md, "A board without Python".
 *
 * One process listens; each session is a child of it, with a folder and limits of its own. The parent ends the child when
 * its time is over or its client is gone, and tells a tracker when the board is free. */
#define _GNU_SOURCE

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <tilewright.h>
#include <time.h>
#include <unistd.h>

#include "hmac.h"

#define MAGIC 0xFF271
#define SECRET_MAGIC 0xFF2A1
#define TRACKER_MAGIC 0x2F271
#define MAX_KEY 512
#define NONCE 32
#define GREETING_SECONDS 5
#define TRACKER_SECONDS 2 /* between two questions to the tracker; also between two attempts to reach it */
#define UNUSED_PERIODS 3  /* so many later, who was given the board and has not come has lost it */
#define GRACE_SECONDS 2   /* for a session to end by itself when its client is gone */

static const char usage[] =
    "usage: tilewright-rpc-server [OPTION]...\n"
    "\n"
    "Serves this machine to RPC clients: they send libraries, which run here.\n"
    "  --host ADDRESS        address to listen on (127.0.0.1)\n"
    "  --port PORT           port to listen on (9091); 0 for any that is free\n"
    "  --key KEY             the kind of board, which clients ask for\n"
    "  --tracker HOST:PORT   tell this tracker when the board is free\n"
    "  --custom-addr ADDRESS address that the tracker gives to clients, if not the one it sees\n"
    "  --secret SECRET       what clients must know; or in TILEWRIGHT_RPC_SECRET\n"
    "  --insecure            serve everyone who reaches the address, without a secret\n"
    "  --memory MIB          memory that a session may take\n"
    "  --seconds N           the longest that a session may last\n";

static struct {
  const char *host, *port, *key, *tracker, *custom, *secret;
  bool insecure;
  long memory, seconds;
} options = {.host = "127.0.0.1", .port = "9091", .key = ""};

static _Noreturn void die(const char* format, ...) {
  va_list args;
  va_start(args, format);
  fputs("tilewright-rpc-server: ", stderr);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
  exit(1);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void random_bytes(void* out, size_t size) {
  if (getrandom(out, size, 0) != (ssize_t)size) die("no random numbers: %s", strerror(errno));
}

/* ---- sockets ---- */
static void tune(int fd) {
  const struct timeval limit = {.tv_sec = GREETING_SECONDS};
  const int on = 1, idle = 2, interval = 1, count = 2, user = 4000;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user, sizeof user);
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

static bool get(int fd, void* data, size_t size) {
  for (size_t got = 0; got < size;) {
    ssize_t n = read(fd, (char*)data + got, size - got);
    if (n <= 0 && !(n < 0 && errno == EINTR)) return false;
    if (n > 0) got += (size_t)n;
  }
  return true;
}

static bool put(int fd, const void* data, size_t size) {
  for (size_t sent = 0; sent < size;) {
    ssize_t n = send(fd, (const char*)data + sent, size - sent, MSG_NOSIGNAL);
    if (n <= 0 && !(n < 0 && errno == EINTR)) return false;
    if (n > 0) sent += (size_t)n;
  }
  return true;
}

static bool put32(int fd, int32_t value) { return put(fd, &value, sizeof value); }

static bool is_loopback(const char* host) { return strncmp(host, "127.", 4) == 0 || strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0; }

static struct addrinfo* look_up(const char* host, const char* port, int flags) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags}, *found = NULL;
  return getaddrinfo(host, port, &hints, &found) == 0 ? found : NULL;
}

static int listen_on(const char* host, const char* port, int* number) {
  struct addrinfo* a = look_up(host, port, AI_PASSIVE);
  if (a == NULL) die("the address %s is not known", host);
  const int on = 1;
  int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (fd < 0 || bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, 64) != 0) {
    die("cannot listen on %s:%s: %s", host, port, strerror(errno));
  }
  freeaddrinfo(a);
  struct sockaddr_storage bound;
  socklen_t size = sizeof bound;
  getsockname(fd, (struct sockaddr*)&bound, &size);
  *number = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6*)&bound)->sin6_port : ((struct sockaddr_in*)&bound)->sin_port);
  return fd;
}

/* ---- the tracker ---- */
static struct {
  int fd; /* -1: not connected */
  double next;
  bool offered; /* under match_key */
  int missing;
  char match_key[MAX_KEY];
} tracker = {.fd = -1};

static void new_match_key(void) {
  uint8_t bytes[8];
  random_bytes(bytes, sizeof bytes);
  int n = snprintf(tracker.match_key, sizeof tracker.match_key, "%s:", options.key);
  for (size_t i = 0; i < sizeof bytes; ++i) n += sprintf(tracker.match_key + n, "%02x", bytes[i]);
}

/* Sends a message and reads the answer's text. */
static bool ask_tracker(char* answer, size_t room, const char* format, ...) {
  char text[2 * MAX_KEY + 256];
  int32_t size;
  va_list args;
  va_start(args, format);
  int n = vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (n < 0 || (size_t)n >= sizeof text || !put32(tracker.fd, n) || !put(tracker.fd, text, (size_t)n)) return false;
  if (!get(tracker.fd, &size, sizeof size) || size < 0 || (size_t)size >= room || !get(tracker.fd, answer, (size_t)size)) return false;
  answer[size] = '\0';
  return true;
}

static void leave_tracker(void) {
  if (tracker.fd >= 0) close(tracker.fd);
  tracker.fd = -1;
  tracker.offered = false;
}

static bool join_tracker(int port) {
  char host[256], answer[64];
  const char* colon = strrchr(options.tracker, ':');
  if (colon == NULL) die("--tracker takes HOST:PORT, not %s", options.tracker);
  snprintf(host, sizeof host, "%.*s", (int)(colon - options.tracker), options.tracker);
  struct addrinfo* a = look_up(host, colon + 1, 0);
  if (a == NULL) return false;
  int32_t magic;
  tracker.fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  tune(tracker.fd);
  bool ok = connect(tracker.fd, a->ai_addr, a->ai_addrlen) == 0 && put32(tracker.fd, TRACKER_MAGIC) &&
            get(tracker.fd, &magic, sizeof magic) && magic == TRACKER_MAGIC;
  freeaddrinfo(a);
  const char* quote = options.custom == NULL ? "" : "\"";
  return ok && ask_tracker(answer, sizeof answer, "[5, {\"key\": \"server:%s\", \"addr\": [%s%s%s, %d]}]", options.key, quote,
                           options.custom == NULL ? "null" : options.custom, quote, port);
}

/* Keeps the tracker informed while the board is free. */
static void tend_tracker(int port) {
  char answer[4096];
  const char* quote = options.custom == NULL ? "" : "\"";
  if (options.tracker == NULL || now() < tracker.next) return;
  tracker.next = now() + TRACKER_SECONDS;
  bool ok = tracker.fd >= 0 || join_tracker(port);
  if (ok && !tracker.offered) {
    new_match_key();
    ok = tracker.offered = ask_tracker(answer, sizeof answer, "[3, \"%s\", [%d, \"%s\"], %s%s%s]", options.key, port, tracker.match_key,
                                       quote, options.custom == NULL ? "null" : options.custom, quote);
    tracker.missing = 0;
  } else if (ok) {
    ok = ask_tracker(answer, sizeof answer, "[7]");
    tracker.missing = strstr(answer, tracker.match_key) != NULL ? 0 : tracker.missing + 1;
    if (tracker.missing > UNUSED_PERIODS) tracker.offered = false;
  }
  if (!ok) leave_tracker();
}

/* ---- greetings ---- */
static void refuse(int fd, const char* reason) {
  const int32_t size = (int32_t)strlen(reason);
  if (put32(fd, MAGIC + 2) && size != 0 && put32(fd, size)) put(fd, reason, (size_t)size);
}

/* Lets a client that knows the secret go on; see src/tilewright/rpc/security.py. */
static bool prove(int fd, const char* key) {
  uint8_t nonce[NONCE], own[NONCE], proof[SHA256_SIZE], theirs[SHA256_SIZE], differ = 0;
  if (options.secret == NULL) return true;
  const char* offers = strstr(key, " -secure=");
  const char* offer = offers == NULL ? NULL : strstr(offers + 1, "hmac1");
  if (offer == NULL || strcspn(offers + 1, " ") < (size_t)(offer - offers)) {
    refuse(fd, "it wants the secret that it was started with: secret=, or TILEWRIGHT_RPC_SECRET");
    return false;
  }
  random_bytes(own, sizeof own);
  if (!put32(fd, SECRET_MAGIC) || !put32(fd, 1) || !get(fd, nonce, sizeof nonce)) return false;
  hmac_sha256(options.secret, "server", 6, nonce, NONCE, own, NONCE, proof);
  if (!put(fd, own, sizeof own) || !put(fd, proof, sizeof proof) || !get(fd, theirs, sizeof theirs)) return false;
  hmac_sha256(options.secret, "client", 6, nonce, NONCE, own, NONCE, proof);
  for (int i = 0; i < SHA256_SIZE; ++i) differ |= (uint8_t)(proof[i] ^ theirs[i]);
  return differ == 0;
}

/* Whether the client may come; *seconds is how long it may stay (0: as long as it likes). */
static bool greet(int fd, double* seconds) {
  char key[MAX_KEY], expected[MAX_KEY + 16], answer[MAX_KEY + 16];
  int32_t magic, size;
  if (!get(fd, &magic, sizeof magic) || magic != MAGIC || !get(fd, &size, sizeof size)) return false;
  if (size < 0 || size >= MAX_KEY || !get(fd, key, (size_t)size)) return false;
  key[size] = '\0';
  if (!prove(fd, key)) return false;
  snprintf(expected, sizeof expected, "client:%s", options.tracker == NULL ? options.key : tracker.match_key);
  const size_t length = strcspn(key, " ");
  if (length != strlen(expected) || strncmp(key, expected, length) != 0 || (options.tracker != NULL && !tracker.offered)) {
    refuse(fd, "");
    return false;
  }
  const char* timeout = strstr(key, "-timeout=");
  *seconds = timeout == NULL ? 0 : strtod(timeout + strlen("-timeout="), NULL);
  if (options.seconds > 0 && (*seconds <= 0 || *seconds > (double)options.seconds)) *seconds = (double)options.seconds;
  int n = snprintf(answer, sizeof answer, "server:%s", options.key);
  return put32(fd, MAGIC) && put32(fd, n) && put(fd, answer, (size_t)n);
}

/* ---- sessions ---- */
static char folder[256]; /* of the session's files */

static int workpath(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  char path[1024];
  TVMValue value = {.v_str = path};
  int code = kTVMStr;
  (void)resource;
  if (n < 1 || codes[0] != kTVMStr) return -1;
  snprintf(path, sizeof path, "%s/%s", folder, args[0].v_str);
  return TVMCFuncSetReturn(ret, &value, &code, 1);
}

static int load_module(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  char path[1024];
  TVMValue value;
  int code = kTVMModuleHandle;
  (void)resource;
  if (n < 1 || codes[0] != kTVMStr) return -1;
  snprintf(path, sizeof path, "%s/%s", folder, args[0].v_str);
  if (TVMModLoadFromFile(path, "so", &value.v_handle) != 0) return -1;
  int rc = TVMCFuncSetReturn(ret, &value, &code, 1);
  TVMModFree(value.v_handle);
  return rc;
}

static void add_function(const char* name, TVMPackedCFunc function) {
  TVMFunctionHandle f;
  if (TVMFuncCreateFromCFunc(function, NULL, NULL, &f) != 0 || TVMFuncRegisterGlobal(name, f, 1) != 0) die("%s", TVMGetLastError());
  TVMFuncFree(f);
}

static _Noreturn void run_session(int fd) {
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGTERM, SIG_DFL);
  signal(SIGPIPE, SIG_IGN);
  if (options.memory > 0) {
    const struct rlimit limit = {(rlim_t)options.memory << 20, (rlim_t)options.memory << 20};
    setrlimit(RLIMIT_AS, &limit);
  }
  add_function("tvm.rpc.server.workpath", workpath);
  add_function("tvm.rpc.server.load_module", load_module);
  if (TilewrightRpcServe(fd, fd) == 0) _exit(0);
  fprintf(stderr, "tilewright-rpc-server: a session ended: %s\n", TVMGetLastError());
  _exit(1);
}

static void remove_folder(void) {
  DIR* dir = opendir(folder);
  for (struct dirent* e; dir != NULL && (e = readdir(dir)) != NULL;) {
    if (e->d_name[0] != '.') unlinkat(dirfd(dir), e->d_name, 0);
  }
  if (dir != NULL) closedir(dir);
  rmdir(folder);
}

/* Whether the client has closed its side; *lost is set when it cannot even get an answer. */
static bool is_gone(int fd, bool* lost) {
  struct pollfd p = {.fd = fd, .events = POLLRDHUP};
  if (poll(&p, 1, 0) <= 0) return false;
  *lost = (p.revents & POLLERR) != 0;
  return true;
}

static volatile sig_atomic_t stopping;

static void stop(int number) {
  (void)number;
  stopping = 1;
}

/* Serves a client in a child, and returns when that has ended. */
static void serve(int fd, double seconds) {
  const struct timeval forever = {0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &forever, sizeof forever);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &forever, sizeof forever);
  const char* temporary = getenv("TMPDIR");
  snprintf(folder, sizeof folder, "%s/tilewright-rpc-XXXXXX", temporary == NULL ? "/tmp" : temporary);
  if (mkdtemp(folder) == NULL) die("cannot make the folder %s: %s", folder, strerror(errno));
  const double start = now();
  double gone = 0;
  const pid_t child = fork();
  if (child == 0) run_session(fd);
  if (child < 0) fprintf(stderr, "tilewright-rpc-server: no process for a session: %s\n", strerror(errno));
  while (child > 0 && waitpid(child, NULL, WNOHANG) == 0) {
    bool lost = false;
    if (is_gone(fd, &lost) && gone == 0) gone = now();
    const bool over = seconds > 0 && now() - start > seconds;
    if (over || stopping || lost || (gone != 0 && now() - gone > GRACE_SECONDS)) {
      kill(child, SIGKILL); /* before it made its own group */
      kill(-child, SIGKILL);
      waitpid(child, NULL, 0);
      break;
    }
    const struct timespec pause = {0, now() - start < 1 ? 20000000 : 100000000};
    nanosleep(&pause, NULL);
  }
  close(fd);
  remove_folder();
}

static void accept_one(int listening) {
  double seconds;
  int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
  if (fd < 0) return;
  tune(fd);
  if (!greet(fd, &seconds)) {
    close(fd);
    return;
  }
  serve(fd, seconds);
  tracker.offered = false; /* the next client gets another key */
  tracker.next = 0;
}

static const char* value_of(char** argv, int* i) {
  if (argv[*i + 1] == NULL) die("%s takes a value; see --help", argv[*i]);
  return argv[++*i];
}

static void read_options(char** argv) {
  for (int i = 1; argv[i] != NULL; ++i) {
    const char* name = argv[i];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
      fputs(usage, stdout);
      exit(0);
    }
    if (strcmp(name, "--host") == 0) options.host = value_of(argv, &i);
    else if (strcmp(name, "--port") == 0) options.port = value_of(argv, &i);
    else if (strcmp(name, "--key") == 0) options.key = value_of(argv, &i);
    else if (strcmp(name, "--tracker") == 0) options.tracker = value_of(argv, &i);
    else if (strcmp(name, "--custom-addr") == 0) options.custom = value_of(argv, &i);
    else if (strcmp(name, "--secret") == 0) options.secret = value_of(argv, &i);
    else if (strcmp(name, "--insecure") == 0) options.insecure = true;
    else if (strcmp(name, "--memory") == 0) options.memory = strtol(value_of(argv, &i), NULL, 10);
    else if (strcmp(name, "--seconds") == 0) options.seconds = strtol(value_of(argv, &i), NULL, 10);
    else die("there is no option %s; see --help", name);
  }
  if (options.secret == NULL) options.secret = getenv("TILEWRIGHT_RPC_SECRET");
  if (strlen(options.key) > MAX_KEY / 2 || strpbrk(options.key, "\"\\ ") != NULL) die("a key is a word of at most %d bytes", MAX_KEY / 2);
  if (options.secret == NULL && !options.insecure && !is_loopback(options.host)) {
    die("a server on %s without a secret lets everyone who reaches it run programs on this machine; give --secret, or "
        "--insecure in a network that you trust", options.host);
  }
}

int main(int argc, char** argv) {
  (void)argc;
  read_options(argv);
  const struct sigaction stops = {.sa_handler = stop};
  sigaction(SIGTERM, &stops, NULL);
  sigaction(SIGINT, &stops, NULL);
  signal(SIGPIPE, SIG_IGN);
  int port;
  const int listening = listen_on(options.host, options.port, &port);
  printf("serving on %s:%d%s\n", options.host, port, options.secret == NULL ? "" : ", for clients that know the secret");
  fflush(stdout);
  while (!stopping) {
    tend_tracker(port);
    struct pollfd p = {.fd = listening, .events = POLLIN};
    if (poll(&p, 1, options.tracker == NULL ? -1 : 200) > 0) accept_one(listening);
  }
  return 0;
}
