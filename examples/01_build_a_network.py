"""Lesson 1: build a network of the workload library, and run it.

`relay.testing` holds the networks that compilers are measured with. `relay.build` compiles one; the three-value
form gives the graph, the library and the parameters apart.
"""

import numpy as np

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor

mod, params = relay.testing.resnet.get_workload(num_layers=18, batch_size=1, image_shape=(3, 224, 224))
print(mod.astext(show_meta_data=False))

with tvm.transform.PassContext(opt_level=3):
    graph, lib, params = relay.build(mod, "llvm", params=params)

module = graph_executor.create(graph, lib, tvm.cpu())
module.set_input("data", np.random.default_rng(0).random((1, 3, 224, 224)).astype("float32"))
module.set_input(**params)
module.run()
probabilities = module.get_output(0, tvm.nd.empty((1, 1000))).numpy().flatten()
print(probabilities[:10])
assert abs(probabilities.sum() - 1.0) < 1e-4
