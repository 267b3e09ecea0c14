/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * What a program on a board defines, with TVM 0.8's names: memory, time, and the end when nothing else is left. */
#ifndef TVM_RUNTIME_CRT_PLATFORM_H_
#define TVM_RUNTIME_CRT_PLATFORM_H_

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <tvm/runtime/c_runtime_api.h>
#include <tvm/runtime/crt/error_codes.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Stops the program; does not return. */
void __attribute__((noreturn)) TVMPlatformAbort(tvm_crt_error_t code);

/* Writes a text like vsnprintf; returns its length. */
size_t TVMPlatformFormatMessage(char* out_buf, size_t out_buf_size_bytes, const char* fmt, va_list args);

/* Gives num_bytes bytes at *out_ptr, and takes them back. */
tvm_crt_error_t TVMPlatformMemoryAllocate(size_t num_bytes, DLDevice dev, void** out_ptr);
tvm_crt_error_t TVMPlatformMemoryFree(void* ptr, DLDevice dev);

/* One timer: seconds between the two calls. */
tvm_crt_error_t TVMPlatformTimerStart(void);
tvm_crt_error_t TVMPlatformTimerStop(double* elapsed_time_seconds);

/* Fills a buffer with random bytes. */
tvm_crt_error_t TVMPlatformGenerateRandom(uint8_t* buffer, size_t num_bytes);

#ifdef __cplusplus
}
#endif
#endif /* TVM_RUNTIME_CRT_PLATFORM_H_ */
