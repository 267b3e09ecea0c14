"""What expressions compute, against numpy, on each code generator."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.processors.x86 import TARGETS as X86
from tests.processors.x86 import runs_here
from tests.target.codegen_helpers import DEVICES, build, elementwise, function, run_elementwise
from tests.target.codegen_helpers import TARGETS as PROCESSORS

import tilewright as tvm
from tilewright.ir import prim_ops as ops
from tilewright.runtime.ndarray import numpy_dtype
from tilewright.tir import Cast, Div, FloorDiv, FloorMod, Load, Mod, Ramp, Select, Shuffle, Store, decl_buffer
from tilewright.tir import op as T

TARGETS = (*PROCESSORS, *DEVICES)
INT_DTYPES = ["int8", "int16", "int32", "int64"]
FLOAT_DTYPES = ["float16", "float32", "float64", "bfloat16"]


def numpy_of(dtype: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", INT_DTYPES)
def test_floor_division_rounds_down_for_all_signs(target: str, dtype: str) -> None:
    a, b = np.meshgrid(np.arange(-9, 10), [-7, -3, -1, 1, 2, 3, 8])
    a, b = a.ravel().astype(dtype), b.ravel().astype(dtype)
    np.testing.assert_array_equal(run_elementwise(FloorDiv, [a, b], dtype, target), a // b)
    np.testing.assert_array_equal(run_elementwise(FloorMod, [a, b], dtype, target), a % b)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint32"])
def test_a_division_by_zero_does_not_end_the_process(target: str, dtype: str) -> None:
    a = np.array([5, 7, 0, 9, 100, 3], dtype)
    b = np.array([2, 0, 0, 3, 0, 0], dtype)
    for divide in (FloorDiv, FloorMod, Div, Mod):
        found = run_elementwise(divide, [a, b], dtype, target)
        known = b != 0
        expected = a[known] // b[known] if divide in (FloorDiv, Div) else a[known] % b[known]
        np.testing.assert_array_equal(found[known], expected)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("divisor", [1, 2, 3, 8, 7])
def test_floor_division_by_a_literal(target: str, divisor: int) -> None:
    a = np.arange(-40, 40, dtype="int32")
    quotient = run_elementwise(lambda x: T.floordiv(x, divisor), [a], "int32", target, 16)
    rest = run_elementwise(lambda x: T.floormod(x, divisor), [a], "int32", target, 16)
    np.testing.assert_array_equal(quotient, a // divisor)
    np.testing.assert_array_equal(rest, a % divisor)


@pytest.mark.parametrize("target", TARGETS)
def test_truncated_division_rounds_to_zero(target: str) -> None:
    a = np.arange(-9, 10, dtype="int32")
    b = np.resize(np.array([-4, 3, 5], "int32"), a.shape)
    expected = np.trunc(a / b).astype("int32")
    np.testing.assert_array_equal(run_elementwise(T.truncdiv, [a, b], "int32", target), expected)
    np.testing.assert_array_equal(run_elementwise(T.truncmod, [a, b], "int32", target), a - b * expected)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [*INT_DTYPES, "uint8", "uint16", "uint32", "uint64"])
def test_integer_arithmetic_wraps(target: str, dtype: str) -> None:
    info = np.iinfo(dtype)
    a = np.array([info.min, info.max, info.max - 1, 3, 0, 1], dtype)
    b = np.array([info.max, info.max, 7, 5, 1, info.min], dtype)
    with np.errstate(over="ignore"):
        for make, expected in ((ops.add, a + b), (ops.sub, a - b), (ops.mul, a * b)):
            np.testing.assert_array_equal(run_elementwise(make, [a, b], dtype, target), expected)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("lanes", [1, 8])
def test_float_arithmetic(target: str, dtype: str, lanes: int) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(64).astype(numpy_of(dtype)) for _ in range(2))
    for make, expected in ((ops.add, a + b), (ops.mul, a * b), (ops.div, a / b)):
        np.testing.assert_array_equal(run_elementwise(make, [a, b], dtype, target, lanes), expected)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", [*INT_DTYPES, "uint8", "uint32", *FLOAT_DTYPES])
def test_casts_follow_numpy(target: str, source: str) -> None:
    dests = ["int8", "int32", "int64", "uint8", *FLOAT_DTYPES, "bool"]
    values = np.array([0, 1, 2, 100, 3, 5, 127, 64] if "uint" in source else [0, 1, -2, 100, -128, 5, 127, -64])
    x = values.astype(numpy_of(source))
    if source in FLOAT_DTYPES:
        x = x * numpy_of(source).type(0.75)
    functions = [
        elementwise(lambda v, d=dest: ops.cast(d, v), [source], dest, x.size, name=f"to_{dest}") for dest in dests
    ]
    built = build(target, *functions)
    for dest in dests:
        kept = x >= 0 if dest == "uint8" else np.ones(x.shape, bool)  # negative to unsigned is not defined
        out = tvm.nd.array(np.zeros(x.shape, numpy_dtype(dest)))
        built[f"to_{dest}"](tvm.nd.array(x), out)
        expected = x.astype(bool) if dest == "bool" else x.astype(numpy_of(dest))
        np.testing.assert_array_equal(out.numpy().astype(expected.dtype)[kept], expected[kept], dest)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("lanes", [1, 16])
def test_rounding_to_the_half_types_is_to_nearest_even(target: str, lanes: int) -> None:
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 1 << 32, 4096, dtype=np.uint64).astype(np.uint32)
    x = bits.view(np.float32)
    x = np.where(np.isnan(x), np.float32(np.nan), x)
    with np.errstate(all="ignore"):
        for dtype, expected in (("float16", x.astype(np.float16)), ("bfloat16", x.astype(ml_dtypes.bfloat16))):
            found = run_elementwise(
                lambda v, d=dtype: Cast(d if lanes == 1 else f"{d}x{lanes}", v), [x], dtype, target, lanes
            )
            np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize("target", TARGETS)
def test_every_float16_widens_exactly(target: str) -> None:
    x = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(np.float16)
    found = run_elementwise(lambda v: ops.cast("float32", v), [x], "float32", target)
    np.testing.assert_array_equal(found, x.astype(np.float32))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("lanes", [1, 4])
def test_comparisons_logic_and_select(target: str, lanes: int) -> None:
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-3, 4, 32).astype("int32") for _ in range(2))

    def make(x, y):  # type: ignore[no-untyped-def]
        both = ops.logical_and(x < y, ops.logical_not(x.equal(-1)))
        return Select(ops.logical_or(both, y >= 2), x, y)

    expected = np.where(((a < b) & ~(a == -1)) | (b >= 2), a, b)
    np.testing.assert_array_equal(run_elementwise(make, [a, b], "int32", target, lanes), expected)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "float16", "float32", "float64", "bfloat16"])
def test_minimum_and_maximum(target: str, dtype: str) -> None:
    a = np.array([0, 1, 5, 120, 7, 2], numpy_of(dtype))
    b = np.array([1, 0, 5, 3, 100, 2], numpy_of(dtype))
    np.testing.assert_array_equal(run_elementwise(T.minimum, [a, b], dtype, target), np.minimum(a, b))
    np.testing.assert_array_equal(run_elementwise(T.maximum, [a, b], dtype, target), np.maximum(a, b))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_the_minimum_of_sums_of_small_integers(target: str, dtype: str) -> None:
    a, b = (np.array(v, dtype) for v in ([1, 5, 20], [2, 3, 19]))
    found = run_elementwise(lambda x, y: T.minimum(Select(x < y, x, y) + x, y * 2), [a, b], dtype, target)
    np.testing.assert_array_equal(found, np.minimum(np.minimum(a, b) + a, b * 2))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("lanes", [1, 8])
def test_maximum_keeps_nan_of_its_first_operand(target: str, lanes: int) -> None:
    x = np.array([np.nan, -1, 2, np.inf] * 2, "float32")
    found = run_elementwise(lambda v: T.maximum(v, ops.const(0.0, v.dtype)), [x], "float32", target, lanes)
    np.testing.assert_array_equal(found, np.maximum(x, 0))


@pytest.mark.parametrize("target", [*TARGETS, *(t for t in X86.values() if runs_here(t))])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("lanes", [1, 8])
def test_maximum_lets_nan_of_either_operand_through(target: str, dtype: str, lanes: int) -> None:
    values = np.array([np.nan, -np.inf, np.inf, -1.5, 2.0, -np.nan, 3e38], dtype)
    a, b = (v.ravel()[:48] for v in np.meshgrid(values, values))
    for make, expected in ((T.maximum, np.maximum(a, b)), (T.minimum, np.minimum(a, b))):
        np.testing.assert_array_equal(run_elementwise(make, [a, b], dtype, target, lanes), expected)


@pytest.mark.parametrize("target", TARGETS)
def test_bit_operations(target: str) -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-(2**31), 2**31, 16).astype("int32") for _ in range(2))
    for make, expected in (
        (T.bitwise_and, a & b),
        (T.bitwise_or, a | b),
        (T.bitwise_xor, a ^ b),
        (lambda x, y: T.bitwise_not(x), ~a),
        (lambda x, y: T.shift_right(x, 3), a >> 3),
        (lambda x, y: T.popcount(x), np.array([bin(v & 0xFFFFFFFF).count("1") for v in a.tolist()])),
        (lambda x, y: T.clz(x), np.array([32 - (v & 0xFFFFFFFF).bit_length() for v in a.tolist()])),
    ):
        np.testing.assert_array_equal(run_elementwise(make, [a, b], "int32", target), expected)


@pytest.mark.parametrize("target", TARGETS)
def test_fixed_point_multiplication(target: str) -> None:
    x = np.array([0, 1, -1, 1000, -1000, 123456, -123456], "int32")
    y, q, s = 1 << 30, 31, 2
    expected = (x.astype(object) * y + (1 << (q - s - 1))) >> (q - s)
    found = run_elementwise(lambda v: T.q_multiply_shift(v, y, q, s), [x], "int32", target)
    np.testing.assert_array_equal(found, expected.astype("int32"))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_classification(target: str, dtype: str) -> None:
    x = np.array([0, 1, np.nan, np.inf, -np.inf, -2], dtype)
    for make, expected in ((T.isnan, np.isnan(x)), (T.isinf, np.isinf(x)), (T.isfinite, np.isfinite(x))):
        np.testing.assert_array_equal(run_elementwise(make, [x], "bool", target).astype(bool), expected)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("lanes", [1, 8])
def test_rounding_functions(target: str, lanes: int) -> None:
    x = np.array([-2.5, -1.5, -0.5, -0.2, 0.2, 0.5, 1.5, 2.5], "float32")
    half_away = np.copysign(np.floor(np.abs(x) + 0.5), x)
    for make, expected in (
        (T.floor, np.floor(x)),
        (T.ceil, np.ceil(x)),
        (T.trunc, np.trunc(x)),
        (T.round, half_away),
        (T.nearbyint, np.rint(x)),
        (T.fabs, np.abs(x)),
    ):
        np.testing.assert_array_equal(run_elementwise(make, [x], "float32", target, lanes), expected)


@pytest.mark.parametrize("target", TARGETS)
def test_reinterpretation_keeps_bits(target: str) -> None:
    x = np.array([0.0, 1.5, -2.25], "float32")
    np.testing.assert_array_equal(
        run_elementwise(lambda v: T.reinterpret("int32", v), [x], "int32", target), x.view("int32")
    )


@pytest.mark.parametrize("target", TARGETS)
def test_a_shared_expression_is_computed_once(target: str) -> None:
    x = np.array([1.0, 1.0000001, 0.5], "float32")

    def squared_often(v):  # type: ignore[no-untyped-def]
        for _ in range(40):  # 2**40 nodes as a tree
            v = v * v
        return v

    expected = x.copy()
    with np.errstate(over="ignore"):
        for _ in range(40):
            expected = expected * expected
    np.testing.assert_array_equal(run_elementwise(squared_often, [x], "float32", target), expected)


@pytest.mark.parametrize("target", TARGETS)
def test_a_deep_expression_compiles(target: str) -> None:
    x = np.array([1, 2, 3], "int64")

    depth = 1100  # Python's own limit is 1000

    def chain(v):  # type: ignore[no-untyped-def]
        for i in range(depth):
            v = v + i
        return v

    np.testing.assert_array_equal(run_elementwise(chain, [x], "int64", target), x + sum(range(depth)))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "count, picks", [(1, "reverse"), (2, "interleave"), (3, "all"), (3, "reverse"), (4, "all"), (4, "reverse")]
)
def test_shuffles(target: str, count: int, picks: str) -> None:
    """Lanes of one to four vectors of four, joined, reversed, or by turns from two of them."""
    lanes = {"all": [*range(4 * count)], "reverse": [*range(4 * count)][::-1], "interleave": [0, 4, 1, 5, 2, 6, 3, 7]}[
        picks
    ]
    source, out = decl_buffer((16,), "float32", "source"), decl_buffer((len(lanes),), "float32", "out")
    vectors = [Load("float32x4", source.data, Ramp(4 * i, 1, 4)) for i in range(count)]
    body = Store(out.data, Shuffle(vectors, lanes), Ramp(0, 1, len(lanes)))
    data, result = np.arange(16, dtype="float32"), tvm.nd.array(np.zeros(len(lanes), "float32"))
    build(target, function("f", [source, out], body))(tvm.nd.array(data), result)
    np.testing.assert_array_equal(result.numpy(), data[lanes])
