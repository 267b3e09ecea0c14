"""check_indices: check indices that a program computes before they are used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import TilewrightError, TypeInferenceError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import TensorType, TupleType, Type
from tilewright.relay.expr import Call
from tilewright.relay.op import relations
from tilewright.relay.op.attributes import call
from tilewright.relay.op.builder import ops
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.gradients import no_gradient
from tilewright.relay.op.strategy import generic as strategies
from tilewright.relay.op.value_ranges import EVERYTHING, Range


class CheckIndicesAttrs(Attrs):
    """The name of the indices in the error, and their range.

    The extents are numbers, or the dimensions ``axes`` of the argument ``like``, plus ``more``. One extent holds for
    all indices; several hold for the rows along dimension ``axis`` of the indices. Indices are from ``least`` to the
    extent less 1; with ``from_end`` they may also be negative, from minus the extent on.
    """

    what: str
    extents: tuple[int, ...] = ()
    axes: tuple[int, ...] = ()
    more: int = 0
    axis: int = 0
    from_end: bool = False
    least: int = 0

    def extents_of(self, like: Sequence[Any]) -> list[Any]:
        """Return the extents; ``like`` is the shape of the second argument, if there is one, and may hold
        expressions.
        """
        return [like[a] if not self.more else like[a] + self.more for a in self.axes] or list(self.extents)


class CheckIndices(OpDef[CheckIndicesAttrs]):
    """The indices, counted from the front; an error names the first one that is out of range."""

    name = "check_indices"
    inputs = None  # indices, and like where an extent is not a number
    pattern = OpPattern.OPAQUE
    gradient = staticmethod(no_gradient)

    strategy = strategies.check_indices_strategy

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: CheckIndicesAttrs, solver: TypeSolver) -> Type | None:
        indices = relations.tensors(types)[0]
        if dt.is_bool(indices.dtype) or not (dt.is_float(indices.dtype) or dt.is_int(indices.dtype)):
            raise TypeInferenceError(f"the indices should be numbers, found {indices.dtype}")
        relations.require(len(types) == (2 if attrs.axes else 1), "like is given where axes are, and only there")
        count = len(attrs.axes or attrs.extents)
        relations.require(count > 0, "at least one extent should be given")
        if count > 1:
            relations.require(0 <= attrs.axis < len(indices.shape), f"the indices have no dimension {attrs.axis}")
            solver.assert_equal(indices.shape[attrs.axis], count, "number of coordinates")
        return indices

    @staticmethod
    def evaluate(attrs: CheckIndicesAttrs, inputs: Sequence[Array]) -> list[Array]:
        """Return the indices; raise TilewrightError where one is out of range."""
        indices = inputs[0]
        result = np.array(indices)
        extents = attrs.extents_of(inputs[1].shape if len(inputs) > 1 else ())
        parts = np.moveaxis(result, attrs.axis, 0) if len(extents) > 1 else result
        rows = [result] if len(extents) == 1 else [parts[i, ...] for i in range(len(parts))]
        signed = attrs.from_end and np.issubdtype(indices.dtype, np.signedinteger)
        for row, extent in zip(rows, extents, strict=True):
            low = -extent if signed else attrs.least
            outside = row[~((row >= low) & (row < extent))]
            if outside.size:
                expected = f"expected {low} to {extent - 1}" if extent > low else "there are no elements"
                raise TilewrightError(f"{attrs.what} {outside.reshape(-1)[0]} is out of range: {expected}")
            if signed:
                row[row < 0] += extent
        return [result]

    @staticmethod
    def value_range(attrs: Any, ranges: Sequence[Range], types: Sequence[Type]) -> list[Range]:
        """The indices that pass the check; a GPU clamps to them."""
        return [(min(attrs.least, 0), max(attrs.extents) - 1) if attrs.extents else EVERYTHING]


class CheckAllAttrs(Attrs):
    """The check of each tensor, as in CheckIndicesAttrs."""

    what: tuple[str, ...]
    extents: tuple[tuple[int, ...], ...]
    axis: tuple[int, ...]
    from_end: tuple[bool, ...]
    least: tuple[int, ...]

    def each(self) -> list[CheckIndicesAttrs]:
        """Return the checks."""
        columns = zip(self.what, self.extents, self.axis, self.from_end, self.least, strict=True)
        return [CheckIndicesAttrs(w, extents, (), 0, axis, end, least) for w, extents, axis, end, least in columns]

    @staticmethod
    def of(checks: Sequence[CheckIndicesAttrs]) -> CheckAllAttrs:
        """Return the attributes of checks whose extents are numbers."""
        columns = zip(*((c.what, c.extents, c.axis, c.from_end, c.least) for c in checks), strict=True)
        return CheckAllAttrs(*columns)


class CheckAllIndices(OpDef[CheckAllAttrs]):
    """Several tensors of indices, checked by one kernel: calling a kernel costs more than a check."""

    name = "check_all_indices"
    inputs = None
    pattern = OpPattern.OPAQUE
    gradient = staticmethod(no_gradient)

    strategy = strategies.check_all_indices_strategy

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: CheckAllAttrs, solver: TypeSolver) -> Type | None:
        found = [CheckIndices.infer_type([t], c, solver) for t, c in zip(types, attrs.each(), strict=True)]
        return None if any(t is None for t in found) else TupleType([t for t in found if t is not None])

    @staticmethod
    def evaluate(attrs: CheckAllAttrs, inputs: Sequence[Array]) -> list[Array]:
        return [CheckIndices.evaluate(c, [x])[0] for c, x in zip(attrs.each(), inputs, strict=True)]


def check_indices(indices: RelayExpr, attrs: CheckIndicesAttrs, like: RelayExpr | None = None) -> Call:
    """Return ``indices`` counted from the front, or raise where one is out of range; ``like`` as in ``attrs``."""
    return call("check_indices", [indices] if like is None else [indices, like], attrs)


def checked(operator: str, indices: RelayExpr, data: RelayExpr, axes: Sequence[int], axis: int = 0) -> RelayExpr:
    """Return the checked ``indices`` of an operator, which are positions along ``axes`` of ``data``.

    Both are typed. Negative positions count from the end. With several axes, dimension ``axis`` of the indices lists a
    coordinate for each.
    """
    what = f"{operator}: index"
    return _positions(indices, CheckIndicesAttrs(what, axes=tuple(axes), axis=axis, from_end=True), data)


def checked_from_front(what: str, indices: RelayExpr, data: RelayExpr) -> RelayExpr:
    """Return the checked ``indices``, which ``what`` names: positions in the first dimension of ``data``, not
    negative.
    """
    return _positions(indices, CheckIndicesAttrs(what, axes=(0,)), data)


def checked_below(what: str, values: RelayExpr, extent: int, least: int = 0) -> RelayExpr:
    """Return the checked ``values``, which ``what`` names: numbers from ``least`` to ``extent`` less 1."""
    return check_indices(values, CheckIndicesAttrs(what, extents=(extent,), least=least))


def _positions(indices: RelayExpr, attrs: CheckIndicesAttrs, data: RelayExpr) -> RelayExpr:
    type_ = data.checked_type
    assert isinstance(type_, TensorType)
    if type_.is_dynamic:
        return check_indices(indices, attrs, data)
    return check_indices(indices, attrs.replace(extents=tuple(attrs.extents_of(type_.concrete_shape)), axes=()))


def checked_first(operator: str, rows: RelayExpr, data: RelayExpr) -> RelayExpr:
    """As ``checked`` for ``rows`` (count, n), whose first numbers are positions in the first dimension."""
    first, rest = ops.split(rows, (1,), axis=1)
    return ops.concatenate([checked_from_front(f"{operator}: batch index", first, data), rest], axis=1)
