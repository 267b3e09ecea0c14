"""Attention of com.microsoft gives what ONNX Runtime gives, in all its forms; what a cache cannot hold is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from tests.relay.frontend.dynamic_models import machine_of, outputs_of
from tests.relay.frontend.test_onnx_microsoft import compare, numbers
from tests.tiers import full

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import TilewrightError
from tilewright.relay.frontend.onnx import backend
from tilewright.testing.language_models import TINY, decoder, empty_caches

Array = np.ndarray[Any, Any]
PASTS = {"past_sequence_length": (0, 255)}


def grouped(length: int, before: int, past: int | None = None, batch: int = 2, groups: int = 2, extra: int = 0,
            total: int | None = None, **attributes: Any) -> None:  # fmt: skip
    """Compare GroupQueryAttention of 4 heads, ``length`` tokens after ``before``, in a cache of ``past`` entries."""
    past = before if past is None else past
    caches = [numbers(batch, groups, past, 16) if past else None for _ in range(2)]
    inputs = [numbers(batch, length, 64), *(numbers(batch, length, groups * 16) for _ in range(2)), *caches]
    inputs += [np.full(batch, before + length - 1, "int32"), np.array(total or before + length, "int32")]
    inputs += (
        [None] * 2 if not extra else [None, None, None, *(numbers(1, 4, length, before + length) for _ in range(1))]
    )
    compare("GroupQueryAttention", inputs, outputs=3, num_heads=4, kv_num_heads=groups, **attributes)


@pytest.mark.parametrize(("length", "before"), [(5, 0), (1, 7)])
@pytest.mark.parametrize("window", [1, 7])
def test_a_window_of_keys(length: int, before: int, window: int) -> None:
    grouped(length, before, local_window_size=window)


@pytest.mark.parametrize("attributes", [{"softcap": 2.0}, {"smooth_softmax": 1}, {"softcap": 0.5, "scale": 0.3}])
@pytest.mark.parametrize(("length", "before"), [(3, 0), (1, 7)])
def test_scores_are_capped_and_shares_may_sum_to_less(attributes: dict[str, Any], length: int, before: int) -> None:
    grouped(length, before, **attributes)


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("batch", [1, 4])
def test_one_group_and_a_group_for_each_head(groups: int, batch: int) -> None:
    grouped(1, 5, batch=batch, groups=groups)


def test_additions_to_scores() -> None:
    grouped(4, 0, extra=1)
    grouped(1, 4, past=9, extra=1, shared=((3, 1), (4, 2)))  # of the keys so far, in a buffer with room for more


def test_joint_queries_keys_and_values_of_groups() -> None:
    inputs = [numbers(2, 3, 128), None, None, numbers(2, 2, 0, 16), numbers(2, 2, 0, 16)]
    inputs += [np.full(2, 2, "int32"), np.array(3, "int32")]
    compare("GroupQueryAttention", inputs, outputs=3, num_heads=4, kv_num_heads=2)


@pytest.mark.parametrize("mask", [None, "by key", "lengths", "each"])
@pytest.mark.parametrize("past", [0, 3])
def test_several_heads_with_masks_and_a_past(mask: str | None, past: int) -> None:
    total = past + 5
    masks = {
        "by key": (np.arange(total) % 3 != 1)[None].repeat(2, 0).astype("int32"),
        "lengths": np.array([total, total - 2], "int32"),
        "each": (np.arange(5 * total).reshape(1, 5, total) % 4 != 1).repeat(2, 0).astype("int32"),
    }
    caches = [numbers(2, 3, past, 8) for _ in range(2)] if past else [None, None]
    inputs = [
        *(numbers(2, 5, 24) for _ in range(3)),
        numbers(72),
        masks.get(mask or ""),
        numbers(1, 3, 5, total),
        *caches,
    ]
    compare("MultiHeadAttention", inputs, outputs=3, num_heads=3, unidirectional=int(mask is None))


@pytest.mark.parametrize(
    ("batch", "length", "past", "causal"), [(2, 1, 3, 0), (2, 3, 4, 1), (1, 5, 0, 1), (1, 2, 3, 0)]
)
def test_several_heads_with_buffers(batch: int, length: int, past: int, causal: int) -> None:
    """ONNX Runtime leaves what is behind the new rows as it was; zeros here, as buffers begin."""
    buffers = [numbers(batch, 3, 7, 8) * (np.arange(7)[:, None] < past) for _ in range(2)]
    data = [numbers(batch, length, 24) for _ in range(3)]
    inputs = [*data, None, None, None, *(b.astype("float32") for b in buffers), np.array([past], "int32")]
    compare("MultiHeadAttention", inputs, outputs=3, num_heads=3, unidirectional=causal)


def test_keys_and_values_of_another_sequence_by_heads() -> None:
    inputs = [numbers(2, 5, 24), numbers(2, 3, 7, 8), numbers(2, 3, 7, 8)]
    compare("MultiHeadAttention", inputs, num_heads=3)
    inputs = [numbers(2, 7, 24), numbers(2, 3, 24), numbers(2, 3, 24)]  # each query sees keys up to its own place
    compare("MultiHeadAttention", inputs, num_heads=3, unidirectional=1)


def feeds(ids: Array, past: dict[str, Array], before: int, grouped: bool) -> dict[str, Array]:
    """Inputs of a decoder: ``ids`` after ``before`` tokens."""
    batch, length = ids.shape
    made = {"input_ids": ids, "attention_mask": np.ones((batch, before + length), "int64"), **past}
    if not grouped:
        made["position_ids"] = np.broadcast_to(np.arange(before, before + length), (batch, length)).copy()
    return made


@pytest.mark.parametrize("grouped", [True, *full(False)])  # tests/runtime/test_generator.py has both
def test_a_decoder_over_named_dimensions_gives_what_onnx_runtime_gives(grouped: bool) -> None:
    model = decoder(TINY, grouped=grouped)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session, machine = onnxruntime.InferenceSession(model.SerializeToString(), options), machine_of(model, PASTS)
    for batch in (1, 3):
        past, before = empty_caches(TINY, batch), 0
        for length in (7, 1, 1, *([2] if batch == 1 else [])):  # more than that ONNX Runtime does not take
            ids = np.random.default_rng(before).integers(0, TINY.vocabulary, (batch, length))
            given = feeds(ids, past, before, grouped)
            wanted = session.run(None, given)
            for have, want in zip(outputs_of(machine, given), wanted, strict=True):
                assert have.shape == want.shape
                np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-4)
            past, before = dict(zip(past, wanted[1:], strict=True)), before + length


def test_what_a_cache_that_grows_cannot_hold_is_told() -> None:
    machine = machine_of(decoder(TINY), PASTS)
    past = empty_caches(TINY, 2, 4)
    given = feeds(np.zeros((2, 1), "int64"), past, 4, True)
    given["attention_mask"][1, :2] = 0
    with pytest.raises(tvm.TVMError, match=r"'seqlens_k'.*its sequences are of one length"):
        machine.run(**given)
    given = feeds(np.zeros((2, 3), "int64"), empty_caches(TINY, 2, 254), 254, True)
    with pytest.raises(tvm.TVMError, match=r"'layers.0.attention'.*place 256 is out of range: expected 0 to 255"):
        machine.run(**given)
    assert outputs_of(machine, feeds(np.zeros((2, 1), "int64"), past, 4, True))[0].shape == (2, 1, 256)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({7: None}, "says how full past_key and past_value are, which are missing"),
        ({4: np.ones((1, 4), "int32")}, "key_padding_mask and attention_bias beside past_sequence_length"),
        ({9: np.zeros((1, 1, 7), "int32")}, "cache_indirection; take the input away"),
        ({0: numbers(1, 8, 24), 1: numbers(1, 8, 24), 2: numbers(1, 8, 24)}, "8 new keys are more than past_key"),
        ({8: np.array([7], "int32")}, "length 7 is out of range: expected 0 to 6"),
    ],
)
def test_what_does_not_fit_buffers_is_told(change: dict[int, Any], message: str) -> None:
    inputs: list[Any] = [*(numbers(1, 1, 24) for _ in range(3)), None, None, None]
    inputs += [numbers(1, 3, 7, 8), numbers(1, 3, 7, 8), np.array([3], "int32"), None]
    for index, value in change.items():
        inputs[index] = value
    kind, given = onnx.helper.np_dtype_to_tensor_dtype, {f"x{i}": x for i, x in enumerate(inputs) if x is not None}
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    node = onnx.helper.make_node("MultiHeadAttention", names, ["y"], domain="com.microsoft", num_heads=3)
    infos = [onnx.helper.make_tensor_value_info(n, kind(x.dtype), x.shape) for n, x in given.items()]
    result = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "graph", infos, [result]), ir_version=8)
    model.opset_import.add(domain="com.microsoft", version=1)
    with pytest.raises((TilewrightError, tvm.TVMError), match=message):
        backend.prepare(model).run(given)


def test_forms_that_are_not_supported_are_told() -> None:
    model = decoder(TINY)
    node = next(n for n in model.graph.node if n.op_type == "GroupQueryAttention")
    node.attribute.append(onnx.helper.make_attribute("qk_output", 1))
    with pytest.raises(TilewrightError, match=r"'layers.0.attention'.*attribute qk_output"):
        relay.frontend.from_onnx(model)
