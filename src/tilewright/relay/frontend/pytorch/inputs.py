"""``input_infos`` of ``from_pytorch``: names, shapes and data types of a TorchScript module's inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tilewright.ir.errors import TilewrightError
from tilewright.ir.prim_expr import Any as AnyDim
from tilewright.ir.prim_expr import IntImm, PrimExpr

_NAMES = {
    "double": "float64", "float": "float32", "half": "float16", "long": "int64", "int": "int32", "short": "int16",
    "char": "int8", "byte": "uint8",
}  # fmt: skip
_NUMBER_TYPES = {"IntType": torch.int64, "FloatType": torch.float64, "BoolType": torch.bool}
_EXAMPLE_EXTENTS = (7, 11, 13, 17, 19, 23, 29, 31)  # of dimensions that are not known


@dataclass(frozen=True)
class InputInfo:
    """One input: its name, and a shape; or shapes in tuples and lists, for inputs that are such."""

    name: str
    shape: Any
    dtype: str | None


def parse_infos(graph_inputs: Sequence[Any], input_infos: Any) -> list[InputInfo]:
    """Check ``input_infos`` against the inputs of the graph.

    Raises:
        TilewrightError: there are not as many as the graph has inputs, or one has no name or shape.
    """
    if not isinstance(input_infos, (list, tuple)):
        raise TilewrightError(f"input_infos is a list of (name, shape) or (name, (shape, dtype)), not {input_infos!r}")
    if len(input_infos) != len(graph_inputs):
        raise TilewrightError(
            f"the TorchScript module has {len(graph_inputs)} inputs, and input_infos has {len(input_infos)}"
        )
    return [_parse(info, value) for info, value in zip(input_infos, graph_inputs, strict=True)]


def _parse(info: Any, value: Any) -> InputInfo:
    if not (isinstance(info, (tuple, list)) and len(info) == 2 and isinstance(info[0], str)):
        raise TilewrightError(f"input_infos has (name, shape) or (name, (shape, dtype)) for each input, not {info!r}")
    name, shape = info
    dtype = None
    if isinstance(shape, (tuple, list)) and len(shape) == 2 and isinstance(shape[1], str):
        shape, dtype = shape
    if dtype is not None:
        _torch_dtype(name, dtype)
    kind = value.type().kind()
    if kind == "TensorType" and not all(map(_is_extent, shape)):
        raise TilewrightError(f"the input {name!r} is a tensor: its shape has numbers or relay.Any(), not {shape!r}")
    stated = value.type().sizes() if kind == "TensorType" else None
    if stated is not None and not _fits(stated, shape):
        raise TilewrightError(f"the input {name!r} was traced with the shape {stated}; input_infos has {tuple(shape)}")
    return InputInfo(name, shape, dtype)


def _is_extent(value: Any) -> bool:
    return isinstance(value, (int, PrimExpr))


def _fits(traced: Sequence[int | None], given: Sequence[Any]) -> bool:
    return len(traced) == len(given) and not any(map(_differ, traced, given))


def _differ(traced: int | None, given: Any) -> bool:
    number = int(given) if isinstance(given, (int, IntImm)) else None
    return traced is not None and number is not None and number != traced


class Examples:
    """Example inputs for tracing, and what of their shapes is not known."""

    def __init__(self, default_dtype: str) -> None:
        self._default = default_dtype
        self._unknown = 0
        self.names: list[str] = []

    def of(self, info: InputInfo, type_: Any) -> tuple[Any, Any]:
        """Return an example of an input, and its ``dynamic_shapes`` as ``torch.export`` takes them."""
        return self._made(info.name, info.shape, info.dtype, type_)

    def _made(self, name: str, shape: Any, dtype: str | None, type_: Any) -> tuple[Any, Any]:
        kind = type_.kind()
        if kind == "OptionalType":
            return self._made(name, shape, dtype, type_.getElementType())
        if kind in ("TupleType", "ListType"):
            types = type_.elements() if kind == "TupleType" else [type_.getElementType()] * len(shape)
            made = [self._made(f"{name}_{i}", s, dtype, t) for i, (s, t) in enumerate(zip(shape, types, strict=True))]
            build = tuple if kind == "TupleType" else list
            return build(m[0] for m in made), build(m[1] for m in made)
        self.names.append(name)
        number = _NUMBER_TYPES.get(kind)
        extents = [int(n) if isinstance(n, (int, IntImm)) else self._next() for n in shape]
        dynamic = {axis: torch.export.Dim.DYNAMIC for axis, n in enumerate(shape) if not isinstance(n, (int, IntImm))}
        return torch.zeros(
            extents, dtype=number or _traced(type_) or _torch_dtype(name, dtype or self._default)
        ), dynamic

    def _next(self) -> int:
        self._unknown += 1
        return _EXAMPLE_EXTENTS[self._unknown % len(_EXAMPLE_EXTENTS)]


def _traced(type_: Any) -> torch.dtype | None:
    """Return the data type that tracing has recorded."""
    dtype = type_.dtype() if hasattr(type_, "dtype") and type_.kind() == "TensorType" else None
    return dtype if isinstance(dtype, torch.dtype) else None


def _torch_dtype(name: str, dtype: str) -> torch.dtype:
    found = getattr(torch, _NAMES.get(dtype, dtype), None)
    if not isinstance(found, torch.dtype):
        raise TilewrightError(f"the input {name!r}: {dtype!r} is no data type of torch, such as float32 or int64")
    return found


def leaves(value: Any) -> Iterator[Any]:
    """Yield the tensors of nested tuples and lists."""
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from leaves(item)
    else:
        yield value


__all__ = ["AnyDim", "Examples", "InputInfo", "leaves", "parse_infos"]
