"""Targets and code generation.

target.py      ``Target``                                  features.py   what its processor can do
kind.py        kinds of targets, ``register_target_kind``  tag.py        names of whole targets
codegen/llvm   TIR to LLVM IR                              codegen/c     TIR to C source
workers.py     compiling in processes                      cache.py      compiled kernels on disk
llvm_compile.py  what a worker runs                        loader.py     object code into this process
build.py       ``tvm.build``                               intrinsics.py mathematical functions
code_generator.py  how code generators are registered, ``register_code_generator``
generic_func.py  functions that dispatch on the target
datatype.py    element types that users bring              device_build.py  functions to device code
kept_kernels.py  kernels by what they are lowered from     own_code.py   whose code compiles
interfaces.py  how compiled functions are called           options.py    options of ``PassContext``
gpu.py         limits of GPUs
"""

from tilewright.ir.load_on_use import load_on_use
from tilewright.target import codegen as codegen
from tilewright.target.features import CpuFeatures, features
from tilewright.target.generic_func import (
    GenericFunc,
    generic_func,
    get_native_generic_func,
    override_native_generic_func,
)  # fmt: skip
from tilewright.target.kind import BlockLimits, Capabilities, TargetKind, register_target_kind
from tilewright.target.tag import list_tags, register_tag
from tilewright.target.target import (
    Target,
    arm_cpu,
    bifrost,
    create,
    cuda,
    intel_graphics,
    mali,
    micro,
    riscv_cpu,
    rocm,
    vta,
)

__getattr__, __dir__ = load_on_use(__name__, [".datatype"])


__all__ = [
    "BlockLimits",
    "Capabilities",
    "CpuFeatures",
    "GenericFunc",
    "Target",
    "TargetKind",
    "arm_cpu",
    "bifrost",
    "create",
    "cuda",
    "features",
    "generic_func",
    "get_native_generic_func",
    "intel_graphics",
    "list_tags",
    "mali",
    "micro",
    "override_native_generic_func",
    "register_tag",
    "register_target_kind",
    "riscv_cpu",
    "rocm",
    "vta",
]  # fmt: skip
