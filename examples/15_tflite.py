"""Lesson 15: a model from TensorFlow Lite.

A file of a quantized layer, written here as an exporter would, compiled from its path: it computes integers, with the
bits that LiteRT's interpreter gives. Needs the packages flatbuffers and ai-edge-litert, of which the file is made.
"""

import tempfile
from pathlib import Path

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter

import tilewright

rng = np.random.default_rng(0)
model = schema.ModelT()
model.version, model.buffers, model.operatorCodes = 3, [schema.BufferT()], [schema.OperatorCodeT()]
graph = schema.SubGraphT()
graph.tensors, model.subgraphs = [], [graph]


def tensor(name: str, shape: tuple[int, ...], dtype: str, scale: float, data: np.ndarray | None = None) -> int:
    """Add a tensor to the file, an integer q of which stands for q * scale; with data a constant. Return its number."""
    made = schema.TensorT()
    made.name, made.shape, made.type = name.encode(), list(shape), getattr(schema.TensorType, dtype.upper())
    made.quantization = schema.QuantizationParametersT()
    made.quantization.scale, made.quantization.zeroPoint = [scale], [0]
    made.buffer = 0
    if data is not None:
        made.buffer = len(model.buffers)
        model.buffers.append(schema.BufferT())
        model.buffers[-1].data = np.frombuffer(data.astype(dtype).tobytes(), np.uint8)
    graph.tensors.append(made)
    return len(graph.tensors) - 1


x = tensor("x", (1, 16), "int8", 0.05)
weight = tensor("weight", (4, 16), "int8", 0.01, rng.integers(-127, 128, (4, 16)))
bias = tensor("bias", (4,), "int32", 0.0005, rng.integers(-500, 500, 4))
y = tensor("y", (1, 4), "int8", 0.1)

layer = schema.OperatorT()
model.operatorCodes[0].builtinCode = model.operatorCodes[0].deprecatedBuiltinCode = (
    schema.BuiltinOperator.FULLY_CONNECTED
)
layer.inputs, layer.outputs = [x, weight, bias], [y]
layer.builtinOptionsType, layer.builtinOptions = (
    schema.BuiltinOptions.FullyConnectedOptions,
    schema.FullyConnectedOptionsT(),
)
graph.operators, graph.inputs, graph.outputs = [layer], [x], [y]
builder = flatbuffers.Builder(1024)
builder.Finish(model.Pack(builder), b"TFL3")

with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "layer.tflite"
    file.write_bytes(builder.Output())
    compiled = tilewright.compile(file)  # or: tilewright compile layer.tflite -o layer.so
    print(compiled.report())

interpreter = Interpreter(model_content=bytes(builder.Output()))
interpreter.allocate_tensors()
for _ in range(3):
    value = rng.integers(-128, 128, (1, 16)).astype("int8")
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], value)
    interpreter.invoke()
    expected = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    print("ours", compiled(value)[0].tolist(), "LiteRT's", expected[0].tolist())
    assert (compiled(value) == expected).all()
