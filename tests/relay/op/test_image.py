"""Resizing against torch and the ONNX reference evaluator."""

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from onnx.reference import ReferenceEvaluator
from tests.relay.op.harness import Case, case, check_kernels, check_meaning, check_type, random

from tilewright import relay

X = random(1, 2, 5, 7)


def by_onnx(x: np.ndarray, size: tuple[int, ...], **attributes: object) -> np.ndarray:
    """ONNX's Resize of the last dimensions."""
    sizes = np.array([*x.shape[:2], *size], "int64")
    node = onnx.helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], **attributes)
    info = [onnx.helper.make_tensor_value_info("x", 1, x.shape)]
    graph = onnx.helper.make_graph(
        [node],
        "g",
        info,
        [onnx.helper.make_tensor_value_info("y", 1, None)],
        [onnx.numpy_helper.from_array(sizes, "sizes")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)])
    return ReferenceEvaluator(model).run(None, {"x": x})[0].astype("float32")


def torch_linear(size: tuple[int, int], align: bool) -> np.ndarray:
    return F.interpolate(torch.from_numpy(X), size, mode="bilinear", align_corners=align).numpy()


CASES = [
    case("linear, half_pixel", lambda x: relay.image.resize2d(x, (9, 4)), [X], torch_linear((9, 4), False)),
    case(
        "linear, align_corners",
        lambda x: relay.image.resize2d(x, (10, 14), coordinate_transformation_mode="align_corners"),
        [X],
        torch_linear((10, 14), True),
    ),
    case(
        "linear, asymmetric",
        lambda x: relay.image.resize2d(x, (8, 9), coordinate_transformation_mode="asymmetric"),
        [X],
        by_onnx(X, (8, 9), mode="linear", coordinate_transformation_mode="asymmetric"),
    ),
    case(
        "nearest, floor",
        lambda x: relay.image.resize2d(
            x, (10, 21), method="nearest_neighbor", coordinate_transformation_mode="asymmetric", rounding_method="floor"
        ),
        [X],
        by_onnx(X, (10, 21), mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
    ),
    case(
        "nearest, round_prefer_floor",
        lambda x: relay.image.resize2d(x, (8, 3), method="nearest_neighbor", rounding_method="round_prefer_floor"),
        [X],
        by_onnx(X, (8, 3), mode="nearest", nearest_mode="round_prefer_floor"),
    ),
    case(
        "cubic",
        lambda x: relay.image.resize2d(x, (9, 11), method="cubic", cubic_alpha=-0.75),
        [X],
        F.interpolate(torch.from_numpy(X), (9, 11), mode="bicubic").numpy(),
        rtol=1e-4,
    ),
    case(
        "cubic that leaves out what is outside",
        lambda x: relay.image.resize2d(x, (9, 11), method="cubic", cubic_exclude=1),
        [X],
        by_onnx(X, (9, 11), mode="cubic", cubic_coeff_a=-0.5, exclude_outside=1),
        rtol=1e-4,
        atol=1e-4,
    ),
    case(
        "NHWC",
        lambda x: relay.image.resize2d(x, (9, 4), "NHWC"),
        [X.transpose(0, 2, 3, 1)],
        torch_linear((9, 4), False).transpose(0, 2, 3, 1),
    ),
    case(
        "1-D",
        lambda x: relay.image.resize1d(x, (9,)),
        [X[0]],
        F.interpolate(torch.from_numpy(X[0]), 9, mode="linear").numpy(),
    ),
    case(
        "3-D",
        lambda x: relay.image.resize3d(x, (4, 6, 3)),
        [random(1, 2, 3, 4, 5)],
        F.interpolate(torch.from_numpy(random(1, 2, 3, 4, 5)), (4, 6, 3), mode="trilinear").numpy(),
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
