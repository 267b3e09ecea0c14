"""Small TensorFlow Lite files, and what LiteRT's interpreter makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor

Array = np.ndarray[Any, Any]


class File:
    """A model with one subgraph, or several; tensors are their numbers."""

    def __init__(self) -> None:
        self.model = schema.ModelT()
        self.model.version = 3
        self.model.operatorCodes, self.model.subgraphs = [], []
        self.model.buffers = [schema.BufferT()]
        self.subgraph()

    def subgraph(self) -> None:
        """Begin another subgraph."""
        self.graph = schema.SubGraphT()
        self.graph.tensors, self.graph.operators, self.graph.inputs, self.graph.outputs = [], [], [], []
        self.graph.name = f"graph_{len(self.model.subgraphs)}"
        self.model.subgraphs.append(self.graph)

    def tensor(
        self,
        shape: Sequence[int],
        dtype: str = "float32",
        *,
        scale: Any = None,
        zero: Any = 0,
        axis: int = 0,
        data: Any = None,
        variable: bool = False,
    ) -> int:
        """Add a tensor; with ``data`` a constant."""
        made = schema.TensorT()
        made.shape, made.type = list(shape), getattr(schema.TensorType, dtype.upper())
        made.name = f"t{len(self.graph.tensors)}".encode()
        made.isVariable, made.buffer = variable, 0
        if scale is not None:
            made.quantization = schema.QuantizationParametersT()
            made.quantization.scale = np.atleast_1d(scale).astype("float32").tolist()
            made.quantization.zeroPoint = np.broadcast_to(zero, np.atleast_1d(scale).shape).tolist()
            made.quantization.quantizedDimension = axis
        if data is not None:
            made.buffer = len(self.model.buffers)
            self.model.buffers.append(schema.BufferT())
            self.model.buffers[-1].data = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
        self.graph.tensors.append(made)
        return len(self.graph.tensors) - 1

    def constant(self, data: Any, dtype: str | None = None, **quantization: Any) -> int:
        """Add a constant."""
        array = np.asarray(data, dtype)
        return self.tensor(array.shape, str(array.dtype), data=array, **quantization)

    def op(
        self,
        name: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        options: str = "",
        custom: bytes = b"",
        intermediates: Sequence[int] = (),
        **values: Any,
    ) -> None:
        """Add an operator, by its built-in name or a custom one."""
        code = schema.OperatorCodeT()
        number = getattr(schema.BuiltinOperator, name, schema.BuiltinOperator.CUSTOM)
        code.builtinCode, code.deprecatedBuiltinCode, code.version = number, min(number, 127), 1
        if number == schema.BuiltinOperator.CUSTOM:
            code.customCode = name.encode()
        self.model.operatorCodes.append(code)
        made = schema.OperatorT()
        made.opcodeIndex = len(self.model.operatorCodes) - 1
        made.inputs, made.outputs, made.intermediates = list(inputs), list(outputs), list(intermediates)
        if custom:
            made.customOptions = list(custom)
        if options:
            made.builtinOptions = getattr(schema, f"{options}T")()
            made.builtinOptionsType = getattr(schema.BuiltinOptions, options)
            for key, value in values.items():
                assert hasattr(made.builtinOptions, key), key
                setattr(made.builtinOptions, key, value)
        self.graph.operators.append(made)

    def ends(self, inputs: Sequence[int], outputs: Sequence[int]) -> File:
        """State the inputs and outputs of the subgraph."""
        self.graph.inputs, self.graph.outputs = list(inputs), list(outputs)
        return self

    @cached_property
    def data(self) -> bytes:
        """The bytes of the file."""
        builder = flatbuffers.Builder(1024)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


def litert(data: bytes, inputs: Sequence[Array], reference: bool = False) -> list[Array]:
    """What LiteRT's interpreter returns: by its default kernels (XNNPACK), or by its reference kernels."""
    kind = OpResolverType.BUILTIN_REF if reference else OpResolverType.AUTO
    interpreter = Interpreter(model_content=data, experimental_op_resolver_type=kind, num_threads=1)
    for detail, array in zip(interpreter.get_input_details(), inputs, strict=True):
        if tuple(detail["shape"]) != array.shape:
            interpreter.resize_tensor_input(detail["index"], array.shape)
    interpreter.allocate_tensors()
    for detail, array in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(detail["index"], array)
    interpreter.invoke()
    return [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]


def one_operator(
    name: str,
    inputs: Sequence[Array],
    constants: Sequence[Array],
    outputs: Sequence[tuple[Sequence[int], str]],
    options: str = "",
    order: Sequence[int] | None = None,
    custom: bytes = b"",
    **values: Any,
) -> tuple[bytes, list[Array]]:
    """A file of one operator of inputs and then constants (in another ``order``; -1 omits one), and its inputs."""
    file = File()
    given = [file.tensor(array.shape, str(array.dtype)) for array in inputs]
    all_inputs = given + [file.constant(array) for array in constants]
    made = [file.tensor(shape, dtype) for shape, dtype in outputs]
    listed = all_inputs if order is None else [all_inputs[i] if i >= 0 else -1 for i in order]
    file.op(name, listed, made, options, custom, **values)
    return file.ends(given, made).data, list(inputs)


def interpreted(data: bytes, inputs: Sequence[Array], kind: str = "debug") -> list[Array]:
    """What the imported module means, by the definitions of operators; by another executor what is compiled."""
    mod, params = relay.frontend.from_tflite(data)
    found = relay.create_executor(kind, mod, target="llvm").evaluate()(*inputs, **params)
    return [found.numpy()] if isinstance(found, tvm.nd.NDArray) else [part.numpy() for part in found]


def compiled(data: bytes, inputs: Sequence[Array]) -> list[Array]:
    """What the compiled model returns."""
    mod, params = relay.frontend.from_tflite(data)
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(mod, "llvm", params=params)
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    for index, array in enumerate(inputs):
        module.set_input(index, array)
    module.run()
    return [module.get_output(i).numpy() for i in range(module.get_num_outputs())]
