"""Packed attention as numpy computes it sequence by sequence; decoders' attention of one token as ONNX Runtime's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests.relay.frontend.test_onnx_microsoft import compare, numbers

from tilewright.ir.errors import TilewrightError
from tilewright.relay.frontend.onnx import backend
from tilewright.runtime.error import TVMError

Array = np.ndarray[Any, Any]
HEADS, SIZE, WIDE = 2, 4, 6


def run(operator: str, inputs: list[Array | None], outputs: int = 1, **attributes: Any) -> list[Array]:
    names = ["" if value is None else f"x{i}" for i, value in enumerate(inputs)]
    kind = helper.np_dtype_to_tensor_dtype
    fed = {n: v for n, v in zip(names, inputs, strict=True) if v is not None}
    made = [f"y{i}" for i in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(operator, names, made, domain="com.microsoft", **attributes)],
        "graph",
        [helper.make_tensor_value_info(n, kind(v.dtype), v.shape) for n, v in fed.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in made],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return [np.asarray(found) for found in backend.prepare(model).run(fed)]


def softmax(scores: Array) -> Array:
    powers = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    return powers / powers.sum(-1, keepdims=True)


def by_heads(rows: Array) -> Array:
    return rows.reshape(len(rows), HEADS, rows.shape[1] // HEADS).transpose(1, 0, 2).astype("float64")


def sequence_by_sequence(q: Array, k: Array, v: Array, lengths: list[int], bias: Array | None, scale: float) -> Array:
    """Attention of (tokens, features) within each sequence, in float64."""
    found, start = [], 0
    for i, length in enumerate(lengths):
        own = slice(start, start + length)
        scores = by_heads(q[own]) @ by_heads(k[own]).transpose(0, 2, 1) * scale
        if bias is not None:
            scores = scores + bias[i % len(bias), :, :length, :length]
        found.append((softmax(scores) @ by_heads(v[own])).transpose(1, 0, 2).reshape(length, v.shape[1]))
        start += length
    return np.concatenate(found)


def packed(lengths: list[int], most: int) -> list[Array]:
    """Offsets of the tokens, then of what pads them; and cumulative lengths."""
    real = np.arange(most) < np.array(lengths)[:, None]
    places = np.arange(real.size).reshape(real.shape)
    offsets = np.concatenate([places[real], places[~real]]).astype("int32").reshape(real.shape)
    return [offsets, np.concatenate([[0], np.cumsum(lengths)]).astype("int32")]


LENGTHS = [[1, 2, 4], [4], [3, 0, 4], [1], [2, 2]]


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("additions", [None, (1, 1), (0, HEADS)])
def test_packed_tokens_see_those_of_their_sequence(lengths: list[int], additions: tuple[int, int] | None) -> None:
    tokens, most = sum(lengths), 5
    q, k, v = numbers(tokens, HEADS * SIZE), numbers(tokens, HEADS * SIZE), numbers(tokens, HEADS * WIDE)
    bias = None if additions is None else numbers(additions[0] or len(lengths), additions[1], most, most)
    inputs = [q, k, v, None, *packed(lengths, most), bias]
    (found,) = run("PackedMultiHeadAttention", inputs, num_heads=HEADS)
    want = sequence_by_sequence(q, k, v, lengths, bias, SIZE**-0.5)
    np.testing.assert_allclose(found, want, rtol=2e-5, atol=2e-5)


def test_packed_queries_keys_and_values_in_one_tensor_with_biases() -> None:
    joint, row = numbers(6, HEADS, 3, SIZE), numbers(3 * HEADS * SIZE)
    (found,) = run("PackedMultiHeadAttention", [joint, None, None, row, *packed([2, 4], 4)], num_heads=HEADS, scale=0.3)
    parts = [joint[:, :, i].reshape(6, -1) + row.reshape(3, -1)[i] for i in range(3)]
    want = sequence_by_sequence(*parts, [2, 4], None, 0.3)
    np.testing.assert_allclose(found, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("wide", [SIZE, WIDE])
def test_packed_self_attention(wide: int) -> None:
    sizes = [HEADS * SIZE, HEADS * SIZE, HEADS * wide]
    x, weights, row = numbers(6, 5), numbers(5, sum(sizes)), numbers(sum(sizes))
    attributes = {} if wide == SIZE else {"qkv_hidden_sizes": sizes}
    (found,) = run("PackedAttention", [x, weights, row, *packed([1, 3, 2], 3)], num_heads=HEADS, **attributes)
    q, k, v = np.split(x @ weights + row, np.cumsum(sizes)[:-1], axis=1)
    want = sequence_by_sequence(q, k, v, [1, 3, 2], None, SIZE**-0.5)
    np.testing.assert_allclose(found, want, rtol=2e-5, atol=2e-5)


def test_a_packed_sequence_longer_than_its_places_is_an_error() -> None:
    q = numbers(6, HEADS * SIZE)
    offsets, ends = packed([2, 4], 4)
    with pytest.raises(TVMError, match="length of a sequence 4 is out of range: expected 0 to 3"):
        run("PackedMultiHeadAttention", [q, q, q, None, offsets[:, :3], ends], num_heads=HEADS)
    with pytest.raises(TilewrightError, match="2 cumulative lengths for a batch of 2; expected 3"):
        run("PackedMultiHeadAttention", [q, q, q, None, offsets, ends[:2]], num_heads=HEADS)


def decoded(inputs: list[Array | None], outputs: int = 3, **attributes: Any) -> None:
    compare("DecoderMaskedMultiHeadAttention", inputs, outputs=outputs, num_heads=3, **attributes)


@pytest.mark.parametrize("past", [0, 5, 8])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_a_token_is_written_to_the_buffer(past: int, mask: bool, bias: bool) -> None:
    keep = (np.arange(2 * (past + 1)) % 3 != 1).reshape(2, past + 1).astype("int32")
    inputs = [*(numbers(2, 1, 24) for _ in range(3)), keep if mask else None, numbers(1, 3, 1, past + 1)]
    inputs += [numbers(2, 3, 9, 8), numbers(2, 3, 9, 8), np.array([past], "int32"), None, None]
    decoded([*inputs, numbers(72) if bias else None], past_present_share_buffer=1)


def test_entries_of_other_beams() -> None:
    origins = (np.arange(2 * 2 * 9) // 2 % 2).reshape(2, 2, 9).astype("int32")
    inputs = [*(numbers(4, 1, 24) for _ in range(3)), None, None, numbers(4, 3, 9, 8), numbers(4, 3, 9, 8)]
    decoded([*inputs, np.array([6], "int32"), np.array([2], "int32"), origins], past_present_share_buffer=1)


def test_keys_and_values_of_another_sequence() -> None:
    inputs = [numbers(2, 1, 24), numbers(2, 3, 7, 8), numbers(2, 3, 7, 8)]
    decoded(inputs, outputs=1)
    decoded([*inputs, (np.arange(14) % 3 != 0).reshape(2, 7).astype("int32")], outputs=1)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_decoder_self_attention_is_that_of_numpy(shared: bool, masked: bool) -> None:
    past, rows = 5, 7 if shared else 5
    x, weights, row, cache = numbers(2, 1, 8), numbers(8, 24), numbers(24), numbers(2, 2, HEADS, rows, SIZE)
    keep = (np.arange(12) % 4 != 1).reshape(2, 6).astype("int32") if masked else None
    inputs = [x, weights, row, keep, cache, None, np.array([past], "int32")]
    found, present = run(
        "DecoderMaskedSelfAttention", inputs, 2, num_heads=HEADS, past_present_share_buffer=int(shared)
    )
    q, *new = (part.reshape(2, HEADS, 1, SIZE) for part in np.split(x @ weights + row, 3, axis=2))
    k, v = (np.concatenate([old[:, :, :past], one], axis=2) for old, one in zip(cache, new, strict=True))
    scores = q.astype("float64") @ k.transpose(0, 1, 3, 2) * SIZE**-0.5
    scores = scores if keep is None else scores + np.where(keep, 0, -10000)[:, None, None]
    want = (softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(2, 1, 8)
    np.testing.assert_allclose(found, want, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(present[:, :, :, : past + 1], np.stack([k, v]), rtol=2e-5, atol=2e-5)
    np.testing.assert_array_equal(present[:, :, :, past + 1 :], cache[:, :, :, past + 1 :])


def test_what_a_decoder_cannot_hold_is_an_error() -> None:
    buffers = [numbers(1, 3, 4, 8), numbers(1, 3, 4, 8)]
    token = [numbers(1, 1, 24) for _ in range(3)]
    attributes = {"num_heads": 3, "past_present_share_buffer": 1}
    with pytest.raises(TVMError, match="place in the buffer 4 is out of range: expected 0 to 3"):
        run("DecoderMaskedMultiHeadAttention", [*token, None, None, *buffers, np.array([4], "int32")], 3, **attributes)
    beams = [np.array([1], "int32"), np.array([2], "int32"), np.zeros((1, 2, 4), "int32")]
    with pytest.raises(TilewrightError, match="1 by 2 beams and 4 entries for a cache of 1 sequences and 4 entries"):
        run("DecoderMaskedMultiHeadAttention", [*token, None, None, *buffers, *beams], 3, **attributes)
    with pytest.raises(TilewrightError, match="2 tokens a sequence; the operator takes 1"):
        two = [numbers(1, 2, 24) for _ in range(3)]
        run("DecoderMaskedMultiHeadAttention", [*two, None, None, *buffers, np.array([1], "int32")], 3, **attributes)
