/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Functions by name: those of compiled modules, which register when the program starts, and those of the server. Compiled
 * code finds and calls them by TVM's C API. */
#include <string.h>

#include "board_rpc.h"

static BoardFunction table[BOARD_RPC_FUNCTIONS];
static uint32_t used;
static char last_error[256];
static int overflowed;
static const char* entry; /* the name of a module's first function */

int BoardFail(const char* before, const char* after) {
  size_t at = 0;
  for (; *before != 0 && at < sizeof last_error - 1; ++before) last_error[at++] = *before;
  for (; *after != 0 && at < sizeof last_error - 1; ++after) last_error[at++] = *after;
  last_error[at] = 0;
  return -1;
}

const char* TVMGetLastError(void) { return last_error; }

void TVMAPISetLastError(const char* msg) { BoardFail(msg, ""); }

/* The function is a compiled one, whose address is the handle; names that begin with "__" are data. Modules that are linked
 * together have those once each, and the first one's entry is the program's. */
int TVMFuncRegisterGlobal(const char* name, TVMFunctionHandle f, int override) {
  const uint32_t found = BoardFindFunction(name);
  if (strcmp(name, "__tvm_main__") == 0 && entry == NULL) entry = f;
  if (strncmp(name, "__", 2) == 0) return 0;
  if (found != 0 && !override) return BoardFail("two functions of the name ", name);
  if (found == 0 && used == BOARD_RPC_FUNCTIONS) {
    overflowed = 1;
    return BoardFail("there is no room for another function (BOARD_RPC_FUNCTIONS): ", name);
  }
  BoardFunction* entry = &table[found != 0 ? found - 1 : used++];
  entry->name = name;
  memcpy(&entry->call, &f, sizeof f); /* a pointer to an object holds one to a function on all of these machines */
  return 0;
}

uint32_t BoardFindFunction(const char* name) {
  if (strcmp(name, "__tvm_main__") == 0 && entry != NULL) name = entry;
  for (uint32_t i = 0; i < used; ++i) {
    if (strcmp(table[i].name, name) == 0) return i + 1;
  }
  if (overflowed) BoardFail("some functions found no room (BOARD_RPC_FUNCTIONS), and there is none of the name ", name);
  return 0;
}

const BoardFunction* BoardFunctionOf(uint64_t number) { return number == 0 || number > used ? NULL : &table[number - 1]; }

int TVMBackendGetFuncFromEnv(void* mod_node, const char* func_name, TVMFunctionHandle* out) {
  const uint32_t number = BoardFindFunction(func_name);
  (void)mod_node;
  if (number == 0) return BoardFail("there is no function ", func_name);
  *out = (TVMFunctionHandle)(uintptr_t)number;
  return 0;
}

int TVMFuncCall(TVMFunctionHandle func, TVMValue* arg_values, int* type_codes, int num_args, TVMValue* ret_val,
                int* ret_type_code) {
  const BoardFunction* f = BoardFunctionOf((uintptr_t)func);
  if (f == NULL) return BoardFail("a function is called that there is not", "");
  *ret_type_code = kTVMNullptr;
  ret_val->v_int64 = 0;
  return f->call(arg_values, type_codes, num_args, ret_val, ret_type_code, NULL);
}
