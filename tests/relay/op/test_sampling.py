"""Values between pixels, moved taps, coordinates and losses: against torch, the ONNX reference evaluator and numpy."""

from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from onnx.reference import ReferenceEvaluator
from tests.relay.op.harness import Case, case, check_kernels, check_meaning, check_type, integers, random

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import TypeInferenceError
from tilewright.relay.interpreter import interpret
from tilewright.relay.type_infer import infer_expr

MAPS = np.array([[[0.8, -0.3, 0.1], [0.4, 0.9, -0.2]], [[1.3, 0.0, 0.0], [0.0, 1.3, 0.5]]], "float32")
IMAGES = random(2, 3, 5, 7)
GRID = F.affine_grid(torch.from_numpy(MAPS), [2, 1, 4, 3], align_corners=True).numpy()
FAR = (np.random.default_rng(5).random((2, 3, 11, 2), "float32") * 8 - 4) * 0.999
VOLUMES, INSIDE_OUT = random(1, 2, 3, 1, 4), np.random.default_rng(6).random((1, 2, 3, 5, 3), "float32") * 4 - 2
BOXES = np.array([[0.1, 0.2, 0.8, 0.7], [0.9, 0.6, 0.05, 0.3], [-0.5, 0.25, 0.6, 1.4]], "float32")
WHICH = np.array([1, 0, 1], "int32")


def sampled(images: np.ndarray, grid: np.ndarray, **how: Any) -> np.ndarray:
    """torch's interpolation at points (n, h, w, 2); -1 and 1 are the first and last pixel unless ``how`` says else."""
    return F.grid_sample(torch.from_numpy(images), torch.from_numpy(grid), **{"align_corners": True, **how}).numpy()


def cropped(size: tuple[int, int], outside: float = 0.0, nearest: bool = False) -> np.ndarray:
    """Each crop by torch's interpolation at its points."""
    crops = []
    for box, n in zip(BOXES, WHICH, strict=True):
        y, x = (
            np.linspace(start, end, s) if s > 1 else np.array([(start + end) / 2])  # TensorFlow: the middle
            for start, end, s in zip(box[:2], box[2:], size, strict=True)
        )
        inside = ((y >= 0) & (y <= 1))[:, None] & ((x >= 0) & (x <= 1))
        if nearest:
            y, x = np.rint(y * 4) / 4, np.rint(x * 6) / 6
        points = np.stack(np.meshgrid(x, y), -1)[None].astype("float32") * 2 - 1
        crops.append(np.where(inside, sampled(IMAGES[n : n + 1], points)[0], np.float32(outside)))
    return np.stack(crops)


def dilated(data: np.ndarray, weight: np.ndarray, strides: tuple, pads: tuple, dilations: tuple) -> np.ndarray:
    """The greatest element of each window."""
    top, left, bottom, right = pads
    padded = np.pad(data, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=-np.inf)
    rows, columns = ((weight.shape[1 + k] - 1) * dilations[k] + 1 for k in range(2))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (rows, columns), (2, 3))
    windows = windows[:, :, :: strides[0], :: strides[1], :: dilations[0], :: dilations[1]]
    return (windows + weight[:, None, None]).max((-1, -2)).astype("float32")


def last(x: np.ndarray) -> np.ndarray:
    """Channels last."""
    return np.moveaxis(x, 1, -1)


WINDOW, ONE = random(3, 2, 3), random(3, 1, 1)
DILATED = dilated(IMAGES, WINDOW, (2, 1), (1, 0, 2, 1), (2, 3))
SAMPLES = [
    case("affine_grid", lambda a: relay.image.affine_grid(a, (4, 3)), [MAPS], np.moveaxis(GRID, -1, 1)),
    case("grid_sample", relay.image.grid_sample, [IMAGES, np.moveaxis(GRID, -1, 1)], sampled(IMAGES, GRID)),
    *(
        case(
            f"grid_sample, {method}, {padding}, {'corners' if corners else 'edges'}",
            partial(relay.image.grid_sample, method=method, padding_mode=padding, align_corners=corners),
            [IMAGES, np.moveaxis(FAR, -1, 1)],
            sampled(IMAGES, FAR, mode=method, padding_mode=padding, align_corners=corners),
        )
        for method in ("nearest", "bilinear", "bicubic")
        for padding in ("zeros", "border", "reflection")
        for corners in (True, False)
        if method != "bicubic" or padding == "zeros"  # of which ONNX says something else than torch
    ),
    *(
        case(
            f"grid_sample of volumes, {padding}",
            partial(relay.image.grid_sample, layout="NCDHW", padding_mode=padding, align_corners=False),
            [VOLUMES, np.moveaxis(INSIDE_OUT, -1, 1)],
            sampled(VOLUMES, INSIDE_OUT, padding_mode=padding, align_corners=False),
        )
        for padding in ("zeros", "border", "reflection")
    ),
    case(
        "crops", lambda x, b, i: relay.image.crop_and_resize(x, b, i, (4, 3), "NCHW"), [IMAGES, BOXES, WHICH],
        cropped((4, 3)),
    ),
    case(
        "crops, channels last",
        lambda x, b, i: relay.image.crop_and_resize(x, b, i, (1, 13), "NHWC", extrapolation_value=2.5),
        [last(IMAGES), BOXES, WHICH], last(cropped((1, 13), 2.5)),
    ),
    case(
        "crops, nearest",
        lambda x, b, i: relay.image.crop_and_resize(x, b, i, (6, 2), "NCHW", "nearest_neighbor"),
        [IMAGES, BOXES, WHICH], cropped((6, 2), nearest=True),
    ),
    case(
        "dilation",
        lambda x, w: relay.image.dilation2d(x, w, (2, 1), (1, 0, 2, 1), (2, 3)), [IMAGES, WINDOW], DILATED,
    ),
    case(
        "dilation, channels last",
        lambda x, w: relay.image.dilation2d(x, w, (2, 1), (1, 0, 2, 1), (2, 3), "NHWC", "HWI"),
        [last(IMAGES), np.moveaxis(WINDOW, 0, -1)], last(DILATED),
    ),
    case("dilation by one", relay.image.dilation2d, [IMAGES, ONE], dilated(IMAGES, ONE, (1, 1), (0,) * 4, (1, 1))),
]  # fmt: skip


def deformed(data: np.ndarray, offset: np.ndarray, weight: np.ndarray, **attributes: object) -> np.ndarray:
    """ONNX's DeformConv, which differs where a tap lies between the border's pixels and those outside."""
    node = onnx.helper.make_node("DeformConv", ["x", "w", "o"], ["y"], **attributes)
    values = {"x": data, "w": weight, "o": offset}
    infos = [onnx.helper.make_tensor_value_info(n, 1, v.shape) for n, v in values.items()]
    graph = onnx.helper.make_graph([node], "g", infos, [onnx.helper.make_tensor_value_info("y", 1, None)])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 19)])
    return ReferenceEvaluator(model).run(None, values)[0].astype("float32")


PLANES, KERNEL, PLAIN = random(2, 4, 6, 5), random(6, 2, 3, 2), random(5, 4, 3, 2, seed=2)
WHOLE = integers(-4, 5, 2, 24, 4, 3).astype("float32")  # taps on pixels, inside and outside


def between() -> np.ndarray:
    """Offsets that move the taps of a 3x2 kernel to points anywhere in PLANES."""
    draw = np.random.default_rng(0)
    points = np.stack([draw.uniform(0, extent - 1, (2, 3, 2, 4, 4)) for extent in (6, 5)], 3)
    dy, dx, i, j = np.ogrid[:3, :2, :4, :4]
    return (points - np.stack(np.broadcast_arrays(dy + i, dx + j), 2)).reshape(2, 12, 4, 4).astype("float32")


DEFORMED = [
    case(
        "taps between pixels", lambda x, o, w: relay.nn.deformable_conv2d(x, o, w, groups=2),
        [PLANES, between(), KERNEL], deformed(PLANES, between(), KERNEL, group=2),
    ),
    case(
        "taps outside, two groups of offsets",
        lambda x, o, w: relay.nn.deformable_conv2d(
            x, o, w, (2, 2), (2, 1), (1, 2), deformable_groups=2, channels=5, kernel_size=(3, 2)
        ),
        [PLANES, WHOLE, PLAIN],
        deformed(PLANES, WHOLE, PLAIN, strides=[2, 2], pads=[2, 1, 2, 1], dilations=[1, 2], offset_group=2),
    ),
    case(
        "channels last",
        lambda x, o, w: relay.nn.deformable_conv2d(x, o, w, groups=2, data_layout="NHWC", kernel_layout="HWIO"),
        [last(PLANES), last(between()), KERNEL.transpose(2, 3, 1, 0)],
        last(deformed(PLANES, between(), KERNEL, group=2)),
    ),
]  # fmt: skip


def darknet(data: np.ndarray, stride: int) -> np.ndarray:
    """Darknet's loops."""
    flat, (n, c, h, w) = data.reshape(len(data), -1), data.shape
    out = np.zeros_like(flat)
    for at, (k, j, i) in enumerate(np.ndindex(c, h, w)):
        few = c // stride**2
        x, y = i * stride + k // few % stride, j * stride + k // few // stride
        out[:, at] = flat[:, x + w * stride * (y + h * stride * (k % few))]
    return out.reshape(n, c * stride**2, h // stride, w // stride)


def losses(reduction: str, ignored: int = -100) -> np.ndarray:
    found = F.nll_loss(*map(torch.from_numpy, (SCORES, TARGETS, WEIGHTS)), reduction=reduction, ignore_index=ignored)
    return found.numpy()


BLOCKS, SCORES = random(2, 8, 6, 4), random(3, 5, 2, 7)
TARGETS, WEIGHTS = integers(0, 5, 3, 2, 7, dtype="int64"), np.abs(random(5))
SORTED = np.sort(integers(0, 6, 3, 5), -1)
LOOKED_UP = integers(-1, 7, 3, 4, seed=1)
PLACES = np.array([[0, 1, 3], [2, 0, 0], [1, 1, 2], [2, 1, 3]], "int64")
FLAT = np.ravel_multi_index(tuple(PLACES.T), (3, 2, 4))
DENSE = np.full((3, 2, 4), -1.5, "float32")
DENSE[tuple(PLACES.T)] = [1, 2, 3, 4]


def reshaped(*shape: int) -> tuple[np.ndarray, np.ndarray]:
    return np.stack(np.unravel_index(FLAT, shape), 1), np.array(shape, "int64")


def searched(side: str) -> np.ndarray:
    found = torch.searchsorted(torch.from_numpy(SORTED), torch.from_numpy(LOOKED_UP), side=side)
    return found.numpy().astype("int32")


OTHERS = [
    *(
        case(f"yolo_reorg by {s}", lambda x, s=s: relay.vision.yolo_reorg(x, s), [BLOCKS], darknet(BLOCKS, s))
        for s in (1, 2)
    ),
    *(
        case(f"nll_loss, {r}", lambda *a, r=r: relay.nn.nll_loss(*a, r), [SCORES, TARGETS, WEIGHTS], losses(r))
        for r in ("mean", "sum", "none")
    ),
    case(
        "nll_loss without a class", lambda *a: relay.nn.nll_loss(*a, "mean", 2), [SCORES, TARGETS, WEIGHTS],
        losses("mean", 2),
    ),
    case("searchsorted", relay.searchsorted, [SORTED, LOOKED_UP], searched("left")),
    case("searchsorted, right", lambda s, v: relay.searchsorted(s, v, True), [SORTED, LOOKED_UP], searched("right")),
    case(
        "searchsorted in one row", lambda s, v: relay.searchsorted(s, v, dtype="int64"), [SORTED[1], LOOKED_UP],
        np.searchsorted(SORTED[1], LOOKED_UP),
    ),
    case(
        "sparse_to_dense", lambda i, v: relay.sparse_to_dense(i, (3, 2, 4), v, relay.const(-1.5)),
        [PLACES, np.arange(1, 5, dtype="float32")], DENSE,
    ),
    case(
        "sparse_to_dense of one value", lambda i, v: relay.sparse_to_dense(i, [7], v),
        [np.array([5, 1], "int32"), np.int32(3)], np.array([0, 3, 0, 0, 0, 3, 0], "int32"),
    ),
    *(
        case(f"sparse_reshape to {wanted}", relay.sparse_reshape, [PLACES, [3, 2, 4], wanted], reshaped(*shape))
        for wanted, shape in (([6, 4], (6, 4)), ([2, -1, 3, 1], (2, 4, 3, 1)), ([-1], (24,)))
    ),
    case(
        "sparse_reshape of nothing", relay.sparse_reshape, [PLACES[:0], [3, 2, 4], [6, -1]],
        (np.zeros((0, 2), "int64"), np.array([6, 4])),
    ),
]  # fmt: skip
CASES = SAMPLES + DEFORMED + OTHERS


@pytest.mark.parametrize("item", CASES, ids=str)
def test_type(item: Case) -> None:
    check_type(item)


@pytest.mark.parametrize("item", CASES, ids=str)
def test_meaning(item: Case) -> None:
    check_meaning(item)


def test_kernels() -> None:
    check_kernels(CASES)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x: relay.vision.yolo_reorg(x, 3), "channels 8 should be a multiple of 9"),
        (lambda x: relay.image.affine_grid(x, (4, 4)), "data should have 3 dimensions"),
        (lambda x: relay.image.grid_sample(x, x), "coordinates of a point"),
        (lambda x: relay.nn.nll_loss(x, x, x, "all"), "reduction should be mean, sum or none"),
        (lambda x: relay.image.dilation2d(x, x, kernel_layout="HWI"), "the layouts should be NCHW and IHW"),
    ],
)
def test_what_does_not_fit_is_told(build: object, message: str) -> None:
    with pytest.raises(TypeInferenceError, match=message):
        infer_expr(build(relay.var("x", shape=(2, 8, 6, 4))))


@pytest.mark.parametrize("last_channels", [False, True])
@pytest.mark.parametrize(
    ("image", "weight", "groups", "offset_groups"),
    [
        ((1, 1, 1, 1), (1, 1, 1, 1), 1, 1),
        ((2, 6, 7, 5), (37, 6, 3, 3), 1, 2),
        ((1, 33, 9, 31), (17, 33, 3, 2), 1, 3),
        ((1, 24, 13, 29), (48, 8, 3, 3), 3, 1),
        ((1, 16, 6, 7), (32, 16, 1, 3), 1, 1),
        ((0, 4, 5, 6), (3, 4, 3, 3), 1, 1),
    ],
)  # fmt: skip
def test_deformable_convolutions_of_odd_shapes(
    image: tuple[int, ...], weight: tuple[int, ...], groups: int, offset_groups: int, last_channels: bool
) -> None:
    n, _, height, width = image
    taps = offset_groups * weight[2] * weight[3]
    kernel, moves = random(*weight), random(n, 2 * taps, height - weight[2] + 1, width - weight[3] + 1, seed=4)
    attributes = {
        "groups": groups,
        "deformable_groups": offset_groups,
        "channels": weight[0],
        "kernel_size": weight[2:],
    }
    arrays = [random(*image), 3 * moves, kernel]
    if last_channels:
        attributes |= {"data_layout": "NHWC", "kernel_layout": "HWIO"}
        arrays = [last(arrays[0]), last(arrays[1]), kernel.transpose(2, 3, 1, 0)]
    inputs = [relay.var(name, shape=a.shape) for name, a in zip("xow", arrays, strict=True)]
    mod = tvm.IRModule.from_expr(relay.nn.deformable_conv2d(*inputs, **attributes))
    values = dict(zip("xow", arrays, strict=True))
    found = relay.create_executor("graph", mod, tvm.cpu(), "llvm").evaluate()(**values).numpy()
    typed = relay.transform.InferType()(mod)
    np.testing.assert_allclose(found, interpret(typed, values), rtol=1e-4, atol=1e-5)


def test_deformable_convolutions_take_zeros_from_beyond_the_border() -> None:
    x, o, w = (relay.var(n, shape=s) for n, s in (("x", (1, 8, 3, 3)), ("o", (1, 2, 3, 3)), ("w", (8, 8, 1, 1))))
    mod = tvm.IRModule.from_expr(relay.nn.deformable_conv2d(x, o, w))
    moves = np.zeros((1, 2, 3, 3), "float32")
    moves[0, 0, 0] = [-1e30, np.inf, 1e9]
    everywhere = np.full((1, 8, 3, 3), np.inf, "float32")
    run = relay.create_executor("graph", mod, tvm.cpu(), "llvm").evaluate()
    found = run(x=everywhere, o=moves, w=np.eye(8, dtype="float32")[..., None, None]).numpy()
    np.testing.assert_array_equal(found[:, :, 0], 0)


def test_deformable_convolutions_change_their_layout() -> None:
    x, o, w = (relay.var(n, shape=s) for n, s in zip("xow", (PLANES.shape, WHOLE.shape, PLAIN.shape), strict=True))
    conv = DEFORMED[1].build(x, o, w)
    convert = relay.transform.ConvertLayout({"nn.deformable_conv2d": ["NHWC", "default"]})
    changed = convert(relay.transform.InferType()(tvm.IRModule.from_expr(conv)))
    assert 'data_layout="NHWC", kernel_layout="HWIO"' in str(changed)
    found = interpret(changed, {"x": PLANES, "o": WHOLE, "w": PLAIN})
    np.testing.assert_allclose(found, DEFORMED[1].expected, rtol=1e-5, atol=1e-5)
