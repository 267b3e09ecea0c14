/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Arrays for C++, with the names of TVM 0.8, over the C interface. */
#ifndef TVM_RUNTIME_NDARRAY_H_
#define TVM_RUNTIME_NDARRAY_H_

#include <tvm/runtime/container/array.h>
#include <tvm/runtime/data_type.h>

#include <memory>
#include <vector>

namespace tvm {
namespace runtime {

/* Sizes of an array, by dimension. */
class ShapeTuple : public std::vector<int64_t> {
 public:
  using index_type = int64_t;
  using std::vector<int64_t>::vector;
  ShapeTuple() = default;
  ShapeTuple(const std::vector<int64_t>& sizes) : std::vector<int64_t>(sizes) {}
};

/* A counted reference to an array; copies are of the reference. */
class NDArray {
 public:
  NDArray() = default;
  NDArray(std::nullptr_t) {}

  /* New memory, aligned for every kernel. */
  static NDArray Empty(const ShapeTuple& shape, DLDataType type, DLDevice device) {
    TVMArrayHandle made = nullptr;
    const int rank = static_cast<int>(shape.size());
    TVM_CHECK_CALL(TVMArrayAlloc(shape.data(), rank, type.code, type.bits, type.lanes, device.device_type,
                                 device.device_id, &made));
    return Owned(made);
  }
  static NDArray FromDLPack(DLManagedTensor* tensor) {
    TVMArrayHandle made = nullptr;
    TVM_CHECK_CALL(TVMArrayFromDLPack(tensor, &made));
    return Owned(made);
  }
  /* Takes over one reference of the runtime's. */
  static NDArray Owned(TVMArrayHandle handle) {
    NDArray array;
    if (handle != nullptr) array.data_ = std::shared_ptr<DLTensor>(handle, [](DLTensor* each) { TVMArrayFree(each); });
    return array;
  }
  /* A tensor of somebody else's, which must outlive this; it is no array of the runtime's. */
  static NDArray View(DLTensor* tensor) {
    NDArray array;
    array.data_ = std::shared_ptr<DLTensor>(tensor, [](DLTensor*) {});
    array.view_ = true;
    return array;
  }

  const DLTensor* operator->() const { return data_.get(); }
  DLTensor* get() const { return data_.get(); }
  bool defined() const { return data_ != nullptr; }
  bool is_view() const { return view_; }
  bool same_as(const NDArray& other) const { return data_ == other.data_; }
  bool operator==(const NDArray& other) const { return same_as(other); }
  bool operator==(std::nullptr_t) const { return !defined(); }
  bool operator!=(std::nullptr_t) const { return defined(); }

  ShapeTuple Shape() const { return ShapeTuple(data_->shape, data_->shape + data_->ndim); }
  runtime::DataType DataType() const { return runtime::DataType(data_->dtype); }
  DLManagedTensor* ToDLPack() const {
    DLManagedTensor* made = nullptr;
    TVM_CHECK_CALL(TVMArrayToDLPack(data_.get(), &made));
    return made;
  }

  void CopyFrom(const NDArray& other) { CopyFrom(other.get()); }
  void CopyFrom(const DLTensor* other) {
    TVM_CHECK_CALL(TVMArrayCopyFromTo(const_cast<DLTensor*>(other), data_.get(), nullptr));
  }
  void CopyTo(const NDArray& other) const { CopyTo(other.get()); }
  void CopyTo(DLTensor* other) const { TVM_CHECK_CALL(TVMArrayCopyFromTo(data_.get(), other, nullptr)); }
  NDArray CopyTo(const DLDevice& device) const {
    NDArray made = Empty(Shape(), data_->dtype, device);
    CopyTo(made);
    return made;
  }
  void CopyFromBytes(const void* bytes, size_t count) {
    TVM_CHECK_CALL(TVMArrayCopyFromBytes(data_.get(), const_cast<void*>(bytes), count));
  }
  void CopyToBytes(void* bytes, size_t count) const {
    TVM_CHECK_CALL(TVMArrayCopyToBytes(data_.get(), bytes, count));
  }

 private:
  std::shared_ptr<DLTensor> data_;
  bool view_ = false;
};

/* Bytes that an array's elements take. */
inline size_t GetDataSize(const DLTensor& array) {
  size_t count = 1;
  for (int i = 0; i < array.ndim; ++i) count *= static_cast<size_t>(array.shape[i]);
  return count * ((array.dtype.bits * array.dtype.lanes + 7) / 8);
}

}  // namespace runtime
}  // namespace tvm

#include <tvm/runtime/packed_func.h>

#endif /* TVM_RUNTIME_NDARRAY_H_ */
