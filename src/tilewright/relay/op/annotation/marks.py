"""Marks that passes read and remove: fusion borders, dtypes, regions of external compilers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import Type
from tilewright.relay.expr import Call, TupleWrapper
from tilewright.relay.op import layout_rules
from tilewright.relay.op.attributes import call
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver, declare
from tilewright.relay.op.families import Array


class CompilerAttrs(Attrs):
    """Name of an external compiler."""

    compiler: str


class CastHintAttrs(Attrs):
    """The dtype that the value may have."""

    dtype: str


def _same(types: Sequence[Type], attrs: Any, solver: TypeSolver) -> Type | None:
    return types[0]


def _declare(name: str, doc: str, attrs_class: type[Attrs] | None) -> type[OpDef[Any]]:
    def compute(attrs: Any, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.identity(x) for x in inputs]

    def evaluate(attrs: Any, inputs: Sequence[Array]) -> list[Array]:
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
        infer_correct_layout=layout_rules.elementwise,
    )


StopFusion = _declare("annotation.stop_fusion", "Nothing fuses across this.", None)
_declare("annotation.cast_hint", "The value may be kept in another dtype.", CastHintAttrs)
Checkpoint = _declare("annotation.checkpoint", "The value is worked out again where gradients need it, not kept.", None)
CompilerBegin = _declare("annotation.compiler_begin", "A value enters an external compiler's region.", CompilerAttrs)
CompilerEnd = _declare("annotation.compiler_end", "A value leaves an external compiler's region.", CompilerAttrs)


def checkpoint(data: RelayExpr | TupleWrapper) -> Call:
    """``data``, which is worked out again where gradients need it, instead of being kept."""
    return call("annotation.checkpoint", [data])


def stop_fusion(data: RelayExpr) -> Call:
    """``data``, with which what comes after does not fuse."""
    return call("annotation.stop_fusion", [data])


def cast_hint(data: RelayExpr, dtype: str) -> Call:
    """``data``, which may be kept as ``dtype``."""
    return call("annotation.cast_hint", [data], CastHintAttrs(dtype))


def compiler_begin(data: RelayExpr, compiler: str) -> Call:
    """``data`` entering the region of an external compiler."""
    return call("annotation.compiler_begin", [data], CompilerAttrs(compiler))


def compiler_end(data: RelayExpr, compiler: str) -> Call:
    """``data`` leaving the region of an external compiler."""
    return call("annotation.compiler_end", [data], CompilerAttrs(compiler))


__all__ = ["cast_hint", "checkpoint", "compiler_begin", "compiler_end", "stop_fusion"]
