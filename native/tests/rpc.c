/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * RPC over a pair of sockets: a server in a thread, TVM 0.8's packets written by hand, and packets that are wrong. */
#include "test.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct {
  int fd; /* the client's end */
  int theirs;
  pthread_t thread;
} Peer;

static void* serve(void* arg) {
  Peer* p = arg;
  TilewrightRpcServe(p->theirs, p->theirs);
  return NULL;
}

static void start(Peer* p) {
  int fds[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
  p->fd = fds[0];
  p->theirs = fds[1];
  CHECK(pthread_create(&p->thread, NULL, serve, p) == 0);
}

static void stop(Peer* p) {
  close(p->fd);
  pthread_join(p->thread, NULL);
}

/* ---- packets ---- */
typedef struct {
  char bytes[512];
  size_t size;
} Packet;

static void add(Packet* p, const void* data, size_t size) {
  CHECK(p->size + size <= sizeof p->bytes);
  memcpy(p->bytes + p->size, data, size);
  p->size += size;
}

static void add32(Packet* p, int32_t value) { add(p, &value, sizeof value); }
static void add64(Packet* p, uint64_t value) { add(p, &value, sizeof value); }
static void add_text(Packet* p, const char* text) {
  add64(p, strlen(text));
  add(p, text, strlen(text));
}

static Packet begin(int32_t code) {
  Packet p = {.size = 0};
  add64(&p, 0);
  add32(&p, code);
  return p;
}

static void finish(Packet* p) {
  uint64_t size = p->size - sizeof size;
  memcpy(p->bytes, &size, sizeof size);
}

enum { CALL = 3, RETURN = 4, EXCEPTION = 5, COPY_FROM = 6, COPY_TO = 7, COPY_ACK = 8, GET_FUNC = 9, FREE = 10, ALLOC = 13 };

static Packet init_packet(void) {
  Packet p = begin(2);
  add_text(&p, "0.8.0");
  add32(&p, 0);
  finish(&p);
  return p;
}

static Packet get_func(const char* name) {
  Packet p = begin(GET_FUNC);
  add32(&p, 1);
  add32(&p, kTVMStr);
  add_text(&p, name);
  finish(&p);
  return p;
}

static Packet alloc_packet(uint64_t nbytes) {
  const DLDataType type = {kDLFloat, 32, 1};
  Packet p = begin(ALLOC);
  add32(&p, 4);
  add32(&p, kDLDevice), add32(&p, kTVMArgInt), add32(&p, kTVMArgInt), add32(&p, kTVMDataType);
  add32(&p, kDLCPU), add32(&p, 0);
  add64(&p, nbytes), add64(&p, 64);
  add(&p, &type, sizeof type), add32(&p, 0);
  finish(&p);
  return p;
}

/* A copy of float32 values from or to memory of the server. */
static Packet copy_packet(int32_t code, uint64_t handle, int64_t count, uint64_t offset, const float* values) {
  const DLDataType type = {kDLFloat, 32, 1};
  Packet p = begin(code);
  add64(&p, handle);
  add32(&p, kDLCPU), add32(&p, 0);
  add32(&p, 1);
  add(&p, &type, sizeof type);
  add64(&p, (uint64_t)count);
  add64(&p, offset);
  add64(&p, (uint64_t)count * sizeof(float));
  if (values != NULL) add(&p, values, (size_t)count * sizeof(float));
  finish(&p);
  return p;
}

static void put(const Peer* peer, const Packet* p) { CHECK(write(peer->fd, p->bytes, p->size) == (ssize_t)p->size); }

static void get(const Peer* peer, void* data, size_t size) {
  for (size_t got = 0; got < size;) {
    ssize_t n = read(peer->fd, (char*)data + got, size - got);
    CHECK(n > 0);
    got += (size_t)n;
  }
}

/* The next packet's code, and in packet what follows it. */
static int32_t answer(const Peer* peer, Packet* packet) {
  uint64_t size;
  int32_t code;
  get(peer, &size, sizeof size);
  CHECK(size >= sizeof code && size - sizeof code <= sizeof packet->bytes);
  get(peer, &code, sizeof code);
  packet->size = size - sizeof code;
  get(peer, packet->bytes, packet->size);
  return code;
}

/* The handle in an answer of one. */
static uint64_t handle_of(const Peer* peer) {
  Packet p;
  int32_t head[2];
  uint64_t handle;
  CHECK(answer(peer, &p) == RETURN);
  memcpy(head, p.bytes, sizeof head);
  CHECK(p.size == 16 && head[0] == 1 && head[1] == kTVMOpaqueHandle);
  memcpy(&handle, p.bytes + sizeof head, sizeof handle);
  return handle;
}

static void refused(const Peer* peer, const char* words) {
  Packet p;
  CHECK(answer(peer, &p) == EXCEPTION);
  p.bytes[p.size < sizeof p.bytes ? p.size : sizeof p.bytes - 1] = '\0';
  CHECK(strstr(p.bytes + 16, words) != NULL);
}

static void send_init(const Peer* peer) {
  Packet p = init_packet();
  put(peer, &p);
  CHECK(answer(peer, &p) == RETURN);
}

/* ---- tests ---- */
static int seven(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  (void)args;
  (void)codes;
  (void)n;
  (void)resource;
  TVMValue value = {.v_int64 = 7};
  int code = kTVMArgInt;
  return TVMCFuncSetReturn(ret, &value, &code, 1);
}

static void test_calls(void) {
  Peer peer;
  start(&peer);
  Packet p = get_func("test.rpc.seven");
  put(&peer, &p);
  refused(&peer, "must initialize");
  send_init(&peer);

  put(&peer, &p);
  const uint64_t f = handle_of(&peer);
  CHECK(f != 0);
  p = begin(CALL);
  add64(&p, f), add32(&p, 0);
  finish(&p);
  put(&peer, &p);
  CHECK(answer(&peer, &p) == RETURN && p.size == 12 + 16);
  int64_t value;
  memcpy(&value, p.bytes + 20, sizeof value);
  CHECK(value == 7);

  p = get_func("test.rpc.nothing of this name");
  put(&peer, &p);
  CHECK(handle_of(&peer) == 0);
  p = begin(CALL);
  add64(&p, f + 1), add32(&p, 0);
  finish(&p);
  put(&peer, &p);
  refused(&peer, "not of this session");
  stop(&peer);
}

static void test_memory(void) {
  const float values[] = {1, 2, 3, 4};
  float back[4];
  Peer peer;
  Packet p;
  start(&peer);
  send_init(&peer);
  p = alloc_packet(sizeof values);
  put(&peer, &p);
  const uint64_t data = handle_of(&peer);
  p = copy_packet(COPY_TO, data, 4, 0, values);
  put(&peer, &p);
  CHECK(answer(&peer, &p) == RETURN);
  p = copy_packet(COPY_FROM, data, 2, 8, NULL);
  put(&peer, &p);
  CHECK(answer(&peer, &p) == COPY_ACK && p.size == 8);
  memcpy(back, p.bytes, 8);
  CHECK(back[0] == 3 && back[1] == 4);

  p = copy_packet(COPY_FROM, data, 4, 4, NULL);
  put(&peer, &p);
  refused(&peer, "outside");
  p = copy_packet(COPY_TO, data, 4, UINT64_MAX - 4, values);
  put(&peer, &p);
  refused(&peer, "outside");
  p = copy_packet(COPY_FROM, 0x7f0000001000, 4, 0, NULL);
  put(&peer, &p);
  refused(&peer, "not of this session");
  p = alloc_packet(UINT64_MAX / 2);
  put(&peer, &p);
  refused(&peer, "memory");
  stop(&peer);
}

/* ---- files ---- */
static char folder[] = "/tmp/tilewright-test-XXXXXX";

static int workpath(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  char path[256];
  TVMValue value = {.v_str = path};
  int code = kTVMStr;
  (void)codes;
  (void)n;
  (void)resource;
  snprintf(path, sizeof path, "%s/%s", folder, args[0].v_str);
  return TVMCFuncSetReturn(ret, &value, &code, 1);
}

static uint64_t find(const Peer* peer, const char* name) {
  Packet p = get_func(name);
  put(peer, &p);
  return handle_of(peer);
}

/* A call with a name, and bytes of which `size` are announced. */
static Packet file_packet(uint64_t function, const char* name, const char* bytes, uint64_t size) {
  Packet p = begin(CALL);
  add64(&p, function);
  add32(&p, bytes == NULL ? 1 : 2), add32(&p, kTVMStr);
  if (bytes != NULL) add32(&p, kTVMBytes);
  add_text(&p, name);
  if (bytes != NULL) add64(&p, size), add(&p, bytes, strlen(bytes));
  finish(&p);
  return p;
}

static void test_files(void) {
  TVMFunctionHandle f;
  Peer peer;
  CHECK(mkdtemp(folder) != NULL);
  OK(TVMFuncCreateFromCFunc(workpath, NULL, NULL, &f));
  OK(TVMFuncRegisterGlobal("tvm.rpc.server.workpath", f, 1));
  TVMFuncFree(f);
  start(&peer);
  send_init(&peer);
  const uint64_t upload = find(&peer, "tvm.rpc.server.upload"), download = find(&peer, "tvm.rpc.server.download");

  Packet p = file_packet(upload, "a", "abc", 3);
  put(&peer, &p);
  CHECK(answer(&peer, &p) == RETURN && p.size == 20 && p.bytes[4] == kTVMArgInt && p.bytes[8] == kTVMNullptr);
  p = file_packet(download, "a", NULL, 0);
  put(&peer, &p);
  CHECK(answer(&peer, &p) == RETURN && p.size == 31 && p.bytes[8] == kTVMBytes && memcmp(p.bytes + 28, "abc", 3) == 0);

  const uint64_t sizes[] = {4, UINT64_MAX};
  for (int i = 0; i < 2; ++i) {
    p = file_packet(upload, "a", "abc", sizes[i]);
    put(&peer, &p);
    refused(&peer, "ends too early");
    p = file_packet(download, "a", NULL, 0);
    put(&peer, &p);
    refused(&peer, "cannot read"); /* what did not come whole is not kept */
  }
  p = file_packet(upload, "a", "abcdef", 3);
  put(&peer, &p);
  CHECK(answer(&peer, &p) == RETURN);
  p = file_packet(find(&peer, "tvm.rpc.server.remove"), "a", NULL, 0);
  put(&peer, &p);
  CHECK(answer(&peer, &p) == RETURN);
  stop(&peer);
  OK(TVMFuncRemoveGlobal("tvm.rpc.server.workpath"));
  CHECK(rmdir(folder) == 0);
}

/* Packets with wrong bytes, sizes that lie, and ends in the middle: the server ends, or answers, and touches nothing else. */
static void test_wrong_packets(void) {
  unsigned random = 12345;
  const float values[] = {1, 2, 3, 4};
  for (int round = 0; round < 400; ++round) {
    Peer peer;
    start(&peer);
    Packet packets[] = {init_packet(), get_func("test.rpc.seven"), alloc_packet(64), copy_packet(COPY_TO, 1, 4, 0, values),
                        copy_packet(COPY_FROM, 1, 4, 0, NULL), begin(CALL)};
    finish(&packets[5]);
    for (int i = 0; i < 6; ++i) {
      Packet* p = &packets[i];
      const int changes = i == 0 ? 0 : (int)((random = random * 1103515245u + 12345u) >> 16) % 4;
      for (int c = 0; c < changes; ++c) {
        random = random * 1103515245u + 12345u;
        const size_t at = (random >> 8) % p->size;
        random = random * 1103515245u + 12345u;
        p->bytes[at] = (char)(random >> 16);
      }
      /* a server that gave up does not read any more; then the write fails */
      if (send(peer.fd, p->bytes, p->size, MSG_NOSIGNAL) < 0) break;
    }
    shutdown(peer.fd, SHUT_WR);
    char sink[4096];
    while (read(peer.fd, sink, sizeof sink) > 0) continue;
    stop(&peer);
  }
}

void test_rpc(void) {
  TVMFunctionHandle f;
  signal(SIGPIPE, SIG_IGN); /* of a server that left */
  OK(TVMFuncCreateFromCFunc(seven, NULL, NULL, &f));
  OK(TVMFuncRegisterGlobal("test.rpc.seven", f, 1));
  TVMFuncFree(f);
  test_calls();
  test_memory();
  test_files();
  test_wrong_packets();
  OK(TVMFuncRemoveGlobal("test.rpc.seven"));
}
