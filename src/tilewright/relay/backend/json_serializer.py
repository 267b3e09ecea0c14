"""External functions as graphs in JSON, for runtimes that interpret their regions.

The form is TVM 0.8's::

    {"nodes": [{"op": "input", "name": "my_0_i0", "attrs": {"shape": [[[1, 8]]], "dtype": [["float32"]]}},
               {"op": "const", "name": "tvmgen_default_my_main_0_const_0", "attrs": ...},
               {"op": "kernel", "name": "nn.dense", "inputs": [[0, 0, 0], [1, 0, 0]],
                "attrs": {"units": [["4"]], ..., "num_inputs": "2", "num_outputs": "1", "shape": ..., "dtype": ...}}],
     "arg_nodes": [0, 1], "heads": [[2, 0, 0]], "node_row_ptr": [0, 1, 2, 3]}

Entries are ``[node, output, 0]``. A composite function is one kernel of its name. Attributes are lists of lists of
strings.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.errors import UnsupportedError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import FloatImm, IntImm, StringImm
from tilewright.relay.data_flow import tensor_types
from tilewright.relay.expr import Call, Constant, Function, Let, Tuple, TupleGetItem, Var
from tilewright.relay.function_attributes import COMPOSITE, PARTITIONED_FROM
from tilewright.relay.visitor import ExprFunctor, post_order

Entry = list[int]


def constant_names(func: Function, symbol: str) -> dict[Constant, str]:
    """Return the name of each constant in an external function: ``SYMBOL_const_0`` and so on, in program order."""
    constants = [node for node in post_order(func.body) if isinstance(node, Constant)]
    return {node: f"{symbol}_const_{index}" for index, node in enumerate(constants)}


class JSONSerializer(ExprFunctor[list[Entry]]):
    """Serializer of a typed function: ``to_json()`` returns its text, ``constants`` are the names of its constants in
    order.

    Raises UnsupportedError unless the function is data flow between operators and composite functions.
    """

    def __init__(self, symbol: str, func: Function) -> None:
        super().__init__()
        self.nodes: list[dict[str, Any]] = []
        self.row_ptr = [0]
        self.constants: list[str] = []
        self._names = constant_names(func, symbol)
        for param in func.params:
            self.memo_map[param] = self._add({"op": "input", "name": param.name_hint}, {}, param)
        self.heads = self.visit(func.body)

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        """Return the operands; the body of a composite function is not visited."""
        return expr.args if isinstance(expr, Call) else super().children(expr)

    def _add(self, node: dict[str, Any], attrs: dict[str, Any], expr: RelayExpr) -> list[Entry]:
        types = tensor_types(expr.checked_type)
        shapes = [[int(d) for d in type_.concrete_shape] for type_ in types]
        self.nodes.append({**node, "attrs": {**attrs, "shape": [shapes], "dtype": [[t.dtype for t in types]]}})
        self.row_ptr.append(self.row_ptr[-1] + len(types))
        return [[len(self.nodes) - 1, index, 0] for index in range(len(types))]

    def visit_constant(self, expr: Constant) -> list[Entry]:
        """Add a node whose value is set before the first run."""
        self.constants.append(self._names[expr])
        return self._add({"op": "const", "name": self._names[expr]}, {}, expr)

    def visit_call(self, expr: Call) -> list[Entry]:
        """Add a kernel."""
        name, attrs, inputs = self.kernel(expr)
        count = len(tensor_types(expr.checked_type))
        attrs |= {"num_inputs": str(len(inputs)), "num_outputs": str(count)}
        return self._add({"op": "kernel", "name": name, "inputs": inputs}, attrs, expr)

    def kernel(self, call: Call) -> tuple[str, dict[str, Any], list[Entry]]:
        """Return name, attributes and inputs of a call; a code generator may override it."""
        inputs = [entry for arg in call.args for entry in self.visit(arg)]
        if isinstance(call.op, Op):
            return call.op.name, attribute_strings(call), inputs
        if isinstance(call.op, Function) and COMPOSITE.has(call.op):
            pattern = PARTITIONED_FROM.get(call.op, "")
            return COMPOSITE.of(call.op), {PARTITIONED_FROM.key: [[pattern]]}, inputs
        raise UnsupportedError(
            f"a call of a {type(call.op).__name__} has no form as JSON; there are operators and composite functions"
        )

    def visit_tuple(self, expr: Tuple) -> list[Entry]:
        """Return the entries of the fields."""
        return [entry for field in expr.fields for entry in self.visit(field)]

    def visit_tuple_getitem(self, expr: TupleGetItem) -> list[Entry]:
        """Return the entries of one field."""
        return [self.visit(expr.tuple_value)[expr.index]]

    def visit_var(self, expr: Var) -> list[Entry]:
        """Return the entries of a variable bound by a let."""
        return self.default(expr)

    def default(self, expr: RelayExpr) -> list[Entry]:
        """Refuse an expression that is not data flow."""
        hint = "; run relay.transform.ToGraphNormalForm first" if isinstance(expr, (Let, Var)) else ""
        raise UnsupportedError(f"a {type(expr).__name__} in an external function has no form as JSON{hint}")

    def to_json(self) -> str:
        """Return the graph as text."""
        arguments = [i for i, node in enumerate(self.nodes) if node["op"] != "kernel"]
        document = {
            "nodes": self.nodes, "arg_nodes": arguments, "heads": self.heads, "node_row_ptr": self.row_ptr,
        }  # fmt: skip
        return json.dumps(document, indent=2)


def attribute_strings(call: Call) -> dict[str, Any]:
    """Return the attributes of an operator's call as lists of lists of strings."""
    values = {} if call.attrs is None else {name: call.attrs[name] for name in call.attrs.keys()}  # noqa: SIM118
    return {name: [_strings(value)] for name, value in values.items()}


def _strings(value: Any) -> list[str]:
    return [_string(v) for v in value] if isinstance(value, tuple) else [_string(value)]


def _string(value: Any) -> str:
    if isinstance(value, (IntImm, FloatImm, StringImm)):
        value = value.value
    if value is None:
        return ""
    if isinstance(value, (bool, np.bool_, int, np.integer)):
        return str(int(value))
    return f"{value:.17g}" if isinstance(value, float) else str(value)
