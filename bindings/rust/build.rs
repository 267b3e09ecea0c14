//! Finds the runtime: `TILEWRIGHT_LIB_DIR`, or the package that Python has (`PYTHON`, by default python3).
//! `TILEWRIGHT_STATIC=1` links it into the program.

use std::{env, path::PathBuf, process::Command};

const ASK: &str = "from tilewright.runtime._ffi import find_library; print(find_library().parent)";

fn folder() -> Result<PathBuf, String> {
    if let Some(folder) = env::var_os("TILEWRIGHT_LIB_DIR") {
        return Ok(folder.into());
    }
    let python = env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    let failed = |why: String| {
        format!("set TILEWRIGHT_LIB_DIR to the folder of libtilewright_runtime.so, or PYTHON to a Python that has tilewright ({why})")
    };
    let asked = Command::new(&python).args(["-c", ASK]).output().map_err(|e| failed(format!("{python}: {e}")))?;
    let said = String::from_utf8_lossy(&asked.stdout).trim().to_string();
    if asked.status.success() && !said.is_empty() {
        Ok(said.into())
    } else {
        Err(failed(String::from_utf8_lossy(&asked.stderr).trim().to_string()))
    }
}

fn main() {
    for name in ["TILEWRIGHT_LIB_DIR", "TILEWRIGHT_STATIC", "PYTHON"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    let folder = folder().unwrap_or_else(|why| panic!("{why}"));
    println!("cargo:rustc-link-search=native={}", folder.display());
    if env::var("TILEWRIGHT_STATIC").map_or(false, |v| v == "1") {
        println!("cargo:rustc-link-lib=static:+whole-archive=tilewright_runtime");
        println!("cargo:rustc-link-arg=-rdynamic"); // compiled models look the runtime's functions up
        for library in ["m", "dl", "pthread"] {
            println!("cargo:rustc-link-lib=dylib={library}");
        }
    } else {
        println!("cargo:rustc-link-lib=dylib=tilewright_runtime");
        println!("cargo:rustc-link-arg=-Wl,-rpath,{}", folder.display());
    }
}
