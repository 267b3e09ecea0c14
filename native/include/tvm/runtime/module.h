/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Modules of compiled functions for C++, with the names of TVM 0.8, over the C interface. */
#ifndef TVM_RUNTIME_MODULE_H_
#define TVM_RUNTIME_MODULE_H_

#include <dmlc/io.h>
#include <tilewright.h>
#include <tvm/runtime/logging.h>
#include <tvm/runtime/object.h>

#include <memory>
#include <string>

namespace tvm {
namespace runtime {

class PackedFunc;

/* A module that is written in C++: what one derives from, and makes a Module of. */
class ModuleNode : public Object {
 public:
  virtual const char* type_key() const = 0;
  /* The function of that name, which keeps sptr_to_self, or a null function. */
  virtual PackedFunc GetFunction(const std::string& name, const ObjectPtr<Object>& sptr_to_self) = 0;
  /* Writes what runtime.module.loadbinary_KEY reads back when an exported library is loaded. */
  virtual void SaveToBinary(dmlc::Stream* stream) {
    (void)stream;
    LOG(FATAL) << "a module of type " << type_key() << " cannot be saved";
  }
  virtual std::string GetSource(const std::string& format = "") {
    (void)format;
    return "";
  }
};

/* A counted reference to a module; copies are of the reference. */
class Module {
 public:
  Module() = default;
  Module(std::nullptr_t) {}
  template <typename T, typename = typename std::enable_if<std::is_base_of<ModuleNode, T>::value>::type>
  explicit Module(const ObjectPtr<T>& node) : Module(ObjectPtr<ModuleNode>(node)) {}

  /* Loads a library, or a file of another format that the runtime knows. */
  static Module LoadFromFile(const std::string& file_name, const std::string& format = "") {
    TVMModuleHandle made = nullptr;
    TVM_CHECK_CALL(TVMModLoadFromFile(file_name.c_str(), format.c_str(), &made));
    return Owned(made);
  }
  /* Takes over one reference of the runtime's. */
  static Module Owned(TVMModuleHandle handle) {
    Module made;
    if (handle != nullptr) made.data_ = std::shared_ptr<void>(handle, [](void* each) { TVMModFree(each); });
    return made;
  }

  /* A module of a class of one's own. */
  explicit inline Module(ObjectPtr<ModuleNode> node);

  /* The function of that name, or a null function. */
  inline PackedFunc GetFunction(const std::string& name, bool query_imports = false) const;
  std::string type_key() const { return TilewrightModTypeKey(get()); }
  std::string GetSource(const std::string& format = "") const {
    TVMValue text;
    int code = kTVMNullptr;
    TVM_CHECK_CALL(TilewrightModGetSource(get(), format.c_str(), &text, &code));
    return code == kTVMStr ? text.v_str : "";
  }
  void Import(const Module& other) { TVM_CHECK_CALL(TVMModImport(get(), other.get())); }

  TVMModuleHandle get() const { return data_.get(); }
  Module* operator->() { return this; }
  const Module* operator->() const { return this; }
  bool defined() const { return data_ != nullptr; }
  bool same_as(const Module& other) const { return data_ == other.data_; }
  bool operator==(std::nullptr_t) const { return !defined(); }
  bool operator!=(std::nullptr_t) const { return defined(); }

 private:
  std::shared_ptr<void> data_;
};

}  // namespace runtime
}  // namespace tvm

#include <tvm/runtime/packed_func.h>

#endif /* TVM_RUNTIME_MODULE_H_ */
