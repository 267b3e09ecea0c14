"""SmallTypes: bytes and conversions of float8, float4 and integers of 2 and 4 bits are ml_dtypes'."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, te
from tilewright.contrib import graph_executor

FLOATS = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn"]
INTEGERS = ["int4", "uint4", "int2", "uint2"]


def numpy_dtype(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name))


def run(value: np.ndarray, target: str, *bodies) -> list[np.ndarray]:
    """What Relay functions of one tensor give for ``value``."""
    x = relay.var("x", shape=value.shape, dtype=str(value.dtype))
    func = relay.Function([x], relay.Tuple([body(x) for body in bodies]))
    executor = graph_executor.GraphModule(relay.build(func, target)["default"](tvm.cpu()))
    executor.set_input("x", value)
    executor.run()
    return [executor.get_output(i).numpy() for i in range(len(bodies))]


def numbers(kind: np.dtype) -> np.ndarray:
    """Numbers of any bits, all midpoints between neighbours of a type, what lies next to them, special values."""
    with np.errstate(all="ignore"):
        codes = np.arange(256).astype("uint8").view(kind).astype("float64")
        known = np.unique(codes[np.isfinite(codes)]).astype("float32")
        middles = ((known[1:] + known[:-1]) / 2).astype("float32")
    any_bits = np.random.default_rng(0).integers(0, 2**32, 4000, dtype=np.uint32).view(np.float32)
    far = np.float32(np.inf)
    special = np.array([np.nan, far, -far, 0.0, -0.0, 1e-40], "float32")
    return np.concatenate([any_bits, known, middles, np.nextafter(middles, far), np.nextafter(middles, -far), special])


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("name", FLOATS)
def test_float32_is_rounded_as_ml_dtypes_has_it(name: str, target: str) -> None:
    kind = numpy_dtype(name)
    value = numbers(kind).astype("float32")
    if name == "float8_e8m0fnu":  # halves below 2 ** -126 are ml_dtypes' own
        value = value[~(np.abs(value) < 2.0**-126)]
    (found,) = run(value, target, lambda x: relay.cast(x, name))
    with np.errstate(all="ignore"):
        expected = value.astype(kind)
    assert found.dtype == kind
    both_nan = np.isnan(found.astype("float32")) & np.isnan(expected.astype("float32"))
    no_number = np.isnan(value) & (name == "float4_e2m1fn")  # a 0 of either sign
    np.testing.assert_array_equal(*(a.view("uint8")[~both_nan & ~no_number] for a in (found, expected)))


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("name", FLOATS)
def test_every_code_becomes_its_number(name: str, target: str) -> None:
    codes = np.arange(16 if name == "float4_e2m1fn" else 256).astype("uint8").view(numpy_dtype(name))
    found, moved = run(codes, target, lambda x: relay.cast(x, "float32"), lambda x: relay.reverse(x, 0))
    np.testing.assert_array_equal(found, codes.astype("float32"))
    np.testing.assert_array_equal(moved.view("uint8"), codes[::-1].view("uint8"))


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("name", INTEGERS)
def test_integers_wrap_around_and_come_back(name: str, target: str) -> None:
    kind = numpy_dtype(name)
    value = np.arange(-130, 130, dtype="int32")
    (narrow,) = run(value, target, lambda x: relay.cast(x, name))
    np.testing.assert_array_equal(narrow.astype("int32"), value.astype(kind).astype("int32"))
    dirty = np.arange(256).astype("uint8").view(kind)  # bits that mean nothing
    wide, padded = run(dirty, target, lambda x: relay.cast(x, "int32"), lambda x: relay.nn.pad(x, ((1, 0),), 1))
    np.testing.assert_array_equal(wide, dirty.astype("int32"))
    np.testing.assert_array_equal(padded.astype("int32"), np.pad(dirty.astype("int32"), (1, 0), constant_values=1))


def test_arithmetic_is_in_float32() -> None:
    kind = numpy_dtype("float8_e5m2")
    value = np.array([1.0, 1.25, -3.5, 2.0**-16], "float32").astype(kind)
    (found,) = run(value, "llvm", lambda x: relay.multiply(x, x))
    np.testing.assert_array_equal(
        found.astype("float32"), (value.astype("float32") ** 2).astype(kind).astype("float32")
    )


def test_the_pass_leaves_no_small_type_in_a_body() -> None:
    a = te.placeholder((8,), "int32", "A")
    c = te.compute((8,), lambda i: a[i].astype("int4"), "C")
    with tvm.transform.PassContext(config={"tir.disable_vectorize": True}):
        text = str(tvm.lower(te.create_schedule(c.op), [a, c], simple_mode=True)["main"].body)
    assert "int4" not in text
    assert "shift_left" in text and "shift_right" in text
