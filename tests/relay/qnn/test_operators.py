"""qnn operators: compiled, and by their definition, against integers computed one by one."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.ir.errors import TilewrightError, TypeInferenceError, UnsupportedError
from tilewright.relay import qnn
from tilewright.relay.interpreter import interpret

RNG = np.random.default_rng(37)
MODES = ["UPWARD", "TONEAREST", "TOEVEN"]


def integers(dtype: str, *shape: int) -> Any:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, endpoint=True, dtype=dtype)


def number(value: Any) -> Any:
    return relay.const(np.float32(value))


def zero(value: Any) -> Any:
    return relay.const(np.int32(value))


def computed(expr: Any, inputs: dict[str, Any], compiled: bool = True) -> Any:
    """What a program gives: by its definition, in its canonical form, and compiled."""
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(expr))
    arrays = [inputs[p.name_hint] for p in mod["main"].params]
    defined = interpret(mod, arrays)
    np.testing.assert_array_equal(interpret(qnn.transform.CanonicalizeOps()(mod), arrays), defined)
    if compiled:
        run = graph_executor.GraphModule(relay.build(mod, "llvm")["default"](tvm.cpu()))
        run.run(**inputs)
        found = run.get_output(0).numpy()
        assert found.dtype == defined.dtype
        np.testing.assert_array_equal(found, defined)
    return defined


def given(name: str, array: Any) -> Any:
    return relay.var(name, shape=array.shape, dtype=str(array.dtype))


def rounded(value: Fraction, mode: str) -> int:
    """One product, rounded; UPWARD and TONEAREST of a factor of 31 bits."""
    if mode == "UPWARD":
        return math.floor(value + Fraction(1, 2))
    if mode == "TONEAREST":
        return math.floor(abs(value) + Fraction(1, 2)) * (1 if value >= 0 else -1)
    return round(value)


def of_31_bits(factor: float) -> Fraction:
    fraction, exponent = math.frexp(factor)
    return Fraction(math.floor(fraction * 2**31 + 0.5)) * Fraction(2) ** (exponent - 31)


def requantized(x: int, scale: Any, zero: int, out_scale: Any, out_zero: int, mode: str, dtype: str) -> int:
    if mode == "TOEVEN":
        product = np.float32(x - zero) * (np.float32(scale) / np.float32(out_scale))
        whole = min(int(np.rint(product)), 2**31 - 128)  # the largest float32 that is an int32
    else:
        whole = rounded((x - zero) * of_31_bits(float(np.float32(scale)) / float(np.float32(out_scale))), mode)
    info = np.iinfo(dtype)
    return min(max(whole + out_zero, info.min), info.max)


# ------------------------------------------------------------------------------------------- requantize


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32"])
def test_requantize_is_its_definition(mode: str, dtype: str) -> None:
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    data = RNG.integers(-(2**20), 2**20, (3, 7), dtype="int32")
    data[0, :4] = [0, -1, 2**31 - 1, -(2**31)]
    for scale, out_scale, out_zero in [(0.0123, 1.7, high), (0.31, 0.002, low), (1.0, 1.0, 0), (1e-7, 1.0, 0)]:
        expr = qnn.op.requantize(given("x", data), number(scale), zero(0), number(out_scale), zero(out_zero),
                                 rounding=mode, out_dtype=dtype)  # fmt: skip
        if scale == out_scale:
            wanted = [min(max(int(v), low), high) for v in data.flat]
        else:
            wanted = [requantized(int(v), scale, 0, out_scale, out_zero, mode, dtype) for v in data.flat]
        np.testing.assert_array_equal(computed(expr, {"x": data}).reshape(-1), np.array(wanted, dtype))


TIES = np.array([-40, -24, -8, 8, 24, 40], "int32")  # times 1/16: halves


@pytest.mark.parametrize(("mode", "wanted"), [
    ("UPWARD", [-2, -1, 0, 1, 2, 3]), ("TONEAREST", [-3, -2, -1, 1, 2, 3]), ("TOEVEN", [-2, -2, 0, 0, 2, 2]),
])  # fmt: skip
def test_halves_round_as_the_mode_says(mode: str, wanted: list[int]) -> None:
    for scale, axis in ((number(1.0), -1), (relay.const(np.ones(6, "float32")), 0)):
        expr = qnn.op.requantize(given("x", TIES), scale, zero(0), number(16.0), zero(0), axis, mode)
        assert computed(expr, {"x": TIES}).tolist() == wanted


@pytest.mark.parametrize("mode", MODES)
def test_requantize_by_channel(mode: str) -> None:
    data, scales = RNG.integers(-9000, 9000, (2, 5, 3), dtype="int32"), np.array([1e-6, 0.3, 1.0, 7.0, 1e3], "float32")
    zeros = np.array([0, 5, -128, 127, 1], "int32")
    expr = qnn.op.requantize(
        given("x", data), relay.const(scales), relay.const(zeros), number(11.3), zero(-3), 1, mode, "int8"
    )
    found = computed(expr, {"x": data})
    for (i, c, j), value in np.ndenumerate(data):
        assert found[i, c, j] == requantized(int(value), scales[c], int(zeros[c]), 11.3, -3, mode, "int8")


def test_requantize_by_scales_that_the_program_computes() -> None:
    data = integers("int8", 3, 5)
    x, step = given("x", data), relay.var("s", shape=(), dtype="float32")
    expr = qnn.op.requantize(x, step, zero(3), step * number(2.5), zero(1), rounding="TOEVEN")
    found = computed(expr, {"x": data, "s": np.float32(0.3)})
    factor = np.float32(0.3) / (np.float32(0.3) * np.float32(2.5))
    np.testing.assert_array_equal(found, np.rint((data.astype("float32") - 3) * factor) + 1)
    with pytest.raises(UnsupportedError, match="UPWARD takes scales that are constants"):
        relay.build(tvm.IRModule.from_expr(qnn.op.requantize(x, step, zero(3), number(2.5), zero(1))), "llvm")


# ------------------------------------------------------------------------------------------- products


@pytest.mark.parametrize(("a", "b"), [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8"), ("int8", "uint8")])
@pytest.mark.parametrize("constant", [True, False])
def test_dense_sums_products_of_differences(a: str, b: str, constant: bool) -> None:
    data, weight = integers(a, 3, 37), integers(b, 5, 37)
    for data_zero in (0, int(np.iinfo(a).max)):
        for weight_zero in (0, 128 if b == "uint8" else 3, integers(b, 5)):
            w = relay.const(weight) if constant else given("w", weight)
            of_weight = relay.const(np.asarray(weight_zero, "int32"))
            expr = qnn.op.dense(given("x", data), w, zero(data_zero), of_weight, number(0.1), number(0.2), 5)
            last = data_zero != 0 and np.ndim(weight_zero) == 1
            found = computed(expr, {"x": data} | ({} if constant else {"w": weight}), last)
            column = np.reshape(np.asarray(weight_zero, "int64"), (-1, 1))
            np.testing.assert_array_equal(
                found, (data.astype("int64") - data_zero) @ (weight.astype("int64") - column).T
            )


def test_batch_matmul_sums_products_of_differences() -> None:
    x, y = integers("uint8", 2, 3, 7), integers("int8", 2, 5, 7)
    for zx, zy in ((0, 0), (255, 0), (0, -128), (3, 127)):
        for second in (relay.const(y), given("y", y)):
            expr = qnn.op.batch_matmul(given("x", x), second, zero(zx), zero(zy), number(0.1), number(0.2))
            found = computed(expr, {"x": x} | ({} if isinstance(second, relay.Constant) else {"y": y}), zx == 3)
            wanted = (x.astype("int64") - zx) @ (y.astype("int64") - zy).transpose(0, 2, 1)
            np.testing.assert_array_equal(found, wanted)


def test_sums_wrap_as_int32_does() -> None:
    """The largest sums of 40,000 products of bytes."""
    data, weight = np.full((1, 40000), 255, "uint8"), np.full((1, 40000), 255, "uint8")
    expr = qnn.op.dense(given("x", data), relay.const(weight), zero(0), zero(0), number(1), number(1), 1)
    assert computed(expr, {"x": data}).item() == np.int64(255 * 255 * 40000).astype("int32")


LAYOUTS = {"NCHW": "OIHW", "NHWC": "HWIO"}


def convolved(x: Any, w: Any, strides: tuple[int, int], pads: tuple[int, ...], dilation: int, groups: int) -> Any:
    """Of (n, c, h, w) and (o, c / groups, kh, kw) in int64, product by product."""
    top, left, bottom, right = pads
    x = np.pad(x, [(0, 0), (0, 0), (top, bottom), (left, right)])
    (n, _, height, width), (outs, per_group, kh, kw) = x.shape, w.shape
    oh = (height - (kh - 1) * dilation - 1) // strides[0] + 1
    ow = (width - (kw - 1) * dilation - 1) // strides[1] + 1
    result = np.zeros((n, outs, oh, ow), "int64")
    for o in range(outs):
        first = o // (outs // groups) * per_group
        for i, j, c in np.ndindex(kh, kw, per_group):
            rows = slice(i * dilation, i * dilation + (oh - 1) * strides[0] + 1, strides[0])
            columns = slice(j * dilation, j * dilation + (ow - 1) * strides[1] + 1, strides[1])
            result[:, o] += x[:, first + c, rows, columns] * w[o, c, i, j]
    return result


CONVOLUTIONS = {
    "plain": {"c": 3, "o": 5},
    "strided, padded on one side": {"c": 3, "o": 5, "strides": (2, 1), "padding": (1, 0, 2, 1)},
    "dilated": {"c": 2, "o": 3, "dilation": 2, "padding": (2, 2, 2, 2)},
    "grouped": {"c": 4, "o": 6, "groups": 2, "padding": (1, 1, 1, 1)},
    "depthwise": {"c": 5, "o": 5, "groups": 5, "padding": (1, 1, 1, 1)},
    "depthwise, two for each": {"c": 3, "o": 6, "groups": 3},
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_conv2d_sums_products_of_differences(case: str, layout: str) -> None:
    options: Any = {"strides": (1, 1), "padding": (0, 0, 0, 0), "dilation": 1, "groups": 1, **CONVOLUTIONS[case]}
    channels, outs, groups, dilation = options["c"], options["o"], options["groups"], options["dilation"]
    x, w = integers("uint8", 2, channels, 6, 5), integers("int8", outs, channels // groups, 3, 2)
    for zx, zw in ((0, 0), (255, 0), (0, -5), (7, integers("int8", outs))):
        zw = np.asarray(zw, "int32")
        wanted = convolved(x.astype("int64") - zx, w.astype("int64") - zw.reshape(-1, 1, 1, 1), options["strides"],
                           options["padding"], dilation, groups)  # fmt: skip
        data = np.ascontiguousarray(x.transpose(["NCHW".index(a) for a in layout]))
        weight = np.ascontiguousarray(w.transpose(["OIHW".index(a) for a in LAYOUTS[layout]]))
        expr = qnn.op.conv2d(
            given("x", data), relay.const(weight), zero(zx), relay.const(zw), number(0.1), number(0.2), (3, 2), outs,
            options["strides"], options["padding"], (dilation, dilation), groups, layout, LAYOUTS[layout],
        )  # fmt: skip
        np.testing.assert_array_equal(computed(expr, {"x": data}), wanted.transpose(["NCHW".index(a) for a in layout]))


def test_conv2d_becomes_a_convolution_of_the_bytes() -> None:
    """uint8 weights around 128 are int8 ones, and what the zero points add is one constant row."""
    x, w = relay.var("x", shape=(1, 3, 7, 7), dtype="uint8"), integers("uint8", 4, 3, 3, 3)
    expr = qnn.op.conv2d(x, relay.const(w), zero(9), zero(128), number(1), number(1), (3, 3), 4)
    mod = relay.transform.FoldConstant()(qnn.transform.CanonicalizeOps()(tvm.IRModule.from_expr(expr)))
    text = str(mod)
    assert text.count("nn.conv2d") == 1 and "cast" not in text and "Tensor[(4, 3, 3, 3), int8]" in text
    assert 'out_dtype="int32"' in text and "nn.conv2d(%x" in text and text.count("subtract") == 1


def test_conv2d_transpose_sums_products_of_differences() -> None:
    x, w = integers("int8", 1, 3, 4, 5), integers("uint8", 3, 2, 2, 3)
    expr = qnn.op.conv2d_transpose(
        given("x", x), relay.const(w), zero(-128), zero(255), number(1), number(1), (2, 1), (1, 0), kernel_size=(2, 3),
        channels=2,
    )  # fmt: skip
    wide = np.zeros((1, 2, 2 * 3 + 2, 5 + 2), "int64")
    for c, o, i, j, a, b in np.ndindex(3, 2, 2, 3, 4, 5):
        wide[0, o, 2 * a + i, b + j] += (int(x[0, c, a, b]) + 128) * (int(w[c, o, i, j]) - 255)
    np.testing.assert_array_equal(computed(expr, {"x": x}), wide[:, :, 1:-1])


def test_int16_sums_wrap() -> None:
    x, w = integers("uint8", 1, 9, 1, 2), integers("int8", 2, 9, 1, 1)
    expr = qnn.op.conv2d(given("x", x), relay.const(w), zero(0), zero(0), number(1), number(1), (1, 1), 2,
                         out_dtype="int16")  # fmt: skip
    wanted = np.einsum("ncij,oc->noij", x.astype("int64"), w[:, :, 0, 0].astype("int64")).astype("int16")
    np.testing.assert_array_equal(computed(expr, {"x": x}), wanted)


def test_no_rows_and_no_channels_give_empty_results() -> None:
    nothing = np.zeros((0, 4), "uint8")
    weight = relay.const(integers("int8", 3, 4))
    expr = qnn.op.dense(given("x", nothing), weight, zero(3), zero(1), number(1), number(1), 3)
    assert computed(expr, {"x": nothing}).shape == (0, 3)
    expr = qnn.op.requantize(given("x", nothing), number(1), zero(3), number(2), zero(1))
    assert computed(expr, {"x": nothing}).shape == (0, 4)


# ------------------------------------------------------------------------------------------- binary operators, joins

PAIRS = {"add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "mul": lambda a, b: a * b}


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PAIRS)
def test_binary_operators_are_within_a_step_of_the_numbers(name: str, mode: str, dtype: str) -> None:
    a, b = integers(dtype, 2, 5, 3), integers(dtype, 5, 1)
    za, zb, zo = (int(v) for v in integers(dtype, 3))
    wide = 2.0 if dtype != "int16" else 500.0
    out = np.float32({"add": 0.05, "subtract": 0.05, "mul": 0.04 * wide}[name])
    expr = getattr(qnn.op, name)(
        given("a", a), given("b", b), number(0.03), zero(za), number(0.017), zero(zb), number(out), zero(zo), mode
    )
    found = computed(expr, {"a": a, "b": b})
    info = np.iinfo(dtype)
    real = PAIRS[name]((a.astype("float64") - za) * 0.03, (b.astype("float64") - zb) * 0.017)
    wanted = np.clip(np.rint(real / out) + zo, info.min, info.max)
    assert np.abs(found - wanted).max() <= 1


def test_a_sum_is_requantized_operand_by_operand() -> None:
    """TVM 0.8's way: both halves are rounded up before they are added."""
    a = np.array([1, 3, -1, -3, 127], "int8")
    expr = qnn.op.add(given("a", a), given("b", a), number(1), zero(0), number(1), zero(0), number(2), zero(0))
    assert computed(expr, {"a": a, "b": a}).tolist() == [2, 4, 0, -2, 127]
    expr = qnn.op.add(
        given("a", a), given("b", a), number(1), zero(0), number(1), zero(0), number(2), zero(0), "TOEVEN"
    )
    assert computed(expr, {"a": a, "b": a}).tolist() == [1, 3, -1, -3, 127]


@pytest.mark.parametrize("mode", MODES)
def test_concatenate_requantizes_what_differs(mode: str) -> None:
    a, b = integers("uint8", 2, 3), integers("uint8", 2, 4)
    expr = qnn.op.concatenate(
        [given("a", a), given("b", b)], [number(0.5), number(0.3)], [zero(7), zero(255)], number(0.5), zero(7), 1, mode
    )
    found = computed(expr, {"a": a, "b": b})
    np.testing.assert_array_equal(found[:, :3], a)
    other = [requantized(int(v), 0.3, 255, 0.5, 7, mode, "uint8") for v in b.flat]
    np.testing.assert_array_equal(found[:, 3:].reshape(-1), other)


# ------------------------------------------------------------------------------------------- errors

BYTES = relay.var("x", shape=(2, 4), dtype="uint8")
WEIGHT = relay.const(np.ones((3, 4), "int8"))

WRONG_TYPES = {
    "scale_in_float64": (lambda: qnn.op.dequantize(BYTES, relay.const(np.array(1.0)), zero(0)), "scales are float32"),
    "zero_in_float": (lambda: qnn.op.dequantize(BYTES, number(1), number(0)), "zero points are integers"),
    "lengths": (
        lambda: qnn.op.dequantize(BYTES, relay.const(np.ones(3, "float32")), zero(0)), "input_scale has 3 elements.*4",
    ),
    "axis": (
        lambda: qnn.op.dequantize(BYTES, relay.const(np.ones(4, "float32")), zero(0), axis=2), "axis 2 is out of range",
    ),
    "vector_for_a_number": (
        lambda: qnn.op.dense(BYTES, WEIGHT, relay.const(np.ones(4, "int32")), zero(0), number(1), number(1), 3),
        "input_zero_point is one number, found 4",
    ),
    "float_data": (
        lambda: qnn.op.dense(relay.var("x", shape=(2, 4)), WEIGHT, zero(0), zero(0), number(1), number(1), 3),
        "data is int8 or uint8, found float32",
    ),
    "number_of_scales": (
        lambda: qnn.op.concatenate([BYTES, BYTES], [number(1)], [zero(0), zero(0)], number(1), zero(0), 0),
        "input_scales has 1 elements for 2 tensors",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_TYPES)
def test_types_that_do_not_fit_are_named(case: str) -> None:
    make, message = WRONG_TYPES[case]
    with pytest.raises(TypeInferenceError, match=message):
        relay.transform.InferType()(tvm.IRModule.from_expr(make()))


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_a_constant_scale_is_positive(scale: float) -> None:
    for expr in (
        qnn.op.dequantize(BYTES, number(scale), zero(0)),
        qnn.op.dense(BYTES, WEIGHT, zero(0), zero(0), number(1), number(scale), 3),
        qnn.op.concatenate([BYTES], [number(scale)], [zero(0)], number(1), zero(0), 0),
    ):
        with pytest.raises(TilewrightError, match=r"qnn\.\w+: \w+_scales? has to be a positive number, found"):
            relay.build(tvm.IRModule.from_expr(expr), "llvm")


def test_a_constant_zero_point_is_a_number_of_its_tensor() -> None:
    expr = qnn.op.requantize(BYTES, number(1), zero(0), number(2), zero(128))
    with pytest.raises(
        TilewrightError, match="output_zero_point has to be a number of int8, from -128 to 127, found 128"
    ):
        relay.build(tvm.IRModule.from_expr(expr), "llvm")


def test_rounding_modes_are_three() -> None:
    with pytest.raises(TilewrightError, match="one of UPWARD, TONEAREST, TOEVEN, found 'DOWN'"):
        relay.transform.InferType()(
            tvm.IRModule.from_expr(qnn.op.requantize(BYTES, number(1), zero(0), number(2), zero(0), rounding="DOWN"))
        )


def test_scales_too_far_apart_for_fixed_point_are_refused() -> None:
    expr = qnn.op.requantize(BYTES, number(1e10), zero(0), number(1), zero(0))
    with pytest.raises(UnsupportedError, match=r"scales up to 2\*\*30 apart"):
        relay.build(tvm.IRModule.from_expr(expr), "llvm")


# ------------------------------------------------------------------------------------------- whole programs


def program(batch: Any) -> Any:
    """A convolution, a sum and a dense layer, by each rounding."""
    rng = np.random.default_rng(1)
    x = relay.var("x", shape=(batch, 3, 5, 4), dtype="int8")
    kernel = relay.const(rng.integers(-128, 127, (5, 3, 3, 3), dtype="int8"))
    sums = qnn.op.conv2d(x, kernel, zero(8), zero(3), number(0.1), number(0.02), (3, 3), 5, padding=(1, 1))
    results = []
    for mode in MODES:
        q = qnn.op.requantize(sums, number(0.002), zero(0), number(0.5), zero(3), 1, mode)
        results.append(qnn.op.add(q, q, number(0.5), zero(3), number(0.5), zero(3), number(0.7), zero(-3), mode))
    weight = relay.const(rng.integers(-128, 127, (4, 100), dtype="int8"))
    flat = relay.nn.batch_flatten(results[0])
    return relay.Tuple([*results, qnn.op.dense(flat, weight, zero(-3), zero(-7), number(0.1), number(0.2), 4)])


def test_a_program_gives_the_same_through_c_and_in_batches_of_any_size() -> None:
    data = integers("int8", 2, 3, 5, 4)
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(program(2)))
    wanted = interpret(mod, [data])
    run = graph_executor.GraphModule(relay.build(mod, "c")["default"](tvm.cpu()))
    run.run(x=data)
    any_size = tvm.IRModule.from_expr(program(relay.Any()))
    found = relay.create_executor("vm", any_size, tvm.cpu(), "llvm").evaluate()(data)
    for i, array in enumerate(wanted):
        np.testing.assert_array_equal(run.get_output(i).numpy(), array)
        np.testing.assert_array_equal(found[i].numpy(), array)


def test_a_program_prints_and_parses() -> None:
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(program(2)))
    assert tvm.ir.structural_equal(mod, tvm.parser.fromtext(mod.astext()))
    assert tvm.ir.structural_equal(mod, tvm.ir.load_json(tvm.ir.save_json(mod)))
