/* Licensed under the Apache License, Version 2.0; see LICENSE. */
#include "status.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char text[512];

int npu_fail(npu_status status, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return status;
}

const char* npu_last_error(void) { return text; }

uint32_t npu_version(void) { return NPU_DRIVER_VERSION; }

int npu_init(uint32_t version) {
  if (version >> 16 != NPU_DRIVER_VERSION >> 16 || (version & 0xffff) > (NPU_DRIVER_VERSION & 0xffff)) {
    return npu_fail(NPU_ERROR_VERSION,
                    "built for version %u.%u of the NPU's driver, but version %u.%u is installed: install the tilewright-npu "
                    "that it was built with, or build it again",
                    version >> 16, version & 0xffff, NPU_DRIVER_VERSION >> 16, NPU_DRIVER_VERSION & 0xffff);
  }
  return NPU_OK;
}

const char* npu_error_string(int status) {
  static const char* const names[] = {
      [NPU_OK] = "no error",
      [NPU_ERROR_INVALID] = "invalid argument",
      [NPU_ERROR_VERSION] = "another version",
      [NPU_ERROR_NO_DEVICE] = "no such device",
      [NPU_ERROR_BUSY] = "the device is busy",
      [NPU_ERROR_LOST] = "the device is gone",
      [NPU_ERROR_OUT_OF_SRAM] = "out of SRAM",
      [NPU_ERROR_OUT_OF_DDR] = "out of DDR",
      [NPU_ERROR_ADDRESS] = "no memory of the device",
      [NPU_ERROR_PROGRAM] = "corrupt program",
      [NPU_ERROR_DEADLOCK] = "deadlock",
      [NPU_ERROR_TIMEOUT] = "time-out",
      [NPU_ERROR_NOT_FOUND] = "not found",
      [NPU_ERROR_EXISTS] = "exists already",
      [NPU_ERROR_CANCELLED] = "cancelled",
      [NPU_ERROR_HOST_MEMORY] = "out of memory of the host",
  };
  const int count = (int)(sizeof names / sizeof names[0]);
  return status >= 0 && status < count ? names[status] : "unknown status";
}
