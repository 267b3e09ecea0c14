//! Tensors: views of numbers with a shape, and numbers of their own.

use std::{marker::PhantomData, os::raw::c_void, ptr, slice};

use crate::{sys, Error};

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum DataType {
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Bool,
    /// One that Rust has no number for, such as float16: DLPack's code, bits and lanes.
    Other(u8, u8, u16),
}

const KNOWN: [(DataType, u8, u8); 11] = [
    (DataType::F32, 2, 32),
    (DataType::F64, 2, 64),
    (DataType::I8, 0, 8),
    (DataType::I16, 0, 16),
    (DataType::I32, 0, 32),
    (DataType::I64, 0, 64),
    (DataType::U8, 1, 8),
    (DataType::U16, 1, 16),
    (DataType::U32, 1, 32),
    (DataType::U64, 1, 64),
    (DataType::Bool, 1, 1),
];

impl DataType {
    pub(crate) fn of(found: sys::DataType) -> DataType {
        let known = KNOWN.iter().find(|k| (k.1, k.2, 1) == (found.code, found.bits, found.lanes));
        known.map_or(DataType::Other(found.code, found.bits, found.lanes), |k| k.0)
    }

    fn raw(self) -> sys::DataType {
        if let DataType::Other(code, bits, lanes) = self {
            return sys::DataType { code, bits, lanes };
        }
        let known = KNOWN.iter().find(|k| k.0 == self).expect("every other type is listed");
        sys::DataType { code: known.1, bits: known.2, lanes: 1 }
    }
}

/// A number that tensors hold.
///
/// # Safety
/// The type has the size and the form that the runtime has for `DTYPE`, and every pattern of the runtime's is valid.
pub unsafe trait Element: Copy {
    /// The type as the runtime knows it.
    const DTYPE: DataType;
}

macro_rules! elements {
    ($($number:ty => $dtype:ident),*) => {$(
        unsafe impl Element for $number {
            const DTYPE: DataType = DataType::$dtype;
        }
    )*};
}
elements!(f32 => F32, f64 => F64, i8 => I8, i16 => I16, i32 => I32, i64 => I64, u8 => U8, u16 => U16, u32 => U32, u64 => U64, bool => Bool);

/// Numbers of somebody else's, in row-major order.
pub struct TensorView<'a> {
    data: *const c_void,
    shape: Vec<i64>,
    dtype: DataType,
    kept: *mut sys::Tensor, // an output of the runtime's, which this frees
    of: PhantomData<&'a ()>,
}

impl<'a> TensorView<'a> {
    /// Looks at `values` as a tensor of that shape; an error where the shape has another number of elements.
    pub fn new<T: Element>(shape: &[usize], values: &'a [T]) -> Result<TensorView<'a>, Error> {
        let count: usize = shape.iter().product();
        if count != values.len() {
            return Err(Error::new(format!(
                "the shape {shape:?} has {count} elements, and {} were given",
                values.len()
            )));
        }
        let shape = shape.iter().map(|&n| n as i64).collect();
        Ok(TensorView { data: values.as_ptr().cast(), shape, dtype: T::DTYPE, kept: ptr::null_mut(), of: PhantomData })
    }

    /// Takes over an array of the runtime's whose memory stays as it is for `'a`.
    ///
    /// # Safety
    /// `array` is a compact array on the CPU that the caller owns a reference of.
    pub(crate) unsafe fn owning(array: *mut sys::Tensor) -> TensorView<'a> {
        let found = &*array;
        let shape = if found.ndim == 0 { &[][..] } else { slice::from_raw_parts(found.shape, found.ndim as usize) };
        let data = found.data.cast::<u8>().add(found.byte_offset as usize).cast();
        TensorView { data, shape: shape.to_vec(), dtype: DataType::of(found.dtype), kept: array, of: PhantomData }
    }

    /// The number of elements in each dimension.
    pub fn shape(&self) -> Vec<usize> {
        self.shape.iter().map(|&n| n as usize).collect()
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DataType {
        self.dtype
    }

    /// The elements; an error where they are of another type.
    pub fn values<T: Element>(&self) -> Result<&[T], Error> {
        if T::DTYPE != self.dtype {
            return Err(Error::new(format!("the tensor holds {:?}, and {:?} was asked for", self.dtype, T::DTYPE)));
        }
        let count: usize = self.shape().iter().product();
        if count == 0 {
            return Ok(&[]);
        }
        // The constructors have the memory of so many elements of this type, which nobody writes to for 'a.
        Ok(unsafe { slice::from_raw_parts(self.data.cast(), count) })
    }

    pub(crate) fn raw(&self) -> sys::Tensor {
        sys::Tensor {
            data: self.data as *mut c_void,
            device: crate::CPU,
            ndim: self.shape.len() as i32,
            dtype: self.dtype.raw(),
            shape: self.shape.as_ptr() as *mut i64,
            strides: ptr::null_mut(),
            byte_offset: 0,
        }
    }
}

impl Drop for TensorView<'_> {
    fn drop(&mut self) {
        if !self.kept.is_null() {
            unsafe { sys::TVMArrayFree(self.kept) };
        }
    }
}
