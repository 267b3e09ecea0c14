"""MobileNets of TensorFlow Lite beside LiteRT's interpreter: processor time of a run, one thread.

python -m benchmarks.tflite_networks               # float32, int8, uint8; 13 separable blocks, 224 by 224
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

os.environ.setdefault("TVM_NUM_THREADS", "1")

from ai_edge_litert.interpreter import Interpreter
from tests.relay.frontend.tflite_networks import MobileNet

import tilewright as tvm
from tilewright import relay
from tilewright.contrib.graph_executor import GraphModule


def _runs(dtype: str, size: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """What runs a network by LiteRT, and what runs it here."""
    network = MobileNet(dtype, size, 32, 13, 1000)
    data = network.data()
    interpreter = Interpreter(model_content=network.file.data, num_threads=1)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], data)
    mod, params = relay.frontend.from_tflite(network.file.data)
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(mod, "llvm -mcpu=native", params=params)
    module = GraphModule(library["default"](tvm.cpu()))
    module.set_input(0, data)
    return interpreter.invoke, module.run


def main() -> None:
    """Print a line for each type of numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--size", type=int, default=224)
    args = parser.parse_args()
    for dtype in ("float32", "int8", "uint8"):
        least = [float("inf")] * 2
        runs = _runs(dtype, args.size)
        for _ in range(args.rounds + 1):
            for i, run in enumerate(runs):
                begin = time.process_time()
                run()
                least[i] = min(least[i], time.process_time() - begin)
        print(f"{dtype}: LiteRT {least[0] * 1e3:.2f} ms, Tilewright {least[1] * 1e3:.2f} ms")


if __name__ == "__main__":
    main()
