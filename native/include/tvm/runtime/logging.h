/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Checks and messages for C++, with the names of TVM 0.8: a check that fails throws tvm::runtime::InternalError. */
#ifndef TVM_RUNTIME_LOGGING_H_
#define TVM_RUNTIME_LOGGING_H_

#include <tvm/runtime/c_runtime_api.h>

#include <cstdio>
#include <sstream>
#include <stdexcept>
#include <string>

namespace tvm {
namespace runtime {

/* An error of the program, or of the runtime that it called. */
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
};

class InternalError : public Error {
 public:
  explicit InternalError(const std::string& message) : Error(message) {}
};

namespace detail {

/* Throws what was written to it, when the statement ends. */
class LogFatal {
 public:
  LogFatal(const char* file, int line) { stream_ << file << ":" << line << ": "; }
  ~LogFatal() noexcept(false) { throw InternalError(stream_.str()); }
  std::ostringstream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

/* Prints what was written to it, when the statement ends. */
class LogMessage {
 public:
  LogMessage(const char* file, int line) { stream_ << file << ":" << line << ": "; }
  ~LogMessage() { std::fprintf(stderr, "%s\n", stream_.str().c_str()); }
  std::ostringstream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

/* Makes both branches of a check void. */
struct LogVoidify {
  void operator&(std::ostream&) {}
};

/* Throws the runtime's message after a call that failed. */
inline void CheckCall(int status) {
  if (status != 0) throw Error(TVMGetLastError());
}

}  // namespace detail
}  // namespace runtime
using runtime::Error;
using runtime::InternalError;
}  // namespace tvm

#define TVM_CHECK_FUNC_(CONDITION)                                                  \
  (CONDITION) ? (void)0                                                             \
              : ::tvm::runtime::detail::LogVoidify() &                              \
                    ::tvm::runtime::detail::LogFatal(__FILE__, __LINE__).stream()   \
                        << "Check failed: " #CONDITION ": "
#define TVM_CHECK_BINARY_(X, OP, Y) TVM_CHECK_FUNC_((X)OP(Y)) << (X) << " vs. " << (Y) << " "

#define ICHECK(x) TVM_CHECK_FUNC_(x)
#define ICHECK_EQ(x, y) TVM_CHECK_BINARY_(x, ==, y)
#define ICHECK_NE(x, y) TVM_CHECK_BINARY_(x, !=, y)
#define ICHECK_LT(x, y) TVM_CHECK_BINARY_(x, <, y)
#define ICHECK_LE(x, y) TVM_CHECK_BINARY_(x, <=, y)
#define ICHECK_GT(x, y) TVM_CHECK_BINARY_(x, >, y)
#define ICHECK_GE(x, y) TVM_CHECK_BINARY_(x, >=, y)
#define ICHECK_NOTNULL(x) \
  ((x) != nullptr ? (x) : (::tvm::runtime::detail::LogFatal(__FILE__, __LINE__).stream() << #x " is null", (x)))
#ifndef CHECK
#define CHECK(x) ICHECK(x)
#define CHECK_EQ(x, y) ICHECK_EQ(x, y)
#define CHECK_NE(x, y) ICHECK_NE(x, y)
#define CHECK_LT(x, y) ICHECK_LT(x, y)
#define CHECK_LE(x, y) ICHECK_LE(x, y)
#define CHECK_GT(x, y) ICHECK_GT(x, y)
#define CHECK_GE(x, y) ICHECK_GE(x, y)
#endif
#ifndef LOG
#define LOG(level) LOG_##level
#define LOG_FATAL ::tvm::runtime::detail::LogFatal(__FILE__, __LINE__).stream()
#define LOG_INFO ::tvm::runtime::detail::LogMessage(__FILE__, __LINE__).stream()
#define LOG_WARNING LOG_INFO << "warning: "
#define LOG_ERROR LOG_INFO << "error: "
#endif
#define TVM_CHECK_CALL(x) ::tvm::runtime::detail::CheckCall(x)

#endif /* TVM_RUNTIME_LOGGING_H_ */
