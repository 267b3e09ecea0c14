"""Shapes of a graph's inputs: what the model declares, what the caller gives, and limits of named dimensions."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Container, Mapping, Sequence
from functools import cached_property
from typing import Any

import onnx

from tilewright.ir.prim_expr import DimVar, PrimExpr
from tilewright.ir.prim_ops import as_expr
from tilewright.relay.frontend.onnx.context import OnnxImportError, without_shapes
from tilewright.relay.op.relations import dim_add

_MOST_ELEMENTS = 1 << 60  # of an input: what no machine has

Limits = tuple[int, int | None, int]
"""Of a named dimension: the least, the greatest (None for no greatest), and a divisor."""


def checked_shapes(shape: Any) -> dict[str, list[Any]]:
    """Return the shapes that the caller gives, by input; an error says what is wrong with them."""
    if shape is None:
        return {}
    if not isinstance(shape, Mapping):
        raise OnnxImportError(
            f'shape is a mapping of inputs to dimensions, such as {{"x": (1, 3, 224, 224)}}, not {shape!r}'
        )
    for name, dims in shape.items():
        if not isinstance(dims, Sequence) or isinstance(dims, str) or any(not _is_dim(d) for d in dims):
            raise OnnxImportError(f"the shape of {name!r} is a sequence of whole numbers and names, not {dims!r}")
    free = (PrimExpr, str)
    return {name: [d if isinstance(d, free) else operator.index(d) for d in dims] for name, dims in shape.items()}


def checked_limits(dims: Mapping[str, Any] | None) -> dict[str, Limits]:
    """Return the limits of each named dimension."""
    found: dict[str, Limits] = {}
    for name, given in (dims or {}).items():
        limits = (given, given) if isinstance(given, int) else tuple(given)
        low, high, multiple = (*limits, 1)[:3] if len(limits) in (2, 3) else (None, None, None)
        fits = isinstance(low, int) and isinstance(multiple, int) and (high is None or isinstance(high, int))
        fits = fits and max(low, high or 0, multiple) < _MOST_ELEMENTS
        if not fits or low < 0 or multiple < 1 or (high is not None and high // multiple * multiple < low):
            raise OnnxImportError(
                f"the dimension {name!r} is a number, (least, largest) or (least, largest, multiple), not {given!r}"
            )
        found[name] = (low, high, multiple)
    return found


def _declared_dim(name: str, axis: int, dim: onnx.TensorShapeProto.Dimension) -> int | str:
    """Return a dimension that a model declares: a number, or a name; "?" and the like are no names."""
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return int(dim.dim_value)
    return dim.dim_param if any(map(str.isalnum, dim.dim_param)) else f"{name}_{axis}"


def _is_dim(dim: Any) -> bool:
    return isinstance(dim, (PrimExpr, str)) or (hasattr(type(dim), "__index__") and not isinstance(dim, bool))


class InputShapes:
    """Shapes of the inputs of one graph; a name is one variable wherever it stands.

    Args:
        inputs: the graph's inputs that are no weights.
        given: shapes that override the model's, by input.
        limits: of named dimensions.
        find_ranks: finds the numbers of dimensions of inputs without a shape; called where there are such inputs.
    """

    def __init__(
        self,
        inputs: Sequence[onnx.ValueInfoProto],
        given: Mapping[str, Sequence[Any]],
        limits: Mapping[str, Limits],
        find_ranks: Callable[[], Mapping[str, int]],
    ) -> None:
        self._inputs, self._given, self._limits, self._find_ranks = inputs, given, limits, find_ranks
        self._dim_vars: dict[str, PrimExpr] = {}

    def of(self, value: onnx.ValueInfoProto) -> list[Any]:
        """Return the shape of an input: numbers, variables of named dimensions, and sums of them."""
        declared = value.type.tensor_type
        dims = [_declared_dim(value.name, i, d) for i, d in enumerate(declared.shape.dim)]
        given = self._given.get(value.name)
        if given is None:
            if not declared.HasField("shape"):
                dims = [f"{value.name}_{axis}" for axis in range(self._rank(value.name))]
            return self._dims(value.name, dims)
        if declared.HasField("shape") and len(given) != len(dims):
            raise OnnxImportError(
                f"input {value.name!r} has rank {len(dims)} in the model, but the shape given is {tuple(given)}"
            )
        for i, (model_dim, given_dim) in enumerate(zip(dims, given, strict=False)):
            if isinstance(given_dim, int) and given_dim < 0:
                raise OnnxImportError(f"input {value.name!r}: dimension {i} of the shape given is {given_dim}")
            if isinstance(model_dim, int) and isinstance(given_dim, int) and model_dim != given_dim and i > 0:
                raise OnnxImportError(
                    f"input {value.name!r}: dimension {i} is {model_dim} in the model, but {given_dim} was given"
                )
        return self._dims(value.name, given)

    def check_limits(self) -> None:
        """Refuse limits of a dimension that no input has."""
        for name in self._limits:
            if name not in self._dim_vars:
                known = ", ".join(self._dim_vars) or "none"
                raise OnnxImportError(f"no input has a dimension {name!r}; the named dimensions are: {known}")

    def _dims(self, name: str, dims: Sequence[Any]) -> list[Any]:
        if math.prod(d for d in dims if isinstance(d, int) and d > 0) >= _MOST_ELEMENTS:
            raise OnnxImportError(f"input {name!r}: no memory holds a tensor of the shape {tuple(dims)}")
        return [self._dim(d) for d in dims]

    def _dim(self, dim: Any) -> Any:
        """Return a dimension of an input; one variable for each name. Of "past + new", where other inputs have these
        dimensions, the sum.
        """
        if not isinstance(dim, str):
            return dim
        if dim not in self._limits and (parts := _summands(dim, self._names)):
            return dim_add(*(int(part) if part.isdigit() else self._dim(part) for part in parts))
        if dim not in self._dim_vars:
            low, high, multiple = self._limits.get(dim, (1, None, 1))
            self._dim_vars[dim] = as_expr(low) if low == high else DimVar(dim, low, high, multiple)
        return self._dim_vars[dim]

    @cached_property
    def _names(self) -> set[str]:
        """The names of dimensions of inputs."""
        declared = {v.name: v.type.tensor_type.shape.dim for v in self._inputs}
        shapes = {name: [_declared_dim(name, i, d) for i, d in enumerate(dims)] for name, dims in declared.items()}
        return {d for name, dims in shapes.items() for d in self._given.get(name, dims) if isinstance(d, str)}

    @cached_property
    def _ranks(self) -> Mapping[str, int]:
        return self._find_ranks()

    def _rank(self, name: str) -> int:
        """Return the number of dimensions of an input without a shape, by the nodes that use it."""
        if name not in self._ranks:
            raise without_shapes(self._inputs, {*self._given, *self._ranks})
        return self._ranks[name]


def _summands(name: str, names: Container[str]) -> list[str]:
    """Return the parts of "past + new" or "past + 1": names among ``names``, and numbers; none of other names."""
    parts = [part.strip() for part in name.split("+")]
    known = all(part in names or part.isdigit() for part in parts)
    return parts if known and len(parts) > 1 and len(set(parts)) == len(parts) and not name.isdigit() else []
