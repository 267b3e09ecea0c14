"""GPT-2 generating tokens from one library: a cache that grows in place, one that is copied, and ONNX Runtime.

python -m benchmarks.generate                          # GPT-2 small, 64 tokens after 128, one thread
python -m benchmarks.generate --layers 2 --past 900 --tokens 32

The three take turns in one process, block by block, and processor time is what counts. Beside them stands the time that
reading the step's weights and cache from memory takes by itself (``peak.read_seconds``), measured between the blocks.
Every token is compared with ONNX Runtime's.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TVM_NUM_THREADS", "1")

import numpy as np
import onnx
import onnxruntime
import torch

import tilewright as tvm
from tilewright import relay, runtime
from tilewright.doctor.peak import read_seconds
from tilewright.runtime.vm import with_capacity
from tilewright.testing.zoo import transformers

HEADS, WIDTH, POSITIONS, VOCABULARY = 12, 64, 1024, 50257

Array = np.ndarray[Any, Any]
Step = Callable[[int, list[Any]], tuple[Array, list[Any]]]  # token, cache -> logits, cache


def export(path: Path, layers: int) -> None:
    """One step of GPT-2 whose cache has the dimension ``past``, as an ONNX file."""
    torch.manual_seed(0)
    workload = transformers.gpt2_decode(past=4, layers=layers, vocabulary=VOCABULARY)
    axes = {name: {2: "past"} for name in workload.inputs if name.startswith("past")}
    axes |= {name: {2: "now"} for name in workload.output_names if name.startswith("present")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        torch.onnx.export(
            workload.network.eval(), tuple(workload.inputs.values()), str(path), input_names=list(workload.inputs),
            output_names=list(workload.output_names), dynamic_axes=axes, opset_version=17, dynamo=False,
        )  # fmt: skip


def machine_step(model: onnx.ModelProto, grows: bool) -> Step:
    """A step of the virtual machine."""
    mod, params = relay.frontend.from_onnx(model, dims={"past": (1, POSITIONS - 1)})
    with tvm.transform.PassContext(opt_level=3, disabled_pass=[] if grows else ["AppendInPlace"]):
        machine = runtime.vm.VirtualMachine(relay.vm.compile(mod, "llvm", params=params), tvm.cpu())

    def step(token: int, cache: list[Any]) -> tuple[Array, list[Any]]:
        logits, *present = machine.run(tvm.nd.array(np.array([[token]])), *cache)
        return logits.numpy(), present

    return step


def onnxruntime_step(session: Any) -> Step:
    """A step of ONNX Runtime."""
    names = [item.name for item in session.get_inputs()]

    def step(token: int, cache: list[Any]) -> tuple[Array, list[Any]]:
        logits, *present = session.run(None, dict(zip(names, [np.array([[token]]), *cache], strict=True)))
        return logits, present

    return step


def generate(step: Step, cache: list[Any], tokens: int) -> tuple[list[int], list[float]]:
    """The tokens of the largest logits, and the seconds of processor time of each step."""
    token, found, seconds = 0, [], []
    for _ in range(tokens):
        began = time.process_time_ns()
        logits, cache = step(token, cache)
        seconds.append((time.process_time_ns() - began) * 1e-9)
        token = int(np.argmax(logits))
        found.append(token)
    return found, seconds


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--past", type=int, default=128, help="tokens that are cached at the start")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args(arguments)


def main() -> None:
    """Print the milliseconds of a step and what they are of the bound, of each kind."""
    chosen = parse_arguments()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gpt2.onnx"
        export(path, chosen.layers)
        model = onnx.load(path)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    shape = (1, HEADS, chosen.past, WIDTH)
    rng = np.random.default_rng(0)
    start = [rng.standard_normal(shape).astype("float32") for _ in range(2 * chosen.layers)]
    weights = sum(int(np.prod(t.dims)) * 4 for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT)
    cache = 2 * chosen.layers * HEADS * WIDTH * 4 * (chosen.past + chosen.tokens / 2)
    tables = (VOCABULARY + POSITIONS) * HEADS * WIDTH * 4  # embeddings, of which a step reads a row
    room = chosen.past + chosen.tokens
    kinds: dict[str, tuple[Step, Callable[[], list[Any]]]] = {
        "ONNX Runtime": (onnxruntime_step(session), lambda: start),
        "copied": (machine_step(model, False), lambda: [tvm.nd.array(part) for part in start]),
        "in place": (machine_step(model, True), lambda: [with_capacity(part, 2, room) for part in start]),
    }
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    bounds, wanted = [], None
    for _ in range(chosen.rounds):
        for kind, (step, given) in kinds.items():
            tokens, seconds = generate(step, given(), chosen.tokens)
            wanted = wanted or tokens
            if tokens != wanted:
                raise SystemExit(f"{kind} gives other tokens than ONNX Runtime")
            times[kind] += seconds
        bounds.append(read_seconds(weights - tables + cache))
    bound = min(bounds)
    print("| cache | ms a step, median | least | of the bound, least |\n|---|---:|---:|---:|")
    for kind, seconds in times.items():
        median, least = statistics.median(seconds) * 1e3, min(seconds) * 1e3
        print(f"| {kind} | {median:.2f} | {least:.2f} | {bound * 1e3 / least:.2f} |")
    median, megabytes = statistics.median(bounds) * 1e3, (weights - tables + cache) / 1e6
    print(f"| reading {megabytes:.0f} MB | {median:.2f} | {bound * 1e3:.2f} | |")


if __name__ == "__main__":
    main()
