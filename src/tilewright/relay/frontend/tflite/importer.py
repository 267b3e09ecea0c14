"""Importer from a TensorFlow Lite graph to a Relay module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir.budget import count_nodes
from tilewright.ir.errors import UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.span import SourceName, Span
from tilewright.ir.type import TensorType
from tilewright.relay import op as relay_op
from tilewright.relay.analysis import free_vars
from tilewright.relay.budget import in_budget
from tilewright.relay.expr import Constant, Function, Tuple, TupleWrapper, Var, comes_from, const
from tilewright.relay.frontend.tflite.context import FIRST, LAST, OperatorContext, errors_of, parameter, typed
from tilewright.relay.frontend.tflite.flatbuffer import TfliteImportError
from tilewright.relay.frontend.tflite.model import Model, Operator, Subgraph, Tensor, read_model
from tilewright.relay.frontend.tflite.registry import ANY, CONVERTERS, IMAGES, Converter
from tilewright.relay.frontend.tflite.variables import Variables
from tilewright.relay.function_attributes import OUTPUT_NAMES, STATE_INPUTS
from tilewright.relay.qnn import op as qnn
from tilewright.relay.transform.simplify.fold_constant import constant_value, fold_constant
from tilewright.relay.visitor import substitute
from tilewright.runtime import ndarray as nd

Array = np.ndarray[Any, Any]
_INLINE_ELEMENTS = 16  # smaller constants are part of the program


class Params:
    """Constants of a model, by the names of the main function's parameters."""

    def __init__(self) -> None:
        self.arrays: dict[str, nd.NDArray] = {}
        self.variables: dict[str, Var] = {}
        self.resources = Variables()
        self.importer: GraphImporter | None = None  # of the subgraph whose operators are being converted

    def add(self, name: str, array: Array) -> RelayExpr:
        """Return an expression that stands for an array."""
        if array.size <= _INLINE_ELEMENTS:
            return typed(const(array))
        unique = self.hold(name, array)
        var = typed(Var(unique, TensorType(array.shape, str(array.dtype))))
        assert isinstance(var, Var)
        self.variables[unique] = var
        return var

    def hold(self, name: str, array: Array) -> str:
        """Keep an array as the value of a parameter; return the parameter's name."""
        unique, number = name, 2
        while unique in self.arrays:
            unique, number = f"{name}_{number}", number + 1
        self.arrays[unique] = nd.array(np.ascontiguousarray(array))
        return unique

    def bound(self, expr: RelayExpr) -> RelayExpr:
        """Return an expression with constants instead of parameters."""
        own = {v: const(self.arrays[v.name_hint]) for v in free_vars(expr) if self.variables.get(v.name_hint) is v}
        return typed(substitute(expr, own))


class GraphImporter:
    """Converter of one subgraph: what is known of each of its tensors.

    A tensor of rank 4 that a convolution makes is kept with its channels first, which is how kernels want it; it is
    transposed for operators that read it in the order of the file.
    """

    def __init__(self, model: Model, graph: Subgraph, params: Params, converters: Mapping[str, Any]) -> None:
        self.model = model
        self.graph = graph
        self.params = params
        self.converters = converters
        self.last: dict[int, RelayExpr] = {}
        self.first: dict[int, RelayExpr] = {}
        self.known: dict[int, Array | None] = {}
        self.depth = 0

    # -------------------------------------------------------------------------------------------- values

    def place(self, operator: Operator) -> str:
        """Return an operator's name in messages."""
        outputs = [self.graph.tensors[i].name for i in operator.outputs[:1] if i >= 0]
        return f"TensorFlow Lite operator {operator.name} giving {outputs[0] if outputs else '?'!r}"

    def value(self, operator: Operator | None, index: int, first: bool) -> RelayExpr:
        """Return a tensor, of rank 4 with channels first or last."""
        if index not in self.last and index not in self.first:
            self._start(operator, self.graph.tensors[index])
        if first:
            if index not in self.first:
                self.first[index] = self._channels_first(index)
            return self.first[index]
        if index not in self.last:
            self.last[index] = typed(relay_op.transpose(self.first[index], axes=LAST))
        return self.last[index]

    def _start(self, operator: Operator | None, tensor: Tensor) -> None:
        """Add a tensor that no operator made: a constant, or a variable, which is 0 when the model starts."""
        data = tensor.data
        if data is None and tensor.is_variable:
            fill = int(tensor.zero[0]) if tensor.is_quantized else 0
            data = np.full(tensor.shape, fill, tensor.dtype)
        if data is None:
            where = "the model" if operator is None else self.place(operator)
            raise TfliteImportError(f"{where}: the tensor {tensor.name!r} is the output of no operator before it")
        self.known[tensor.index] = data
        self.last[tensor.index] = self.params.add(tensor.name, data)

    def _channels_first(self, index: int) -> RelayExpr:
        value = self.last[index]
        type_ = value.checked_type
        rank = len(type_.shape) if isinstance(type_, TensorType) else 0
        data = self.graph.tensors[index].data
        if rank in (2, 3) and index not in self.known:
            raise TfliteImportError(f"the tensor {self.graph.tensors[index].name!r} has rank {rank}")
        if rank == 4 and data is not None:
            return self.params.add(self.graph.tensors[index].name, data.transpose(FIRST))
        if rank == 4:
            return typed(relay_op.transpose(value, axes=FIRST))
        if rank in (1, 2, 3):
            whole = np.asarray(self.known[index])
            return self.params.add(self.graph.tensors[index].name, _as_images(whole))
        return value

    def arranged(self, operator: Operator, index: int, arrange: Callable[[Array], Array]) -> RelayExpr:
        """Return a constant in another order."""
        data = self.known_value(index)
        if data is None:
            name = self.graph.tensors[index].name
            raise UnsupportedError(f"{self.place(operator)}: a weight ({name!r}) that is computed is not supported")
        return self.params.add(self.graph.tensors[index].name, arrange(data))

    def known_value(self, index: int) -> Array | None:
        """Return the elements of a tensor where they depend on constants alone, in the order of the file."""
        if index in self.known:
            return self.known[index]
        tensor = self.graph.tensors[index]
        return tensor.data if index not in self.last and index not in self.first else None

    def set(self, index: int, value: RelayExpr, first: bool) -> None:
        """Record what an operator made."""
        (self.first if first else self.last)[index] = value

    # -------------------------------------------------------------------------------------------- operators

    def missing(self) -> dict[str, list[str]]:
        """Return the operators without a converter, each with the outputs of those in the model."""
        found: dict[str, list[str]] = {}
        for op in self.graph.operators:
            if op.name not in self.converters:
                names = [self.graph.tensors[i].name for i in op.outputs if i >= 0]
                found.setdefault(f"{op.name} (custom)" if op.is_custom else op.name, []).append(", ".join(names))
        return found

    def convert(self) -> None:
        """Convert all operators."""
        before, self.params.importer = self.params.importer, self
        try:
            self._convert_all()
        finally:
            self.params.importer = before

    def _convert_all(self) -> None:
        for operator in self.graph.operators:
            count_nodes(1, lambda op=operator: self.place(op))  # type: ignore[misc]
            for index in operator.outputs:
                if index in self.last or index in self.first:
                    name = self.graph.tensors[index].name
                    raise TfliteImportError(f"{self.place(operator)}: {name!r} is the output of two operators")
            with errors_of(lambda op=operator: self.place(op)):  # type: ignore[misc]
                self._convert(operator)

    def _convert(self, operator: Operator) -> None:
        found = self.converters[operator.name]
        if not isinstance(found, Converter):  # one that a user added
            found = Converter(found, "plain")
        first = found.form == IMAGES or (found.form == ANY and self._keeps_first(operator))
        context = OperatorContext(self, operator, first)
        source = self.graph.tensors[operator.outputs[0]].name if operator.outputs else operator.name
        with comes_from(Span(SourceName(source))):
            outputs = _outputs(found.convert(context))
        for index, value in zip(operator.outputs, outputs, strict=False):
            if index < 0 or value is None:
                continue
            self.set(index, value, first and _rank(value) == 4)
            self._note_known(operator, index, value)

    def _note_known(self, operator: Operator, index: int, value: RelayExpr) -> None:
        """Work a result out that depends on constants alone."""
        sources = [i for i in operator.inputs if i >= 0]
        if not isinstance(value, Constant) and not all(self.known_value(i) is not None for i in sources):
            return
        type_ = value.checked_type
        if not isinstance(type_, TensorType) or type_.is_dynamic:
            return
        folded = constant_value(fold_constant(self.params.bound(value)))
        if not isinstance(folded, np.ndarray) or [
            v for v in free_vars(value) if v.name_hint not in self.params.variables
        ]:
            return
        if index in self.first:
            folded = folded.transpose(LAST)
            del self.first[index]
        self.known[index] = folded
        self.last[index] = self.params.add(self.graph.tensors[index].name, folded)

    def _keeps_first(self, operator: Operator) -> bool:
        """Return whether an operator that may read either order reads channels first: one of its inputs has that."""
        indices = [i for i in operator.inputs if i >= 0]
        if not any(i in self.first and i not in self.last for i in indices):
            return False
        for i in indices:
            if i in self.first or self.known_value(i) is not None:
                continue
            type_ = self.value(operator, i, False).checked_type
            if not isinstance(type_, TensorType) or len(type_.shape) not in (0, 4):
                return False
        return True

    def called(self, operator: Operator, number: int, inputs: Sequence[RelayExpr]) -> list[RelayExpr]:
        """Return the results of another subgraph."""
        if not 0 <= number < len(self.model.subgraphs) or self.depth >= _MOST_CALLS:
            raise TfliteImportError(
                f"{self.place(operator)}: subgraph {number} of {len(self.model.subgraphs)}, called {self.depth} deep"
            )
        graph = self.model.subgraphs[number]
        if len(graph.inputs) != len(inputs):
            raise TfliteImportError(
                f"{self.place(operator)}: {len(inputs)} inputs for the {len(graph.inputs)} of {number}"
            )
        inner = GraphImporter(self.model, graph, self.params, self.converters)
        inner.depth = self.depth + 1
        inner.last.update(zip(graph.inputs, map(typed, inputs), strict=True))
        inner.convert()
        return inner.outputs()

    def outputs(self) -> list[RelayExpr]:
        """Return the tensors that the subgraph returns, in the order of the file."""
        return [self.value(None, i, False) for i in self.graph.outputs]


_MOST_CALLS = 16  # of subgraphs by subgraphs


def _as_images(values: Array) -> Array:
    """Return a constant of fewer dimensions so that it broadcasts with images whose channels are first."""
    return values.reshape((1,) * (4 - values.ndim) + values.shape).transpose(FIRST)


def _rank(value: RelayExpr) -> int:
    type_ = value.checked_type
    return len(type_.shape) if isinstance(type_, TensorType) else 0


def _outputs(result: Any) -> list[Any]:
    if isinstance(result, TupleWrapper):
        result = [result[i] for i in range(len(result))]
    items = list(result) if isinstance(result, (list, tuple)) else [result]
    return [None if item is None else typed(item) for item in items]


@dataclass(frozen=True)
class TensorWrapper:
    """A tensor of an operator, as converters written for TVM 0.8 read it.

    Attributes:
        tensor_idx: its number in the subgraph, or -1 of one that is omitted.
        tensor: the tensor; None of one that is omitted.
        buffer: the elements of a constant, or None.
        qnn_params: ``scale`` and ``zero_point`` as constants, or None of a tensor without a scale.
    """

    tensor_idx: int
    tensor: Any
    buffer: Array | None = None
    qnn_params: Mapping[str, RelayExpr] | None = None

    @staticmethod
    def of(index: int, tensors: Sequence[Tensor]) -> TensorWrapper:
        """Return the tensor of a number."""
        if index < 0:
            return TensorWrapper(-1, None)
        tensor = tensors[index]
        scales = (
            None if tensor.scale is None else {"scale": parameter(tensor.scale), "zero_point": parameter(tensor.zero)}
        )
        return TensorWrapper(index, tensor, tensor.data, scales)

    @property
    def name(self) -> str:
        """Return the tensor's name."""
        return "" if self.tensor is None else str(self.tensor.name)

    @property
    def scale_and_zero(self) -> tuple[Array, Array]:
        """Return the numbers by which integers of the tensor are scaled."""
        if self.tensor is None or self.tensor.scale is None:
            raise TfliteImportError(f"the tensor {self.name!r} has no scale")
        return self.tensor.scale, self.tensor.zero


class OperatorConverter:
    """Converter of a model's main subgraph, as ``op_converter`` of ``from_tflite``.

    A subclass adds to ``convert_map``, by the operator's name or a custom operator's own, functions of an
    ``OperatorContext`` that return the operator's result or results::

        class Mine(OperatorConverter):
            def __init__(self, *args):
                super().__init__(*args)
                self.convert_map["Half"] = lambda ctx: ctx.result(ctx.real(0) * relay.const(0.5))

    The methods with which converters written for TVM 0.8 read their operator's tensors (``get_input_tensors``,
    ``get_tensor_expr``, ``dequantize`` and the like) take the context in place of TVM's ``op``.
    """

    def __init__(self, model: Model, subgraph: Subgraph, exp_tab: Params) -> None:
        self.model = model
        self.subgraph = subgraph
        self.exp_tab = exp_tab
        self.convert_map: dict[str, Any] = dict(CONVERTERS)

    def get_tensors(self, tensors_idx_list: Sequence[int]) -> list[TensorWrapper]:
        """Return tensors of the subgraph by number; those that are omitted (-1) have no content."""
        return [TensorWrapper.of(index, self._importer.graph.tensors) for index in tensors_idx_list]

    def get_input_tensors(self, op: OperatorContext) -> list[TensorWrapper]:
        """Return the inputs of an operator."""
        return self.get_tensors(op.operator.inputs)

    def get_output_tensors(self, op: OperatorContext) -> list[TensorWrapper]:
        """Return the outputs of an operator."""
        return self.get_tensors(op.operator.outputs)

    def get_expr(self, input_tensor_idx: int) -> RelayExpr:
        """Return a tensor of the subgraph as it is stored: of a quantized one its integers."""
        return self._importer.value(None, input_tensor_idx, False)

    def has_expr(self, input_tensor_idx: int) -> bool:
        """Return whether a tensor is an input or was made by an operator before: it is no constant of the file."""
        importer = self._importer
        return input_tensor_idx in importer.last or input_tensor_idx in importer.first

    def get_tensor_expr(self, tensor: TensorWrapper, is_sparse: bool = False) -> RelayExpr:
        """Return a tensor, constant or not; sparse constants are dense when a file has been read."""
        return self.get_expr(tensor.tensor_idx)

    def get_tensor_value(self, tensor_wrapper: TensorWrapper, is_sparse: bool = False) -> Array:
        """Return the elements of a constant."""
        found = self._importer.known_value(tensor_wrapper.tensor_idx)
        if found is None:
            raise UnsupportedError(f"the tensor {tensor_wrapper.name!r} is computed; its value is not known")
        return found

    def is_quantized(self, op: OperatorContext) -> bool:
        """Return whether the first input of an operator has a scale."""
        return bool(op.operator.inputs) and op.tensor(0).is_quantized

    def has_same_qnn_params(self, lhs_tensor: TensorWrapper, rhs_tensor: TensorWrapper) -> bool:
        """Return whether integers of two tensors stand for the same numbers."""
        pairs = zip(lhs_tensor.scale_and_zero, rhs_tensor.scale_and_zero, strict=True)
        return all(np.array_equal(a, b) for a, b in pairs)

    def quantize(self, expr: RelayExpr, tensor_to_quantize: TensorWrapper) -> RelayExpr:
        """Return numbers as a tensor with a scale holds them."""
        scale, zero = map(parameter, tensor_to_quantize.scale_and_zero)
        return typed(qnn.quantize(expr, scale, zero, out_dtype=tensor_to_quantize.tensor.dtype))

    def dequantize(self, expr: RelayExpr, tensor: TensorWrapper) -> RelayExpr:
        """Return the numbers that a tensor's integers stand for."""
        scale, zero = map(parameter, tensor.scale_and_zero)
        return typed(qnn.dequantize(expr, scale, zero, tensor.tensor.axis if tensor.tensor.is_per_axis else -1))

    @property
    def _importer(self) -> GraphImporter:
        if self.exp_tab.importer is None:
            raise TfliteImportError("an operator's tensors are read while it is converted")
        return self.exp_tab.importer

    def check_unsupported_ops(self) -> None:
        """Raise UnsupportedError that names every operator without a converter, with its outputs."""
        missing: dict[str, list[str]] = {}
        for graph in self.model.subgraphs:
            for name, outputs in GraphImporter(self.model, graph, self.exp_tab, self.convert_map).missing().items():
                missing.setdefault(name, []).extend(outputs)
        if missing:
            lines = [f"  {name}: {_some(outputs)}" for name, outputs in sorted(missing.items())]
            raise UnsupportedError("the model uses operators that are not supported:\n" + "\n".join(lines))

    def convert_op_to_relay(self, inputs: Mapping[int, RelayExpr]) -> list[RelayExpr]:
        """Return the subgraph's results for its inputs."""
        importer = GraphImporter(self.model, self.subgraph, self.exp_tab, self.convert_map)
        importer.last.update(inputs)
        importer.convert()
        return importer.outputs()


def _some(outputs: Sequence[str]) -> str:
    return ", ".join(map(repr, outputs[:5])) + (f" and {len(outputs) - 5} more" if len(outputs) > 5 else "")


@in_budget()
def from_tflite(
    model: Any,
    shape_dict: Mapping[str, Sequence[Any]] | None = None,
    dtype_dict: Mapping[str, str] | None = None,
    op_converter: type[OperatorConverter] = OperatorConverter,
) -> tuple[IRModule, dict[str, nd.NDArray]]:
    """Import a TensorFlow Lite model.

    Parameters
    ----------
    model : a ``tflite.Model``, the bytes of a file, or its path.
    shape_dict : shapes of inputs by name, where they differ from the model's.
    dtype_dict : data types of inputs by name, where they differ from the model's.
    op_converter : a subclass of ``OperatorConverter``, which adds operators.

    Returns
    -------
    The module, whose attribute ``output_names`` has the names of the model's outputs; and the constants by name. A
    variable that the model writes is an input, listed in the module's attribute ``state_inputs``, and its next value a
    result called ``NAME.next``; its first value is among the constants.

    Raises
    ------
    TfliteImportError for a model that is not valid; UnsupportedError naming every operator that has no converter.
    """
    read = read_model(model)
    graph, params = read.subgraphs[0], Params()
    converter = op_converter(read, graph, params)
    converter.check_unsupported_ops()
    inputs = _inputs(graph, shape_dict or {}, dtype_dict or {})
    params.resources = Variables.of(read)
    outputs = [typed(o) for o in converter.convert_op_to_relay(inputs)]
    state = {var.name_hint: (var, last) for var, last in params.resources.state().values()}
    results = [*outputs, *(typed(last) for _, last in state.values())]
    body = results[0] if len(results) == 1 else Tuple(results)
    used = set(free_vars(body))
    kept = {name: var for name, var in params.variables.items() if var in used}
    variables = [v for v in inputs.values() if isinstance(v, Var)]
    module = IRModule.from_expr(Function([*variables, *(var for var, _ in state.values()), *kept.values()], body))
    names = [*_unique([graph.tensors[i].name for i in graph.outputs]), *(f"{name}.next" for name in state)]
    module = module.with_attr(OUTPUT_NAMES.key, names)
    if state:
        module = module.with_attr(STATE_INPUTS.key, list(state))
    return module, {name: params.arrays[name] for name in (*state, *kept)}


def _unique(names: Sequence[str]) -> list[str]:
    return [name if name not in names[:i] else f"{name}_{i}" for i, name in enumerate(names)]


def _inputs(graph: Subgraph, shapes: Mapping[str, Sequence[Any]], dtypes: Mapping[str, str]) -> dict[int, RelayExpr]:
    tensors = [graph.tensors[i] for i in graph.inputs]
    names = _unique([t.name for t in tensors])
    for name in (*shapes, *dtypes):
        if name not in names:
            raise TfliteImportError(f"the model has no input {name!r}; its inputs are {', '.join(map(repr, names))}")
    found: dict[int, RelayExpr] = {}
    for name, tensor in zip(names, tensors, strict=True):
        shape = tuple(shapes.get(name, tensor.shape))
        if len(shape) != len(tensor.shape) and tensor.shape:
            raise TfliteImportError(f"input {name!r} has the shape {tensor.shape}, and {shape} was given")
        if any(isinstance(d, int) and d < 0 for d in shape):
            raise TfliteImportError(f"input {name!r} has the shape {shape}; give a shape of numbers (--input-shape)")
        found[tensor.index] = typed(Var(name, TensorType(shape, dtypes.get(name, tensor.dtype))))
    return found


def load(source: Any, shape: Mapping[str, Sequence[Any]] | None = None) -> tuple[IRModule, dict[str, nd.NDArray]]:
    """Import a file or an object for ``import_model``."""
    return from_tflite(source, shape)


__all__ = ["OperatorConverter", "from_tflite", "load"]
