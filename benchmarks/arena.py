"""Activation memory beside ONNX Runtime's arena, on the same ONNX files.

    python -m benchmarks.arena --models densenet121 bert_base      # all of the zoo by default

Tilewright's figure is ``BuildReport.activation_bytes``: the arena in which its memory planner lays every tensor between
operators. ONNX Runtime's is by how much its CPU arena grew in two runs, by its log ("Total allocated bytes" of the last
extension less that before the first run). It grows by powers of two. The temporary memory of kernels comes from it
too, and so do weights packed in the first run (most of what it takes for fully connected layers and transformers);
ours comes from a pool for each thread and is not counted.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys

import numpy as np

import tilewright as tvm
from tilewright import relay
from tilewright.testing import zoo

_DTYPES = {"tensor(float)": "float32", "tensor(int64)": "int64", "tensor(int32)": "int32", "tensor(bool)": "bool"}
_MARK = "=== the first run begins"


def run_onnxruntime(path: str) -> None:
    """Run a model twice, with the log on standard error."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(0)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    inputs = {i.name: np.zeros(i.shape, _DTYPES[i.type]) for i in session.get_inputs()}
    print(_MARK, file=sys.stderr, flush=True)
    for _ in range(2):
        session.run(None, inputs)


def onnxruntime_bytes(path: str) -> int:
    """What ONNX Runtime's arena takes; in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.arena", "--onnxruntime", path]
    log = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ)).stderr
    before, after = ([int(n) for n in re.findall(r"Total allocated bytes: (\d+)", part)] for part in log.split(_MARK))
    return (after or before or [0])[-1] - (before or [0])[-1]


def tilewright_bytes(path: str) -> int:
    """What Tilewright's memory planner needs."""
    module, params = relay.frontend.from_onnx(path)
    with tvm.transform.PassContext(opt_level=3):
        return int(relay.build(module, "llvm", params=params).build_report.activation_bytes)


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=list(zoo.names()), help="names of the zoo")
    parser.add_argument("--onnxruntime", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.onnxruntime:
        run_onnxruntime(options.onnxruntime)
        return
    print("| model | tilewright MB | onnxruntime MB |\n|---|---:|---:|")
    for name in options.models:
        path = str(zoo.export(name))
        print(f"| {name} | {tilewright_bytes(path) / 1e6:.2f} | {onnxruntime_bytes(path) / 1e6:.2f} |", flush=True)


if __name__ == "__main__":
    main()
