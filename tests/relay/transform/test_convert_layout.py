"""ConvertLayout by operator, and LayoutConfig, as their users see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.relay.transform.texts import check

import tilewright as tvm
from tilewright import relay
from tilewright.relay import transform
from tilewright.relay.interpreter import interpret

REGIONS = relay.const(np.array([[0, 1, 0, 5, 4], [1, 2, 2, 9, 7]], "float32"))


@pytest.mark.parametrize("source", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("image.resize2d", lambda x, layout: relay.image.resize2d(x, (5, 7), layout=layout)),
        ("nn.max_pool2d", lambda x, layout: relay.nn.max_pool2d(x, (2, 2), (2, 2), padding=(1, 0), layout=layout)),
        ("nn.avg_pool2d", lambda x, layout: relay.nn.avg_pool2d(x, (3, 3), layout=layout)),
        ("nn.global_max_pool2d", lambda x, layout: relay.nn.global_max_pool2d(x, layout=layout)),
        ("nn.adaptive_avg_pool2d", lambda x, layout: relay.nn.adaptive_avg_pool2d(x, (2, 2), layout=layout)),
        ("vision.roi_align", lambda x, layout: relay.vision.roi_align(x, REGIONS, (2, 3), 0.5, 2, layout=layout)),
        ("vision.roi_pool", lambda x, layout: relay.vision.roi_pool(x, REGIONS, (2, 1), 0.5, layout=layout)),
    ],
)
def test_an_operator_with_a_layout_is_brought_to_the_one_desired(
    name: str, build: Callable[[Any, str], Any], source: str
) -> None:
    target = "NHWC" if source == "NCHW" else "NCHW"
    data = np.random.default_rng(0).random((2, 3, 4, 5), "float32")
    x = relay.var("x", shape=data.shape)
    before = transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], build(x, source))))
    after = transform.ConvertLayout({name: [target]})(before)
    call = after["main"].body.args[0]
    assert (call.op.name, call.attrs.layout) == (name, target)
    assert (after["main"].body.attrs.src_layout, after["main"].body.attrs.dst_layout) == (target, source)
    np.testing.assert_allclose(interpret(after, [data]), interpret(before, [data]), rtol=1e-6)


def test_default_leaves_an_operator_as_it_is() -> None:
    text = "def @main(%x: Tensor[(1, 3, 4, 4), float32]) { nn.max_pool2d(%x, pool_size=[2, 2], padding=[0, 0, 0, 0]) }"
    check(transform.ConvertLayout({"nn.max_pool2d": ["default"]}), text, text)


def test_a_pool_with_a_desired_layout_of_its_own_keeps_it_behind_a_convolution() -> None:
    before = """
        def @main(%x: Tensor[(1, 4, 4, 3), float32], %w: Tensor[(1, 1, 3, 2), float32]) {
          %0 = nn.conv2d(%x, %w, padding=[0, 0, 0, 0], channels=2, kernel_size=[1, 1], data_layout="NHWC",
                         kernel_layout="HWIO");
          nn.max_pool2d(%0, pool_size=[2, 2], padding=[0, 0, 0, 0], layout="NHWC")
        }"""
    after = """
        def @main(%x: Tensor[(1, 4, 4, 3), float32], %w: Tensor[(1, 1, 3, 2), float32]) {
          %0 = layout_transform(%x, src_layout="NHWC", dst_layout="NCHW");
          %1 = layout_transform(%w, src_layout="HWIO", dst_layout="OIHW");
          %2 = nn.conv2d(%0, %1, padding=[0, 0, 0, 0], channels=2, kernel_size=[1, 1]);
          %3 = layout_transform(%2, src_layout="NCHW", dst_layout="NHWC");
          nn.max_pool2d(%3, pool_size=[2, 2], padding=[0, 0, 0, 0], layout="NHWC", out_layout="NHWC")
        }"""
    check(transform.ConvertLayout({"nn.conv2d": ["NCHW", "default"], "nn.max_pool2d": ["NHWC"]}), before, after)


CONV = 'padding=[0, 0, 0, 0], channels=3, kernel_size=[1, 1], data_layout="NHWC", kernel_layout="HWIO"'
TWO_CONVOLUTIONS = f"""
    def @main(%x: Tensor[(1, 4, 5, 3), float32], %w: Tensor[(1, 1, 3, 3), float32]) {{
      %0 = nn.conv2d(%x, %w, {CONV});
      nn.conv2d(%0, %w, {CONV})
    }}"""


@pytest.mark.parametrize(
    ("skipped", "layouts"), [([0], ["NHWC", "NCHW"]), ([1], ["NCHW", "NHWC"]), (None, ["NCHW"] * 2)]
)
def test_layout_config_leaves_the_convolutions_that_it_numbers(skipped: list[int] | None, layouts: list[str]) -> None:
    before = tvm.parser.fromtext('#[version = "0.0.5"]' + TWO_CONVOLUTIONS)
    with transform.LayoutConfig(skip_layers=skipped):
        after = transform.ConvertLayout({"nn.conv2d": ["NCHW", "default"]})(before)
    found: list[str] = []
    relay.analysis.post_order_visit(
        after["main"],
        lambda e: found.append(e.attrs.data_layout) if isinstance(e, relay.Call) and e.op.name == "nn.conv2d" else None,
    )
    assert found == layouts
    assert transform.LayoutConfig.current is None
    rng = np.random.default_rng(0)
    inputs = [rng.random((1, 4, 5, 3), "float32"), rng.random((1, 1, 3, 3), "float32")]
    np.testing.assert_allclose(interpret(after, inputs), interpret(before, inputs), rtol=1e-5)


def test_strided_slice_whose_end_names_more_dimensions_than_begin() -> None:
    data = np.arange(4 * 5 * 6).reshape(4, 5, 6).astype("float32")
    x = relay.var("x", shape=data.shape)
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.strided_slice(x, [1], [4, -1, 0], [1, 1, -1])))
    np.testing.assert_array_equal(interpret(transform.InferType()(mod), [data]), data[1:4, 0:-1, -1:0:-1])
