"""Products and convolutions that Legalize pads to the tiles of tensor cores: the same answers, and shapes that fit."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.relay.op.nn.tensor_core_legalize import padding_for

SHAPES = ((16, 16, 16), (32, 16, 8), (8, 16, 32))


def legalized(function: relay.Function, target: str = "cuda") -> relay.Function:
    """The function after Legalize for ``target``, and the same answers by the operators' meaning in numpy."""
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(function))
    with tvm.target.Target(target):
        made = relay.transform.Legalize()(mod)
    rng = np.random.default_rng(0)
    inputs = [
        rng.integers(-3, 4, [int(d) for d in p.checked_type.shape]).astype(p.checked_type.dtype)
        for p in mod["main"].params
    ]
    before, after = (
        relay.create_executor("debug", mod=m, device=tvm.cpu(), target="llvm").evaluate()(*inputs).numpy()
        for m in (mod, made)
    )
    np.testing.assert_array_equal(before, after)
    return made["main"]


def operand_shapes(function: relay.Function, name: str) -> list[tuple[int, ...]]:
    """The shapes of the operands of the call of an operator."""
    calls: list[relay.Call] = []
    relay.analysis.post_order_visit(
        function, lambda e: calls.append(e) if isinstance(e, relay.Call) and e.op.name == name else None
    )
    (call,) = calls
    return [tuple(int(d) for d in a.checked_type.shape) for a in call.args]


def test_padding_is_the_least_that_makes_a_shape_of_tensor_cores() -> None:
    for sizes in product((1, 3, 7, 8, 16, 31, 32), (13, 16, 33), (1, 8, 15, 32)):
        added = padding_for(sizes, SHAPES)
        if any(added):
            grown = [s + a for s, a in zip(sizes, added, strict=True)]
            assert any(all(g % t == 0 for g, t in zip(grown, tile, strict=True)) for tile in SHAPES)
            assert math.prod(grown) <= 3 * math.prod(sizes)
    for sizes in ((8, 16, 32), (2, 16, 32), (0, 5, 5)):  # fits; too much more; nothing to do
        assert padding_for(sizes, SHAPES) == (0, 0, 0)


@pytest.mark.parametrize("dtype", ["float16", "int8"])
@pytest.mark.parametrize("units", [None, 31])
def test_dense(dtype: str, units: int | None) -> None:
    x, w = relay.var("x", shape=(7, 15), dtype=dtype), relay.var("w", shape=(31, 15), dtype=dtype)
    found = legalized(relay.Function([x, w], relay.nn.dense(x, w, units)))
    assert operand_shapes(found, "nn.dense") == [(8, 16), (32, 16)]
    stays = legalized(relay.Function([x, w], relay.nn.dense(x, w, units)), "opencl")
    assert operand_shapes(stays, "nn.dense") == [(7, 15), (31, 15)]


@pytest.mark.parametrize("transposed", [(False, True), (True, False)])
def test_batch_matmul(transposed: tuple[bool, bool]) -> None:
    a, b = transposed
    x = relay.var("x", shape=(2, 15, 7) if a else (2, 7, 15), dtype="float16")
    y = relay.var("y", shape=(2, 31, 15) if b else (2, 15, 31), dtype="float16")
    found = legalized(relay.Function([x, y], relay.nn.batch_matmul(x, y, "", a, b)))
    shapes = operand_shapes(found, "nn.batch_matmul")
    assert shapes == [(2, 16, 8) if a else (2, 8, 16), (2, 32, 16) if b else (2, 16, 32)]


def convolution(
    data: tuple[int, ...], kernel: tuple[int, ...], layouts: tuple[str, str], dtype: str, **attrs: object
) -> relay.Function:
    x, w = relay.var("x", shape=data, dtype=dtype), relay.var("w", shape=kernel, dtype=dtype)
    channels = kernel[layouts[1].index("O")]
    made = relay.nn.conv2d(
        x, w, channels=channels, kernel_size=(3, 3), padding=(1, 1), data_layout=layouts[0], kernel_layout=layouts[1],
        **attrs,
    )  # fmt: skip
    return relay.Function([x, w], made)


def test_convolutions() -> None:
    nhwc, nchw = ("NHWC", "HWIO"), ("NCHW", "OIHW")
    found = legalized(convolution((7, 5, 5, 15), (3, 3, 15, 31), nhwc, "float16"))
    assert operand_shapes(found, "nn.conv2d") == [(8, 5, 5, 16), (3, 3, 16, 32)]
    found = legalized(convolution((1, 3, 5, 5), (6, 3, 3, 3), nchw, "int8", out_dtype="int32"))
    assert operand_shapes(found, "nn.conv2d") == [(1, 4, 5, 5), (8, 4, 3, 3)]
    for stays in (
        convolution((8, 5, 5, 16), (3, 3, 16, 32), nhwc, "float16"),
        convolution((7, 5, 5, 15), (3, 3, 15, 31), nhwc, "float32"),
        convolution((7, 5, 5, 15), (3, 3, 15, 31), nhwc, "float16", dilation=(2, 2)),
    ):
        shapes = [tuple(int(d) for d in p.type_annotation.shape) for p in stays.params]
        assert operand_shapes(legalized(stays), "nn.conv2d") == shapes
