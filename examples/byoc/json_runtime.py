"""A code generator that writes JSON, and the runtime that interprets it.

The graph of each region travels in the library as text (``readelf -p .data net.so`` shows it), its constants in the
library's table of constants; they are handed over once, before the first run. What loads the library needs this file
too: it registers the loader.
"""

import json
import tempfile
from pathlib import Path

import numpy as np

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.relay.backend.json_serializer import JSONSerializer
from tilewright.relay.dataflow_pattern import is_op, wildcard
from tilewright.relay.interpreter import interpret
from tilewright.relay.transform import AnnotateTarget, MergeCompilerRegions, MergeComposite, PartitionGraph
from tilewright.runtime.module import ModuleStream, create_module

KEY = "example_json"

for name in ("nn.dense", "add"):
    tvm.ir.register_op_attr(name, f"target.{KEY}", lambda call: True)

DENSE_RELU = is_op("nn.relu")(is_op("nn.dense")(wildcard(), wildcard()))

KERNELS = {
    "nn.dense": lambda data, weight: data @ weight.T,
    "add": np.add,
    f"{KEY}.dense_relu": lambda data, weight: np.maximum(data @ weight.T, 0),
}


# ---- the compiler's half ----


@tvm.register_func(f"relay.ext.{KEY}", override=True)
def generate(func):
    """The module of one region: its graph."""
    symbol = func.attrs["global_symbol"]
    serializer = JSONSerializer(symbol, func)
    return make_module(symbol, serializer.to_json(), serializer.constants)


# ---- the runtime's half ----


def make_module(symbol, text, constants):
    """A module that interprets a graph; ``constants`` are the names of those that it wants."""
    graph = json.loads(text)
    values = {}

    def initialize(*arrays):
        values.update(zip(constants, (array.numpy() for array in arrays), strict=True))

    def run(*tensors):
        given = iter(tensors)
        results = []
        for node in graph["nodes"]:
            match node["op"]:
                case "input":
                    results.append(next(given).numpy())
                case "const":
                    results.append(values[node["name"]])
                case "kernel":
                    results.append(KERNELS[node["name"]](*(results[entry[0]] for entry in node["inputs"])))
        for head, tensor in zip(graph["heads"], given, strict=True):
            tensor.copyfrom(results[head[0]])

    functions = {
        symbol: run,
        f"__init_{symbol}": initialize,
        "get_symbol": lambda: symbol,
        "get_const_vars": lambda: constants,
    }
    saved = [symbol, text, *constants]
    return create_module(
        KEY,
        functions.get,
        save=lambda: len(saved).to_bytes(8, "little") + b"".join(map(_string, saved)),
        get_source=lambda fmt: text,
    )


def _string(text):
    return len(text.encode()).to_bytes(8, "little") + text.encode()


@tvm.register_func(f"runtime.module.loadbinary_{KEY}", override=True)
def load(stream):
    """The module from an exported library."""
    symbol, text, *constants = ModuleStream(stream).read_strs()
    return make_module(symbol, text, constants)


def main():
    """Partition, build, export, load, run, compare."""
    rng = np.random.default_rng(0)
    x = relay.var("x", shape=(2, 8))
    first, second = (relay.const(rng.standard_normal(shape).astype("float32")) for shape in [(8, 8), (4, 8)])
    hidden = relay.nn.relu(relay.nn.dense(x, first)) + x
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.dense(relay.nn.softmax(hidden), second)))
    passes = [MergeComposite([(f"{KEY}.dense_relu", DENSE_RELU)]), AnnotateTarget(KEY), MergeCompilerRegions()]
    library = relay.build(tvm.transform.Sequential([*passes, PartitionGraph()])(mod), "llvm")
    a = rng.standard_normal((2, 8)).astype("float32")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.so"
        library.export_library(path)
        executor = graph_executor.GraphModule(tvm.runtime.load_module(path)["default"](tvm.cpu()))
    executor.run(x=a)
    np.testing.assert_allclose(executor.get_output(0).numpy(), interpret(mod, [a]), rtol=1e-5)
    print("modules:", ", ".join(module.type_key for module in library.lib.imported_modules))
    print("parameters of the graph:", len(library.get_params()))


if __name__ == "__main__":
    main()
