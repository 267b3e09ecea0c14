"""Operators at the edges of their definitions: empty results, extreme attributes, windows in the padding.

Each test compiles one model with a node for each case and compares with ONNX Runtime, or with the specification's text
where the two differ (docs/onnx.md).
"""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from onnx import helper
from tests.relay.frontend.node_cases import Cases

import tilewright as tvm

Array = np.ndarray
RANDOM = np.random.default_rng(0)


FAR = [-(2**63), -(2**31), 2**31 - 1, 2**63 - 1]


def sliced(x: Array, start: int, stop: int, step: int) -> Array:
    """Slice as ONNX's text has it: bounds are counted from the end, clamped, and walked."""
    dim = len(x)
    start, stop = start + dim if start < 0 else start, stop + dim if stop < 0 else stop
    if step > 0:
        start, stop = min(max(start, 0), dim), min(max(stop, 0), dim)
    else:
        start, stop = min(max(start, 0), dim - 1), min(max(stop, -1), dim - 1)
    taken = []
    while start < stop if step > 0 else start > stop:
        taken.append(x[start])
        start += step
    return np.array(taken, x.dtype)


@pytest.mark.parametrize("extent", [0, 1, 3])
def test_slice_of_any_bounds_and_step(extent: int) -> None:
    x = np.arange(extent, dtype="float32") + 1
    shared, peculiar = Cases(), Cases()
    bounds = [*FAR, *range(-extent - 1, extent + 2)]
    every = list(itertools.product(bounds, bounds, [-(2**63), -2, -1, 1, 2, 2**63 - 1]))
    for start, stop, step in every if extent < 3 else every[::5]:
        # ONNX Runtime takes these ends of a backward slice for "past the front", and slices one element out of none.
        cases = peculiar if step < 0 and (stop >= 2**31 - 1 or extent == 0) else shared
        cases.add("Slice", [x, *(np.array([v]) for v in (start, stop, 0, step))], weights=(1, 2, 3, 4))
        cases.expected.append(sliced(x, start, stop, step))
    shared.check(shared.in_onnxruntime(), shared.expected)
    for cases in (shared, peculiar):
        cases.check(cases.by_numpy_meaning(), cases.expected)


def test_slices_compiled() -> None:
    x = np.arange(35, dtype="float32").reshape(5, 7)
    cases, expected = Cases(), []
    for start, stop, step in [
        (-20, -2, -1),
        (-20, -20, -1),
        (-1, -(2**63), -2),
        (2, 2**63 - 1, 3),
        (-9, 3, 2),
        (4, 1, 1),
    ]:
        cases.add("Slice", [x, *(np.array([v]) for v in (start, stop, 1, step))], weights=(1, 2, 3, 4))
        expected.append(np.stack([sliced(row, start, stop, step) for row in x]))
    cases.check(cases.compiled(), expected)


def test_top_k_of_none_to_all() -> None:
    cases = Cases()
    for shape, axis in (((5,), 0), ((3, 7), 1), ((3, 7), 0), ((2, 1, 3), 1)):
        x = RANDOM.permutation(np.arange(np.prod(shape), dtype="float32")).reshape(shape)
        for k in {0, 1, shape[axis]}:
            for largest in (0, 1):
                cases.add("TopK", [x, np.array([k])], (1,), ["float32", "int64"], axis=axis, largest=largest)
    cases.check(cases.compiled(), cases.in_onnxruntime())


def test_more_than_all_are_refused() -> None:
    cases = Cases()
    cases.add("TopK", [np.zeros(3, "float32"), np.array([4])], (1,), ["float32", "int64"])
    with pytest.raises(tvm.TVMError, match="k is 4, but axis 0 has 3 elements"):
        cases.imported()


NAN, INF = np.nan, np.inf
ROWS = np.array(
    [
        [-INF, -INF, -INF, -INF, -INF], [INF, INF, INF, INF, INF], [-INF, 1, -INF, 1, 0], [INF, 1, -INF, INF, -INF],
        [1, NAN, 2, NAN, 3], [NAN, NAN, NAN, NAN, NAN], [NAN, INF, -INF, 0, 1], [-INF, INF, 0, 1, NAN],
        [0, -0.0, 0, -0.0, 0],
    ],
    "float32",
)  # fmt: skip


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_positions_of_infinities_and_nan(dtype: str, last: int) -> None:
    """NaN is the extreme, as in numpy and in the reference evaluator; ONNX Runtime skips it."""
    cases = Cases()
    for op_type, axis in itertools.product(("ArgMax", "ArgMin"), (0, 1)):
        data = ROWS.astype(dtype) if axis else ROWS.T.astype(dtype)
        cases.add(op_type, [data], outs=["int64"], axis=axis, select_last_index=last)
    if not last:
        cases.add("Hardmax", [ROWS.astype(dtype)])
    cases.check(cases.compiled(), cases.in_reference())
    cases.check(cases.by_numpy_meaning(), cases.in_reference())


EMPTY = [((0,), None), ((2, 0), (1,)), ((0, 3), (0,)), ((0, 3), None), ((2, 0, 3), (1, 2)), ((2, 0, 3), (0,))]


@pytest.mark.parametrize("weights", [(1,), (0, 1)], ids=["fed", "folded"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int32", "int64", "uint8", "uint64", "bool"])
def test_extremes_of_nothing_are_the_ends_of_the_type(dtype: str, weights: tuple[int, ...]) -> None:
    """As the text of ReduceMax and ReduceMin has it; the oracle is numpy's reduction from that end."""
    cases, expected = Cases(opset=20), []
    ends = (False, True) if dtype == "bool" else (-INF, INF)
    if dtype[0] in "iu":
        ends = (np.iinfo(dtype).min, np.iinfo(dtype).max)
    for shape, axes in EMPTY:
        for op_type, function, end in (("ReduceMax", np.max, ends[0]), ("ReduceMin", np.min, ends[1])):
            given = None if axes is None else np.array(axes)
            cases.add(op_type, [np.zeros(shape, dtype), given], weights, keepdims=0)
            expected.append(function(np.zeros(shape, dtype), axis=axes, initial=end).astype(dtype))
        if dtype[0] == "f":
            cases.add("ReduceLogSumExp", [np.zeros(shape, dtype), given], weights, keepdims=0)
            expected.append(np.full(expected[-1].shape, -INF, dtype))
    cases.check(cases.compiled(), [np.asarray(e) for e in expected])


@pytest.mark.parametrize("weights", [(), (0,)], ids=["fed", "folded"])
def test_positions_in_no_rows(weights: tuple[int, ...]) -> None:
    """There are none, whether rows have elements or not."""
    cases, expected = Cases(), []
    for shape, axis, keepdims in itertools.product([(0, 0), (0, 3), (2, 0, 0)], (0, 1, -1), (0, 1)):
        out = [1 if i == axis % len(shape) else d for i, d in enumerate(shape) if keepdims or i != axis % len(shape)]
        if 0 in out:
            cases.add("ArgMax", [np.zeros(shape, "float32")], weights, ["int64"], axis=axis, keepdims=keepdims)
            expected.append(np.zeros(out, "int64"))
    cases.check(cases.compiled(), expected)


def test_flatten_of_nothing() -> None:
    cases, expected = Cases(), []
    for shape in [(0,), (0, 3), (3, 0), (2, 0, 3), (0, 0)]:
        for axis in range(-len(shape), len(shape) + 1):
            at = axis % len(shape) if axis < 0 else axis
            cases.add("Flatten", [np.zeros(shape, "float32")], axis=axis)
            expected.append(np.zeros((int(np.prod(shape[:at])), int(np.prod(shape[at:]))), "float32"))
    cases.check(cases.compiled(), expected)


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64"])
def test_gemm_of_sums_of_nothing(target: str) -> None:
    cases, expected = Cases(), []
    for rows, inner, columns, turned in itertools.product((0, 7), (0, 2), (1, 13), (0, 1)):
        a, b = np.ones((rows, inner), "float32"), np.ones((columns, inner) if turned else (inner, columns), "float32")
        c = np.arange(columns, dtype="float32")
        cases.add("Gemm", [a, b], transB=turned)
        cases.add("Gemm", [a, b, c], transB=turned)
        expected += [np.full((rows, columns), inner, "float32"), np.full((rows, columns), inner, "float32") + c]
    cases.check(cases.compiled(target=target), expected)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("uint32", 2**32 - 1), ("int64", -(2**63)), ("uint64", 2**64 - 1), ("float64", 0.1), ("float64", 1e300)],
)
def test_padding_has_the_type_of_the_data(dtype: str, value: float) -> None:
    cases = Cases()
    x = np.array([1, 2], dtype)
    cases.add("Pad", [x, np.array([1, 2]), np.array(value, dtype)], (1, 2))
    cases.check(cases.compiled(), [np.array([value, 1, 2, value, value], dtype)], 0)


def test_constants_of_float16_are_computed_as_what_is_fed() -> None:
    """The logistic function's powers do not fit float16, its values do."""
    x = np.linspace(-20, 20, 401).astype("float16")
    expected = (1 / (1 + np.exp(-x.astype("float64")))).astype("float16")
    for weights in ((), (0,)):
        cases = Cases()
        cases.add("Sigmoid", [x], weights)
        found = cases.compiled()[0]
        assert np.all(np.abs(found.view("int16") - expected.view("int16")) <= 1)  # a unit in the last place


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_pools_have_no_window_that_starts_in_the_padding(rank: int) -> None:
    if onnx.defs.onnx_opset_version() < 22:
        pytest.skip("this onnx does not know opset 22")
    cases = Cases(opset=22)
    for _ in range(24):
        kernel, strides, dilations = (RANDOM.integers(1, high, rank) for high in (4, 6, 3))
        span = (kernel - 1) * dilations + 1
        pads = [*RANDOM.integers(0, kernel), *RANDOM.integers(0, kernel)]
        extents = span + RANDOM.integers(0, 6, rank)
        x = RANDOM.uniform(0.5, 2, (1, 2, *extents)).astype("float32")
        window = {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": pads, "ceil_mode": 1}
        cases.add("MaxPool", [x], **window)
        cases.add("LpPool", [x], p=RANDOM.integers(1, 4), **window)
        cases.add("AveragePool", [x], count_include_pad=0, **window)
        cases.add("AveragePool", [x], count_include_pad=1, **window)
    expected = [pooled(node, x) for node, x in zip(cases.nodes, cases.inputs.values(), strict=True)]
    cases.check(cases.by_numpy_meaning(), expected)
    del cases.nodes[24:]  # six windows are enough to compile
    kept = [name for node in cases.nodes for name in node.output]
    cases.outputs = {name: cases.outputs[name] for name in kept}
    cases.inputs = {name: value for name, value in cases.inputs.items() if int(name[1:-2]) < 24}
    cases.check(cases.compiled(), expected[:24])


def pooled(node: onnx.NodeProto, x: Array) -> Array:
    """Pooling as ONNX's text has it: windows that start in the padding at the end are left out."""
    window = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    kernel, strides, dilations, pads = (window[n] for n in ("kernel_shape", "strides", "dilations", "pads"))
    rank = len(kernel)
    counts = []
    for i in range(rank):
        room = x.shape[i + 2] + pads[i] + pads[i + rank] - (kernel[i] - 1) * dilations[i] - 1
        count = -(-room // strides[i]) + 1
        counts.append(count - 1 if (count - 1) * strides[i] >= x.shape[i + 2] + pads[i] else count)
    result = np.empty((*x.shape[:2], *counts), x.dtype)
    for at in itertools.product(*map(range, counts)):
        places = [[at[i] * strides[i] + k * dilations[i] - pads[i] for k in range(kernel[i])] for i in range(rank)]
        inside = [[p for p in places[i] if 0 <= p < x.shape[i + 2]] for i in range(rank)]
        padded = [[p for p in places[i] if p < x.shape[i + 2] + pads[i + rank]] for i in range(rank)]
        values = x[np.ix_(range(1), range(2), *inside)].reshape(1, 2, -1).astype("float64")
        if node.op_type == "MaxPool":
            found = values.max(-1)
        elif node.op_type == "LpPool":
            found = (values ** window["p"]).sum(-1) ** (1 / window["p"])
        else:
            found = values.sum(-1) / np.prod([len(p) for p in (padded if window["count_include_pad"] else inside)])
        result[(slice(None), slice(None), *at)] = found
    return result


def test_pools_with_ceil_mode_in_one_axis_only() -> None:
    cases = Cases()
    x = RANDOM.uniform(-1, 1, (1, 1, 5, 4)).astype("float32")
    cases.add("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 4], ceil_mode=1)
    assert cases.compiled()[0].shape == (1, 1, 3, 1)
    cases.check(cases.compiled(), cases.in_onnxruntime())


def test_layer_normalization_with_scales_that_are_broadcast() -> None:
    cases = Cases()
    x = RANDOM.uniform(-1, 1, (2, 3, 7)).astype("float32")
    shapes = [(7,), (1,), (), (1, 7), (1, 1, 7), (3, 7), (3, 1), (2, 3, 7), (2, 1, 1), (1, 1, 1)]
    for shape, bias in itertools.product(shapes, [None, (7,), (1,), (3, 1)]):
        values = [np.asarray(RANDOM.uniform(-1, 1, s), "float32") for s in (shape, *([bias] if bias else []))]
        cases.add("LayerNormalization", [x, *values], weights=(1, 2))
    for axis, shape in itertools.product((0, 1), ((7,), (1, 1), (3, 7), (3, 1))):
        cases.add("LayerNormalization", [x, np.asarray(RANDOM.uniform(-1, 1, shape), "float32")], axis=axis)
    expected = []
    for node in cases.nodes:
        axis = next((a.i for a in node.attribute), -1)
        axes = tuple(range(axis % 3, 3))
        scale, *bias = ({**cases.inputs, **cases.weights}[name] for name in node.input[1:])
        normal = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)
        expected.append((normal * scale + (bias[0] if bias else 0)).astype("float32"))
    cases.check(cases.compiled(), expected, 1e-4)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("...ij,...jk->...ik", [(1, 3, 4), (5, 4, 2)]),
        ("...ij,...jk->...ik", [(5, 3, 4), (1, 4, 2)]),
        ("...ij,...jk->...ik", [(1, 5, 3, 4), (2, 1, 4, 2)]),
        ("...ij,...jk", [(1, 3, 4), (5, 4, 2)]),
        ("...i,...i->...", [(1, 7), (3, 7)]),
        ("...i,...i", [(1, 7), (3, 7)]),
        ("...ij,...jk->...ik", [(1, 3, 4), (0, 4, 2)]),
        ("...ij,...jk->...ik", [(2, 2, 3, 0), (2, 1, 0, 2)]),
        ("...,...->...", [(1, 4), (3, 1)]),
        ("...,...->...", [(1,), (1,)]),
        ("...ij,ij->...", [(2, 3, 4), (3, 4)]),
        ("...ij,...->...i", [(2, 1, 3, 4), (1, 5)]),
        ("ij,jk->ik", [(3, 1), (4, 2)]),
        ("ij,ij->ij", [(3, 1), (1, 4)]),
    ],
)
def test_einsum_broadcasts(equation: str, shapes: list[tuple[int, ...]]) -> None:
    cases = Cases()
    values = [RANDOM.uniform(-1, 1, shape).astype("float32") for shape in shapes]
    cases.add("Einsum", values, equation=equation)
    expected = [np.asarray(np.einsum(equation, *values))]
    cases.check(cases.by_numpy_meaning(), expected)
    cases.check(cases.compiled(), expected)


def test_einsum_of_extents_that_differ_is_refused() -> None:
    cases = Cases()
    cases.add("Einsum", [np.zeros((3, 2), "float32"), np.zeros((4, 2), "float32")], equation="ij,kj->ik")
    cases.imported()
    cases = Cases()
    cases.add("Einsum", [np.zeros((2, 3), "float32"), np.zeros((4, 2), "float32")], equation="ij,jk->ik")
    with pytest.raises(tvm.TVMError, match="index 'j' stands for the extents 3 and 4"):
        cases.imported()


def test_products_of_empty_batches_and_matrices() -> None:
    cases = Cases()
    pairs = [
        ((0, 3, 4), (0, 4, 5)), ((0, 3, 4), (1, 4, 5)), ((1, 3, 4), (0, 4, 5)), ((0, 3, 4), (4, 5)),
        ((2, 0, 3, 4), (2, 1, 4, 5)), ((2, 1, 3, 4), (0, 4, 5)), ((0, 1, 3, 4), (1, 6, 4, 5)), ((2, 3, 0), (2, 0, 5)),
        ((2, 0, 4), (2, 4, 5)), ((2, 3, 4), (2, 4, 0)), ((0, 4), (4, 5)), ((3, 0), (0, 5)), ((0,), (0,)),
        ((3, 4), (0, 4, 5)), ((4,), (0, 4, 5)),
        ((2, 3, 0), (0, 5)), ((0, 3, 4), (4,)), ((2, 2, 3, 0), (2, 2, 0, 5)), ((2, 0, 3, 4), (4, 5)),
    ]  # fmt: skip
    for a, b in pairs:
        cases.add("MatMul", [np.ones(a, "float32"), np.ones(b, "float32")])
    expected = [np.asarray(np.ones(a, "float32") @ np.ones(b, "float32")) for a, b in pairs]
    cases.check(cases.by_numpy_meaning(), expected)
    cases.check(cases.compiled(), expected)


def test_resize_to_nothing() -> None:
    cases = Cases()
    x = np.ones((1, 2, 3, 5), "float32")
    for sizes, mode in itertools.product(
        ([1, 2, 0, 5], [1, 2, 3, 0], [1, 0, 3, 5], [0, 2, 6, 10]), ("nearest", "linear")
    ):
        cases.add("Resize", [x, None, None, np.array(sizes)], weights=(3,), mode=mode)
        scales = np.array([s / e for s, e in zip(sizes, x.shape, strict=True)], "float32")
        cases.add("Resize", [x, None, scales], weights=(2,), mode=mode)
    empty = np.ones((1, 2, 0, 5), "float32")
    cases.add("Resize", [empty, None, None, np.array([1, 2, 0, 10])], weights=(3,), mode="nearest")
    expected = [np.ones(sizes, "float32") for sizes in ([1, 2, 0, 5], [1, 2, 3, 0], [1, 0, 3, 5], [0, 2, 6, 10])
                for _ in range(4)]  # fmt: skip
    cases.check(cases.compiled(), [*expected, np.ones((1, 2, 0, 10), "float32")])


def test_resize_of_nothing_to_something_is_refused() -> None:
    cases = Cases()
    sizes = np.array([1, 2, 3, 5])
    cases.add("Resize", [np.ones((1, 2, 0, 5), "float32"), None, None, sizes], weights=(3,), mode="nearest")
    with pytest.raises(tvm.TVMError, match=r"nothing to resize from \(1, 2, 0, 5\) to the sizes \[1, 2, 3, 5\]"):
        cases.imported()


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "float32"])
def test_reductions_of_nothing(dtype: str) -> None:
    """The mean of no integers is 0, as in ONNX Runtime, of none else NaN, as in numpy; ONNX leaves both open."""
    cases, expected = Cases(), []
    for shape, axis in (((2, 0), 1), ((0, 3), 0), ((2, 0, 3), 1)):
        x = np.zeros(shape, dtype)
        if dtype != "uint8":
            cases.add("ReduceMean", [x, np.array([axis])], weights=(1,))
            expected.append(np.full_like(x.sum(axis, keepdims=True), NAN if dtype == "float32" else 0, dtype))
            cases.add("ReduceSum", [x, np.array([axis])], weights=(1,))
            expected.append(x.sum(axis, keepdims=True, dtype=dtype))
            cases.add("ReduceProd", [x, np.array([axis])], weights=(1,))
            expected.append(x.prod(axis, keepdims=True, dtype=dtype))
        low, high = (-INF, INF) if dtype == "float32" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        for op_type, value in (("ReduceMax", low), ("ReduceMin", high)):
            cases.add(op_type, [x, np.array([axis])], weights=(1,))
            expected.append(np.full(x.sum(axis, keepdims=True).shape, value, dtype))
    cases.check(cases.compiled(), expected)
