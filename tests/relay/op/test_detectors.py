"""Operators of detectors (anchors, proposals, suppression by class) against plain loops and ONNX's evaluator."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.relay.op.harness import Case, case, check_kernels, check_meaning, check_type, random
from tests.relay.op.test_vision import IMAGE, ROIS, WHOLE, align, by_onnx, pooled

from tilewright import relay
from tilewright.ir.errors import InvalidShapeError, TypeInferenceError, UnsupportedError
from tilewright.relay.type_infer import infer_expr


def prior(height: int, width: int, sizes, ratios, steps=(-1, -1), offsets=(0.5, 0.5), clip=False) -> np.ndarray:
    rows = []
    for i in range(height):
        y = (i + offsets[0]) * (steps[0] if steps[0] > 0 else 1 / height)
        for j in range(width):
            x = (j + offsets[1]) * (steps[1] if steps[1] > 0 else 1 / width)
            shapes = [(s, 1.0) for s in sizes] + [(sizes[0], r) for r in ratios[1:]]
            for size, ratio in shapes:
                w, h = size * height / width * math.sqrt(ratio) / 2, size / math.sqrt(ratio) / 2
                rows.append((x - w, y - h, x + w, y + h))
    boxes = np.array(rows, "float32").reshape(1, -1, 4)
    return np.clip(boxes, 0, 1) if clip else boxes


def located(prob, moves, anchor, clip=True, threshold=0.01, variances=(0.1, 0.1, 0.2, 0.2)):
    batch, _, anchors = prob.shape
    boxes, counts = np.full((batch, anchors, 6), -1, "float32"), np.zeros(batch, "int32")
    for b in range(batch):
        for j in range(anchors):
            best = int(np.argmax(prob[b, 1:, j]))
            score = prob[b, 1 + best, j]
            if score < threshold:
                continue
            left, top, right, bottom = anchor[0, j]
            w, h, x, y = right - left, bottom - top, (left + right) / 2, (top + bottom) / 2
            d = moves[b, 4 * j : 4 * j + 4] * variances
            cx, cy, hw, hh = d[0] * w + x, d[1] * h + y, np.exp(d[2]) * w / 2, np.exp(d[3]) * h / 2
            corners = np.array([cx - hw, cy - hh, cx + hw, cy + hh])
            boxes[b, counts[b]] = [best, score, *(np.clip(corners, 0, 1) if clip else corners)]
            counts[b] += 1
    return boxes, counts


ANCHORS = prior(3, 2, (0.4, 0.7), (1.0, 2.0))
PROB = np.abs(random(2, 4, 18))
MOVES = random(2, 72, seed=1)

# Faster R-CNN's anchors of its three ratios on a base of 16 pixels, as its authors list them (scale 8)
AUTHORS = {0.5: (-84, -40, 99, 55), 1.0: (-56, -56, 71, 71), 2.0: (-36, -80, 51, 95)}


def test_anchors_are_those_of_the_paper() -> None:
    from tilewright.topi.vision.rcnn import generate_anchor

    for ratio, expected in AUTHORS.items():
        assert generate_anchor(ratio, 8, 16) == tuple(float(v) for v in expected)


def proposed(prob, moves, info, scale, wanted, threshold, least, corners):
    """One anchor a pixel, of ratio 1; loops over the 12 best boxes."""
    rows = []
    for b in range(len(prob)):
        tall, wide, factor = info[b]
        found = []
        for i in range(prob.shape[2]):
            for j in range(prob.shape[3]):
                half, x, y = (16 * scale - 1) / 2, 7.5 + 16 * j, 7.5 + 16 * i
                box = np.array([x - half, y - half, x + half, y + half])
                d = moves[b, :, i, j].astype("float64")
                if corners:
                    box = box + d
                else:
                    size = 16 * scale
                    x, y, w, h = x + d[0] * size, y + d[1] * size, np.exp(d[2]) * size, np.exp(d[3]) * size
                    box = np.array([x - (w - 1) / 2, y - (h - 1) / 2, x + (w - 1) / 2, y + (h - 1) / 2])
                box = np.clip(box, 0, np.array([wide, tall, wide, tall]) - 1)
                score = prob[b, 1, i, j]
                if min(box[2] - box[0], box[3] - box[1]) + 1 < least * factor:
                    box, score = box + least * factor / 2 * np.array([-1, -1, 1, 1]), -1
                if i >= int(tall / 16) or j >= int(wide / 16):
                    score = -1
                found.append((score, box))
        found.sort(key=lambda item: -item[0])
        kept: list[np.ndarray] = []
        for _, box in found[:12]:
            if all(shared(box, other) <= threshold for other in kept):
                kept.append(box)
        rows += [[b, *kept[k % len(kept)]] for k in range(wanted)]
    return np.array(rows, "float32")


def shared(a: np.ndarray, b: np.ndarray) -> float:
    w, h = (max(0.0, min(a[i + 2], b[i + 2]) - max(a[i], b[i]) + 1) for i in (0, 1))
    area = [(c[2] - c[0] + 1) * (c[3] - c[1] + 1) for c in (a, b)]
    return w * h / (sum(area) - w * h)


SCORES = np.random.default_rng(3).permutation(2 * 2 * 3 * 5).reshape(2, 2, 3, 5).astype("float32") / 60
DELTAS = random(2, 4, 3, 5, seed=4)
SIZES = np.array([[48, 80, 1], [40, 60, 1.5]], "float32")


def propose(corners: bool, wanted: int = 6):
    return lambda p, d, i: relay.vision.proposal(p, d, i, [2], [1], 16, 0.4, 12, wanted, 8, corners)


def chosen(corners: bool, wanted: int = 6) -> np.ndarray:
    return proposed(SCORES, DELTAS, SIZES, 2, wanted, 0.4, 8, corners)


BOXES = np.random.default_rng(5).uniform(0, 1, (2, 11, 4)).astype("float32")
CLASSES = np.random.default_rng(6).permutation(2 * 3 * 11).reshape(2, 3, 11).astype("float32") / 66


def by_class(limit: int, share: float, least: float) -> np.ndarray:
    values = [BOXES, CLASSES, np.array([limit], "int64"), np.array([share], "float32"), np.array([least], "float32")]
    found = by_onnx("NonMaxSuppression", ["boxes", "scores", "n", "iou", "score"], values)
    return found[np.lexsort((-CLASSES[tuple(found.T)], found[:, 1], found[:, 0]))]


def listed(limit: int, share: float, least: float) -> tuple[np.ndarray, np.ndarray]:
    found = by_class(limit, share, least)
    return np.concatenate([found, np.zeros((66 - len(found), 3), "int64")]), np.array([len(found)], "int64")


def listed_by_batch(limit: int, share: float, least: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    places, scores, counts = np.zeros((2, 33, 2), "int64"), np.zeros((2, 33), "float32"), np.zeros(2, "int64")
    for b, c, k in by_class(limit, share, least):
        places[b, counts[b]], scores[b, counts[b]] = (c, k), CLASSES[b, c, k]
        counts[b] += 1
    return places, scores, counts


def suppress(limit: int, share: float, least: float, form: str = "onnx"):
    return lambda b, s: relay.vision.all_class_non_max_suppression(b, s, limit, share, least, form)


LAST = np.ascontiguousarray(np.moveaxis(IMAGE, 1, 3))
CASES = [
    case("anchors", lambda x: relay.vision.multibox_prior(x), [random(2, 3, 5, 7)], prior(5, 7, (1,), (1,))),
    case(
        "anchors of several sizes and ratios",
        lambda x: relay.vision.multibox_prior(x, (0.3, 1.5), (1.3, 2.4, 0.7), (2, 1.5), (0.2, 0.3), True),
        [random(1, 1, 4, 3)],
        prior(4, 3, (0.3, 1.5), (1.3, 2.4, 0.7), (2, 1.5), (0.2, 0.3), True),
    ),
    case(
        "boxes from predictions",
        lambda p, m, a: relay.vision.multibox_transform_loc(p, m, a),
        [PROB, MOVES, ANCHORS],
        located(PROB, MOVES, ANCHORS),
    ),
    case(
        "boxes of enough score, unclipped",
        lambda p, m, a: relay.vision.multibox_transform_loc(p, m, a, False, 0.8, (1, 1, 0.5, 0.5)),
        [PROB, MOVES, ANCHORS],
        located(PROB, MOVES, ANCHORS, False, 0.8, (1, 1, 0.5, 0.5)),
    ),
    case("proposals", propose(False), [SCORES, DELTAS, SIZES], chosen(False), rtol=1e-4, atol=1e-4),
    case("proposals by corners", propose(True), [SCORES, DELTAS, SIZES], chosen(True), rtol=1e-4, atol=1e-4),
    case("proposals again", propose(False, 19), [SCORES, DELTAS, SIZES], chosen(False, 19), rtol=1e-4, atol=1e-4),
    case("suppression by class", suppress(99, 0.3, 0.1), [BOXES, CLASSES], listed(99, 0.3, 0.1)),
    case("suppression by class, any number", suppress(-1, 0.5, -1.0), [BOXES, CLASSES], listed(99, 0.5, -1.0)),
    case("suppression by class, two", suppress(2, 0.3, 0.5), [BOXES, CLASSES], listed(2, 0.3, 0.5)),
    case("suppression by class, none", suppress(0, 0.3, 0.5), [BOXES, CLASSES], listed(0, 0.3, 0.5)),
    case(
        "suppression by class, as TensorFlow",
        suppress(3, 0.3, 0.2, "tensorflow"),
        [BOXES, CLASSES],
        listed_by_batch(3, 0.3, 0.2),
    ),
    case(
        "roi_align of NHWC",
        lambda x, r: relay.vision.roi_align(x, r, (3, 2), 0.5, 2, layout="NHWC"),
        [LAST, ROIS],
        np.moveaxis(align((3, 2), 0.5, 2), 1, 3),
        rtol=1e-4,
    ),
    case(
        "roi_pool of NHWC",
        lambda x, r: relay.vision.roi_pool(x, r, 2, 1.0, "NHWC"),
        [LAST, np.array(WHOLE, "float32")],
        np.moveaxis(pooled(2), 1, 3),
    ),
]


@pytest.mark.parametrize("item", CASES, ids=str)
def test_type(item: Case) -> None:
    check_type(item)


@pytest.mark.parametrize("item", CASES, ids=str)
def test_meaning(item: Case) -> None:
    check_meaning(item)


def test_kernels() -> None:
    check_kernels(CASES)


def test_regions_are_pooled_in_two_layouts() -> None:
    with pytest.raises(UnsupportedError, match="NCHW or NHWC, found 'CHWN'"):
        relay.vision.roi_align(relay.var("x"), relay.var("r"), 2, 1.0, layout="CHWN")


def test_channels_of_a_proposal_are_those_of_its_anchors() -> None:
    p, d, i = relay.var("p", shape=(1, 4, 2, 2)), relay.var("d", shape=(1, 4, 2, 2)), relay.var("i", shape=(1, 3))
    with pytest.raises(TypeInferenceError, match="channels of cls_prob"):
        infer_expr(propose(False)(p, d, i))


def test_kernels_of_a_single_shot_detector_follow_one_another() -> None:
    from tests.topi.harness import evaluate

    from tilewright import topi

    def detect(p, m, a):
        return topi.vision.ssd.multibox_detection(p, m, a, nms_threshold=0.2)

    found = evaluate(detect, PROB, MOVES, ANCHORS, schedule=topi.generic.schedule_multibox_detection)
    for b in range(2):
        rows = [row for row in found[b] if row[1] > 0]
        assert rows and len(rows) < 18
        for one in rows:
            assert one[1] == pytest.approx(max(PROB[b, int(one[0]) + 1][PROB[b, int(one[0]) + 1] <= one[1] + 1e-6]))
    with pytest.raises(InvalidShapeError, match="18 anchors have predictions of shape"):
        evaluate(detect, PROB, MOVES[:, :71], ANCHORS)
