"""The operators and patterns that oneDNN takes, by its old name DNNL: for TVM 0.8's runtime and for this one.

``AnnotateTarget("dnnl")`` by itself takes the single operators that TVM 0.8's takes, so that programs are partitioned
as they were; ``partition_for_dnnl`` takes all. A rule or check answers with a ``Refusal`` that says why not, which
``tilewright show --partition dnnl`` prints. ``relay.ext.dnnl`` (``relay/backend/contrib/dnnl``) generates the code;
its runtime is in ``native/src/dnnl``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op, register_op_attr
from tilewright.ir.transform import PassContext
from tilewright.ir.type import TensorType, Type, flat_types
from tilewright.relay.dataflow_pattern import CallPattern, DFPattern, is_op, wildcard
from tilewright.relay.expr import Call
from tilewright.relay.op.contrib.register import PatternTable, Refusal, register_pattern_table
from tilewright.runtime.registry import need_global_func

MOST_DIMENSIONS = 5
"""oneDNN describes tensors of 12 dimensions, and is fast with up to 5."""
MOST_CONCATENATED = 60
ALL_OPERATORS = "relay.ext.dnnl.all_operators"

Answer = bool | Refusal
Rule = Callable[[Call], Answer]

FUSED_ACTIVATIONS = ("nn.relu", "clip", "nn.leaky_relu", "sigmoid", "tanh", "nn.gelu", "nn.swish")
"""Activations that oneDNN computes together with the operator before."""
_ELEMENTWISE = (*FUSED_ACTIVATIONS, "exp", "log", "sqrt", "abs", "negative")
_ARITHMETIC = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
_VIEWS = ("reshape", "squeeze", "expand_dims", "nn.batch_flatten", "transpose")


def refused_type(type_: Type) -> Refusal | None:
    """Return why oneDNN takes no tensor of this type, or None."""
    for tensor in flat_types(type_):
        if not isinstance(tensor, TensorType) or tensor.is_dynamic:
            return Refusal(f"the shape of {tensor} is not known")
        if tensor.dtype != "float32":
            return Refusal(f"{tensor.dtype} tensors are left to the host; oneDNN has float32 ones")
        if len(tensor.concrete_shape) > MOST_DIMENSIONS:
            return Refusal(f"the tensor {tensor} has more than {MOST_DIMENSIONS} dimensions")
        if 0 in tensor.concrete_shape:
            return Refusal(f"the tensor {tensor} has no elements")
    return None


def _first_refusal(*answers: Refusal | None) -> Answer:
    return next((answer for answer in answers if answer is not None), True)


def _expect(attrs: Any, key: str, *allowed: Any) -> Refusal | None:
    found = str(getattr(attrs, key, ""))
    return None if found in ("", *allowed) else Refusal(f"its {key} is {found}; oneDNN is given {' or '.join(allowed)}")


def _shape(expr: RelayExpr) -> tuple[int, ...]:
    type_ = expr.checked_type
    assert isinstance(type_, TensorType)
    return type_.concrete_shape


def _typed(rule: Rule) -> Rule:
    """Return a rule that first checks the types of all operands and results."""

    def check(call: Call) -> Answer:
        for part in (*call.args, call):
            refusal = refused_type(part.checked_type)
            if refusal is not None:
                return refusal
        return rule(call)

    return check


def _any(call: Call) -> Answer:
    return True


def _convolution(call: Call) -> Answer:
    attrs = call.attrs
    return _first_refusal(
        _expect(attrs, "data_layout", "NCHW"),
        _expect(attrs, "kernel_layout", "OIHW"),
        _expect(attrs, "out_layout", "NCHW"),
    )


def _transposed_convolution(call: Call) -> Answer:
    attrs: Any = call.attrs
    extra = tuple(int(e) for e in attrs.output_padding)
    after = tuple(int(e) for e in attrs.padding)[-2:]
    refusal = None
    if any(more > there for more, there in zip(extra * (2 // len(extra)), after * (2 // len(after)), strict=True)):
        refusal = Refusal(f"its output_padding {extra} is larger than its padding {after}")
    return _first_refusal(
        _expect(attrs, "data_layout", "NCHW"),
        _expect(attrs, "kernel_layout", "IOHW", "OIHW"),  # TVM 0.8 writes OIHW and means IOHW
        _expect(attrs, "out_layout", "NCHW"),
        refusal,
    )


def _pooling(call: Call) -> Answer:
    attrs: Any = call.attrs
    refusal = None
    if getattr(attrs, "ceil_mode", False) and getattr(attrs, "count_include_pad", False):
        refusal = Refusal("it averages over padding, and ceil_mode may add some")
    return _first_refusal(_expect(attrs, "layout", "NCHW"), _expect(attrs, "out_layout", "NCHW"), refusal)


def _norm(axis: int) -> Rule:
    def rule(call: Call) -> Answer:
        ndim = len(_shape(call.args[0]))
        found = int(call.attrs.axis)  # type: ignore[union-attr]
        if found % ndim == axis % ndim and ndim >= 2:
            return True
        return Refusal(f"it normalizes along axis {found} of {ndim}; oneDNN is given axis {axis}")

    return rule


def _batch_matmul(call: Call) -> Answer:
    shapes = [_shape(arg) for arg in call.args]
    if all(len(shape) == 3 for shape in shapes):
        return True
    return Refusal(f"its operands have {' and '.join(str(len(s)) for s in shapes)} dimensions; oneDNN is given 3")


def _concatenate(call: Call) -> Answer:
    count = len(flat_types(call.args[0].checked_type))
    if count <= MOST_CONCATENATED:
        return True
    return Refusal(f"it joins {count} tensors; the runtime joins at most {MOST_CONCATENATED}")


_RULES: Mapping[str, Rule] = {
    "nn.conv2d": _convolution,
    "nn.conv2d_transpose": _transposed_convolution,
    "nn.dense": _any,
    "nn.batch_matmul": _batch_matmul,
    "nn.max_pool2d": _pooling,
    "nn.avg_pool2d": _pooling,
    "nn.global_max_pool2d": _pooling,
    "nn.global_avg_pool2d": _pooling,
    "nn.batch_norm": _norm(1),
    "nn.layer_norm": _norm(-1),
    "nn.softmax": _any,
    "nn.log_softmax": _any,
    "concatenate": _concatenate,
    **dict.fromkeys((*_ELEMENTWISE, *_ARITHMETIC, *_VIEWS), _any),
}

_OF_TVM = ("add", "multiply", "nn.batch_norm", "nn.conv2d", "nn.dense", "nn.relu")


def _beyond_tvm(rule: Rule) -> Rule:
    """Return a rule for an operator that TVM 0.8 leaves to the host."""

    def check(call: Call) -> Answer:
        if PassContext.current().option(ALL_OPERATORS):
            return rule(call)
        return Refusal(f"TVM 0.8 leaves it to the host; partition_for_dnnl, or the option {ALL_OPERATORS}, takes it")

    return check


for _name, _rule in _RULES.items():
    register_op_attr(_name, "target.dnnl", _typed(_rule) if _name in _OF_TVM else _beyond_tvm(_typed(_rule)))


# ---- patterns ----


def _biased(x: DFPattern) -> DFPattern:
    return is_op("nn.bias_add")(x, wildcard()) | is_op("add")(x, wildcard())


def _activated(x: DFPattern) -> DFPattern:
    first, *others = (is_op(name)(x) for name in FUSED_ACTIVATIONS)
    pattern: DFPattern = first
    for other in others:
        pattern = pattern | other
    return pattern


def make_pattern(with_bias: bool = True) -> CallPattern:
    """Return the pattern of a convolution, a sum where ``with_bias``, and relu."""
    conv = is_op("nn.conv2d")(wildcard(), wildcard())
    return is_op("nn.relu")(is_op("add")(conv, wildcard()) if with_bias else conv)


def _fused_pattern(operator: str) -> DFPattern:
    """Return the pattern of the operator and at least one of these after it: a bias, a summand, an activation."""
    root = is_op(operator)(wildcard(), wildcard())
    summed = _biased(root).optional(lambda x: is_op("add")(x, wildcard()))
    return _activated(summed) | summed | _activated(root)


FUSABLE = ("nn.conv2d", "nn.conv2d_transpose", "nn.dense", "nn.batch_matmul")
_SUMS = ("add", "nn.bias_add")


def _chain(expr: RelayExpr, sums: int = 2) -> list[Call]:
    """Return the calls from an operator of ``FUSABLE`` up to ``expr``, with at most so many sums between; or none."""
    if not (isinstance(expr, Call) and isinstance(expr.op, Op)):
        return []
    if expr.op.name in FUSABLE:
        return [expr]
    operands = expr.args if expr.op.name in _SUMS and sums > 0 else ()
    return next(([*chain, expr] for chain in (_chain(arg, sums - 1) for arg in operands) if chain), [])


def _operands(match: RelayExpr) -> Iterator[RelayExpr]:
    """Yield the match and the operands of all its calls."""
    yield match
    assert isinstance(match, Call)
    for call in _chain(match.args[0] if str(match.op) in FUSED_ACTIVATIONS else match):
        yield from call.args


class Fused:
    """A composite function or a match, taken apart: an operator and what its primitive fuses.

    ``root`` is the call of the operator; ``bias`` and ``summand`` are the operands added to it, or None; ``activation``
    is the last call, or None. ``odd`` describes whatever does not fit this form.
    """

    def __init__(self, body: RelayExpr) -> None:
        assert isinstance(body, Call)
        self.activation = body if str(body.op) in FUSED_ACTIVATIONS else None
        chain = _chain(body if self.activation is None else body.args[0])
        self.root = chain[0]
        self.operator = str(self.root.op)
        self.bias: RelayExpr | None = None
        self.summand: RelayExpr | None = None
        self.odd = ""
        for last, call in itertools.pairwise(chain):
            self._take(call, call.args[1] if call.args[0] is last else call.args[0], last)

    def _take(self, call: Call, other: RelayExpr, last: Call) -> None:
        if other is last:
            self.odd = "a tensor is added to itself"
        elif self.summand is not None:
            self.odd = "two tensors are added"
        elif self.bias is None and self._is_bias(call, other):
            self.bias = other
        else:
            self.summand = other

    def _is_bias(self, call: Call, other: RelayExpr) -> bool:
        """Return whether ``other`` has one value for each output channel, along the channel axis."""
        out = _shape(self.root)
        axis = 1 if self.operator.startswith("nn.conv2d") else len(out) - 1
        attrs: Any = call.attrs
        if str(call.op) == "nn.bias_add":
            return int(attrs.axis) % len(out) == axis
        wanted = (1,) * (axis) + (out[axis],) + (1,) * (len(out) - axis - 1)
        shape = _shape(other)
        return (1,) * (len(out) - len(shape)) + shape == wanted

    @property
    def name(self) -> str:
        """Return the node's name in JSON, such as ``"dnnl.conv2d_bias_relu"``."""
        parts = [self.operator.removeprefix("nn.")]
        parts += ["bias"] * (self.bias is not None) + ["sum"] * (self.summand is not None)
        if self.activation is not None:
            parts.append(str(self.activation.op).removeprefix("nn."))
        return "dnnl." + "_".join(parts)


def _takes_fused(match: RelayExpr) -> Answer:
    """Return whether oneDNN takes the operator alone, and the summand is a bias or a tensor of the result's shape."""
    known = _first_refusal(*(refused_type(part.checked_type) for part in _operands(match)))
    if not known:
        return known
    fused = Fused(match)
    answer = _RULES[fused.operator](fused.root)
    if not answer:
        return answer
    if fused.odd:
        return Refusal(fused.odd)
    if fused.summand is not None and _shape(fused.summand) != _shape(match):
        shape = _shape(fused.summand)
        return Refusal(f"what is added has the shape {shape}: neither a bias nor a tensor of the result's shape")
    return True


def _takes_biased(match: RelayExpr) -> Answer:
    """As ``_takes_fused``, with a bias as the summand: TVM 0.8's runtime supports no other."""
    answer = _takes_fused(match)
    if answer and Fused(match).summand is not None:
        return Refusal("what is added is no bias")
    return answer


@register_pattern_table("dnnl")
def pattern_table() -> PatternTable:
    """Return the patterns, larger ones first: the first match wins. The first two are TVM 0.8's."""
    return [
        ("dnnl.conv2d_bias_relu", make_pattern(with_bias=True), _takes_biased),
        ("dnnl.conv2d_relu", make_pattern(with_bias=False), _takes_fused),
        *((f"dnnl.{name.removeprefix('nn.')}", _fused_pattern(name), _takes_fused) for name in FUSABLE),
    ]


def partition_for_dnnl(mod: IRModule, params: Mapping[str, Any] | None = None) -> IRModule:
    """Partition a network for oneDNN, after passes that enlarge its share.

    Parameters become constants, batch norms are folded into convolutions, and layer norms and activations that are
    written in basic operators become single operators.

    Parameters
    ----------
    mod : the network; its ``main`` is partitioned
    params : arrays for parameters of ``main`` by name

    Returns
    -------
    A module whose ``main`` calls functions with ``Compiler="dnnl"``, for ``relay.build``.
    """
    partition = need_global_func("relay.ext.dnnl.partition")
    partitioned: IRModule = partition(mod, params or {})
    return partitioned
