"""Operators of com.microsoft give what ONNX Runtime gives, within 2e-5 of the largest number."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from tilewright.ir.errors import TilewrightError
from tilewright.relay.frontend.onnx import backend

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(7)


def numbers(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype("float32")


def compare(operator: str, inputs: list[Array | None], outputs: int = 1, weights: tuple[int, ...] = (),
            domain: str = "com.microsoft", **attributes: Any) -> None:  # fmt: skip
    """Run one node here and in ONNX Runtime; ``weights`` are constant inputs."""
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
    expected = session.run(None, fed)
    for value, found in zip(model.graph.output, expected, strict=True):
        value.type.tensor_type.elem_type = kind(found.dtype)
    for have, want in zip(backend.prepare(model).run(fed), expected, strict=True):
        assert have.shape == want.shape
        np.testing.assert_allclose(have, want, rtol=2e-5, atol=2e-5 * max(1, np.abs(want).max(initial=0)))


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


def test_embed_layer_normalization() -> None:
    words, segments = (RNG.integers(0, n, (2, 5)).astype("int32") for n in (11, 2))
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], "int32")
    tables = [numbers(11, 8), numbers(6, 8), numbers(2, 8), numbers(8), numbers(8)]
    compare("EmbedLayerNormalization", [words, segments, *tables, mask], outputs=2, epsilon=1e-5)
    compare("EmbedLayerNormalization", [words, None, *tables[:2], None, *tables[3:]], outputs=2, epsilon=1e-5)


MASKS = {
    "none": None,
    "by key": np.array([[1, 1, 1, 0], [1, 0, 1, 1]], "int32"),
    "lengths": np.array([3, 4], "int32"),
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
    angles = [numbers(16, 8), numbers(16, 8)] if rotary else []
    inputs = [numbers(2, length, 64), numbers(2, length, 32), numbers(2, length, 32), *caches]
    lengths = np.full(2, before + length - 1, "int32")
    compare("GroupQueryAttention", [*inputs, lengths, total, *angles], outputs=3, num_heads=4, kv_num_heads=2,
            do_rotary=int(rotary > 0), rotary_interleaved=int(rotary > 1))  # fmt: skip


def test_what_is_not_supported_is_told() -> None:
    with pytest.raises(TilewrightError, match="local_window_size"):
        inputs = [numbers(1, 2, 32), numbers(1, 2, 16), numbers(1, 2, 16), None, None]
        inputs += [np.full(1, 1, "int32"), np.array(2, "int32")]
        compare("GroupQueryAttention", inputs, num_heads=4, kv_num_heads=2, local_window_size=1)
