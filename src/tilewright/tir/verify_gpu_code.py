"""``tir.analysis.verify_gpu_code``: check of the kernels of a lowered function against the limits of a GPU."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir.errors import TilewrightError
from tilewright.ir.prim_expr import IntImm, PrimExpr, Var
from tilewright.ir.type import PointerType
from tilewright.tir.expr import IterVar, Load
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import Allocate, AttrStmt, For, Stmt, Store
from tilewright.tir.visitor import StmtExprVisitor

_THREADS = {f"threadIdx.{d}": f"max_thread_{d}" for d in "xyz"}
_MEMORY = {"local": "max_local_memory_per_block", "shared": "max_shared_memory_per_block"}
LIMITS = (
    "max_threads_per_block", *_MEMORY.values(), *_THREADS.values(), "max_vthread", "max_vector_bytes", "max_kernels",
)  # fmt: skip


class _Kernels(StmtExprVisitor):
    """The resources that each kernel uses, against the limits."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        super().__init__()
        self.limits = limits
        self.problems: list[str] = []
        self.kernels = 0
        self.depth = 0
        self.extents: dict[str, int] = {}
        self.used: dict[str, int] = {}

    def check(self, limit: str, found: int, what: str) -> None:
        if limit in self.limits and found > self.limits[limit]:
            self.problems.append(f"{what} {found}, but {limit} is {self.limits[limit]}")

    def visit_attr(self, s: AttrStmt) -> None:
        if s.attr_key not in ("thread_extent", "virtual_thread") or not isinstance(s.node, IterVar):
            super().visit_attr(s)
            return
        if not self.depth:
            self.kernels += 1
            self.extents, self.used = {}, dict.fromkeys(_MEMORY, 0)
        self._axis(s.node.thread_tag or s.node.var.name, s.value)
        self.depth += 1
        super().visit_attr(s)
        self.depth -= 1
        if not self.depth:
            self._finish()

    def _axis(self, tag: str, value: PrimExpr) -> None:
        if tag not in _THREADS and tag != "vthread":
            return
        if not isinstance(value, IntImm):
            raise TilewrightError(f"verify_gpu_code needs a constant extent of {tag}, got {value}")
        extent = value.value
        known = self.extents.setdefault(tag, extent)
        if tag in _THREADS and known != extent:
            self.problems.append(f"{tag} has extents {known} and {extent} in one kernel")
        self.check(_THREADS.get(tag, "max_vthread"), extent, f"the extent of {tag} is")

    def _finish(self) -> None:
        self.check("max_threads_per_block", math.prod(self.extents.values()), "the threads of a block are")
        for scope, nbytes in self.used.items():
            self.check(_MEMORY[scope], nbytes, f"the bytes of {scope} memory of a block are")
        self.check("max_kernels", self.kernels, "the number of kernels is")

    def visit_allocate(self, s: Allocate) -> None:
        scope = _scope(s.buffer_var)
        if scope in self.used:
            extents = [e.value for e in s.extents if isinstance(e, IntImm)]
            elements = math.prod(extents) if len(extents) == len(s.extents) else 0
            self.used[scope] += elements * _nbytes(s.dtype)
        self._vector(s.dtype)
        super().visit_allocate(s)

    def _vector(self, dtype: str) -> None:
        if dt.lanes(dtype) > 1:
            self.check("max_vector_bytes", _nbytes(dtype), f"the bytes of a vector {dtype} are")

    def visit_for(self, s: For) -> None:
        if s.loop_var.name == "vthread.s" and isinstance(s.extent, IntImm):
            self.check("max_vthread", s.extent.value, "the extent of vthread is")
        super().visit_for(s)

    def visit_load(self, e: Load) -> None:
        self._vector(e.dtype)
        super().visit_load(e)

    def visit_store(self, s: Store) -> None:
        self._vector(s.value.dtype)
        super().visit_store(s)


def _nbytes(dtype: str) -> int:
    return dt.nbytes(dt.element(dtype)) * dt.lanes(dtype)


def _scope(var: Var) -> str:
    annotation = var.type_annotation
    return annotation.storage_scope if isinstance(annotation, PointerType) else ""


def gpu_code_problems(func: PrimFunc | Stmt, constraints: Mapping[str, Any]) -> list[str]:
    """Return which limits the kernels of ``func`` exceed, one sentence each; see ``verify_gpu_code``."""
    unknown = [name for name in constraints if name not in LIMITS]
    if unknown:
        raise TilewrightError(
            f"verify_gpu_code: Invalid check item: {', '.join(unknown)}; there are {', '.join(LIMITS)}"
        )
    kernels = _Kernels({str(name): int(value) for name, value in constraints.items()})
    kernels.visit_stmt(func.body if isinstance(func, PrimFunc) else func)
    return list(dict.fromkeys(kernels.problems))


def verify_gpu_code(func: PrimFunc, constraints: Mapping[str, Any]) -> bool:
    """Return whether a lowered function's kernels are within limits.

    Parameters
    ----------
    constraints : those that matter of max_threads_per_block (virtual threads count too), max_thread_x, max_thread_y,
        max_thread_z, max_vthread, max_local_memory_per_block, max_shared_memory_per_block, max_vector_bytes (bytes),
        max_kernels

    Raises
    ------
    TilewrightError : a constraint of another name; an extent of threads that is not constant
    """
    return not gpu_code_problems(func, constraints)
