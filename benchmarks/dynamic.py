"""BERT from one library with named dimensions, beside libraries for each shape and ONNX Runtime's dynamic session.

python -m benchmarks.dynamic                       # two layers of 768, twelve shapes, one thread
python -m benchmarks.dynamic --layers 12 --shapes 1x128 8x64

All three run in turns in one process, on one thread each, and processor time is what counts: the least of several runs,
since other work on the machine only adds to it. Every answer of the library is compared with ONNX Runtime's.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TVM_NUM_THREADS", "1")

import numpy as np
import onnx
import onnxruntime
import torch

import tilewright as tvm
from tilewright import relay, runtime
from tilewright.contrib import graph_executor
from tilewright.testing.zoo import transformers

SHAPES = ("1x1", "1x7", "1x16", "4x5", "3x19", "1x64", "2x33", "1x128", "8x16", "2x128", "8x64", "1x512")
RANGES = {"batch": (1, 8), "seq": (1, 512)}
ROUNDS = 4
TOLERANCE = 1e-3

Inputs = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Times:
    """Seconds of processor time of one run of a shape."""

    named: float
    static: float
    onnxruntime: float

    @property
    def of_static(self) -> float:
        """Speed of the library with named dimensions beside that of the library for the shape."""
        return self.static / self.named

    @property
    def of_onnxruntime(self) -> float:
        """Speed of the library with named dimensions beside ONNX Runtime's."""
        return self.onnxruntime / self.named


def export(path: Path, layers: int) -> None:
    """BERT with dimensions ``batch`` and ``seq``, as an ONNX file."""
    torch.manual_seed(0)
    workload = transformers.bert_base(tokens=16, layers=layers)
    named = {0: "batch", 1: "seq"}
    outputs = ["last_hidden_state", "pooler_output"]
    axes = {**dict.fromkeys([*workload.inputs, outputs[0]], named), outputs[1]: {0: "batch"}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", torch.jit.TracerWarning)  # the width of a head is a number
        torch.onnx.export(
            workload.network.eval(), tuple(workload.inputs.values()), str(path), input_names=list(workload.inputs),
            output_names=outputs, dynamic_axes=axes, opset_version=17, dynamo=False,
        )  # fmt: skip


def inputs_of(batch: int, seq: int) -> dict[str, np.ndarray]:
    """Tokens of two sentences, the last eighth of them masked."""
    tokens = np.random.default_rng(0).integers(0, 30522, (batch, seq))
    mask = np.ones((batch, seq), "int64")
    mask[:, seq - seq // 8 :] = 0
    sentence = np.tile(np.arange(seq) >= seq // 2, (batch, 1)).astype("int64")
    return {"input_ids": tokens, "attention_mask": mask, "token_type_ids": sentence}


def named_machine(model: onnx.ModelProto, ranges: Mapping[str, tuple[int, int]] = RANGES) -> Any:
    """The virtual machine of the library for every shape."""
    mod, params = relay.frontend.from_onnx(model, dims=ranges)
    with tvm.transform.PassContext(opt_level=3):
        return runtime.vm.VirtualMachine(relay.vm.compile(mod, "llvm", params=params), tvm.cpu())


def static_executor(model: onnx.ModelProto, **dims: int) -> Any:
    """The graph executor of the library for one shape."""
    mod, params = relay.frontend.from_onnx(model, dims=dims)
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(mod, "llvm", params=params)
    return graph_executor.GraphModule(library["default"](tvm.cpu()))


def compare(machine: Any, static: Any, session: Any, inputs: Inputs) -> Times:
    """Check the answers for ``inputs``, and take times in turns."""
    wanted = session.run(None, dict(inputs))
    arrays = {name: tvm.nd.array(value) for name, value in inputs.items()}
    static.set_input(**arrays)
    static.run()
    for expected, named, alone in zip(
        wanted, machine.run(**arrays), (static.get_output(i) for i in (0, 1)), strict=True
    ):
        np.testing.assert_allclose(named.numpy(), expected, atol=TOLERANCE)
        np.testing.assert_allclose(alone.numpy(), expected, atol=TOLERANCE)
    machine.set_input("main", **arrays)
    invoke, run = machine.module["invoke"], static.module["run"]
    runs: list[Callable[[], Any]] = [lambda: invoke("main"), run, lambda: session.run(None, dict(inputs))]
    count = 3 if inputs["input_ids"].size > 100 else 8
    rounds = [[least(one, count) for one in runs] for _ in range(ROUNDS)]
    return Times(*(min(column) for column in zip(*rounds, strict=True)))


def least(run: Callable[[], Any], count: int) -> float:
    """Return the least seconds of processor time of ``count`` runs."""
    found = float("inf")
    for _ in range(count):
        began = time.process_time_ns()
        run()
        found = min(found, (time.process_time_ns() - began) * 1e-9)
    return found


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--shapes", nargs="+", default=SHAPES, metavar="BATCHxSEQ")
    return parser.parse_args(arguments)


def main() -> None:
    """Print a line for each shape as it is measured, and the geometric means."""
    chosen = parse_arguments()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bert.onnx"
        export(path, chosen.layers)
        model = onnx.load(path)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    machine = named_machine(model)
    print(
        "| batch x seq | named, ms | for the shape, ms | ONNX Runtime, ms | of the shape's speed | of ONNX Runtime's |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    found = []
    for shape in chosen.shapes:
        batch, seq = (int(extent) for extent in shape.split("x"))
        times = compare(machine, static_executor(model, batch=batch, seq=seq), session, inputs_of(batch, seq))
        found.append(times)
        milliseconds = " | ".join(f"{t * 1e3:.2f}" for t in (times.named, times.static, times.onnxruntime))
        print(f"| {shape} | {milliseconds} | {times.of_static:.2f} | {times.of_onnxruntime:.2f} |", flush=True)
    ratios = zip(*((t.of_static, t.of_onnxruntime) for t in found), strict=True)
    means = [statistics.geometric_mean(kind) for kind in ratios]
    print(f"| geometric mean | | | | {means[0]:.2f} | {means[1]:.2f} |")


if __name__ == "__main__":
    main()
