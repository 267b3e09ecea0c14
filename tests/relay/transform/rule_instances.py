"""Expressions drawn at random that have the form of a pattern, and whether a rule keeps their value.

``Draw.instance(pattern)`` takes an alternative of each ``|``, any order of a product, a tensor for each wildcard, and
attributes for each operator from ``ATTRIBUTES``. What a rule's wildcards need beyond that is given by ``leaves``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import tilewright as tvm
from tilewright import relay
from tilewright.ir.op import Op
from tilewright.relay.dataflow_pattern import (
    AltPattern,
    AttrPattern,
    CallPattern,
    ConstantPattern,
    DFPattern,
    ExprPattern,
    FilledPattern,
    ProductPattern,
    ScalarPattern,
    WildcardPattern,
)
from tilewright.relay.interpreter import interpret
from tilewright.relay.transform.infer_type import infer_type
from tilewright.relay.transform.rules import Rule, RuleTable

EXTENTS = (1, 2, 3, 4, 7)
Leaves = Mapping[DFPattern, Callable[["Draw"], relay.Expr]]


class Draw:
    """Random choices for one instance; ``shape`` and ``dtype`` are those of wildcards without a leaf of their own."""

    def __init__(self, rng: np.random.Generator, leaves: Leaves) -> None:
        self.rng, self.leaves = rng, leaves
        self.shape = tuple(int(n) for n in rng.choice(EXTENTS, size=rng.integers(2, 5)))
        self.dtype = self.one_of("float32", "float32", "float64", "int32")
        self.inputs: dict[relay.Var, np.ndarray] = {}
        self.known: dict[DFPattern, relay.Expr] = {}

    def one_of(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def values(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        return np.asarray(self.rng.standard_normal(shape) * (1 if "float" in dtype else 50), dtype)

    def tensor(self, shape: tuple[int, ...] | None = None, dtype: str | None = None) -> relay.Var:
        shape, dtype = self.shape if shape is None else shape, dtype or self.dtype
        var = relay.var(f"x{len(self.inputs)}", shape=shape, dtype=dtype)
        self.inputs[var] = self.values(shape, dtype)
        return var

    def instance(self, pattern: DFPattern) -> relay.Expr:
        """A typed expression of the form of ``pattern``."""
        if pattern not in self.known:
            made = self.leaves[pattern](self) if pattern in self.leaves else self._instance(pattern)
            self.known[pattern] = made if isinstance(made, Op) else infer_type(made)
        return self.known[pattern]

    def _instance(self, pattern: DFPattern) -> relay.Expr:
        match pattern:
            case WildcardPattern():
                return self.tensor()
            case ScalarPattern():
                value = self.rng.uniform(0.1, 2) if pattern.value is None else pattern.value
                return relay.const(value, self.dtype)
            case FilledPattern():
                return relay.const(np.full(self.one_of((), (1,), self.shape), pattern.value, self.dtype))
            case ConstantPattern():
                return relay.const(self.values(self.shape, self.dtype))
            case ExprPattern():
                return pattern.expr
            case AltPattern():
                return self.instance(self.one_of(pattern.left, pattern.right))
            case ProductPattern():
                return self._product([self.instance(f) for f in pattern.factors], pattern.number)
            case CallPattern():
                return self._call(pattern)
            case AttrPattern():
                call = self.instance(pattern.pattern)
                return relay.Call(call.op, call.args, call.attrs.replace(**pattern.attrs))
        raise NotImplementedError(f"no instance of {pattern}; teach tests/relay/transform/rule_instances.py")

    def _call(self, pattern: CallPattern) -> relay.Expr:
        op, args = self.instance(pattern.op), [self.instance(arg) for arg in pattern.args]
        if op.name in ("add", "multiply") and self.one_of(True, False):
            args.reverse()
        if op.name in ATTRIBUTES:
            return relay.Call(op, args, ATTRIBUTES[op.name](self, *args))
        attrs_type = op.get_attr("OpDef").attrs_type
        return relay.Call(op, args, attrs_type() if attrs_type else None)

    def _product(self, factors: list[relay.Expr], number: ScalarPattern) -> relay.Expr:
        value = self.rng.uniform(0.1, 2) if number.value is None else number.value
        parts = [factors[k] for k in self.rng.permutation(len(factors))]
        at = int(self.rng.integers(len(parts)))
        if value != 1:
            factor, over = relay.const(value, self.dtype), relay.const(1 / value, self.dtype)
            parts[at] = self.one_of(parts[at] * factor, factor * parts[at], parts[at] / over)
        elif len(parts) == 3 and self.one_of(True, False):
            return relay.power(parts[0], relay.const(3, self.dtype))
        while len(parts) > 1:
            parts[:2] = [self.one_of(parts[0] * parts[1], parts[1] * parts[0])]
        return parts[0]


def shape_of(expr: relay.Expr) -> tuple[int, ...]:
    return infer_type(expr).checked_type.concrete_shape


def _attrs(name: str, *args: Any, **kwargs: Any) -> Any:
    return Op.get(name).get_attr("OpDef").attrs_type(*args, **kwargs)


def _axes(draw: Draw, x: relay.Expr) -> Any:
    rank = len(shape_of(x))
    axes = draw.one_of(None, range(rank), draw.rng.permutation(rank), draw.rng.permutation(rank))
    return _attrs("transpose", None if axes is None else tuple(int(a) for a in axes))


def _newshape(draw: Draw, x: relay.Expr) -> tuple[int, ...]:
    """The same shape, or the same elements in another: neighbours together, or an extent of 1 more."""
    shape = shape_of(x)
    at = int(draw.rng.integers(len(shape)))
    joined = (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :]) if at + 1 < len(shape) else shape
    return draw.one_of(shape, joined, (*shape[:at], 1, *shape[at:]))


def _layouts(draw: Draw, x: relay.Expr) -> Any:
    """Conversions of images: those that the layout of the operand, told by its rank, allows."""
    flat, blocked = ("NCHW", "NHWC", "CHWN"), ("NCHW1c", "NCHW2c", "NHWC2c")
    names = flat if len(shape_of(x)) == 4 else blocked
    source = getattr(getattr(x, "attrs", None), "dst_layout", None) or draw.one_of(*names)
    return _attrs("layout_transform", source, draw.one_of(source, *flat, *blocked))


def _filled(draw: Draw, *args: Any) -> Any:
    return _attrs("zeros", draw.one_of(draw.shape, draw.shape, (1,) * len(draw.shape)), draw.dtype)


ATTRIBUTES: dict[str, Callable[..., Any]] = {
    "transpose": _axes,
    "layout_transform": _layouts,
    "reshape": lambda draw, x: _attrs("reshape", _newshape(draw, x)),
    "contrib_reverse_reshape": lambda draw, x: _attrs("contrib_reverse_reshape", _newshape(draw, x)),
    "cast": lambda draw, x: _attrs("cast", draw.one_of("int8", "int16", "int32", "float32", "float64", "bool")),
    "broadcast_to": lambda draw, x: _attrs("broadcast_to", draw.one_of(shape_of(x), (3, *shape_of(x)))),
    "zeros": _filled,
    "ones": _filled,
    "full": _filled,
    "mean": lambda draw, x: _attrs("mean", axis=(-1,), keepdims=True),
    "nn.layer_norm": lambda draw, *args: _attrs(
        "nn.layer_norm", center=draw.one_of(True, False), scale=draw.one_of(True, False)
    ),
    "variance": lambda draw, x, mean: _attrs("variance", axis=(-1,), keepdims=True),
}


def applications(rule: Rule, leaves: Leaves, wanted: int = 6, most: int = 200) -> int:
    """How often ``rule`` applied to instances of its pattern, each time with the value kept.

    A value is kept that is equal, or for floats within 2e-5 relative and 1e-5 absolute: rules change the order in
    which sums and products round.
    """
    applied = 0
    for seed in range(most):
        draw = Draw(np.random.default_rng(seed), leaves)
        try:
            body = draw.instance(rule.pattern)
        except tvm.TVMError:  # a chain that does not type-check
            continue
        func = infer_type(relay.Function(list(draw.inputs), body))
        after = RuleTable("one rule", [rule]).apply(func)
        if after is func:
            continue
        values = [draw.inputs[p] for p in func.params]
        found, want = (interpret(tvm.IRModule.from_expr(f), values) for f in (after, func))
        assert found.dtype == want.dtype and found.shape == want.shape
        if want.dtype.kind == "f":
            np.testing.assert_allclose(found, want, rtol=2e-5, atol=1e-5, err_msg=f"{rule.algebra}:\n{func}\n{after}")
        else:
            np.testing.assert_array_equal(found, want, err_msg=f"{rule.algebra}:\n{func}\n{after}")
        applied += 1
        if applied == wanted:
            break
    return applied
