"""Small TIR functions for the tests of code generation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tilewright as tvm
from tilewright.ir.module import IRModule
from tilewright.runtime.ndarray import numpy_dtype
from tilewright.tir import Buffer, For, Load, PrimExpr, PrimFunc, Ramp, Stmt, Store, Var, decl_buffer

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
    """Compile lowered functions."""
    return tvm.build({target: module(*funcs)})


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
