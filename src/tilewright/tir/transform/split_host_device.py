"""SplitHostDevice and DecorateDeviceScope: nothing to split on a CPU, where host and device are one.

A module without thread axes stays as it is. One with a ``thread_extent`` attribute needs a device code generator, which
this version does not have; the error names the function.
"""

from __future__ import annotations

from tilewright.ir.errors import UnsupportedError
from tilewright.ir.transform import Pass
from tilewright.tir.expr import IterVar
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import AttrStmt
from tilewright.tir.transform.common import function_pass
from tilewright.tir.visitor import StmtVisitor


class _ThreadAxes(StmtVisitor):
    def __init__(self) -> None:
        super().__init__()
        self.tags: dict[str, None] = {}

    def visit_attr(self, s: AttrStmt) -> None:
        if s.attr_key == "thread_extent" and isinstance(s.node, IterVar):
            self.tags[s.node.thread_tag] = None
        super().visit_attr(s)


def split_host_device(func: PrimFunc) -> PrimFunc:
    """``func`` itself; raises UnsupportedError when it is bound to GPU threads."""
    axes = _ThreadAxes()
    axes.visit_stmt(func.body)
    tags = [t for t in axes.tags if t.startswith(("blockIdx", "threadIdx"))]
    if tags:
        name = func.attrs.get("global_symbol", "main")
        raise UnsupportedError(
            f"function {name} binds loops to {', '.join(tags)}; a CPU has no such threads: use parallel() instead"
        )
    return func


def SplitHostDevice() -> Pass:
    """The pass."""
    return function_pass("SplitHostDevice", split_host_device)


def DecorateDeviceScope() -> Pass:
    """The pass that marks device functions; on a CPU there are none."""
    return function_pass("DecorateDeviceScope", lambda func: func)
