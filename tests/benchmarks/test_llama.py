"""benchmarks.llama writes the decoder that its sizes say; a stand-in for gguf, which is not installed, keeps it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import llama
from tilewright.testing.language_models import TINY

Array = np.ndarray[Any, Any]


class _Writer:
    """A ``gguf.GGUFWriter`` that keeps what it is given."""

    def __init__(self, path: Path, architecture: str) -> None:
        self.values: dict[str, Any] = {"architecture": architecture}
        self.tensors: dict[str, Array] = {}

    def add_tensor(self, name: str, tensor: Array, raw_dtype: str = "F32") -> None:
        self.tensors[name] = tensor if raw_dtype == "F32" else _unpacked(tensor)

    def __getattr__(self, name: str) -> Any:
        return lambda *values: self.values.update({name: values})


def _unpacked(packed: Array) -> Array:
    """Return Q4_0 as GGML defines it: blocks of a float16 scale and 16 bytes, low halves first, of numbers from -8."""
    blocks = packed.reshape(len(packed), -1, 18)
    scales = np.ascontiguousarray(blocks[..., :2]).view("float16").astype("float32")
    codes = np.concatenate([blocks[..., 2:] & 15, blocks[..., 2:] >> 4], axis=-1).astype("float32") - 8
    return (codes * scales).reshape(len(packed), -1)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> _Writer:
    made: list[_Writer] = []
    module = SimpleNamespace(
        GGUFWriter=lambda *args: made.append(_Writer(*args)) or made[-1],
        GGMLQuantizationType=SimpleNamespace(Q4_0="Q4_0"),
    )
    monkeypatch.setitem(sys.modules, "gguf", module)
    assert llama.save(TINY, tmp_path / "model.gguf") == tmp_path / "model.gguf"
    return made[0]


def test_tensors_have_the_sizes_of_a_llama(written: _Writer) -> None:
    width, keys, inner = 64, 32, 96  # 2 of 4 heads have keys of their own
    shapes = {name: tensor.shape for name, tensor in written.tensors.items()}
    assert shapes["token_embd.weight"] == shapes["output.weight"] == (256, width)
    for layer in ("blk.0", "blk.1"):
        assert shapes[f"{layer}.attn_k.weight"] == shapes[f"{layer}.attn_v.weight"] == (keys, width)
        assert shapes[f"{layer}.ffn_down.weight"] == (width, inner)
    assert len(shapes) == 2 * (7 + 2) + 3
    assert written.values["add_head_count"] == (4,) and written.values["add_head_count_kv"] == (2,)


def test_products_keep_the_size_of_their_operands(written: _Writer) -> None:
    for name, tensor in written.tensors.items():
        if tensor.ndim == 2:
            assert np.square(tensor).sum(axis=1).mean() == pytest.approx(1, rel=0.1), name
