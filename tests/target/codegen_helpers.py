"""Small TIR functions for the tests of code generation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tests.gpu import GPU_KIND, GPU_TARGET, need_gpu
from tests.target.ptx_on_host import OnHost

import tilewright as tvm
from tilewright.ir.module import IRModule
from tilewright.runtime.ndarray import numpy_dtype
from tilewright.tir import (
    AttrStmt,
    Buffer,
    For,
    IterVar,
    Load,
    PrimExpr,
    PrimFunc,
    Ramp,
    Range,
    Stmt,
    Store,
    Var,
    decl_buffer,
)  # fmt: skip

TARGETS = ("llvm", "llvm -mcpu=x86-64", "c")
"""What most behaviour is tested on: this machine, one without FMA or AVX, and C."""


def function(name: str, buffers: Sequence[Buffer], body: Stmt, scalars: Sequence[Var] = (), **attrs: Any) -> PrimFunc:
    """A function of buffers, then scalars."""
    handles = [Var(b.name, "handle") for b in buffers]
    attributes = {"global_symbol": name, "tir.noalias": True, **attrs}
    return PrimFunc([*handles, *scalars], body, None, dict(zip(handles, buffers, strict=True)), attributes)


def module(*funcs: PrimFunc) -> IRModule:
    """A module of functions, by their names."""
    mod = IRModule()
    for func in funcs:
        mod[str(func.attrs["global_symbol"])] = func
    return mod


def build(target: str, *funcs: PrimFunc) -> Any:
    """Compile lowered functions; for a device as kernels of one thread, whose arguments are copied there and back."""
    if target not in DEVICES:
        return tvm.build({target: module(*funcs)})
    kernels = [of_one_thread(func) for func in funcs]
    if target == "cuda" and GPU_KIND != "cuda":
        return OnHost(kernels)
    device = tvm.device(target, 0)
    need_gpu(device)
    return OnDevice(tvm.build({GPU_TARGET if target == GPU_KIND else target: module(*kernels)}), device)


DEVICES = ("opencl", "cuda")
"""Targets whose kernels the tests run: by PoCL, or whatever OpenCL is here, and PTX's LLVM IR on this processor.

Where the tests' GPU is NVIDIA's, PTX runs there.
"""


def of_one_thread(func: PrimFunc) -> PrimFunc:
    """``func`` as the only thread of a kernel."""
    axis = IterVar(Range(0, 1), Var("block", "int32"), 1, "blockIdx.x")
    return func.with_body(AttrStmt(axis, "thread_extent", axis.dom.extent, func.body))


class OnDevice:
    """A module for a device, called with arrays of the host."""

    def __init__(self, module: Any, device: Any) -> None:
        self.module, self.device = module, device

    def __call__(self, *args: Any) -> None:
        self._call(self.module, args)

    def __getitem__(self, name: str) -> Callable[..., None]:
        return lambda *args: self._call(self.module[name], args)

    def _call(self, function: Any, args: Sequence[Any]) -> None:
        there = [x.copyto(self.device) if isinstance(x, tvm.nd.NDArray) else x for x in args]
        function(*there)
        for x, result in zip(args, there, strict=True):
            if isinstance(x, tvm.nd.NDArray):
                x.copyfrom(result)


def elementwise(
    make: Callable[..., PrimExpr], in_dtypes: Sequence[str], out_dtype: str, count: int, lanes: int = 1, name: str = "f"
) -> PrimFunc:
    """``out[i] = make(in0[i], in1[i], ...)``, with vectors of ``lanes``; ``count`` is a multiple of them."""
    inputs = [decl_buffer((count,), d, f"in{i}") for i, d in enumerate(in_dtypes)]
    out = decl_buffer((count,), out_dtype, "out")
    i = Var("i", "int32")
    index = i if lanes == 1 else Ramp(i * lanes, 1, lanes)
    suffix = "" if lanes == 1 else f"x{lanes}"
    value = make(*[Load(b.dtype + suffix, b.data, index) for b in inputs])
    body = For(i, 0, count // lanes, 0, Store(out.data, value, index))
    return function(name, [*inputs, out], body)


def run_elementwise(
    make: Callable[..., PrimExpr], inputs: Sequence[np.ndarray], out_dtype: str, target: str = "llvm", lanes: int = 1
) -> np.ndarray:
    """Build and call :func:`elementwise`."""
    dtypes = [dtype_name(x) for x in inputs]
    func = build(target, elementwise(make, dtypes, out_dtype, len(inputs[0]), lanes))
    out = tvm.nd.array(np.zeros(len(inputs[0]), numpy_dtype(out_dtype)))
    func(*[tvm.nd.array(x) for x in inputs], out)
    return out.numpy()


def dtype_name(array: np.ndarray) -> str:
    """TVM's name of an array's dtype."""
    return str(array.dtype)
