"""MLPerf Tiny's networks as TensorFlow Lite files: TensorFlow Lite Micro's interpreter beside C of this compiler.

python -m venv /tmp/tflm && /tmp/tflm/bin/pip install tflite-micro
python -m benchmarks.tflite_micro --tflm /tmp/tflm [NETWORK...]

Instructions are those of one more run in a process on x86-64, counted by qemu's user mode (``micro_count.c``): of the
interpreter as its package has it (its reference kernels), and of our C by gcc -O2. Memory is the interpreter's arena as
it reports it, and our workspace with inputs and outputs. Outputs are compared.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from tests.relay.frontend.tflite_files import Array, File
from tests.relay.frontend.tflite_networks import MobileNet

import tilewright as tvm
from tilewright import relay
from tilewright.micro import export_bundle

_MAIN = """
#include <stdio.h>
#include "net.h"
static _Alignas(64) uint8_t workspace[NET_WORKSPACE_BYTES];
static _Alignas(16) int8_t in[1 << 15], out[1 << 12];
int main(int argc, char** argv) {
  const struct net_inputs inputs = {in};
  const struct net_outputs outputs = {out};
  FILE* file = fopen("input.bin", "rb");
  if (!file || !fread(in, 1, sizeof in, file)) return 1;
  for (int i = 0; i < argc; i++) if (net_run(&inputs, &outputs, workspace, sizeof workspace)) return 2;
  fwrite(out, 1, NET_OUTPUT_@OUT@_ELEMENTS, stdout);
  return 0;
}
"""
_TFLM = """
import sys
import numpy as np
from tflite_micro import runtime
made = runtime.Interpreter.from_file("model.tflite", arena_size=1 << 20)
shape = tuple(made.get_input_details(0)["shape"])
x = np.fromfile("input.bin", "int8").reshape(shape)
for _ in range(len(sys.argv)):
    made.set_input(x, 0)
    made.invoke()
sys.stdout.buffer.write(made.get_output(0).tobytes())
sys.stdout.flush()
if len(sys.argv) == 1:
    made.print_allocations()
"""


class Tiny(MobileNet):
    """A network under construction; ``at`` is the last tensor, of the shape ``shape`` (n, h, w, c)."""

    def __init__(self, shape: Sequence[int]) -> None:
        self.rng, self.dtype, self.zero, self.file = np.random.default_rng(0), "int8", -5, File()
        self.shape = tuple(shape)
        self.at = self._activation(self.shape)
        self.inputs, self.given = [self.at], self.shape

    def conv(
        self, out: int, kernel: tuple[int, int], stride: int = 1, depthwise: bool = False, relu: bool = True
    ) -> None:
        """A convolution with the padding SAME."""
        h, w, c = self.shape[1:]
        shape = (1, -(-h // stride), -(-w // stride), out)
        weights = self._weights((1, *kernel, out), 3) if depthwise else self._weights((out, *kernel, c), 0)
        made = self._activation(shape)
        kind, more = ("DEPTHWISE_CONV_2D", {"depthMultiplier": 1}) if depthwise else ("CONV_2D", {})
        options = "DepthwiseConv2DOptions" if depthwise else "Conv2DOptions"
        more |= {"strideW": stride, "strideH": stride, "fusedActivationFunction": int(relu)}
        self.file.op(kind, [self.at, *weights], [made], options, **more)
        self.at, self.shape = made, shape

    def dense(self, units: int, relu: bool = False) -> None:
        """A dense layer."""
        made = self._activation((1, units))
        inputs = [self.at, *self._weights((units, self.shape[-1]), 0)]
        self.file.op("FULLY_CONNECTED", inputs, [made], "FullyConnectedOptions", fusedActivationFunction=int(relu))
        self.at, self.shape = made, (1, units)

    def classes(self, count: int) -> None:
        """Means over the image, a dense layer, and shares of classes."""
        pooled = self._activation((1, 1, 1, self.shape[3]))
        size = {"filterHeight": self.shape[1], "filterWidth": self.shape[2], "strideW": 1, "strideH": 1, "padding": 1}
        self.file.op("AVERAGE_POOL_2D", [self.at], [pooled], "Pool2DOptions", **size)
        flat = self._activation((1, self.shape[3]))
        to = self.file.constant(np.array([1, self.shape[3]], "int32"))
        self.file.op("RESHAPE", [pooled, to], [flat], "ReshapeOptions")
        self.at, self.shape = flat, (1, self.shape[3])
        self.dense(count)
        shares = self._activation((1, count), softmax=True)
        self.file.op("SOFTMAX", [self.at], [shares], "SoftmaxOptions", beta=1.0)
        self.at = shares


def autoencoder() -> Tiny:
    """Nine dense layers of 128 and 8, and one of 640."""
    net = Tiny((1, 640))
    for units in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        net.dense(units, relu=True)
    net.dense(640)
    return net


def resnet8() -> Tiny:
    """Three residual blocks."""
    net = Tiny((1, 32, 32, 3))
    net.conv(16, (3, 3))
    for channels, stride in ((16, 1), (32, 2), (64, 2)):
        before, shape = net.at, net.shape
        net.conv(channels, (3, 3), stride)
        net.conv(channels, (3, 3), relu=False)
        if stride > 1:
            main, main_shape = net.at, net.shape
            net.at, net.shape = before, shape
            net.conv(channels, (1, 1), stride, relu=False)
            before, net.at, net.shape = net.at, main, main_shape
        net.at = net._sum(before, net.at, net.shape)
    net.classes(10)
    return net


def ds_cnn() -> Tiny:
    """Four separable convolutions."""
    net = Tiny((1, 49, 10, 1))
    net.conv(64, (10, 4), 2)
    for _ in range(4):
        net.conv(64, (3, 3), depthwise=True)
        net.conv(64, (1, 1))
    net.classes(12)
    return net


def mobilenet() -> Tiny:
    """MobileNetV1 of a quarter of the channels."""
    net = Tiny((1, 96, 96, 3))
    net.conv(8, (3, 3), 2)
    strides = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1)
    channels = (16, 32, 32, 64, 64, 128, 128, 128, 128, 128, 128, 256, 256)
    for stride, out in zip(strides, channels, strict=True):
        net.conv(net.shape[3], (3, 3), stride, depthwise=True)
        net.conv(out, (1, 1))
    net.classes(2)
    return net


NETWORKS: dict[str, Callable[[], Tiny]] = {
    "autoencoder": autoencoder, "resnet8": resnet8, "ds_cnn": ds_cnn, "mobilenet": mobilenet,
}  # fmt: skip


def _run(command: Sequence[str | Path], folder: Path) -> tuple[bytes, str]:
    done = subprocess.run(command, cwd=folder, capture_output=True)
    if done.returncode:
        raise SystemExit(f"{command}\n{done.stderr.decode()}")
    return done.stdout, done.stderr.decode()


def _counted(program: Sequence[str | Path], folder: Path) -> tuple[bytes, int]:
    """The output of two runs, and the instructions of the second."""
    counts, said = [], b""
    for more in ([], ["again"]):
        said, told = _run(["qemu-x86_64", "-cpu", "max", "-plugin", "./count.so", *program, *more], folder)
        counts.append(int(re.findall(r"instructions (\d+)", told)[0]))
    return said, counts[1] - counts[0]


def _ours(net: Tiny, folder: Path) -> tuple[bytes, int, int]:
    mod, params = relay.frontend.from_tflite(net.file.data)
    factory = relay.build(mod, "c -runtime=c", params=params, executor="aot", mod_name="net")
    export_bundle(factory, folder, "net")
    outputs = re.findall(r"NET_OUTPUT_(\w+)_ELEMENTS", (folder / "net.h").read_text())
    (folder / "main.c").write_text(_MAIN.replace("@OUT@", outputs[0]))
    _run(["gcc", "-O2", "-static", "main.c", "net.c", "net_weights.c", "-lm", "-o", "program"], folder)
    ends = sum(t.nbytes for t in (*factory.layout.inputs, *factory.layout.outputs))
    return *_counted(["./program"], folder), factory.layout.workspace_bytes + ends


def _row(name: str, folder: Path, tflm: Path) -> str:
    net = NETWORKS[name]()
    net.file.ends(net.inputs, [net.at])
    data: Array = net.rng.integers(-128, 128, net.given).astype(np.int8)
    data.tofile(folder / "input.bin")
    (folder / "model.tflite").write_bytes(net.file.data)
    (folder / "tflm.py").write_text(_TFLM)
    ours, count, memory = _ours(net, folder)
    python = tflm / "bin" / "python"
    paths = ["-E", f"PYTHONPATH={next(tflm.glob('lib/python*/site-packages'))}", "-E", "PYTHONHASHSEED=0"]
    theirs, their_count = _counted([*paths, python.resolve(), "tflm.py"], folder)
    arena = re.findall(r"Arena allocation total (\d+)", _run([python, "tflm.py"], folder)[1])
    a, b = (np.frombuffer(out, np.int8).astype(int) for out in (ours, theirs))
    off = int(np.abs(a - b).max()) if len(a) == len(b) else -1
    cells = [name, memory, arena[0] if arena else "", f"{count / 1e6:.2f}", f"{their_count / 1e6:.2f}", off]
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=", ".join(NETWORKS))
    parser.add_argument("--tflm", type=Path, required=True, help="a virtual environment that has tflite-micro")
    args = parser.parse_args()
    heads = ["network", "memory (bytes)", "tflite-micro", "million instructions", "tflite-micro", "largest difference"]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name in args.networks or NETWORKS:
        with tempfile.TemporaryDirectory() as path:
            folder = Path(path)
            plugin = str(Path(__file__).with_name("micro_count.c"))
            _run(["gcc", "-shared", "-fPIC", "-O1", plugin, "-o", "count.so"], folder)
            with tvm.transform.PassContext(opt_level=3):
                print(_row(name, folder, args.tflm), flush=True)


if __name__ == "__main__":
    main()
