"""Code generators: ``llvm`` (LLVM IR text) and ``c`` (C source), from TIR functions whose calls are lowered."""

from __future__ import annotations


def llvm_version_major(allow_none: bool = False) -> int | None:
    """The major version of the LLVM that generates code; ``allow_none`` is for TVM's callers: there always is one."""
    from llvmlite import binding

    return int(binding.llvm_version_info[0])
