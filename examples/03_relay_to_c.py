"""Lesson 3: write a network in Relay, look at it, and get C source for it.

The target "c" gives plain C that any C compiler takes: for machines that LLVM does not know.
"""

import numpy as np

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor

d1 = relay.var("d1", shape=(1, 32, 56, 56), dtype="float32")
w1 = relay.var("w1", shape=(32, 32, 3, 3), dtype="float32")
b1 = relay.var("b1", shape=(32,), dtype="float32")
conv = relay.nn.conv2d(d1, w1, strides=(1, 1), padding=(1, 1))
func = relay.Function([d1, w1, b1], relay.nn.relu(relay.nn.bias_add(conv, b1)))
mod = relay.transform.InferType()(tvm.IRModule.from_expr(func))
print(mod)

with tvm.transform.PassContext(opt_level=2):
    graph, lib, params = relay.build(mod, target="c", params=None)
print(graph)
print(lib.get_source())

rng = np.random.default_rng(0)
module = graph_executor.create(graph, lib, tvm.cpu())
module.set_input("d1", rng.standard_normal((1, 32, 56, 56)).astype("float32"))
module.set_input("w1", rng.standard_normal((32, 32, 3, 3)).astype("float32"))
module.set_input("b1", rng.standard_normal(32).astype("float32"))
module.run()
result = module.get_output(0).numpy()
assert result.min() == 0.0
print("the C above, compiled and run:", result.shape, "from", result.min(), "to", result.max())
