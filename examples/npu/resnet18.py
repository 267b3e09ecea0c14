"""ResNet-18 on an emulated NPU: the answers, the cycles, and the use of its matrix unit by layer.

make test installs what this needs (the package in plugins/npu, PyTorch and ONNX Runtime, which make the ONNX file).

    python examples/npu/resnet18.py                     in int8, from a file with QuantizeLinear and DequantizeLinear
    python examples/npu/resnet18.py --kind float32
    python examples/npu/resnet18.py --size 64           a smaller picture
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import onnx

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.testing import zoo
from tilewright.testing.quantized import quantized
from tilewright_npu.patterns import partition_for_npu
from tilewright_npu.report import table
from tilewright_npu.show import programs_in
from tilewright_npu.timeline import measure, svg


def main() -> None:
    """Compile for the CPU alone and for both, compare, and tell what the NPU did."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=224, help="height and width of the picture")
    parser.add_argument("--kind", choices=("int8", "uint8", "float32"), default="int8")
    parser.add_argument("--timeline", type=Path, help="an SVG file to draw the engines over cycles to")
    options = parser.parse_args()

    sizes = {"image_size": options.size}
    floats = options.kind == "float32"
    model = zoo.export("resnet18", **sizes) if floats else quantized("resnet18", options.kind, **sizes)
    mod, params = relay.frontend.from_onnx(onnx.load(model))
    inputs, _ = zoo.reference(model)

    alone = graph_executor.GraphModule(relay.build(mod, "llvm", params=params)["default"](tvm.cpu()))
    alone.run(**inputs)
    expected = alone.get_output(0).numpy()

    parts = partition_for_npu(mod, params, on_device=True)
    lib = relay.build(parts, {"cpu": "llvm", "npu": "npu"})
    both = graph_executor.GraphModule(lib["default"](tvm.cpu(), tvm.device("npu")))
    both.run(**inputs)
    found = both.get_output(0).numpy()

    for name, answer in (("CPU", expected), ("NPU", found)):
        best = np.argsort(-answer[0])[:5]
        print(f"{name}: " + ", ".join(f"class {i} {answer[0, i]:.3f}" for i in best))
    difference = float(np.abs(found - expected).max() / np.abs(expected).max())
    print("to the bit the same" if np.array_equal(found, expected) else f"largest difference: {difference:.1e}")
    assert difference <= (1e-4 if floats else 0)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "resnet18.so"
        lib.export_library(path)
        charts = [measure(program) for program in programs_in(path)]
    for chart in charts:
        print("\n".join(table(chart)))
    if options.timeline:
        options.timeline.write_text(svg(charts))


if __name__ == "__main__":
    main()
