/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The server: requests one after another, each answered before the next is read. What a request says about sizes is compared
 * with what there is room for before its bytes are taken. */
#include <string.h>

#include "board_rpc.h"

#define PROTOCOL "0.8.0"
#define MODULE_HANDLE 1
#define MAX_NDIM 16

enum {
  NONE, SHUTDOWN, INIT_SERVER, CALL_FUNC, RETURN, EXCEPTION, COPY_FROM_REMOTE, COPY_TO_REMOTE, COPY_ACK, GET_GLOBAL_FUNC,
  FREE_HANDLE, SET_DEVICE, GET_ATTR, ALLOC_DATA, FREE_DATA, STREAM_SYNC, COPY_AMONG_REMOTE, ALLOC_DATA_WITH_SCOPE,
  CREATE_STREAM, FREE_STREAM, SET_STREAM
};

enum { OK = 0, FAILED = -1, LOST = -2 };

static uint64_t left; /* bytes of the packet that were not read yet */
static int ends;      /* the client asked for the end */
static TVMValue values[BOARD_RPC_ARGUMENTS];
static int codes[BOARD_RPC_ARGUMENTS];
static int count;
static union {
  char bytes[BOARD_RPC_PACKET_BYTES];
  int64_t alignment;
} room; /* texts and descriptions of arrays */
static size_t taken;

/* ---- reading ---- */
static int get(void* to, uint64_t size) {
  if (size > left) return BoardFail("RPCError: a packet ends too early", "");
  left -= size;
  return BoardFrameRead(to, (size_t)size) == 0 ? OK : LOST;
}

static int skip_rest(void) {
  char skipped[64];
  int rc = OK;
  while (left != 0 && rc == OK) rc = get(skipped, left < sizeof skipped ? left : sizeof skipped);
  return rc;
}

static void* take(uint64_t size) {
  const size_t begin = (taken + 7) & ~(size_t)7;
  if (size > sizeof room - begin) {
    BoardFail("RPCError: a packet is too large for the board (BOARD_RPC_PACKET_BYTES)", "");
    return NULL;
  }
  taken = begin + (size_t)size;
  return room.bytes + begin;
}

static int get_text(TVMValue* value, int code) {
  uint64_t size;
  int rc = get(&size, sizeof size);
  if (rc != OK) return rc;
  char* text = size > sizeof room ? take(size) : take(size + 1);
  TVMByteArray* bytes = take(sizeof *bytes);
  if (text == NULL || bytes == NULL) return FAILED;
  if ((rc = get(text, size)) != OK) return rc;
  text[size] = 0;
  *bytes = (TVMByteArray){text, (size_t)size};
  if (code == kTVMStr) value->v_str = text;
  else value->v_handle = bytes;
  return OK;
}

static int get_tensor(DLTensor** out) {
  uint64_t handle;
  int rc;
  DLTensor* t = take(sizeof *t);
  if (t == NULL) return FAILED;
  memset(t, 0, sizeof *t);
  if ((rc = get(&handle, sizeof handle)) != OK || (rc = get(&t->device, sizeof t->device)) != OK ||
      (rc = get(&t->ndim, sizeof t->ndim)) != OK || (rc = get(&t->dtype, sizeof t->dtype)) != OK) {
    return rc;
  }
  if (t->ndim < 0 || t->ndim > MAX_NDIM) return BoardFail("RPCError: an array has too many dimensions", "");
  t->data = (void*)(uintptr_t)handle;
  t->shape = take((uint64_t)t->ndim * sizeof *t->shape);
  if (t->shape == NULL) return FAILED;
  if ((rc = get(t->shape, (uint64_t)t->ndim * sizeof *t->shape)) != OK) return rc;
  *out = t;
  return get(&t->byte_offset, sizeof t->byte_offset);
}

static int get_value(TVMValue* value, int code) {
  DLTensor* t = NULL;
  int rc;
  value->v_int64 = 0;
  switch (code) {
    case kTVMNullptr: return OK;
    case kTVMStr:
    case kTVMBytes: return get_text(value, code);
    case kTVMDLTensorHandle:
      rc = get_tensor(&t);
      value->v_handle = t;
      return rc;
    default: return code >= 0 && code <= kTVMPackedFuncHandle && code != kTVMObjectHandle
                        ? get(value, sizeof *value)
                        : BoardFail("RPCError: a value has a type that boards do not know", "");
  }
}

/* The arguments of the request. */
static int get_sequence(void) {
  int32_t n;
  int rc = get(&n, sizeof n);
  taken = 0;
  if (rc != OK) return rc;
  if (n < 0 || n > BOARD_RPC_ARGUMENTS) return BoardFail("RPCError: too many arguments (BOARD_RPC_ARGUMENTS)", "");
  count = n;
  rc = get(codes, (uint64_t)n * sizeof *codes);
  for (int i = 0; rc == OK && i < n; ++i) rc = get_value(&values[i], codes[i]);
  return rc == OK ? skip_rest() : rc;
}

/* ---- answering ---- */
static int put(const void* from, size_t size) { return size == 0 || BoardFrameWrite(from, size) == 0 ? OK : LOST; }

static int put_head(int32_t code, uint64_t size) {
  size += sizeof code;
  return put(&size, sizeof size) != OK ? LOST : put(&code, sizeof code);
}

static uint64_t text_size(const TVMValue* value, int code) {
  if (code == kTVMNullptr) return 0;
  if (code == kTVMStr) return sizeof(uint64_t) + strlen(value->v_str);
  return code == kTVMBytes ? sizeof(uint64_t) + ((const TVMByteArray*)value->v_handle)->size : sizeof *value;
}

static int put_value(const TVMValue* value, int code) {
  if (code == kTVMNullptr) return OK;
  if (code != kTVMStr && code != kTVMBytes) return put(value, sizeof *value);
  const char* text = code == kTVMStr ? value->v_str : ((const TVMByteArray*)value->v_handle)->data;
  const uint64_t size = text_size(value, code) - sizeof size;
  return put(&size, sizeof size) != OK ? LOST : put(text, (size_t)size);
}

static int answer(int32_t packet, int n, const TVMValue* given, const int* given_codes) {
  uint64_t size = sizeof(int32_t) + (uint64_t)n * sizeof(int32_t);
  for (int i = 0; i < n; ++i) size += text_size(&given[i], given_codes[i]);
  if (put_head(packet, size) != OK || put(&n, sizeof(int32_t)) != OK || put(given_codes, (size_t)n * sizeof(int32_t)) != OK) {
    return LOST;
  }
  for (int i = 0; i < n; ++i) {
    if (put_value(&given[i], given_codes[i]) != OK) return LOST;
  }
  return OK;
}

static int answer_one(int64_t number, int code) {
  const TVMValue value = {.v_int64 = number};
  return answer(RETURN, 1, &value, &code);
}

static int answer_nothing(void) { return answer_one(0, kTVMNullptr); }

static int answer_failure(void) {
  const TVMValue value = {.v_str = TVMGetLastError()};
  const int code = kTVMStr;
  return skip_rest() != OK ? LOST : answer(EXCEPTION, 1, &value, &code);
}

/* ---- requests ---- */
static uint64_t bytes_of(const DLTensor* t) {
  uint64_t size = (uint64_t)(t->dtype.bits * t->dtype.lanes + 7) / 8;
  for (int i = 0; i < t->ndim; ++i) {
    if (t->shape[i] < 0 || (t->shape[i] != 0 && size > ((uint64_t)1 << 62) / (uint64_t)t->shape[i])) return UINT64_MAX;
    size *= (uint64_t)t->shape[i];
  }
  return size;
}

static char* data_of(const DLTensor* t) { return (char*)t->data + t->byte_offset; }

static int check_place(const DLTensor* t, uint64_t size) {
  return BoardHeapHolds(data_of(t), size) ? OK : BoardFail("RPCError: an array is not in memory that the board has given", "");
}

static int init_server(void) {
  char version[16];
  uint64_t size;
  int rc = get(&size, sizeof size);
  if (rc != OK) return rc;
  if (size > sizeof version) return BoardFail("RPCError: the client tells no version of the protocol", "");
  if ((rc = get(version, size)) != OK) return rc;
  if (size != strlen(PROTOCOL) || memcmp(version, PROTOCOL, (size_t)size) != 0) {
    return BoardFail("RPCError: the board speaks another version of the protocol: ", PROTOCOL);
  }
  if ((rc = get_sequence()) != OK) return rc;
  return count == 0 ? answer_nothing() : BoardFail("RPCError: a board makes no sessions of other servers", "");
}

static int allocate(uint64_t size) {
  void* block = size > SIZE_MAX ? NULL : BoardHeapAllocate((size_t)size);
  if (block == NULL) return BoardFail("RPCError: the board has no room for the array", "");
  return answer_one((int64_t)(uintptr_t)block, kTVMOpaqueHandle);
}

static int copy_to(void) {
  DLTensor* t;
  uint64_t size;
  int rc;
  taken = 0;
  if ((rc = get_tensor(&t)) != OK || (rc = get(&size, sizeof size)) != OK || (rc = check_place(t, size)) != OK) return rc;
  if ((rc = get(data_of(t), size)) != OK) return rc;
  return answer_nothing();
}

static int copy_from(void) {
  DLTensor* t;
  uint64_t size;
  int rc;
  taken = 0;
  if ((rc = get_tensor(&t)) != OK || (rc = get(&size, sizeof size)) != OK || (rc = check_place(t, size)) != OK) return rc;
  return put_head(COPY_ACK, size) != OK ? LOST : put(data_of(t), (size_t)size);
}

static int copy_among(void) {
  if (count < 2 || codes[0] != kTVMDLTensorHandle || codes[1] != kTVMDLTensorHandle) {
    return BoardFail("RPCError: a copy takes two arrays", "");
  }
  const DLTensor *from = values[0].v_handle, *to = values[1].v_handle;
  const uint64_t size = bytes_of(from);
  if (size != bytes_of(to)) return BoardFail("RPCError: the arrays of a copy differ in size", "");
  if (check_place(from, size) != OK || check_place(to, size) != OK) return FAILED;
  memmove(data_of(to), data_of(from), (size_t)size);
  return answer_nothing();
}

/* The arrays among the arguments of a call are in memory that the board has given; they begin at their data. */
static int check_arguments(void) {
  for (int i = 0; i < count; ++i) {
    DLTensor* t = values[i].v_handle;
    if (codes[i] != kTVMDLTensorHandle) continue;
    if (check_place(t, bytes_of(t)) != OK) return FAILED;
    t->data = data_of(t);
    t->byte_offset = 0;
  }
  return OK;
}

static int call_function(void) {
  uint64_t handle;
  uint32_t measure;
  TVMValue result[2] = {{.v_int64 = 0}, {.v_int64 = 0}};
  int result_codes[2] = {kTVMArgInt, kTVMNullptr};
  int rc = get(&handle, sizeof handle);
  if (rc != OK || (rc = get_sequence()) != OK || (rc = check_arguments()) != OK) return rc;
  if (BoardIsMeasure(handle, &measure)) {
    rc = BoardMeasure(measure, values, codes, count, &result[1], &result_codes[1]);
  } else {
    const BoardFunction* f = BoardFunctionOf(handle);
    if (f == NULL) return BoardFail("RPCError: a function is called that there is not", "");
    BoardFail("", "");
    rc = f->call(values, codes, count, &result[1], &result_codes[1], NULL);
    if (ends) return LOST;
    if (rc != 0 && *TVMGetLastError() == 0) BoardFail("the function fails: ", f->name);
  }
  if (rc != 0) return FAILED;
  result[0].v_int64 = result_codes[1];
  return answer(RETURN, 2, result, result_codes);
}

static int request(int32_t code) {
  int rc = get_sequence();
  if (rc != OK) return rc;
  switch (code) {
    case GET_GLOBAL_FUNC:
      return count == 1 && codes[0] == kTVMStr ? answer_one(BoardFindFunction(values[0].v_str), kTVMOpaqueHandle)
                                               : BoardFail("RPCError: a function is found by its name", "");
    case GET_ATTR: /* that the device is there is what there is to say */
      return count == 2 && values[1].v_int64 == 0 ? answer_one(1, kTVMArgInt) : answer_nothing();
    case ALLOC_DATA:
      return count == 4 ? allocate((uint64_t)values[1].v_int64) : BoardFail("RPCError: memory is asked for by four values", "");
    case ALLOC_DATA_WITH_SCOPE:
      return count == 2 && codes[0] == kTVMDLTensorHandle ? allocate(bytes_of(values[0].v_handle))
                                                          : BoardFail("RPCError: memory is asked for by an array", "");
    case FREE_DATA:
      if (count == 2 && BoardHeapFree(values[1].v_handle) == 0) return answer_nothing();
      return BoardFail("RPCError: what is freed is no array of the board", "");
    case COPY_AMONG_REMOTE: return copy_among();
    case FREE_HANDLE:
    case SET_DEVICE:
    case STREAM_SYNC:
    case CREATE_STREAM:
    case FREE_STREAM:
    case SET_STREAM: return answer_nothing();
    default: return BoardFail("RPCError: boards do not know the request", "");
  }
}

static int handle(int32_t code) {
  switch (code) {
    case INIT_SERVER: return init_server();
    case CALL_FUNC: return call_function();
    case COPY_TO_REMOTE: return copy_to();
    case COPY_FROM_REMOTE: return copy_from();
    default: return request(code);
  }
}

/* ---- functions of the server ---- */
static int system_library(TVMValue* args, int* args_codes, int n, TVMValue* ret, int* ret_code, void* resource) {
  (void)args, (void)args_codes, (void)n, (void)resource;
  ret->v_int64 = MODULE_HANDLE;
  *ret_code = kTVMModuleHandle;
  return 0;
}

/* tvm.rpc.server.ModuleGetFunction(module, name, whether to look into its imports) */
static int module_function(TVMValue* args, int* args_codes, int n, TVMValue* ret, int* ret_code, void* resource) {
  (void)resource;
  if (n != 3 || args_codes[1] != kTVMStr) return BoardFail("a module's function is found by its name", "");
  ret->v_int64 = BoardFindFunction(args[1].v_str);
  *ret_code = ret->v_int64 == 0 ? kTVMNullptr : kTVMPackedFuncHandle;
  return 0;
}

static int reset(TVMValue* args, int* args_codes, int n, TVMValue* ret, int* ret_code, void* resource) {
  (void)args, (void)args_codes, (void)n, (void)ret, (void)ret_code, (void)resource;
  ends = 1;
  return 0;
}

static void register_all(const BoardFunction* functions) {
  for (; functions->name != NULL; ++functions) {
    void* address;
    memcpy(&address, &functions->call, sizeof address);
    TVMFuncRegisterGlobal(functions->name, address, 1);
  }
}

void BoardRpcServe(void) {
  static const BoardFunction own[] = {{"runtime.SystemLib", system_library},
                                      {"tvm.rpc.server.ModuleGetFunction", module_function},
                                      {"tvm.testing.reset_server", reset},
                                      {NULL, NULL}};
  int32_t code;
  int rc = OK;
  register_all(own);
  register_all(board_timing_functions);
  while (rc != LOST && BoardFrameRead(&left, sizeof left) == 0) {
    if (left < sizeof code) continue;
    if (get(&code, sizeof code) != OK || code == NONE || code == SHUTDOWN) return;
    rc = handle(code);
    if (rc == FAILED) rc = answer_failure();
  }
}
