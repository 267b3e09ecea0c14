"""Operators of object detection against the ONNX reference evaluator and torch."""

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from onnx.reference import ReferenceEvaluator
from tests.relay.op.harness import Case, case, check_kernels, check_meaning, check_type, random

from tilewright import relay


def by_onnx(op: str, names: list[str], values: list[np.ndarray], **attributes: object) -> np.ndarray:
    node = onnx.helper.make_node(op, names, ["y"], **attributes)
    infos = [
        onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for n, v in zip(names, values, strict=True)
    ]
    graph = onnx.helper.make_graph([node], "g", infos, [onnx.helper.make_tensor_value_info("y", 1, None)])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)])
    return ReferenceEvaluator(model).run(None, dict(zip(names, values, strict=True)))[0]


def boxes(count: int, seed: int = 0) -> np.ndarray:
    """Rows (class, score, left, top, right, bottom), of classes 0 to 2 and distinct scores."""
    draw = np.random.default_rng(seed)
    corner, size = draw.uniform(0, 10, (count, 2)), draw.uniform(2, 6, (count, 2))
    classes, scores = draw.integers(0, 3, (count, 1)), draw.permutation(count).reshape(-1, 1) / count + 0.01
    return np.concatenate([classes, scores, corner, corner + size], 1).astype("float32")


ROWS = np.stack([boxes(25), boxes(25, 1)])
COUNTS = np.array([25, 19], "int32")
PLACES = np.tile(np.arange(25, dtype="int32"), (2, 1))


def chosen(limit: int = -1, threshold: float = 0.3, force: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """What ONNX's NonMaxSuppression chooses, in order of score."""
    indices, number = np.full((2, 25), -1, "int32"), np.zeros((2, 1), "int32")
    for b in range(2):
        rows = ROWS[b, : COUNTS[b]]
        scores = np.zeros((1, 1 if force else 3, len(rows)), "float32")
        scores[0, 0 if force else rows[:, 0].astype(int), np.arange(len(rows))] = rows[:, 1]
        values = [
            rows[None, :, 2:],
            scores,
            np.array([99], "int64"),
            np.array([threshold], "float32"),
            np.array([0.001], "float32"),
        ]
        found = by_onnx("NonMaxSuppression", ["boxes", "scores", "n", "iou", "score"], values)[:, 2]
        found = found[np.argsort(-rows[found, 1])][: None if limit < 0 else limit]
        indices[b, : len(found)], number[b] = found, len(found)
    return indices, number


def suppressed(**options: object) -> object:
    return lambda x, n, i: relay.vision.non_max_suppression(x, n, i, **options)


def valid(threshold: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    count, rows, places = [], np.full_like(ROWS, -1), np.full((2, 25), -1, "int32")
    for b in range(2):
        found = [i for i in range(25) if ROWS[b, i, 1] > threshold]
        rows[b, : len(found)], places[b, : len(found)] = ROWS[b, found], found
        count.append(len(found))
    return np.array(count, "int32"), rows, places


FIRST = np.where(chosen()[0][..., None] >= 0, np.take_along_axis(ROWS, chosen()[0][..., None].astype(int), 1), -1)
IMAGE = random(2, 3, 12, 10)
ROIS = np.array([[0, 1, 2, 9, 7], [1, 0, 0, 3, 3], [1, -2, 4, 30, 11], [0, 5, 5, 5.5, 5.2]], "float32")


def align(size: tuple[int, int], scale: float, ratio: int, mode: str = "avg") -> np.ndarray:
    values = [IMAGE, ROIS[:, 1:], ROIS[:, 0].astype("int64")]
    return by_onnx(
        "RoiAlign", ["x", "rois", "batch"], values, output_height=size[0], output_width=size[1], spatial_scale=scale,
        sampling_ratio=max(ratio, 0), mode=mode, coordinate_transformation_mode="output_half_pixel",
    ).astype("float32")  # fmt: skip


def pooled(cells: int) -> np.ndarray:
    """Regions of whole pixels whose size the cells divide, pooled by torch."""
    parts = [
        F.adaptive_max_pool2d(torch.from_numpy(IMAGE[b : b + 1, :, t : e + 1, s : f + 1]), cells)
        for b, s, t, f, e in WHOLE
    ]
    return torch.cat(parts).numpy()


WHOLE = [(0, 1, 2, 6, 7), (1, 0, 0, 3, 5), (1, 4, 4, 9, 11)]
CASES = [
    case("get_valid_counts", lambda x: relay.vision.get_valid_counts(x, 0.4), [ROWS], valid(0.4)),
    case("suppression", suppressed(iou_threshold=0.3), [ROWS, COUNTS, PLACES], chosen()),
    case(
        "suppression across classes",
        suppressed(iou_threshold=0.3, force_suppress=True),
        [ROWS, COUNTS, PLACES],
        chosen(force=True),
    ),
    case(
        "suppression with a limit", suppressed(iou_threshold=0.3, max_output_size=4), [ROWS, COUNTS, PLACES], chosen(4)
    ),
    case(
        "the boxes that stay",
        suppressed(iou_threshold=0.3, return_indices=False, invalid_to_bottom=True),
        [ROWS, COUNTS, PLACES],
        FIRST,
    ),
    case(
        "the boxes that stay need no indices",
        lambda x, n: relay.vision.non_max_suppression(
            x, n, x, iou_threshold=0.3, return_indices=False, invalid_to_bottom=True
        ),
        [ROWS, COUNTS],
        FIRST,
    ),
    case(
        "roi_align",
        lambda x, r: relay.vision.roi_align(x, r, (3, 2), 0.5, 2),
        [IMAGE, ROIS],
        align((3, 2), 0.5, 2),
        rtol=1e-4,
    ),
    case(
        "roi_align, as many samples as pixels",
        lambda x, r: relay.vision.roi_align(x, r, 3, 1.0),
        [IMAGE, ROIS],
        align((3, 3), 1.0, -1),
        rtol=1e-4,
    ),
    case("roi_pool", lambda x, r: relay.vision.roi_pool(x, r, 2, 1.0), [IMAGE, np.array(WHOLE, "float32")], pooled(2)),
]


@pytest.mark.parametrize("item", CASES, ids=str)
def test_type(item: Case) -> None:
    check_type(item)


@pytest.mark.parametrize("item", CASES, ids=str)
def test_meaning(item: Case) -> None:
    check_meaning(item)


def test_kernels() -> None:
    check_kernels(CASES)
