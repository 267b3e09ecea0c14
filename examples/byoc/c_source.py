"""A code generator that writes C: the source becomes part of the exported library, calls and all.

It takes sums, differences and products of tensors of one shape. Each region is one C function of the form in which all
functions of a library are called, and the C compiler fuses the loop.
"""

import math
import tempfile
from pathlib import Path

import numpy as np

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.relay.expr import Call
from tilewright.relay.transform import AnnotateTarget, MergeCompilerRegions, PartitionGraph
from tilewright.relay.visitor import post_order

SIGN = {"add": "+", "subtract": "-", "multiply": "*"}


def takes(call):
    """Tensors of one shape: nothing is broadcast."""
    shapes = {str(arg.checked_type) for arg in call.args}
    return len(shapes) == 1 and call.checked_type.dtype == "float32"


for name in SIGN:
    tvm.ir.register_op_attr(name, "target.c_source", takes)


@tvm.register_func("relay.ext.c_source", override=True)
def generate(func):
    """The module of one region, from its C source."""
    symbol = func.attrs["global_symbol"]
    names = {param: f"in{index}[i]" for index, param in enumerate(func.params)}
    lines = []
    for node in post_order(func.body):
        if isinstance(node, Call):
            left, right = (names[arg] for arg in node.args)
            names[node] = f"t{len(lines)}"
            lines.append(f"    const float {names[node]} = {left} {SIGN[node.op.name]} {right};")
    inputs = [
        f"  const float* in{index} = ((DLTensor*)args[{index}].v_handle)->data;" for index in range(len(func.params))
    ]
    source = "\n".join([
        "#include <dlpack/dlpack.h>",
        "#include <tvm/runtime/c_runtime_api.h>",
        f"int {symbol}(TVMValue* args, int* codes, int count, TVMValue* result, int* result_code) {{",
        *inputs,
        f"  float* out = ((DLTensor*)args[{len(func.params)}].v_handle)->data;",
        f"  for (long i = 0; i < {math.prod(func.body.checked_type.concrete_shape)}; ++i) {{",
        *lines,
        f"    out[i] = {names[func.body]};",
        "  }",
        "  return 0;",
        "}",
        "",
    ])  # fmt: skip
    return tvm.get_global_func("runtime.CSourceModuleCreate")(source, "c", [symbol])


def main():
    """Partition, build, export, load, run, compare."""
    x, y = (relay.var(name, shape=(3, 5)) for name in "xy")
    mod = tvm.IRModule.from_expr(relay.Function([x, y], relay.exp((x + y) * (x - y)) + y))
    passes = [AnnotateTarget("c_source"), MergeCompilerRegions(), PartitionGraph()]
    library = relay.build(tvm.transform.Sequential(passes)(mod), "llvm")
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((3, 5)).astype("float32") for _ in range(2))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.so"
        library.export_library(path)
        executor = graph_executor.GraphModule(tvm.runtime.load_module(path)["default"](tvm.cpu()))
    executor.run(x=a, y=b)
    np.testing.assert_allclose(executor.get_output(0).numpy(), np.exp((a + b) * (a - b)) + b, rtol=1e-5)
    print("modules:", ", ".join(module.type_key for module in library.lib.imported_modules))


if __name__ == "__main__":
    main()
