/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Counted objects for C++, with the names of TVM 0.8. */
#ifndef TVM_RUNTIME_OBJECT_H_
#define TVM_RUNTIME_OBJECT_H_

#include <memory>
#include <utility>

namespace tvm {
namespace runtime {

/* The base of what is counted. */
class Object {
 public:
  virtual ~Object() = default;
};

template <typename T>
using ObjectPtr = std::shared_ptr<T>;

template <typename T, typename... Args>
inline ObjectPtr<T> make_object(Args&&... args) {
  return std::make_shared<T>(std::forward<Args>(args)...);
}

}  // namespace runtime
using runtime::Object;
using runtime::ObjectPtr;
using runtime::make_object;
}  // namespace tvm

#endif /* TVM_RUNTIME_OBJECT_H_ */
