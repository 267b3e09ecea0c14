"""Programs that the code generator makes of single layers, run on the chip, beside numpy's meaning of the operators.

Every program runs with the race check: two accesses to a byte, one of them a write, that no token orders are an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.relay.interpreter import interpret
from tilewright.relay.qnn.op import dequantize, quantize
from tilewright.relay.qnn.transform import CanonicalizeOps
from tilewright_npu import chip
from tilewright_npu.codegen.generate import generate
from tilewright_npu.codegen.memory import OutOfMemoryError
from tilewright_npu.patterns import partition_for_npu

RNG = np.random.default_rng(2020)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("float32")


def integers(dtype: str, *shape: int) -> Any:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, endpoint=True, dtype=dtype)


def on_the_chip(func: Any, inputs: list[Any], **memory: int) -> tuple[Any, chip.Counters]:
    """The result of a function all of which goes to the NPU."""
    mod = partition_for_npu(tvm.IRModule.from_expr(func))
    (name,) = (var.name_hint for var in mod.functions if var.name_hint != "main")
    main, part = mod["main"], mod[name]
    order = [main.params.index(a) for a in main.body.args]
    out = np.zeros(part.ret_type.concrete_shape, part.ret_type.dtype)
    counters = chip.run_program(generate(part, name, **memory), *(inputs[i] for i in order), outputs=[out])
    return out, counters


def check_floats(func: Any, inputs: list[Any], **memory: int) -> chip.Counters:
    found, counters = on_the_chip(func, inputs, **memory)
    expected = interpret(tvm.IRModule.from_expr(func), inputs)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * float(np.abs(expected).max()))
    return counters


def check_integers(func: Any, inputs: list[Any], **memory: int) -> chip.Counters:
    found, counters = on_the_chip(func, inputs, **memory)
    exact = CanonicalizeOps()(relay.transform.InferType()(tvm.IRModule.from_expr(func)))
    np.testing.assert_array_equal(found, interpret(exact, inputs))
    assert len(np.unique(found)) > 2 or found.size < 4  # not all of it saturated
    return counters


def number(name: str, dtype: str, shape: tuple[int, ...], step: float = 0.05, zero: int = 7) -> tuple[Any, Any]:
    var = relay.var(name, shape=shape, dtype=dtype)
    return var, dequantize(var, relay.const(np.float32(step)), relay.const(np.array(zero, dtype)))


def to_integers(value: Any, dtype: str, step: float, zero: int = 5) -> Any:
    return quantize(value, relay.const(np.float32(step)), relay.const(np.array(zero, dtype)), out_dtype=dtype)


# (channels, out, height, width, kernel, strides, padding, dilation)
CONVOLUTIONS = [
    (1, 1, 1, 1, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    (16, 16, 8, 8, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    (3, 24, 31, 29, (7, 7), (2, 2), (3, 3, 3, 3), (1, 1)),
    (3, 5, 9, 11, (3, 2), (1, 1), (0, 1, 2, 1), (2, 1)),
    (37, 41, 7, 13, (3, 3), (1, 2), (1, 2, 1, 0), (1, 1)),
    (19, 17, 11, 5, (3, 1), (2, 1), (2, 0, 2, 0), (2, 2)),
    (40, 7, 1, 23, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
]


def convolution(data: Any, weight: Any, case: tuple[Any, ...], groups: int = 1) -> Any:
    _, out, _, _, kernel, strides, padding, dilation = case
    return relay.nn.conv2d(
        data, weight, strides, padding, dilation, groups, channels=out, kernel_size=kernel
    )  # fmt: skip


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions_in_floating_point(case: tuple[Any, ...]) -> None:
    channels, out, height, width, kernel, *_ = case
    x = relay.var("x", shape=(1, channels, height, width))
    value = convolution(x, relay.const(floats(out, channels, *kernel)), case)
    value = relay.nn.relu(relay.nn.bias_add(value, relay.const(floats(out))))
    check_floats(relay.Function([x], value), [floats(1, channels, height, width)])


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_quantized_convolutions_to_the_bit(case: tuple[Any, ...], dtype: str) -> None:
    channels, out, height, width, kernel, *_ = case
    x, data = number("x", dtype, (1, channels, height, width))
    steps, zeros = RNG.uniform(0.001, 0.02, out).astype("float32"), np.zeros(out, "int8")
    weight = dequantize(
        relay.const(integers("int8", out, channels, *kernel)), relay.const(steps), relay.const(zeros), 0
    )
    value = relay.nn.bias_add(convolution(data, weight, case), relay.const(floats(out)))
    step = 0.02 * np.sqrt(channels * kernel[0] * kernel[1])
    func = relay.Function([x], to_integers(value, dtype, step))
    check_integers(func, [integers(dtype, 1, channels, height, width)])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "float32"])
@pytest.mark.parametrize("case", [(21, 21, 9, 10, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
                                  (16, 16, 12, 7, (5, 3), (2, 2), (2, 1, 2, 1), (1, 1))])  # fmt: skip
def test_depthwise_convolutions(case: tuple[Any, ...], dtype: str) -> None:
    channels, out, height, width, kernel, *_ = case
    shape = (1, channels, height, width)
    if dtype == "float32":
        x = relay.var("x", shape=shape)
        value = convolution(x, relay.const(floats(out, 1, *kernel)), case, channels)
        check_floats(relay.Function([x], relay.clip(value, 0.0, 6.0)), [floats(*shape)])
        return
    x, data = number("x", dtype, shape)
    steps, zeros = RNG.uniform(0.001, 0.02, out).astype("float32"), np.zeros(out, "int8")
    weight = dequantize(relay.const(integers("int8", out, 1, *kernel)), relay.const(steps), relay.const(zeros), 0)
    value = relay.clip(convolution(data, weight, case, channels), 0.0, 6.0)
    check_integers(relay.Function([x], to_integers(value, dtype, 0.04)), [integers(dtype, *shape)])


@pytest.mark.parametrize(("rows", "inner", "units"), [(1, 512, 10), (13, 37, 41), (128, 16, 100)])
def test_dense_layers(rows: int, inner: int, units: int) -> None:
    x = relay.var("x", shape=(rows, inner))
    value = relay.nn.gelu(
        relay.nn.bias_add(relay.nn.dense(x, relay.const(floats(units, inner))), relay.const(floats(units)))
    )
    check_floats(relay.Function([x], value), [floats(rows, inner)])
    q, data = number("q", "int8", (rows, inner))
    weight = relay.const(integers("int8", units, inner))
    number_of = dequantize(weight, relay.const(np.float32([0.01])), relay.const(np.int8([0])), 0)
    func = relay.Function([q], to_integers(relay.nn.dense(data, number_of), "int8", 0.03 * np.sqrt(inner)))
    check_integers(func, [integers("int8", rows, inner)])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "float32"])
@pytest.mark.parametrize("what", ["max", "mean", "add", "clip"])
def test_other_layers(what: str, dtype: str) -> None:
    shape = (1, 35, 11, 6)
    make = {
        "max": lambda a, b: relay.nn.max_pool2d(a, (3, 2), (2, 1), padding=(1, 1, 0, 1)),
        "mean": lambda a, b: relay.nn.global_avg_pool2d(a),
        "add": lambda a, b: relay.nn.relu(a + b),
        "clip": lambda a, b: relay.clip(a, -1.0, 1.0),
    }[what]
    names = ("x", "y") if what == "add" else ("x",)
    if dtype == "float32":
        variables = [relay.var(n, shape=shape) for n in names]
        check_floats(relay.Function(variables, make(variables[0], variables[-1])), [floats(*shape) for _ in names])
        return
    pairs = [number(n, dtype, shape, step, zero) for n, step, zero in zip(names, (0.05, 0.011), (7, 99), strict=False)]
    value = make(pairs[0][1], pairs[-1][1])
    func = relay.Function([v for v, _ in pairs], to_integers(value, dtype, 0.04 if what == "mean" else 0.07))
    check_integers(func, [integers(dtype, *shape) for _ in names])


def network(size: int, channels: int) -> tuple[Any, list[Any]]:
    """Two convolutions around a residual sum, with everything between them."""
    x, data = number("x", "int8", (1, channels, size, size))

    def conv(value: Any, kernel: int) -> Any:
        weight = relay.const(integers("int8", channels, channels, kernel, kernel))
        number_of = dequantize(weight, relay.const(np.float32([0.002])), relay.const(np.int8([0])), 0)
        pad = kernel // 2
        whole = relay.nn.conv2d(value, number_of, padding=(pad, pad), channels=channels, kernel_size=(kernel, kernel))
        q = to_integers(relay.nn.relu(whole), "int8", 0.3)
        return dequantize(q, relay.const(np.float32(0.3)), relay.const(np.int8(5)))

    value = conv(conv(data, 3), 1) + data
    return relay.Function([x], to_integers(value, "int8", 0.4)), [integers("int8", 1, channels, size, size)]


def test_a_tensor_with_two_readers_and_limits_of_its_own() -> None:
    """What one reader limits, the other sees unlimited: the limits are not merged into the layer that both read."""
    x, data = number("x", "int8", (1, 16, 6, 6))
    weight = dequantize(
        relay.const(integers("int8", 16, 16, 1, 1)), relay.const(np.float32([0.002])), relay.const(np.int8([0])), 0
    )
    step, zero = relay.const(np.float32(0.3)), relay.const(np.int8(5))
    q = to_integers(relay.nn.conv2d(data, weight, channels=16, kernel_size=(1, 1)), "int8", 0.3)
    limited = to_integers(relay.nn.relu(dequantize(q, step, zero)), "int8", 0.3)
    value = dequantize(limited, step, zero) + dequantize(q, step, zero)
    check_integers(relay.Function([x], to_integers(value, "int8", 0.4)), [integers("int8", 1, 16, 6, 6)])


def test_tensors_between_layers_stay_in_the_sram() -> None:
    func, inputs = network(14, 32)
    counters = check_integers(func, inputs)
    assert counters.bytes_stored == inputs[0].nbytes  # the result, and nothing else


def test_what_does_not_fit_the_sram_goes_through_the_ddr() -> None:
    func, inputs = network(40, 32)
    counters = check_integers(func, inputs, sram=1 << 17)
    assert counters.bytes_stored > inputs[0].nbytes


def test_weights_larger_than_the_sram_come_in_parts() -> None:
    x = relay.var("x", shape=(1, 600, 5, 5))
    weight = relay.const(floats(33, 600, 3, 3))
    value = relay.nn.conv2d(x, weight, padding=(1, 1), channels=33, kernel_size=(3, 3))
    check_floats(relay.Function([x], value), [floats(1, 600, 5, 5)], sram=1 << 19)


def test_a_layer_that_fits_no_sram_is_named() -> None:
    x = relay.var("x", shape=(1, 64, 8, 2000))
    value = relay.nn.conv2d(x, relay.const(floats(16, 64, 3, 3)), channels=16, kernel_size=(3, 3))
    with pytest.raises(OutOfMemoryError, match=r"layer 0 conv2d: no tile of it fits \d+ bytes of SRAM"):
        on_the_chip(relay.Function([x], value), [floats(1, 64, 8, 2000)], sram=1 << 16)


def test_weights_that_fit_no_ddr_are_told() -> None:
    x = relay.var("x", shape=(1, 512))
    value = relay.nn.dense(x, relay.const(floats(512, 512)))
    with pytest.raises(OutOfMemoryError, match=r"exceed 65536 bytes of DDR"):
        on_the_chip(relay.Function([x], value), [floats(1, 512)], ddr=1 << 16)
