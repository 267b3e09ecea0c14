"""Activations spelled out in the ways that exporters do become one operator; what is not quite one stays."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.relay.transform.texts import check, parse
from tests.topi.harness import compiled

import tilewright as tvm
from tilewright import topi
from tilewright.ir.transform import PassContext
from tilewright.relay import transform
from tilewright.relay.interpreter import interpret

ERF = {
    "BERT": "%0 = divide(%x, 1.4142135f); %1 = erf(%0); %2 = add(%1, 1f); %3 = multiply(%x, %2); multiply(%3, 0.5f)",
    "half of x": "%0 = multiply(%x, 0.70710677f); %1 = erf(%0); %2 = add(1f, %1); %3 = multiply(0.5f, %x); "
    "multiply(%3, %2)",
    "half of the sum": "%0 = multiply(0.7071068f, %x); %1 = erf(%0); %2 = add(%1, 1f); %3 = divide(%2, 2f); "
    "multiply(%x, %3)",
}  # fmt: skip
CUBES = {
    "product": "%0 = multiply(%x, %x); %1 = multiply(%x, %0); %2 = multiply(0.044715f, %1);",
    "power": "%1 = power(%x, 3f); %2 = multiply(%1, 0.044715f);",
    "square": "%0 = power(%x, 2f); %1 = multiply(0.044715f, %0); %2 = multiply(%1, %x);",
}
TANH = "%3 = add(%x, %2); %4 = multiply(0.7978846f, %3); %5 = tanh(%4); %6 = add(1f, %5);"
NEAR = {
    "another constant": ERF["BERT"].replace("1.4142135", "1.5"),
    "not half": ERF["BERT"].replace("0.5f", "0.7f"),
    "another summand": ERF["BERT"].replace("add(%1, 1f)", "add(%1, 2f)"),
    "another factor": ERF["BERT"].replace("multiply(%x, %2)", "multiply(%y, %2)"),
    "another function": ERF["BERT"].replace("erf", "tanh"),
    "the product is a result too": ERF["BERT"].replace("multiply(%3, 0.5f)", "(%3, multiply(%3, 0.5f))"),
    "a square": CUBES["power"].replace("3f", "2f") + TANH + "%7 = multiply(%x, %6); multiply(0.5f, %7)",
}


SIGMOIDS = {
    "SiLU": ("%0 = sigmoid(%x); multiply(%x, %0)", "nn.swish(%x)"),
    "the other way round": ("%0 = sigmoid(%x); multiply(%0, %x)", "nn.swish(%x)"),
    "quick GELU": ("%0 = multiply(%x, 1.702f); %1 = sigmoid(%0); multiply(%x, %1)", "nn.swish(%x, beta=1.702"),
    "of something else": ("%0 = sigmoid(%y); multiply(%x, %0)", None),
    "and another factor": ("%0 = sigmoid(%x); %1 = multiply(%x, %0); multiply(%1, 2f)", "nn.swish(%x)"),
    "the sigmoid is a result too": ("%0 = sigmoid(%x); (%0, multiply(%x, %0))", None),
}  # fmt: skip


def module(body: str) -> tvm.IRModule:
    return parse(f"def @main(%x: Tensor[(3, 8), float32], %y: Tensor[(3, 8), float32]) {{ {body} }}")


def exact(x: np.ndarray) -> np.ndarray:
    return np.array([0.5 * v * math.erfc(-v * math.sqrt(0.5)) for v in x.astype("float64").ravel()]).reshape(x.shape)


@pytest.mark.parametrize("name", ERF)
def test_forms_with_erf(name: str) -> None:
    text = "def @main(%x: Tensor[(3, 8), float32], %y: Tensor[(3, 8), float32]) {{ {} }}"
    check(transform.RecognizeActivations(), text.format(ERF[name]), text.format("nn.gelu(%x)"))


@pytest.mark.parametrize("name", CUBES)
def test_forms_with_tanh(name: str) -> None:
    mod = module(CUBES[name] + TANH + "%7 = multiply(%x, %6); multiply(0.5f, %7)")
    with PassContext(opt_level=3):
        found = transform.RecognizeActivations()(mod)
    assert 'nn.gelu(%x, approximate="tanh")' in str(found)
    inputs = [np.random.default_rng(0).standard_normal((3, 8), dtype=np.float32)] * 2
    np.testing.assert_allclose(interpret(found, inputs), interpret(mod, inputs), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", SIGMOIDS)
def test_products_with_a_sigmoid(name: str) -> None:
    before, after = SIGMOIDS[name]
    with PassContext(opt_level=3):
        found = str(transform.RecognizeActivations()(module(before)))
    assert "swish" not in found if after is None else after in found


@pytest.mark.parametrize("name", NEAR)
def test_near_misses_stay(name: str) -> None:
    with PassContext(opt_level=3):
        assert "gelu" not in str(transform.RecognizeActivations()(module(NEAR[name])))


def test_the_kernel_is_within_3e_7() -> None:
    x = np.concatenate(
        [np.linspace(-9, 9, 20001), [0.0, -0.0, 1e-30], -np.logspace(0.8, 38, 300), np.logspace(0.8, 38, 300)]
    ).astype("float32")
    found = compiled(topi.nn.gelu, x)
    np.testing.assert_allclose(found, exact(x), rtol=1e-7, atol=3e-7)
    small = np.abs(x) < 4
    np.testing.assert_allclose(found[small], exact(x)[small], rtol=1e-6, atol=0)


def test_the_kernel_with_tanh() -> None:
    x = np.concatenate([np.linspace(-9, 9, 2001), [50.0, -50.0, 1e18, -1e18]]).astype("float32")
    wide = x.astype("float64")
    want = wide / (1 + np.exp(-2 * np.clip(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3), -300, 300)))
    np.testing.assert_allclose(compiled(lambda a: topi.nn.gelu(a, "tanh"), x), want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float64"])
def test_other_types(dtype: str) -> None:
    x = np.linspace(-5, 5, 101).astype(dtype)
    np.testing.assert_allclose(compiled(topi.nn.gelu, x), exact(x), rtol=1e-6, atol=1e-7)


def test_what_is_not_finite() -> None:
    x = np.array([np.nan, np.inf, -np.inf] * 6, "float32")
    found = compiled(topi.nn.gelu, x)[:3]
    assert np.isnan(found[0]) and found[1] == np.inf and found[2] == 0  # the limits


@pytest.mark.parametrize("beta", [1.0, 1.702, -0.5])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_swish(beta: float, dtype: str) -> None:
    x = np.concatenate([np.linspace(-30, 30, 20001), [0.0, -0.0, 1e-30, 200.0, -200.0, 1e30, -1e30]]).astype(dtype)
    with np.errstate(over="ignore"):
        want = x / (1 + np.exp(-np.float64(beta) * x.astype("float64")))
    rtol = 1e-7 * (2 + np.abs(beta * x)) if dtype == "float32" else 1e-14
    found = compiled(lambda a: topi.nn.swish(a, beta), x)
    assert (np.abs(found - want) <= rtol * np.abs(want) + 1e-37).all()
    assert np.isnan(compiled(topi.nn.swish, np.full(16, np.nan, dtype))).all()
