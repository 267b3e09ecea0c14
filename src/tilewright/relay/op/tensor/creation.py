"""Creation of tensors: zeros, full, arange and their -like forms, and where."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.prim_expr import Any as AnyDim
from tilewright.ir.type import TensorType, Type
from tilewright.relay.expr import Call, const, scalar_value
from tilewright.relay.op import layout_rules, relations, value_ranges
from tilewright.relay.op.attributes import call
from tilewright.relay.op.builder import Builder, builder, exported, ops
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver, declare
from tilewright.relay.op.families import Array, Elementwise
from tilewright.relay.op.gradients import Gradients, collapsed, no_gradient, number, tensor_type
from tilewright.runtime.ndarray import numpy_dtype


class InitOpAttrs(Attrs):
    """Shape and dtype of a new tensor."""

    shape: tuple[Any, ...]
    dtype: str = ""


def _initial_type(types: Sequence[Type], attrs: InitOpAttrs, solver: TypeSolver) -> Type | None:
    return TensorType(attrs.shape, attrs.dtype)


def _fill(name: str, value: int) -> tuple[Builder, Builder]:
    """Declare ``name`` and ``name_like``; return their builders."""

    def compute(attrs: InitOpAttrs, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        return [topi.full(out_type.shape, out_type.dtype, value)]

    def evaluate(attrs: InitOpAttrs, inputs: Sequence[Array]) -> list[Array]:
        return [np.full(attrs.shape, value, numpy_dtype(attrs.dtype))]

    def compute_like(attrs: None, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.full_like(inputs[0], value)]

    def evaluate_like(attrs: None, inputs: Sequence[Array]) -> list[Array]:
        return [np.full_like(inputs[0], value)]

    doc = f"A tensor of {value}s"
    made = declare(
        name,
        f"{doc}.",
        inputs=(),
        attrs_type=InitOpAttrs,
        pattern=OpPattern.ELEMWISE,
        fill=value,
        support_level=3,
        gradient=no_gradient,
        infer_type=_initial_type,
        compute=compute,
        evaluate=evaluate,
    )
    like = declare(
        f"{name}_like",
        f"{doc} in the form of ``data``.",
        Elementwise,
        fill=value,
        support_level=3,
        gradient=no_gradient,
        compute=compute_like,
        evaluate=evaluate_like,
    )
    return builder(made, computed="shape", module=__name__, dtype=...), builder(like, module=__name__)


zeros, zeros_like = _fill("zeros", 0)
ones, ones_like = _fill("ones", 1)


class Full(OpDef[InitOpAttrs]):
    """A tensor of one value, given as a scalar tensor."""

    name = "full"
    support_level = 3
    inputs = ("fill_value",)
    pattern = OpPattern.ELEMWISE

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: InitOpAttrs, solver: TypeSolver) -> Type | None:
        """The shape of the attributes; the dtype is that of the attributes, else the value's."""
        value = relations.tensor(types[0], "fill_value")
        relations.require_rank(value, 0, "fill_value")
        return TensorType(attrs.shape, attrs.dtype or value.dtype)

    @staticmethod
    def compute(attrs: InitOpAttrs, inputs: Sequence[Any], out_type: TensorType) -> list[Any]:
        return [topi.full(out_type.shape, out_type.dtype, inputs[0]())]

    @staticmethod
    def evaluate(attrs: InitOpAttrs, inputs: Sequence[Array]) -> list[Array]:
        dtype = numpy_dtype(attrs.dtype) if attrs.dtype else inputs[0].dtype
        return [np.full(attrs.shape, inputs[0].reshape(()), dtype)]

    @staticmethod
    def gradient(attrs: InitOpAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        value = orig.args[-1]
        found = ops.cast(ops.sum(grad), tensor_type(value).dtype)
        return [found] if len(orig.args) == 1 else [None, found]


full = builder(Full, computed="shape", shape=())


class FullLike(OpDef[None]):
    """A tensor of one value with the shape and dtype of another."""

    name = "full_like"
    support_level = 3
    inputs = ("data", "fill_value")
    pattern = OpPattern.ELEMWISE
    gradient = staticmethod(Full.gradient)

    infer_type = staticmethod(relations.identity)

    @staticmethod
    def compute(attrs: None, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.full_like(inputs[0], inputs[1]())]

    @staticmethod
    def evaluate(attrs: None, inputs: Sequence[Array]) -> list[Array]:
        return [np.full_like(inputs[0], inputs[1].reshape(()))]


full_like = builder(FullLike)


class ArangeAttrs(Attrs):
    """The range, where it is known at compile time."""

    start: float | int | None = None
    stop: float | int | None = None
    step: float | int | None = None
    dtype: str = "float32"


class Arange(OpDef[ArangeAttrs]):
    """start, start + step, ... below stop."""

    name = "arange"
    support_level = 3
    inputs = ("start", "stop", "step")
    pattern = OpPattern.INJECTIVE

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: ArangeAttrs, solver: TypeSolver) -> Type | None:
        """A vector as long as the range; of unknown extent where the program computes the range."""
        if attrs.start is None or attrs.stop is None or attrs.step is None:
            return TensorType([AnyDim()], attrs.dtype)
        relations.require(attrs.step != 0, "the step is 0")
        return TensorType([max(0, math.ceil((attrs.stop - attrs.start) / attrs.step))], attrs.dtype)

    @staticmethod
    def compute(attrs: ArangeAttrs, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        """Return the range, whose bounds must be constants."""
        if attrs.start is None or attrs.stop is None or attrs.step is None:
            raise UnsupportedError("arange of a range that the model computes has no kernel; make the range constant")
        return [topi.arange(attrs.start, attrs.stop, attrs.step, attrs.dtype)]

    @staticmethod
    def evaluate(attrs: ArangeAttrs, inputs: Sequence[Array]) -> list[Array]:
        start, stop, step = (v.reshape(()).item() for v in inputs)
        count = max(0, math.ceil((stop - start) / step))
        return [(start + step * np.arange(count)).astype(numpy_dtype(attrs.dtype))]

    @staticmethod
    def gradient(attrs: ArangeAttrs, orig: Call, grad: RelayExpr) -> Gradients:
        """Each element is start + i step."""
        start, _, step = orig.args
        position = ops.cumsum(ones_like(orig), axis=0, exclusive=True)
        return [
            ops.cast(ops.sum(grad), tensor_type(start).dtype),
            None,
            ops.cast(ops.sum(ops.multiply(grad, position)), tensor_type(step).dtype),
        ]


@exported
def arange(start: Any, stop: Any = None, step: Any = None, dtype: str = "float32") -> Call:
    """Return start, start + step, ... below ``stop``. With one bound alone, that is ``stop``, and ``start`` is 0."""
    if stop is None:
        start, stop = const(0, dtype), start
    ends = [v if isinstance(v, RelayExpr) else const(v, dtype) for v in (start, stop, 1 if step is None else step)]
    values = [scalar_value(v) for v in ends]
    return call("arange", ends, ArangeAttrs(values[0], values[1], values[2], str(dtype)))


class Where(OpDef[None]):
    """x where the condition is not 0, else y; all three broadcast."""

    name = "where"
    support_level = 4
    inputs = ("condition", "x", "y")
    pattern = OpPattern.BROADCAST
    finite = True

    value_range = staticmethod(value_ranges.selected)

    infer_correct_layout = staticmethod(layout_rules.broadcast)

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: None, solver: TypeSolver) -> Type | None:
        """The broadcast shape, the dtype of x."""
        condition, x, y = relations.tensors(types, Where.inputs)
        relations.require_same_dtype((x, y), "x and y")
        shape = relations.broadcast_shapes(condition.shape, relations.broadcast_shapes(x.shape, y.shape))
        return TensorType(shape, x.dtype)

    @staticmethod
    def compute(attrs: None, inputs: Sequence[Any], out_type: Type) -> list[Any]:
        return [topi.where(*inputs)]

    @staticmethod
    def evaluate(attrs: None, inputs: Sequence[Array]) -> list[Array]:
        return [np.where(inputs[0] != 0, inputs[1], inputs[2])]

    @staticmethod
    def gradient(attrs: None, orig: Call, grad: RelayExpr) -> Gradients:
        condition, x, y = orig.args
        zero = number(0, x)
        return [
            None,
            collapsed(where(condition, grad, zero), orig, x),
            collapsed(where(condition, zero, grad), orig, y),
        ]


where = builder(Where)
