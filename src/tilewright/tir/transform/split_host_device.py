"""SplitHostDevice: make loops over threads device functions, which the host's code launches.

Before, ``f`` for a target ``t`` whose host is ``h``::

    @f = primfn(...)  attr {"target": t}
      attr [IterVar(blockIdx.x)] "thread_extent" = (n + 63) // 64
      attr [IterVar(threadIdx.x)] "thread_extent" = 64
      B[blockIdx.x*64 + threadIdx.x] = ...A...

after::

    @f = primfn(...)  attr {"target": h}
      @tir.tvm_call_packed("f_kernel0", B, A, n, (n + 63) // 64, 64)

    @f_kernel0 = primfn(B, A, n)
      attr {"calling_conv": 2, "target": t, "tir.device_thread_axis": [blockIdx.x, threadIdx.x], ...}
      attr [IterVar(blockIdx.x)] "thread_extent" = ...

A kernel's parameters are the variables that it uses: pointers first, then numbers. It is called with them, and then
with the extents of its thread axes, in the order of ``tir.device_thread_axis``; how many blocks and threads that makes
is up to the module that launches it. ``MakePackedAPI`` comes before, so that the host checks the arguments.

Regions marked ``pipeline_exec_scope`` or ``device_scope`` (``DecorateDeviceScope``: the whole function) are split off
too.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError
from tilewright.ir.function_attributes import GLOBAL_SYMBOL, TARGET
from tilewright.ir.module import IRModule
from tilewright.ir.transform import ModulePass, Pass, PassContext, PassInfo
from tilewright.ir.type import PointerType
from tilewright.tir.expr import Call, IterVar, PrimExpr, StringImm
from tilewright.tir.function import PrimFunc
from tilewright.tir.function_attributes import (
    CALLING_CONV,
    DEVICE_THREAD_AXES,
    DYNAMIC_SHARED_MEMORY,
    IS_GLOBAL_FUNCTION,
    NOALIAS,
)
from tilewright.tir.stmt import Allocate, AttrStmt, Evaluate, Stmt
from tilewright.tir.transform.common import body_pass
from tilewright.tir.visitor import StmtMutator, StmtVisitor, free_vars

DEVICE_KERNEL = 2
"""``calling_conv`` of a function that is launched on a device; 1 is the packed C signature."""

_SPLIT_OFF = ("thread_extent", "pipeline_exec_scope", "device_scope")


class _DeviceRegions(StmtVisitor):
    found = False

    def visit_attr(self, s: AttrStmt) -> None:
        if s.attr_key in _SPLIT_OFF:
            self.found = True
        else:
            super().visit_attr(s)


def has_device_regions(func: PrimFunc) -> bool:
    """Return whether ``SplitHostDevice`` would split anything off."""
    regions = _DeviceRegions()
    regions.visit_stmt(func.body)
    return regions.found


class _Launch(StmtVisitor):
    """The launch parameters of a kernel: its thread axes, and the size of its dynamic shared memory."""

    def __init__(self, kernel: str) -> None:
        super().__init__()
        self.kernel = kernel
        self.axes: dict[str, tuple[IterVar, PrimExpr]] = {}
        self.shared_bytes: PrimExpr | None = None

    def visit_attr(self, s: AttrStmt) -> None:
        if s.attr_key == "thread_extent" and isinstance(s.node, IterVar):
            axis, extent = self.axes.setdefault(s.node.thread_tag, (s.node, s.value))
            if extent is not s.value:
                raise TilewrightError(
                    f"{self.kernel} has loops over {axis.thread_tag} of {extent} and of {s.value}; what runs in one "
                    "kernel must agree"
                )
        super().visit_attr(s)

    def visit_allocate(self, s: Allocate) -> None:
        pointer = s.buffer_var.type_annotation
        if isinstance(pointer, PointerType) and pointer.storage_scope == "shared.dyn":
            if self.shared_bytes is not None:
                raise TilewrightError(f"{self.kernel} has two allocations of shared.dyn memory; there can be one")
            self.shared_bytes = ops.const(dt.nbytes(s.dtype) * dt.lanes(s.dtype), "int32")
            for extent in s.extents:
                self.shared_bytes = ops.mul(self.shared_bytes, extent)
        super().visit_allocate(s)


class _Splitter(StmtMutator):
    def __init__(self, func: PrimFunc) -> None:
        super().__init__()
        for needed in (GLOBAL_SYMBOL, TARGET):
            if not needed.has(func):
                raise TilewrightError(f"SplitHostDevice needs functions with the attribute {needed.key}")
        self.name = GLOBAL_SYMBOL.of(func)
        self.target = TARGET.of(func)
        self.kernels: list[PrimFunc] = []
        self.alignments: dict[Any, PrimExpr] = {}

    def visit_attr(self, s: AttrStmt) -> Stmt:
        if s.attr_key == "storage_alignment":
            self.alignments[s.node] = s.value
        if s.attr_key not in _SPLIT_OFF:
            return super().visit_attr(s)
        kernel = f"{self.name}_kernel{len(self.kernels)}"
        launch = _Launch(kernel)
        launch.visit_stmt(s)
        used = free_vars(s)
        params = [v for v in used if v.dtype == "handle"] + [v for v in used if v.dtype != "handle"]
        attrs = {
            CALLING_CONV.key: DEVICE_KERNEL,
            GLOBAL_SYMBOL.key: kernel,
            TARGET.key: self.target,
            DEVICE_THREAD_AXES.key: tuple(axis for axis, _ in launch.axes.values()),
            IS_GLOBAL_FUNCTION.key: True,
            NOALIAS.key: True,
        }
        numbers = [extent for _, extent in launch.axes.values()]
        if launch.shared_bytes is not None:
            attrs[DYNAMIC_SHARED_MEMORY.key] = True
            numbers.append(launch.shared_bytes)
        body: Stmt = s
        for param in reversed(params):
            if param in self.alignments:  # what the host has checked
                body = AttrStmt(param, "storage_alignment", self.alignments[param], body)
        self.kernels.append(PrimFunc(params, body, None, {}, attrs))
        call = Call("int32", "tir.tvm_call_packed", (StringImm(kernel), *params, *numbers))
        return Evaluate(call)


def split_host_device(func: PrimFunc) -> list[PrimFunc]:
    """Return the host's part of ``func`` and its kernels; ``func`` alone when no threads are bound."""
    splitter = _Splitter(func)
    body = splitter.visit_stmt(func.body)
    if not splitter.kernels:
        return [func]
    host = getattr(splitter.target, "host", None)
    rest = func.with_body(body)
    rest = rest.without_attr(TARGET.key) if host is None else rest.with_attr(TARGET.key, host)
    return [rest, *splitter.kernels]


def SplitHostDevice() -> Pass:
    """The pass; kernels are functions of the module, by their names."""

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        result = mod.copy()
        for var, func in mod.items():
            if isinstance(func, PrimFunc) and CALLING_CONV.get(func) != DEVICE_KERNEL:
                result[var], *kernels = split_host_device(func)
                for kernel in kernels:
                    result[GLOBAL_SYMBOL.of(kernel)] = kernel
        return result

    return ModulePass(run, PassInfo(0, "tir.SplitHostDevice"))


def DecorateDeviceScope() -> Pass:
    """The pass that marks whole functions as the device's."""
    zero = ops.const(0, "int32")
    return body_pass("DecorateDeviceScope", lambda body: AttrStmt(zero, "device_scope", zero, body))
