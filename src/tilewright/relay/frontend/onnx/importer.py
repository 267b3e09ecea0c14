"""Importer from an ONNX graph to a Relay module."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from tilewright.ir import dtype as dt
from tilewright.ir.budget import check_budget, count_nodes
from tilewright.ir.errors import UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.span import SourceName, Span
from tilewright.ir.type import TensorType
from tilewright.relay.analysis import free_vars
from tilewright.relay.budget import in_budget
from tilewright.relay.expr import Constant, Function, Tuple, TupleWrapper, Var, comes_from, const
from tilewright.relay.frontend.dimensions import Elements, numbers
from tilewright.relay.frontend.onnx.attributes import dtype_of, to_array
from tilewright.relay.frontend.onnx.context import (
    MAX_CONSTANT_BYTES,
    NodeContext,
    OnnxImportError,
    TensorSequence,
    describe,
    errors_of,
    refuse_small_types,
    typed,
    warn_of_training,
)
from tilewright.relay.frontend.onnx.elements import MOST_ELEMENTS, elements_of
from tilewright.relay.frontend.onnx.functions import with_subgraphs
from tilewright.relay.frontend.onnx.host import host_operators
from tilewright.relay.frontend.onnx.inputs import InputShapes, Limits, checked_limits, checked_shapes
from tilewright.relay.frontend.onnx.legacy_opsets import NUMPY_BROADCASTING, aligned
from tilewright.relay.frontend.onnx.loading import (
    ModelFile,
    Weight,
    checked_nodes,
    first_line,
    load_model,
    model_opset,
    no_model,
    open_model,
)
from tilewright.relay.frontend.onnx.plain import plain_model
from tilewright.relay.frontend.onnx.ranks import ranks_of
from tilewright.relay.frontend.onnx.registry import DEFAULT_DOMAINS, Converter, find_converter
from tilewright.relay.frontend.onnx.strings import StringTable, is_text
from tilewright.relay.function_attributes import OUTPUT_NAMES
from tilewright.relay.transform.simplify.fold_constant import constant_value, fold_constant
from tilewright.relay.visitor import substitute
from tilewright.runtime import ndarray as nd
from tilewright.runtime.ndarray import numpy_dtype, numpy_view

_BACKEND = "tilewright.relay.frontend.onnx.backend"
# Results of constant nodes up to this size are worked out while importing, so that shape arithmetic is known.
_EAGER_FOLD_ELEMENTS = 1 << 12
# No machine holds more; a model that claims more is damaged or hostile.
_MAX_TENSOR_BYTES = 1 << 40
# Types of whose elements something may be known (elements.py).
_WHOLE_DTYPES, _FLOAT_DTYPES = ("int64", "int32", "bool"), ("float32", "float64")
# Inputs of which a node uses the data type alone: its result is constant when the others are.
_TYPE_ONLY_INPUTS = {"CastLike": (1,)}


@in_budget()
def from_onnx(
    model: onnx.ModelProto | ModelFile | str | os.PathLike[str],
    shape: Mapping[str, Sequence[Any]] | None = None,
    dtype: str | Mapping[str, str] = "float32",
    opset: int | None = None,
    freeze_params: bool = False,
    convert_config: Mapping[str, Any] | None = None,
    dims: Mapping[str, Any] | None = None,
) -> tuple[IRModule, dict[str, nd.NDArray]]:
    """Import an ONNX model.

    Parameters
    ----------
    model : a ``ModelProto``, the path of a file, or the result of ``open_model``.
    shape : shapes of inputs by name; overrides the model's. A dimension is a number, a name, or ``relay.Any()``; one
        name is one number wherever it stands.
    dtype : data type of inputs that have none in the model, for all or by name.
    opset : operator set to assume instead of the model's own.
    freeze_params : make weights constants of the module, instead of parameters.
    convert_config : options of TVM's importer; none has an effect here.
    dims : limits of named dimensions, the model's and those of ``shape``: a number, the least and the greatest
        ``(1, 512)``, or these and a divisor ``(8, 512, 8)``; None for no greatest.

    Returns
    -------
    The module, whose attribute ``output_names`` has the names of the model's outputs; and the weights by name.

    Raises
    ------
    OnnxImportError for a model that is not valid; UnsupportedError naming every operator and node that has no
    converter; BudgetError for a model that takes more than ``relay.budget.*`` of the ``PassContext`` allows.
    """
    shapes = checked_shapes(shape)
    if isinstance(model, (str, os.PathLike)):
        model = open_model(model)
    weights: Mapping[str, Weight] = {}
    if isinstance(model, ModelFile):
        model, weights = model.proto, model.weights
    elif not isinstance(model, onnx.ModelProto):
        raise OnnxImportError(no_model(model))
    elif not model.HasField("graph"):
        raise OnnxImportError("the model holds no graph")
    try:
        model = plain_model(model)
        importer = GraphImporter(model, shapes, dtype, opset, weights, checked_limits(dims))
        module, params = importer.import_model(freeze_params)
    except UnicodeDecodeError as error:
        raise OnnxImportError(f"the model holds a name that is not UTF-8 text ({error.reason})") from None
    return module, params


@dataclass(frozen=True)
class Imported:
    """A model with sequences as single tensors: ``x.0``, ``x.1``, ... of ``x``."""

    module: IRModule
    params: dict[str, nd.NDArray]
    inputs: tuple[str, ...]
    structure: tuple[int | None, ...]
    """Of each output: None for a tensor, the length of a sequence, -1 for an optional value that is empty."""

    @property
    def count(self) -> int:
        """Return how many tensors the program returns."""
        return sum(1 if length is None else max(length, 0) for length in self.structure)

    def flat_inputs(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the program's inputs: arrays by name."""
        flat: dict[str, Any] = {}
        for name, value in given.items():
            flat |= _elements(name, value) if isinstance(value, list) else {name: value}
        missing = [name for name in self.inputs if name not in flat]
        if missing:
            raise OnnxImportError(f"inputs that the model needs were not given: {', '.join(missing)}")
        return {name: flat[name] for name in self.inputs}

    def outputs(self, flat: Sequence[Any]) -> list[Any]:
        """Return the program's outputs in the model's structure."""
        left, found = iter(flat), []
        for length in self.structure:
            if length is None:
                found.append(next(left))
            else:
                found.append(None if length < 0 else [next(left) for _ in range(length)])
        return found


def _elements(name: str, values: Sequence[Any]) -> dict[str, Any]:
    return {f"{name}.{i}": value for i, value in enumerate(values)}


@in_budget()
def import_graph(
    model: onnx.ModelProto, given: Mapping[str, Any], bound: Mapping[str, Any], strings: StringTable
) -> Imported:
    """Import a model for inputs of the shapes and lengths of ``given``; those in ``bound`` become constants.

    Strings are numbers of the table.
    """
    shapes = {name: value.shape for name, value in given.items() if isinstance(value, np.ndarray)}
    importer = GraphImporter(model, shapes, "float32", None, {}, {})
    importer.static = True
    importer.examples, importer.bound, importer.strings = given, bound, strings
    module, params = importer.import_model(False)
    return Imported(module, params, tuple(importer.inputs), tuple(importer.structure))


def _unused(name: str, taken: Container[str]) -> str:
    """Return the name, numbered if it is in use: a value may be listed as an output twice."""
    numbered = (f"{name}_{number}" for number in itertools.count(2))
    return next(n for n in itertools.chain([name], numbered) if n not in taken)


class GraphImporter:
    """Converter of one graph; ``values`` holds the expression of every ONNX tensor."""

    def __init__(
        self,
        model: onnx.ModelProto,
        shapes: Mapping[str, Sequence[Any]],
        dtype: str | Mapping[str, str],
        opset: int | None,
        weights: Mapping[str, Weight],
        limits: Mapping[str, Limits],
    ) -> None:
        self.graph = model.graph
        self.weights = weights
        self.given_shapes = shapes
        self.dtype = dtype
        self.opset = opset or model_opset(model)
        self.versions = {o.domain: o.version for o in model.opset_import if o.domain not in DEFAULT_DOMAINS}
        self.nodes = checked_nodes(model, self.opset)
        self.values: dict[str, RelayExpr | TensorSequence] = {}
        self.params: dict[str, nd.NDArray] = {}
        self.inputs: dict[str, Var] = {}
        self.examples: Mapping[str, Any] = {}
        self.bound: Mapping[str, Any] = {}
        self.strings: StringTable | None = None
        self.structure: list[int | None] = []
        self.in_training: list[str] = []
        self._sequence_of: dict[str, str] = {}
        self._constant_exprs: set[RelayExpr] = set()
        self.known_elements: dict[RelayExpr, Elements] = {}
        self.unrounded: dict[RelayExpr, RelayExpr] = {}  # results in half precision: what was rounded to them
        self.checked: dict[Any, RelayExpr] = {}  # by indices.py
        self.static = False  # whether every shape must be known while importing
        self.limits = limits

    def import_model(self, freeze_params: bool) -> tuple[IRModule, dict[str, nd.NDArray]]:
        """Return the module and its parameters."""
        self._check_operators()
        for tensor in self.graph.initializer:
            self._add_initializer(tensor)
        self._add_inputs()
        for node in self.nodes:
            self._convert_node(node)
        if not self.static:
            warn_of_training(self.in_training)
        named: dict[str, RelayExpr] = {}
        for output in self.graph.output:
            for name, value in self._output(output.name).items():
                named[_unused(name, named)] = value
        outputs = list(named.values())
        body = outputs[0] if len(outputs) == 1 else Tuple(outputs)
        if freeze_params:
            body = self.with_params(body)
        used = set(free_vars(body))
        params = {v.name_hint: self.params[v.name_hint] for v in self._param_vars() if v in used}
        ordered = [*self.inputs.values(), *(v for v in self._param_vars() if v in used)]
        module = IRModule.from_expr(Function(ordered, body))
        return module.with_attr(OUTPUT_NAMES.key, list(named)), params

    def _param_vars(self) -> list[Var]:
        return [v for name in self.params if isinstance(v := self.values.get(name), Var)]

    def _output(self, name: str) -> dict[str, RelayExpr]:
        """Return the tensors of an output: one, or those of a sequence."""
        value = self._value(name)
        if not isinstance(value, TensorSequence):
            self.structure.append(None)
            return {name: value}
        self.structure.append(-1 if value.empty_optional else len(value))
        return _elements(name, value)

    def inputs_of(self, expr: RelayExpr) -> list[str]:
        """Return the model's inputs that an expression is computed from."""
        names = {v.name_hint for v in free_vars(expr) if isinstance(v, Var)}
        own = [name for name, var in self.inputs.items() if var.name_hint in names]
        return list(dict.fromkeys(self._sequence_of.get(name, name) for name in own))

    def _value(self, name: str) -> RelayExpr | TensorSequence:
        if name not in self.values:
            raise OnnxImportError(f"no node computes the model's output {name!r}")
        return self.values[name]

    def _check_operators(self) -> None:
        missing: dict[str, list[str]] = {}
        for node in with_subgraphs(self.nodes):
            if self._find(node) is None:
                name = f"{node.domain}.{node.op_type}" if node.domain not in DEFAULT_DOMAINS else node.op_type
                missing.setdefault(name, []).append(node.name or (node.output[0] if node.output else "?"))
        if not missing:
            return
        lines = []
        for op_type, nodes in sorted(missing.items()):
            shown = ", ".join(nodes[:5]) + (f" and {len(nodes) - 5} more" if len(nodes) > 5 else "")
            remedy = f" (on the host, by {_BACKEND})" if op_type in host_operators() else ""
            opset = self.versions.get(op_type.rpartition(".")[0], self.opset)
            lines.append(f"  {op_type} (opset {opset}): {shown}{remedy}")
        raise UnsupportedError("the model uses operators that are not supported:\n" + "\n".join(lines))

    def _find(self, node: onnx.NodeProto) -> Converter | None:
        return find_converter(node.domain, node.op_type, self.versions.get(node.domain, self.opset))

    def _add_initializer(self, tensor: onnx.TensorProto) -> None:
        where = f"initializer {tensor.name!r}"
        weight = self.weights.get(tensor.name)
        check_budget(where, weight.nbytes if weight is not None and weight.mapped is None else 0)
        if self.strings is None or tensor.data_type != onnx.TensorProto.STRING:
            dtype_of(tensor.data_type, where)
        try:
            if tensor.name in self.weights:
                data = self.weights[tensor.name].read(tensor.dims, dtype_of(tensor.data_type, where))
            else:
                data = nd.array(self._numbers(to_array(tensor)))
        except Exception as error:
            raise OnnxImportError(f"{where} of shape {tuple(tensor.dims)}: {first_line(error)}") from None
        self._add_param(tensor.name, data)

    def _numbers(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the array itself, or numbers of its strings."""
        return array if self.strings is None or not is_text(array) else self.strings.encode(array)

    def _add_param(self, name: str, data: nd.NDArray) -> None:
        self.params[name] = data
        self.values[name] = typed(Var(name, TensorType(data.shape, str(data.dtype))))

    def _add_inputs(self) -> None:
        graph_inputs = [i for i in self.graph.input if i.name not in self.params]
        names = [i.name for i in graph_inputs]
        for name in self.given_shapes:
            if name not in names:
                raise OnnxImportError(f"the model has no input {name!r}; its inputs are {', '.join(map(repr, names))}")
        shapes = InputShapes(graph_inputs, self.given_shapes, self.limits, self._ranks)
        for value in graph_inputs:
            if value.name in self.bound:
                self.values[value.name] = _bound(self.bound[value.name])
                continue
            if not value.type.HasField("tensor_type"):
                self._add_structured(value)
                continue
            var = typed(Var(value.name, TensorType(shapes.of(value), self._input_dtype(value))))
            assert isinstance(var, Var)
            self.values[value.name] = self.inputs[value.name] = var
        shapes.check_limits()

    def _ranks(self) -> dict[str, int]:
        """Return the numbers of dimensions of inputs without a shape, by the nodes that use them."""
        given = {name: len(shape) for name, shape in self.given_shapes.items()}
        return ranks_of(self.graph, self.nodes, given | {name: len(p.shape) for name, p in self.params.items()})

    def _add_structured(self, value: onnx.ValueInfoProto) -> None:
        """Add a sequence, or an optional value, as the tensors that it holds in the example."""
        name = value.name
        if name not in self.examples:
            raise UnsupportedError(
                f"input {name!r} is not a tensor, and how many it holds is not known: "
                f"{_BACKEND} compiles a model for the inputs that it meets"
            )
        example = self.examples[name]
        if example is None:
            self.values[name] = TensorSequence.nothing()
        elif isinstance(example, list):
            self.values[name] = TensorSequence(
                self._add_example(each, array) for each, array in _elements(name, example).items()
            )
            self._sequence_of |= dict.fromkeys(_elements(name, example), name)
        else:
            self.values[name] = self._add_example(name, example)

    def _add_example(self, name: str, array: np.ndarray[Any, Any]) -> Var:
        var = typed(Var(name, TensorType(array.shape, str(array.dtype))))
        assert isinstance(var, Var)
        self.inputs[name] = var
        return var

    def _input_dtype(self, value: onnx.ValueInfoProto) -> str:
        declared = value.type.tensor_type.elem_type
        if declared == onnx.TensorProto.STRING and self.strings is not None:
            return "int64"
        if declared:
            return dtype_of(declared, f"input {value.name!r}")
        return self.dtype if isinstance(self.dtype, str) else self.dtype.get(value.name, "float32")

    def param_value(self, var: Var) -> np.ndarray[Any, Any] | None:
        """Return the value of a weight; None for an input."""
        return numpy_view(self.params[var.name_hint]) if self.is_param(var) else None

    def is_param(self, var: Var) -> bool:
        """Return whether a variable is a weight."""
        return var.name_hint in self.params and self.values.get(var.name_hint) is var

    def with_params(self, expr: RelayExpr) -> RelayExpr:
        """Return ``expr`` with weights as constants."""
        binds = {v: const(self.params[v.name_hint]) for v in free_vars(expr) if isinstance(v, Var) and self.is_param(v)}
        return substitute(expr, binds)

    def is_constant_expr(self, expr: RelayExpr) -> bool:
        """Return whether an expression depends on weights and constants alone."""
        return expr in self._constant_exprs or isinstance(expr, Constant)

    def _convert_node(self, node: onnx.NodeProto) -> None:
        count_nodes(1, lambda: describe(node))
        inputs: list[RelayExpr | TensorSequence | None] = []
        for name in node.input:
            if name and name not in self.values:
                raise OnnxImportError(f"{describe(node)}: input {name!r} is the output of no node before it")
            inputs.append(self.values[name] if name else None)
        for name in node.output:
            if name in self.values:
                raise OnnxImportError(f"{describe(node)}: output {name!r} is the output of two nodes")
        with errors_of(node):
            self._bind_outputs(node, inputs, self._converted(node, inputs))

    def _bind_outputs(
        self, node: onnx.NodeProto, inputs: Sequence[RelayExpr | TensorSequence | None], outputs: list[Any]
    ) -> None:
        unused = _TYPE_ONLY_INPUTS.get(node.op_type, ())
        foldable = all(e is None or i in unused or self.is_known(e) for i, e in enumerate(inputs))
        if foldable and any(a.type == onnx.AttributeProto.GRAPH for a in node.attribute):  # which see what is around
            tensors = [value for value in outputs if isinstance(value, RelayExpr)]
            foldable = all(self.is_param(v) for value in tensors for v in free_vars(value) if isinstance(v, Var))
        if not foldable:
            self._note_elements(node, inputs, outputs)
        for name, value in zip(node.output, outputs, strict=False):
            if name and isinstance(value, TensorSequence):
                self.values[name] = value
            elif name:
                self._check_size(node, value, foldable)
                self.values[name] = self._known(value) if foldable else value

    def elements(self, ctx: NodeContext, expr: RelayExpr, dtypes: Sequence[str] = _WHOLE_DTYPES) -> Elements | None:
        """Return what is known of the elements of an integer or bool tensor: all of a constant's."""
        type_ = typed(expr).checked_type
        if expr in self.known_elements:
            return self.known_elements[expr] if isinstance(type_, TensorType) and type_.dtype in dtypes else None
        if not isinstance(type_, TensorType) or type_.is_dynamic or type_.dtype not in dtypes:
            return None
        if math.prod(type_.concrete_shape) > MOST_ELEMENTS:
            return None
        value = ctx.constant_or_none(expr)
        return (
            None
            if value is None
            else np.asarray(value.astype(bool).tolist() if type_.dtype == "bool" else value.tolist(), object)
        )

    def _note_elements(
        self, node: onnx.NodeProto, inputs: Sequence[RelayExpr | TensorSequence | None], outputs: list[Any]
    ) -> None:
        """Record what is known of the elements of the first output; known numbers become a constant."""
        if not outputs or not isinstance(outputs[0], RelayExpr) or outputs[0] in self.known_elements:
            return
        type_ = outputs[0].checked_type
        if not isinstance(type_, TensorType) or type_.dtype not in (*_WHOLE_DTYPES, *_FLOAT_DTYPES):
            return
        if not any(isinstance(e, RelayExpr) and e in self.known_elements for e in inputs):
            return
        context = NodeContext(self, node, inputs)
        dtypes = (*_WHOLE_DTYPES, *_FLOAT_DTYPES)
        given = [self.elements(context, e, dtypes) if isinstance(e, RelayExpr) else None for e in inputs]
        found = elements_of(node, context.attrs, given)
        if found is None:
            return
        whole = numbers(found)
        if whole is not None:
            outputs[0] = typed(const(whole.astype(numpy_dtype(type_.dtype)), type_.dtype))
        else:
            self.known_elements[outputs[0]] = found

    def _converted(self, node: onnx.NodeProto, inputs: Sequence[RelayExpr | TensorSequence | None]) -> list[Any]:
        if self.opset < NUMPY_BROADCASTING:
            inputs = aligned(node, inputs, [_rank(value) for value in inputs])
        refuse_small_types(node, self.versions.get(node.domain, self.opset), inputs)
        context = NodeContext(self, node, inputs)
        convert = self._find(node)
        assert convert is not None  # _check_operators has looked
        with comes_from(Span(SourceName(node.name or (node.output[0] if node.output else node.op_type)))):
            outputs = self._outputs(convert(context))
        if context.result_elements is not None:
            self.known_elements[outputs[0]] = context.result_elements
        return outputs

    def convert_subgraph(self, graph: onnx.GraphProto, inputs: Sequence[Any]) -> list[Any]:
        """Return the outputs of a graph in a node's attributes: its names hide outer ones, and end with it."""
        outer, checked = dict(self.values), dict(self.checked)
        given = {value.name: _typed(expr) for value, expr in zip(graph.input, inputs, strict=True)}
        own = {tensor.name: typed(const(self._numbers(to_array(tensor)))) for tensor in graph.initializer}
        for name in (*own, *given, *(name for node in graph.node for name in node.output)):
            self.values.pop(name, None)
        self.values.update(own | given)
        for node in graph.node:
            self._convert_node(node)
        outputs = [self._value(o.name) for o in graph.output]
        self.values, self.checked = outer, checked
        return outputs

    def _check_size(self, node: onnx.NodeProto, value: RelayExpr, constant: bool) -> None:
        found = value.checked_type
        if not isinstance(found, TensorType) or found.is_dynamic:
            return
        size = math.prod(found.concrete_shape) * dt.nbytes(found.dtype)
        if size > (MAX_CONSTANT_BYTES if constant else _MAX_TENSOR_BYTES):
            raise OnnxImportError(f"{describe(node)}: its result {found} has {size / 2**30:.3g} GiB; refusing")

    @staticmethod
    def _outputs(result: Any) -> list[Any]:
        if isinstance(result, TensorSequence):
            return [result]
        if isinstance(result, TupleWrapper):
            result = [result[i] for i in range(len(result))]
        items = list(result) if isinstance(result, (list, tuple)) else [result]
        return [item if isinstance(item, TensorSequence) else typed(item) for item in items]

    def is_known(self, expr: RelayExpr | TensorSequence) -> bool:
        """Return whether a value depends on weights and constants alone."""
        if isinstance(expr, TensorSequence):
            return all(map(self.is_known, expr))
        if isinstance(expr, Var):
            return self.is_param(expr)
        return self.is_constant_expr(expr)

    def _known(self, value: RelayExpr) -> RelayExpr:
        """Fold a small constant at once; record that a large one is constant."""
        type_ = value.checked_type
        if isinstance(type_, TensorType) and not type_.is_dynamic:
            if int(np.prod(type_.concrete_shape)) <= _EAGER_FOLD_ELEMENTS:
                folded = fold_constant(typed(self.with_params(value)))
                if constant_value(folded) is not None:
                    value = typed(folded)
        self._constant_exprs.add(value)
        return value


def _bound(value: Any) -> RelayExpr | TensorSequence:
    """Return an input that is known."""
    if value is None:
        return TensorSequence.nothing()
    if isinstance(value, list):
        return TensorSequence(typed(const(item)) for item in value)
    return typed(const(value))


def _typed(value: RelayExpr | TensorSequence) -> RelayExpr | TensorSequence:
    return value if isinstance(value, TensorSequence) else typed(value)


def _rank(value: RelayExpr | TensorSequence | None) -> int:
    found = value.checked_type if isinstance(value, RelayExpr) else None
    return len(found.shape) if isinstance(found, TensorType) else 0


__all__ = ["GraphImporter", "from_onnx", "load_model", "open_model"]
