"""Lesson 11: int8 models.

The digit classifier of ``digits/`` and a convolutional network with residuals, quantized by a few samples: how many
answers are right before and after, how large the files are, how long a run takes, and which layer costs most.
"""

import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnx.parser

import tilewright
from tilewright.quantization.measure import measure

HERE = Path(__file__).parent


def compare(name: str, path: Path, samples: np.ndarray, pictures: np.ndarray, labels: np.ndarray | None) -> None:
    """Quantize a model by some samples, and print what became of it."""
    quantized = tilewright.quantize(path, samples)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "int8.onnx"
        quantized.save(output)
        exact, whole = tilewright.compile(path), tilewright.compile(output)
        sizes = [file.stat().st_size / 1024 for file in (path, output)]
    answers = [np.array([int(model(one[None]).argmax()) for one in pictures]) for model in (exact, whole)]
    print(f"{name}: {len(quantized.plan.layers)} layers quantized, by {len(samples)} samples")
    if labels is None:
        print(f"  same answer    {np.mean(answers[0] == answers[1]):.1%}")
    else:
        right = [np.mean(one == labels) for one in answers]
        print(f"  right answers  {right[0]:.2%} in float, {right[1]:.2%} in int8")
    print(f"  file           {sizes[0]:.0f} KiB in float, {sizes[1]:.0f} KiB in int8")
    costs = measure(quantized, lambda stage, done, total: None, seconds=2.0)
    print(f"  kernels        {costs.times[0]:.0f} us in float, {costs.times[1]:.0f} us in int8")
    worst = costs.layers[0]
    print(f"  costs most     {worst.node}: output error {worst.error:.2%}, {worst.decibels:.0f} dB")


# 1. A network that was trained. The samples are the first 50 of the held-out pictures; all of them are the test.
with np.load(HERE / "digits" / "heldout.npz") as held:
    digits, labels = (held["pictures"][:, None] / 16).astype("float32"), held["labels"]
compare("digits", HERE / "digits" / "digits.onnx", digits[:50], digits, labels)

# 2. Convolutions with residuals, 3x3, depthwise and 1x1, of random weights: how often it still answers as in float.
model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["": 17]>
residuals (float[1, 3, 32, 32] x) => (float[1, 10] y) {
  a = Conv<pads=[1, 1, 1, 1], strides=[2, 2]>(x, w0)
  ra = Relu(a)
  b = Conv<pads=[1, 1, 1, 1]>(ra, w1)
  rb = Relu(b)
  c = Conv<pads=[1, 1, 1, 1]>(rb, w2)
  s = Add(c, ra)
  rs = Relu(s)
  d = Conv<pads=[1, 1, 1, 1], group=32>(rs, w3)
  rd = Relu(d)
  e = Conv(rd, w4)
  re = Relu(e)
  p = MaxPool<kernel_shape=[2, 2], strides=[2, 2]>(re)
  f = Flatten(p)
  y = Gemm<transB=1>(f, w5)
}""")
rng = np.random.default_rng(0)
shapes = [(32, 3, 3, 3), (32, 32, 3, 3), (32, 32, 3, 3), (32, 1, 3, 3), (64, 32, 1, 1), (10, 4096)]
for index, shape in enumerate(shapes):
    weight = rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight.astype("float32"), f"w{index}"))
pictures = rng.standard_normal((64, 3, 32, 32)).astype("float32")
with tempfile.TemporaryDirectory() as folder:
    onnx.save(model, Path(folder) / "residuals.onnx")
    compare("residuals", Path(folder) / "residuals.onnx", pictures[:16], pictures, None)
