"""An operator of a plug-in goes through passes by its traits and hooks: none of them knows its name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, te
from tilewright.ir.op import Op
from tilewright.relay.analysis import nodes
from tilewright.relay.expr import Call
from tilewright.relay.op import relations
from tilewright.relay.op.definition import Homogeneous, OpPattern, declare
from tilewright.relay.op.slice_rules import Cut, Part, Shape
from tilewright.relay.testing import count_ops
from tilewright.relay.transform import (
    BackwardFoldScaleAxis,
    BubbleUpSlice,
    CheckIndices,
    FastMath,
    InferType,
    LazyGradientInit,
    PadChannels,
)

X = relay.var("x", shape=(1, 32, 14, 14))


def _same(attrs: Any, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [inputs[0].copy()]


@pytest.fixture
def operator() -> Iterator[Any]:
    """Declare operators for one test; their names are free again after it."""
    names: list[str] = []

    def make(name: str, **members: Any) -> Any:
        names.append(name)
        defaults: dict[str, Any] = {"inputs": ("data",), "infer_type": relations.identity, "evaluate": _same}
        defaults["compute"] = lambda attrs, inputs, out_type: [te.compute(out_type.shape, lambda *i: inputs[0](*i))]
        op = declare(name, "For a test.", **{**defaults, **members}).op
        return lambda *args: Call(op, args)

    yield make
    for name in names:
        del Op.registry[name]


def run(passes: Any, body: Any, *params: Any) -> Any:
    return passes(InferType()(tvm.IRModule.from_expr(relay.Function(list(params), body))))


def same_values(before: Any, after: Any, *arrays: np.ndarray) -> None:
    want, have = (relay.create_executor("debug", mod=mod).evaluate()(*arrays).numpy() for mod in (before, after))
    np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-5)


def weight(*shape: int) -> Any:
    return relay.const(np.random.default_rng(0).uniform(0.5, 1, shape).astype("float32"))


def called(mod: Any, name: str) -> Any:
    """The only call of the operator ``name`` in ``main``."""
    (call,) = [n for n in nodes(mod["main"]) if isinstance(n, Call) and str(n.op) == name]
    return call


def conv(data: Any, channels: int) -> Any:
    return relay.nn.conv2d(data, weight(channels, 32, 1, 1), channels=channels, kernel_size=(1, 1))


def test_moved_zeros_are_zeros_where_an_operator_moves_data(operator: Any) -> None:
    move = operator("test.move", pattern=OpPattern.INJECTIVE, moves=True)
    assert count_ops(run(LazyGradientInit(), move(relay.zeros((3, 4), "float32")))["main"]) == {"zeros": 1}


def test_zeros_stay_what_they_are_at_a_fixed_point(operator: Any) -> None:
    odd = operator("test.odd", pattern=OpPattern.ELEMWISE, fixed_points=(0,))
    assert count_ops(run(LazyGradientInit(), odd(relay.zeros((3, 4), "float32")))["main"]) == {"zeros": 1}
    left = count_ops(run(LazyGradientInit(), odd(relay.ones((3, 4), "float32")))["main"])
    assert left == {"ones": 1, "test.odd": 1}


@pytest.mark.parametrize("moves", [True, False])
def test_indices_that_were_only_moved_are_not_checked(operator: Any, moves: bool) -> None:
    move = operator("test.move", pattern=OpPattern.INJECTIVE, moves=moves)
    table, known = relay.var("t", shape=(4, 3)), relay.const(np.array([[0, 3, 1]], "int64"))
    mod = run(CheckIndices(), relay.gather(table, 0, move(known)), table)
    assert ("check_indices" in count_ops(mod["main"])) is not moves


@pytest.mark.parametrize(
    ("homogeneous", "left"), [(Homogeneous.ANY, 0), (Homogeneous.POSITIVE, 1), (Homogeneous.NO, 1)]
)
def test_a_scale_passes_through_what_is_homogeneous(operator: Any, homogeneous: Homogeneous, left: int) -> None:
    through = operator("test.through", pattern=OpPattern.ELEMWISE, homogeneous=homogeneous)
    scale = relay.const(np.linspace(-2, 2, 16, dtype="float32").reshape(16, 1, 1))
    w = relay.var("w", shape=(16, 32, 1, 1))
    body = relay.multiply(through(relay.nn.conv2d(X, w, channels=16, kernel_size=(1, 1))), scale)
    after = run(BackwardFoldScaleAxis(), body, X, w)
    products = [n for n in nodes(after["main"]) if isinstance(n, Call) and n.op is relay.multiply.op]
    assert sum(p.args[0] is not after["main"].params[1] for p in products) == left
    shapes = (1, 32, 14, 14), (16, 32, 1, 1)
    arrays = [np.random.default_rng(k).uniform(-1, 1, s).astype("float32") for k, s in enumerate(shapes)]
    same_values(run(InferType(), body, X, w), after, *arrays)


@pytest.mark.parametrize("finite", [True, False])
def test_padded_channels_pass_through_what_stays_finite(operator: Any, finite: bool) -> None:
    activation = operator("test.activation", pattern=OpPattern.ELEMWISE, finite=finite)
    with tvm.target.Target("llvm -mcpu=skylake-avx512"), tvm.transform.PassContext(opt_level=3):
        after = run(PadChannels(), relay.nn.global_avg_pool2d(activation(conv(X, 1000))), X)
    assert called(after, "test.activation").checked_type.concrete_shape[1] == (1008 if finite else 1000)


def test_a_slice_moves_up_through_an_operator_with_a_rule(operator: Any) -> None:
    def rows(call: Call, cut: Cut, shape: Shape, operands: list[Shape]) -> Part:
        return Part([cut], call.attrs)

    each = operator("test.each", pattern=OpPattern.OUT_ELEMWISE_FUSABLE, slice_operands=rows)
    x = relay.var("x", shape=(197, 8))
    with tvm.transform.PassContext(opt_level=3):
        after = run(BubbleUpSlice(), relay.strided_slice(each(x), begin=[0], end=[1], axes=[0]), x)
    assert called(after, "test.each").checked_type.concrete_shape == (1, 8)


def test_fast_math_takes_the_operator_that_approximates_another(operator: Any) -> None:
    operator("test.fast_sine", pattern=OpPattern.ELEMWISE)
    sine = operator("test.sine", pattern=OpPattern.ELEMWISE, fast="test.fast_sine")
    with tvm.transform.PassContext(opt_level=4):
        assert count_ops(run(FastMath(), sine(X), X)["main"]) == {"test.fast_sine": 1}
