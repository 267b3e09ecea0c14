"""Tokens from decoders with caches: each is what ONNX Runtime's logits choose; caches are not copied."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import tilewright as tvm
from tilewright.runtime import Generator
from tilewright.runtime.generator import Sampling, _State
from tilewright.testing.language_models import TINY, decoder, empty_caches

Array = np.ndarray[Any, Any]
DIMS = {"past_sequence_length": (0, 100)}


class Decoders(dict[str, tuple[Path, Any]]):
    """For each kind the library, one of them with kernels for single tokens, and ONNX Runtime's session; on use."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def __missing__(self, kind: str) -> tuple[Path, Any]:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        model = decoder(TINY, grouped=kind != "plain")
        path = self._folder / f"{kind}.so"
        dims = {"past_sequence_length": 20} if kind == "buffers" else DIMS
        tvm.compile(model, dims=dims, specialize=["sequence_length=1"] if kind == "grouped" else []).save(path)
        self[kind] = path, onnxruntime.InferenceSession(model.SerializeToString(), options)
        return self[kind]


@pytest.fixture(scope="module")
def decoders(tmp_path_factory: pytest.TempPathFactory) -> Decoders:
    return Decoders(tmp_path_factory.mktemp("decoders"))


def greedy(session: Any, prompt: Sequence[int], count: int) -> list[int]:
    """Tokens by ONNX Runtime, one prompt at a time."""
    past, ids, found = empty_caches(TINY, 1), np.array([prompt]), []
    names = {item.name for item in session.get_inputs()}
    for _ in range(count):
        before = past["past_key_values.0.key"].shape[2]
        end = before + ids.shape[1]
        given: dict[str, Array] = {"input_ids": ids, "attention_mask": np.ones((1, end), "int64"), **past}
        if "position_ids" in names:
            given["position_ids"] = np.arange(before, end)[None]
        logits, *present = session.run(None, given)
        past, ids = dict(zip(past, present, strict=True)), logits[:, -1].argmax(-1)[:, None]
        found.append(int(ids[0, 0]))
    return found


@pytest.mark.parametrize("kind", ["grouped", "plain", "buffers"])
@pytest.mark.parametrize("batch", [1, 4])
def test_tokens_are_those_of_onnx_runtime(decoders: Mapping[str, Any], kind: str, batch: int) -> None:
    path, session = decoders[kind]
    prompts = np.random.default_rng(batch).integers(0, TINY.vocabulary, (batch, 5))
    assert Generator(path)(prompts, 12) == [greedy(session, row, 12) for row in prompts]


def test_prompts_of_different_lengths_do_not_see_each_other(decoders: Mapping[str, Any]) -> None:
    path, session = decoders["plain"]
    prompts = [[1, 2, 3, 4, 5, 6, 7], [9], [17, 4, 200]]
    assert Generator(path)(prompts, 8) == [greedy(session, row, 8) for row in prompts]


def test_one_prompt_gives_one_list_and_ends_at_a_stop_token(decoders: Mapping[str, Any]) -> None:
    generator = Generator(decoders["grouped"][0])
    tokens = generator([3, 1, 4], 10)
    assert generator([3, 1, 4], 10, stop=[tokens[4]]) == tokens[: tokens.index(tokens[4])]
    assert [int(t[0]) for t in generator.stream([3, 1, 4], 10)] == tokens


def test_a_seed_repeats_what_is_drawn(decoders: Mapping[str, Any]) -> None:
    generator = Generator(decoders["grouped"][0])
    options = {"temperature": 2.0, "top_k": 50}
    first = generator([5, 6], 16, seed=7, **options)
    assert first == generator([5, 6], 16, seed=7, **options) != generator([5, 6], 16, seed=8, **options)


def test_tokens_are_drawn_by_their_probabilities() -> None:
    row = np.log(np.array([[0.5, 0.3, 0.15, 0.05]], "float32"))
    rng = np.random.default_rng(0)

    def shares(**options: Any) -> Array:
        sampling = Sampling(**options)
        return np.bincount([int(sampling.choose(row, rng)[0]) for _ in range(4000)], minlength=4) / 4000

    np.testing.assert_allclose(shares(temperature=1.0), [0.5, 0.3, 0.15, 0.05], atol=0.03)
    np.testing.assert_allclose(shares(temperature=1.0, top_k=2), [0.625, 0.375, 0, 0], atol=0.03)
    np.testing.assert_allclose(shares(temperature=1.0, top_p=0.9), [0.526, 0.316, 0.158, 0], atol=0.03)
    assert shares(temperature=0.5)[0] > 0.65
    assert shares()[0] == 1
    with pytest.raises(ValueError, match="top_p 0"):
        Sampling(top_p=0)


def test_what_does_not_fit_is_told(decoders: Mapping[str, Any]) -> None:
    generator = Generator(decoders["grouped"][0])
    with pytest.raises(tvm.TVMError, match=r"need a cache of 101 tokens; the library's holds 100"):
        generator([1, 2, 3], 100)
    with pytest.raises(tvm.TVMError, match="prompts of different lengths need a model with attention_mask"):
        generator([[1, 2], [3]], 4)
    with pytest.raises(tvm.TVMError, match="a prompt is a sequence of one or more token ids"):
        generator([[1, 2], []], 4)
    with pytest.raises(tvm.TVMError, match=r"256 is out of range"):
        generator([256], 4)
    assert len(generator([1, 2, 3], 99)) == 99


def test_a_cache_of_a_known_length_holds_so_many_tokens(decoders: Mapping[str, Any]) -> None:
    path, session = decoders["buffers"]
    generator = Generator(path)
    assert generator([1, 2, 3], 18) == greedy(session, [1, 2, 3], 18)
    with pytest.raises(tvm.TVMError, match=r"need a cache of 21 tokens; the library's holds 20"):
        generator([1, 2, 3], 19)
    with pytest.raises(tvm.TVMError, match="prompts of different lengths need a cache whose length has a name"):
        generator([[1, 2], [3]], 4)


def test_models_that_are_no_decoders_are_refused() -> None:
    x = tvm.relay.var("x", tvm.relay.TensorType((tvm.ir.prim_expr.DimVar("n", 1, 9), 3), "float32"))
    network = tvm.compile(tvm.IRModule.from_expr(tvm.relay.Function([x], tvm.relay.exp(x))))
    with pytest.raises(tvm.TVMError, match="no input of the model is a cache: x"):
        Generator(network)
    with pytest.raises(tvm.TVMError, match="caches: the model has no input 'past' or no output 'present'"):
        Generator(network, caches={"past": "present"})
    fixed = tvm.compile(tvm.IRModule.from_expr(tvm.relay.Function([y := tvm.relay.var("y", shape=(2,))], y + y)))
    with pytest.raises(tvm.TVMError, match="shapes are all known"):
        Generator(fixed)


@pytest.mark.parametrize(("kind", "tokens"), [("grouped", 40), ("buffers", 12)])
def test_a_step_does_not_copy_the_cache(decoders: Mapping[str, Any], kind: str, tokens: int) -> None:
    generator = Generator(decoders[kind][0])
    before: list[int] = []
    for _ in generator.stream([1] * 8, tokens):
        present = generator._output(1)  # a view of memory with capacity for all tokens
        before.append(present.handle and np.from_dlpack(present).__array_interface__["data"][0])
        del present  # what a caller holds is not written: a buffer would be copied
    assert len(set(before)) == 1


def test_caches_are_made_once(decoders: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    caches = _State.caches

    def counted(state: _State) -> dict[str, Any]:
        made.append(state)
        return caches(state)

    monkeypatch.setattr(_State, "caches", counted)
    Generator(decoders["grouped"][0])([1, 2, 3], max_tokens=2)
    assert len(made) == 1


def test_inputs_and_outputs_that_are_not_there_are_not_carried(decoders: Mapping[str, Any]) -> None:
    generator = Generator(decoders["grouped"][0])
    machine = generator._machine.module
    with pytest.raises(tvm.TVMError, match="have no values; call set_input first"):
        machine["carry"]("main", np.zeros((0, 2), "int64"), 0, np.zeros((1, 1), "int64"))
    generator([1, 2], 1)
    for pairs, message in (
        ([[99, 1]], 'has no parameter 99'), ([[-1, 1]], "has no parameter -1"), ([[2, 99]], "gave no tensor 99"),
        ([[2, -1]], "gave no tensor -1"), ([[2]], r"int64\[n, 2\]"),
    ):  # fmt: skip
        with pytest.raises(tvm.TVMError, match=message):
            machine["carry"]("main", np.array(pairs, "int64"))
    with pytest.raises(tvm.TVMError, match=r"int64\[n, 2\]"):
        machine["carry"]("main", np.array([[2, 1]], "int32"))
    with pytest.raises(tvm.TVMError, match="has no parameter 99"):
        machine["carry"]("main", np.zeros((0, 2), "int64"), 99, np.zeros((1, 1), "int64"))
    with pytest.raises(tvm.TVMError, match="a value behind each"):
        machine["carry"]("main", np.zeros((0, 2), "int64"), 0)
    assert len(generator([1, 2], 3)) == 3


def test_the_runtime_alone_generates(decoders: Mapping[str, Any]) -> None:
    path, session = decoders["grouped"]
    program = f"""
import sys
from tilewright.runtime import Generator
print(Generator({str(path)!r})([3, 1, 4], 6))
loaded = [m for m in sys.modules if m.split(".")[0] in ("onnx", "llvmlite", "scipy", "torch")]
assert not loaded and "tilewright.relay" not in sys.modules, loaded
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(greedy(session, [3, 1, 4], 6))
