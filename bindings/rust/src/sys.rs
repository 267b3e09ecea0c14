//! The C interface: `tilewright_model.h`, and what it needs of `tvm/runtime/c_runtime_api.h`.

use std::os::raw::{c_char, c_int, c_void};

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Device {
    pub device_type: c_int,
    pub device_id: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DataType {
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}

#[repr(C)]
pub struct Tensor {
    pub data: *mut c_void,
    pub device: Device,
    pub ndim: c_int,
    pub dtype: DataType,
    pub shape: *mut i64,
    pub strides: *mut i64,
    pub byte_offset: u64,
}

#[repr(C)]
pub struct TensorInfo {
    pub name: *const c_char,
    pub dtype: DataType,
    pub ndim: c_int,
    pub shape: *const i64,
    pub dimensions: *const *const c_char,
}

pub enum Model {}

extern "C" {
    pub fn TVMGetLastError() -> *const c_char;
    pub fn TVMArrayFree(array: *mut Tensor) -> c_int;
    pub fn TilewrightVersion() -> *const c_char;
    pub fn TilewrightModelOpen(path: *const c_char, device: Device, out: *mut *mut Model) -> c_int;
    pub fn TilewrightModelClone(model: *const Model, out: *mut *mut Model) -> c_int;
    pub fn TilewrightModelFree(model: *mut Model);
    pub fn TilewrightModelNumInputs(model: *const Model) -> c_int;
    pub fn TilewrightModelNumOutputs(model: *const Model) -> c_int;
    pub fn TilewrightModelInputInfo(model: *const Model, index: c_int, out: *mut TensorInfo) -> c_int;
    pub fn TilewrightModelOutputInfo(model: *const Model, index: c_int, out: *mut TensorInfo) -> c_int;
    pub fn TilewrightModelSetInput(model: *mut Model, name: *const c_char, value: *const Tensor) -> c_int;
    pub fn TilewrightModelRun(model: *mut Model) -> c_int;
    pub fn TilewrightModelOutput(model: *mut Model, index: c_int, out: *mut *mut Tensor) -> c_int;
}
