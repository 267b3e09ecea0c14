/* Licensed under the Apache License, Version 2.0; see LICENSE. */
#ifndef TVM_RUNTIME_MEMORY_H_
#define TVM_RUNTIME_MEMORY_H_
#include <tvm/runtime/object.h> /* make_object */
#endif
