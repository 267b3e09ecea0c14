/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Element types for C++, with the names of TVM 0.8. */
#ifndef TVM_RUNTIME_DATA_TYPE_H_
#define TVM_RUNTIME_DATA_TYPE_H_

#include <tvm/runtime/logging.h>

#include <cstdlib>
#include <cstring>

namespace tvm {
namespace runtime {

/* The type of one element: kind, bits, and lanes of a vector. */
class DataType {
 public:
  enum TypeCode { kInt = kDLInt, kUInt = kDLUInt, kFloat = kDLFloat, kHandle = kTVMOpaqueHandle, kBFloat = kDLBfloat };

  DataType() : DataType(DLDataType{kTVMOpaqueHandle, 0, 0}) {}
  explicit DataType(DLDataType type) : type_(type) {}
  DataType(int code, int bits, int lanes)
      : type_{static_cast<uint8_t>(code), static_cast<uint8_t>(bits), static_cast<uint16_t>(lanes)} {}

  static DataType Int(int bits, int lanes = 1) { return DataType(kDLInt, bits, lanes); }
  static DataType UInt(int bits, int lanes = 1) { return DataType(kDLUInt, bits, lanes); }
  static DataType Float(int bits, int lanes = 1) { return DataType(kDLFloat, bits, lanes); }
  static DataType BFloat(int bits, int lanes = 1) { return DataType(kDLBfloat, bits, lanes); }
  static DataType Bool(int lanes = 1) { return UInt(1, lanes); }
  static DataType Handle(int bits = 64, int lanes = 1) { return DataType(kTVMOpaqueHandle, bits, lanes); }
  static DataType Void() { return DataType(kTVMOpaqueHandle, 0, 0); }

  int code() const { return type_.code; }
  int bits() const { return type_.bits; }
  int lanes() const { return type_.lanes; }
  int bytes() const { return (bits() + 7) / 8; }
  bool is_int() const { return code() == kDLInt; }
  bool is_uint() const { return code() == kDLUInt; }
  bool is_float() const { return code() == kDLFloat; }
  bool is_bool() const { return is_uint() && bits() == 1; }
  bool is_scalar() const { return lanes() == 1; }
  operator DLDataType() const { return type_; }
  bool operator==(const DataType& other) const {
    return code() == other.code() && bits() == other.bits() && lanes() == other.lanes();
  }
  bool operator!=(const DataType& other) const { return !(*this == other); }

 private:
  DLDataType type_;
};

/* The type of a name such as "float32", "int8x4", "uint1" or "bool". */
inline DLDataType String2DLDataType(const std::string& name) {
  struct Kind { const char* prefix; int code; int bits; };
  static const Kind kinds[] = {{"bfloat", kDLBfloat, 16}, {"bool", kDLUInt, 1},  {"uint", kDLUInt, 32},
                               {"int", kDLInt, 32},       {"float", kDLFloat, 32}, {"handle", kTVMOpaqueHandle, 64}};
  if (name.empty()) return DataType::Void();
  for (const Kind& kind : kinds) {
    const size_t length = std::strlen(kind.prefix);
    if (name.compare(0, length, kind.prefix) != 0) continue;
    char* end = const_cast<char*>(name.c_str()) + length;
    int bits = static_cast<int>(std::strtoul(end, &end, 10)), lanes = 1;
    if (*end == 'x') lanes = static_cast<int>(std::strtoul(end + 1, &end, 10));
    ICHECK(*end == '\0') << "there is no type " << name;
    return DataType(kind.code, bits == 0 ? kind.bits : bits, lanes);
  }
  LOG(FATAL) << "there is no type " << name;
  return DataType();
}

/* The name of a type, such as "float32" or "int8x4". */
inline std::string DLDataType2String(DLDataType type) {
  static const char* const names[] = {"int", "uint", "float", "handle", "bfloat"};
  if (type.code == kDLUInt && type.bits == 1) return type.lanes == 1 ? "bool" : "boolx" + std::to_string(type.lanes);
  if (type.code == kTVMOpaqueHandle) return type.bits == 0 ? "void" : "handle";
  std::string name = (type.code < 5 ? names[type.code] : "custom") + std::to_string(type.bits);
  return type.lanes == 1 ? name : name + "x" + std::to_string(type.lanes);
}

inline std::ostream& operator<<(std::ostream& out, const DataType& type) { return out << DLDataType2String(type); }

}  // namespace runtime
using runtime::DataType;
using Device = DLDevice;
}  // namespace tvm

#endif /* TVM_RUNTIME_DATA_TYPE_H_ */
