"""Errors of the functions that are polynomials, in units in the last place; the other functions; half types."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from tests.processors.x86 import TARGETS as X86
from tests.processors.x86 import runs_here
from tests.target.codegen_helpers import build, elementwise, run_elementwise
from tests.target.ulp import CHUNK, REFERENCES, erf, every_float, exact_values, sampled_floats, sigmoid, worst_error

import tilewright as tvm
from tilewright.ir.prim_expr import Call
from tilewright.target import features
from tilewright.tir import op as T

# SSE2, SSE4, AVX without and with fused multiply-adds, AVX-512, and this machine
TARGETS = [*filter(runs_here, X86.values()), "llvm"]


def worst_errors(name: str, chunks: Iterator[np.ndarray], size: int = CHUNK) -> dict[str, float]:
    """The largest error on each target over chunks of ``size`` values; vectors must give what scalars give."""

    def make(x):  # type: ignore[no-untyped-def]
        return Call(x.dtype, f"tir.{name}", (x,))

    targets = [t for t in TARGETS if all(features("llvm").has(f) for f in features(t).names)]
    funcs = {t: [build(t, elementwise(make, ["float32"], "float32", size, n)) for n in (1, 16)] for t in targets}
    out, worst = tvm.nd.array(np.zeros(size, "float32")), dict.fromkeys(targets, 0.0)
    for x in chunks:
        exact, given = exact_values(name, x), tvm.nd.array(x)
        for target in targets:
            results = []
            for func in funcs[target]:
                func(given, out)
                results.append(out.numpy().copy())
            np.testing.assert_array_equal(results[0], results[1], err_msg=target)
            worst[target] = max(worst[target], worst_error(results[0], exact))
    return worst


@pytest.mark.parametrize("name", REFERENCES)
def test_polynomials_are_within_2_ulp(name: str) -> None:
    errors = worst_errors(name, sampled_floats(16_411 if name == "erf" else 4093))
    assert max(errors.values()) <= 2.0, errors


@pytest.mark.soak
@pytest.mark.timeout(14400)
@pytest.mark.parametrize("name", REFERENCES)
def test_polynomials_are_within_2_ulp_for_every_float(name: str) -> None:
    errors = worst_errors(name, every_float(1 << 20), 1 << 20)
    assert max(errors.values()) <= 2.0, errors


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("lanes", [1, 2, 5, 8, 16, 32])
def test_sine_and_cosine_of_vectors_with_any_argument_in_any_lane(target: str, lanes: int) -> None:
    rng = np.random.default_rng(0)
    usual, large = rng.uniform(-10, 10, 160), rng.uniform(1e5, 3e38, 160) * rng.choice([-1, 1], 160)
    limits = [0.0, -0.0, 1e-45, -1e-45, 131072.0, 131072.02, -131072.02, np.pi, np.pi / 2, 3.4e38]
    x = np.where(rng.random(160) < 0.1, large, usual).astype("float32")
    x[rng.choice(160, len(limits), replace=False)] = np.array(limits, "float32")
    for function, reference in ((T.sin, np.sin), (T.cos, np.cos)):
        found, exact = run_elementwise(function, [x], "float32", target, lanes), reference(x.astype("float64"))
        assert worst_error(found, exact) <= 2
        np.testing.assert_array_equal(np.signbit(found), np.signbit(exact))
        assert np.abs(found).max() <= 1


@pytest.mark.parametrize("target", TARGETS)
def test_sine_and_cosine_of_what_is_not_finite(target: str) -> None:
    x = np.array([np.inf, -np.inf, np.nan, 0.0], "float32")
    for function, at_zero in ((T.sin, 0.0), (T.cos, 1.0)):
        expected = np.array([np.nan, np.nan, np.nan, at_zero], "float32")
        np.testing.assert_array_equal(run_elementwise(function, [x], "float32", target, 4), expected)


@pytest.mark.parametrize("target", [*TARGETS, "c"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_tail_of_the_normal_distribution(target: str, dtype: str) -> None:
    x = np.concatenate([np.linspace(0, 9, 4061), [15.0, 40.0, np.inf]]).astype(dtype)
    vector, scalar = (run_elementwise(T.normal_tail, [x], dtype, target, lanes) for lanes in (8, 1))
    np.testing.assert_array_equal(vector, scalar)
    exact = np.array([math.erfc(v * math.sqrt(0.5)) / 2 for v in x.astype("float64")])
    np.testing.assert_allclose(vector, exact, rtol=1e-12 if dtype == "float64" else 2e-6, atol=2e-9)


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_other_functions_are_those_of_the_c_library(target: str, dtype: str) -> None:
    x = np.linspace(0.05, 0.95, 16).astype(dtype)
    above_one = x + 1
    functions = {
        "exp2": np.exp2, "exp10": lambda v: 10.0**v, "log2": np.log2, "log10": np.log10, "log1p": np.log1p,
        "expm1": np.expm1, "sin": np.sin, "cos": np.cos, "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh,
        "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "atanh": np.arctanh,
        "sqrt": np.sqrt, "rsqrt": lambda v: 1 / np.sqrt(v), "exp": np.exp, "log": np.log, "tanh": np.tanh,
        "erf": erf, "sigmoid": sigmoid,
    }  # fmt: skip
    funcs = [
        elementwise(lambda v, n=n: Call(v.dtype, f"tir.{n}", (v,)), [dtype], dtype, 16, 4, name=f"f_{n}")
        for n in functions
    ]
    built = build(target, *funcs)
    for name, reference in functions.items():
        out = tvm.nd.array(np.zeros(16, dtype))
        built[f"f_{name}"](tvm.nd.array(x), out)
        tolerance = 1e-6 if dtype == "float32" else 1e-14
        np.testing.assert_allclose(out.numpy(), reference(x.astype("float64")), rtol=tolerance, err_msg=name)
    found = run_elementwise(T.acosh, [above_one], dtype, target)
    np.testing.assert_allclose(found, np.arccosh(above_one.astype("float64")), rtol=1e-5)


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_functions_of_two_arguments(target: str) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.uniform(0.1, 3, 8).astype("float32") for _ in range(2))
    for make, expected in (
        (T.power, np.power(x, y)),
        (T.atan2, np.arctan2(x, y)),
        (T.hypot, np.hypot(x, y)),
        (T.fmod, np.fmod(x, y)),
        (T.copysign, np.copysign(x, -y)),
        (T.nextafter, np.nextafter(x, -y)),
    ):
        second = -y if make in (T.copysign, T.nextafter) else y
        found = run_elementwise(make, [x, second], "float32", target, 4)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64", "c"])
def test_multiply_add(target: str) -> None:
    x, y, z = (np.arange(1, 9, dtype="float32") * k for k in (1, 2, 3))
    np.testing.assert_array_equal(run_elementwise(T.fma, [x, y, z], "float32", target, 4), x * y + z)


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0, 3.0, -0.5, 2.5])
def test_powers_with_literal_exponents(target: str, exponent: float) -> None:
    x = np.linspace(0.1, 4, 8).astype("float32")
    found = run_elementwise(lambda v: T.power(v, exponent), [x], "float32", target)
    np.testing.assert_allclose(found, x.astype("float64") ** exponent, rtol=1e-6)


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64", "c"])
def test_ldexp(target: str) -> None:
    x, n = np.array([1.5, -3, 0.25, 7], "float32"), np.array([3, -2, 10, 0], "int32")
    np.testing.assert_array_equal(run_elementwise(T.ldexp, [x, n], "float32", target), np.ldexp(x, n))


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64", "c"])
@pytest.mark.parametrize("lanes", [1, 8])
def test_half_types_are_computed_in_float32_and_rounded_once(target: str, lanes: int) -> None:
    import ml_dtypes

    for dtype in (np.dtype("float16"), np.dtype(ml_dtypes.bfloat16)):
        x = np.linspace(-4, 4, 64).astype(dtype)
        for name in ("exp", "tanh", "sigmoid"):
            found = run_elementwise(lambda v, n=name: Call(v.dtype, f"tir.{n}", (v,)), [x], str(dtype), target, lanes)
            exact = REFERENCES[name](x.astype("float64")).astype("float32").astype(dtype)
            difference = np.abs(found.astype("float64") - exact.astype("float64"))
            assert (difference <= 2.0 ** (-10 if dtype == "float16" else -7) * np.abs(exact.astype("float64"))).all()
