"""Operators of com.microsoft give what ONNX Runtime gives, within 2e-5 of the largest number."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from tests.relay.frontend.dynamic_models import machine_of, outputs_of

from tilewright.relay.frontend.onnx import backend
from tilewright.runtime.error import TVMError

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(7)


def numbers(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype("float32")


def compare(operator: str, inputs: list[Array | None], outputs: int = 1, weights: tuple[int, ...] = (),
            domain: str = "com.microsoft", shared: tuple[tuple[int, int], ...] = (),
            **attributes: Any) -> None:  # fmt: skip
    """Run one node here and in ONNX Runtime; ``weights`` are constant inputs, ``shared`` an input and an output in one
    buffer there.
    """
    names = ["" if value is None else f"x{i}" for i, value in enumerate(inputs)]
    given = {n: v for n, v in zip(names, inputs, strict=True) if v is not None}
    fed = {n: v for n, v in given.items() if int(n[1:]) not in weights}
    kind = helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph(
        [helper.make_node(operator, names, [f"y{i}" for i in range(outputs)], domain=domain, **attributes)],
        "graph",
        [helper.make_tensor_value_info(n, kind(v.dtype), v.shape) for n, v in fed.items()],
        [helper.make_empty_tensor_value_info(f"y{i}") for i in range(outputs)],
        [numpy_helper.from_array(v, n) for n, v in given.items() if n not in fed],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.x64quantprecision", "1")  # or sums of products saturate on some
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    expected = session.run(None, fed) if not shared else bound(session, fed, outputs, shared)
    for value, found in zip(model.graph.output, expected, strict=True):
        value.type.tensor_type.elem_type = kind(found.dtype)
    for have, want in zip(backend.prepare(model).run(fed), expected, strict=True):
        assert have.shape == want.shape
        np.testing.assert_allclose(have, want, rtol=2e-5, atol=2e-5 * max(1, np.abs(want).max(initial=0)))


def bound(session: Any, fed: dict[str, Array], outputs: int, shared: tuple[tuple[int, int], ...]) -> list[Array]:
    """Run with buffers that are an input and an output."""
    values = {n: onnxruntime.OrtValue.ortvalue_from_numpy(v.copy()) for n, v in fed.items()}
    binding, same = session.io_binding(), {o: i for i, o in shared}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    for i in range(outputs):
        if i in same:
            binding.bind_ortvalue_output(f"y{i}", values[f"x{same[i]}"])
        else:
            binding.bind_output(f"y{i}")
    session.run_with_iobinding(binding)
    found: list[Array] = binding.copy_outputs_to_cpu()
    return found


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
def test_fused_matmul(trans_a: int, trans_b: int) -> None:
    a = numbers(2, 3, 5).swapaxes(1, 2) if trans_a else numbers(2, 3, 5)
    b = numbers(5, 7).T if trans_b else numbers(5, 7)
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    compare("FusedMatMul", [a, b], transA=trans_a, transB=trans_b, alpha=0.5)


@pytest.mark.parametrize("operator", ["BiasGelu", "FastGelu", "Gelu", "QuickGelu"])
def test_gelu(operator: str) -> None:
    compare(operator, [3 * numbers(2, 5, 7), *([numbers(7)] if operator in ("BiasGelu", "FastGelu") else [])])


@pytest.mark.parametrize(("bits", "block", "zeros"), [(4, 16, False), (4, 32, True), (8, 16, True)])
def test_products_with_weights_of_few_bits(bits: int, block: int, zeros: bool) -> None:
    rows, columns = 48, 5
    blocks = -(-rows // block)
    packed = RNG.integers(0, 256, (columns, blocks, block * bits // 8)).astype("uint8")
    scales = np.abs(numbers(columns, blocks)) / 16
    points = RNG.integers(0, 256, (columns, -(-blocks * bits // 8))).astype("uint8") if zeros else None
    inputs = [numbers(2, 3, rows), packed, scales, *([points] if zeros else [])]
    compare("MatMulNBits", inputs, weights=(1, 2, 3), K=rows, N=columns, bits=bits, block_size=block)


@pytest.mark.parametrize("with_bias", [False, True])
def test_skip_layer_normalization(with_bias: bool) -> None:
    inputs = [numbers(2, 3, 8), numbers(2, 3, 8), numbers(8), numbers(8), *([numbers(8)] if with_bias else [])]
    compare("SkipLayerNormalization", inputs, epsilon=1e-5)
    compare("SkipSimplifiedLayerNormalization", [*inputs[:3], *inputs[4:]], epsilon=1e-5)
    compare("SimplifiedLayerNormalization", [inputs[0], inputs[2]], domain="", epsilon=1e-5)
    compare("SimplifiedLayerNormalization", [inputs[0], numbers(*inputs[0].shape[1:])], domain="", axis=1, epsilon=1e-5)


def test_normalizations_of_small_numbers_have_epsilons_of_their_own() -> None:
    inputs = [numbers(2, 3, 8) * np.float32(1e-3), numbers(2, 3, 8) * np.float32(1e-3), numbers(8), numbers(8)]
    compare("SkipLayerNormalization", inputs)
    compare("SkipSimplifiedLayerNormalization", inputs[:3])
    compare("SimplifiedLayerNormalization", [inputs[0], inputs[2]], domain="")


def test_embed_layer_normalization() -> None:
    words, segments = (RNG.integers(0, n, (2, 5)).astype("int32") for n in (11, 2))
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], "int32")
    tables = [numbers(11, 8), numbers(6, 8), numbers(2, 8), numbers(8), numbers(8)]
    compare("EmbedLayerNormalization", [words, segments, *tables, mask], outputs=2, epsilon=1e-5)
    compare("EmbedLayerNormalization", [words, None, *tables[:2], None, *tables[3:]], outputs=2, epsilon=1e-5)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_embed_layer_normalization_of_quantized_tables(dtype: str) -> None:
    words, segments = (RNG.integers(0, n, (2, 5)).astype("int32") for n in (11, 2))
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], "int32")
    limits = np.iinfo(dtype)
    shapes = ((11, 8), (6, 8), (2, 8), (8,), (8,))
    tables = [RNG.integers(limits.min, limits.max, s, dtype=dtype, endpoint=True) for s in shapes]
    scales = [np.array(0.01 * (i + 1), "float32") for i in range(5)]
    zeros = [np.array(3 * i, dtype) for i in range(5)]
    places = tuple(range(2, 18))
    inputs = [words, segments, *tables, mask, *scales, *zeros]
    compare("QEmbedLayerNormalization", inputs, 2, tuple(p for p in places if p != 7), epsilon=1e-5)
    for i in (1, 4, 7, 10, 15):
        inputs[i] = None
    compare("QEmbedLayerNormalization", inputs, 2, places, epsilon=1e-5)


def test_embed_layer_normalization_over_named_dimensions() -> None:
    text = """(int32[b, s] x) => (float[b, s, 8] y, int32[b] n) {
      y, n = com.microsoft.EmbedLayerNormalization(x, "", word, place, "", gamma, beta) }"""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>\ng {text}')
    tables = dict(
        zip(("word", "place", "gamma", "beta"), (numbers(11, 8), numbers(6, 8), numbers(8), numbers(8)), strict=True)
    )
    model.graph.initializer.extend(numpy_helper.from_array(table, name) for name, table in tables.items())
    session, machine = onnxruntime.InferenceSession(model.SerializeToString()), machine_of(model)
    for batch, length in ((2, 3), (1, 6)):
        given = {"x": RNG.integers(0, 11, (batch, length)).astype("int32")}
        for have, want in zip(outputs_of(machine, given), session.run(None, given), strict=True):
            np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-5)
    with pytest.raises(TVMError, match="place 6 is out of range: expected 0 to 5"):
        machine.run(x=np.zeros((1, 7), "int32"))


EXPERTS, ROWS, WIDTH, INNER = 4, 5, 32, 16


def experts(bits: int, fused: int, block: int = 0, zeros: bool = False) -> list[Array | None]:
    """Inputs of QMoE: data, scores, and two layers' packed weights, scales and biases; then zero points."""
    given: list[Array | None] = [numbers(ROWS, WIDTH), numbers(ROWS, EXPERTS)]
    points: list[Array | None] = []
    for units, inner in ((INNER * fused, WIDTH), (WIDTH, INNER)):
        blocks = inner // block if block else 1
        sizes = (EXPERTS, units, blocks) if block else (EXPERTS, units)
        given.append(RNG.integers(0, 256, (EXPERTS, units, inner * bits // 8), dtype="uint8"))
        given += [RNG.uniform(0.005, 0.02, sizes).astype("float32"), numbers(EXPERTS, units)]
        packed = (EXPERTS, units, -(-blocks * bits // 8)) if block else (EXPERTS, units * bits // 8)
        points.append(RNG.integers(0, 256, packed, dtype="uint8"))
    return [*given, None, None, None, *points] if zeros else given


@pytest.mark.parametrize(
    ("activation", "bits", "count"), [("relu", 4, 2), ("silu", 4, 1), ("identity", 4, 3), ("gelu", 4, 2)]
)
def test_mixtures_of_quantized_experts(activation: str, bits: int, count: int) -> None:
    extra = {"k": count, "activation_type": activation, "expert_weight_bits": bits, "weights_prepacked": 0}
    compare("QMoE", experts(bits, 1), weights=tuple(range(2, 14)), **extra)


@pytest.mark.parametrize(("block", "zeros"), [(0, False), (16, False), (0, True), (16, True)])
def test_mixtures_of_gated_experts(block: int, zeros: bool) -> None:
    extra: dict[str, Any] = {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, "weights_prepacked": 0}
    extra |= {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 2.0, "normalize_routing_weights": 1}
    extra |= {"block_size": block} if block else {}
    compare("QMoE", experts(4, 2, block, zeros), weights=tuple(range(2, 14)), **extra)


@pytest.mark.parametrize("normal", [0, 1])
def test_mixtures_by_other_shares_than_scores(normal: int) -> None:
    inputs = experts(4, 1) + [None] * 6 + [RNG.uniform(0.1, 1, (ROWS, EXPERTS)).astype("float32")]
    inputs[0] = numbers(1, ROWS, WIDTH)
    extra = {"k": 2, "normalize_routing_weights": normal, "weights_prepacked": 0}
    compare("QMoE", inputs, weights=tuple(range(2, 14)), **extra)


@pytest.mark.parametrize("normal", [0, 1])
def test_mixtures_of_experts(normal: int) -> None:
    inputs: list[Array | None] = [numbers(ROWS, WIDTH), numbers(ROWS, EXPERTS)]
    for units, inner in ((INNER, WIDTH), (WIDTH, INNER)):
        inputs += [numbers(EXPERTS, units, inner), numbers(EXPERTS, units)]
    compare("MoE", inputs, weights=(2, 3, 4, 5), k=2, activation_type="gelu", normalize_routing_weights=normal)


MASKS = {
    "none": None,
    "by key": np.array([[1, 1, 1, 0], [1, 0, 1, 1]], "int32"),
    "lengths": np.array([3, 4], "int32"),
    "ends, starts": np.array([3, 4, 0, 2], "int32"),
    "lengths, sums": np.array([3, 4, 0, 4, 8, 0, 4, 8], "int32"),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("causal", [0, 1])
def test_attention(mask: str, causal: int) -> None:
    inputs = [numbers(2, 4, 8), numbers(8, 24), numbers(24), MASKS[mask]]
    compare("Attention", inputs, num_heads=2, unidirectional=causal)


def test_attention_with_a_past() -> None:
    inputs = [numbers(2, 1, 8), numbers(8, 24), numbers(24), None, numbers(2, 2, 2, 3, 4)]
    compare("Attention", inputs, outputs=2, num_heads=2, unidirectional=1)


def test_quantized_attention() -> None:
    data, weight = RNG.integers(0, 256, (2, 4, 8)).astype("uint8"), RNG.integers(-99, 99, (8, 24)).astype("int8")
    scales = [np.float32(0.01), np.float32(0.02)]
    inputs = [data, weight, numbers(24), *scales, MASKS["by key"], np.uint8(128), np.int8(3)]
    compare("QAttention", [np.asarray(v) for v in inputs], weights=(1, 2, 3, 4, 6, 7), num_heads=2)


def test_multi_head_attention() -> None:
    inputs = [numbers(2, 4, 8), numbers(2, 6, 8), numbers(2, 6, 12), numbers(28)]
    compare("MultiHeadAttention", inputs, num_heads=2)
    compare("MultiHeadAttention", [*inputs, None, numbers(2, 2, 4, 6)], num_heads=2)


@pytest.mark.parametrize("rotary", [0, 1, 2])
@pytest.mark.parametrize("past", [0, 5, 8])
def test_group_query_attention(past: int, rotary: int) -> None:
    """A prompt; and a token after 5, with a cache of as many or more entries."""
    length, before = (4, 0) if not past else (1, 5)
    total = np.array(before + length, "int32")
    caches = [numbers(2, 2, past, 16) if past else None for _ in range(2)]
    for cache in caches if past > before else ():
        assert cache is not None
        cache[:, :, before:] = 0  # in memory of its own ONNX Runtime's result has zeros there
    angles = [numbers(16, 8), numbers(16, 8)] if rotary else []
    inputs = [numbers(2, length, 64), numbers(2, length, 32), numbers(2, length, 32), *caches]
    lengths = np.full(2, before + length - 1, "int32")
    compare("GroupQueryAttention", [*inputs, lengths, total, *angles], outputs=3, num_heads=4, kv_num_heads=2,
            do_rotary=int(rotary > 0), rotary_interleaved=int(rotary > 1))  # fmt: skip


@pytest.mark.parametrize("length", [1, 3, 6])
def test_a_buffer_keeps_what_lies_behind_new_entries(length: int) -> None:
    before = 0 if length > 1 else 5
    inputs = [numbers(2, length, 64), numbers(2, length, 32), numbers(2, length, 32)]
    inputs += [numbers(2, 2, 8, 16), numbers(2, 2, 8, 16)]
    lengths, total = np.full(2, before + length - 1, "int32"), np.array(before + length, "int32")
    compare("GroupQueryAttention", [*inputs, lengths, total], outputs=3, num_heads=4, kv_num_heads=2,
            shared=((3, 1), (4, 2)))  # fmt: skip


@pytest.mark.parametrize(
    ("activation", "parameters"),
    [("Relu", []), ("Tanh", []), ("LeakyRelu", [0.2]), ("Clip", [0.0, 0.5]), ("HardSigmoid", [0.3, 0.4])],
)
def test_convolution_with_activation(activation: str, parameters: list[float]) -> None:
    inputs = [numbers(1, 3, 5, 7), numbers(4, 3, 3, 3), numbers(4)]
    extra = {"activation": activation, "pads": [1] * 4} | ({"activation_params": parameters} if parameters else {})
    compare("FusedConv", inputs, weights=(1, 2), **extra)


def test_convolution_with_a_sum_and_activation() -> None:
    inputs = [numbers(2, 3, 5, 5), numbers(4, 3, 3, 3), numbers(4), numbers(2, 4, 3, 3)]
    compare("FusedConv", inputs, weights=(1, 2), activation="Relu")


@pytest.mark.parametrize(
    ("activation", "own"), [("Relu", {}), ("LeakyRelu", {"alpha": 0.2}), ("HardSigmoid", {"alpha": 0.3, "beta": 0.1})]
)
def test_product_with_activation(activation: str, own: dict[str, float]) -> None:
    own = {f"activation_{name}": value for name, value in own.items()}
    compare("FusedGemm", [numbers(3, 5), numbers(7, 5), numbers(7)], transB=1, alpha=0.5, activation=activation, **own)


def angles(size: int) -> list[Array]:
    table = np.outer(np.arange(16), 0.1 ** np.arange(size // 2))
    return [np.cos(table).astype("float32"), np.sin(table).astype("float32")]


@pytest.mark.parametrize("pairs", [0, 1])
@pytest.mark.parametrize("places", [[[0, 1, 2], [5, 6, 7]], [4]])
def test_rotary_embedding(pairs: int, places: list[Any]) -> None:
    inputs = [np.array(places, "int64"), *angles(8)]
    compare("RotaryEmbedding", [numbers(2, 3, 32), *inputs], interleaved=pairs)
    compare("RotaryEmbedding", [numbers(2, 4, 3, 8), *inputs], interleaved=pairs)


def test_rotary_embedding_of_some_features() -> None:
    inputs = [numbers(2, 3, 32), np.array([[0, 1, 2], [5, 6, 7]]), *angles(4)]
    compare("RotaryEmbedding", inputs, num_heads=4, rotary_embedding_dim=4)


@pytest.mark.parametrize("per_column", [False, True])
def test_products_of_quantized_matrices(per_column: bool) -> None:
    a, b = RNG.integers(0, 255, (3, 6)).astype("uint8"), RNG.integers(-99, 99, (6, 4)).astype("int8")
    scale = np.abs(numbers(4)) / 50 if per_column else np.array(0.01, "float32")
    zero = np.zeros(scale.shape, "int8")
    inputs = [a, b, np.array(0.02, "float32"), scale, np.array(100, "uint8"), zero, numbers(4)]
    compare("MatMulIntegerToFloat", inputs, weights=(1, 2, 3, 4, 5, 6))
    compare("DynamicQuantizeMatMul", [numbers(3, 6), b, scale, zero, numbers(4)], weights=(1, 2, 3, 4))
    compare("DynamicQuantizeMatMul", [numbers(2, 3, 6), b, scale], weights=(1, 2))


@pytest.mark.parametrize(("bits", "zeros"), [(2, True), (4, False), (4, True), (8, True)])
def test_rows_of_a_table_of_few_bits(bits: int, zeros: bool) -> None:
    table, scales = RNG.integers(0, 256, (6, 32 * bits // 8)).astype("uint8"), np.abs(numbers(6, 2))
    points = [RNG.integers(0, 256, (6, -(-2 * bits // 8))).astype("uint8")] if zeros else []
    inputs = [table, np.array([[0, 5, 2], [1, 1, 3]]), scales, *points]
    places = {"gather_axis": 0, "quantize_axis": 1, "block_size": 16, "bits": bits}
    compare("GatherBlockQuantized", inputs, weights=(0, 2, 3), **places)


@pytest.mark.parametrize("shape", [(3, 3), (2, 5, 5), (1, 1)])
def test_inverses_of_matrices(shape: tuple[int, ...]) -> None:
    matrix = numbers(*shape)
    matrix[..., 0, 0] = 0.0 if shape[-1] > 1 else 2.0  # the first pivot is another row's
    compare("Inverse", [matrix])


def test_triangles_and_new_axes() -> None:
    compare("Trilu", [numbers(2, 3, 4)], upper=0)
    compare("ExpandDims", [numbers(2, 3), np.array(-1, "int32")], weights=(1,))


def test_rotary_embedding_over_named_dimensions() -> None:
    text = """(float[b, s, 32] x, int64[1] p) => (float[b, s, 32] y) {
      y = com.microsoft.RotaryEmbedding(x, p, cos, sin) }"""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>\ng {text}')
    tables = dict(zip(("cos", "sin"), angles(8), strict=True))
    model.graph.initializer.extend(numpy_helper.from_array(table, name) for name, table in tables.items())
    session, machine = onnxruntime.InferenceSession(model.SerializeToString()), machine_of(model)
    for batch, length, first in ((2, 3, 1), (1, 1, 9)):
        given = {"x": numbers(batch, length, 32), "p": np.array([first])}
        np.testing.assert_allclose(outputs_of(machine, given)[0], session.run(None, given)[0], rtol=1e-5, atol=1e-5)
