"""A code generator in one page: regions run as Python functions, in this process.

Good for prototypes: the function is called while the network runs, and may do what it likes. Such a library cannot be
exported, and ``export_library`` says so.
"""

import numpy as np

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.relay.interpreter import interpret
from tilewright.relay.transform import AnnotateTarget, MergeCompilerRegions, PartitionGraph
from tilewright.runtime.module import create_module

for name in ("nn.dense", "nn.relu", "add"):
    tvm.ir.register_op_attr(name, "target.in_process", lambda call: True)


@tvm.register_func("relay.ext.in_process", override=True)
def generate(func):
    """The module of one region: here Tilewright's own interpreter does the work."""
    symbol = func.attrs["global_symbol"]
    region = tvm.IRModule.from_expr(func.replace(attrs={}))

    def run(*tensors):  # the arguments, then the results to fill
        count = len(func.params)
        results = interpret(region, [tensor.numpy() for tensor in tensors[:count]])
        for result, tensor in zip(results if isinstance(results, tuple) else [results], tensors[count:], strict=True):
            tensor.copyfrom(result)

    return create_module("in_process", lambda name: run if name == symbol else None)


def network():
    """dense, softmax, dense with relu; the weights are constants."""
    rng = np.random.default_rng(0)
    x = relay.var("x", shape=(2, 8))
    first, second = (relay.const(rng.standard_normal(shape).astype("float32")) for shape in [(16, 8), (4, 16)])
    hidden = relay.nn.softmax(relay.nn.relu(relay.nn.dense(x, first)))
    return tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(relay.nn.dense(hidden, second))))


def main():
    """Partition, build, run, compare."""
    mod = network()
    passes = [AnnotateTarget("in_process"), MergeCompilerRegions(), PartitionGraph()]
    library = relay.build(tvm.transform.Sequential(passes)(mod), "llvm")
    x = np.random.default_rng(1).standard_normal((2, 8)).astype("float32")
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.set_input("x", x)
    executor.run()
    np.testing.assert_allclose(executor.get_output(0).numpy(), interpret(mod, [x]), rtol=1e-5)
    print("modules:", ", ".join(module.type_key for module in library.lib.imported_modules))


if __name__ == "__main__":
    main()
