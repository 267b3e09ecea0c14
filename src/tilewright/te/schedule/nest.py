"""Parts of loop nests: levels of frames, and statements rebound to other buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.ir import prim_ops as ops
from tilewright.ir.iter_var import IterVar, Range
from tilewright.ir.memory import Buffer, BufferLoad, Load
from tilewright.ir.prim_expr import PrimExpr, Var
from tilewright.tir.stmt import BufferStore, IfThenElse, Stmt, Store
from tilewright.tir.visitor import StmtExprMutator

Frame = Callable[[Stmt], Stmt]
"""Wraps a statement into one level of a nest: a loop, an attribute, a condition."""


def wrap(frames: Sequence[Frame], body: Stmt) -> Stmt:
    """Wrap ``body`` in ``frames``, the first outermost."""
    for frame in reversed(frames):
        body = frame(body)
    return body


def when(conditions: Sequence[PrimExpr]) -> list[Frame]:
    """Return one ``if`` frame for each condition."""
    return [lambda body, c=c: IfThenElse(c, body) for c in conditions]  # type: ignore[misc]


@dataclass
class Nest:
    """The loops of a stage: ``levels[i]`` are the frames of leaf i; ``values`` are the axes in terms of the loops."""

    levels: list[list[Frame]]
    values: dict[IterVar, PrimExpr]
    conditions: list[PrimExpr] = field(default_factory=list)


class BindBuffers(StmtExprMutator):
    """Replaces declared buffers by actual ones, with the variables that describe them."""

    def __init__(self, buffers: Mapping[Buffer, Buffer]) -> None:
        super().__init__()
        self.regions: dict[Buffer, tuple[Buffer, tuple[Range, ...]]] = {}
        for declared, actual in buffers.items():
            self.regions[declared] = (actual, tuple(Range(0, extent) for extent in actual.shape))
            pairs = [(declared.data, actual.data), (declared.elem_offset, actual.elem_offset)]
            pairs += zip(declared.shape, actual.shape, strict=False)
            pairs += zip(declared.strides, actual.strides or compact_strides(actual.shape), strict=False)
            self.memo.update({d: a for d, a in pairs if isinstance(d, Var) and d is not a})

    def _indices(self, buffer: Buffer, indices: Sequence[PrimExpr]) -> tuple[Buffer, list[PrimExpr]]:
        """Return the actual buffer and the index in it of ``buffer[indices]``."""
        actual, region = self.regions[buffer]
        lead = len(region) - len(indices)
        inner = [ops.add(r.min, self.visit_expr(i)) for i, r in zip(indices, region[lead:], strict=True)]
        return actual, [r.min for r in region[:lead]] + inner

    def visit_buffer_load(self, e: BufferLoad) -> PrimExpr:
        return (
            BufferLoad(*self._indices(e.buffer, e.indices))
            if e.buffer in self.regions
            else super().visit_buffer_load(e)
        )

    def visit_buffer_store(self, s: BufferStore) -> Stmt:
        if s.buffer not in self.regions:
            return super().visit_buffer_store(s)
        actual, indices = self._indices(s.buffer, s.indices)
        return BufferStore(actual, self.visit_expr(s.value), indices)

    def visit_load(self, e: Load) -> PrimExpr:
        new = super().visit_load(e)
        target = self.memo.get(e.buffer_var)
        return new if target is None else new.replace(buffer_var=target)

    def visit_store(self, s: Store) -> Stmt:
        new = super().visit_store(s)
        target = self.memo.get(s.buffer_var)
        return new if target is None else new.replace(buffer_var=target)


def compact_strides(shape: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
    """Return the row-major strides of ``shape``, in elements."""
    strides: list[PrimExpr] = []
    step: PrimExpr = ops.const(1)
    for extent in reversed(shape):
        strides.append(step)
        step = step * extent
    return tuple(reversed(strides))
