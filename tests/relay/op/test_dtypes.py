"""Operators on data types other than float32 and int32."""

import ml_dtypes
import numpy as np
import pytest
from tests.relay.op.harness import Case, case, check_kernels, check_meaning, check_type, integers, random

from tilewright import relay

FLOATS = {"float16": 2e-2, "bfloat16": 6e-2, "float64": 1e-9}
INTEGERS = ["int8", "uint8", "int16", "int64"]


def numpy_dtype(name: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def float_cases(dtype: str) -> list[Case]:
    target, tolerance = numpy_dtype(dtype), FLOATS[dtype]
    x, y, w, k = (random(*s).astype(target) for s in ((2, 6), (1, 6), (5, 6), (4, 3, 3, 3)))
    image = random(1, 3, 6, 5).astype(target)
    wide, wide_y, wide_w, wide_image = (a.astype("float64") for a in (x, y, w, image))
    e = np.exp(wide - wide.max(-1, keepdims=True))
    windows = np.lib.stride_tricks.sliding_window_view(wide_image, (3, 3), (2, 3))

    def item(name: str, build: object, inputs: list, expected: np.ndarray) -> Case:
        return case(f"{name} {dtype}", build, inputs, expected.astype(target), rtol=tolerance, atol=tolerance)

    return [
        item("add", relay.add, [x, y], wide + wide_y),
        item("exp", relay.exp, [x], np.exp(wide)),
        item("tanh", relay.tanh, [x], np.tanh(wide)),
        item("sigmoid", relay.sigmoid, [x], 1 / (1 + np.exp(-wide))),
        item("relu", relay.nn.relu, [x], np.maximum(wide, 0)),
        item("sum", lambda a: relay.sum(a, 1), [x], wide.sum(1)),
        item("max", lambda a: relay.max(a, 1), [x], wide.max(1)),
        item("softmax", relay.nn.softmax, [x], e / e.sum(-1, keepdims=True)),
        item("dense", relay.nn.dense, [x, w], wide @ wide_w.T),
        item("conv2d", relay.nn.conv2d, [image, k], np.einsum("nchwij,ocij->nohw", windows, k.astype("float64"))),
        item("max_pool2d", lambda a: relay.nn.max_pool2d(a, (3, 3)), [image], windows.max((4, 5))),
        item("avg_pool2d", lambda a: relay.nn.avg_pool2d(a, (3, 3)), [image], windows.mean((4, 5))),
    ]


def integer_cases(dtype: str) -> list[Case]:
    low = 0 if dtype.startswith("uint") else -100
    x, y = integers(low, 100, 3, 7, dtype=dtype), integers(1, 27, 7, dtype=dtype)
    w = integers(low, 100, 5, 7, dtype=dtype)
    return [
        case(f"add {dtype}", relay.add, [x, y], x + y),
        case(f"maximum {dtype}", relay.maximum, [x, y], np.maximum(x, y)),
        case(f"floor_divide {dtype}", relay.floor_divide, [x, y], x // y),
        case(f"less {dtype}", relay.less, [x, y], x < y),
        case(f"clip {dtype}", lambda a: relay.clip(a, 2, 50), [x], np.clip(x, 2, 50)),
        case(f"max {dtype}", lambda a: relay.max(a, 1), [x], x.max(1)),
        case(f"to float {dtype}", lambda a: relay.cast(a, "float32"), [x], x.astype("float32")),
        case(f"take {dtype}", lambda a: relay.take(a, relay.const([1, 0]), 0), [x], x[[1, 0]]),
        case(f"dense to int32 {dtype}", lambda a, b: relay.nn.dense(a, b, out_dtype="int32"), [x, w],
             (x.astype("int64") @ w.astype("int64").T).astype("int32")),
    ]  # fmt: skip


ALL = [c for d in FLOATS for c in float_cases(d)] + [c for d in INTEGERS for c in integer_cases(d)]


@pytest.mark.parametrize("item", ALL, ids=str)
def test_type(item: Case) -> None:
    check_type(item)


@pytest.mark.parametrize("item", ALL, ids=str)
def test_meaning(item: Case) -> None:
    check_meaning(item)


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_kernels(dtype: str) -> None:
    check_kernels(float_cases(dtype))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_kernels(dtype: str) -> None:
    check_kernels(integer_cases(dtype))
