/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Messages and checks of programs on boards, with TVM 0.8's names. TVM_CRT_LOG_LEVEL, of crt_config.h, says how much is
 * told; the program defines TVMLogf. */
#ifndef TVM_RUNTIME_CRT_LOGGING_H_
#define TVM_RUNTIME_CRT_LOGGING_H_

#include <tvm/runtime/crt/platform.h>

#define TVM_CRT_LOG_LEVEL_ERROR 0
#define TVM_CRT_LOG_LEVEL_WARN 1
#define TVM_CRT_LOG_LEVEL_INFO 2
#define TVM_CRT_LOG_LEVEL_DEBUG 3

#ifdef __cplusplus
extern "C" {
#endif

void __attribute__((format(printf, 1, 2))) TVMLogf(const char* fmt, ...);

#ifdef __cplusplus
}
#endif

#define LOG(level, ...)                                       \
  do {                                                        \
    if (TVM_CRT_LOG_LEVEL >= (level)) TVMLogf(__VA_ARGS__);   \
  } while (0)
#define LOG_ERROR(...) LOG(TVM_CRT_LOG_LEVEL_ERROR, __VA_ARGS__)
#define LOG_WARN(...) LOG(TVM_CRT_LOG_LEVEL_WARN, __VA_ARGS__)
#define LOG_INFO(...) LOG(TVM_CRT_LOG_LEVEL_INFO, __VA_ARGS__)
#define LOG_DEBUG(...) LOG(TVM_CRT_LOG_LEVEL_DEBUG, __VA_ARGS__)

/* CHECK(x) ends the program unless x; CHECK_EQ(x, y, format, ...) and its kin tell a reason. */
#ifndef CHECK
#define CHECK(x)                                                      \
  do {                                                                \
    if (!(x)) {                                                       \
      LOG_ERROR("%s:%d: failed: %s\n", __FILE__, __LINE__, #x);       \
      TVMPlatformAbort(kTvmErrorPlatformCheckFailure);                \
    }                                                                 \
  } while (0)
#endif
#ifndef CHECK_BINARY_OP
#define CHECK_BINARY_OP(op, x, y, ...)                                          \
  do {                                                                          \
    if (!((x)op(y))) {                                                          \
      LOG_ERROR("%s:%d: failed: %s %s %s: ", __FILE__, __LINE__, #x, #op, #y);  \
      LOG_ERROR(__VA_ARGS__);                                                   \
      TVMPlatformAbort(kTvmErrorPlatformCheckFailure);                          \
    }                                                                           \
  } while (0)
#endif
#ifndef CHECK_EQ
#define CHECK_EQ(x, y, ...) CHECK_BINARY_OP(==, x, y, __VA_ARGS__)
#define CHECK_NE(x, y, ...) CHECK_BINARY_OP(!=, x, y, __VA_ARGS__)
#define CHECK_LT(x, y, ...) CHECK_BINARY_OP(<, x, y, __VA_ARGS__)
#define CHECK_LE(x, y, ...) CHECK_BINARY_OP(<=, x, y, __VA_ARGS__)
#define CHECK_GT(x, y, ...) CHECK_BINARY_OP(>, x, y, __VA_ARGS__)
#define CHECK_GE(x, y, ...) CHECK_BINARY_OP(>=, x, y, __VA_ARGS__)
#endif

#endif /* TVM_RUNTIME_CRT_LOGGING_H_ */
