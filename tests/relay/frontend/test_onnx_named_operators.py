"""Operators over named dimensions, and with results as large as data say, beside ONNX Runtime at several shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
import pytest
from tests.relay.frontend.dynamic_models import check, floats, machine_of, model_of, numbers, outputs_of, reference
from tests.tiers import every, full

import tilewright as tvm
from tilewright import relay

Run = Mapping[str, np.ndarray]


def onnx_runtime(model: onnx.ModelProto) -> Callable[[None, dict[str, np.ndarray]], Sequence[np.ndarray]]:
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run


def pictures(*sizes: tuple[int, ...]) -> list[Run]:
    return [{"x": floats(*size)} for size in sizes]


def resize(attributes: str, scales: str = "1, 1, 2, 1.5") -> str:
    return f"""(float[n, c, h, w] x) => (float[n, c, p, q] y) <float[4] s = {{{scales}}}> {{
      y = Resize<{attributes}>(x, , s) }}"""


SIZES = pictures((2, 3, 5, 8), (1, 2, 1, 3), (1, 1, 7, 2))
RESIZES = [
    'mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"',
    'mode="nearest", nearest_mode="round_prefer_ceil"',
    'mode="nearest", nearest_mode="ceil"',
    'mode="linear"',
    'mode="linear", coordinate_transformation_mode="align_corners"',
    'mode="linear", coordinate_transformation_mode="pytorch_half_pixel"',
    'mode="linear", coordinate_transformation_mode="half_pixel_symmetric"',
    'mode="cubic"',
    'mode="cubic", cubic_coeff_a=-0.5, exclude_outside=1',
]


@pytest.mark.parametrize("attributes", every(2, RESIZES))
def test_resize_by_scales(attributes: str) -> None:
    # ONNX Runtime aligns corners of sizes that were rounded another way.
    check(resize(attributes), *SIZES, engine=reference if "align" in attributes else onnx_runtime, opset=19)


@pytest.mark.parametrize("scales", ["1, 1, 0.5, 0.25", "1, 1, 3, 2", "1, 1, 1, 0.7"])
def test_scales_that_names_can_tell_and_others(scales: str) -> None:
    check(resize('mode="linear"', scales), *pictures((2, 3, 5, 8), (1, 2, 4, 4)), engine=onnx_runtime)


@pytest.mark.covering(1)
@pytest.mark.parametrize("attributes", ['mode="linear"', 'mode="cubic"', 'mode="cubic", exclude_outside=1'])
@pytest.mark.parametrize("scales", ["1, 1, 0.5, 0.3", "1, 1, 0.2, 2.5"])
def test_antialiased_resize(attributes: str, scales: str) -> None:
    text, runs = resize(f"{attributes}, antialias=1", scales), pictures((2, 3, 5, 8), (1, 2, 11, 4))
    check(text, *runs, engine=reference, opset=19)


def test_antialiased_resize_to_a_computed_size() -> None:
    text = """(float[n, h] x, int64[2] s) => (float[n, p] y) { y = Resize<mode="linear", antialias=1>(x, , , s) }"""
    runs = [{"x": floats(n, h), "s": np.array([n, p])} for n, h, p in ((2, 9, 4), (1, 7, 7), (3, 2, 5), (2, 13, 1))]
    check(text, *runs, engine=reference, opset=19)


def test_resize_of_named_batches_is_relays() -> None:
    text = """(float[n, 3, 6, 5] x) => (float[n, 3, 12, 10] y) <float[4] s = {1, 1, 2, 2}> {
      y = Resize<mode="linear">(x, , s) }"""
    mod, _ = relay.frontend.from_onnx(model_of(text))
    assert "image.resize2d" in str(mod)
    check(text, *pictures((1, 3, 6, 5), (4, 3, 6, 5)), engine=onnx_runtime)


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
def test_resize_to_the_size_of_another_tensor(policy: str) -> None:
    text = f"""(float[n, c, h, w] x, float[a, b] z) => (float[n, c, p, q] y) {{
      s = Shape(z)  y = Resize<mode="linear", axes=[2, 3], keep_aspect_ratio_policy="{policy}">(x, , , s) }}"""
    runs = [{"x": floats(2, 3, 5, 8), "z": floats(9, 4)}, {"x": floats(1, 1, 3, 3), "z": floats(3, 3)}]
    check(text, *runs, engine=onnx_runtime)


def test_regions_of_pictures_are_resized() -> None:
    text = """(float[n, c, h, w] x) => (float[n, c, 4, 7] y) <int64[2] s = {4, 7}> {
      region = Constant<value_floats=[0.125, 0.25, 0.875, 1.5]>()
      y = Resize<mode="linear", coordinate_transformation_mode="tf_crop_and_resize", axes=[2, 3],
                 extrapolation_value=3.0>(x, region, , s) }"""
    check(text, *SIZES, engine=onnx_runtime, opset=19)


def test_scales_that_are_computed() -> None:
    text = """(float[n, c, h, w] x, float[4] s) => (float[n, c, p, q] y) { y = Resize<mode="nearest">(x, , s) }"""
    runs = [{"x": floats(2, 1, 5, 8), "s": np.array([1, 1, *s], "float32")} for s in ((2, 0.5), (1, 1))]
    check(text, *runs, engine=onnx_runtime)


def recurrent(op: str, gates: int, attributes: str, given: str, directions: int = 1) -> str:
    weights = f"float[{directions}, {4 * gates}, 3] W = {{{numbers(12 * gates * directions)}}}"
    weights += f", float[{directions}, {4 * gates}, 4] R = {{{numbers(16 * gates * directions)}}}"
    weights += f", float[{directions}, {8 * gates}] B = {{{numbers(8 * gates * directions)}}}"
    weights += f", float[{directions}, 12] P = {{{numbers(12 * directions)}}}"
    outputs = "float[t, d, n, 4] y, float[d, n, 4] h" + (", float[d, n, 4] c" if op == "LSTM" else "")
    names = "y, h, c" if op == "LSTM" else "y, h"
    return f"""(float[t, n, 3] x, int32[n] len, float[{directions}, n, 4] h0) => ({outputs}) <{weights}> {{
      {names} = {op}<hidden_size=4{attributes}>(x, W, R{given}) }}"""


RECURRENT = [
    ("LSTM", 4, "", "", 1),
    ("LSTM", 4, ', direction="bidirectional"', ", B, , , , P", 2),
    ("LSTM", 4, ', direction="reverse"', ", B, len, h0", 1),
    ("GRU", 3, ", linear_before_reset=1", ", B, len, h0", 1),
    ("GRU", 3, ', direction="bidirectional"', ", B", 2),
    ("RNN", 1, ', direction="reverse"', ", B, len", 1),
]


@pytest.mark.parametrize(("op", "gates", "attributes", "given", "directions"), every(2, RECURRENT, several=True))
def test_recurrent_networks_of_any_length(op: str, gates: int, attributes: str, given: str, directions: int) -> None:
    runs = [
        {"x": floats(t, n, 3), "len": np.array(lengths, "int32"), "h0": floats(directions, n, 4)}
        for t, n, lengths in ((5, 2, [3, 5]), (1, 1, [1]), (7, 3, [7, 1, 2]))
    ]
    check(recurrent(op, gates, attributes, given, directions), *runs, engine=onnx_runtime)


def boxes(batch: int, count: int) -> np.ndarray:
    corners = np.random.default_rng(count).integers(0, 12, (batch, count, 2)).astype("float32")
    return np.concatenate([corners, corners + 4], axis=2)


@pytest.mark.parametrize("form", ["corners", "centres", "no limit"])
def test_non_max_suppression(form: str) -> None:
    limit, centres = "" if form == "no limit" else "m", int(form == "centres")
    text = f"""(float[n, k, 4] b, float[n, 2, k] s, int64[1] m) => (int64[r, 3] y) <float[1] i = {{0.3}},
      float[1] t = {{0.2}}> {{ y = NonMaxSuppression<center_point_box={centres}>(b, s, {limit}, i, t) }}"""
    runs = [
        {"b": boxes(n, k), "s": np.random.default_rng(k).random((n, 2, k), "float32"), "m": np.array([m], "int64")}
        for n, k, m in ((1, 8, 4), (2, 13, 3), (1, 1, 1), (1, 9, 0), (1, 9, 1 << 40))
    ]
    check(text, *runs, engine=onnx_runtime)


SOME = {"x": np.array([[3, 1, 3], [2, 2, 1]], "float32")}
OTHERS = [
    ("TopK", "(float[n, m] x) => (float[n, 2] y, int64[n, 2] i) <int64[1] k = {2}> { y, i = TopK(x, k) }", SIZES[:0]),
    ("ArgMax", "(float[n, m] x) => (int64[n, 1] y) { y = ArgMax<axis=1>(x) }", []),
    ("ArgMin", "(float[n, m] x) => (int64[m] y) { y = ArgMin<axis=0, keepdims=0, select_last_index=1>(x) }", []),
    ("Unique", "(float[n, m] x) => (float[r] y, int64[r] i, int64[v] j, int64[r] c) { y, i, j, c = Unique(x) }", []),
    ("Unique of first places", "(float[n, m] x) => (float[r] y) { y = Unique<sorted=0>(x) }", []),
]


@pytest.mark.parametrize(("name", "text", "runs"), OTHERS, ids=[o[0] for o in OTHERS])
def test_selection(name: str, text: str, runs: Sequence[Run]) -> None:
    check(text, SOME, {"x": floats(1, 2)}, {"x": floats(5, 7)}, engine=onnx_runtime)


def test_topk_of_more_than_there_are_is_an_error() -> None:
    machine = machine_of(model_of(OTHERS[0][1]))
    assert outputs_of(machine, {"x": floats(3, 2)})[0].shape == (3, 2)
    with pytest.raises(tvm.TVMError, match=r"m >= 2\) does not hold"):
        machine.run(x=floats(3, 1))


@pytest.mark.parametrize(
    "equation",
    ["bij,bjk->bik", "bij,bij->b", "abi,icd->abcd", *full("bhqd,bhkd->bhqk", "bi,bj->bij", "nchw->nhwc")],
)
def test_einsum(equation: str) -> None:
    left, right = equation.split("->")
    terms = left.split(",")
    sizes = [dict(zip("abcdhijknqw", s, strict=True)) for s in ([2, 3, 4, 5, 6, 3, 2, 3, 2, 5, 4], [1] * 11)]
    given = ", ".join(f"float[{', '.join(term)}] x{i}" for i, term in enumerate(terms))
    names = ", ".join(f"x{i}" for i in range(len(terms)))
    text = f'({given}) => (float[{", ".join(right)}] y) {{ y = Einsum<equation="{equation}">({names}) }}'
    runs = [{f"x{i}": floats(*(size[c] for c in term)) for i, term in enumerate(terms)} for size in sizes]
    check(text, *runs, engine=onnx_runtime)


@pytest.mark.parametrize("axis", every(3, [0, 1, 2, 3, 4, -1]))
def test_flatten_of_many_names(axis: int) -> None:
    text = f"(float[a, b, c, d] x) => (float[p, q] y) {{ y = Flatten<axis={axis}>(x) }}"
    check(text, {"x": floats(2, 3, 4, 5)}, {"x": floats(1, 1, 1, 1)}, engine=onnx_runtime)


BATCHES = [  # named, and of extents that only the data tell
    ("float[n, 1, 3, 4] x, float[1, m, 4, 5] z", [((2, 1, 3, 4), (1, 7, 4, 5)), ((1, 1, 3, 4), (1, 1, 4, 5))]),
    ("float[n, 1, 3, 4] x, float[m, 4, 5] z", [((2, 1, 3, 4), (7, 4, 5))]),
    ("float[1, m, 3, 4] x, float[n, m, 4, 5] z", [((1, 2, 3, 4), (3, 2, 4, 5))]),
    ("float[n, k, 3, 4] x, float[m, k, 4, 5] z", [((2, 3, 3, 4), (2, 3, 4, 5)), ((1, 3, 3, 4), (5, 3, 4, 5))]),
    ("float[n, 3, 4] x, float[m, k, 4, 5] z", [((3, 3, 4), (2, 3, 4, 5)), ((1, 3, 4), (5, 2, 4, 5))]),
]


@pytest.mark.parametrize(("given", "shapes"), BATCHES, ids=[b[0] for b in BATCHES])
def test_products_whose_batches_broadcast(given: str, shapes: Sequence[tuple[tuple[int, ...], ...]]) -> None:
    text = f"({given}) => (float[a, b, 3, 5] y) {{ y = MatMul(x, z) }}"
    check(text, *({"x": floats(*x), "z": floats(*z)} for x, z in shapes), engine=onnx_runtime)


def test_batches_that_do_not_broadcast_are_an_error() -> None:
    text = "(float[n, k, 3, 4] x, float[m, k, 4, 5] z) => (float[a, b, 3, 5] y) { y = MatMul(x, z) }"
    machine = machine_of(model_of(text))
    with pytest.raises(tvm.TVMError, match="shape must not be negative"):
        machine.run(x=floats(2, 3, 3, 4), z=floats(3, 3, 4, 5))


def test_products_of_batches_that_data_cut() -> None:
    text = """(float[n, n, n, n] x, int64[1] e) => (float[p, q, r, r] y) <int64[1] s = {0}> {
      c = Slice(x, s, e, s)  t = Transpose<perm=[0, 1, 3, 2]>(c)  y = MatMul(c, t) }"""
    runs = [{"x": floats(*[n] * 4), "e": np.array([e])} for n, e in ((2, 1), (3, 3), (4, 2))]
    check(text, *runs, engine=onnx_runtime)


def test_a_slice_with_steps_of_one_of_several_named_axes() -> None:
    text = """(float[n, n, m] x) => (float[p, n, m] y, float[p, q, m] z)
      <int64[1] a = {1}, int64[1] e = {9}, int64[1] zero = {0}, int64[1] two = {2}> {
      y = Slice(x, a, e, zero, two)  z = Slice(y, zero, zero, a, two) }"""
    check(text, {"x": floats(5, 5, 2)}, {"x": floats(1, 1, 3)}, engine=onnx_runtime)


def test_a_slice_from_far_in_front_of_one_of_several_named_axes() -> None:
    text = """(float[n, n, n] x) => (float[p, n, n] y)
      <int64[1] a = {-1099511627776}, int64[1] e = {-1}, int64[1] zero = {0}, int64[1] one = {1}> {
      twice = Concat<axis=0>(x, x)  y = Slice(twice, a, e, zero, one) }"""
    check(text, {"x": floats(3, 3, 3)}, {"x": floats(1, 1, 1)}, engine=onnx_runtime)


def test_an_input_is_continued_by_two_values() -> None:
    text = "(float[n] x) => (float[p] y) { t = Tanh(x)  u = Neg(x)  y = Concat<axis=0>(x, t, u) }"
    check(text, {"x": floats(3)}, {"x": floats(1)}, engine=onnx_runtime)


def test_a_convolution_by_blocks_of_channels_of_named_batches() -> None:
    text = f"""(float[n, 4, 3, 3] x) => (float[n, 1, 3, 3] y) <float[1, 4, 1, 1] k = {{{numbers(4)}}}> {{
      y = Conv<strides=[1, 1]>(x, k) }}"""
    check(text, {"x": floats(2, 4, 3, 3)}, {"x": floats(1, 4, 3, 3)}, engine=onnx_runtime)


def test_sums_along_what_a_loop_grows() -> None:
    """Scans read memory without strides: what grows beside its rows is no cache with room then."""
    text = """(float[n, m] x, int64 k) => (float[n, p] y) <int64 zero = {0}> {
      grown = Loop(k, "", x)<body = b (int64 step, bool go, float[u, v] old) => (bool on, float[u, w] next) {
        on = Identity(go)  next = Concat<axis=1>(old, x) }>
      y = CumSum(grown, zero) }"""
    runs = [{"x": floats(n, m), "k": np.array(k)} for n, m, k in ((2, 3, 2), (3, 1, 4), (1, 2, 0))]
    check(text, *runs, engine=onnx_runtime)


def test_products_in_an_empty_batch() -> None:
    text = """(float[n, n, n, n] x) => (float[n, p, n, n] y) <int64[1] zero = {0}, int64[1] one = {1}> {
      c = Slice(x, zero, zero, one)  t = Transpose<perm=[0, 1, 3, 2]>(c)  y = MatMul(c, t) }"""
    check(text, {"x": floats(2, 2, 2, 2)}, {"x": floats(1, 1, 1, 1)}, engine=reference)


def test_a_triangle_of_known_extents_in_named_batches() -> None:
    text = "(float[n, 3, 4] x) => (float[n, 3, 4] y) { y = Trilu<upper=0>(x) }"
    check(text, {"x": floats(2, 3, 4)}, {"x": floats(1, 3, 4)}, engine=onnx_runtime)


def test_a_loop_collects_rows_whose_extents_only_a_round_tells() -> None:
    text = """(float[3, 3] x, int64[1] e, int64 n) => (float[a, b] y, float[c, p, q] z) <int64[1] s = {0}> {
      first = Slice(x, s, e, s)
      y, z = Loop(n, "", first)<body = b (int64 step, bool go, float[u, v] old)
                                       => (bool on, float[u, v] next, float[u, v] kept) {
        on = Identity(go)  small = Tanh(old)  next = Add(small, first)  kept = Neg(small) }> }"""
    runs = [{"x": floats(3, 3), "e": np.array([e]), "n": np.array(n)} for e, n in ((2, 2), (3, 1), (1, 4))]
    check(text, *runs, engine=onnx_runtime)


def test_pooled_regions_of_pictures_of_any_size() -> None:
    text = """(float[n, 2, h, w] x, float[k, 4] r, int64[k] b) => (float[k, 2, 3, 3] y) {
      y = RoiAlign<output_height=3, output_width=3>(x, r, b) }"""
    regions = np.array([[0, 0, 5, 5], [1, 2, 8, 9]], "float32")
    runs = [
        {"x": floats(n, 2, h, w), "r": regions[:k], "b": np.zeros(k, "int64")}
        for n, h, w, k in ((1, 15, 16, 2), (2, 9, 5, 1))
    ]
    check(text, *runs, engine=onnx_runtime)


POOLS = [
    "MaxPool<kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1>(x)",
    'MaxPool<kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER">(x)',
    'MaxPool<kernel_shape=[3, 2], strides=[1, 2], auto_pad="SAME_LOWER">(x)',
    "AveragePool<kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1>(x)",
    'AveragePool<kernel_shape=[3, 3], auto_pad="SAME_UPPER">(x)',
    'AveragePool<kernel_shape=[3, 3], strides=[2, 3], auto_pad="SAME_UPPER">(x)',
    'AveragePool<kernel_shape=[3, 2], strides=[2, 2], auto_pad="SAME_LOWER", count_include_pad=1>(x)',
    'AveragePool<kernel_shape=[1, 2], strides=[3, 2], auto_pad="SAME_LOWER", ceil_mode=1>(x)',
    'MaxPool<kernel_shape=[3, 2], strides=[3, 2], auto_pad="SAME_UPPER", ceil_mode=1>(x)',
    "LpPool<kernel_shape=[2, 2], strides=[2, 1]>(x)",
    'LpPool<kernel_shape=[3, 2], strides=[2, 3], auto_pad="SAME_UPPER">(x)',
    "LpPool<kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1>(x)",
    'Conv<strides=[2, 2], auto_pad="SAME_UPPER">(x, k)',
    'Conv<strides=[3, 1], auto_pad="SAME_LOWER">(x, k)',
    'Conv<auto_pad="SAME_UPPER">(x, k)',
]


@pytest.mark.covering(1)
@pytest.mark.parametrize("call", every(2, POOLS))
def test_windows(call: str) -> None:
    text = f"(float[n, 2, h, w] x) => (float[n, c, p, q] y) <float[4, 2, 3, 2] k = {{{numbers(48)}}}> {{ y = {call} }}"
    check(text, *pictures((2, 2, 11, 6), (1, 2, 4, 5), (1, 2, 3, 3)), engine=onnx_runtime, opset=19)


def test_windows_in_the_padding_are_refused() -> None:
    text = """(float[n, 2, h, w] x) => (float[n, 2, p, q] y) {
      y = MaxPool<kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1>(x) }"""
    with pytest.raises(tvm.TVMError, match=r"ceil_mode with a window of 2, stride 2 and padding 1.*--input-shape"):
        machine_of(model_of(text))
