"""Rows of an image are merged for convolutions of single points, and nothing else notices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.relay.interpreter import interpret
from tilewright.relay.transform.layout.merge_rows import merge_rows
from tilewright.relay.visitor import post_order
from tilewright.target import Target
from tilewright.topi.cpu.model.conv2d import rows_to_merge
from tilewright.topi.utils import largest_divisor

AVX2 = Target("llvm -mcpu=haswell -num-cores=2")
AVX512 = Target("llvm -mcpu=skylake-avx512 -num-cores=2")
MANY_CORES = Target("llvm -mcpu=haswell -num-cores=16")


def packed_conv(x: Any, channels: int, **attrs: Any) -> Any:
    chunks = int(relay.analysis.free_vars(x)[0].type_annotation.shape[1])
    size = attrs.setdefault("kernel_size", (1, 1))
    w = relay.var("w", shape=(channels // 8, chunks, *size, 8, 8))
    return relay.nn.contrib_conv2d_nchwc(
        x, w, channels=channels, data_layout="NCHW8c", kernel_layout="OIHW8i8o", out_layout="NCHW8c", **attrs
    )


def typed(body: Any) -> Any:
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body)))[
        "main"
    ]


def shape(expr: Any) -> tuple[int, ...]:
    return tuple(map(int, expr.checked_type.shape))


def seen_shapes(func: Any) -> list[tuple[int, ...]]:
    """The shapes in which the body of a function reads its parameters, and that of its result."""
    read = {e.args[0]: e for e in post_order(func.body) if isinstance(e, relay.Call) and e.op.name == "reshape"}
    return [*(shape(read.get(p, p)) for p in func.params), shape(func.body.args[0])]


def image(extents: tuple[int, int] = (7, 7), name: str = "x") -> Any:
    return relay.var(name, shape=(1, 4, *extents, 8))


SHARED = image()


def test_rows_of_data_residual_and_result_are_merged_and_what_all_points_share_is_not() -> None:
    scale, residual = relay.var("scale", shape=(1, 8, 1, 1, 8)), relay.var("residual", shape=(1, 8, 7, 7, 8))
    body = relay.nn.relu(relay.add(relay.multiply(packed_conv(image(), 64), scale), residual))
    func = typed(relay.clip(relay.add(body, relay.const(1.0)), 0, 6))
    merged = merge_rows(func, AVX2)
    points = (1, 8, 1, 49, 8)
    assert seen_shapes(merged) == [(1, 4, 1, 49, 8), (8, 4, 1, 1, 8, 8), (1, 8, 1, 1, 8), points, points]
    assert merged.attrs["Reinterpret"] == 1
    assert merged.checked_type == func.checked_type


@pytest.mark.parametrize(
    "body",
    [
        packed_conv(image((56, 56)), 64, kernel_size=(3, 3), padding=(1, 1)),
        relay.add(packed_conv(SHARED, 32, kernel_size=(3, 3), padding=(1, 1)), SHARED),
        relay.add(packed_conv(relay.nn.relu(image((14, 14))), 64, strides=(2, 2)), relay.const(1.0)),
        relay.add(packed_conv(image(), 64), relay.var("row", shape=(1, 1, 7, 1, 1))),
        relay.add(packed_conv(image(), 64), relay.var("column", shape=(7, 8))),
        relay.broadcast_to(packed_conv(image(), 64), (2, 8, 7, 7, 8)),
        relay.nn.bias_add(packed_conv(image(), 64), relay.var("bias", shape=(7,)), axis=2),
        relay.layout_transform(packed_conv(image(), 64), "NCHW8c", "NCHW"),
        relay.Tuple([packed_conv(image(), 64), relay.nn.relu(image())]),
        relay.nn.relu(image()),
        packed_conv(image((1, 49)), 64),
    ],
    ids=["large", "residual", "producer", "row", "column", "shape", "axis", "layout", "tuple", "none", "one"],
)
def test_what_looks_at_rows_stays(body: Any) -> None:
    func = typed(body)
    assert merge_rows(func, AVX2) is func


def test_windows_are_copied_next_to_one_another() -> None:
    residual = relay.var("residual", shape=(1, 8, 7, 7, 8))
    conv = packed_conv(image((14, 14)), 64, kernel_size=(3, 3), strides=(2, 2), padding=(1, 1))
    merged = merge_rows(typed(relay.nn.relu(relay.add(conv, residual))), AVX2)
    assert seen_shapes(merged) == [(1, 4, 14, 14, 8), (8, 36, 1, 1, 8, 8), (1, 8, 1, 49, 8), (1, 8, 1, 49, 8)]
    points = merged.body.args[0].args[0].args[0]
    assert points.args[0].op.name == "nn.contrib_conv2d_patches"
    assert tuple(map(int, points.args[0].checked_type.shape)) == (1, 36, 1, 49, 8)
    assert tuple(map(int, points.attrs.kernel_size)) == tuple(map(int, points.attrs.strides)) == (1, 1)


@pytest.mark.covering(1)
@pytest.mark.parametrize(
    ("window", "strides", "padding", "dilation"),
    [
        ((1, 1), (2, 2), (0, 0), (1, 1)),
        ((1, 1), (1, 1), (1, 1), (1, 1)),
        ((3, 3), (2, 2), (1, 1), (1, 1)),
        ((3, 2), (1, 2), (0, 1, 2, 0), (1, 1)),
        ((2, 3), (3, 1), (2, 2), (2, 3)),
        ((5, 1), (1, 1), (2, 0), (1, 1)),
    ],
)
@pytest.mark.parametrize("extents", [(9, 7), (13, 5), (6, 17)])
@pytest.mark.parametrize("groups", [1, 2])
def test_windows_compute_the_same(
    window: tuple[int, int],
    strides: tuple[int, int],
    padding: tuple[int, ...],
    dilation: tuple[int, int],
    extents: tuple[int, int],
    groups: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With all rows merged, and with as many as their greatest divisor."""
    rng = np.random.default_rng(0)
    data = rng.standard_normal((2, 32, *extents)).astype("float32")
    weight = rng.standard_normal((48, 32 // groups, *window)).astype("float32")
    x = relay.var("x", shape=data.shape)
    attrs = {"strides": strides, "padding": padding, "dilation": dilation, "groups": groups}
    conv = relay.nn.conv2d(x, relay.const(weight), kernel_size=window, channels=48, **attrs)
    module = tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(conv)))
    results = []
    for merge in (
        lambda *_: 1,
        lambda d, k, out, *_: out[0],
        lambda d, k, out, *_: largest_divisor(out[0], out[0] - 1),
    ):
        monkeypatch.setitem(tvm.topi.nn.conv2d_rows_to_merge.dispatch_dict, "cpu", merge)
        with tvm.transform.PassContext(opt_level=3, config={"relay.conv2d.winograd": "off"}):
            library = relay.build(module, AVX2)
        executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
        executor.run(x=data)
        results.append(executor.get_output(0).numpy())
    top, left, bottom, right = (*padding, *padding)[:4]
    around = np.pad(data.astype("float64"), ((0, 0), (0, 0), (top, bottom), (left, right)))
    plain = F.conv2d(torch.from_numpy(around), torch.from_numpy(weight).double(), None, strides, 0, dilation, groups)
    expected = F.relu(plain).numpy()
    for result in results:
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("target", "extent", "channels", "expected"),
    [
        (AVX2, 7, 2048, 7),  # tiles of 5 columns instead of 4 and 3
        (AVX2, 14, 1024, 14),  # many weights: all rows, or they are read again for each
        (AVX2, 38, 1024, 1),  # the image, larger than a cache, would be read again for each group of channels
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
    assert (
        rows_to_merge((1, 512 // lanes, extent, extent, lanes), kernel, (extent, extent), "float32", target) == expected
    )


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


@pytest.mark.parametrize("window", [1, 3])
def test_the_pass_keeps_types_and_meaning_and_labels(window: int) -> None:
    """Functions of one label are merged once; the interpreter, which knows nothing of kernels, agrees."""
    rng = np.random.default_rng(0)
    x = relay.var("x", shape=(1, 64, 7, 7))
    weight = relay.const(rng.standard_normal((64, 64, window, window)).astype("float32"))
    body: Any = x
    for _ in range(2):
        body = relay.nn.relu(relay.nn.conv2d(body, weight, kernel_size=(window, window), channels=64))
    with tvm.transform.PassContext(opt_level=3, config={"relay.conv2d.winograd": "off"}), AVX2:
        module, _ = relay.optimize(tvm.IRModule.from_expr(relay.Function([x], body)), AVX2, fuse=False)
        passes = [relay.transform.FuseOps(), relay.transform.LabelOps(), relay.transform.MergeRows()]
        fused = relay.transform.Sequential(passes[:2])(module)
        merged = passes[2](fused)
    calls = [
        [e for e in post_order(m["main"].body) if isinstance(e, relay.Call) and isinstance(e.op, relay.Function)]
        for m in (fused, merged)
    ]
    assert [c.op.attrs["hash"] for c in calls[0]] == [c.op.attrs["hash"] for c in calls[1]]
    assert [c.checked_type for c in calls[0]] == [c.checked_type for c in calls[1]]
    assert any(c.op.attrs.get("Reinterpret") for c in calls[1])
    data = rng.standard_normal((1, 64, 7, 7)).astype("float32")
    expected = interpret(fused, [data])
    np.testing.assert_allclose(interpret(merged, [data]), expected, rtol=0, atol=1e-5 * np.abs(expected).max())
