"""Quantized convolutions as products of bytes: the bits of the kernels of floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.processors.x86 import runs_here

import tilewright as tvm
from tilewright import relay, topi
from tilewright.contrib import graph_executor
from tilewright.relay.qnn.op import dequantize, quantize
from tilewright.relay.qnn.transform import CanonicalizeOps
from tilewright.relay.transform.layout import merge_rows

VNNI, AVX2, SSE2 = "llvm -mcpu=cascadelake", "llvm -mcpu=haswell", "llvm -mcpu=x86-64"
RNG = np.random.default_rng(37)


def number(value: float) -> Any:
    return relay.const(np.float32(value))


class Network:
    """Layers of quantized integers."""

    def __init__(self, dtype: str, channels: int, size: int, zero: int = 3, largest: int = 128) -> None:
        self.dtype, self.zero, self.largest = dtype, zero, largest
        self.x = relay.var("x", shape=(1, channels, size, size), dtype=dtype)
        info = np.iinfo(dtype)
        self.data = RNG.integers(info.min, info.max, (1, channels, size, size), endpoint=True, dtype=dtype)

    def numbers(self, tensor: Any) -> Any:
        return dequantize(tensor, number(0.05), relay.const(np.array(self.zero, self.dtype)))

    def whole(self, value: Any, scale: float = 0.05) -> Any:
        zero = relay.const(np.array(self.zero, self.dtype))
        return quantize(value, number(scale), zero, out_dtype=self.dtype)

    def conv(self, tensor: Any, channels: int, out: int, window: int, bias: bool = True, **attrs: Any) -> Any:
        shape = out, channels // attrs.get("groups", 1), window, window
        weight = RNG.integers(-self.largest, self.largest - 1, shape, endpoint=True)
        steps = RNG.uniform(0.0005, 0.003, out).astype("float32")
        weights = dequantize(
            relay.const(weight.astype("int8")), relay.const(steps), relay.const(np.zeros(out, "int8")), axis=0
        )
        value = relay.nn.conv2d(self.numbers(tensor), weights, kernel_size=(window, window), channels=out, **attrs)
        if bias:
            value = relay.nn.bias_add(value, relay.const(RNG.standard_normal(out).astype("float32")))
        return value

    def run(self, body: Any, target: str, **config: bool) -> np.ndarray:
        mod = tvm.IRModule.from_expr(relay.Function([self.x], body))
        options = {f"relay.qnn.{name}": value for name, value in config.items()}
        with tvm.transform.PassContext(opt_level=3, config=options):
            lib = relay.build(mod, target)
        executor = graph_executor.GraphModule(lib["default"](tvm.cpu()))
        executor.run(x=self.data)
        return executor.get_output(0).numpy()

    def check(self, body: Any, target: str = VNNI) -> None:
        if not runs_here(target):
            pytest.skip(f"this machine lacks instructions of {target}")
        found, floats = self.run(body, target), self.run(body, target, bytes=False)
        assert found.std() > 0
        np.testing.assert_array_equal(found, floats)

    def canonical(self, body: Any, target: str = VNNI) -> str:
        mod = tvm.IRModule.from_expr(relay.Function([self.x], body))
        with tvm.target.Target(target), tvm.transform.PassContext(opt_level=3):
            return str(CanonicalizeOps()(mod))


@pytest.mark.parametrize("zero", [0, 3])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("case", ["pointwise", "padded", "strided", "grouped", "no bias"])
def test_a_convolution_has_the_bits_of_floats(case: str, dtype: str, zero: int) -> None:
    attrs: dict[str, Any] = {
        "pointwise": {"window": 1},
        "padded": {"window": 3, "padding": (1, 1)},
        "strided": {"window": 3, "padding": (1, 1, 0, 0), "strides": (2, 2)},
        "grouped": {"window": 3, "padding": (1, 1), "groups": 2},
        "no bias": {"window": 1, "bias": False},
    }[case]
    network = Network(dtype, 32, 7, zero)
    network.check(network.whole(relay.nn.relu(network.conv(network.x, 32, 32, **attrs))))


@pytest.mark.parametrize(("window", "stride"), [(1, 1), (1, 2), (3, 1), (3, 2)])
def test_merged_rows_have_the_same_sums(window: int, stride: int, monkeypatch: pytest.MonkeyPatch) -> None:
    merged: list[Any] = []

    def all_rows(data: Any, kernel: Any, out: Any, *rest: Any) -> int:
        merged.append(kernel)
        return int(out[0])

    monkeypatch.setattr(merge_rows.conv2d_rows_to_merge, "get", lambda target: all_rows)
    network = Network("uint8", 32, 7 * stride, 0)
    pads = (window // 2,) * 2
    network.check(network.whole(network.conv(network.x, 32, 48, window, padding=pads, strides=(stride, stride))))
    assert (1, 1, window, window, 8, 48, 4) in merged


def test_rows_are_merged_where_few_columns_fill_no_tiles() -> None:
    with tvm.target.Target(VNNI):
        rows = topi.nn.conv2d_rows_to_merge((1, 8, 14, 14, 64), (8, 8, 3, 3, 16, 64, 4), (7, 7), "uint8")
    assert rows == 7


@pytest.mark.parametrize(("channels", "out"), [(3, 16), (1, 1), (17, 5), (20, 24), (13, 40)])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_channels_that_fill_no_vectors(dtype: str, channels: int, out: int) -> None:
    network = Network(dtype, channels, 6)
    first = network.whole(network.conv(network.x, channels, out, 3, padding=(1, 1)))
    second = network.whole(network.conv(first, out, out, 3, padding=(1, 1)))
    network.check(network.whole(relay.add(network.numbers(first), network.numbers(second))))


@pytest.mark.parametrize("channels", [24, 7, 64])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_depthwise_convolution_reads_bytes(dtype: str, channels: int) -> None:
    network = Network(dtype, 16, 7)
    wide = network.whole(network.conv(network.x, 16, channels, 1))
    attrs = {"groups": channels, "padding": (1, 1), "strides": (2, 2)}
    spread = network.whole(network.conv(wide, channels, channels, 3, **attrs), 0.01)
    body = network.whole(network.conv(spread, channels, 16, 1))
    network.check(body)
    assert network.canonical(body).count("cast(") == 5  # two of each convolution of bytes, one of floats


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_added_channels_stay_through_activations_pools_and_products(dtype: str) -> None:
    network = Network(dtype, 16, 8)
    first = network.whole(network.conv(network.x, 16, 20, 1))
    gate = network.whole(relay.sigmoid(network.numbers(first)), 0.01)
    gated = network.whole(relay.multiply(network.numbers(first), network.numbers(gate)))
    pooled = network.whole(relay.nn.max_pool2d(network.numbers(gated), (2, 2), (2, 2)))
    body = network.whole(network.conv(pooled, 20, 16, 1))
    network.check(body)
    text = network.canonical(body)
    assert "strided_slice" not in text and "nn.pad" not in text


@pytest.mark.parametrize("shape", [(relay.Any(), 16, 9, 9), (1, 16, relay.Any(), relay.Any())], ids=["batch", "image"])
def test_extents_that_are_known_when_it_runs(shape: Any) -> None:
    if not runs_here(VNNI):
        pytest.skip("this machine lacks VNNI")
    network = Network("int8", 16, 9)
    network.x = relay.var("x", shape=shape, dtype="int8")
    first = network.whole(relay.nn.relu(network.conv(network.x, 16, 20, 3, padding=(1, 1))))
    spread = network.whole(network.conv(first, 20, 20, 3, padding=(1, 1), groups=20, strides=(2, 2)), 0.01)
    mod = tvm.IRModule.from_expr(relay.Function([network.x], network.whole(network.conv(spread, 20, 24, 1))))
    found = []
    for option in (True, False):
        with tvm.transform.PassContext(opt_level=3, config={"relay.qnn.bytes": option}):
            run = relay.create_executor("vm", mod, tvm.cpu(), VNNI).evaluate()
        found.append(run(network.data).numpy())
    assert found[0].shape == (1, 24, 5, 5) and found[0].std() > 0
    np.testing.assert_array_equal(*found)


def test_an_empty_batch() -> None:
    network = Network("uint8", 16, 5)
    network.x = relay.var("x", shape=(0, 16, 5, 5), dtype="uint8")
    network.data = network.data[:0]
    body = network.whole(network.conv(network.x, 16, 17, 3, padding=(1, 1)))
    assert network.run(body, "llvm").shape == (0, 17, 5, 5)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_block_with_a_residual_pool_and_mean(dtype: str) -> None:
    network = Network(dtype, 16, 9)
    first = network.whole(relay.nn.relu(network.conv(network.x, 16, 32, 3, padding=(1, 1))))
    pooled = network.whole(relay.nn.max_pool2d(network.numbers(first), (2, 2), (2, 2)))
    second = network.whole(network.conv(pooled, 32, 32, 1))
    total = network.whole(relay.nn.relu(relay.add(network.numbers(second), network.numbers(pooled))))
    mean = network.whole(relay.nn.global_avg_pool2d(network.numbers(total)), 0.02)
    network.check(relay.reshape(mean, (1, -1)))


def test_int8_is_uint8_from_layer_to_layer() -> None:
    network = Network("int8", 16, 5)
    first = network.whole(relay.nn.relu(network.conv(network.x, 16, 16, 1)))
    text = network.canonical(network.whole(network.conv(first, 16, 16, 1)))
    assert text.count("bitwise_xor") == 2  # of what comes in, and of what goes out
    assert text.count('out_dtype="int32"') == 2


def test_a_border_has_the_zero_point() -> None:
    network = Network("uint8", 16, 5, zero=3)
    assert "nn.pad(%x, 3f" in network.canonical(network.whole(network.conv(network.x, 16, 16, 3, padding=(1, 1))))
    network = Network("uint8", 16, 5, zero=0)
    assert "nn.pad" not in network.canonical(network.whole(network.conv(network.x, 16, 16, 3, padding=(1, 1))))


@pytest.mark.parametrize(
    ("target", "largest", "dtype"),
    [(AVX2, 128, "int8"), (AVX2, 64, "uint8"), ("llvm -mcpu=nehalem", 64, "int8"), (SSE2, 128, "uint8")],
)
def test_processors_without_vnni_have_the_bits_of_floats(target: str, largest: int, dtype: str) -> None:
    network = Network(dtype, 16, 9, largest=largest)
    first = network.whole(relay.nn.relu(network.conv(network.x, 16, 24, 3, padding=(1, 1))))
    spread = network.whole(network.conv(first, 24, 24, 3, groups=24, padding=(1, 1)), 0.02)
    second = network.whole(network.conv(spread, 24, 24, 1))
    total = network.whole(relay.add(network.numbers(second), network.numbers(first)))
    pooled = network.whole(relay.nn.max_pool2d(network.numbers(total), (2, 2), (2, 2)))
    body = network.whole(network.conv(pooled, 24, 40, 3, padding=(1, 1), strides=(2, 2), groups=1))
    network.check(body, target)
    text = network.canonical(body, target)
    assert text.count('out_dtype="int32"') == 3 and ('dtype="int16"' in text) == (largest == 128)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("case", [{}, {"groups": 2}, {"strides": (2, 2), "padding": (1, 1, 0, 0)}])
def test_borders_and_groups_of_16_bits(case: dict[str, Any], dtype: str) -> None:
    network = Network(dtype, 32, 7, zero=5)
    network.check(network.whole(network.conv(network.x, 32, 32, 3, **{"padding": (1, 1), **case})), AVX2)


def test_numbers_that_one_layer_reads_do_not_become_bytes() -> None:
    network = Network("uint8", 16, 5)
    first = network.whole(network.conv(network.x, 16, 16, 1))
    text = network.canonical(network.whole(network.conv(first, 16, 16, 1)), AVX2)
    assert text.count('dtype="uint8"') == 1 and "a_min=-3f, a_max=252f" in text
    second = network.whole(network.conv(first, 16, 16, 1))
    shared = network.whole(relay.add(network.numbers(first), network.numbers(second)))
    assert network.canonical(shared, AVX2).count('dtype="uint8"') == 2
    network.check(shared, AVX2)


@pytest.mark.parametrize("target", ["llvm -mcpu=skylake-avx512", "c", "llvm -mtriple=aarch64-linux-gnu"])
def test_processors_without_products_of_bytes_have_floats(target: str) -> None:
    network = Network("int8", 16, 5)
    text = network.canonical(network.whole(network.conv(network.x, 16, 16, 1)), target)
    assert "int32" not in text and "bitwise_xor" not in text


def test_without_packed_layouts_there_are_floats() -> None:
    network = Network("uint8", 16, 5)
    mod = tvm.IRModule.from_expr(relay.Function([network.x], network.whole(network.conv(network.x, 16, 16, 1))))
    with tvm.target.Target(VNNI), tvm.transform.PassContext(opt_level=2):
        assert "int32" not in str(CanonicalizeOps()(mod))


@pytest.mark.parametrize("target", [VNNI, "llvm -mcpu=skylake-avx512", "llvm -mcpu=haswell"])
@pytest.mark.parametrize(("inner", "outer"), [(6, 16), (8, 4), (8, 20)])
def test_convolutions_of_bytes_that_a_program_writes_itself(target: str, inner: int, outer: int) -> None:
    if not runs_here(target):
        pytest.skip(f"this machine lacks instructions of {target}")
    x = relay.var("x", shape=(1, inner, 5, 6), dtype="uint8")
    weight = RNG.integers(-128, 127, (outer, inner, 3, 3), dtype="int8")
    call = relay.nn.conv2d(x, relay.const(weight), kernel_size=(3, 3), channels=outer, out_dtype="int32")
    module = graph_executor.GraphModule(relay.build(tvm.IRModule.from_expr(call), target)["default"](tvm.cpu()))
    data = RNG.integers(0, 255, (1, inner, 5, 6), dtype="uint8")
    module.run(x=data)
    windows = np.lib.stride_tricks.sliding_window_view(data.astype("int32"), (3, 3), axis=(2, 3))
    want = np.einsum("nchwij,ocij->nohw", windows, weight.astype("int32"))
    np.testing.assert_array_equal(module.get_output(0).numpy(), want)
