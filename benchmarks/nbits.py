"""Language models with weights of few bits, beside ONNX Runtime and a loop that only reads as many bytes.

python -m benchmarks.nbits                                 # 135M and 0.5B, decoding a token, blocks of 32, level 4
python -m benchmarks.nbits --models 135M --rows 1 128 --bits 4 8 --level 0
python -m benchmarks.nbits --half --threads 2              # all engines, and the loop that reads, with two threads

A model has the matrix products of a decoder (queries, keys, values, the way out, a gated feed-forward part, the head of
the last token) with normalization and activations between them, of random weights; attention itself, which the length
of the cache decides, is left out. The engines take turns in one process; what counts is the least of all turns, of
processor time with one thread, and of the clock with several: those need a machine that nothing else runs on.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.doctor.peak import reading_work

DOMAIN = "com.microsoft"
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Shape:
    """Extents of a decoder."""

    layers: int
    width: int
    keys: int  # columns of keys, and of values
    inner: int  # columns of the feed-forward part
    vocabulary: int


SHAPES = {
    "135M": Shape(30, 576, 192, 1536, 49152),  # SmolLM's
    "0.5B": Shape(24, 896, 128, 4864, 151936),  # Qwen 2's
}


class _Graph:
    """Nodes and weights in the making."""

    def __init__(self, bits: int, block: int, level: int, zeros: bool, half: bool) -> None:
        self.form = {"bits": bits, "block_size": block, "accuracy_level": level}
        self.zeros, self.scales = zeros, "float16" if half else "float32"
        self.rng = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def constant(self, value: Array) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def node(self, operator: str, inputs: Sequence[str], domain: str = "", **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], domain=domain, **attributes))
        return name

    def product(self, data: str, size: int, units: int) -> str:
        """A product with random weights of about the scale that keeps numbers as they are."""
        bits, block = self.form["bits"], self.form["block_size"]
        blocks = -(-size // block)
        codes = self.rng.integers(0, 256, (units, blocks, block * bits // 8), dtype="uint8")
        spread = 2.0 / ((1 << bits) * size**0.5)
        scales = (spread * (0.5 + self.rng.random((units * blocks,)))).astype(self.scales).astype("float32")
        inputs = [data, self.constant(codes), self.constant(scales)]
        if self.zeros:
            inputs.append(self.constant(np.full((units * -(-blocks * bits // 8),), 0x77, "uint8")))
        return self.node("MatMulNBits", inputs, DOMAIN, K=size, N=units, **self.form)

    def normalized(self, data: str, width: int) -> str:
        return self.node("SimplifiedLayerNormalization", [data, self.constant(np.ones(width, "float32"))], epsilon=1e-5)


def model_of(shape: Shape, rows: int, graph: _Graph) -> onnx.ModelProto:
    """The decoder's products for ``rows`` tokens, the head for the last one."""
    data, outputs = "x", []
    for _ in range(shape.layers):
        inner = graph.normalized(data, shape.width)
        queries = graph.product(inner, shape.width, shape.width)
        outputs += [graph.product(inner, shape.width, shape.keys) for _ in range(2)]
        data = graph.node("Add", [data, graph.product(queries, shape.width, shape.width)])
        inner = graph.normalized(data, shape.width)
        gate, up = (graph.product(inner, shape.width, shape.inner) for _ in range(2))
        gated = graph.node("Mul", [graph.node("Mul", [gate, graph.node("Sigmoid", [gate])]), up])
        data = graph.node("Add", [data, graph.product(gated, shape.inner, shape.width)])
    last = graph.node("Gather", [data, graph.constant(np.array([rows - 1]))], axis=0)
    outputs.append(graph.product(graph.normalized(last, shape.width), shape.width, shape.vocabulary))
    infos = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (rows, shape.width))]
    found = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    made = helper.make_graph(graph.nodes, "decoder", infos, found, graph.weights)
    return helper.make_model(made, opset_imports=opsets, ir_version=9)


def ours(model: onnx.ModelProto, rows: Array) -> Callable[[], Array]:
    """The compiled model, which returns the logits; from a library in a file, whose weights have huge pages."""
    mod, params = relay.frontend.from_onnx(model, freeze_params=True)
    with tvm.transform.PassContext(opt_level=3), tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.so"
        relay.build(mod, "llvm", params=params).export_library(path)
        run = graph_executor.GraphModule(tvm.runtime.load_module(path)["default"](tvm.cpu()))
    run.set_input("x", rows)

    def step() -> Array:
        run.run()
        return run.get_output(run.get_num_outputs() - 1).numpy()

    return step


def onnxruntimes(model: onnx.ModelProto, rows: Array, threads: int) -> Callable[[], Array]:
    """ONNX Runtime's step."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0" if threads > 1 else "1")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"x": rows})[-1]


def weight_bytes(graph: _Graph) -> int:
    """Bytes of codes, scales (as float16 where they are that) and zero points."""
    sizes = [numpy_helper.to_array(w) for w in graph.weights]
    return sum(w.nbytes // (2 if w.dtype == np.float32 and graph.scales == "float16" else 1) for w in sizes)


def least_seconds(
    works: Sequence[Callable[[], Any]], turns: int, each: int, clock: Callable[[], int] = time.process_time_ns
) -> list[float]:
    """The least time of each, in turns."""
    best = [float("inf")] * len(works)
    for _ in range(turns):
        for i, work in enumerate(works):
            for _ in range(each):
                began = clock()
                work()
                best[i] = min(best[i], (clock() - began) * 1e-9)
    return best


def measure(name: str, rows: int, chosen: argparse.Namespace, bits: int) -> None:
    """Print a line of the table."""
    graph = _Graph(bits, chosen.block, chosen.level, chosen.zeros, chosen.half)
    model = model_of(SHAPES[name], rows, graph)
    data = np.random.default_rng(1).standard_normal((rows, SHAPES[name].width)).astype("float32")
    here, there = ours(model, data), onnxruntimes(model, data, chosen.threads)
    nbytes = weight_bytes(graph)
    difference = float(np.abs(here() - there()).max() / np.abs(there()).max())
    del model
    read = reading_work(nbytes, threads=chosen.threads)
    clock = time.process_time_ns if chosen.threads == 1 else time.perf_counter_ns
    times = least_seconds([here, there, lambda: read(1)], chosen.turns, max(1, 16 // rows), clock)
    mine, others, bound = (1e3 * t for t in times)
    print(
        f"| {name} | {rows} | {bits} | {mine:.2f} | {others:.2f} | {others / mine:.2f} | {nbytes / 1e6:.0f} MB, "
        f"{bound:.2f} | {bound / mine:.2f} | {difference:.1e} |",
        flush=True,
    )


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--rows", nargs="+", type=int, default=[1], help="tokens: 1 decodes")
    parser.add_argument("--bits", nargs="+", type=int, default=[4])
    parser.add_argument("--block", type=int, default=32)
    parser.add_argument("--level", type=int, default=4, help="accuracy_level")
    parser.add_argument("--zeros", action="store_true", help="zero points of their own")
    parser.add_argument("--half", action="store_true", help="scales that float16 has exactly")
    parser.add_argument("--threads", type=int, default=1, help="with more than 1, times are of the clock")
    parser.add_argument("--turns", type=int, default=5)
    return parser.parse_args(arguments)


def main() -> None:
    """Print milliseconds for each model, number of tokens and bits."""
    chosen = parse_arguments()
    tvm.runtime.set_num_threads(chosen.threads)
    head = "model | tokens | bits | ms | ONNX Runtime | times as fast | reading alone | of that | largest difference"
    print(f"| {head} |\n|{'---|' * 9}")
    for name in chosen.models:
        for rows in chosen.rows:
            for bits in chosen.bits:
                measure(name, rows, chosen, bits)


if __name__ == "__main__":
    main()
