/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Models for C++17, over tilewright_model.h: handles free themselves, errors are exceptions. One thread uses a Model at a
 * time; clone() makes one for another thread. */
#ifndef TILEWRIGHT_HPP_
#define TILEWRIGHT_HPP_

#include <tilewright_model.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tilewright {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

namespace detail {
inline void check(int rc) {
  if (rc != 0) throw Error(TVMGetLastError());
}

template <typename T>
constexpr DLDataType dtype_of() {
  static_assert(std::is_arithmetic_v<T>, "elements are numbers");
  constexpr auto code = std::is_floating_point_v<T> ? kDLFloat : std::is_unsigned_v<T> ? kDLUInt : kDLInt;
  return DLDataType{static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(std::is_same_v<T, bool> ? 1 : sizeof(T) * 8), 1};
}
}  // namespace detail

using Shape = std::vector<std::int64_t>;

/* An array that the runtime owns; copies of a Tensor share it. */
class Tensor {
 public:
  /* Zeros on the host. */
  Tensor(const Shape& shape, DLDataType dtype) {
    TVMArrayHandle made = nullptr;
    detail::check(TVMArrayAlloc(shape.data(), static_cast<int>(shape.size()), dtype.code, dtype.bits, dtype.lanes, kDLCPU, 0, &made));
    *this = Tensor(made);
    std::fill_n(bytes(), size() * ((dtype.bits * dtype.lanes + 7) / 8), std::uint8_t{0});
  }
  template <typename T>
  static Tensor of(const Shape& shape, const std::vector<T>& values) {
    Tensor made(shape, detail::dtype_of<T>());
    if (made.size() != values.size()) throw Error("a tensor needs as many values as its shape has elements");
    std::copy(values.begin(), values.end(), made.data<T>());
    return made;
  }
  /* Takes the reference over. */
  explicit Tensor(TVMArrayHandle owned) : array_(owned, [](DLTensor* a) { TVMArrayFree(a); }) {}

  Shape shape() const { return Shape(array_->shape, array_->shape + array_->ndim); }
  DLDataType dtype() const { return array_->dtype; }
  std::size_t size() const {
    std::size_t count = 1;
    for (int i = 0; i < array_->ndim; ++i) count *= static_cast<std::size_t>(array_->shape[i]);
    return count;
  }
  /* The elements, which are in the host's memory; throws where T is not their type. */
  template <typename T>
  T* data() const {
    const DLDataType wanted = detail::dtype_of<T>(), found = array_->dtype;
    if (found.code != wanted.code || found.bits != wanted.bits || found.lanes != 1) throw Error("the tensor has another data type");
    if (array_->device.device_type != kDLCPU) throw Error("the tensor is not in the host's memory");
    return reinterpret_cast<T*>(bytes());
  }
  template <typename T>
  std::vector<T> values() const {
    return std::vector<T>(data<T>(), data<T>() + size());
  }
  TVMArrayHandle handle() const { return array_.get(); }

 private:
  std::uint8_t* bytes() const { return static_cast<std::uint8_t*>(array_->data) + array_->byte_offset; }
  std::shared_ptr<DLTensor> array_;
};

/* Name, type and shape of an input or output. */
struct TensorInfo {
  std::string name;
  DLDataType dtype;
  Shape shape;                         /* -1 for a dimension that is known when the model runs */
  std::vector<std::string> dimensions; /* the name of each, "" for one that has none */
};

class Model {
 public:
  explicit Model(const std::string& library, DLDevice device = {kDLCPU, 0}) : Model(opened(library.c_str(), device)) {}
  /* The model that is linked into the program. */
  static Model embedded(DLDevice device = {kDLCPU, 0}) { return Model(opened(nullptr, device)); }
  /* One of the models that are linked into the program: NAME_model of the prefix NAME. */
  static Model linked(const TilewrightSymbol* symbols, DLDevice device = {kDLCPU, 0}) {
    TilewrightModel* made = nullptr;
    detail::check(TilewrightModelOpenLinked(symbols, device, &made));
    return Model(made);
  }
  Model clone() const {
    TilewrightModel* made = nullptr;
    detail::check(TilewrightModelClone(model_.get(), &made));
    return Model(made);
  }

  std::vector<TensorInfo> inputs() const { return infos(TilewrightModelNumInputs(model_.get()), TilewrightModelInputInfo); }
  std::vector<TensorInfo> outputs() const { return infos(TilewrightModelNumOutputs(model_.get()), TilewrightModelOutputInfo); }
  std::vector<TilewrightDimensionInfo> dimensions() const {
    std::vector<TilewrightDimensionInfo> found(static_cast<std::size_t>(TilewrightModelNumDimensions(model_.get())));
    for (std::size_t i = 0; i < found.size(); ++i) {
      detail::check(TilewrightModelDimensionInfo(model_.get(), static_cast<int>(i), &found[i]));
    }
    return found;
  }

  /* Copies a value. */
  Model& set(const std::string& input, const Tensor& value) {
    detail::check(TilewrightModelSetInput(model_.get(), input.c_str(), value.handle()));
    return *this;
  }
  /* Refers to a value: for what an output of the last run gives, such as a cache. */
  Model& share(const std::string& input, const Tensor& value) {
    detail::check(TilewrightModelShareInput(model_.get(), input.c_str(), value.handle()));
    return *this;
  }
  Model& set_max_steps(std::int64_t steps) {
    detail::check(TilewrightModelSetMaxSteps(model_.get(), steps));
    return *this;
  }
  void run() { detail::check(TilewrightModelRun(model_.get())); }
  /* An output of the last run; the next run may write to it. */
  Tensor output(int index = 0) const {
    TVMArrayHandle array = nullptr;
    detail::check(TilewrightModelOutput(model_.get(), index, &array));
    return Tensor(array);
  }
  /* Sets inputs by name, runs, and returns all outputs. */
  std::vector<Tensor> operator()(std::initializer_list<std::pair<std::string, Tensor>> values) {
    for (const auto& [name, value] : values) set(name, value);
    run();
    std::vector<Tensor> results;
    for (int i = 0; i < TilewrightModelNumOutputs(model_.get()); ++i) results.push_back(output(i));
    return results;
  }
  TilewrightModel* handle() const { return model_.get(); }

 private:
  struct Free {
    void operator()(TilewrightModel* model) const { TilewrightModelFree(model); }
  };
  explicit Model(TilewrightModel* owned) : model_(owned) {}
  static TilewrightModel* opened(const char* path, DLDevice device) {
    TilewrightModel* made = nullptr;
    detail::check(TilewrightModelOpen(path, device, &made));
    return made;
  }
  template <typename Info>
  std::vector<TensorInfo> infos(int count, Info info) const {
    std::vector<TensorInfo> found;
    for (int i = 0; i < count; ++i) {
      TilewrightTensorInfo t;
      detail::check(info(model_.get(), i, &t));
      TensorInfo made{t.name, t.dtype, Shape(t.shape, t.shape + t.ndim), {}};
      for (int axis = 0; axis < t.ndim; ++axis) made.dimensions.emplace_back(t.dimensions[axis] == nullptr ? "" : t.dimensions[axis]);
      found.push_back(std::move(made));
    }
    return found;
  }
  std::unique_ptr<TilewrightModel, Free> model_;
};

}  // namespace tilewright
#endif /* TILEWRIGHT_HPP_ */
