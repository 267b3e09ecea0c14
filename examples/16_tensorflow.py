"""Lesson 16: a frozen graph of TensorFlow.

A GraphDef of one layer, written here node by node as TensorFlow would freeze it, compiled from its file without
TensorFlow. A SavedModel folder and a .keras file go the same way: tilewright.compile(path), or `tilewright compile`.
"""

import tempfile
from pathlib import Path

import numpy as np

import tilewright
from tilewright.relay.frontend.tensorflow.proto import parsed

FLOAT = 1  # TensorFlow's number of float32
graph = parsed("Graph", b"", "an empty graph")


def node(name: str, op: str, *inputs: str, **attributes: object) -> str:
    """Add a node to the graph; return its name. An attribute is a type, a shape (-1: unknown), or an array."""
    made = graph.node.add(name=name, op=op, input=inputs)
    for key, given in attributes.items():
        value = made.attr.add(key=key).value
        if isinstance(given, int):
            value.type = given
            continue
        shape = value.tensor.shape if isinstance(given, np.ndarray) else value.shape
        for size in given.shape if isinstance(given, np.ndarray) else given:
            shape.dim.add(size=size)
        if isinstance(given, np.ndarray):
            value.tensor.dtype, value.tensor.content = FLOAT, given.astype("float32").tobytes()
    return name


rng = np.random.default_rng(0)
weight, bias = rng.normal(size=(8, 3)).astype("float32"), rng.normal(size=3).astype("float32")
x = node("x", "Placeholder", dtype=FLOAT, shape=(-1, 8))
product = node("product", "MatMul", x, node("weight", "Const", dtype=FLOAT, value=weight), T=FLOAT)
total = node("total", "BiasAdd", product, node("bias", "Const", dtype=FLOAT, value=bias), T=FLOAT)
node("classes", "Softmax", total, T=FLOAT)

with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "frozen.pb"
    file.write_bytes(graph.SerializeToString())
    model = tilewright.compile(file)  # or: tilewright compile frozen.pb -o model.so
print(model.report())

for batch in (1, 5):
    value = rng.normal(size=(batch, 8)).astype("float32")
    powers = np.exp(value @ weight + bias)
    error = np.abs(model(value) - powers / powers.sum(1, keepdims=True)).max()
    print(f"batch {batch}: largest error {error:.1e}")
    assert error < 1e-6
