"""Elementary functions of float32 stay within 4 units in the last place, whichever code they get, or say why not.

Checked are every 65,537th float32 number (128 of each exponent), those next to where functions turn, cross 0, overflow
or lose digits, and what is no number. ``make soak`` takes every float32 for what is built of other functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests.target.ulp import REFERENCES, every_float

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.target import features

Array = np.ndarray
Oracle = Callable[[Array], Array]

# SSE2, AVX2 with fused multiply-adds, AVX-512, this machine's, and C
TARGETS = ["llvm -mcpu=x86-64", "llvm -mcpu=haswell", "llvm -mcpu=skylake-avx512", "llvm", "c"]
CHUNK = 1 << 16
_ALPHA, _GAMMA = float(np.float32(1.6732632423543772)), float(np.float32(1.0507009873554805))


def _softplus(x: Array) -> Array:
    return np.logaddexp(0, x)


def _elu(x: Array, alpha: float = 1.0) -> Array:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


RELAY: dict[str, Oracle] = {
    **{name: REFERENCES[name] for name in ("exp", "expm1", "log", "log1p", "tanh", "sigmoid", "erf", "sin", "cos")},
    "log2": np.log2, "log10": np.log10, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x),
}  # fmt: skip
ONNX: dict[str, tuple[dict[str, float], Oracle]] = {
    "Softplus": ({}, _softplus),
    "Mish": ({}, lambda x: x * np.tanh(_softplus(x))),
    "Elu": ({"alpha": 0.75}, lambda x: _elu(x, 0.75)),
    "Selu": ({}, lambda x: _GAMMA * _elu(x, _ALPHA)),
    "Celu": ({"alpha": 1.5}, lambda x: np.where(x > 0, x, 1.5 * np.expm1(np.minimum(x, 0) / 1.5))),
    "Softsign": ({}, lambda x: x / (1 + np.abs(x))),
    "Reciprocal": ({}, lambda x: 1 / x),
}
# Built of others: these get every float32.
BUILT = [*ONNX, "expm1", "log1p", "rsqrt"]
# x * exp(x) where exp is denormal: the last bits are those of exp, times x.
DENORMAL_FACTORS = {"Mish"}


def onnx_function(name: str, size: int) -> tvm.IRModule:
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [size]) for n in "xy"]
    attributes = ONNX[name][0] if name in ONNX else {}
    graph = helper.make_graph([helper.make_node(name, ["x"], ["y"], **attributes)], "g", value[:1], value[1:])
    return relay.frontend.from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))[0]


def compiled(name: str, target: str, opt_level: int, size: int) -> Any:
    """A function of arrays of ``size`` float32 numbers; one that is not a multiple of a vector has scalar code too."""
    if name[0].isupper():
        module = onnx_function(name, size)
    else:
        x = relay.var("x", shape=(size,))
        make = getattr(relay.nn, name[3:]) if name.startswith("nn.") else getattr(relay, name)
        module = tvm.IRModule.from_expr(relay.Function([x], make(x)))
    with tvm.transform.PassContext(opt_level=opt_level):
        executor = graph_executor.GraphModule(relay.build(module, target)["default"](tvm.cpu()))

    def run(values: Array) -> Array:
        executor.set_input("x", values)
        executor.run()
        return executor.get_output(0).numpy().copy()

    return run


def exact(name: str, x: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray((ONNX[name][1] if name in ONNX else RELAY[name])(x.astype(np.float64)))


def worst(name: str, x: Array, found: Array) -> float:
    """The largest error in units in the last place; infinities and what is no number must be where they belong."""
    want = exact(name, x)
    with np.errstate(all="ignore"):
        rounded = want.astype(np.float32)
        unit = np.spacing(np.abs(rounded)).astype(np.float64)
        if name in DENORMAL_FACTORS:
            unit = np.maximum(unit, np.abs(x.astype(np.float64)) * 2.0**-149)
        error = np.abs(found.astype(np.float64) - want) / unit
    finite = np.isfinite(rounded)
    if name in DENORMAL_FACTORS:  # -inf * 0
        finite &= ~np.isinf(x)
    else:
        # a result may round to infinity, or stay below, where the exact one is within the bound of the largest number
        near = np.abs(want) > 3.4028233e38
        np.testing.assert_array_equal(found[~finite & ~near], rounded[~finite & ~near])
    finite &= np.isfinite(found)
    return float(error[finite].max(initial=0.0))


def hard_values() -> Array:
    """float32 numbers next to where a function turns, crosses 0, overflows or loses digits, and special ones."""
    turns = [
        0.0,
        1.0,
        0.5,
        2.0,
        math.log(2),
        math.sqrt(2),
        17.0,
        20.0,
        88.722839,
        87.336545,
        103.97208,
        89.4160,
        16777216.0,
    ]
    turns += [k * math.pi / 2 for k in range(1, 60)] + [k * math.log(2) / 2 for k in range(1, 60)]
    at = np.concatenate([turns, np.negative(turns)]).astype(np.float32).view(np.int32)
    near = (at[:, None] + np.arange(-40, 41)).reshape(-1).astype(np.int32).view(np.float32)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3.4028235e38, -3.4028235e38, 1.1754944e-38]
    return np.concatenate([near, special]).astype(np.float32)


@cache
def sample() -> Array:
    bits = np.arange(0, 1 << 32, 65_537, dtype=np.uint64).astype(np.uint32)
    values = np.concatenate([bits.view(np.float32), hard_values()])
    return values[: len(values) - (len(values) % 16) + 13] if len(values) % 16 > 13 else values


Bound = Callable[[Array, Array], Array]  # of x and the exact value

# What is not within 4 units in the last place, and what holds instead; docs/operators.md says why.
OTHER_BOUNDS: dict[str, tuple[Oracle, Bound]] = {
    "HardSigmoid": (lambda x: np.clip(float(np.float32(0.2)) * x + 0.5, 0, 1), lambda x, y: np.full_like(x, 1.2e-7)),
    "HardSwish": (lambda x: x * np.clip(x / 6 + 0.5, 0, 1), lambda x, y: 2e-7 * np.maximum(np.abs(x), 1e-30)),
    "nn.gelu": (lambda x: x * np.vectorize(math.erfc)(-x * math.sqrt(0.5)) / 2, lambda x, y: 5e-7 + 2.4e-7 * np.abs(y)),
    "nn.swish": (lambda x: x * REFERENCES["sigmoid"](x), lambda x, y: 2e-7 * (1 + np.abs(x)) * np.abs(y) + 3e-37),
    "fast_exp": (np.exp, lambda x, y: np.where((x > -87.3) & (x < 88.37), 1e-7 * y, np.where(x < 0, 1.2e-38, np.inf))),
    "fast_tanh": (np.tanh, lambda x, y: np.where(np.abs(x) > 1e-30, 1e-6 * np.abs(y), 1e-30)),
    "fast_erf": (REFERENCES["erf"], lambda x, y: np.full_like(x, 5e-7)),
}


def runs_here(target: str) -> bool:
    return target == "c" or all(features("llvm").has(f) for f in features(target).names)


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", [*RELAY, *ONNX])
def test_within_4_ulp(name: str, target: str) -> None:
    if not runs_here(target):
        pytest.skip("this processor has no such instructions")
    x = sample()
    for opt_level in (0, 3) if name in ONNX and target == "llvm" else (3,):
        assert worst(name, x, compiled(name, target, opt_level, len(x))(x)) <= 4.0


@pytest.mark.soak
@pytest.mark.timeout(14400)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", BUILT)
def test_within_4_ulp_for_every_float(name: str, target: str) -> None:
    if not runs_here(target):
        pytest.skip("this processor has no such instructions")
    run = compiled(name, target, 3, 1 << 20)
    assert max(worst(name, x, run(x)) for x in every_float(1 << 20)) <= 4.0


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", OTHER_BOUNDS)
def test_other_bounds(name: str, target: str) -> None:
    if not runs_here(target):
        pytest.skip("this processor has no such instructions")
    x = sample()
    x = x[np.abs(x) < 1e38]  # not nan
    oracle, bound = OTHER_BOUNDS[name]
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        want = np.minimum(oracle(wide), 3.4e38)
        error = np.abs(compiled(name, target, 3, len(x))(x) - want)
        assert (error <= bound(wide, want)).all(), x[error > bound(wide, want)]


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("exponent", [None, -2.0, -0.5, 0.5, 1.0, 2.0, 3.0, 2.5, 1 / 3])
def test_powers_are_within_4_ulp(exponent: float | None, target: str) -> None:
    rng = np.random.default_rng(0)
    x = np.exp(rng.uniform(-29, 29, 4001)).astype(np.float32)
    y = rng.uniform(-3, 3, 4001).astype(np.float32) if exponent is None else np.full(4001, exponent, np.float32)
    a, b = relay.var("a", shape=x.shape), relay.var("b", shape=y.shape)
    power = relay.power(a, b if exponent is None else relay.const(exponent, "float32"))
    lib = relay.build(tvm.IRModule.from_expr(relay.Function([a, b], relay.Tuple([power, b]))), target)
    executor = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    executor.set_input("a", x)
    executor.set_input("b", y)
    executor.run()
    want = x.astype(np.float64) ** y.astype(np.float64)
    error = np.abs(executor.get_output(0).numpy() - want) / np.spacing(want.astype(np.float32))
    assert error[want < 3e38].max() <= 4.0
