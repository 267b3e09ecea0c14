/* Licensed under the Apache License, Version 2.0; see LICENSE. */
#ifndef NPU_STATUS_H_
#define NPU_STATUS_H_

#include <npu_driver.h>

/* Gives the status, with a text for npu_last_error of the calling thread. */
int npu_fail(npu_status status, const char* format, ...) __attribute__((format(printf, 2, 3)));

#endif /* NPU_STATUS_H_ */
