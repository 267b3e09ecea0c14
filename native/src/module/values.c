/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Values that packed functions take and give: counted ones are kept and dropped here. */
#include "module.h"

int tw_arg_module(const TVMValue* args, const int* codes, int n, int i, const char* who, TwModule** out) {
  if (i >= n || codes[i] != kTVMModuleHandle) return tw_fail("%s: argument %d must be a module", who, i);
  *out = args[i].v_handle;
  return 0;
}

int tw_arg_params(TwParams* p, TVMValue* args, int* codes, int n, int at, size_t count, const char* who) {
  p->names = calloc(count + 1, sizeof(char*));
  p->arrays = calloc(count + 1, sizeof(TwArray*));
  if (p->names == NULL || p->arrays == NULL) return tw_out_of_memory(count * sizeof(char*));
  for (size_t i = 0; i < count; ++i, at += 2) {
    const char* name;
    if (tw_arg_str(args, codes, n, at, who, &name) != 0) return -1;
    if (at + 1 >= n || codes[at + 1] != kTVMNDArrayHandle) {
      return tw_fail("%s: parameter \"%s\" must be an NDArray", who, name);
    }
    if ((p->names[i] = tw_strdup(name)) == NULL) return tw_out_of_memory(strlen(name));
    p->arrays[i] = tw_array_retain(args[at + 1].v_handle);
    p->count = i + 1;
  }
  return 0;
}

int TVMCbArgToReturn(TVMValue* value, int* code) {
  switch (*code) {
    case kTVMModuleHandle: tw_module_retain(value->v_handle); break;
    case kTVMPackedFuncHandle: tw_func_retain(value->v_handle); break;
    case kTVMNDArrayHandle: tw_array_retain(value->v_handle); break;
    case kTVMObjectHandle: tw_object_retain(value->v_handle); break;
    default: break;
  }
  return 0;
}

int TVMCFuncSetReturn(TVMRetValueHandle ret, TVMValue* value, int* type_code, int num_ret) {
  TwReturn* r = ret;
  if (num_ret == 0) return 0;
  if (num_ret != 1) return tw_fail("a packed function returns one value, not %d", num_ret);
  switch (*type_code) {
    case kTVMStr: return tw_return_string(ret, value->v_str);
    case kTVMBytes: {
      const TVMByteArray* bytes = value->v_handle;
      return tw_return_bytes(ret, bytes->data, bytes->size);
    }
    case kTVMDLTensorHandle: return tw_fail("a packed function cannot return a borrowed DLTensor");
    default:
      r->value = *value;
      r->code = *type_code;
      return TVMCbArgToReturn(&r->value, &r->code);
  }
}

void tw_drop_value(TVMValue value, int code) {
  switch (code) {
    case kTVMModuleHandle: tw_module_release(value.v_handle); break;
    case kTVMPackedFuncHandle: tw_func_release(value.v_handle); break;
    case kTVMNDArrayHandle: tw_array_release(value.v_handle); break;
    case kTVMObjectHandle: tw_object_release(value.v_handle); break;
    default: break;
  }
}
