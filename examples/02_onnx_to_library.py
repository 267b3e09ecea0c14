"""Lesson 2: from an ONNX file to a library on disk, and back.

The library that `export_library` writes holds everything: machine code, graph and weights. Loading it needs
the runtime only.
"""

import tempfile
from pathlib import Path

import numpy as np

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor

HERE = Path(__file__).resolve().parent

mod, params = relay.frontend.from_onnx(str(HERE / "digits" / "digits.onnx"), {"pixels": (1, 1, 8, 8)})
with tvm.transform.PassContext(opt_level=3):
    lib = relay.build(mod, target="llvm", params=params)

picture = np.load(HERE / "digits" / "heldout.npz")["pictures"][0][None, None].astype("float32") / 16
module = graph_executor.GraphModule(lib["default"](tvm.device("llvm", 0)))
module.set_input("pixels", picture)
module.run()
expected = module.get_output(0).numpy()

with tempfile.TemporaryDirectory() as folder:
    path = str(Path(folder) / "digits.so")
    lib.export_library(path)
    again = graph_executor.GraphModule(tvm.runtime.load_module(path)["default"](tvm.cpu(0)))
    again.set_input("pixels", picture)
    again.run()
    print("digit:", again.get_output(0).numpy().argmax())
    np.testing.assert_array_equal(again.get_output(0).numpy(), expected)
