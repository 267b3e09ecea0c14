"""Compiles the C of the package, each folder of ``native/src`` to the library that stands beside it here.

The driver (with the chip that it drives) knows nothing of Tilewright. The others are linked with Tilewright's runtime,
which is loaded already when they are, and with the driver, which lies beside them.
"""

import os
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

from tilewright import runtime

PACKAGE = "tilewright_npu"
# For another machine (packaging/wheels.py) its runtime lies elsewhere.
NATIVE = Path(os.environ.get("TILEWRIGHT_NATIVE_DIR") or runtime.native_dir())
ROOT = Path(__file__).parent
# -ffp-contract=off: products and sums round one by one on every processor, as docs/isa.md says
FLAGS = [
    "-std=c11",
    "-D_GNU_SOURCE",
    "-O3",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Wshadow",
]


def sources(*folders: str) -> list[str]:
    """The C files of folders."""
    found = [path for folder in folders for path in sorted((ROOT / "native" / "src" / folder).glob("*.c"))]
    return [str(path.relative_to(ROOT)) for path in found]


def library(name: str, folders: list[str], **options: Any) -> Extension:
    """A shared library of the C in folders."""
    headers = [str(path) for path in ROOT.glob("native/**/*.h")]
    include = ["native/include", str(NATIVE / "include")]
    files = sources(*folders)
    return Extension(f"{PACKAGE}.{name}", files, include, depends=headers, extra_compile_args=FLAGS, **options)


def on_top(name: str, folder: str) -> Extension:
    """A library over the driver and Tilewright's runtime."""
    return library(
        name,
        [folder],
        library_dirs=[str(NATIVE)],
        libraries=["npu_driver", "tilewright_runtime"],
        runtime_library_dirs=["$ORIGIN"],
    )


class Build(build_ext):
    """Names that a linker knows, and each library findable for the next."""

    def get_ext_filename(self, fullname: str) -> str:
        return fullname.replace(".", "/") + ".so"

    def build_extension(self, ext: Extension) -> None:
        ext.library_dirs.append(str(Path(self.build_lib) / PACKAGE))
        super().build_extension(ext)


driver = library("libnpu_driver", ["chip", "driver"], libraries=["m", "pthread"])
above = [on_top(f"libnpu_{folder}", folder) for folder in ("device", "runtime") if sources(folder)]
setup(ext_modules=[driver, *above], cmdclass={"build_ext": Build})
