"""Targets and code generation.

target.py      ``Target``                                  features.py   what its processor can do
codegen/llvm   TIR to LLVM IR                              codegen/c     TIR to C source
workers.py     compiling in processes                      cache.py      compiled kernels on disk
llvm_compile.py  what a worker runs                        loader.py     object code into this process
build.py       ``tvm.build``                               intrinsics.py mathematical functions
code_generator.py  how code generators are registered, ``register_code_generator``
generic_func.py  functions that dispatch on the target
"""

from tilewright.target.features import CpuFeatures, features
from tilewright.target.generic_func import (
    GenericFunc,
    generic_func,
    get_native_generic_func,
    override_native_generic_func,
)  # fmt: skip
from tilewright.target.target import Target, TargetKind, arm_cpu, create, cuda, riscv_cpu

__all__ = [
    "CpuFeatures", "GenericFunc", "Target", "TargetKind", "arm_cpu", "create", "cuda", "features", "generic_func",
    "get_native_generic_func", "override_native_generic_func", "riscv_cpu",
]  # fmt: skip
