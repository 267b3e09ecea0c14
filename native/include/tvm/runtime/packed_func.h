/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Functions of any arguments for C++, with the names of TVM 0.8: PackedFunc, TypedPackedFunc, and macros that export
 * functions of a library. All of it is in headers, over the C interface: nothing but the runtime is linked. */
#ifndef TVM_RUNTIME_PACKED_FUNC_H_
#define TVM_RUNTIME_PACKED_FUNC_H_

#include <tilewright.h>
#include <tvm/runtime/c_backend_api.h>
#include <tvm/runtime/container/array.h>
#include <tvm/runtime/data_type.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/ndarray.h>

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tvm {
namespace runtime {

using String = std::string;
using TVMByteString = std::string;

class TVMArgs;
class TVMRetValue;
template <typename F>
class TypedPackedFunc;

inline const char* ArgTypeCode2Str(int code) {
  static const char* const names[] = {"int", "uint", "float", "handle", "None", "DLDataType", "DLDevice",
                                      "DLTensor*", "Object", "Module", "PackedFunc", "str", "bytes", "NDArray"};
  return code >= 0 && code <= kTVMNDArrayHandle ? names[code] : "?";
}

/* A function of any arguments: written in C++, or of the runtime. Copies share it. */
class PackedFunc {
 public:
  using FType = std::function<void(TVMArgs args, TVMRetValue* rv)>;

  PackedFunc() = default;
  PackedFunc(std::nullptr_t) {}
  template <typename F, typename = typename std::enable_if<std::is_convertible<F, FType>::value &&
                                                           !std::is_base_of<PackedFunc, F>::value>::type>
  PackedFunc(F body) : state_(std::make_shared<State>()) {
    state_->body = FType(std::move(body));
  }
  /* Takes over one reference of the runtime's. */
  static PackedFunc Owned(TVMFunctionHandle handle) {
    PackedFunc func;
    if (handle == nullptr) return func;
    func.state_ = std::make_shared<State>();
    func.state_->handle = handle;
    return func;
  }

  template <typename... Args>
  inline TVMRetValue operator()(Args&&... args) const;
  inline void CallPacked(TVMArgs args, TVMRetValue* rv) const;
  /* The runtime's reference, which this keeps. */
  inline TVMFunctionHandle handle() const;

  bool defined() const { return state_ != nullptr; }
  bool same_as(const PackedFunc& other) const { return state_ == other.state_; }
  bool operator==(std::nullptr_t) const { return !defined(); }
  bool operator!=(std::nullptr_t) const { return defined(); }

 private:
  struct State {
    FType body;
    TVMFunctionHandle handle = nullptr;
    ~State() {
      if (handle != nullptr) TVMFuncFree(handle);
    }
  };
  std::shared_ptr<State> state_;
};

/* A value with its type code, as conversions see it. */
class TVMPODValue_ {
 public:
  TVMPODValue_() : type_code_(kTVMNullptr) { value_.v_handle = nullptr; }
  TVMPODValue_(TVMValue value, int type_code) : value_(value), type_code_(type_code) {}

  int type_code() const { return type_code_; }
  const TVMValue& value() const { return value_; }

  operator double() const {
    if (type_code_ == kDLInt) return static_cast<double>(value_.v_int64);
    Expect(kDLFloat);
    return value_.v_float64;
  }
  operator int64_t() const {
    Expect(kDLInt);
    return value_.v_int64;
  }
  operator uint64_t() const { return static_cast<uint64_t>(operator int64_t()); }
  operator int() const {
    const int64_t number = operator int64_t();
    ICHECK(number >= std::numeric_limits<int>::min() && number <= std::numeric_limits<int>::max()) << number;
    return static_cast<int>(number);
  }
  operator bool() const { return operator int64_t() != 0; }
  operator void*() const {
    if (type_code_ == kTVMNullptr) return nullptr;
    ICHECK(type_code_ == kTVMOpaqueHandle || IsTensor()) << "expected handle, got " << ArgTypeCode2Str(type_code_);
    return value_.v_handle;
  }
  operator DLTensor*() const {
    if (type_code_ == kTVMNullptr) return nullptr;
    ICHECK(IsTensor()) << "expected NDArray or DLTensor*, got " << ArgTypeCode2Str(type_code_);
    return static_cast<DLTensor*>(value_.v_handle);
  }
  operator DLDevice() const {
    Expect(kDLDevice);
    return value_.v_device;
  }

 protected:
  void Expect(int code) const {
    ICHECK(type_code_ == code) << "expected " << ArgTypeCode2Str(code) << ", got " << ArgTypeCode2Str(type_code_);
  }
  bool IsTensor() const { return type_code_ == kTVMNDArrayHandle || type_code_ == kTVMDLTensorHandle; }
  bool IsNull() const { return type_code_ == kTVMNullptr; }

  TVMValue value_;
  int type_code_;
};

/* One argument, which the caller keeps. */
class TVMArgValue : public TVMPODValue_ {
 public:
  using TVMPODValue_::TVMPODValue_;
  /* The conversion to TypedPackedFunc<F>, a template, would hide those of the base from "value.operator int()". */
  using TVMPODValue_::operator double;
  using TVMPODValue_::operator int64_t;
  using TVMPODValue_::operator uint64_t;
  using TVMPODValue_::operator int;
  using TVMPODValue_::operator bool;
  using TVMPODValue_::operator void*;
  using TVMPODValue_::operator DLTensor*;
  using TVMPODValue_::operator DLDevice;

  operator std::string() const {
    if (type_code_ == kTVMDataType) return DLDataType2String(value_.v_type);
    if (type_code_ == kTVMBytes) {
      const TVMByteArray* bytes = static_cast<const TVMByteArray*>(value_.v_handle);
      return std::string(bytes->data, bytes->size);
    }
    Expect(kTVMStr);
    return value_.v_str;
  }
  operator DLDataType() const {
    if (type_code_ == kTVMStr) return String2DLDataType(value_.v_str);
    Expect(kTVMDataType);
    return value_.v_type;
  }
  operator DataType() const { return DataType(operator DLDataType()); }
  operator NDArray() const {
    if (IsNull()) return NDArray();
    if (type_code_ == kTVMDLTensorHandle) return NDArray::View(static_cast<DLTensor*>(value_.v_handle));
    return NDArray::Owned(static_cast<TVMArrayHandle>(Own(kTVMNDArrayHandle)));
  }
  operator Module() const { return IsNull() ? Module() : Module::Owned(Own(kTVMModuleHandle)); }
  operator PackedFunc() const { return IsNull() ? PackedFunc() : PackedFunc::Owned(Own(kTVMPackedFuncHandle)); }
  template <typename F>
  operator TypedPackedFunc<F>() const {
    return TypedPackedFunc<F>(operator PackedFunc());
  }

 private:
  /* One more reference to a handle. */
  void* Own(int code) const {
    Expect(code);
    TVMValue owned = value_;
    int owned_code = type_code_;
    TVM_CHECK_CALL(TVMCbArgToReturn(&owned, &owned_code));
    return owned.v_handle;
  }
};

/* The arguments of a call. */
class TVMArgs {
 public:
  TVMArgs(const TVMValue* values_, const int* type_codes_, int num_args_)
      : values(values_), type_codes(type_codes_), num_args(num_args_) {}

  int size() const { return num_args; }
  TVMArgValue operator[](int i) const {
    ICHECK(i >= 0 && i < num_args) << "argument " << i << " of " << num_args;
    return TVMArgValue(values[i], type_codes[i]);
  }

  const TVMValue* values;
  const int* type_codes;
  int num_args;
};

/* A result, which this keeps. */
class TVMRetValue : public TVMPODValue_ {
 public:
  using TVMPODValue_::operator double;
  using TVMPODValue_::operator int64_t;
  using TVMPODValue_::operator uint64_t;
  using TVMPODValue_::operator int;
  using TVMPODValue_::operator bool;
  using TVMPODValue_::operator void*;
  using TVMPODValue_::operator DLTensor*;
  using TVMPODValue_::operator DLDevice;

  TVMRetValue() = default;
  /* Takes over what a function of the runtime returned. */
  static TVMRetValue Owned(TVMValue value, int code) {
    TVMRetValue made;
    switch (code) {
      case kTVMStr: made = std::string(value.v_str); break;
      case kTVMBytes: made = TVMArgValue(value, code).operator std::string(); break;
      case kTVMNDArrayHandle: made = NDArray::Owned(static_cast<TVMArrayHandle>(value.v_handle)); break;
      case kTVMModuleHandle: made = Module::Owned(value.v_handle); break;
      case kTVMPackedFuncHandle: made = PackedFunc::Owned(value.v_handle); break;
      case kTVMObjectHandle:
        made.object_ = std::shared_ptr<void>(value.v_handle, [](void* each) { TilewrightObjectFree(each); });
        made.Set(code, value.v_handle);
        break;
      default: made.value_ = value; made.type_code_ = code;
    }
    return made;
  }

  TVMRetValue& operator=(double number) { return value_.v_float64 = number, Code(kDLFloat); }
  TVMRetValue& operator=(float number) { return *this = static_cast<double>(number); }
  TVMRetValue& operator=(int64_t number) { return value_.v_int64 = number, Code(kDLInt); }
  TVMRetValue& operator=(int number) { return *this = static_cast<int64_t>(number); }
  TVMRetValue& operator=(unsigned number) { return *this = static_cast<int64_t>(number); }
  TVMRetValue& operator=(size_t number) { return *this = static_cast<int64_t>(number); }
  TVMRetValue& operator=(bool number) { return *this = static_cast<int64_t>(number); }
  TVMRetValue& operator=(std::nullptr_t) { return Set(kTVMNullptr, nullptr); }
  TVMRetValue& operator=(void* pointer) { return Set(kTVMOpaqueHandle, pointer); }
  TVMRetValue& operator=(DLDevice device) { return value_.v_device = device, Code(kDLDevice); }
  TVMRetValue& operator=(DLDataType type) { return value_.v_type = type, Code(kTVMDataType); }
  TVMRetValue& operator=(const DataType& type) { return *this = static_cast<DLDataType>(type); }
  TVMRetValue& operator=(const char* text) { return *this = std::string(text); }
  TVMRetValue& operator=(std::string text) {
    text_ = std::make_shared<std::string>(std::move(text));
    return Set(kTVMStr, const_cast<char*>(text_->c_str()));
  }
  TVMRetValue& operator=(const NDArray& array) {
    array_ = array;
    return array.defined() ? Set(array.is_view() ? kTVMDLTensorHandle : kTVMNDArrayHandle, array.get()) : *this = nullptr;
  }
  TVMRetValue& operator=(const Module& module) {
    module_ = module;
    return module.defined() ? Set(kTVMModuleHandle, module.get()) : *this = nullptr;
  }
  TVMRetValue& operator=(const PackedFunc& func) {
    func_ = func;
    return func.defined() ? Set(kTVMPackedFuncHandle, func.handle()) : *this = nullptr;
  }
  template <typename F>
  TVMRetValue& operator=(const TypedPackedFunc<F>& func) {
    return *this = func.packed();
  }
  TVMRetValue& operator=(const TVMArgValue& value) {
    switch (value.type_code()) {
      case kTVMStr:
      case kTVMBytes: return *this = value.operator std::string();
      case kTVMNDArrayHandle: return *this = value.operator NDArray();
      case kTVMModuleHandle: return *this = value.operator Module();
      case kTVMPackedFuncHandle: return *this = value.operator PackedFunc();
      default: return value_ = value.value(), Code(value.type_code());
    }
  }

  operator std::string() const { return AsArg().operator std::string(); }
  operator DLDataType() const { return AsArg().operator DLDataType(); }
  operator DataType() const { return AsArg().operator DataType(); }
  operator NDArray() const { return AsArg().operator NDArray(); }
  operator Module() const { return AsArg().operator Module(); }
  operator PackedFunc() const { return type_code_ == kTVMPackedFuncHandle ? func_ : AsArg().operator PackedFunc(); }
  template <typename F>
  operator TypedPackedFunc<F>() const {
    return TypedPackedFunc<F>(operator PackedFunc());
  }

  TVMArgValue AsArg() const { return TVMArgValue(value_, type_code_); }
  /* Hands the value over to a caller through the C interface. */
  void MoveToCHost(TVMValue* value, int* type_code) {
    *value = value_;
    *type_code = type_code_;
    if (type_code_ == kTVMStr) {
      static thread_local std::string kept;  // until the next text of the thread, as the runtime's own
      kept = value_.v_str;
      value->v_str = kept.c_str();
    } else if (type_code_ == kTVMNDArrayHandle || type_code_ == kTVMModuleHandle || type_code_ == kTVMPackedFuncHandle) {
      TVM_CHECK_CALL(TVMCbArgToReturn(value, type_code));
    }
  }

 private:
  TVMRetValue& Code(int code) {
    type_code_ = code;
    return *this;
  }
  TVMRetValue& Set(int code, void* handle) {
    value_.v_handle = handle;
    return Code(code);
  }

  std::shared_ptr<std::string> text_;
  NDArray array_;
  Module module_;
  PackedFunc func_;
  std::shared_ptr<void> object_;
};

/* Writes the arguments of a call; what they refer to must outlive it. */
class TVMArgsSetter {
 public:
  TVMArgsSetter(TVMValue* values, int* type_codes) : values_(values), type_codes_(type_codes) {}

  template <typename T, typename = typename std::enable_if<std::is_integral<T>::value || std::is_enum<T>::value>::type>
  void operator()(size_t i, T number) const {
    values_[i].v_int64 = static_cast<int64_t>(number);
    type_codes_[i] = kDLInt;
  }
  void operator()(size_t i, double number) const {
    values_[i].v_float64 = number;
    type_codes_[i] = kDLFloat;
  }
  void operator()(size_t i, std::nullptr_t) const { Set(i, kTVMNullptr, nullptr); }
  void operator()(size_t i, void* pointer) const { Set(i, pointer == nullptr ? kTVMNullptr : kTVMOpaqueHandle, pointer); }
  void operator()(size_t i, DLTensor* tensor) const { Set(i, kTVMDLTensorHandle, tensor); }
  void operator()(size_t i, const DLTensor* tensor) const { (*this)(i, const_cast<DLTensor*>(tensor)); }
  void operator()(size_t i, const char* text) const {
    values_[i].v_str = text;
    type_codes_[i] = kTVMStr;
  }
  void operator()(size_t i, const std::string& text) const { (*this)(i, text.c_str()); }
  void operator()(size_t i, const TVMByteArray& bytes) const { Set(i, kTVMBytes, const_cast<TVMByteArray*>(&bytes)); }
  void operator()(size_t i, DLDevice device) const {
    values_[i].v_device = device;
    type_codes_[i] = kDLDevice;
  }
  void operator()(size_t i, DLDataType type) const {
    values_[i].v_type = type;
    type_codes_[i] = kTVMDataType;
  }
  void operator()(size_t i, const DataType& type) const { (*this)(i, static_cast<DLDataType>(type)); }
  void operator()(size_t i, const NDArray& array) const {
    Set(i, !array.defined() ? kTVMNullptr : array.is_view() ? kTVMDLTensorHandle : kTVMNDArrayHandle, array.get());
  }
  void operator()(size_t i, const Module& module) const {
    Set(i, module.defined() ? kTVMModuleHandle : kTVMNullptr, module.get());
  }
  void operator()(size_t i, const PackedFunc& func) const {
    Set(i, func.defined() ? kTVMPackedFuncHandle : kTVMNullptr, func.defined() ? func.handle() : nullptr);
  }
  template <typename F>
  void operator()(size_t i, const TypedPackedFunc<F>& func) const {
    (*this)(i, func.packed());
  }
  void operator()(size_t i, const TVMArgValue& value) const {
    values_[i] = value.value();
    type_codes_[i] = value.type_code();
  }
  void operator()(size_t i, const TVMRetValue& value) const { (*this)(i, value.AsArg()); }

 private:
  void Set(size_t i, int code, void* handle) const {
    values_[i].v_handle = handle;
    type_codes_[i] = code;
  }

  TVMValue* values_;
  int* type_codes_;
};

namespace detail {

inline void SetArgs(const TVMArgsSetter&, size_t) {}
template <typename First, typename... Rest>
inline void SetArgs(const TVMArgsSetter& setter, size_t i, First&& first, Rest&&... rest) {
  setter(i, std::forward<First>(first));
  SetArgs(setter, i + 1, std::forward<Rest>(rest)...);
}

/* Runs what may throw; an exception becomes the runtime's last error, and -1. */
template <typename F>
inline int Guarded(F run) {
  try {
    run();
    return 0;
  } catch (const std::exception& error) {
    TVMAPISetLastError(error.what());
    return -1;
  }
}

inline int CallBody(TVMValue* args, int* type_codes, int num_args, TVMRetValueHandle ret, void* body) {
  return Guarded([&] {
    TVMRetValue rv;
    (*static_cast<PackedFunc::FType*>(body))(TVMArgs(args, type_codes, num_args), &rv);
    TVMValue value = rv.value();
    int code = rv.type_code();
    if (code != kTVMNullptr) TVM_CHECK_CALL(TVMCFuncSetReturn(ret, &value, &code, 1));
  });
}
inline void DeleteBody(void* body) { delete static_cast<PackedFunc::FType*>(body); }

/* Converts argument i to a parameter's type. A list of arrays that is the last parameter takes all that are left. */
template <typename T, typename = void>
struct ArgTo {
  static constexpr bool takes_all = false;
  static T get(const TVMArgs& args, int i) { return args[i].operator T(); }
};
template <typename T>
struct ArgTo<T, typename std::enable_if<std::is_arithmetic<T>::value>::type> {
  static constexpr bool takes_all = false;
  using Wide = typename std::conditional<std::is_floating_point<T>::value, double, int64_t>::type;
  static T get(const TVMArgs& args, int i) { return static_cast<T>(args[i].operator Wide()); }
};
template <>
struct ArgTo<TVMArgValue> {
  static constexpr bool takes_all = false;
  static TVMArgValue get(const TVMArgs& args, int i) { return args[i]; }
};
template <typename T>
struct ArgTo<Array<T>> {
  static constexpr bool takes_all = true;
  static Array<T> get(const TVMArgs& args, int i) {
    Array<T> all;
    for (; i < args.size(); ++i) all.push_back(ArgTo<T>::get(args, i));
    return all;
  }
};

template <typename... Args>
struct TakesAll : std::false_type {};
template <typename Last>
struct TakesAll<Last> : std::integral_constant<bool, ArgTo<typename std::decay<Last>::type>::takes_all> {};
template <typename First, typename Second, typename... Rest>
struct TakesAll<First, Second, Rest...> : TakesAll<Second, Rest...> {};

template <typename R>
struct Unpack {
  template <typename F, typename... Args, size_t... I>
  static void run(const F& func, const TVMArgs& args, TVMRetValue* rv, std::index_sequence<I...>) {
    *rv = func(ArgTo<typename std::decay<Args>::type>::get(args, I)...);
  }
};
template <>
struct Unpack<void> {
  template <typename F, typename... Args, size_t... I>
  static void run(const F& func, const TVMArgs& args, TVMRetValue*, std::index_sequence<I...>) {
    func(ArgTo<typename std::decay<Args>::type>::get(args, I)...);
  }
};

/* Calls a function of C++ types with the arguments of a packed call. */
template <typename Signature>
struct UnpackCall;
template <typename R, typename... Args>
struct UnpackCall<R(Args...)> {
  template <typename F>
  static void run(const F& func, const TVMArgs& args, TVMRetValue* rv) {
    const int count = static_cast<int>(sizeof...(Args));
    ICHECK(args.size() == count || TakesAll<Args...>::value)
        << "the function takes " << count << " arguments, and was given " << args.size();
    Unpack<R>::template run<F, Args...>(func, args, rv, std::index_sequence_for<Args...>());
  }
};

/* The type R(Args...) of anything that is called. */
template <typename T>
struct method_signature;
template <typename T, typename R, typename... Args>
struct method_signature<R (T::*)(Args...) const> {
  using FType = R(Args...);
};
template <typename T, typename R, typename... Args>
struct method_signature<R (T::*)(Args...)> {
  using FType = R(Args...);
};
template <typename T>
struct function_signature : method_signature<decltype(&T::operator())> {};
template <typename R, typename... Args>
struct function_signature<R(Args...)> {
  using FType = R(Args...);
};
template <typename R, typename... Args>
struct function_signature<R (*)(Args...)> {
  using FType = R(Args...);
};
template <typename F>
struct function_signature<TypedPackedFunc<F>> {
  using FType = F;
};

template <typename R>
struct Result {
  static R of(TVMRetValue value) {
    using Type = typename std::decay<R>::type;
    return ArgTo<Type>::get(TVMArgs(&value.value(), Code{value.type_code()}, 1), 0);
  }
  struct Code {
    int code;
    operator const int*() const { return &code; }
  };
};
template <>
struct Result<void> {
  static void of(const TVMRetValue&) {}
};

}  // namespace detail

/* A packed function of known C++ types. */
template <typename R, typename... Args>
class TypedPackedFunc<R(Args...)> {
 public:
  TypedPackedFunc() = default;
  TypedPackedFunc(std::nullptr_t) {}
  TypedPackedFunc(PackedFunc packed) : packed_(std::move(packed)) {}
  template <typename F, typename = typename std::enable_if<std::is_convertible<F, std::function<R(Args...)>>::value &&
                                                           !std::is_convertible<F, PackedFunc>::value>::type>
  TypedPackedFunc(F func)
      : packed_([func](TVMArgs args, TVMRetValue* rv) { detail::UnpackCall<R(Args...)>::run(func, args, rv); }) {}

  R operator()(Args... args) const { return detail::Result<R>::of(packed_(std::forward<Args>(args)...)); }
  operator PackedFunc() const { return packed_; }
  const PackedFunc& packed() const { return packed_; }
  bool operator==(std::nullptr_t) const { return packed_ == nullptr; }
  bool operator!=(std::nullptr_t) const { return packed_ != nullptr; }

 private:
  PackedFunc packed_;
};

template <typename... Args>
inline TVMRetValue PackedFunc::operator()(Args&&... args) const {
  TVMValue values[sizeof...(Args) + 1];
  int type_codes[sizeof...(Args) + 1];
  detail::SetArgs(TVMArgsSetter(values, type_codes), 0, std::forward<Args>(args)...);
  TVMRetValue rv;
  CallPacked(TVMArgs(values, type_codes, static_cast<int>(sizeof...(Args))), &rv);
  return rv;
}

inline void PackedFunc::CallPacked(TVMArgs args, TVMRetValue* rv) const {
  ICHECK(defined()) << "a null function was called";
  if (state_->body) {
    state_->body(args, rv);
    return;
  }
  TVMValue value;
  int code = kTVMNullptr;
  TVM_CHECK_CALL(TVMFuncCall(state_->handle, const_cast<TVMValue*>(args.values), const_cast<int*>(args.type_codes),
                             args.num_args, &value, &code));
  *rv = TVMRetValue::Owned(value, code);
}

inline TVMFunctionHandle PackedFunc::handle() const {
  if (state_->handle == nullptr) {
    auto body = std::make_unique<FType>(state_->body);
    TVM_CHECK_CALL(TVMFuncCreateFromCFunc(detail::CallBody, body.get(), detail::DeleteBody, &state_->handle));
    body.release();
  }
  return state_->handle;
}

namespace detail {

/* What the runtime calls of a module that is written in C++; ctx is a reference to it. */
struct NodeCallbacks {
  static ModuleNode* node(void* ctx) { return static_cast<ObjectPtr<ModuleNode>*>(ctx)->get(); }
  static int get_function(void* ctx, const char* name, TVMFunctionHandle* out) {
    return Guarded([&] {
      PackedFunc func = node(ctx)->GetFunction(name, *static_cast<ObjectPtr<ModuleNode>*>(ctx));
      if (func == nullptr) return;
      TVMRetValue rv;
      rv = func;
      TVMValue value;
      int code;
      rv.MoveToCHost(&value, &code);
      *out = value.v_handle;
    });
  }
  static int save(void* ctx, TilewrightStream* stream) {
    return Guarded([&] { node(ctx)->SaveToBinary(reinterpret_cast<dmlc::Stream*>(stream)); });
  }
  static int get_source(void* ctx, const char* format, TVMRetValueHandle ret) {
    return Guarded([&] {
      const std::string text = node(ctx)->GetSource(format);
      TVMValue value;
      value.v_str = text.c_str();
      int code = kTVMStr;
      TVM_CHECK_CALL(TVMCFuncSetReturn(ret, &value, &code, 1));
    });
  }
  static void finalize(void* ctx) { delete static_cast<ObjectPtr<ModuleNode>*>(ctx); }
};

}  // namespace detail

inline Module::Module(ObjectPtr<ModuleNode> node) {
  TilewrightModuleCallbacks callbacks = {};
  callbacks.get_function = detail::NodeCallbacks::get_function;
  callbacks.save = detail::NodeCallbacks::save;
  callbacks.get_source = detail::NodeCallbacks::get_source;
  callbacks.finalize = detail::NodeCallbacks::finalize;
  auto ctx = std::make_unique<ObjectPtr<ModuleNode>>(node);
  TVMModuleHandle made = nullptr;
  TVM_CHECK_CALL(TilewrightModCreate(node->type_key(), &callbacks, ctx.get(), &made));
  ctx.release();
  *this = Owned(made);
}

inline PackedFunc Module::GetFunction(const std::string& name, bool query_imports) const {
  TVMFunctionHandle found = nullptr;
  TVM_CHECK_CALL(TVMModGetFunction(get(), name.c_str(), query_imports, &found));
  return PackedFunc::Owned(found);
}

}  // namespace runtime
using runtime::Module;
using runtime::NDArray;
using runtime::PackedFunc;
using runtime::TypedPackedFunc;
}  // namespace tvm

/* Exports a function void(TVMArgs, TVMRetValue*) of this library. */
#define TVM_DLL_EXPORT_PACKED_FUNC(ExportName, Function)                                               \
  extern "C" {                                                                                         \
  TVM_DLL int ExportName(TVMValue* args, int* type_code, int num_args, TVMValue* out_value,            \
                         int* out_type_code);                                                          \
  int ExportName(TVMValue* args, int* type_code, int num_args, TVMValue* out_value, int* out_type_code) { \
    return ::tvm::runtime::detail::Guarded([&] {                                                       \
      ::tvm::runtime::TVMRetValue rv;                                                                  \
      Function(::tvm::runtime::TVMArgs(args, type_code, num_args), &rv);                               \
      rv.MoveToCHost(out_value, out_type_code);                                                        \
    });                                                                                                \
  }                                                                                                    \
  }

/* Exports a function of C++ types, or a lambda, of this library. */
#define TVM_DLL_EXPORT_TYPED_FUNC(ExportName, Function)                                                \
  extern "C" {                                                                                         \
  TVM_DLL int ExportName(TVMValue* args, int* type_code, int num_args, TVMValue* out_value,            \
                         int* out_type_code);                                                          \
  int ExportName(TVMValue* args, int* type_code, int num_args, TVMValue* out_value, int* out_type_code) { \
    return ::tvm::runtime::detail::Guarded([&] {                                                       \
      auto func = Function;                                                                            \
      using Signature = typename ::tvm::runtime::detail::function_signature<decltype(func)>::FType;    \
      ::tvm::runtime::TVMRetValue rv;                                                                  \
      ::tvm::runtime::detail::UnpackCall<Signature>::run(                                              \
          func, ::tvm::runtime::TVMArgs(args, type_code, num_args), &rv);                              \
      rv.MoveToCHost(out_value, out_type_code);                                                        \
    });                                                                                                \
  }                                                                                                    \
  }

#endif /* TVM_RUNTIME_PACKED_FUNC_H_ */
