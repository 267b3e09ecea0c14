"""ONNX's backend interface: ``prepare(model).run(inputs)``, compiled when the inputs' shapes are known.

``prepare`` checks the model; ``run`` imports and compiles it once for each combination of shapes. An input whose value
determines a shape (the second of Reshape, the number of iterations of a Loop) becomes a constant of the compiled
program, and its value part of the combination; the importer finds these inputs (``ValueNeededError``).

Operators that make strings, decoders of images, and those whose results have shapes that depend on the data run on the
host between compiled parts (``host_stages.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep

from tilewright.ir.transform import PassContext
from tilewright.relay.build_module import build
from tilewright.relay.frontend.onnx.context import DataNeededError, OnnxImportError, ValueNeededError
from tilewright.relay.frontend.onnx.host import run_on_host
from tilewright.relay.frontend.onnx.host_stages import model_of, stages
from tilewright.relay.frontend.onnx.importer import Imported, import_graph
from tilewright.relay.frontend.onnx.plain import plain_model
from tilewright.relay.frontend.onnx.strings import StringTable, is_text
from tilewright.runtime.device import cpu
from tilewright.runtime.executor.graph import GraphModule

# Combinations of shapes and values whose programs are kept.
_MAX_PROGRAMS = 64
# An input of more elements is no shape, number of rounds or set of axes: nothing is compiled for its value.
_MAX_BOUND_ELEMENTS = 1 << 12


class PreparedModel(BackendRep):
    """A model and its compiled programs, by the shapes, data types and bound values of the inputs."""

    def __init__(self, model: onnx.ModelProto, target: str, opt_level: int, strings: StringTable | None = None) -> None:
        self.model = model
        self.strings = strings or StringTable()
        self.stages = stages(model)
        self.of_data: set[str] = set()
        self.parts: dict[int, PreparedModel] = {}
        self.of_text = [_is_text_type(value.type) for value in model.graph.output]
        self.target = target
        self.opt_level = opt_level
        self.bound: set[str] = set()
        self.programs: dict[Any, _Program] = {}
        weights = {tensor.name for tensor in model.graph.initializer}
        self.names = [value.name for value in model.graph.input if value.name not in weights]
        self.all_names = [value.name for value in model.graph.input]

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return the outputs, in the model's order.

        Parameters
        ----------
        inputs : arrays in the order of the model's inputs, or by name; a sequence is a list of arrays, an optional
            value that is empty is None.

        Returns
        -------
        Arrays; lists of arrays for sequences; None for optional values that are empty.
        """
        given = self._named(inputs)
        if self.stages:
            return self._in_stages(given)
        plain, given = given, {name: self._encoded(value) for name, value in given.items()}
        try:
            found = self._program(given).run(given)
        except DataNeededError as error:
            if not any(error.output in node.output for node in self.model.graph.node):
                raise
            self.of_data.add(error.output)
            self.stages = stages(self.model, self.of_data)
            return self._in_stages(plain)
        return tuple(self._decoded(v) if text else v for v, text in zip(found, self.of_text, strict=True))

    def _in_stages(self, given: dict[str, Any]) -> tuple[Any, ...]:
        values = {t.name: onnx.numpy_helper.to_array(t) for t in self.model.graph.initializer} | given
        for index, stage in enumerate(self.stages):
            if stage.host:
                for node in stage.nodes:
                    outputs = run_on_host(node, [values[name] if name else None for name in node.input])
                    values |= dict(zip(node.output, outputs, strict=False))
                continue
            reads = {name: values[name] for name in stage.inputs}
            if index not in self.parts:
                part = model_of(stage, self.model, reads)
                self.parts[index] = PreparedModel(part, self.target, self.opt_level, self.strings)
            values |= dict(zip(stage.outputs, self.parts[index].run(reads), strict=True))
        return tuple(values[value.name] for value in self.model.graph.output)

    def _encoded(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._encoded(item) for item in value]
        return self.strings.encode(value) if is_text(value) else value

    def _decoded(self, value: Any) -> Any:
        if value is None or isinstance(value, list):
            return value and [self._decoded(item) for item in value]
        return self.strings.decode(value)

    def _named(self, inputs: Any) -> dict[str, Any]:
        if isinstance(inputs, Mapping):
            return {name: _as_value(value) for name, value in inputs.items()}
        values = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        names = self.names if len(values) <= len(self.names) else self.all_names
        if len(values) > len(names):
            raise OnnxImportError(f"the model has {len(names)} inputs, {', '.join(names)}; {len(values)} were given")
        return {name: _as_value(value) for name, value in zip(names, values, strict=False)}

    def _program(self, given: Mapping[str, Any]) -> _Program:
        key = self._key(given)
        if key not in self.programs:
            program = self._compiled(given)
            while len(self.programs) >= _MAX_PROGRAMS:
                self.programs.pop(next(iter(self.programs)))
            key = self._key(given)  # compiling may have found inputs to bind
            self.programs[key] = program
        return self.programs[key]

    def _key(self, given: Mapping[str, Any]) -> Any:
        return tuple((name, _signature(value, name in self.bound)) for name, value in sorted(given.items()))

    def _compiled(self, given: Mapping[str, Any]) -> _Program:
        while True:
            bound = {name: value for name, value in given.items() if name in self.bound}
            try:
                imported = import_graph(self.model, given, bound, self.strings)
                break
            except ValueNeededError as error:
                new = {name for name in error.inputs if _may_bind(given.get(name))} - self.bound
                if not new:
                    raise
                self.bound |= new
        return _Program(imported, self.target, self.opt_level)


class _Program:
    """A model compiled for one combination of shapes."""

    def __init__(self, imported: Imported, target: str, opt_level: int) -> None:
        self.imported = imported
        self.executor: GraphModule | None = None
        if imported.count:
            with PassContext(opt_level=opt_level):
                factory = build(imported.module, target, params=imported.params)
            self.executor = GraphModule(factory["default"](cpu(0)))

    def run(self, given: Mapping[str, Any]) -> list[Any]:
        if self.executor is None:
            return self.imported.outputs([])
        for name, value in self.imported.flat_inputs(given).items():
            self.executor.set_input(name, value)
        self.executor.run()
        return self.imported.outputs([self.executor.get_output(i).numpy() for i in range(self.imported.count)])


def _as_value(value: Any) -> Any:
    if value is None:
        return None
    return [_as_value(item) for item in value] if isinstance(value, (list, tuple)) else np.asarray(value)


def _is_text_type(kind: onnx.TypeProto) -> bool:
    """Return whether a tensor, or the elements of a sequence or optional, are strings."""
    if kind.HasField("sequence_type"):
        return _is_text_type(kind.sequence_type.elem_type)
    if kind.HasField("optional_type"):
        return _is_text_type(kind.optional_type.elem_type)
    return bool(kind.tensor_type.elem_type == onnx.TensorProto.STRING)


def _may_bind(value: Any) -> bool:
    return isinstance(value, list) or (isinstance(value, np.ndarray) and value.size <= _MAX_BOUND_ELEMENTS)


def _signature(value: Any, bound: bool) -> Any:
    if isinstance(value, list):
        return tuple(_signature(item, bound) for item in value)
    if value is None:
        return None
    return (str(value.dtype), value.shape, value.tobytes() if bound else b"")


class TilewrightBackend(Backend):
    """The interface of ``onnx.backend.base``."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Return True: whether there is a converter for everything in the model is known when it is prepared and
        run.
        """
        return True

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> PreparedModel:
        """Prepare a model to run.

        Parameters
        ----------
        model : a ``ModelProto``, its bytes, or the path of a file.
        device : "CPU".
        kwargs : ``target`` ("llvm": this machine's processor) and ``opt_level`` (3).
        """
        if not cls.supports_device(device):
            raise OnnxImportError(f"device {device!r} is not supported; supported is CPU")
        if isinstance(model, bytes):
            model = onnx.load_model_from_string(model)
        elif not isinstance(model, onnx.ModelProto):
            model = onnx.load(model)
        return PreparedModel(plain_model(model), kwargs.get("target", "llvm"), kwargs.get("opt_level", 3))

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Compile a model and run it once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls, node: onnx.NodeProto, inputs: Any, device: str = "CPU", outputs_info: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:  # fmt: skip
        """Compile one operator and run it once; ``inputs`` are arrays in the order of the node's."""
        arrays = [np.asarray(value) for value in inputs]
        kind = onnx.helper.np_dtype_to_tensor_dtype
        given = [n for n in node.input if n]
        values = [
            onnx.helper.make_tensor_value_info(name, kind(array.dtype), array.shape)
            for name, array in zip(given, arrays, strict=True)
        ]
        outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        opset = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        graph = onnx.helper.make_graph([node], "node", values, outputs)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
        return cls.run_model(onnx.shape_inference.infer_shapes(model), arrays, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether models run on a device of ONNX's names."""
        return device.split(":")[0] == "CPU"


is_compatible = TilewrightBackend.is_compatible
prepare = TilewrightBackend.prepare
run_model = TilewrightBackend.run_model
run_node = TilewrightBackend.run_node
supports_device = TilewrightBackend.supports_device
