"""Rows of an image are merged for convolutions of single points, and nothing else notices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.relay.backend.merge_rows import merge_rows
from tilewright.target import Target
from tilewright.topi.cpu.conv2d import rows_to_merge

AVX2 = Target("llvm -mcpu=haswell -num-cores=2")
AVX512 = Target("llvm -mcpu=skylake-avx512 -num-cores=2")
MANY_CORES = Target("llvm -mcpu=haswell -num-cores=16")


def packed_conv(x: Any, channels: int, **attrs: Any) -> Any:
    chunks = int(x.type_annotation.shape[1])
    size = attrs.setdefault("kernel_size", (1, 1))
    w = relay.var("w", shape=(channels // 8, chunks, *size, 8, 8))
    return relay.nn.contrib_conv2d_nchwc(
        x, w, channels=channels, data_layout="NCHW8c", kernel_layout="OIHW8i8o", out_layout="NCHW8c", **attrs
    )


def typed(body: Any) -> Any:
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body)))[
        "main"
    ]


def shapes(func: Any) -> list[tuple[int, ...]]:
    return [tuple(map(int, p.checked_type.shape)) for p in func.params]


def image(extents: tuple[int, int] = (7, 7), name: str = "x") -> Any:
    return relay.var(name, shape=(1, 4, *extents, 8))


def test_rows_of_data_residual_and_result_are_merged_and_what_all_points_share_is_not() -> None:
    scale, residual = relay.var("scale", shape=(1, 8, 1, 1, 8)), relay.var("residual", shape=(1, 8, 7, 7, 8))
    body = relay.nn.relu(relay.add(relay.multiply(packed_conv(image(), 64), scale), residual))
    func = typed(relay.clip(relay.add(body, relay.const(1.0)), 0, 6))
    merged = merge_rows(func, AVX2)
    assert shapes(merged) == [(1, 4, 1, 49, 8), (8, 4, 1, 1, 8, 8), (1, 8, 1, 1, 8), (1, 8, 1, 49, 8)]
    assert tuple(map(int, merged.body.checked_type.shape)) == (1, 8, 1, 49, 8)


@pytest.mark.parametrize(
    "body",
    [
        packed_conv(image(), 64, strides=(2, 2)),
        packed_conv(image(), 64, padding=(1, 1)),
        packed_conv(image(), 64, kernel_size=(3, 3), padding=(1, 1)),
        relay.add(packed_conv(image(), 64), relay.var("row", shape=(1, 1, 7, 1, 1))),
        relay.add(packed_conv(image(), 64), relay.var("column", shape=(7, 8))),
        relay.broadcast_to(packed_conv(image(), 64), (2, 8, 7, 7, 8)),
        relay.nn.bias_add(packed_conv(image(), 64), relay.var("bias", shape=(7,)), axis=2),
        relay.layout_transform(packed_conv(image(), 64), "NCHW8c", "NCHW"),
        relay.Tuple([packed_conv(image(), 64), relay.nn.relu(image())]),
        relay.nn.relu(image()),
        packed_conv(image((1, 49)), 64),
    ],
    ids=["stride", "padding", "window", "row", "column", "shape", "axis", "layout", "tuple", "none", "one"],
)
def test_what_looks_at_rows_stays(body: Any) -> None:
    func = typed(body)
    assert merge_rows(func, AVX2) is func


@pytest.mark.parametrize(
    ("target", "extent", "channels", "expected"),
    [
        (AVX2, 7, 2048, 7),  # tiles of 5 columns instead of 4 and 3
        (AVX2, 14, 1024, 14),  # many weights: all rows, or they are read again for each
        (AVX2, 12, 64, 1),  # tiles of 6 columns as it is
        (AVX512, 7, 2048, 1),  # registers for a whole row
        (MANY_CORES, 7, 128, 1),  # 8 groups of channels would leave 8 cores idle
    ],
)
def test_rows_are_merged_where_tiles_fit_better_and_cores_have_work(
    target: Target, extent: int, channels: int, expected: int
) -> None:
    lanes = 16 if target is AVX512 else 8
    kernel = (channels // lanes, 512 // lanes, 1, 1, lanes, lanes)
    assert rows_to_merge((1, 512 // lanes, extent, extent, lanes), kernel, "float32", target) == expected


@pytest.mark.parametrize("extents", [(7, 7), (14, 14), (13, 5), (2, 7), (49, 1)])
@pytest.mark.parametrize("batch", [1, 3])
def test_networks_compute_the_same(batch: int, extents: tuple[int, int]) -> None:
    """The executor passes images; a kernel that declared merged ones would refuse them."""
    rng = np.random.default_rng(0)
    data, residual = (rng.standard_normal((batch, c, *extents)).astype("float32") for c in (32, 48))
    weight, bias = rng.standard_normal((48, 32, 1, 1)).astype("float32"), rng.standard_normal(48).astype("float32")
    x, r = relay.var("x", shape=data.shape), relay.var("r", shape=residual.shape)
    conv = relay.nn.conv2d(x, relay.const(weight), kernel_size=(1, 1), channels=48)
    middle = relay.nn.relu(relay.nn.bias_add(conv, relay.const(bias)) + r)
    again = relay.nn.conv2d(middle, relay.const(weight.reshape(32, 48, 1, 1)), kernel_size=(1, 1), channels=32)
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(tvm.IRModule.from_expr(relay.Function([x, r], again)), AVX2)
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.set_input("x", data)
    module.set_input("r", residual)
    module.run()
    between = np.einsum("oi,nihw->nohw", weight[:, :, 0, 0], data) + bias[:, None, None] + residual
    expected = np.einsum("oi,nihw->nohw", weight.reshape(32, 48), np.maximum(between, 0))
    np.testing.assert_allclose(module.get_output(0).numpy(), expected, rtol=1e-4, atol=1e-4)
