"""Binding of a network's parameters to constants by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Constant, Function, const
from tilewright.relay.type_infer import infer_module
from tilewright.relay.visitor import ExprMutator, bind
from tilewright.runtime import ndarray as nd
from tilewright.runtime.ndarray import NDArray, numpy_view

_LENT_BYTES = 1 << 20  # smaller arrays are copied at once


def bind_params_by_name(func: Function, params: Mapping[str, Any]) -> Function:
    """Replace the parameters of the given names in ``func`` by constants.

    Names that no parameter has are ignored, and type inference finds mismatched types, as in TVM; a name that two
    parameters share is an error.
    """
    by_name: dict[str, Any] = {}
    for param in func.params:
        if param.name_hint in by_name and param.name_hint in params:
            raise TilewrightError(f"main has two parameters named {param.name_hint!r}; params cannot tell them apart")
        by_name[param.name_hint] = param
    binds: dict[Any, RelayExpr] = {}
    for name, value in params.items():
        if name in by_name:
            array = value if isinstance(value, NDArray) else const(value).data
            binds[by_name[name]] = const(array)
    bound = bind(func, binds)
    assert isinstance(bound, Function)
    return bound


class Lent:
    """Large arrays of numpy that a build reads where they lie, and copies in the end, in the layout that kernels read.

    So there is one copy of each beside the caller's. ``with_copies`` must follow before the caller may write to them.
    """

    def __init__(self) -> None:
        self._places: list[tuple[int, int]] = []  # addresses: from, and up to

    def take(self, value: Any) -> NDArray:
        """Return an array for a parameter: on the memory of ``value``, or with a copy of it."""
        if isinstance(value, NDArray):
            return value
        if not isinstance(value, np.ndarray) or not _may_be_lent(value):
            return const(value).data
        start = value.ctypes.data
        self._places.append((start, start + value.nbytes))
        return nd.share_memory(value)

    def with_copies(self, mod: IRModule) -> IRModule:
        """Return the module with copies of all constants that lie in the memory of these arrays."""
        if not self._places:
            return mod
        copier, result = _Copier(self._places), mod.copy()
        for var, func in mod.items():
            if isinstance(func, Function):
                result[var] = copier.visit(func)
        return infer_module(result)


def _may_be_lent(value: np.ndarray[Any, Any]) -> bool:
    plain = (value.dtype.kind in "iuf" and value.dtype.itemsize <= 8) or value.dtype.name == "bfloat16"
    return value.nbytes >= _LENT_BYTES and value.flags.c_contiguous and plain and value.dtype.isnative


class _Copier(ExprMutator):
    def __init__(self, places: list[tuple[int, int]]) -> None:
        super().__init__()
        self.places = places

    def visit_constant(self, expr: Constant) -> RelayExpr:
        """Copy what lies in one of the places."""
        view = numpy_view(expr.data)
        start = view.ctypes.data
        if not any(first <= start < end for first, end in self.places):
            return expr
        copy = nd.empty(expr.data.shape, expr.data.dtype)
        np.copyto(numpy_view(copy, writable=True), view)
        return Constant(copy, expr.span)


def with_params(func: Function, params: Mapping[str, Any], lent: Lent | None = None) -> Function:
    """As ``bind_params_by_name``; raise TilewrightError for an array whose type is not its parameter's.

    Large arrays of numpy are not copied where there is ``lent``.
    """
    names = {param.name_hint for param in func.params}
    arrays = {
        name: lent.take(value) if lent is not None else const(value).data
        for name, value in params.items()
        if name in names and value is not None
    }
    for param in func.params:
        if param.name_hint in arrays:
            _check_param(param, arrays[param.name_hint])
    return bind_params_by_name(func, arrays)


def _check_param(param: Any, array: NDArray) -> None:
    expected = param.type_annotation
    if expected is None or not hasattr(expected, "shape"):
        return
    shape = tuple(repr(d) for d in expected.shape)
    if (len(shape) != len(array.shape)) or any(a not in ("?", str(b)) for a, b in zip(shape, array.shape, strict=True)):
        raise TilewrightError(
            f"parameter {param.name_hint!r}: expected shape ({', '.join(shape)}), got {tuple(array.shape)}"
        )
    if expected.dtype != str(array.dtype):
        raise TilewrightError(f"parameter {param.name_hint!r}: expected {expected.dtype}, got {array.dtype}")
