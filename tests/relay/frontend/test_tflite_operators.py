"""Operators of TensorFlow Lite in float32 and on indices: what the importer makes of them is what LiteRT returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.relay.frontend.tflite_files import Array, interpreted, litert, one_operator

RNG = np.random.default_rng(7)
F, SHAPE = "float32", (2, 3, 4, 5)
Case = tuple[bytes, list[Array]]


def floats(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(F)


def ints(*values: int) -> Array:
    return np.array(values, "int32")


def scalar(value: float, dtype: str = "int32") -> Array:
    return np.array(value, dtype)


X, POSITIVE, BITS = floats(*SHAPE), np.abs(floats(*SHAPE)) + np.float32(0.1), RNG.random((3, 4)) > 0.5
PADS = ints(0, 0, 1, 2, 0, 1, 2, 0).reshape(4, 2)
WHOLE = [
    RNG.integers(-9, 9, (4, 5)).astype("int32"),
    (RNG.integers(1, 5, (4, 5)) * RNG.choice([-1, 1], (4, 5))).astype("int32"),
]
BOXES = [np.cumsum(RNG.random((9, 4)), axis=1).astype(F), RNG.random(9).astype(F)]
CASES: dict[str, Callable[[], Case]] = {}


def add(key: str, *args: Any, **values: Any) -> None:
    name = values.pop("op", key)
    CASES[key] = lambda: one_operator(name, *args, **values)


ONE_TENSOR = [
    "ABS", "CEIL", "COS", "ELU", "EXP", "FLOOR", "HARD_SWISH", "LOGISTIC", "NEG", "RELU", "RELU6", "RELU_N1_TO_1",
    "RELU_0_TO_1", "ROUND", "SIGN", "SIN", "SQUARE", "TANH", "ZEROS_LIKE",
]  # fmt: skip
for name in ONE_TENSOR:
    add(name, [X], [], [(SHAPE, F)])
for name in ("LOG", "RSQRT", "SQRT"):
    add(name, [POSITIVE], [], [(SHAPE, F)])
for name in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"):
    add(name, [np.round(X), np.round(floats(4, 5))], [], [(SHAPE, "bool")])
for name in ("ADD_N", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "FLOOR_DIV", "FLOOR_MOD", "ATAN2"):
    add(name, [X, floats(*SHAPE)], [], [(SHAPE, F)])
for name in ("FLOOR_DIV", "FLOOR_MOD"):
    add(f"{name} of integers", WHOLE, [], [((4, 5), "int32")], op=name)
for name, options in {"ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions", "DIV": "DivOptions"}.items():
    add(name, [X, POSITIVE[0, 0]], [], [(SHAPE, F)], options, fusedActivationFunction=1)
add("DIV of integers", WHOLE, [], [((4, 5), "int32")], "DivOptions", op="DIV")
add("POW", [POSITIVE, floats(*SHAPE)], [], [(SHAPE, F)])
add("POW of integers", [WHOLE[0] // 3, np.abs(WHOLE[1])], [], [((4, 5), "int32")], op="POW")
for name in ("LOGICAL_AND", "LOGICAL_OR"):
    add(name, [BITS, BITS[::-1].copy()], [], [((3, 4), "bool")])
add("LOGICAL_NOT", [BITS], [], [((3, 4), "bool")])
add("BITWISE_XOR", [ints(7, 99, 12, 0), ints(3, 5, 9, 100)], [], [((4,), "int32")])
add("RIGHT_SHIFT", [ints(-77, 5, 900, 64), ints(1, 2, 3, 4)], [], [((4,), "int32")])
for exact in (False, True):
    add(f"GELU {exact}", [X], [], [(SHAPE, F)], "GeluOptions", op="GELU", approximate=not exact)
add("LEAKY_RELU", [X], [], [(SHAPE, F)], "LeakyReluOptions", alpha=0.3)
add("PRELU", [X], [floats(1, 1, 5)], [(SHAPE, F)])
add("SELECT", [np.array([True, False]), floats(2, 3), floats(2, 3)], [], [((2, 3), F)])
add("SELECT_V2", [np.array([[True], [False]]), floats(2, 3), floats(3)], [], [((2, 3), F)])
for kind in ("int32", "int64", "uint8", "bool", "float16"):
    add(f"CAST {kind}", [POSITIVE * 9], [], [(SHAPE, kind)], "CastOptions", op="CAST")
add("FAKE_QUANT", [X], [], [(SHAPE, F)], "FakeQuantOptions", min=-1.1, max=1.7, numBits=8)

# ---- shapes ----
add("RESHAPE", [X], [ints(6, -1)], [((6, 20), F)], "ReshapeOptions", newShape=[6, -1])
add("SQUEEZE", [floats(1, 3, 1, 2)], [], [((3, 1, 2), F)], "SqueezeOptions", squeezeDims=[0])
add("SQUEEZE all", [floats(1, 3, 1, 2)], [], [((3, 2), F)], "SqueezeOptions", op="SQUEEZE")
add("EXPAND_DIMS", [floats(3, 2)], [ints(-1)], [((3, 2, 1), F)])
add("TRANSPOSE", [X], [ints(2, 0, 3, 1)], [((4, 2, 5, 3), F)])
add("CONCATENATION", [floats(2, 3), floats(2, 5)], [], [((2, 8), F)], "ConcatenationOptions", axis=-1)
add("SPLIT", [floats(2, 6)], [scalar(1)], [((2, 2), F)] * 3, "SplitOptions", [1, 0], numSplits=3)
add(
    "SPLIT_V",
    [floats(2, 7)],
    [ints(2, -1, 1), scalar(1)],
    [((2, n), F) for n in (2, 4, 1)],
    "SplitVOptions",
    numSplits=3,
)
add("PACK", [floats(2, 3), floats(2, 3)], [], [((2, 2, 3), F)], "PackOptions", valuesCount=2, axis=1)
add("UNPACK", [floats(2, 3)], [], [((2,), F)] * 3, "UnpackOptions", num=3, axis=1)
add("PAD", [X], [PADS], [((2, 6, 5, 7), F)])
add("PADV2", [X], [PADS, scalar(3.5, F)], [((2, 6, 5, 7), F)])
for mode in (0, 1):
    add(f"MIRROR_PAD {mode}", [X], [PADS], [((2, 6, 5, 7), F)], "MirrorPadOptions", op="MIRROR_PAD", mode=mode)
add("SLICE", [X], [ints(0, 1, 0, 2), ints(2, -1, 3, 2)], [((2, 2, 3, 2), F)])
for key, (begin, end, stride, shape, masks) in {
    "backwards": ((0, 1, 0, -1), (2, 3, 4, -5), (1, 1, 2, -2), (2, 2, 2, 2), {}),
    "open ends": ((0, 1, 0, 3), (0, 2, 4, 0), (1, 1, 1, -1), (2, 1, 4, 4), {"endMask": 9}),
    "shrink": ((0, 1, -1), (0, 2, 4), (1, 1, 1), (2, 5), {"endMask": 1, "shrinkAxisMask": 6}),
    "ellipsis": ((0, 1), (0, 4), (1, 2), (2, 3, 4, 2), {"ellipsisMask": 1}),
    "new axis": ((0, 0, 1), (0, 0, 3), (1, 1, 1), (2, 1, 2, 4, 5), {"beginMask": 1, "endMask": 1, "newAxisMask": 2}),
}.items():
    parts = [ints(*begin), ints(*end), ints(*stride)]
    add(f"STRIDED_SLICE {key}", [X], parts, [(shape, F)], "StridedSliceOptions", op="STRIDED_SLICE", **masks)
add("DYNAMIC_UPDATE_SLICE", [floats(4, 5), floats(2, 3), ints(3, -1)], [], [((4, 5), F)])
add("TILE", [floats(2, 3)], [ints(2, 3)], [((4, 9), F)])
add("BROADCAST_ARGS", [], [ints(2, 1), ints(3, 1, 4)], [((3,), "int32")])
add("REVERSE_V2", [floats(2, 3)], [ints(1)], [((2, 3), F)])
add("REVERSE_SEQUENCE", [floats(3, 4, 2), ints(2, 4, 1)], [], [((3, 4, 2), F)], "ReverseSequenceOptions", seqDim=1)
add("SPACE_TO_BATCH_ND", [floats(1, 4, 6, 2)], [ints(2, 3), ints(0, 0, 2, 1).reshape(2, 2)], [((6, 2, 3, 2), F)])
add("BATCH_TO_SPACE_ND", [floats(6, 2, 3, 2)], [ints(2, 3), ints(0, 0, 2, 1).reshape(2, 2)], [((1, 4, 6, 2), F)])
add("SPACE_TO_DEPTH", [floats(1, 4, 6, 3)], [], [((1, 2, 3, 12), F)], "SpaceToDepthOptions", blockSize=2)
add("DEPTH_TO_SPACE", [floats(1, 2, 3, 12)], [], [((1, 4, 6, 3), F)], "DepthToSpaceOptions", blockSize=2)
add("SHAPE", [X], [], [((4,), "int32")], "ShapeOptions", outType=2)
add("RANK", [X], [], [((), "int32")])
add("FILL", [scalar(2, F)], [ints(2, 3)], [((2, 3), F)], "", [1, 0])
add("RANGE", [], [scalar(3), scalar(10), scalar(2)], [((4,), "int32")])

# ---- indices ----
add("GATHER", [X, ints(2, 0)], [], [((2, 2, 4, 5), F)], "GatherOptions", axis=1)
add(
    "GATHER of batches",
    [floats(2, 4, 3), ints(2, 0, 1, 1).reshape(2, 2)],
    [],
    [((2, 2, 3), F)],
    "GatherOptions",
    op="GATHER",
    axis=1,
    batchDims=1,
)
add("GATHER_ND", [X, ints(1, 2, 0, 1).reshape(2, 2)], [], [((2, 4, 5), F)])
add("SCATTER_ND", [floats(3, 2)], [ints(1, 4, 1).reshape(3, 1), ints(5, 2)], [((5, 2), F)], "", [1, 0, 2])
add("ONE_HOT computed", [ints(1, 0, 3), scalar(2, F), scalar(-1, F)], [scalar(4)], [((3, 4), F)], "OneHotOptions",
    [0, 3, 1, 2], op="ONE_HOT", axis=-1)  # fmt: skip
add("ONE_HOT", [ints(1, 0, 3)], [scalar(4), scalar(2, F), scalar(-1, F)], [((3, 4), F)], "OneHotOptions", axis=-1)
add("TOPK_V2", [floats(3, 6)], [scalar(2)], [((3, 2), F), ((3, 2), "int32")])
add(
    "SPARSE_TO_DENSE",
    [floats(2)],
    [ints(0, 1, 2, 0).reshape(2, 2), ints(3, 2), scalar(9, F)],
    [((3, 2), F)],
    "",
    [1, 2, 0, 3],
)
add("MATRIX_DIAG", [floats(2, 3)], [], [((2, 3, 3), F)])
add("MATRIX_SET_DIAG", [floats(2, 3, 3), floats(2, 3)], [], [((2, 3, 3), F)])
add("SEGMENT_SUM", [floats(4, 2)], [ints(0, 0, 1, 2)], [((3, 2), F)])
add("UNSORTED_SEGMENT_SUM", [floats(4, 2)], [ints(2, 0, 2, 1), scalar(3)], [((3, 2), F)])
add("BUCKETIZE", [X], [], [(SHAPE, "int32")], "BucketizeOptions", boundaries=[-1.0, 0.0, 0.5])
add("EMBEDDING_LOOKUP", [ints(2, 0)], [floats(4, 3)], [((2, 3), F)])
LIMITS = [scalar(4), scalar(0.3, F), scalar(0.2, F)]
add("NON_MAX_SUPPRESSION_V4", BOXES, LIMITS, [((4,), "int32"), ((), "int32")])
add("NON_MAX_SUPPRESSION_V5", BOXES, [*LIMITS, scalar(0, F)], [((4,), "int32"), ((4,), F), ((), "int32")])

# ---- reductions ----
for name, options in {"ARG_MAX": "ArgMaxOptions", "ARG_MIN": "ArgMinOptions"}.items():
    add(name, [X], [ints(2)], [((2, 3, 5), "int64")], options, outputType=4)
for exclusive in (False, True):
    for reverse in (False, True):
        add(
            f"CUMSUM {exclusive} {reverse}",
            [floats(3, 4)],
            [ints(1)],
            [((3, 4), F)],
            "CumsumOptions",
            op="CUMSUM",
            exclusive=exclusive,
            reverse=reverse,
        )
for name in ("MEAN", "SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN"):
    add(name, [X], [ints(1, 3)], [((2, 4), F)], "ReducerOptions")
for name in ("REDUCE_ANY", "REDUCE_ALL"):
    add(name, [BITS], [ints(1)], [((3,), "bool")], "ReducerOptions")
add("SOFTMAX", [floats(3, 7)], [], [((3, 7), F)], "SoftmaxOptions", beta=0.7)
add("LOG_SOFTMAX", [floats(3, 7)], [], [((3, 7), F)])
add("L2_NORMALIZATION", [X], [], [(SHAPE, F)], "L2NormOptions")
add(
    "LOCAL_RESPONSE_NORMALIZATION",
    [X],
    [],
    [(SHAPE, F)],
    "LocalResponseNormalizationOptions",
    radius=1,
    bias=1.0,
    alpha=0.3,
    beta=0.6,
)

# ---- products ----
for left in (False, True):
    for right in (False, True):
        a, b = floats(2, 1, *((4, 3) if left else (3, 4))), floats(3, *((5, 4) if right else (4, 5)))
        add(
            f"BATCH_MATMUL {left} {right}",
            [a, b],
            [],
            [((2, 3, 3, 5), F)],
            "BatchMatMulOptions",
            op="BATCH_MATMUL",
            adjX=left,
            adjY=right,
        )
add(
    "BATCH_MATMUL by a matrix",
    [floats(2, 3, 4)],
    [floats(4, 5)],
    [((2, 3, 5), F)],
    "BatchMatMulOptions",
    op="BATCH_MATMUL",
)
DENSE = "FullyConnectedOptions"
add("FULLY_CONNECTED", [floats(3, 8)], [floats(5, 8), floats(5)], [((3, 5), F)], DENSE, fusedActivationFunction=1)
add(
    "FULLY_CONNECTED of ranks",
    [floats(2, 3, 8)],
    [floats(5, 8)],
    [((2, 3, 5), F)],
    DENSE,
    [0, 1, -1],
    op="FULLY_CONNECTED",
    keepNumDims=True,
)
add(
    "FULLY_CONNECTED computed", [floats(3, 8), floats(5, 8)], [], [((3, 5), F)], DENSE, [0, 1, -1], op="FULLY_CONNECTED"
)
for kind, stride, size in ((0, 2, (6, 8)), (1, 2, (7, 9)), (1, 1, (5, 6)), (0, 2, (5, 7))):
    weights = [ints(1, *size, 6), floats(6, 3, 3, 5), floats(6)]
    add(
        f"TRANSPOSE_CONV {kind} {stride} {size}",
        [floats(1, 3, 4, 5)],
        weights,
        [((1, *size, 6), F)],
        "TransposeConvOptions",
        [1, 2, 0, 3],
        op="TRANSPOSE_CONV",
        padding=kind,
        strideW=stride,
        strideH=stride,
    )
STRIDES = {"strideD": 2, "strideW": 2, "strideH": 2}
add(
    "CONV_3D",
    [floats(1, 4, 5, 6, 3)],
    [floats(2, 3, 3, 3, 7), floats(7)],
    [((1, 2, 3, 3, 7), F)],
    "Conv3DOptions",
    **STRIDES,
)
add(
    "CONV_3D_TRANSPOSE",
    [floats(1, 2, 3, 3, 7)],
    [ints(1, 4, 6, 6, 3), floats(2, 2, 2, 3, 7)],
    [((1, 4, 6, 6, 3), F)],
    "Conv3DOptions",
    [1, 2, 0],
    **STRIDES,
)

# ---- images ----
for kind, stride, dilation in ((0, 1, 1), (0, 2, 1), (1, 1, 2), (1, 3, 1)):
    values = {
        "padding": kind,
        "strideH": stride,
        "strideW": stride,
        "dilationHFactor": dilation,
        "dilationWFactor": dilation,
    }
    size = 8 if kind == 0 and stride == 1 else 4 if kind == 0 else 4 if dilation == 2 else 2
    key = f"{kind} {stride} {dilation}"
    add(
        f"CONV_2D {key}",
        [floats(1, 8, 8, 3)],
        [floats(5, 3, 3, 3), floats(5)],
        [((1, size, size, 5), F)],
        "Conv2DOptions",
        op="CONV_2D",
        fusedActivationFunction=3,
        **values,
    )
    add(
        f"DEPTHWISE_CONV_2D {key}",
        [floats(1, 8, 8, 3)],
        [floats(1, 3, 3, 6), floats(6)],
        [((1, size, size, 6), F)],
        "DepthwiseConv2DOptions",
        op="DEPTHWISE_CONV_2D",
        depthMultiplier=2,
        **values,
    )
add(
    "CONV_2D in groups",
    [floats(1, 5, 5, 4)],
    [floats(6, 3, 3, 2), floats(6)],
    [((1, 5, 5, 6), F)],
    "Conv2DOptions",
    op="CONV_2D",
    strideW=1,
    strideH=1,
)
for name in ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"):
    for kind, size in ((0, 5), (1, 4)):
        add(
            f"{name} {kind}",
            [floats(1, 9, 9, 3)],
            [],
            [((1, size, size, 3), F)],
            "Pool2DOptions",
            op=name,
            padding=kind,
            strideW=2,
            strideH=2,
            filterWidth=3,
            filterHeight=3,
        )
for name, options in {
    "RESIZE_BILINEAR": "ResizeBilinearOptions",
    "RESIZE_NEAREST_NEIGHBOR": "ResizeNearestNeighborOptions",
}.items():
    for flags in ({}, {"alignCorners": True}, {"halfPixelCenters": True}):
        for size in ((8, 12), (3, 5), (1, 1)):
            add(
                f"{name} {flags} {size}",
                [floats(1, 4, 6, 5)],
                [ints(*size)],
                [((1, *size, 5), F)],
                options,
                op=name,
                **flags,
            )


@pytest.mark.parametrize("name", CASES)
def test_an_operator_means_what_litert_computes(name: str) -> None:
    data, inputs = CASES[name]()
    wanted, found = litert(data, inputs), interpreted(data, inputs)
    for want, got in zip(wanted, found, strict=True):
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        if want.dtype.kind == "f":
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
        else:
            np.testing.assert_array_equal(got, want)


def test_broadcast_to_repeats_dimensions_of_one() -> None:
    data, inputs = one_operator("BROADCAST_TO", [floats(2, 1)], [ints(3, 2, 4)], [((3, 2, 4), F)])
    np.testing.assert_array_equal(interpreted(data, inputs)[0], np.broadcast_to(inputs[0], (3, 2, 4)))
