//! Runs models that Tilewright has compiled: libraries of `tilewright compile model.onnx`.
//!
//! ```no_run
//! let mut model = tilewright::Model::open("digits.so")?;
//! let pixels = vec![0f32; 64];
//! model.set_input("pixels", &tilewright::TensorView::new(&[1, 1, 8, 8], &pixels)?)?;
//! model.run()?;
//! println!("{:?}", model.output(0)?.values::<f32>()?);
//! # Ok::<(), tilewright::Error>(())
//! ```
//!
//! A tensor is a slice with a shape, so arrays of other crates go in and out by these: of `ndarray`,
//! `TensorView::new(a.shape(), a.as_slice().unwrap())` and `ArrayView::from_shape(t.shape(), t.values()?)`.

#![warn(missing_docs)]

mod sys;
mod tensor;

use std::{
    ffi::{CStr, CString},
    fmt,
    os::raw::c_int,
    path::Path,
    ptr,
};

pub use tensor::{DataType, Element, TensorView};

const CPU: sys::Device = sys::Device { device_type: 1, device_id: 0 };

/// A failure, in the runtime's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(String);

impl Error {
    fn new(text: impl Into<String>) -> Error {
        Error(text.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// The version of the runtime.
pub fn version() -> String {
    unsafe { text(sys::TilewrightVersion()) }
}

fn checked(status: c_int) -> Result<(), Error> {
    match status {
        0 => Ok(()),
        _ => Err(Error(unsafe { text(sys::TVMGetLastError()) })),
    }
}

unsafe fn text(found: *const std::os::raw::c_char) -> String {
    CStr::from_ptr(found).to_string_lossy().into_owned()
}

fn c_string(found: &str) -> Result<CString, Error> {
    CString::new(found).map_err(|_| Error::new(format!("{found:?} has a zero byte")))
}

/// The extent of one dimension of an input or output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// Always so many.
    Fixed(usize),
    /// Known when the model runs; one name is one number in all inputs of a run.
    Named(String),
    /// Known when the model has run.
    Unknown,
}

/// What a model takes or gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name.
    pub name: String,
    /// The type of its elements.
    pub dtype: DataType,
    /// Its dimensions.
    pub shape: Vec<Dimension>,
}

impl TensorInfo {
    unsafe fn of(found: &sys::TensorInfo) -> TensorInfo {
        let shape = (0..found.ndim as usize).map(|i| match (*found.shape.add(i), *found.dimensions.add(i)) {
            (extent, _) if extent >= 0 => Dimension::Fixed(extent as usize),
            (_, name) if name.is_null() => Dimension::Unknown,
            (_, name) => Dimension::Named(text(name)),
        });
        TensorInfo { name: text(found.name), dtype: DataType::of(found.dtype), shape: shape.collect() }
    }
}

/// A compiled model with the memory that it runs in. Each thread has its own: see [`Model::try_clone`].
pub struct Model(*mut sys::Model);

// The runtime has no state of threads in a model; &mut self keeps two from running it at a time.
unsafe impl Send for Model {}

impl Model {
    /// Opens a library.
    pub fn open(path: impl AsRef<Path>) -> Result<Model, Error> {
        let path = c_string(&path.as_ref().to_string_lossy())?;
        Model::made(|out| unsafe { sys::TilewrightModelOpen(path.as_ptr(), CPU, out) })
    }

    /// Opens the model that is linked into the program.
    pub fn linked() -> Result<Model, Error> {
        Model::made(|out| unsafe { sys::TilewrightModelOpen(ptr::null(), CPU, out) })
    }

    /// Makes a second one, for another thread, that shares the weights.
    pub fn try_clone(&self) -> Result<Model, Error> {
        Model::made(|out| unsafe { sys::TilewrightModelClone(self.0, out) })
    }

    fn made(make: impl FnOnce(*mut *mut sys::Model) -> c_int) -> Result<Model, Error> {
        let mut found = ptr::null_mut();
        checked(make(&mut found))?;
        Ok(Model(found))
    }

    /// What the model takes.
    pub fn inputs(&self) -> Result<Vec<TensorInfo>, Error> {
        self.infos(unsafe { sys::TilewrightModelNumInputs(self.0) }, sys::TilewrightModelInputInfo)
    }

    /// What the model gives.
    pub fn outputs(&self) -> Result<Vec<TensorInfo>, Error> {
        self.infos(unsafe { sys::TilewrightModelNumOutputs(self.0) }, sys::TilewrightModelOutputInfo)
    }

    fn infos(
        &self,
        count: c_int,
        ask: unsafe extern "C" fn(*const sys::Model, c_int, *mut sys::TensorInfo) -> c_int,
    ) -> Result<Vec<TensorInfo>, Error> {
        let one = |index| {
            let mut found = std::mem::MaybeUninit::uninit();
            checked(unsafe { ask(self.0, index, found.as_mut_ptr()) })?;
            Ok(unsafe { TensorInfo::of(&found.assume_init()) })
        };
        (0..count).map(one).collect()
    }

    /// Copies the value of an input, for all runs until it is set again.
    pub fn set_input(&mut self, name: &str, value: &TensorView<'_>) -> Result<(), Error> {
        let name = c_string(name)?;
        checked(unsafe { sys::TilewrightModelSetInput(self.0, name.as_ptr(), &value.raw()) })
    }

    /// Runs the model on the inputs that were set; an error names those that have no value.
    pub fn run(&mut self) -> Result<(), Error> {
        checked(unsafe { sys::TilewrightModelRun(self.0) })
    }

    /// An output of the last run, without a copy: the next run waits until it is dropped.
    pub fn output(&self, index: usize) -> Result<TensorView<'_>, Error> {
        let index = c_int::try_from(index).map_err(|_| Error::new(format!("there is no output {index}")))?;
        let mut found = ptr::null_mut();
        checked(unsafe { sys::TilewrightModelOutput(self.0, index, &mut found) })?;
        Ok(unsafe { TensorView::owning(found) })
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        unsafe { sys::TilewrightModelFree(self.0) }
    }
}
