"""Lesson 6: give parts of a network to a library of somebody else, here oneDNN (`pip install tilewright[dnnl]`).

`partition_for_dnnl` makes a function of each region that oneDNN takes; `relay.build` has its code generator write the
region as a graph in JSON; the exported library carries that text, and the runtime has oneDNN run it. examples/byoc has
code generators of one page, for writing your own.
"""

import tempfile
from pathlib import Path

import numpy as np

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.relay.op.contrib.dnnl import partition_for_dnnl

rng = np.random.default_rng(0)


def weight(*shape):
    """Random weights that keep the size of what they are applied to."""
    return relay.const((rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype("float32"))


def block(data, channels):
    """A residual block of two convolutions."""
    hidden = relay.nn.relu(relay.nn.conv2d(data, weight(channels, channels, 3, 3), padding=(1, 1)))
    hidden = relay.nn.bias_add(
        relay.nn.conv2d(hidden, weight(channels, channels, 3, 3), padding=(1, 1)), weight(channels)
    )
    return relay.nn.relu(hidden + data)


image = relay.var("image", shape=(1, 16, 28, 28))
features = block(block(image, 16), 16)
ranked = relay.argsort(relay.nn.dense(relay.nn.batch_flatten(relay.nn.global_avg_pool2d(features)), weight(10, 16)))
mod = tvm.IRModule.from_expr(relay.Function([image], ranked))

# What goes where, and why: `tilewright show model.onnx --partition dnnl` prints this of a model file.
for fate in tvm.get_global_func("relay.ext.dnnl.explain")(mod):
    print(f"{fate.operator:22} {fate.region or 'host':12} {fate.reason}")

partitioned = partition_for_dnnl(mod)
library = relay.build(partitioned, target="llvm")
print("modules:", ", ".join(module.type_key for module in library.lib.imported_modules))

picture = rng.standard_normal((1, 16, 28, 28)).astype("float32")
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "net.so"
    library.export_library(path)
    executor = graph_executor.GraphModule(tvm.runtime.load_module(path)["default"](tvm.cpu()))
executor.run(image=picture)

own = graph_executor.GraphModule(relay.build(mod, target="llvm")["default"](tvm.cpu()))
own.run(image=picture)
np.testing.assert_array_equal(executor.get_output(0).numpy(), own.get_output(0).numpy())
print("the same ranking as Tilewright's own kernels")
