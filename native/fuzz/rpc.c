/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The bytes are what the other side of a channel sends. Whatever the other side of a channel sends, it is answered or the session ends: no memory is read or written that is not
 * the session's. An input is a byte (bit 0: this side is the client; bit 1: no packet that begins a session comes first) and
 * packets: u8 code, u16 size, contents. Code 255 stands for bytes that are in no packet. */
#include <string.h>

#include "../src/rpc/rpc.h"

#define RAW 255

/* The bytes that this side receives. */
static struct {
  char bytes[1 << 16];
  size_t size, at;
} input;

static void add(const void* data, size_t size) {
  if (size > sizeof input.bytes - input.size) size = sizeof input.bytes - input.size;
  memcpy(input.bytes + input.size, data, size);
  input.size += size;
}

static void add_packet(int32_t code, const void* data, size_t size) {
  const uint64_t nbytes = sizeof code + size;
  if (code != RAW) {
    add(&nbytes, sizeof nbytes);
    add(&code, sizeof code);
  }
  add(data, size);
}

static void read_input(const uint8_t* data, size_t size) {
  static const char start[] = "\5\0\0\0\0\0\0\0000.8.0\0\0\0"; /* the version's size and text, and no arguments */
  input.size = input.at = 0;
  if ((data[0] & 3) == 0) add_packet(RPC_INIT_SERVER, start, sizeof start);
  for (size_t at = 1; at + 3 <= size;) {
    size_t part = (size_t)data[at + 1] | (size_t)data[at + 2] << 8, most = size - at - 3;
    if (part > most) part = most;
    add_packet(data[at], data + at + 3, part);
    at += 3 + part;
  }
}

static int take(void* context, void* data, size_t least, size_t most, size_t* received) {
  const size_t left = input.size - input.at;
  (void)context;
  (void)least;
  *received = left < most ? left : most;
  memcpy(data, input.bytes + input.at, *received);
  input.at += *received;
  return 0;
}

static int drop(void* context, const void* data, size_t size) {
  (void)context;
  (void)data;
  (void)size;
  return 0;
}

static void forget(void* context) { (void)context; }

/* fuzz.apply(f, arguments ...) gives f(arguments ...); fuzz.keep(x) gives x. */
static int apply(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  TwReturn* r = ret;
  (void)resource;
  if (n < 1 || codes[0] != kTVMPackedFuncHandle) return tw_fail("a function is needed");
  return TVMFuncCall(args[0].v_handle, args + 1, codes + 1, n - 1, &r->value, &r->code);
}

static int keep(TVMValue* args, int* codes, int n, TVMRetValueHandle ret, void* resource) {
  (void)resource;
  if (n < 1 || codes[0] == kTVMDLTensorHandle) return tw_fail("an argument is needed");
  return TVMCFuncSetReturn(ret, args, codes, 1);
}

static TwFunc* function_of(TVMPackedCFunc call) {
  TVMFunctionHandle f;
  if (TVMFuncCreateFromCFunc(call, NULL, NULL, &f) != 0) abort();
  return f;
}

static void add_global(const char* name, TVMPackedCFunc call) {
  TwFunc* f = function_of(call);
  if (TVMFuncRegisterGlobal(name, f, 1) != 0) abort();
  tw_func_release(f);
}

/* What starts programs, opens connections and files, or runs for as long as it is told to. */
static const char* const outside[] = {"rpc.CreatePipeClient", "rpc.Connect", "rpc.ConnectFd", "rpc.ServerLoop",
                                      "runtime.module.loadfile_so", "runtime.RPCTimeEvaluator", "runtime.config_threadpool"};

int LLVMFuzzerInitialize(int* argc, char*** argv);
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int LLVMFuzzerInitialize(int* argc, char*** argv) {
  (void)argc;
  (void)argv;
  for (size_t i = 0; i < sizeof outside / sizeof outside[0]; ++i) TVMFuncRemoveGlobal(outside[i]);
  add_global("fuzz.apply", apply);
  add_global("fuzz.keep", keep);
  return 0;
}

static RpcChannel* channel(void) {
  static const TilewrightRpcCallbacks callbacks = {drop, take, forget};
  RpcChannel* c = rpc_channel_over_callbacks(&callbacks, NULL);
  if (c == NULL) abort();
  return c;
}

/* A client whose server says what the input says. */
static void call(TwFunc* f, TwFunc* callback, int i) {
  TVMValue values[] = {{.v_int64 = i}, {.v_handle = callback}}, value;
  int codes[] = {kTVMArgInt, i == 0 ? kTVMNullptr : kTVMPackedFuncHandle}, code;
  float numbers[16];
  size_t size;
  if (TVMFuncCall(f, values, codes, 2, &value, &code) != 0) return;
  if (code == kTVMNDArrayHandle) {
    const DLTensor* t = &((TwArray*)value.v_handle)->tensor;
    if (tw_tensor_bytes(t->ndim, t->shape, t->dtype, &size) && size <= sizeof numbers) {
      TVMArrayCopyToBytes(value.v_handle, numbers, size);
    }
  }
  tw_drop_value(value, code);
}

static void run_client(void) {
  RpcSession* session = rpc_client_session(channel());
  TwModule* module = session == NULL ? NULL : rpc_session_module(session);
  TwFunc *f = NULL, *callback = function_of(keep);
  if (module == NULL) abort();
  if (rpc_client_init(session, NULL, NULL, 0) == 0 && tw_module_find(module, "f", false, &f) == 0 && f != NULL) {
    for (int i = 0; i < 4; ++i) call(f, callback, i);
  }
  tw_func_release(f);
  tw_func_release(callback);
  tw_module_release(module);
  rpc_session_release(session);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  read_input(data, size);
  if ((data[0] & 1) != 0) run_client();
  else rpc_serve(channel());
  tw_clear_error();
  return 0;
}
