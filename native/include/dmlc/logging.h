/* Licensed under the Apache License, Version 2.0; see LICENSE. */
#ifndef DMLC_LOGGING_H_
#define DMLC_LOGGING_H_
#include <tvm/runtime/logging.h> /* CHECK, LOG */
#endif
