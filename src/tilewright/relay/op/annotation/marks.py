"""Marks that passes read and remove: fusion borders, dtypes, regions of external compilers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.type import Type
from tilewright.relay.op import layout_rules
from tilewright.relay.op.builder import builder
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver, declare
from tilewright.relay.op.families import Array
from tilewright.relay.op.gradients import same_gradient


class CompilerAttrs(Attrs):
    """Name of an external compiler."""

    compiler: str


class CastHintAttrs(Attrs):
    """The dtype that the value may have."""

    dtype: str


def _same(types: Sequence[Type], attrs: object, solver: TypeSolver) -> Type | None:
    return types[0]


def _mark(name: str, doc: str, attrs_class: type[Attrs] | None = None, gradient: Any = None) -> type[OpDef[Any]]:
    def compute(attrs: object, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.identity(x) for x in inputs]

    def evaluate(attrs: object, inputs: Sequence[Array]) -> list[Array]:
        return [x.copy() for x in inputs]

    return declare(
        name,
        doc,
        inputs=("data",),
        attrs_type=attrs_class,
        pattern=OpPattern.OPAQUE,
        infer_type=_same,
        compute=compute,
        evaluate=evaluate,
        gradient=gradient,
        infer_correct_layout=layout_rules.elementwise,
    )


StopFusion = _mark(
    "annotation.stop_fusion", "``data``, with which what comes after does not fuse.", gradient=same_gradient
)
CastHint = _mark("annotation.cast_hint", "``data``, which may be kept as ``dtype``.", CastHintAttrs)
Checkpoint = _mark(
    "annotation.checkpoint", "``data``, which is worked out again where gradients need it, instead of being kept."
)
CompilerBegin = _mark(
    "annotation.compiler_begin", "``data`` entering the region of an external compiler.", CompilerAttrs, same_gradient
)
CompilerEnd = _mark(
    "annotation.compiler_end", "``data`` leaving the region of an external compiler.", CompilerAttrs, same_gradient
)

stop_fusion = builder(StopFusion)
cast_hint = builder(CastHint)
checkpoint = builder(Checkpoint)
compiler_begin = builder(CompilerBegin)
compiler_end = builder(CompilerEnd)


__all__ = ["cast_hint", "checkpoint", "compiler_begin", "compiler_end", "stop_fusion"]
