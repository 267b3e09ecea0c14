"""Importer from a TensorFlow graph to a Relay module.

A node is converted when a result of it is asked for, so what the outputs do not need leaves no trace. A ``Scope`` holds
the results of the nodes of one graph, function or loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.ir.budget import count_nodes
from tilewright.ir.errors import UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.prim_expr import DimVar, PrimExpr
from tilewright.ir.span import SourceName, Span
from tilewright.ir.type import TensorType
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Function, Tuple, TupleWrapper, Var, comes_from, const
from tilewright.relay.frontend.context import typed
from tilewright.relay.frontend.onnx.parts import PartsHost
from tilewright.relay.frontend.tensorflow.context import (
    NodeContext,
    channels_first_order,
    channels_last_order,
    described,
    errors_of,
)
from tilewright.relay.frontend.tensorflow.frames import FRAME_OPERATORS, Frames, convert_in_frame, needs_in_frame
from tilewright.relay.frontend.tensorflow.graph import Called, Graph, Node, Ref, array_of
from tilewright.relay.frontend.tensorflow.proto import TensorflowImportError
from tilewright.relay.frontend.tensorflow.registry import CONVERTERS
from tilewright.relay.function_attributes import OUTPUT_NAMES
from tilewright.runtime import ndarray as nd

_INLINE_ELEMENTS = 16  # smaller constants are part of the program
_MOST_CALLS = 64  # of functions by functions
_PLACEHOLDERS = ("Placeholder", "PlaceholderWithDefault", "PlaceholderV2")
_NO_VALUE = ("NoOp", "Assert", "PrintV2")
_STATEFUL = ("VariableV2", "Variable", "VarHandleOp", "ReadVariableOp", "AssignVariableOp", "Assign", "IteratorV2",
             "RestoreV2", "SaveV2", "HashTableV2", "LookupTableFindV2", "IteratorGetNext")  # fmt: skip


class Scope:
    """Results of nodes of a graph; inside a loop those that its round gives, before those around it."""

    def __init__(self, importer: GraphImporter, graph: Graph, depth: int = 0) -> None:
        self.importer = importer
        self.graph = graph
        self.depth = depth
        self.results: dict[str, list[Any]] = {}
        self.frame: str | None = None
        self.outer: Scope | None = None
        self.frames = Frames(graph)

    def inside(self, frame: str) -> Scope:
        """Return a scope for a round of a loop."""
        made = Scope.__new__(Scope)
        made.__dict__.update(self.__dict__)
        made.results, made.frame, made.outer = {}, frame, self
        return made

    def value(self, ref: Ref) -> Any:
        """Return a result of a node, which is converted first where it was not."""
        found = self.results_of(ref.name)
        if ref.index >= len(found):
            raise TensorflowImportError(f"the node {ref.name!r} has {len(found)} results; result {ref.index} is read")
        return found[ref.index]

    def results_of(self, name: str) -> list[Any]:
        """Return all results of a node, converting what it needs by a stack: graphs are deep."""
        stack, waiting = [name], set()
        while stack:
            name = stack[-1]
            home = self._home(name)
            if name in home.results:
                stack.pop()
                continue
            node = self.node(name)
            missing = [] if name in waiting else [n for n in needs(node) if n not in self._home(n).results]
            if missing:
                waiting.add(name)
                for other in missing:
                    if other in waiting and other in stack:
                        raise TensorflowImportError(f"{described(node)}: it depends on its own result")
                stack.extend(missing)
                continue
            home.results[name] = home.converted(node)
            stack.pop()
        return self._home(name).results[name]

    def node(self, name: str) -> Node:
        """Return a node by its name."""
        found = self.graph.nodes.get(name)
        if found is None:
            where = f"the function {self.graph.name!r}" if self.graph.name else "the graph"
            raise TensorflowImportError(f"{where} has no node {name!r}")
        return found

    def _home(self, name: str) -> Scope:
        """Return the scope that a node's results belong to: that of the loop around it."""
        frame = self.frames.of(name)
        scope: Scope | None = self
        while scope is not None and scope.frame != frame and scope.outer is not None:
            scope = scope.outer
        return scope if scope is not None else self

    def converted(self, node: Node) -> list[Any]:
        """Return the results of a node whose inputs are converted."""
        count_nodes(1, lambda: described(node))
        with errors_of(node), comes_from(Span(SourceName(node.name))):
            if node.op in FRAME_OPERATORS:
                return convert_in_frame(self, node)
            if node.op in _PLACEHOLDERS:
                return [self.importer.input(node)]
            if node.op == "Const":
                return [self.importer.constant(node)]
            if node.op in _NO_VALUE:
                return [const(0)]  # as in TVM
            inputs = [self.value(ref) for ref in node.inputs]
            convert = CONVERTERS.get(node.op)
            if convert is None:
                raise unsupported_operators([node])
            return self.importer.finished(inputs, convert(NodeContext(self.importer, self, node, inputs)))

    def call(self, called: Called | str, values: Sequence[Any]) -> list[Any]:
        """Return what a function of the graph returns for values of its arguments."""
        name = called if isinstance(called, str) else called.name
        function = self.importer.graph.functions.get(name)
        if function is None:
            raise TensorflowImportError(f"the graph has no function {name!r}")
        if len(function.arguments) != len(values):
            raise TensorflowImportError(
                f"the function {name!r} takes {len(function.arguments)} arguments; {len(values)} are given"
            )
        if self.depth >= _MOST_CALLS:
            raise UnsupportedError(f"the function {name!r} is called {self.depth} deep; recursion is not supported")
        scope = Scope(self.importer, function, self.depth + 1)
        scope.results.update({a: [v] for a, v in zip(function.arguments, values, strict=True)})
        return [scope.value(ref) for ref in function.results]


def needs(node: Node) -> list[str]:
    """Return the nodes that are converted before a node."""
    if node.op in _NO_VALUE:
        return []
    return needs_in_frame(node) if node.op in FRAME_OPERATORS else [ref.name for ref in node.inputs]


class GraphImporter(PartsHost):
    """Inputs, parameters and shapes of a program, which converters ask for."""

    def __init__(
        self, graph: Graph, shapes: Mapping[str, Sequence[Any]], config: Mapping[str, Any], channels_first: bool = False
    ) -> None:
        super().__init__()
        self.channels_first = channels_first  # of inputs and outputs with 4 dimensions and more
        self.graph = graph
        self.shapes = shapes
        self.config = config
        self.images: dict[RelayExpr, RelayExpr] = {}
        self._constants: dict[Node, Any] = {}
        self._read: dict[str, RelayExpr] = {}

    # ---- inputs and constants ----

    def input(self, node: Node) -> RelayExpr:
        """Return the variable of a placeholder."""
        dtype = node.attrs.get("dtype", "float32")
        if dtype in ("string", "resource", "variant"):
            raise UnsupportedError(f"{described(node)}: an input of the type {dtype}")
        if node.name not in self.inputs:
            dims = self._shape(node)
            turns = self.channels_first and len(dims) > 3
            made = typed(Var(node.name, TensorType([dims[0], dims[-1], *dims[1:-1]] if turns else dims, dtype)))
            assert isinstance(made, Var)
            self.inputs[node.name] = made
            self._read[node.name] = self.channels_last(made) if turns else made
        return self._read[node.name]

    def channels_last(self, expr: RelayExpr) -> RelayExpr:
        """Return a tensor with its second dimension last, of which ``images`` has it as it is."""
        rank = len(expr.checked_type.shape)  # type: ignore[attr-defined]
        made = typed(relay_op.transpose(expr, axes=channels_last_order(rank)))
        self.images[made] = expr
        return made

    def returned(self, value: RelayExpr) -> RelayExpr:
        """Return an output in the layout of outputs."""
        rank = len(typed(value).checked_type.shape)  # type: ignore[attr-defined]
        if not self.channels_first or rank < 4:
            return value
        found = self.images.get(value)
        return typed(relay_op.transpose(value, axes=channels_first_order(rank))) if found is None else found

    def _shape(self, node: Node) -> list[Any]:
        stated = node.attrs.get("shape")
        if node.op == "PlaceholderV2" or stated is None or (stated == () and "_output_shapes" in node.attrs):
            stated = (node.attrs.get("_output_shapes") or [stated])[0]
        given = self.shapes.get(node.name)
        if given is None and stated is None:
            raise TensorflowImportError(
                f"{described(node)}: the graph does not state its shape; give it, as shape={{{node.name!r}: (1, 8)}}"
            )
        dims = list(stated if given is None else given)
        return [self._dim(d, f"{node.name}_{i}") for i, d in enumerate(dims)]

    @staticmethod
    def _dim(dim: Any, name: str) -> Any:
        if dim is None or (isinstance(dim, (int, np.integer)) and dim < 0):
            return DimVar(name, 0)
        return dim if isinstance(dim, PrimExpr) else DimVar(dim, 0) if isinstance(dim, str) else int(dim)

    def constant(self, node: Node) -> Any:
        """Return a constant of the graph: an expression, or an array of strings."""
        if node in self._constants:  # in a function or a loop that is converted again
            return self._constants[node]
        if "value" not in node.attrs:
            raise TensorflowImportError(f"{described(node)}: the attribute 'value' is required and missing")
        array = array_of(node.attrs["value"], described(node))
        self._constants[node] = array if array.dtype == object else self.constant_tensor(node.name, array)
        return self._constants[node]

    def constant_tensor(self, name: str, array: np.ndarray[Any, Any]) -> RelayExpr:
        """Return an array as an expression: a parameter where it is not small."""
        if array.size <= _INLINE_ELEMENTS:
            return typed(const(array))
        unique, number = name, 2
        while unique in self.params:
            unique, number = f"{name}_{number}", number + 1
        return self.param_var(unique, nd.array(np.ascontiguousarray(array)))

    def finished(self, inputs: Sequence[Any], made: Any) -> list[Any]:
        """Return a converter's results as a list, those of constants worked out."""
        if isinstance(made, TupleWrapper):
            made = [made[i] for i in range(len(made))]
        found = list(made) if isinstance(made, (list, tuple)) else [made]
        constant = all(not isinstance(v, RelayExpr) or self.is_known(v) for v in inputs)
        constant = constant and all(isinstance(v, (RelayExpr, np.ndarray)) for v in inputs)
        return [self._finished(v, constant) if isinstance(v, RelayExpr) else v for v in found]

    def _finished(self, value: RelayExpr, constant: bool) -> RelayExpr:
        value = typed(value)
        if constant and not isinstance(value, Var) and value not in self.images:
            return self.folded(value)
        return value

    # ---- the whole graph ----

    def check_operators(self, wanted: Iterable[Ref], whole: bool) -> None:
        """Raise UnsupportedError that names every operator without a converter that the outputs need, and of a
        ``whole`` graph those that read variables.
        """
        missing = [n for n in self.graph.nodes.values() if whole and n.op in _STATEFUL and n.op not in CONVERTERS]
        for graph, names in _reached(self.graph, [ref.name for ref in wanted]):
            for name in names:
                node = graph.nodes.get(name)
                known = node is None or node.op in (*_PLACEHOLDERS, *_NO_VALUE, "Const", *FRAME_OPERATORS)
                if node is not None and not known and node.op not in CONVERTERS and node not in missing:
                    missing.append(node)
        if missing:
            raise unsupported_operators(missing)

    def module(self, outputs: Sequence[tuple[str, Any]]) -> tuple[IRModule, dict[str, nd.NDArray]]:
        """Return the module of results by name, and its parameters."""
        tensors = [value for _, value in outputs]
        body = tensors[0] if len(tensors) == 1 else Tuple(tensors)
        used = self.params_in(body)
        module = IRModule.from_expr(Function([*self.inputs.values(), *used], body))
        module = module.with_attr(OUTPUT_NAMES.key, [name for name, _ in outputs])
        return module, {v.name_hint: self.params[v.name_hint] for v in used}


def _reached(graph: Graph, names: Sequence[str]) -> Iterable[tuple[Graph, list[str]]]:
    """Return the nodes that results depend on, those in called functions included."""
    found: list[tuple[Graph, list[str]]] = []
    work: list[tuple[Graph, list[str]]] = [(graph, list(names))]
    called: set[str] = set()
    while work:
        here, stack = work.pop()
        seen: dict[str, None] = {}
        while stack:
            name = stack.pop()
            node = here.nodes.get(name)
            if name in seen:
                continue
            seen[name] = None
            if node is None:
                continue
            stack.extend(ref.name for ref in node.inputs)
            for function in _functions_of(node):
                target = graph.functions.get(function.name)
                if function.name not in called and target is not None:
                    called.add(function.name)
                    work.append((target, [r.name for r in target.results]))
        found.append((here, list(seen)))
    return found


def _functions_of(node: Node) -> list[Called]:
    values = [v for value in node.attrs.values() for v in (value if isinstance(value, list) else [value])]
    return [v for v in values if isinstance(v, Called)]


def unsupported_operators(nodes: Sequence[Node]) -> UnsupportedError:
    """Return the error that lists operators without a converter, with their nodes."""
    missing: dict[str, list[str]] = {}
    for node in nodes:
        missing.setdefault(node.op, []).append(node.name)
    lines = []
    for op, names in sorted(missing.items()):
        shown = ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        lines.append(f"  {op}: {shown}")
    stateful = sorted(set(missing) & set(_STATEFUL))
    head = "The following operators are not implemented:\n"
    if stateful:
        head = (
            f"Graph is not frozen. Provide a frozen graph: it reads variables or tables by {', '.join(stateful)}; "
            "give a SavedModel folder, or freeze it by convert_variables_to_constants_v2\n"
        )
    return UnsupportedError(head + "\n".join(lines))
