"""Code generators: ``llvm`` (LLVM IR text) and ``c`` (C source), from TIR functions whose calls are lowered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.runtime import Module


def build_module(mod: Any, target: Any) -> Module:
    """Generate code for a lowered module by the generator of ``target``, as :func:`tilewright.build` does."""
    from tilewright.target.build import build

    return build(mod, target=target)


def llvm_version_major(allow_none: bool = False) -> int | None:
    """Return the major version of the LLVM that generates code; ``allow_none`` exists for TVM's callers."""
    from llvmlite import binding

    return int(binding.llvm_version_info[0])
