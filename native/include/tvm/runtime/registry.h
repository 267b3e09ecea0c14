/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Global functions for C++, with the names of TVM 0.8: TVM_REGISTER_GLOBAL("name").set_body_typed(f). */
#ifndef TVM_RUNTIME_REGISTRY_H_
#define TVM_RUNTIME_REGISTRY_H_

#include <tvm/runtime/packed_func.h>

#include <map>
#include <mutex>

namespace tvm {
namespace runtime {

class Registry {
 public:
  /* Begins the registration of a name; set_body ends it. */
  static Registry& Register(const std::string& name, bool can_override = false) {
    static std::mutex lock;
    static std::map<std::string, Registry> registered;
    std::lock_guard<std::mutex> guard(lock);
    Registry& entry = registered[name];
    entry.name_ = name;
    entry.override_ = can_override;
    return entry;
  }
  Registry& set_body(const PackedFunc& func) {
    TVM_CHECK_CALL(TVMFuncRegisterGlobal(name_.c_str(), func.handle(), override_));
    return *this;
  }
  template <typename F>
  Registry& set_body_typed(F func) {
    using Signature = typename detail::function_signature<F>::FType;
    return set_body(TypedPackedFunc<Signature>(std::move(func)).packed());
  }

  /* The function of that name, which stays valid; nullptr when there is none. */
  static const PackedFunc* Get(const std::string& name) {
    static std::mutex lock;
    static std::map<std::string, PackedFunc> found;
    TVMFunctionHandle handle = nullptr;
    TVM_CHECK_CALL(TVMFuncGetGlobal(name.c_str(), &handle));
    if (handle == nullptr) return nullptr;
    std::lock_guard<std::mutex> guard(lock);
    return &(found[name] = PackedFunc::Owned(handle));
  }
  static bool Remove(const std::string& name) {
    if (Get(name) == nullptr) return false;
    TVM_CHECK_CALL(TVMFuncRemoveGlobal(name.c_str()));
    return true;
  }
  static std::vector<std::string> ListNames() {
    int count = 0;
    const char** names = nullptr;
    TVM_CHECK_CALL(TVMFuncListGlobalNames(&count, &names));
    return std::vector<std::string>(names, names + count);
  }

 private:
  std::string name_;
  bool override_ = false;
};

}  // namespace runtime
}  // namespace tvm

#define TVM_STR_CONCAT_(a, b) a##b
#define TVM_STR_CONCAT(a, b) TVM_STR_CONCAT_(a, b)
#define TVM_REGISTER_GLOBAL(OpName)                                                                 \
  static __attribute__((unused))::tvm::runtime::Registry& TVM_STR_CONCAT(__mk_TVM, __COUNTER__) =   \
      ::tvm::runtime::Registry::Register(OpName)

#endif /* TVM_RUNTIME_REGISTRY_H_ */
