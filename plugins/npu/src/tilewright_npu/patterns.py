"""What the NPU takes: one table of patterns, each with the check that says which matches fit.

Quantized networks come as groups: dequantize, an operator with constant weights, perhaps a bias and an activation,
quantize. ``relay.qnn.groups.describe`` says what integers such a group means; what it does not know stays on the CPU.
In floating point a convolution or dense layer takes its bias and activation with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from tilewright import relay
from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import Sequential
from tilewright.ir.type import TensorType
from tilewright.relay import transform
from tilewright.relay.build_module import bind_params_by_name
from tilewright.relay.dataflow_pattern import is_constant, is_op, wildcard
from tilewright.relay.expr import Call, Constant, Function, Tuple, TupleGetItem, Var
from tilewright.relay.function_attributes import COMPILER
from tilewright.relay.op.contrib.register import Refusal, refused_shape, register_pattern_table
from tilewright.relay.op.nn.activation import Gelu, relu
from tilewright.relay.op.nn.bias_add import BiasAdd
from tilewright.relay.op.nn.conv2d import Conv2D
from tilewright.relay.op.nn.dense import Dense
from tilewright.relay.op.nn.pooling import GlobalAvgPool2D, MaxPool2D
from tilewright.relay.op.nn.resample import BatchFlatten
from tilewright.relay.op.reduce.reduce import Mean as MeanOp
from tilewright.relay.op.tensor.binary import add
from tilewright.relay.op.tensor.unary import Clip, sigmoid, tanh
from tilewright.relay.op.transform.axes import Squeeze
from tilewright.relay.op.transform.reshape import Reshape
from tilewright.relay.qnn.groups import Group, Mean, Move, Product, Sum, describe
from tilewright.relay.qnn.op import Dequantize
from tilewright.relay.transform.common import op_of
from tilewright.relay.visitor import ExprMutator, post_order

TARGET = "npu.target"  # the attribute of a function with the target that it is for
_ACTIVATIONS = (relu.op, Clip.op)
_FUNCTIONS = (Gelu.op, tanh.op, sigmoid.op)
_RESHAPES = (Reshape.op, BatchFlatten.op, Squeeze.op)


# ---- checks ----
def _shape(expr: RelayExpr) -> tuple[int, ...] | None:
    type_ = expr.checked_type
    return type_.concrete_shape if isinstance(type_, TensorType) and not type_.is_dynamic else None


def _fits(expr: RelayExpr) -> bool:
    """One picture (1, channels, height, width) or a matrix (rows, channels), not empty."""
    shape = _shape(expr)
    return shape is not None and 0 not in shape and (len(shape) == 2 or (len(shape) == 4 and shape[0] == 1))


def _has_one_picture_layout(call: Call) -> bool:
    attrs: Any = call.attrs
    return (attrs.data_layout, attrs.kernel_layout) == ("NCHW", "OIHW") and attrs.out_layout in ("", "NCHW")


def _convolution_fits(conv: Call) -> bool:
    """Groups are 1, or each channel is its own."""
    attrs: Any = conv.attrs
    weight, data = _shape(conv.args[1]), _shape(conv.args[0])
    if weight is None or data is None or not _has_one_picture_layout(conv):
        return False
    groups = int(attrs.groups)
    return groups == 1 or (weight[1] == 1 and groups == weight[0] == data[1])


def _pool_fits(pool: Call) -> bool:
    attrs: Any = pool.attrs
    return attrs.layout == "NCHW" and not getattr(attrs, "ceil_mode", False)


def _is_quantized(call: Call) -> bool:
    group: Group | None = describe(call)
    if group is not None and group.output.early:
        return False
    match group:
        case Product():
            operator = group.operator
            return _fits(operator) and (operator.op is Dense.op or _convolution_fits(operator))
        case Sum():
            return _fits(group.operator) and len({_shape(side.tensor) for side in group.data}) == 1
        case Mean():
            keeps = bool(getattr(group.operator.attrs, "keepdims", True))
            return _fits(group.data.tensor) and group.axes == (2, 3) and keeps
        case Move():
            if group.operator is None:
                return _fits(group.data.tensor)
            if group.operator.op is MaxPool2D.op:
                return _fits(group.data.tensor) and _pool_fits(group.operator)
            return group.operator.op in _RESHAPES and _keeps_channels(group.operator)
    return False


def _keeps_channels(call: Call) -> bool:
    """Whether (1, channels, 1, 1) becomes (1, channels)."""
    before, after = _shape(call.args[0]), _shape(call)
    return before is not None and after is not None and (before[0], *before[2:]) == (1, 1, 1) and after == before[:2]


def _floats(call: Call) -> bool:
    return bool(getattr(call.checked_type, "dtype", "") == "float32") and _fits(call)


def _product_fits(call: RelayExpr) -> bool:
    """A convolution or dense layer behind bias and activation; the bias runs along channels."""
    assert isinstance(call, Call)
    if call.op in (*_ACTIVATIONS, *_FUNCTIONS):
        if call.op is Gelu.op and call.attrs.approximate != "none":  # type: ignore[union-attr]
            return False
        inner = call.args[0]
        while op_of(inner) in (BiasAdd.op, add.op):
            inner = inner.args[0]  # type: ignore[attr-defined]
        if call.op in _FUNCTIONS and op_of(inner) is Conv2D.op and int(inner.attrs.groups) > 1:  # type: ignore
            return False  # the depthwise unit limits its sums, and no more
        return _product_fits(call.args[0])
    if not _floats(call):
        return False
    if call.op in (BiasAdd.op, add.op):
        return _bias_fits(call) and _product_fits(call.args[0])
    weight = call.args[1]
    if not isinstance(weight, Constant):
        return False
    return call.op is Dense.op or _convolution_fits(call)


def _bias_fits(call: Call) -> bool:
    product, bias = call.args
    shape, along = _shape(bias), _shape(product)
    if shape is None or along is None or not isinstance(bias, Constant):
        return False
    if call.op is BiasAdd.op:
        axis = int(call.attrs.axis) % len(along)  # type: ignore[union-attr]
        return axis == 1
    behind = (1, 1) if len(along) == 4 else ()
    return shape in ((along[1], *behind), (1, along[1], *behind))


def _sum_fits(call: Call) -> bool:
    addition = call.args[0] if call.op in _ACTIVATIONS else call
    assert isinstance(addition, Call)
    left, right = addition.args
    constant = isinstance(left, Constant) or isinstance(right, Constant)
    return _floats(call) and not constant and _shape(left) == _shape(right)


def _single_fits(call: Call) -> bool:
    if not _floats(call) or not _fits(call.args[0]):
        return False
    if call.op in _RESHAPES:
        return _keeps_channels(call)
    return call.op not in (MaxPool2D.op, GlobalAvgPool2D.op) or _pool_fits(call)


def _explained(check: Callable[[Call], bool]) -> Callable[[Call], bool | Refusal]:
    """The check, which says so where it refuses unknown shapes: programs of the NPU have known ones."""

    def answer(call: Call) -> bool | Refusal:
        if check(call):
            return True
        refusal = refused_shape(call)
        return False if refusal is None else refusal

    return answer


# ---- the table ----
def _activated(inner: Any, ops: tuple[Op, ...]) -> Any:
    return _one_of(ops, lambda op: op(inner))


def _product_pattern(op: Op) -> Any:
    product = is_op(op.name)(wildcard(), is_constant())
    biased: Any = is_op("nn.bias_add")(product, is_constant()) | is_op("add")(product, is_constant()) | product
    return _activated(biased, (*_ACTIVATIONS, *_FUNCTIONS)) | biased


def _dequantized(inner: Any) -> Any:
    return is_op("qnn.dequantize")(inner, is_constant(), is_constant())


def _quantized_pattern(body: Any) -> Any:
    limited = body | _activated(body, _ACTIVATIONS)
    return is_op("qnn.quantize")(limited, is_constant(), is_constant())


def _quantized_product(op: Op) -> Any:
    weight = _dequantized(is_constant())
    product = is_op(op.name)(_dequantized(wildcard()), weight | is_op("transpose")(weight))
    bias = is_constant() | _dequantized(is_constant())
    return product | is_op("nn.bias_add")(product, bias) | is_op("add")(product, bias)


def _one_of(ops: tuple[Op, ...], make: Any) -> Any:
    choice = make(is_op(ops[0].name))
    for op in ops[1:]:
        choice = choice | make(is_op(op.name))
    return choice


@register_pattern_table("npu")
def pattern_table() -> list[tuple[Any, ...]]:
    """Larger patterns first: of two that match, the first in the table wins."""
    moves = (MaxPool2D.op, *_RESHAPES)
    means = (GlobalAvgPool2D.op, MeanOp.op)
    number = _dequantized(wildcard())
    quantized = {
        "qnn_conv2d": _quantized_product(Conv2D.op),
        "qnn_dense": _quantized_product(Dense.op),
        "qnn_add": is_op("add")(number, _dequantized(wildcard())),
        "qnn_mean": _one_of(means, lambda op: op(number)),
        "qnn_move": _one_of(moves, lambda op: op(number)),
        "qnn_requantize": number,
    }
    addition = is_op("add")(wildcard(), wildcard())
    singles = (MaxPool2D.op, GlobalAvgPool2D.op, BatchFlatten.op, Reshape.op, Squeeze.op, *_ACTIVATIONS)
    table: list[tuple[str, Any, Callable[..., bool]]] = [
        *((f"npu.{name}", _quantized_pattern(body), _is_quantized) for name, body in quantized.items()),
        ("npu.conv2d", _product_pattern(Conv2D.op), _product_fits),
        ("npu.dense", _product_pattern(Dense.op), _product_fits),
        ("npu.add", _activated(addition, _ACTIVATIONS) | addition, _sum_fits),
        *((f"npu.{op.name.removeprefix('nn.')}", is_op(op.name)(wildcard()), _single_fits) for op in singles),
    ]
    return [(name, pattern, _explained(check)) for name, pattern, check in table]


# ---- partitioning ----
class _OwnDequantize(ExprMutator):
    """Gives each use of a dequantize one of its own, so that groups share nothing but integers."""

    def visit_call(self, expr: Call) -> RelayExpr:
        result = super().visit_call(expr)
        if not isinstance(result, Call):
            return result
        args = [
            Call(a.op, a.args, a.attrs, a.type_args, a.span) if op_of(a) is Dequantize.op else a  # type: ignore
            for a in result.args
        ]
        return Call(result.op, args, result.attrs, result.type_args, result.span)


def _split_dequantize(mod: IRModule) -> IRModule:
    main = mod["main"]
    assert isinstance(main, Function)
    result = mod.copy()
    result["main"] = _OwnDequantize().visit(main)
    return transform.InferType()(result)


def partition_for_npu(
    mod: IRModule, params: dict[str, Any] | None = None, target: str = "npu", on_device: bool = False
) -> IRModule:
    """The module with a function for each part that the NPU computes; ``relay.build`` has them compiled.

    Parameters
    ----------
    params : arrays for parameters of ``main`` by name: weights have to be constants to go to the NPU.
    target : says how much memory the programs may use, as in "npu -sram=524288".
    on_device : whether arguments and results of those functions live on the device, for ``relay.build(mod, {"cpu": ...,
        "npu": "npu"})`` and executors on both; else they are the host's, and copied at each call.
    """
    if params:
        mod = mod.copy()
        mod["main"] = bind_params_by_name(mod["main"], params)
    prepare = [
        transform.InferType(), transform.SimplifyInference(), transform.FoldConstant(), transform.FoldScaleAxis(),
        transform.FoldConstant(), transform.FoldExplicitPadding(), transform.RecognizeActivations(),
    ]  # fmt: skip
    split = _split_dequantize(Sequential(prepare)(mod))
    parts = [
        transform.MergeComposite(pattern_table()), transform.AnnotateTarget("npu"),
        transform.MergeCompilerRegions(), transform.PartitionGraph(), transform.InferType(),
    ]  # fmt: skip
    result = Sequential(parts)(split).copy()
    for var, func in list(result.items()):
        if isinstance(func, Function) and COMPILER.get(func) == "npu":
            result[var] = func.with_attr(TARGET, target)
    if on_device:
        main = result["main"]
        assert isinstance(main, Function)
        result["main"] = _OnDevice(main).visit(main)
    return transform.InferType()(result)


class _OnDevice(ExprMutator):
    """Puts the calls of other compilers' functions on the NPU, with parameters that nothing else uses.

    All else that they are given is on the CPU.
    """

    def __init__(self, main: Function) -> None:
        super().__init__()
        calls = (e for e in post_order(main.body) if isinstance(e, (Call, Tuple)))
        self.uses = Counter(a for e in calls for a in (e.args if isinstance(e, Call) else e.fields))

    def visit_call(self, expr: Call) -> RelayExpr:
        result = super().visit_call(expr)
        if not isinstance(expr.op, GlobalVar):
            return result
        assert isinstance(result, Call)
        args = [
            new if self._is_on_the_npu(old) else relay.annotation.on_device(new, "cpu")
            for old, new in zip(expr.args, result.args, strict=True)
        ]
        call = Call(result.op, args, result.attrs, result.type_args, result.span)
        return relay.annotation.on_device(call, "npu")

    def _is_on_the_npu(self, expr: RelayExpr) -> bool:
        if isinstance(expr, Var):
            return self.uses[expr] == 1
        value = expr.tuple_value if isinstance(expr, TupleGetItem) else expr
        return isinstance(value, Call) and isinstance(value.op, GlobalVar)
