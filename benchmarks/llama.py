"""Decoders of the same sizes in llama.cpp: GGUF files with random Q4_0 weights, run token by token.

``make .venv/.bench-llama`` installs what it needs, llama-cpp-python and gguf; pip builds llama.cpp for this processor.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.testing.language_models import Sizes

_BLOCK = 32  # weights that share a scale in Q4_0
Array = np.ndarray[Any, Any]


def save(sizes: Sizes, path: Path) -> Path:
    """Write a decoder without a vocabulary's texts; all matrices are Q4_0, the embedding and the head too."""
    import gguf

    writer, rng = gguf.GGUFWriter(path, "llama"), np.random.default_rng(0)
    writer.add_tokenizer_model("no_vocab")
    writer.add_vocab_size(sizes.vocabulary)
    writer.add_context_length(sizes.positions)
    writer.add_embedding_length(sizes.width)
    writer.add_block_count(sizes.layers)
    writer.add_feed_forward_length(sizes.inner)
    writer.add_head_count(sizes.heads)
    writer.add_head_count_kv(sizes.groups)
    writer.add_rope_dimension_count(sizes.size)
    writer.add_rope_freq_base(sizes.base)
    writer.add_layer_norm_rms_eps(1e-5)
    for name, (rows, columns) in _matrices(sizes).items():
        packed = rng.integers(0, 256, (rows, columns // _BLOCK, 2 + _BLOCK // 2), "uint8")
        scales = rng.uniform(0.8, 1.2, packed.shape[:2]) * (12 / columns) ** 0.5 / 16
        packed[..., :2] = scales.astype("float16").view("uint8").reshape(*packed.shape[:2], 2)
        writer.add_tensor(name, packed.reshape(rows, -1), raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    for name in _norms(sizes):
        writer.add_tensor(name, rng.uniform(0.8, 1.2, sizes.width).astype("float32"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _matrices(sizes: Sizes) -> dict[str, tuple[int, int]]:
    """Return (rows, columns) of each matrix; a product sums over columns."""
    width, keys = sizes.width, sizes.groups * sizes.size
    layer = {
        "attn_q": (width, width), "attn_k": (keys, width), "attn_v": (keys, width), "attn_output": (width, width),
        "ffn_gate": (sizes.inner, width), "ffn_up": (sizes.inner, width), "ffn_down": (width, sizes.inner),
    }  # fmt: skip
    found = {f"blk.{i}.{name}.weight": shape for i in range(sizes.layers) for name, shape in layer.items()}
    return found | {f"{name}.weight": (sizes.vocabulary, width) for name in ("token_embd", "output")}


def _norms(sizes: Sizes) -> list[str]:
    layers = [f"blk.{i}.{name}_norm.weight" for i in range(sizes.layers) for name in ("attn", "ffn")]
    return [*layers, "output_norm.weight"]


def runs(path: Path, sizes: Sizes, capacity: int) -> Callable[[], Callable[[Array], Array]]:
    """Make runs from an empty cache, which is float16 as llama.cpp has it; logits are those of the last token."""
    import llama_cpp

    threads = int(os.environ["TVM_NUM_THREADS"])
    quiet = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p())
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_threads, params.n_threads_batch = capacity, capacity, threads, threads
    context = llama_cpp.llama_init_from_model(model, params)
    if not context:
        raise SystemExit(f"llama.cpp does not load {path}")

    def run(ids: Array) -> Array:
        tokens = (llama_cpp.llama_token * ids.size)(*ids.ravel().tolist())
        if code := llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(tokens, ids.size)):
            raise SystemExit(f"llama.cpp's llama_decode returns {code} for {ids.size} tokens")
        return np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, -1), (sizes.vocabulary,))

    def start() -> Callable[[Array], Array]:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        return run

    return start
