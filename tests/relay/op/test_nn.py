"""Neural network operators other than convolutions against torch."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.relay.op.harness import Case, case, check_kernels, check_meaning, check_type, integers, random

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import TypeInferenceError


def oracle(function: Any, *arrays: np.ndarray, **options: Any) -> np.ndarray:
    return function(*[torch.from_numpy(np.ascontiguousarray(a)) for a in arrays], **options).numpy()


A, B = random(5, 7), random(3, 7, seed=1)
BATCH_A, BATCH_B = random(4, 5, 7), random(4, 3, 7, seed=1)
BYTES = integers(-100, 100, 5, 7, dtype="int8"), integers(-100, 100, 3, 7, dtype="int8")
BLOCKS = random(32, 7, seed=5)

PRODUCTS = [
    case("dense", relay.nn.dense, [A, B], oracle(F.linear, A, B)),
    case("dense of one row", relay.nn.dense, [A[:1], B], oracle(F.linear, A[:1], B)),
    case("dense of three dimensions", relay.nn.dense, [BATCH_A, B], oracle(F.linear, BATCH_A, B)),
    case(
        "dense of bytes",
        lambda x, w: relay.nn.dense(x, w, out_dtype="int32"),
        BYTES,
        BYTES[0].astype("int32") @ BYTES[1].astype("int32").T,
    ),
    case(
        "dense_pack",
        lambda x, w: relay.nn.contrib_dense_pack(x, w, "NC16n", 32),
        [A, BLOCKS.reshape(2, 16, 7).transpose(0, 2, 1)],
        oracle(F.linear, A, BLOCKS),
    ),
    case(
        "dense_pack by a width that is no power of two",
        lambda x, w: relay.nn.contrib_dense_pack(x, w, "NC5n", 10),
        [A, BLOCKS[:10].reshape(2, 5, 7).transpose(0, 2, 1)],
        oracle(F.linear, A, BLOCKS[:10]),
    ),
    case(
        "dense_pack with columns of padding",
        lambda x, w: relay.nn.contrib_dense_pack(x, w, "NC16n", 19),
        [A, np.concatenate([BLOCKS[:19], BLOCKS[:13]]).reshape(2, 16, 7).transpose(0, 2, 1)],
        oracle(F.linear, A, BLOCKS[:19]),
    ),
    case("matmul", relay.nn.matmul, [A, B.T], A @ B.T),
    case("matmul, transposed", lambda x, w: relay.nn.matmul(x, w, None, "", True, True), [A.T, B], A @ B.T),
    case(
        "matmul of transposed matrices",
        lambda x, w: relay.nn.matmul(x, w, None, "", True),
        [random(2, 3, 7, 5), B.T],
        random(2, 3, 7, 5).swapaxes(2, 3) @ B.T,
    ),
    case("batch_matmul", relay.nn.batch_matmul, [BATCH_A, BATCH_B], BATCH_A @ BATCH_B.transpose(0, 2, 1)),
    case(
        "batch_matmul of one batch",
        relay.nn.batch_matmul,
        [BATCH_A, BATCH_B[:1]],
        BATCH_A @ BATCH_B[:1].transpose(0, 2, 1),
    ),
    case(
        "batch_matmul, the second as it is",
        lambda x, y: relay.nn.batch_matmul(x, y, transpose_b=False),
        [BATCH_A, BATCH_B.transpose(0, 2, 1)],
        BATCH_A @ BATCH_B.transpose(0, 2, 1),
    ),
    case(
        "batch_matmul, the first transposed",
        lambda x, y: relay.nn.batch_matmul(x, y, transpose_a=True),
        [BATCH_A.transpose(0, 2, 1), BATCH_B],
        BATCH_A @ BATCH_B.transpose(0, 2, 1),
    ),
]

X = random(2, 6, 5, 7)
GAMMA, BETA, MEAN, VAR = random(6), random(6, seed=1), random(6, seed=2), np.abs(random(6, seed=3)) + np.float32(0.1)
LAST_GAMMA, LAST_BETA = random(7), random(7, seed=1)


def normalized(function: Any, **options: Any) -> np.ndarray:
    return function(torch.from_numpy(X), **options).numpy()


def channelwise(x: np.ndarray) -> np.ndarray:
    return x * GAMMA[:, None, None] + BETA[:, None, None]


NORMS = [
    case(
        "batch_norm",
        lambda x, g, b, m, v: relay.nn.batch_norm(x, g, b, m, v)[0],
        [X, GAMMA, BETA, MEAN, VAR],
        oracle(F.batch_norm, X, MEAN, VAR, GAMMA, BETA),
    ),
    case(
        "batch_norm of the last axis without scale",
        lambda x, g, b, m, v: relay.nn.batch_norm(x, g, b, m, v, 3, scale=False)[0],
        [X.transpose(0, 2, 3, 1), GAMMA, BETA, MEAN, VAR],
        oracle(F.batch_norm, X, MEAN, VAR, np.ones_like(GAMMA), BETA).transpose(0, 2, 3, 1),
    ),
    case(
        "layer_norm",
        relay.nn.layer_norm,
        [X, LAST_GAMMA, LAST_BETA],
        normalized(
            F.layer_norm, normalized_shape=(7,), weight=torch.from_numpy(LAST_GAMMA), bias=torch.from_numpy(LAST_BETA)
        ),
    ),
    case(
        "instance_norm", relay.nn.instance_norm, [X, GAMMA, BETA], channelwise(normalized(F.instance_norm)), atol=1e-4
    ),
    case(
        "group_norm",
        lambda x, g, b: relay.nn.group_norm(x, g, b, 3),
        [X, GAMMA, BETA],
        channelwise(normalized(F.group_norm, num_groups=3)),
        atol=1e-4,
    ),
    case("l2_normalize", lambda x: relay.nn.l2_normalize(x, 1e-6, [1]), [X], normalized(F.normalize, dim=1)),
    case(
        "lrn",
        lambda x: relay.nn.lrn(x, 3, 1, 2.0, 1e-2, 0.75),
        [X],
        normalized(F.local_response_norm, size=3, alpha=1e-2, beta=0.75, k=2.0),
        rtol=1e-4,
    ),
    case("dropout", lambda x: relay.nn.dropout(x, 0.3), [X], X),
    case("softmax", relay.nn.softmax, [X], normalized(F.softmax, dim=-1)),
    case("softmax along channels", lambda x: relay.nn.softmax(x, 1), [X * 30], oracle(F.softmax, X * 30, dim=1)),
    case("fast_softmax", relay.nn.fast_softmax, [X], normalized(F.softmax, dim=-1), rtol=1e-4),
    case("log_softmax", relay.nn.log_softmax, [A], oracle(F.log_softmax, A, dim=-1)),
    case(
        "cross_entropy",
        relay.nn.cross_entropy,
        [np.abs(A) + 1, np.abs(A)],
        np.float32(-(np.log(np.abs(A) + 1) * np.abs(A)).sum() / 5),
    ),
]

X1, X3 = random(1, 3, 11), random(1, 2, 5, 6, 7)
CEIL = dict(pool_size=(3, 3), strides=(2, 2), ceil_mode=True)
POOLS = [
    case(
        "max_pool2d",
        lambda x: relay.nn.max_pool2d(x, (3, 2), (2, 1), padding=(1, 0)),
        [X],
        oracle(F.max_pool2d, X, kernel_size=(3, 2), stride=(2, 1), padding=(1, 0)),
    ),
    case(
        "max_pool2d with dilation",
        lambda x: relay.nn.max_pool2d(x, (2, 2), dilation=(2, 3)),
        [X],
        oracle(F.max_pool2d, X, kernel_size=2, stride=1, dilation=(2, 3)),
    ),
    case(
        "max_pool2d NHWC",
        lambda x: relay.nn.max_pool2d(x, (2, 2), (2, 2), layout="NHWC"),
        [X.transpose(0, 2, 3, 1)],
        oracle(F.max_pool2d, X, kernel_size=2).transpose(0, 2, 3, 1),
    ),
    case(
        "max_pool2d, windows past the end",
        lambda x: relay.nn.max_pool2d(x, **CEIL),
        [random(1, 2, 6, 8)],
        oracle(F.max_pool2d, random(1, 2, 6, 8), kernel_size=3, stride=2, ceil_mode=True),
    ),
    case(
        "max_pool2d of integers",
        lambda x: relay.nn.max_pool2d(x, (2, 2), padding=(1, 1)),
        [integers(-9, -1, 1, 1, 4, 4)],
        F.max_pool2d(torch.from_numpy(integers(-9, -1, 1, 1, 4, 4)).float(), 2, 1, 1).numpy().astype("int32"),
    ),
    case(
        "avg_pool2d",
        lambda x: relay.nn.avg_pool2d(x, (3, 3), (2, 2), padding=(1, 1)),
        [X],
        oracle(F.avg_pool2d, X, kernel_size=3, stride=2, padding=1, count_include_pad=False),
    ),
    case(
        "avg_pool2d that counts padding",
        lambda x: relay.nn.avg_pool2d(x, (3, 3), padding=(1, 1), count_include_pad=True),
        [X],
        oracle(F.avg_pool2d, X, kernel_size=3, stride=1, padding=1),
    ),
    case(
        "avg_pool2d, windows past the end",
        lambda x: relay.nn.avg_pool2d(x, **CEIL),
        [random(1, 2, 6, 8)],
        oracle(F.avg_pool2d, random(1, 2, 6, 8), kernel_size=3, stride=2, ceil_mode=True, count_include_pad=False),
    ),
    case("max_pool1d", lambda x: relay.nn.max_pool1d(x, 3, 2), [X1], oracle(F.max_pool1d, X1, kernel_size=3, stride=2)),
    case("avg_pool1d", lambda x: relay.nn.avg_pool1d(x, 2, 2), [X1], oracle(F.avg_pool1d, X1, kernel_size=2)),
    case(
        "max_pool3d",
        lambda x: relay.nn.max_pool3d(x, (2, 2, 2), (2, 1, 2)),
        [X3],
        oracle(F.max_pool3d, X3, kernel_size=2, stride=(2, 1, 2)),
    ),
    case(
        "avg_pool3d",
        lambda x: relay.nn.avg_pool3d(x, (2, 3, 2)),
        [X3],
        oracle(F.avg_pool3d, X3, kernel_size=(2, 3, 2), stride=1),
    ),
    case("global_max_pool2d", relay.nn.global_max_pool2d, [X], X.max((2, 3), keepdims=True)),
    case("global_avg_pool2d", relay.nn.global_avg_pool2d, [X], X.mean((2, 3), keepdims=True)),
    case("global_avg_pool2d NHWC", lambda x: relay.nn.global_avg_pool2d(x, "NHWC"), [X], X.mean((1, 2), keepdims=True)),
    case(
        "adaptive_avg_pool2d",
        lambda x: relay.nn.adaptive_avg_pool2d(x, (3, 2)),
        [X],
        oracle(F.adaptive_avg_pool2d, X, output_size=(3, 2)),
    ),
    case(
        "adaptive_max_pool2d",
        lambda x: relay.nn.adaptive_max_pool2d(x, (2, 3)),
        [X],
        oracle(F.adaptive_max_pool2d, X, output_size=(2, 3)),
    ),
    case(
        "adaptive_avg_pool3d",
        lambda x: relay.nn.adaptive_avg_pool3d(x, (2, 2, 3)),
        [X3],
        oracle(F.adaptive_avg_pool3d, X3, output_size=(2, 2, 3)),
    ),
    case(
        "adaptive_max_pool1d",
        lambda x: relay.nn.adaptive_max_pool1d(x, 4),
        [X1],
        oracle(F.adaptive_max_pool1d, X1, output_size=4),
    ),
]

SQUARE = random(1, 8, 4, 6)
OTHERS = [
    case(
        "pad",
        lambda x: relay.nn.pad(x, ((0, 0), (1, 2), (0, 3), (0, 0)), 1.5),
        [X],
        np.pad(X, [(0, 0), (1, 2), (0, 3), (0, 0)], constant_values=1.5),
    ),
    *(
        case(
            f"pad and crop, {mode}",
            lambda x, m=mode: relay.nn.pad(x, ((-1, 3), (2, -2)), 2.5, m),
            [A],
            np.pad(A, [(0, 3), (2, 0)], mode, **({"constant_values": 2.5} if mode == "constant" else {}))[1:, :-2],
        )
        for mode in ("constant", "edge", "reflect")
    ),
    case(
        "pad and crop all",
        lambda x: relay.nn.pad(x, ((0, 0), (-A.shape[1] - 1, 3))),
        [A],
        np.zeros((A.shape[0], 2), "float32"),
    ),
    case("pad with zero", lambda x: relay.nn.pad(x, ((1, 0), (0, 1)), 0), [A], np.pad(A, [(1, 0), (0, 1)])),
    case(
        "pad with the edge",
        lambda x: relay.nn.pad(x, ((1, 2), (0, 3)), pad_mode="edge"),
        [A],
        np.pad(A, [(1, 2), (0, 3)], "edge"),
    ),
    case(
        "pad by reflection",
        lambda x: relay.nn.pad(x, ((1, 2), (0, 3)), pad_mode="reflect"),
        [A],
        np.pad(A, [(1, 2), (0, 3)], "reflect"),
    ),
    case(
        "mirror_pad", lambda x: relay.nn.mirror_pad(x, ((1, 2), (2, 0))), [A], np.pad(A, [(1, 2), (2, 0)], "symmetric")
    ),
    case("upsampling", lambda x: relay.nn.upsampling(x, 2, 3), [X], oracle(F.interpolate, X, scale_factor=(2, 3))),
    case(
        "upsampling, bilinear",
        lambda x: relay.nn.upsampling(x, 2, 2, method="bilinear", align_corners=True),
        [X],
        oracle(F.interpolate, X, scale_factor=2, mode="bilinear", align_corners=True),
        rtol=1e-4,
    ),
    case(
        "upsampling3d",
        lambda x: relay.nn.upsampling3d(x, 2, 1, 2, coordinate_transformation_mode="asymmetric"),
        [X3],
        oracle(F.interpolate, X3, scale_factor=(2, 1, 2)),
    ),
    case(
        "depth_to_space CRD",
        lambda x: relay.nn.depth_to_space(x, 2, mode="CRD"),
        [SQUARE],
        oracle(F.pixel_shuffle, SQUARE, upscale_factor=2),
    ),
    case(
        "depth_to_space DCR",
        lambda x: relay.nn.depth_to_space(x, 2),
        [SQUARE],
        oracle(
            F.pixel_shuffle,
            SQUARE.reshape(1, 4, 2, 4, 6).transpose(0, 2, 1, 3, 4).reshape(1, 8, 4, 6),
            upscale_factor=2,
        ),
    ),
    case(
        "space_to_depth",
        lambda x: relay.nn.space_to_depth(x, 2),
        [SQUARE],
        oracle(F.pixel_unshuffle, SQUARE, downscale_factor=2)
        .reshape(1, 8, 4, 2, 3)
        .transpose(0, 2, 1, 3, 4)
        .reshape(1, 32, 2, 3),
    ),
    case(
        "space_to_batch_nd",
        lambda x: relay.nn.space_to_batch_nd(x, (2, 3), ((1, 1), (0, 0))),
        [random(1, 4, 6, 1)],
        np.stack(
            [
                np.pad(random(1, 4, 6, 1), [(0, 0), (1, 1), (0, 0), (0, 0)])[0, i::2, j::3]
                for i in range(2)
                for j in range(3)
            ]
        ),
    ),
    case(
        "batch_to_space_nd",
        lambda x: relay.nn.batch_to_space_nd(x, (2, 2), ((0, 1), (0, 0))),
        [random(4, 2, 3, 1)],
        random(4, 2, 3, 1).reshape(2, 2, 1, 2, 3, 1).transpose(2, 3, 0, 4, 1, 5).reshape(1, 4, 6, 1)[:, :3],
    ),
]

ALL = PRODUCTS + NORMS + POOLS + OTHERS


@pytest.mark.parametrize("item", ALL, ids=str)
def test_type(item: Case) -> None:
    check_type(item)


@pytest.mark.parametrize("item", ALL, ids=str)
def test_meaning(item: Case) -> None:
    check_meaning(item)


@pytest.mark.parametrize("items", [PRODUCTS, NORMS, POOLS, OTHERS], ids=["products", "norms", "pools", "others"])
def test_kernels(items: list[Case]) -> None:
    check_kernels(items)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x: relay.nn.dense(x, relay.var("w", shape=(3, 6))), r"nn.dense.*sum over differ, 7 and 6"),
        (lambda x: relay.nn.bias_add(x, relay.var("b", shape=(6,))), r"the bias has 6 elements, but dimension 1.*is 7"),
        (lambda x: relay.nn.softmax(x, 2), r"nn.softmax.*axis 2 is out of range"),
        (lambda x: relay.add(x, relay.var("y", shape=(5, 6))), r"shapes \(5, 7\) and \(5, 6\) do not broadcast"),
        (lambda x: relay.add(x, relay.var("y", shape=(5, 7), dtype="int32")), r"same dtype, found float32 and int32"),
        (lambda x: relay.nn.max_pool2d(x), r"should have 4 dimensions, found 2"),
        (lambda x: relay.concatenate([x, relay.var("y", shape=(4, 6))], 1), r"dimension 0 is 5 in one tensor and 4"),
        (lambda x: relay.split(x, 2, 1).astuple(), r"cannot split 7 into 2 equal parts"),
        (
            lambda x: relay.nn.group_norm(x, relay.var("g", shape=(7,)), relay.var("b", shape=(7,)), 2),
            r"7 channels.*2 groups",
        ),
    ],
)
def test_wrong_arguments_are_named(build: Any, message: str) -> None:
    with pytest.raises(TypeInferenceError, match=message):
        relay.transform.InferTypeLocal(build(relay.var("x", shape=(5, 7))))


@pytest.mark.parametrize("size", [(2, 2, 3), (1, 3, 2)])
def test_adaptive_pools_of_shapes_in_int64(size: tuple[int, int, int]) -> None:
    data = random(1, 4, 6, 5, 2)
    shape = [tvm.tir.IntImm("int64", d) for d in data.shape]
    x = relay.var("x", shape=shape)
    pool = relay.Function([x], relay.nn.adaptive_max_pool3d(x, size, "NDHWC"))
    expected = oracle(F.adaptive_max_pool3d, data.transpose(0, 4, 1, 2, 3), output_size=size).transpose(0, 2, 3, 4, 1)
    np.testing.assert_array_equal(relay.create_executor("graph").evaluate(pool)(data).numpy(), expected)


def test_extents_with_names_are_scaled() -> None:
    n, h = tvm.te.size_var("n"), tvm.te.size_var("h")
    x = relay.var("x", shape=(n, 3, h, 5))
    found = relay.transform.InferTypeLocal(relay.nn.upsampling(x, 2.5, 2))
    assert int(found.shape[3]) == 10
    assert tvm.ir.structural_equal(
        found.shape[2], tvm.tir.Cast("int32", tvm.te.round(h * tvm.tir.const(2.5, "float64")))
    )


@pytest.mark.parametrize(
    ("shape", "axis", "groups"),
    [((1, 64, 9, 7), 1, 8), ((2, 6, 1, 1), 1, 3), ((2, 5, 7, 6), 3, 2), ((3, 8), 1, 4), ((1, 7, 13), 1, 7)],
)  # fmt: skip
def test_group_norms_of_parameters_and_of_what_is_computed(shape: tuple[int, ...], axis: int, groups: int) -> None:
    x, gamma, beta = random(*shape), random(shape[axis], seed=1), random(shape[axis], seed=2)
    x += 100  # far from zero: no difference of large squares
    first, *scales = (torch.from_numpy(a.copy()).double() for a in (np.moveaxis(x, axis, 1), gamma, beta))
    wanted = F.group_norm(first, groups, *scales)
    expected = np.moveaxis(wanted.numpy(), 1, axis)
    data, *affine = (relay.var(n, shape=a.shape) for n, a in (("x", x), ("g", gamma), ("b", beta)))
    for given in (data, relay.nn.relu(data)):
        mod = tvm.IRModule.from_expr(relay.Function([data, *affine], relay.nn.group_norm(given, *affine, groups, axis)))
        found = relay.create_executor("graph", mod, tvm.cpu(), "llvm").evaluate()(x, gamma, beta).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
