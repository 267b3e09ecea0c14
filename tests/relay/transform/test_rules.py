"""Rule tables: every rule keeps the value of what it rewrites; what the engine sees to."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import numpy as np
import pytest
from tests.relay.transform.rule_instances import Draw, Leaves, applications

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import TilewrightError
from tilewright.relay import transform
from tilewright.relay.dataflow_pattern import is_filled, is_op, is_product, is_scalar, wildcard
from tilewright.relay.transform.infer_type import infer_type
from tilewright.relay.transform.recognize import recognize_attention, recognize_layer_norm
from tilewright.relay.transform.rules import ALL, Rule, RuleTable
from tilewright.relay.transform.simplify import simplify_expr


def tables() -> Iterator[RuleTable]:
    """Every table of a module of relay.transform."""
    for info in pkgutil.walk_packages(transform.__path__, transform.__name__ + "."):
        module = importlib.import_module(info.name)
        yield from (value for value in vars(module).values() if isinstance(value, RuleTable))


def _row(draw: Draw) -> relay.Expr:
    return draw.tensor((1,) * int(draw.rng.integers(3)) + draw.shape[-1:])


def _shortened(draw: Draw) -> relay.Expr:
    """A tensor that the common shape is summed to: without leading dimensions, or with extents of 1."""
    at = int(draw.rng.integers(len(draw.shape)))
    return draw.tensor(draw.one_of(draw.shape[at:], (*draw.shape[:at], 1, *draw.shape[at + 1 :])))


def _spelled_attention(draw: Draw) -> relay.Expr:
    """Heads side by side in a batch; scores scaled and masked in any order, as three or four dimensions."""
    batch, heads, rows, columns, width = (int(n) for n in draw.rng.choice((1, 2, 3, 5), size=5))
    shape = draw.one_of((batch, heads, rows, columns), (batch * heads, rows, columns))
    q, k, v = (
        draw.tensor((batch * heads, *size), "float32") for size in ((rows, width), (columns, width), (7, columns))
    )
    scores = relay.reshape(relay.nn.batch_matmul(q, k), shape)
    for _ in range(draw.one_of(0, 1, 2, 3)):
        factor, mask = (
            relay.const(draw.rng.uniform(0.1, 2)),
            draw.tensor((1,) * (len(shape) - 1) + (columns,), "float32"),
        )
        hidden = draw.tensor((*shape[:-1], 1), "bool")
        scores = draw.one_of(
            scores * factor, scores / factor, scores + mask, mask + scores,
            relay.where(hidden, relay.const(-1e38), scores), relay.where(hidden, scores, relay.const(-1e38)),
        )  # fmt: skip
    weights = relay.reshape(relay.nn.softmax(scores), (batch * heads, rows, columns))
    return draw.one_of(
        relay.nn.batch_matmul(weights, v),
        relay.nn.batch_matmul(weights, relay.transpose(v, [0, 2, 1]), transpose_b=False),
    )


def _grouped_attention(draw: Draw) -> relay.Expr:
    """Keys and values that repeat each group for its heads."""
    batch, groups, each, rows, keys, width = (int(n) for n in draw.rng.choice((1, 2, 3, 5), size=6))
    shapes = (batch, groups * each, rows, width), (batch, groups, keys, width), (batch, groups, keys, 4)
    q, k, v = (draw.tensor(shape, "float32") for shape in shapes)
    mask = draw.one_of(None, draw.tensor((1, 1, rows, keys), "float32"))
    return relay.nn.attention(q, relay.repeat(k, each, axis=1), relay.repeat(v, each, axis=1), mask)


NARROW = {simplify_expr.x: lambda draw: draw.tensor(dtype=draw.one_of("int8", "uint8", "int16", "float32", "bool"))}
ROWS = {
    recognize_layer_norm.v: _row,
    recognize_layer_norm.GAMMA: lambda draw: draw.tensor(draw.shape[-1:]),
    recognize_layer_norm.BETA: lambda draw: draw.tensor(draw.shape[-1:]),
}


def _joined(draw: Draw) -> relay.Expr:
    """Repeat along a new axis, and join it with the one before."""
    axis, count = int(draw.rng.integers(1, len(draw.shape) + 1)), draw.one_of(1, 2, 5)
    apart = relay.expand_dims(draw.tensor(), axis)
    wide = (*draw.shape[:axis], count, *draw.shape[axis:])
    spread = draw.one_of(relay.repeat(apart, count, axis), relay.broadcast_to(apart, wide))
    return relay.reshape(spread, (*wide[: axis - 1], wide[axis - 1] * count, *wide[axis + 1 :]))


# What the wildcards of a rule stand for, where it is not any tensor of the common shape and dtype.
LEAVES: dict[str, Leaves] = {
    "cast(cast(x)) -> x": NARROW,
    "cast(cast(x)) -> cast(x)": NARROW,
    "cast_like(x, y) -> cast(x)": {simplify_expr.y: lambda draw: draw.tensor(dtype=draw.one_of("int8", "float64"))},
    "reshape_like(x, y) -> reshape(x)": {simplify_expr.y: lambda draw: draw.tensor((*draw.shape[::-1], 1))},
    "x broadcast like y -> broadcast_to(x)": {simplify_expr.y: lambda draw: draw.tensor((3, *draw.shape))},
    "x summed like y -> collapse_sum_to(x)": {simplify_expr.y: _shortened},
    "reshape(repeat(expand_dims(x))) -> repeat(x)": {simplify_expr.JOINED: _joined},
    "full_like(x, y) -> full(y)": {simplify_expr.y: lambda draw: draw.tensor(())},
    "softmax(q k.T * scale + mask) v -> attention(q, k, v, mask, scale)": {
        recognize_attention.PRODUCT: _spelled_attention
    },
    "attention(q, repeat(k), repeat(v)) -> attention(q, k, v)": {recognize_attention.ATTENTION: _grouped_attention},
    "norm x * v -> norm(x, scale v)": ROWS,
    "norm(x, scale g) + v -> norm(x, scale g, center v)": ROWS,
}


@pytest.mark.parametrize("rule", [rule for table in tables() for rule in table.rules], ids=lambda rule: rule.algebra)
def test_a_rule_keeps_the_value(rule: Rule) -> None:
    assert applications(rule, LEAVES.get(rule.algebra, {})) == 6, (
        f"{rule.algebra!r} applied to too few instances of its pattern: give its wildcards LEAVES"
    )


def test_rules_have_names_of_their_own() -> None:
    names = [rule.algebra for table in tables() for rule in table.rules]
    assert len(set(names)) == len(names) > 25


x = wildcard()
TWICE = is_op("tanh")(is_op("tanh")(x))


def engine(rules: list[Rule], body: relay.Expr, *params: relay.Var) -> relay.Expr:
    """The body of a function after ``rules``."""
    func = infer_type(relay.Function(list(params), body))
    return RuleTable("these rules", rules).apply(func).body


def once_tanh(free: tuple = ()) -> Rule:
    return Rule("tanh(tanh(x)) -> tanh(x)", TWICE, lambda m: relay.tanh(m[x]), free=free)


def test_one_sweep_reaches_the_end() -> None:
    a = relay.var("a", shape=(3,))
    chain = a
    for _ in range(2000):
        chain = relay.tanh(chain)
    assert str(engine([once_tanh()], chain, a)) == str(infer_type(relay.tanh(a)))


def test_what_is_used_elsewhere_is_not_computed_twice() -> None:
    a = relay.var("a", shape=(3,))
    inner = relay.tanh(a)
    both = relay.Tuple([inner, relay.tanh(inner)])
    assert engine([once_tanh()], both, a)[1].args[0].op.name == "tanh"
    assert engine([once_tanh(ALL)], both, a)[1].args[0] is a


def test_uses_are_those_of_the_rewritten_program() -> None:
    """The inner tanh is free once the sum that used it too is gone."""
    a = relay.var("a", shape=(3,))
    inner = relay.tanh(a)
    sums = relay.Tuple([relay.subtract(inner, inner), relay.tanh(inner)])
    difference = is_op("subtract")(x, x)
    zero = Rule("x - x -> 0", difference, lambda m: relay.zeros(m.shape, m.dtype), free=ALL)
    assert engine([zero, once_tanh()], sums, a)[1].args[0] is a


def test_new_calls_have_the_type_and_the_span_of_the_old_one() -> None:
    a, span = relay.var("a", shape=(3,)), relay.Span(relay.SourceName("net.onnx"), 7, 7, 0, 0)
    rule = Rule("tanh(x) -> 1 * sigmoid(x)", is_op("tanh")(x), lambda m: relay.const(1.0) * relay.sigmoid(m[x]))
    made = engine([rule], relay.Call(tvm.ir.Op.get("tanh"), [a], span=span), a)
    assert [call.span for call in (made, made.args[1])] == [span, span]
    assert made.args[1].checked_type == relay.TensorType((3,), "float32")


def test_rules_that_undo_one_another_are_named() -> None:
    a = relay.var("a", shape=(3,))
    there = Rule("tanh(x) -> sin(x)", is_op("tanh")(x), lambda m: relay.sin(m[x]))
    back = Rule("sin(x) -> tanh(x)", is_op("sin")(x), lambda m: relay.tanh(m[x]))
    with pytest.raises(TilewrightError, match=r"without end: sin\(x\) -> tanh\(x\); tanh\(x\) -> sin\(x\)"):
        engine([there, back], relay.tanh(a), a)


def test_a_rule_that_changes_a_type_is_named() -> None:
    a, row = relay.var("a", shape=(3,)), relay.const(np.zeros((2, 3), "float32"))
    rule = Rule("x + 0 -> x", is_op("add")(x, is_filled(0)), x)
    with pytest.raises(TilewrightError, match=r"'x \+ 0 -> x' .* makes Tensor\[\(3\), float32\] of Tensor\[\(2, 3\)"):
        engine([rule], a + row, a)


def test_a_table_takes_rules_and_gives_them_up() -> None:
    a = relay.var("a", shape=(3,))
    table = RuleTable("a table", [])
    func = infer_type(relay.Function([a], relay.tanh(relay.tanh(a))))
    assert table.apply(func) is func
    rule = once_tanh()
    table.add(rule)
    assert str(table.apply(func).body) == str(infer_type(relay.tanh(a)))
    table.remove(rule)
    assert table.apply(func) is func


def test_products_match_in_every_order() -> None:
    a, b = relay.var("a", shape=(3,)), relay.var("b", shape=(3,))
    half, y = is_scalar(0.5), wildcard()
    rule = Rule("x / 2 * sin(y)", is_product(x, is_op("sin")(y), number=half), lambda m: relay.power(m[x], m[y]))
    two, c = relay.const(2.0), relay.const(0.5)
    for form in (a * relay.sin(b) / two, relay.sin(b) * (a * c), (c * relay.sin(b)) * a, a / two * relay.sin(b)):
        assert engine([rule], form, a, b).op.name == "power"
    for form in (a * relay.sin(b), a * relay.sin(b) * c * c, a * b * c):
        assert engine([rule], form, a, b).op.name != "power"
