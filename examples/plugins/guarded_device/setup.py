"""Compiles the device: a shared library, linked with Tilewright's runtime, which is loaded already when this one is."""

from setuptools import Extension, setup

from tilewright import runtime

setup(
    ext_modules=[
        Extension(
            "tilewright_guarded.device",
            sources=["src/tilewright_guarded/device.c"],
            include_dirs=[str(runtime.native_dir() / "include")],
            library_dirs=[str(runtime.native_dir())],
            libraries=["tilewright_runtime"],
            extra_compile_args=["-std=c11", "-Wall", "-Wextra"],
        )
    ]
)
