"""A detector from one library with named height and width, beside libraries for each size and ONNX Runtime.

python -m benchmarks.image_sizes                       # 8 channels at first, twelve sizes, one thread
python -m benchmarks.image_sizes --channels 32 --sizes 320x320 640x640

All three run in turns in one process, on one thread each, and processor time is what counts: the least of several runs,
since other work on the machine only adds to it. Every answer of the library is compared with ONNX Runtime's. Sizes are
multiples of 32, as the detector halves its features five times and joins them again.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TVM_NUM_THREADS", "1")

import numpy as np
import onnx
import onnxruntime

import tilewright as tvm
from benchmarks.detector import write_detector
from benchmarks.dynamic import Times, least, named_machine, static_executor

SIZES = (
    "224x224", "256x256", "288x288", "320x320", "352x480", "416x416", "480x640", "512x512", "544x960", "640x640",
    "736x1280", "1280x1280",
)  # fmt: skip
LIMITS = (32, 1280)
ROUNDS = 5
TOLERANCE = 1e-4  # of the largest number


def named_model(path: Path, channels: int) -> onnx.ModelProto:
    """Return the detector with the dimensions ``height`` and ``width``; write it to ``path``."""
    model = onnx.load(write_detector(path, 320, channels))
    for value in (*model.graph.input, *model.graph.output):
        height, width = value.type.tensor_type.shape.dim[2:]
        for dim, name in ((height, "height"), (width, "width")):
            dim.Clear()
            if value.name == "image":
                dim.dim_param = name
    onnx.save(model, str(path))
    return model


def compare(machine: Any, known: Any, session: Any, image: np.ndarray) -> Times:
    """Check the answers for ``image``, and take times in turns."""
    given = tvm.nd.array(image)
    known.set_input("image", given)
    for expected, found in zip(session.run(None, {"image": image}), machine.run(given), strict=True):
        np.testing.assert_allclose(found.numpy(), expected, atol=TOLERANCE * np.abs(expected).max())
    machine.set_input("main", given)
    invoke, run = machine.module["invoke"], known.module["run"]
    runs: list[Callable[[], Any]] = [lambda: invoke("main"), run, lambda: session.run(None, {"image": image})]
    count = 6 if image.size < 3 * 500**2 else 2
    rounds = [[least(one, count) for one in runs] for _ in range(ROUNDS)]
    return Times(*(min(column) for column in zip(*rounds, strict=True)))


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--channels", type=int, default=8, help="of the first convolution")
    parser.add_argument("--sizes", nargs="+", default=SIZES, metavar="HEIGHTxWIDTH")
    return parser.parse_args(arguments)


def main() -> None:
    """Print a line for each size as it is measured, and the geometric means."""
    chosen = parse_arguments()
    with tempfile.TemporaryDirectory() as folder:
        model = named_model(Path(folder) / "detector.onnx", chosen.channels)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    machine = named_machine(model, {"height": LIMITS, "width": LIMITS})
    print("| height x width | named, ms | known, ms | ONNX Runtime, ms | time of known | speed of ONNX Runtime |")
    print("|---|---:|---:|---:|---:|---:|")
    found = []
    for size in chosen.sizes:
        height, width = map(int, size.split("x"))
        image = np.random.default_rng(0).random((1, 3, height, width), "float32")
        times = compare(machine, static_executor(model, height=height, width=width), session, image)
        found.append(times)
        milliseconds = " | ".join(f"{t * 1e3:.2f}" for t in (times.named, times.static, times.onnxruntime))
        print(f"| {size} | {milliseconds} | {1 / times.of_static:.2f} | {times.of_onnxruntime:.2f} |", flush=True)
    ratios = zip(*((1 / t.of_static, t.of_onnxruntime) for t in found), strict=True)
    means = [statistics.geometric_mean(kind) for kind in ratios]
    print(f"| geometric mean | | | | {means[0]:.2f} | {means[1]:.2f} |")


if __name__ == "__main__":
    main()
