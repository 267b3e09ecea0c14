/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The stream through which modules written in C++ are saved and loaded, with the names of TVM 0.8. */
#ifndef DMLC_IO_H_
#define DMLC_IO_H_

#include <tilewright.h>
#include <tvm/runtime/logging.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace dmlc {

/* A stream of the runtime's: numbers as they lie in memory; texts and lists after their length, 8 bytes. */
class Stream {
 public:
  Stream() = delete;

  /* How many bytes were read: all, or none. */
  size_t Read(void* bytes, size_t count) { return TilewrightStreamRead(own(), bytes, count) == 0 ? count : 0; }
  void Write(const void* bytes, size_t count) { TVM_CHECK_CALL(TilewrightStreamWrite(own(), bytes, count)); }

  template <typename T>
  typename std::enable_if<std::is_trivially_copyable<T>::value>::type Write(const T& value) {
    Write(&value, sizeof value);
  }
  template <typename T>
  typename std::enable_if<std::is_trivially_copyable<T>::value, bool>::type Read(T* value) {
    return Read(value, sizeof *value) == sizeof *value;
  }
  void Write(const std::string& text) {
    Write(static_cast<uint64_t>(text.size()));
    Write(text.data(), text.size());
  }
  /* Piece by piece: a length that a damaged file claims takes no more memory than the file has. */
  bool Read(std::string* text) {
    uint64_t left = 0;
    if (!Read(&left)) return false;
    char piece[4096];
    for (text->clear(); left > 0;) {
      const size_t count = left < sizeof piece ? static_cast<size_t>(left) : sizeof piece;
      if (Read(piece, count) != count) return false;
      text->append(piece, count);
      left -= count;
    }
    return true;
  }
  template <typename T>
  void Write(const std::vector<T>& values) {
    Write(static_cast<uint64_t>(values.size()));
    for (const T& value : values) Write(value);
  }
  template <typename T>
  bool Read(std::vector<T>* values) {
    uint64_t count = 0;
    if (!Read(&count)) return false;
    for (values->clear(); count > 0; --count) {
      T value;
      if (!Read(&value)) return false;
      values->push_back(std::move(value));
    }
    return true;
  }

 private:
  TilewrightStream* own() { return reinterpret_cast<TilewrightStream*>(this); }
};

}  // namespace dmlc

#endif /* DMLC_IO_H_ */
