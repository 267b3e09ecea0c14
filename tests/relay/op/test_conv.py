"""Convolutions in every layout against torch."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.relay.op.harness import Case, case, check_kernels, check_meaning, check_type, random

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import TypeInferenceError
from tilewright.ir.op import Op
from tilewright.relay.expr import Call
from tilewright.relay.op.nn.conv2d import PatchesAttrs
from tilewright.relay.op.transform.layout import transform_array


def oracle(function: Any, data: np.ndarray, weight: np.ndarray, **options: Any) -> np.ndarray:
    return function(torch.from_numpy(data), torch.from_numpy(weight), **options).numpy()


def conv2d_case(name: str, data: tuple, weight: tuple, kernel: bool = True, **options: Any) -> Case:
    x, w = random(*data), random(*weight, seed=1)
    torch_options = {k: v for k, v in options.items() if k in ("dilation", "groups")}
    torch_options |= {"stride": options.get("strides", 1)}
    pads = options.get("padding", (0, 0))
    if len(pads) == 4:
        expected = oracle(F.conv2d, np.pad(x, [(0, 0), (0, 0), pads[::2], pads[1::2]]), w, **torch_options)
    else:
        expected = oracle(F.conv2d, x, w, padding=pads, **torch_options)
    return case(name, lambda a, b: relay.nn.conv2d(a, b, **options), [x, w], expected, kernel=kernel)


def relayout(base: Case, data_layout: str, kernel_layout: str, out_layout: str = "", **options: Any) -> Case:
    x, w = base.inputs
    inputs = transform_array(x, "NCHW", data_layout), transform_array(w, "OIHW", kernel_layout)
    expected = transform_array(base.expected, "NCHW", out_layout or data_layout)
    layouts = {"data_layout": data_layout, "kernel_layout": kernel_layout, "out_layout": out_layout}
    return case(
        f"{data_layout} {kernel_layout}", lambda a, b: relay.nn.conv2d(a, b, **layouts, **options), inputs, expected
    )


PLAIN = conv2d_case("3x3", (1, 4, 7, 5), (6, 4, 3, 3), padding=(1, 1))
GROUPED = conv2d_case("groups of 8", (1, 6, 5, 5), (16, 3, 3, 3), groups=2)
DEPTHWISE = conv2d_case("depthwise", (1, 8, 6, 6), (8, 1, 3, 3), padding=(1, 1), groups=8)

CONV2D = [
    PLAIN,
    conv2d_case("1x1", (2, 3, 4, 5), (7, 3, 1, 1)),
    conv2d_case("strides", (1, 3, 9, 8), (5, 3, 3, 3), strides=(2, 3), padding=(1, 0)),
    conv2d_case("dilation", (1, 3, 9, 8), (5, 3, 3, 2), dilation=(2, 3)),
    conv2d_case("padding of four sides", (1, 3, 5, 5), (4, 3, 3, 3), padding=(0, 1, 2, 3)),
    conv2d_case("groups", (1, 6, 5, 5), (4, 3, 3, 3), groups=2),
    DEPTHWISE,
    conv2d_case("depthwise with a multiplier", (1, 3, 6, 6), (6, 1, 3, 3), groups=3),
    conv2d_case("kernel as large as the data", (1, 3, 4, 4), (5, 3, 4, 4)),
    relayout(PLAIN, "NHWC", "HWIO", padding=(1, 1)),
    relayout(PLAIN, "NCHW", "HWIO", padding=(1, 1)),
    relayout(PLAIN, "HWCN", "HWIO", padding=(1, 1)),
    relayout(GROUPED, "NHWC", "HWIO", groups=2),
    relayout(DEPTHWISE, "NHWC", "HWOI", padding=(1, 1), groups=8),
]

DATA16, WEIGHT16 = random(1, 16, 6, 6), random(16, 16, 3, 3, seed=1)
PACKED = [
    case(
        "NCHW8c",
        lambda a, b: relay.nn.contrib_conv2d_nchwc(
            a,
            b,
            padding=(1, 1),
            channels=16,
            kernel_size=(3, 3),
            data_layout="NCHW4c",
            kernel_layout="OIHW4i8o",
            out_layout="NCHW8c",
        ),
        [transform_array(DATA16, "NCHW", "NCHW4c"), transform_array(WEIGHT16, "OIHW", "OIHW4i8o")],
        transform_array(oracle(F.conv2d, DATA16, WEIGHT16, padding=1), "NCHW", "NCHW8c"),
    ),
    case(
        "depthwise NCHW8c",
        lambda a, b: relay.nn.contrib_depthwise_conv2d_nchwc(
            a,
            b,
            padding=(1, 1),
            groups=16,
            channels=16,
            kernel_size=(3, 3),
            data_layout="NCHW8c",
            kernel_layout="OIHW1i8o",
            out_layout="NCHW8c",
        ),
        [transform_array(DATA16, "NCHW", "NCHW8c"), transform_array(WEIGHT16[:, :1], "OIHW", "OIHW1i8o")],
        transform_array(oracle(F.conv2d, DATA16, WEIGHT16[:, :1], padding=1, groups=16), "NCHW", "NCHW8c"),
    ),
]


def patches(data: np.ndarray, rows: int) -> np.ndarray:
    """3x2 windows, every second row, one row of padding above and a column on the right, by torch's unfold."""
    n, channels, block = data.shape[0], data.shape[1], data.shape[4]
    plain = torch.from_numpy(np.moveaxis(data, 4, 2).reshape(n, channels * block, *data.shape[2:4]))
    columns = F.unfold(F.pad(plain, (0, 1, 1, 0)), (3, 2), stride=(2, 1)).numpy()
    taps = columns.reshape(n, channels, block, 6, -1).transpose(0, 1, 3, 4, 2)
    return np.ascontiguousarray(taps).reshape(n, channels * 6, taps.shape[3] // (rows * 5), rows * 5, block)


DATA_PATCHES = random(2, 3, 7, 5, 4)
PATCHES = [
    case(
        f"patches of {rows} rows",
        lambda a, rows=rows: Call(
            Op.get("nn.contrib_conv2d_patches"), [a], PatchesAttrs((3, 2), (2, 1), (1, 0, 0, 1), (1, 1), rows)
        ),
        [DATA_PATCHES],
        patches(DATA_PATCHES, rows),
        kernel=False,  # of its own; tests/relay/transform/test_merge_rows.py has it in convolutions
    )
    for rows in (1, 3)
]

X1, W1 = random(2, 3, 11), random(4, 3, 3, seed=1)
X3, W3 = random(1, 2, 4, 5, 6), random(3, 2, 2, 3, 3, seed=1)
XT, WT = random(1, 4, 5, 3), random(4, 6, 3, 4, seed=2)
WG = random(4, 3, 3, 3, seed=3)
OTHERS = [
    case(
        "conv1d",
        lambda a, b: relay.nn.conv1d(a, b, strides=2, padding=1),
        [X1, W1],
        oracle(F.conv1d, X1, W1, stride=2, padding=1),
    ),
    case(
        "conv1d in groups",
        lambda a, b: relay.nn.conv1d(a, b, groups=3),
        [X1, random(6, 1, 3)],
        oracle(F.conv1d, X1, random(6, 1, 3), groups=3),
    ),
    case(
        "conv1d NWC",
        lambda a, b: relay.nn.conv1d(a, b, data_layout="NWC", kernel_layout="WIO"),
        [X1.transpose(0, 2, 1), W1.transpose(2, 1, 0)],
        oracle(F.conv1d, X1, W1).transpose(0, 2, 1),
    ),
    case(
        "conv3d",
        lambda a, b: relay.nn.conv3d(a, b, padding=(1, 0, 1)),
        [X3, W3],
        oracle(F.conv3d, X3, W3, padding=(1, 0, 1)),
    ),
    case(
        "conv2d_transpose",
        lambda a, b: relay.nn.conv2d_transpose(a, b, strides=(2, 1), padding=(1, 2), kernel_layout="IOHW"),
        [XT, WT],
        oracle(F.conv_transpose2d, XT, WT, stride=(2, 1), padding=(1, 2)),
    ),
    case(
        "conv2d_transpose with output padding",
        lambda a, b: relay.nn.conv2d_transpose(a, b, strides=(2, 2), output_padding=(1, 1), kernel_layout="IOHW"),
        [XT, WT],
        oracle(F.conv_transpose2d, XT, WT, stride=2, output_padding=1),
    ),
    case(
        "conv2d_transpose in groups",
        lambda a, b: relay.nn.conv2d_transpose(a, b, strides=(2, 2), padding=(1, 1), groups=2, kernel_layout="IOHW"),
        [XT, WG],
        oracle(F.conv_transpose2d, XT, WG, stride=2, padding=1, groups=2),
    ),
    case(
        "conv2d_transpose of an OIHW kernel",
        lambda a, b: relay.nn.conv2d_transpose(a, b, kernel_layout="OIHW"),
        [XT, WT.transpose(1, 0, 2, 3)],
        oracle(F.conv_transpose2d, XT, WT),
    ),
    case(
        "conv1d_transpose",
        lambda a, b: relay.nn.conv1d_transpose(a, b, strides=3, padding=1, kernel_layout="IOW"),
        [X1, random(3, 4, 5)],
        oracle(F.conv_transpose1d, X1, random(3, 4, 5), stride=3, padding=1),
    ),
    case(
        "conv3d_transpose",
        lambda a, b: relay.nn.conv3d_transpose(a, b, strides=(2, 2, 2), kernel_layout="IODHW"),
        [X3, random(2, 3, 2, 2, 3)],
        oracle(F.conv_transpose3d, X3, random(2, 3, 2, 2, 3), stride=2),
    ),
]


@pytest.mark.parametrize("item", CONV2D + PACKED + OTHERS, ids=str)
def test_type(item: Case) -> None:
    check_type(item)


@pytest.mark.parametrize("item", CONV2D + PACKED + PATCHES + OTHERS, ids=str)
def test_meaning(item: Case) -> None:
    check_meaning(item)


@pytest.mark.parametrize("items", [CONV2D, PACKED, OTHERS], ids=["conv2d", "packed", "others"])
def test_kernels(items: list[Case]) -> None:
    check_kernels(items)


def type_of(expr: Any) -> Any:
    return relay.transform.InferTypeLocal(expr)


def test_the_weight_type_follows_from_channels_and_kernel_size() -> None:
    w = relay.var("w")
    x = relay.var("x", shape=(1, 3, 8, 8))
    func = relay.Function([x, w], relay.nn.conv2d(x, w, channels=16, kernel_size=(3, 5), data_layout="NCHW"))
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(func))
    assert mod["main"].params[1].checked_type.concrete_shape == (16, 3, 3, 5)


def test_an_unknown_batch_stays_unknown() -> None:
    x = relay.var("x", shape=(relay.Any(), 3, 8, 8))
    found = type_of(relay.nn.conv2d(x, relay.var("w", shape=(4, 3, 3, 3))))
    assert isinstance(found.shape[0], relay.Any)
    assert [int(d) for d in found.shape[1:]] == [4, 6, 6]


@pytest.mark.parametrize(
    ("weight", "options", "message"),
    [
        ((4, 5, 3, 3), {}, r"takes 5 input channels per group, but the data has 3"),
        (
            (4, 3, 3, 3),
            {"channels": 8, "kernel_size": (3, 3)},
            r"should have shape \(8, 3, 3, 3\).*found \(4, 3, 3, 3\)",
        ),
        ((4, 3, 9, 9), {}, r"kernel \(9, 9\) is larger than the padded data"),
        ((4, 1, 3, 3), {"groups": 2}, r"3 input channels do not divide into 2 groups"),
        ((4, 3, 3), {}, r"layout OIHW has 4 dimensions, got 3"),
    ],
)
def test_wrong_weights_are_named(weight: tuple, options: dict, message: str) -> None:
    with pytest.raises(TypeInferenceError, match=message):
        type_of(relay.nn.conv2d(relay.var("x", shape=(1, 3, 8, 8)), relay.var("w", shape=weight), **options))


def test_kernels_of_transposed_convolutions_are_input_first_unless_said_otherwise() -> None:
    shapes = {
        1: (relay.nn.conv1d_transpose, (3, 7), (3, 5, 3)),
        2: (relay.nn.conv2d_transpose, (3, 7, 6), (3, 5, 3, 2)),
    }
    shapes[3] = (relay.nn.conv3d_transpose, (3, 4, 5, 6), (3, 5, 3, 2, 1))
    for rank, (make, data, kernel) in shapes.items():
        x, w = relay.var("x", shape=(1, *data)), relay.var("w")
        size = kernel[2:]
        call = make(x, w, (1,) * rank, 0, (1,) * rank, 1, 5, size)  # strides, padding, dilation, groups, channels, ...
        mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x, w], call)))
        assert [int(d) for d in mod["main"].params[1].checked_type.shape] == list(kernel)
        assert [int(d) for d in mod["main"].ret_type.shape] == [
            1,
            5,
            *(d + k - 1 for d, k in zip(data[1:], size, strict=True)),
        ]


def test_text_of_tvm_0_8_means_the_kernels_that_it_means_there() -> None:
    text = """#[version = "0.0.5"]
def @main(%x: Tensor[(1, 3, 7), float32], %w: Tensor[(3, 5, 3), float32]) {
  nn.conv1d_transpose(%x, %w, channels=5, kernel_size=[3], padding=[0, 0])
}
"""
    mod = relay.transform.InferType()(tvm.parser.fromtext(text))
    assert [int(d) for d in mod["main"].ret_type.shape] == [1, 5, 9]
    x, w = relay.var("x", shape=(1, 3, 7, 7)), relay.var("w", shape=(3, 5, 3, 3))
    assert 'kernel_layout="IOHW"' in str(relay.nn.conv2d_transpose(x, w, channels=5, kernel_size=3))
