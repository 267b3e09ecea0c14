"""Cost of checking indices when a model runs: two layers of BERT, and a recommender with 26 tables (DLRM).

python -m benchmarks.index_checks                  # one thread; with and without --unchecked-indices, in turns

Processor time of a run of the graph executor: the median of many, a checked one and an unchecked one by turns, since
other work on the machine changes both alike. Two executors differ by some percent by where their weights lie, though;
so the kernel of the checks is measured by itself too, and is the share that counts.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TVM_NUM_THREADS", "1")

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tilewright as tvm
from tilewright import relay
from tilewright.contrib.graph_executor import GraphModule

Arrays = Mapping[str, np.ndarray[Any, Any]]
TABLES, ROWS, WIDTH, NUMBERS = 26, 10_000, 64, 13


def recommender(batch: int) -> tuple[onnx.ModelProto, Arrays]:
    """DLRM (Naumov et al., arXiv:1906.00091): rows of tables and dense numbers, all pairs' products, a network."""
    rng = np.random.default_rng(0)
    weights: dict[str, Any] = {}
    nodes = []

    def layers(name: str, value: str, sizes: Sequence[int]) -> str:
        for k, (n, m) in enumerate(itertools.pairwise(sizes)):
            weights[f"{name}{k}"] = (rng.standard_normal((n, m)) / n**0.5).astype("float32")
            nodes.append(helper.make_node("MatMul", [value, f"{name}{k}"], [f"{name}{k}p"]))
            nodes.append(helper.make_node("Relu", [f"{name}{k}p"], [value := f"{name}{k}r"]))
        return value

    features = [layers("bottom", "numbers", (NUMBERS, 512, 256, WIDTH))]
    for k in range(TABLES):
        weights[f"table{k}"] = rng.standard_normal((ROWS, WIDTH)).astype("float32")
        nodes.append(helper.make_node("Gather", [f"table{k}", f"place{k}"], [f"row{k}"], name=f"lookup{k}"))
        features.append(f"row{k}")
    weights["axis"], weights["flat"] = np.array([1]), np.array([batch, -1])
    nodes += [helper.make_node("Unsqueeze", [f, "axis"], [f"{f}u"]) for f in features]
    nodes.append(helper.make_node("Concat", [f"{f}u" for f in features], ["all"], axis=1))
    nodes.append(helper.make_node("Transpose", ["all"], ["turned"], perm=[0, 2, 1]))
    nodes.append(helper.make_node("MatMul", ["all", "turned"], ["pairs"]))
    nodes.append(helper.make_node("Reshape", ["pairs", "flat"], ["flat_pairs"]))
    nodes.append(helper.make_node("Concat", ["flat_pairs", features[0]], ["both"], axis=1))
    out = layers("top", "both", ((TABLES + 1) ** 2 + WIDTH, 512, 256, 1))
    inputs = {"numbers": rng.standard_normal((batch, NUMBERS)).astype("float32")}
    inputs |= {f"place{k}": rng.integers(0, ROWS, batch) for k in range(TABLES)}
    kinds = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64}
    infos = [helper.make_tensor_value_info(k, kinds[str(v.dtype)], v.shape) for k, v in inputs.items()]
    outputs = [helper.make_tensor_value_info(out, TensorProto.FLOAT, (batch, 1))]
    graph = helper.make_graph(
        nodes, "dlrm", infos, outputs, [numpy_helper.from_array(v, k) for k, v in weights.items()]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), inputs


def text(tokens: int) -> tuple[onnx.ModelProto, Arrays]:
    """Two layers of BERT-base on one sentence."""
    from benchmarks import dynamic

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "bert.onnx")
        dynamic.export(path, 2)
        return onnx.load(path), dynamic.inputs_of(1, tokens)


def executor(model: onnx.ModelProto, inputs: Arrays, unchecked: bool) -> tuple[Callable[[], None], float]:
    """A run of the model, and the seconds that the kernel of its checks takes."""
    shapes = {name: value.shape for name, value in inputs.items()}
    mod, params = relay.frontend.from_onnx(model, shape=shapes)
    with tvm.transform.PassContext(opt_level=3, config={"relay.unchecked_indices": unchecked}):
        factory = relay.build(mod, "llvm", params=params)
    graph = GraphModule(factory["default"](tvm.cpu()))
    graph.set_input(**inputs)
    run: Callable[[], None] = graph.module["run"]
    return run, sum(_seconds(factory.get_lib(), node, inputs) for node in json.loads(factory.get_graph_json())["nodes"])


def _seconds(library: Any, node: Mapping[str, Any], inputs: Arrays) -> float:
    """Those of a node that checks inputs, the median of several times 2,000 calls; 0 of other nodes."""
    if "check_all_indices" not in node["name"]:
        return 0.0
    given = [tvm.nd.array(v) for v in inputs.values() if v.dtype.kind == "i"][: int(node["attrs"]["num_inputs"])]
    made = [tvm.nd.array(a.numpy()) for a in given]
    timer = library.time_evaluator(node["attrs"]["func_name"], tvm.cpu(), number=2000, repeat=7)
    return statistics.median(timer(*given, *made).results)


def medians(runs: Sequence[Callable[[], None]], rounds: int) -> list[float]:
    """Seconds of processor time, the runs by turns."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, found in zip(runs, times, strict=True):
            began = time.process_time_ns()
            run()
            found.append((time.process_time_ns() - began) * 1e-9)
    return [statistics.median(found) for found in times]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.index_checks")
    parser.add_argument("--rounds", type=int, default=400)
    rounds = parser.parse_args(arguments).rounds
    print("| model | checked, ms | unchecked, ms | the checks' kernel, us | of a run |\n|---|---|---|---|---|")
    for name, (model, inputs) in {
        "BERT, 2 layers, 1 x 16": text(16),
        "BERT, 2 layers, 1 x 128": text(128),
        "DLRM, 26 tables, batch 1": recommender(1),
        "DLRM, 26 tables, batch 16": recommender(16),
        "DLRM, 26 tables, batch 128": recommender(128),
    }.items():
        (run, kernel), (other, _) = (executor(model, inputs, flag) for flag in (False, True))
        checked, unchecked = medians([run, other], rounds)
        share = 100 * kernel / unchecked
        print(
            f"| {name} | {checked * 1e3:.3f} | {unchecked * 1e3:.3f} | {kernel * 1e6:.2f} | {share:.2f} % |", flush=True
        )


if __name__ == "__main__":
    main()
