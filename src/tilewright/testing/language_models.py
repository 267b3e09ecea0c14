"""Decoders with caches as ONNX files, with random weights: as onnxruntime-genai writes them, and as optimum does.

``decoder(SMOLLM_135M, weights="int4")`` is a Llama-like network (pre-norm, rotary embedding, gated feed-forward layers,
queries that share keys and values). ``grouped`` files have ``GroupQueryAttention`` with rotary embedding, and
``SkipSimplifiedLayerNormalization``; others have ONNX's own operators, and ``position_ids``. Caches are
``past_key_values.N.key`` and ``present.N.key``, (batch, groups, length, size).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]

_FLOAT, _INT64 = TensorProto.FLOAT, TensorProto.INT64
_LOWEST = float(np.finfo("float32").min)
_BITS = {"int4": 4, "int8": 8}
_MOST_IN_ONE_FILE = 1 << 30


@dataclass(frozen=True)
class Sizes:
    """The sizes of a network: ``groups`` are its heads of keys and values, ``positions`` how many rotations it has."""

    layers: int
    width: int
    heads: int
    groups: int
    inner: int
    vocabulary: int
    positions: int = 2048
    base: float = 10000.0

    @property
    def size(self) -> int:
        """The features of a head."""
        return self.width // self.heads


TINY = Sizes(2, 64, 4, 2, 96, 256, positions=256)
SMOLLM_135M = Sizes(30, 576, 9, 3, 1536, 49152)
QWEN_500M = Sizes(24, 896, 14, 2, 4864, 151936, base=1000000.0)


@dataclass
class _Writer:
    """The nodes and weights of a model so far."""

    sizes: Sizes
    weights: str
    block: int
    accuracy: int
    rng: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    tensors: list[onnx.TensorProto] = field(default_factory=list)

    def node(self, operator: str, inputs: Sequence[str], name: str, outputs: int = 1, **attributes: Any) -> str:
        """Add a node that gives ``name``, ``name_1``, ...; operators of com.microsoft are marked by a leading dot."""
        names = [name, *(f"{name}_{i}" for i in range(1, outputs))]
        domain = "com.microsoft" if operator[0] == "." else ""
        made = helper.make_node(operator.lstrip("."), inputs, names, name=name, domain=domain, **attributes)
        self.nodes.append(made)
        return name

    def tensor(self, name: str, value: Any) -> str:
        """Add a weight or constant."""
        self.tensors.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def ints(self, name: str, *values: int) -> str:
        """Add a vector of int64."""
        return self.tensor(name, np.array(values, "int64"))

    def normal(self, name: str, *shape: int, scale: float = 1.0) -> str:
        """Add random numbers."""
        return self.tensor(name, self.rng.standard_normal(shape, "float32") * np.float32(scale))

    def product(self, data: str, rows: int, columns: int, name: str) -> str:
        """Add a product with a matrix of random weights, (rows, columns), whose results have the scale of the data."""
        scale = rows**-0.5
        if self.weights not in _BITS:
            return self.node("MatMul", [data, self.normal(f"{name}.weight", rows, columns, scale=scale)], name)
        bits, blocks = _BITS[self.weights], -(-rows // self.block)
        packed = self.rng.integers(0, 256, (columns, blocks, self.block * bits // 8), "uint8")
        spread = 2.0**bits / 12**0.5  # of codes that are all as frequent
        scales = self.rng.uniform(0.8, 1.2, (columns, blocks)).astype("float32") * np.float32(scale / spread)
        inputs = [data, self.tensor(f"{name}.codes", packed), self.tensor(f"{name}.scales", scales)]
        return self.node(".MatMulNBits", inputs, name, K=rows, N=columns, bits=bits, block_size=self.block,
                         accuracy_level=self.accuracy)  # fmt: skip

    def rotations(self) -> tuple[str, str]:
        """Add cosines and sines, (positions, half a head's features)."""
        half = self.sizes.size // 2
        angles = np.outer(np.arange(self.sizes.positions), self.sizes.base ** (-np.arange(half) / half))
        cos, sin = (part.astype("float32") for part in (np.cos(angles), np.sin(angles)))
        return self.tensor("cos_cache", cos), self.tensor("sin_cache", sin)


def decoder(
    sizes: Sizes = TINY, *, weights: str = "float32", grouped: bool = True, block: int = 32, accuracy: int = 4,
    last: bool = False, shared: bool = False, seed: int = 0,
) -> onnx.ModelProto:  # fmt: skip
    """Return a decoder with random weights.

    Args:
        sizes: its sizes.
        weights: "float32", or "int4" or "int8": products are MatMulNBits; embeddings are float32.
        grouped: attention is GroupQueryAttention, as onnxruntime-genai has it; else ONNX's own operators.
        block: how many weights of a column share a scale.
        accuracy: MatMulNBits' ``accuracy_level``.
        last: logits of the last token alone, (batch, 1, vocabulary).
        shared: past and present are one buffer of ``max_sequence_length`` rows (with ``grouped``).
        seed: of the weights.
    """
    w = _Writer(sizes, weights, block, accuracy, np.random.default_rng(seed))
    data = w.node("Gather", [w.normal("embedding", sizes.vocabulary, sizes.width), "input_ids"], "embedded")
    attend = _grouped_attention(w) if grouped else _plain_attention(w)
    norm = _norm(w, data, "", "norm.0", grouped)
    for layer in range(sizes.layers):
        mixed = w.product(attend(norm[0], layer), sizes.width, sizes.width, f"layers.{layer}.o")
        norm = _norm(w, norm[1], mixed, f"norm.{layer}.mlp", grouped)
        norm = _norm(w, norm[1], _feed_forward(w, norm[0], f"layers.{layer}"), f"norm.{layer + 1}", grouped)
    final = norm[0]
    if last:
        final = w.node("Slice", [final, *(w.ints(f"last.{i}", v) for i, v in enumerate((-1, 1 << 31, 1)))], "last")
    w.product(final, sizes.width, sizes.vocabulary, "logits")
    return _model(w, grouped, last, shared)


def _norm(w: _Writer, data: str, addend: str, name: str, fused: bool) -> tuple[str, str]:
    """Return the normalized sum of ``data`` and ``addend`` ("" for none), and the sum."""
    scale = w.tensor(f"{name}.weight", w.rng.uniform(0.8, 1.2, w.sizes.width).astype("float32"))
    if not addend and fused:
        return w.node("SimplifiedLayerNormalization", [data, scale], name, epsilon=1e-5, axis=-1), data
    if fused:
        outputs = {"outputs": 4, "epsilon": 1e-5}
        w.node(".SkipSimplifiedLayerNormalization", [data, addend, scale], name, **outputs)  # type: ignore[arg-type]
        w.nodes[-1].output[1:3] = ["", ""]
        return name, f"{name}_3"
    total = w.node("Add", [data, addend], f"{name}.sum") if addend else data
    power = w.node("Pow", [total, w.tensor(f"{name}.two", np.float32(2))], f"{name}.power")
    mean = w.node("ReduceMean", [power, w.ints(f"{name}.axis", -1)], f"{name}.mean", keepdims=1)
    mean = w.node("Add", [mean, w.tensor(f"{name}.epsilon", np.float32(1e-5))], f"{name}.shifted")
    root = w.node("Sqrt", [mean], f"{name}.root")
    return w.node("Mul", [w.node("Div", [total, root], f"{name}.unit"), scale], name), total


def _feed_forward(w: _Writer, data: str, name: str) -> str:
    width, inner = w.sizes.width, w.sizes.inner
    gate = w.product(data, width, inner, f"{name}.gate")
    gate = w.node("Mul", [gate, w.node("Sigmoid", [gate], f"{name}.sigmoid")], f"{name}.swish")
    wide = w.node("Mul", [gate, w.product(data, width, inner, f"{name}.up")], f"{name}.wide")
    return w.product(wide, inner, width, f"{name}.down")


def _query_key_value(w: _Writer, data: str, name: str) -> list[str]:
    s = w.sizes
    widths = (s.width, s.groups * s.size, s.groups * s.size)
    return [w.product(data, s.width, n, f"{name}.{part}") for part, n in zip("qkv", widths, strict=True)]


def _grouped_attention(w: _Writer) -> Any:
    total = w.node("ReduceSum", ["attention_mask", w.ints("mask.axis", 1)], "mask.sum", keepdims=0)
    lasts = w.node("Sub", [total, w.tensor("mask.one", np.array(1, "int64"))], "mask.last")
    lasts = w.node("Cast", [lasts], "seqlens_k", to=TensorProto.INT32)
    width = w.node("Gather", [w.node("Shape", ["attention_mask"], "mask.shape"), w.tensor("mask.place", np.array(1))],
                   "mask.width")  # fmt: skip
    longest = w.node("Cast", [width], "total_sequence_length_value", to=TensorProto.INT32)
    tables = w.rotations()

    def attend(data: str, layer: int) -> str:
        name, s = f"layers.{layer}", w.sizes
        past = [f"past_key_values.{layer}.{part}" for part in ("key", "value")]
        inputs = [*_query_key_value(w, data, name), *past, lasts, longest, *tables]
        w.node(".GroupQueryAttention", inputs, f"{name}.attention", 3, num_heads=s.heads, kv_num_heads=s.groups,
               do_rotary=1, rotary_interleaved=0, scale=s.size**-0.5)  # fmt: skip
        w.nodes[-1].output[1:] = [f"present.{layer}.{part}" for part in ("key", "value")]
        return f"{name}.attention"

    return attend


def _plain_attention(w: _Writer) -> Any:
    tables = [w.node("Gather", [table, "position_ids"], f"rotation.{i}") for i, table in enumerate(w.rotations())]
    tables = [w.node("Concat", [t, t], f"{t}.wide", axis=-1) for t in tables]
    tables = [w.node("Unsqueeze", [t, w.ints(f"{t}.axis", 1)], f"{t}.heads") for t in tables]
    mask = _mask(w)

    def attend(data: str, layer: int) -> str:
        name, s = f"layers.{layer}", w.sizes
        parts = _query_key_value(w, data, name)
        q, k, v = (_by_heads(w, x, n) for x, n in zip(parts, (s.heads, s.groups, s.groups), strict=True))
        q, k = (_rotated(w, x, tables) for x in (q, k))
        cached = []
        for part, new in (("key", k), ("value", v)):
            joined = w.node("Concat", [f"past_key_values.{layer}.{part}", new], f"present.{layer}.{part}", axis=2)
            cached.append(_repeated(w, joined))
        turned = w.node("Transpose", [cached[0]], f"{name}.keys", perm=[0, 1, 3, 2])
        scores = w.node("MatMul", [q, turned], f"{name}.products")
        scores = w.node("Mul", [scores, w.tensor(f"{name}.scale", np.float32(s.size**-0.5))], f"{name}.scaled")
        shares = w.node("Softmax", [w.node("Add", [scores, mask], f"{name}.scores")], f"{name}.shares", axis=-1)
        mixed = w.node("MatMul", [shares, cached[1]], f"{name}.mixed")
        mixed = w.node("Transpose", [mixed], f"{name}.turned", perm=[0, 2, 1, 3])
        return w.node("Reshape", [mixed, w.ints(f"{name}.joined", 0, 0, s.width)], f"{name}.attention")

    return attend


def _by_heads(w: _Writer, data: str, heads: int) -> str:
    shape = w.ints(f"{data}.shape", 0, 0, heads, w.sizes.size)
    return w.node("Transpose", [w.node("Reshape", [data, shape], f"{data}.split")], f"{data}.heads", perm=[0, 2, 1, 3])


def _rotated(w: _Writer, data: str, tables: Sequence[str]) -> str:
    half, size = w.sizes.size // 2, w.sizes.size
    low, high = (
        w.node("Slice", [data, *(w.ints(f"{data}.{a}.{i}", v) for i, v in enumerate((a, b, 3)))], f"{data}.part.{a}")
        for a, b in ((0, half), (half, size))
    )
    turned = w.node("Concat", [w.node("Neg", [high], f"{data}.negative"), low], f"{data}.turned", axis=-1)
    cos = w.node("Mul", [data, tables[0]], f"{data}.cos")
    return w.node("Add", [cos, w.node("Mul", [turned, tables[1]], f"{data}.sin")], f"{data}.rotated")


def _repeated(w: _Writer, data: str) -> str:
    """Return keys or values for each head, (batch, heads, length, size), as Hugging Face's ``repeat_kv``."""
    s = w.sizes
    batch, length = (
        w.node("Slice", [w.node("Shape", [data], f"{data}.shape.{i}"), *(w.ints(f"{data}.{i}.{j}", v)
               for j, v in enumerate((i, i + 1)))], f"{data}.extent.{i}") for i in (0, 2)
    )  # fmt: skip
    sizes = [w.ints(f"{data}.{name}", n) for name, n in (("groups", s.groups), ("each", s.heads // s.groups),
             ("heads", s.heads), ("size", s.size))]  # fmt: skip
    wide = w.node("Concat", [batch, sizes[0], sizes[1], length, sizes[3]], f"{data}.wide", axis=0)
    flat = w.node("Concat", [batch, sizes[2], length, sizes[3]], f"{data}.flat", axis=0)
    apart = w.node("Unsqueeze", [data, w.ints(f"{data}.axis", 2)], f"{data}.apart")
    return w.node("Reshape", [w.node("Expand", [apart, wide], f"{data}.spread"), flat], f"{data}.repeated")


def _mask(w: _Writer) -> str:
    """Return the addition to scores, (batch, 1, length, total): causal, and of ``attention_mask``."""
    first, place = w.tensor("mask.zero", np.array(0)), w.tensor("mask.place", np.array(1))
    extents = [
        w.node("Gather", [w.node("Shape", [name], f"mask.{name}"), place], f"mask.extent.{name}")
        for name in ("attention_mask", "input_ids")
    ]
    total, length = extents
    one, axis = w.tensor("mask.one", np.array(1)), w.ints("mask.column", 1)
    keys = w.node("Range", [first, total, one], "mask.keys")
    rows = w.node("Range", [w.node("Sub", [total, length], "mask.past"), total, one], "mask.rows")
    seen = w.node("LessOrEqual", [keys, w.node("Unsqueeze", [rows, axis], "mask.rows.turned")], "mask.causal")
    kept = w.node("Cast", ["attention_mask"], "mask.kept", to=TensorProto.BOOL)
    kept = w.node("Unsqueeze", [kept, w.ints("mask.middle", 1, 2)], "mask.kept.wide")
    both = w.node("And", [seen, kept], "mask.seen")
    values = [w.tensor("mask.low", np.float32(_LOWEST)), w.tensor("mask.nothing", np.float32(0))]
    return w.node("Where", [both, values[1], values[0]], "mask.addition")


def _model(w: _Writer, grouped: bool, last: bool, shared: bool) -> onnx.ModelProto:
    s, value = w.sizes, helper.make_tensor_value_info
    past, total = "past_sequence_length", "total_sequence_length"
    before, behind = ("max_sequence_length",) * 2 if shared else (past, total)
    inputs = [value("input_ids", _INT64, ("batch_size", "sequence_length"))]
    mask = total if grouped else f"{past} + sequence_length"
    inputs.append(value("attention_mask", _INT64, ("batch_size", mask)))
    if not grouped:
        inputs.append(value("position_ids", _INT64, ("batch_size", "sequence_length")))
    outputs = [value("logits", _FLOAT, ("batch_size", 1 if last else "sequence_length", s.vocabulary))]
    for layer in range(s.layers):
        for part in ("key", "value"):
            shape = ("batch_size", s.groups, before, s.size)
            inputs.append(value(f"past_key_values.{layer}.{part}", _FLOAT, shape))
            outputs.append(value(f"present.{layer}.{part}", _FLOAT, (*shape[:2], behind, s.size)))
    graph = helper.make_graph(w.nodes, "decoder", inputs, outputs, w.tensors)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, producer_name="tilewright")


def save(model: onnx.ModelProto, path: Path) -> Path:
    """Write a model; weights of more than 1 GiB go to a file beside it."""
    large = sum(len(t.raw_data) for t in model.graph.initializer) > _MOST_IN_ONE_FILE
    beside = f"{path.name}.data" if large else None
    onnx.save_model(model, path, save_as_external_data=large, location=beside, size_threshold=1024)
    return path


def empty_caches(sizes: Sizes, batch: int, length: int = 0) -> dict[str, Array]:
    """Return caches of ``length`` zeros, by the names of a decoder's inputs."""
    names = [f"past_key_values.{i}.{part}" for i in range(sizes.layers) for part in ("key", "value")]
    return {name: np.zeros((batch, sizes.groups, length, sizes.size), "float32") for name in names}
