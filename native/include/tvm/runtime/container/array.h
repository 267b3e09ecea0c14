/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * A list whose copies share their elements until one changes, with the names of TVM 0.8. */
#ifndef TVM_RUNTIME_CONTAINER_ARRAY_H_
#define TVM_RUNTIME_CONTAINER_ARRAY_H_

#include <initializer_list>
#include <memory>
#include <vector>

namespace tvm {
namespace runtime {

template <typename T>
class Array {
 public:
  using value_type = T;
  using const_iterator = typename std::vector<T>::const_iterator;

  Array() : data_(std::make_shared<std::vector<T>>()) {}
  Array(std::initializer_list<T> values) : data_(std::make_shared<std::vector<T>>(values)) {}
  Array(const std::vector<T>& values) : data_(std::make_shared<std::vector<T>>(values)) {}
  template <typename Iterator>
  Array(Iterator first, Iterator last) : data_(std::make_shared<std::vector<T>>(first, last)) {}

  size_t size() const { return data_->size(); }
  bool empty() const { return data_->empty(); }
  const T& operator[](int64_t index) const { return data_->at(static_cast<size_t>(index)); }
  const T& front() const { return data_->front(); }
  const T& back() const { return data_->back(); }
  const_iterator begin() const { return data_->begin(); }
  const_iterator end() const { return data_->end(); }
  void push_back(const T& value) { own().push_back(value); }
  void Set(int64_t index, const T& value) { own().at(static_cast<size_t>(index)) = value; }
  void clear() { own().clear(); }

 private:
  std::vector<T>& own() {
    if (data_.use_count() != 1) data_ = std::make_shared<std::vector<T>>(*data_);
    return *data_;
  }

  std::shared_ptr<std::vector<T>> data_;
};

}  // namespace runtime
using runtime::Array;
}  // namespace tvm

#endif /* TVM_RUNTIME_CONTAINER_ARRAY_H_ */
