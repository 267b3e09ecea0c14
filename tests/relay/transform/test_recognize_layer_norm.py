"""Layer normalisations spelled out in all ways that exporters do become one operator; near misses stay as they are."""

from __future__ import annotations

import numpy as np
import pytest
from tests.relay.transform.texts import check, parse

from tilewright import relay
from tilewright.ir.transform import PassContext
from tilewright.relay import transform
from tilewright.relay.interpreter import interpret

SQUARES = {
    "power": "%2 = power(%1, 2f); %3 = mean(%2, axis=[2], keepdims=True);",
    "product": "%2 = multiply(%1, %1); %3 = mean(%2, axis=[-1], keepdims=True);",
    "variance": "%3 = variance(%x, %0, axis=[-1], keepdims=True);",
}
ROOTS = {
    "divide": "%5 = sqrt(%4); %6 = divide(%1, %5);",
    "rsqrt": "%5 = rsqrt(%4); %6 = multiply(%1, %5);",
    "reciprocal": "%14 = sqrt(%4); %5 = divide(1f, %14); %6 = multiply(%5, %1);",
}


def _module(square: str = SQUARES["power"], root: str = ROOTS["divide"], tail: str = "", **changes: str) -> str:
    parts = {"mean": "axis=[-1], keepdims=True", "deviation": "%x, %0", "epsilon": "add(%3, 1e-05f)"} | changes
    tail = tail or "%7 = multiply(%6, %g); add(%7, %b)"
    return f"""
        def @main(%x: Tensor[(2, 3, 8), float32], %g: Tensor[(8), float32], %b: Tensor[(8), float32]) {{
          %0 = mean(%x, {parts["mean"]});
          %1 = subtract({parts["deviation"]});
          {square}
          %4 = {parts["epsilon"]};
          {root}
          {tail}
        }}"""


def _recognized(text: str) -> str:
    with PassContext(opt_level=3):
        return str(transform.RecognizeLayerNorm()(parse(text)))


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("square", SQUARES)
def test_every_spelling(square: str, root: str) -> None:
    check(
        transform.RecognizeLayerNorm(),
        _module(SQUARES[square], ROOTS[root]),
        """
        def @main(%x: Tensor[(2, 3, 8), float32], %g: Tensor[(8), float32], %b: Tensor[(8), float32]) {
          nn.layer_norm(%x, %g, %b, epsilon=9.999999747378752e-06f)
        }""",
    )


@pytest.mark.parametrize(
    ("tail", "attrs"),
    [
        ("add(%6, %b)", "scale=False"),
        ("multiply(%g, %6)", "center=False"),
        ("tanh(%6)", "center=False, scale=False"),
        ("%7 = add(%6, %b); multiply(%7, %g)", "scale=False"),  # the product comes after the sum: it stays
        ("%7 = multiply(%6, %g); (%7, add(%7, %b))", "center=False"),  # the scaled value is needed too
    ],
)
def test_what_there_is_of_scale_and_shift(tail: str, attrs: str) -> None:
    assert attrs in _recognized(_module(tail=tail))


@pytest.mark.parametrize(
    "text",
    [
        _module(mean="axis=[1], keepdims=True"),
        _module(mean="axis=[-1], keepdims=True, exclude=True"),
        _module(deviation="%0, %x"),
        _module(epsilon="add(%3, %3)"),
        _module(epsilon="subtract(%3, 1e-05f)"),
        _module(square="%2 = power(%1, 3f); %3 = mean(%2, axis=[-1], keepdims=True);"),
        _module(square="%2 = multiply(%1, %x); %3 = mean(%2, axis=[-1], keepdims=True);"),
        _module(square="%2 = power(%1, 2f); %3 = sum(%2, axis=[-1], keepdims=True);"),
        _module(square="%3 = variance(%x, %0, axis=[-1], keepdims=True, unbiased=True);"),
        _module(root="%5 = sqrt(%4); %6 = multiply(%1, %5);"),
    ],
)
def test_near_misses_stay(text: str) -> None:
    assert "layer_norm" not in _recognized(text)


def test_scale_along_another_axis_stays() -> None:
    text = _module(tail="%7 = reshape(%g, newshape=[2, 1, 4]); %8 = reshape(%6, newshape=[2, 6, 4]); multiply(%8, %7)")
    assert "center=False, scale=False" in _recognized(text)


@pytest.mark.parametrize("square", SQUARES)
def test_the_value_is_kept(square: str) -> None:
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(s, dtype=np.float32) for s in [(2, 3, 8), (8,), (8,)]]
    mod = parse(_module(SQUARES[square]))
    with PassContext(opt_level=3):
        found = interpret(transform.RecognizeLayerNorm()(mod), inputs)
    x, gamma, beta = (a.astype("float64") for a in inputs)
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * gamma + beta
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_built_network_normalises_in_one_kernel() -> None:
    with PassContext(opt_level=3):
        lib = relay.build(parse(_module()), "llvm")
    assert "layer_norm.cpu" in lib.build_report.implementations.values()
