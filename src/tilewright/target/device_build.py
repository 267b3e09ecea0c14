"""The passes that turn a function into device code, and the table of a module's kernels.

    before the split   ThreadSync, InferFragment, LowerThreadAllreduce,
                       MergeDynamicSharedMemoryAllocations                  (``split_device``)
    the split          MakePackedAPI, SplitHostDevice
    each kernel        LowerWarpMemory, Simplify, LowerIntrin, and the device's limits     (``device_part``)

That is TVM 0.8's order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir.errors import TilewrightError
from tilewright.ir.function_attributes import GLOBAL_SYMBOL, TARGET
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass
from tilewright.target.gpu import limits_of
from tilewright.target.target import Target
from tilewright.tir.expr import IntImm, Var
from tilewright.tir.function import PrimFunc
from tilewright.tir.function_attributes import DEVICE_THREAD_AXES, DYNAMIC_SHARED_MEMORY
from tilewright.tir.stmt import Allocate, AttrStmt
from tilewright.tir.transform.infer_fragment import InferFragment
from tilewright.tir.transform.lower_intrin import lower_intrin
from tilewright.tir.transform.lower_thread_allreduce import LowerThreadAllreduce
from tilewright.tir.transform.lower_warp_memory import LowerWarpMemory
from tilewright.tir.transform.make_packed_api import make_packed_api
from tilewright.tir.transform.merge_dynamic_shared_memory_allocations import MergeDynamicSharedMemoryAllocations
from tilewright.tir.transform.simplify import Simplify
from tilewright.tir.transform.split_host_device import split_host_device
from tilewright.tir.transform.thread_sync import ThreadSync
from tilewright.tir.visitor import StmtVisitor


def before_split() -> list[Pass]:
    """The passes over a whole function, host's and device's part."""
    return [
        ThreadSync("shared"),
        ThreadSync("warp"),
        InferFragment(),
        LowerThreadAllreduce(),
        MergeDynamicSharedMemoryAllocations(),
    ]


def split_device(func: PrimFunc, host: Target) -> list[PrimFunc]:
    """The host's part of ``func``, for ``host``, and the kernels that it launches."""
    rest, *kernels = split_host_device(make_packed_api(_through(before_split(), func)))
    for kernel in kernels:
        check_limits(kernel)
    return [rest.with_attr(TARGET.key, host), *kernels]


class _Resources(StmtVisitor):
    """The resources of a block of a kernel, if known: threads along each axis, bytes of shared memory."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: dict[str, int] = {}
        self.shared: dict[Var, int] = {}

    def visit_attr(self, s: AttrStmt) -> None:
        """Note a thread axis."""
        if s.attr_key == "thread_extent" and s.node.thread_tag.startswith("threadIdx.") and isinstance(s.value, IntImm):
            self.threads[s.node.thread_tag] = s.value.value
        super().visit_attr(s)

    def visit_allocate(self, s: Allocate) -> None:
        """Note shared memory."""
        sizes = [extent.value for extent in s.extents if isinstance(extent, IntImm)]
        if getattr(s.buffer_var.type_annotation, "storage_scope", "") == "shared" and len(sizes) == len(s.extents):
            self.shared[s.buffer_var] = dt.nbytes(s.dtype) * math.prod(sizes)
        super().visit_allocate(s)


def check_limits(kernel: PrimFunc) -> None:
    """Raise TilewrightError if a block of ``kernel`` exceeds the limits of its target's processors.

    What an OpenCL device has is known where the kernel is loaded, which says the same.
    """
    target = TARGET.of(kernel)
    if not target.kind.capabilities.sm_architecture:
        return
    limits, taken = limits_of(target), _Resources()
    taken.visit_stmt(kernel.body)
    name, threads, shared = GLOBAL_SYMBOL.of(kernel), math.prod(taken.threads.values()), sum(taken.shared.values())
    if threads > limits.threads_per_block:
        axes = ", ".join(f"{tag}: {extent}" for tag, extent in taken.threads.items())
        raise TilewrightError(
            f"{name} asks for {threads} threads in a block ({axes}), and {target} allows {limits.threads_per_block}; "
            "split the axes that are bound to threadIdx by smaller factors"
        )
    if shared > limits.shared_per_block:
        parts = ", ".join(f"{buffer.name}: {size}" for buffer, size in taken.shared.items())
        raise TilewrightError(
            f"{name} asks for {shared} bytes of shared memory in a block ({parts}), and {target} allows "
            f"{limits.shared_per_block}; use smaller tiles, or the scope shared.dyn where the processor has more for it"
        )


def device_part(kernel: PrimFunc) -> PrimFunc:
    """Lower a kernel to the form from which device code is generated."""
    ready = _through([LowerWarpMemory(), Simplify()], kernel)
    return lower_intrin(ready, has_fma=True, kind=TARGET.of(kernel).kind.name)


def _through(steps: Sequence[Pass], func: PrimFunc) -> PrimFunc:
    name, mod = GLOBAL_SYMBOL.of(func), IRModule()
    mod[name] = func
    for step in steps:
        mod = step(mod)
    made = mod[name]
    assert isinstance(made, PrimFunc)
    return made


def function_table(kernels: Sequence[PrimFunc]) -> dict[str, Any]:
    """Return the runtime's launch table of the kernels: argument types, and the extents that follow them."""
    table = {}
    for kernel in kernels:
        tags = [axis.thread_tag for axis in DEVICE_THREAD_AXES.get(kernel, ())]
        if DYNAMIC_SHARED_MEMORY.on(kernel):
            tags.append("tir.use_dyn_shared_memory")
        types = [param.dtype for param in kernel.params]
        table[GLOBAL_SYMBOL.of(kernel)] = {"arg_types": types, "launch_param_tags": tags}
    return table
