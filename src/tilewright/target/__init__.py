"""Targets and code generation.

``target.py``: ``Target``; ``features.py``: what its processor can do; ``codegen/llvm`` and ``codegen/c``: from TIR to
LLVM IR and to C source; ``workers.py``: compiling IR to object code in processes, ``cache.py`` keeps the results on disk;
``loader.py``: object code into this process; ``build.py``: ``tvm.build``. Mathematical functions are in
``intrinsics.py``.
"""

from tilewright.target.features import CpuFeatures, features
from tilewright.target.target import Target, TargetKind, arm_cpu, create, cuda, riscv_cpu

__all__ = ["CpuFeatures", "Target", "TargetKind", "arm_cpu", "create", "cuda", "features", "riscv_cpu"]
