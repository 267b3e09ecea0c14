"""Convolutions of float32 in AMX's tiles of bfloat16: float32's error, FMA's infinities, and where they are used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.processors.x86 import runs_here

import tilewright as tvm
from tilewright import relay, te
from tilewright.contrib import graph_executor
from tilewright.relay.op.nn.conv_common import convolve
from tilewright.target import features
from tilewright.topi.cpu.conv2d_parts import halves_of, schedule_conv2d_of_parts
from tilewright.topi.cpu.model.float_tiles import conv2d_float_tiles, row_tiles
from tilewright.topi.kinds import CONV2D_PARTS
from tilewright.topi.nn import float_parts
from tilewright.topi.options import OPTION

AMX, ANY = "llvm -mcpu=sapphirerapids", "llvm -mcpu=x86-64"
RNG = np.random.default_rng(46)
# Of products with numbers of a standard normal distribution: root mean square, in roots of the sum's length.
ERROR = {3: 1e-6, 2: 3e-5, 1: 1e-2}


def on(target: str) -> str:
    if not runs_here(target):
        pytest.skip("no AMX on this processor")
    return target


def packed_product(x: np.ndarray, weight: np.ndarray, parts: int, most: int, chunk: int, target: str) -> np.ndarray:
    """Return the convolution of packed x (n, C, h, w, c) with single points (O, C, 1, 1, c, 16) by the schedule.

    Loops stand for tiles on a processor without.
    """
    shape = (x.shape[0], weight.shape[0], *x.shape[2:4], 16)
    blocks, tiles, height = row_tiles(x.shape[3], most)
    with tvm.target.Target(target):
        data, kernel = te.placeholder(x.shape, name="data"), te.placeholder(weight.shape, name="kernel")
        split = float_parts.parts_of_image(data, blocks, tiles, height, parts)
        out = float_parts.conv2d_of_parts(split, kernel, shape, tiles, chunk)
        s = te.create_schedule(out.op)
        schedule_conv2d_of_parts(s, CONV2D_PARTS.among([out]), out.op, emulated=target.startswith(ANY))
        run: Any = tvm.build(s, [data, kernel, out], target)
    result = tvm.nd.empty(shape)
    run(tvm.nd.array(x), tvm.nd.array(weight), result)
    found: np.ndarray = result.numpy()
    return found


def exact_product(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.einsum("bcyxi,kcio->bkyxo", x.astype("float64"), weight[:, :, 0, 0])
    return found


def operands(shape: tuple[int, ...], chunks: int) -> tuple[np.ndarray, np.ndarray]:
    n, c, h, w = shape
    weight = RNG.standard_normal((chunks, c, 1, 1, 16, 16), "float32")
    return RNG.standard_normal((n, c, h, w, 16), "float32"), weight


@pytest.mark.parametrize("target", [AMX, ANY])
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    ("parts", "shape", "chunks", "most", "chunk"),
    [
        (3, (1, 2, 1, 16), 2, 256, 32),
        (3, (2, 3, 2, 19), 3, 256, 48),  # images, rows, odd numbers of blocks, and half a step at the end of a sum
        (2, (1, 4, 1, 49), 4, 32, 64),  # two blocks of positions, the second shorter
        (1, (1, 2, 3, 31), 1, 256, 32),
        (3, (1, 8, 1, 33), 4, 256, 64),  # a sum in chunks
        (3, (1, 8, 1, 70), 6, 32, 32),
    ],
)
def test_errors_are_those_of_the_parts(
    target: str, cores: int, parts: int, shape: tuple[int, int, int, int], chunks: int, most: int, chunk: int
) -> None:
    x, weight = operands(shape, chunks)
    error = packed_product(x, weight, parts, most, chunk, f"{on(target)} -num-cores={cores}") - exact_product(x, weight)
    assert np.sqrt(np.mean(error**2)) < ERROR[parts] * np.sqrt(16 * shape[1])


@pytest.mark.parametrize("target", [AMX, ANY])
@pytest.mark.parametrize("chunk", [32, 64])
def test_infinities_and_not_a_number_are_those_of_whole_numbers(target: str, chunk: int) -> None:
    x, weight = np.ones((1, 4, 1, 32, 16), "float32"), np.ones((2, 4, 1, 1, 16, 16), "float32")
    odd_nan = np.uint32(0x7F800001).view("float32")  # its upper half is an infinity's
    x[0, 0, 0, :4, 1] = np.inf, np.nan, odd_nan, -np.inf
    x[0, 2, 0, 4, 5], x[0, 2, 0, 5, 5] = 3.4e38, -3.4e38  # which round to infinity in bfloat16
    weight[0, 0, 0, 0, 1, 0], weight[0, 1, 0, 0, 3, 1], weight[1, 2, 0, 0, 5, 2] = 0, np.inf, -3.4e38
    with np.errstate(all="ignore"):
        expected = exact_product(x, weight).astype("float32")
    np.testing.assert_allclose(packed_product(x, weight, 3, 256, chunk, on(target)), expected, rtol=0.01)


def layer(shape: tuple[int, ...], weight: np.ndarray, target: str, **attrs: Any) -> Any:
    """Return a convolution between two elementwise operators, with a bias and a residual sum."""
    x, channels = relay.var("x", shape=shape), weight.shape[0]
    y = relay.nn.conv2d(relay.nn.relu(x), relay.const(weight), channels=channels, kernel_size=weight.shape[2:], **attrs)
    y = relay.nn.bias_add(y, relay.const(np.arange(channels, dtype="float32") / channels))
    y = relay.nn.relu(y + relay.sigmoid(y))
    with tvm.transform.PassContext(opt_level=3, config={"relay.conv2d.winograd": "off"}):
        return relay.build(tvm.IRModule.from_expr(y), target)


def expected_layer(x: np.ndarray, weight: np.ndarray, attrs: dict[str, Any]) -> np.ndarray:
    pads = attrs.get("padding", (0, 0))
    y = convolve(
        np.maximum(x, 0).astype("float64"), weight.astype("float64"), attrs.get("strides", (1, 1)), (*pads, *pads),
        attrs.get("dilation", (1, 1)), 1,
    )  # fmt: skip
    y = y + (np.arange(len(weight)) / len(weight))[:, None, None]
    found: np.ndarray = np.maximum(y + 1 / (1 + np.exp(-y)), 0)
    return found


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    ("shape", "kernel", "attrs"),
    [
        ((1, 256, 14, 14), (256, 256, 1, 1), {}),
        ((2, 256, 13, 19), (144, 256, 1, 1), {}),  # nine blocks of channels
        ((1, 96, 29, 29), (256, 96, 3, 3), {"strides": (2, 2), "padding": (1, 1)}),
        ((1, 64, 17, 17), (256, 64, 3, 3), {"dilation": (2, 2), "padding": (2, 2)}),
        ((1, 80, 17, 17), (256, 80, 1, 7), {"padding": (0, 3)}),
        ((1, 256, 29, 29), (256, 256, 1, 1), {"strides": (2, 2)}),
        ((1, 1024, 17, 17), (256, 1024, 1, 1), {}),  # a sum in chunks
    ],
)
def test_layers_agree_with_float64(
    shape: tuple[int, ...], kernel: tuple[int, ...], attrs: dict[str, Any], cores: int
) -> None:
    weight = RNG.standard_normal(kernel, "float32") / np.float32(np.sqrt(np.prod(kernel[1:])))
    lib = layer(shape, weight, f"{on(AMX)} -num-cores={cores}", **attrs)
    assert "tdpbf16ps" in lib.get_lib().get_source("asm")
    x = RNG.standard_normal(shape, "float32")
    module = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    module.run(x=x)
    np.testing.assert_allclose(module.get_output(0).numpy(), expected_layer(x, weight, attrs), rtol=1e-5, atol=1e-5)


def test_sums_err_no_more_than_those_of_fma() -> None:
    shape, attrs = (1, 128, 29, 29), {"strides": (2, 2), "padding": (1, 1)}
    weight = RNG.standard_normal((256, 128, 3, 3), "float32")
    x = RNG.standard_normal(shape, "float32")
    expected, errors = expected_layer(x, weight, attrs), []
    for target in (on(AMX), f"{AMX} -mattr=-amx-bf16"):
        module = graph_executor.GraphModule(layer(shape, weight, target, **attrs)["default"](tvm.cpu()))
        module.run(x=x)
        errors.append(np.sqrt(np.mean((module.get_output(0).numpy() - expected) ** 2)))
    assert errors[0] < errors[1]


@pytest.mark.parametrize(
    ("target", "shape", "kernel", "used"),
    [
        (AMX, (1, 256, 14, 14), (256, 256, 1, 1), True),
        (AMX, (1, 64, 56, 56), (64, 64, 1, 1), False),  # to split an image for 64 channels takes what products save
        (AMX, (1, 256, 3, 5), (256, 256, 1, 1), False),
        (f"{AMX} -mattr=-amx-bf16", (1, 256, 14, 14), (256, 256, 1, 1), False),
        ("llvm -mcpu=znver5", (1, 256, 14, 14), (256, 256, 1, 1), False),
    ],
)
def test_where_tiles_are_used(target: str, shape: tuple[int, ...], kernel: tuple[int, ...], used: bool) -> None:
    text = layer(shape, np.ones(kernel, "float32"), target).get_lib().get_source("asm")
    assert ("tdpbf16ps" in text) == used


def test_a_less_precise_product_takes_tiles_where_six_products_do_not() -> None:
    chosen = []
    for precision in ("highest", "medium"):
        with tvm.transform.PassContext(config={OPTION: precision}):
            found = conv2d_float_tiles(features(AMX), (1, 4, 56, 56, 16), (4, 4, 1, 1, 16, 16), (1, 3136))
        assert found is not None
        chosen.append(found.is_faster)
    assert chosen == [False, True]


@pytest.mark.parametrize(("chunks", "together"), [(1, 1), (4, 2), (9, 3), (49, 7), (11, 1)])
def test_blocks_of_channels_divide_them(chunks: int, together: int) -> None:
    assert halves_of(chunks) == together


@pytest.mark.parametrize(
    ("target", "channels", "precision", "used"),
    [
        (AMX, 256, "highest", False),
        (AMX, 256, "medium", True),
        (AMX, 32, "medium", False),
        (f"{AMX} -mattr=-amx-bf16", 256, "medium", False),
    ],
)
def test_a_window_of_stride_1_takes_tiles_where_they_are_faster_than_winograds_method(
    target: str, channels: int, precision: str, used: bool
) -> None:
    data = relay.var("x", shape=(1, channels, 14, 14))
    weight = RNG.standard_normal((channels, channels, 3, 3), "float32") / np.float32(3 * np.sqrt(channels))
    body = relay.nn.conv2d(data, relay.const(weight), padding=(1, 1), channels=channels, kernel_size=(3, 3))
    with tvm.transform.PassContext(opt_level=3, config={OPTION: precision}):
        lib = relay.build(tvm.IRModule.from_expr(body), target)
    assert ("tdpbf16ps" in lib.get_lib().get_source("asm")) is used
    if used and runs_here(AMX):
        x = RNG.standard_normal((1, channels, 14, 14), "float32")
        module = graph_executor.GraphModule(lib["default"](tvm.cpu()))
        module.run(x=x)
        exact = convolve(x.astype("float64"), weight.astype("float64"), (1, 1), (1, 1, 1, 1), (1, 1), 1)
        np.testing.assert_allclose(module.get_output(0).numpy(), exact, rtol=0, atol=0.03)
