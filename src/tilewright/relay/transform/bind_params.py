"""Binding of a network's parameters to constants by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import RelayExpr
from tilewright.relay.expr import Function, const
from tilewright.relay.visitor import bind
from tilewright.runtime.ndarray import NDArray


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


def with_params(func: Function, params: Mapping[str, Any]) -> Function:
    """As ``bind_params_by_name``; raise TilewrightError for an array whose type is not its parameter's."""
    names = {param.name_hint for param in func.params}
    arrays = {
        name: value if isinstance(value, NDArray) else const(value).data
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
