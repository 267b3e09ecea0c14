"""DepthFirst: the first layers in bands of rows, in less memory and with the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.micro.tiny_networks import Network

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import UnsupportedError


def chain(height: int = 19) -> Network:
    """Convolutions of several strides, depthwise ones, and a bypass."""
    net = Network((1, 3, height, 16))
    net.conv(16, (3, 3))
    net.conv(16, (5, 3), depthwise=True)
    before = net.state()
    net.conv(16, (3, 3), relu=False)
    net.add(before)
    net.conv(16, (3, 3), 2, depthwise=True)
    net.conv(8, (1, 1))
    net.conv(8, (3, 3), 2)
    net.pool()
    net.dense(5)
    return net


def built(net: Network, room: int | None = None) -> Any:
    mod, params = relay.frontend.from_onnx(net.model())
    pools = "" if room is None else f" -workspace-pools=sram:{room}"
    return relay.build(mod, f"c -runtime=c{pools}", params=params, executor="aot")


def answer(factory: Any, data: np.ndarray) -> np.ndarray:
    executor = factory.create_executor(tvm.cpu())
    executor.run(input=data)
    result: np.ndarray = executor.get_output(0).numpy()
    return result


def test_bands_have_the_same_bits_in_half_the_memory() -> None:
    net = chain()
    data, whole = net.data(), built(net)
    half = built(net, whole.layout.workspace_bytes // 2)
    assert half.layout.workspace_bytes <= whole.layout.workspace_bytes // 2
    assert np.array_equal(answer(half, data), answer(whole, data))
    assert len(np.unique(answer(whole, data))) > 1


@pytest.mark.parametrize("share", [0.85, 0.5])
def test_programs_keep_the_limit(share: float) -> None:
    net = chain(32)
    room = int(built(net).layout.workspace_bytes * share)
    assert built(net, room).layout.workspace_bytes <= room


def test_nothing_changes_where_there_is_room() -> None:
    net = chain()
    whole = built(net)
    source = built(net, whole.layout.workspace_bytes).get_source()
    assert source.count("tvmgen_") == whole.get_source().count("tvmgen_")


def test_what_bands_cannot_make_fit_is_refused_with_its_layers() -> None:
    with pytest.raises(UnsupportedError, match=r"sram would need \d+, \d+ more. The most have QuantizeLinear"):
        built(chain(), 1000)


def test_work_is_the_least_that_keeps_the_limit() -> None:
    net = chain(32)
    whole = built(net).layout.workspace_bytes
    kernels = [built(net, int(whole * share)).get_source().count("return 0;") for share in (0.85, 0.4)]
    assert kernels[0] < kernels[1]


def test_pools_of_maxima_are_cut_too() -> None:
    x = relay.var("x", shape=(1, 16, 32, 16), dtype="int8")
    weight = relay.qnn.op.dequantize(
        relay.const(np.ones((16, 16, 3, 3), "int8")), relay.const(np.float32(0.01)), relay.const(0)
    )
    image: relay.Expr = x
    for scale in (0.1, 0.2):
        number = relay.qnn.op.dequantize(image, relay.const(np.float32(scale)), relay.const(2))
        value = relay.nn.conv2d(number, weight, padding=(1, 1))
        image = relay.qnn.op.quantize(value, relay.const(np.float32(scale)), relay.const(2), out_dtype="int8")
        image = relay.nn.max_pool2d(image, (3, 2), (2, 2), padding=(1, 0))
    mod = tvm.IRModule.from_expr(relay.Function([x], image))
    whole = relay.build(mod, "c -runtime=c", executor="aot")
    room = whole.layout.workspace_bytes // 2
    less = relay.build(mod, f"c -runtime=c -workspace-pools=sram:{room}", executor="aot")
    data = np.random.default_rng(0).integers(-128, 128, (1, 16, 32, 16)).astype(np.int8)
    answers = []
    for factory in (whole, less):
        executor = factory.create_executor(tvm.cpu())
        executor.run(x=data)
        answers.append(executor.get_output(0).numpy())
    assert np.array_equal(*answers)
