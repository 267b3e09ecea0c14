"""From a fused Relay function to the graph that the executor runs, in TVM 0.8's graph JSON.

A graph is a list of nodes: ``null`` nodes are inputs and parameters, ``tvm_op`` nodes call kernels. Every node
output has an entry with shape, dtype and storage id. A kernel that only reshapes becomes ``__nop``: its output
shares its input's storage.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.errors import UnsupportedError
from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.op import Op
from tilewright.ir.type import TensorType, TupleType, Type
from tilewright.relay.backend.memory_plan import Lifetime, StoragePlan, plan_storage
from tilewright.relay.backend.progress import report_progress
from tilewright.relay.backend.te_compiler import LoweredFunction, TECompiler
from tilewright.relay.expr import Call, Constant, Function, Let, Tuple, TupleGetItem, Var
from tilewright.relay.visitor import ExprFunctor, direct_children, post_order
from tilewright.runtime.ndarray import NDArray, numpy_view

Array = np.ndarray[Any, Any]

_RESHAPE_OPS = frozenset(
    {"reshape", "expand_dims", "squeeze", "nn.batch_flatten", "contrib_reverse_reshape", "reshape_like"}
)


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """Output ``index`` of node ``node``."""

    node: int
    index: int = 0


@dataclass(slots=True)
class GraphNode:
    """A node of the graph; ``alias`` marks a ``__nop`` whose output is its input's memory."""

    op: str
    name: str
    types: tuple[TensorType, ...]
    inputs: list[Entry] = field(default_factory=list)
    attrs: dict[str, str] = field(default_factory=dict)
    alias: bool = False


@dataclass
class Graph:
    """What code generation gives: the nodes, parameters, kernels and the storage plan."""

    nodes: list[GraphNode]
    heads: list[Entry]
    params: dict[str, NDArray]
    functions: list[LoweredFunction]
    plan: StoragePlan
    activation_bytes: int

    def to_json(self) -> str:
        """TVM 0.8's graph JSON."""
        row_ptr = [0]
        for node in self.nodes:
            row_ptr.append(row_ptr[-1] + len(node.types))
        types = [t for node in self.nodes for t in node.types]
        document = {
            "nodes": [self._node_json(n) for n in self.nodes],
            "arg_nodes": [i for i, n in enumerate(self.nodes) if n.op == "null"],
            "heads": [[e.node, e.index, 0] for e in self.heads],
            "attrs": {
                "dltype": ["list_str", [t.dtype for t in types]],
                "device_index": ["list_int", [1] * len(types)],
                "storage_id": ["list_int", self.plan.storage],
                "shape": ["list_shape", [list(t.concrete_shape) for t in types]],
            },
            "node_row_ptr": row_ptr,
        }
        return json.dumps(document, indent=2)

    @staticmethod
    def _node_json(node: GraphNode) -> dict[str, Any]:
        result: dict[str, Any] = {"op": node.op, "name": node.name}
        if node.op != "null":
            result["attrs"] = node.attrs
        result["inputs"] = [[e.node, e.index, 0] for e in node.inputs]
        return result


class GraphCodegen(ExprFunctor[list[Entry]]):
    """Walks the fused ``main`` function and emits nodes in execution order."""

    def __init__(self, compiler: TECompiler) -> None:
        super().__init__()
        self.compiler = compiler
        self.nodes: list[GraphNode] = []
        self.params: dict[str, NDArray] = {}
        self.functions: dict[str, LoweredFunction] = {}
        self._constants: dict[tuple[Any, ...], list[tuple[Entry, Array]]] = {}
        self._names: dict[str, int] = {}
        self._calls = self._total_calls = 0

    def codegen(self, func: Function) -> Graph:
        """The graph of a typed, fused function."""
        for param in func.params:
            self.memo_map[param] = self._input(param)
        self._total_calls = _count_primitive_calls(func.body)
        heads = self.visit(func.body)
        lifetimes, sources = self._lifetimes(heads)
        plan = plan_storage([lifetimes[s] for s in sorted(lifetimes)])
        number = {source: i for i, source in enumerate(sorted(lifetimes))}
        storage = [plan.storage[number[s]] for s in sources]
        arguments = {plan.storage[number[s]] for s in lifetimes if self._is_argument_entry(s)}
        activation = sum(size for i, size in enumerate(plan.sizes) if i not in arguments)
        return Graph(
            self.nodes,
            heads,
            self.params,
            list(self.functions.values()),
            StoragePlan(storage, plan.sizes),
            activation,
        )

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        """Kernels are leaves: only their arguments are walked."""
        if isinstance(expr, Call):
            return expr.args
        if isinstance(expr, Let):
            return ()
        return super().children(expr)

    def visit_var(self, expr: Var) -> list[Entry]:
        raise UnsupportedError(f"main uses the variable %{expr.name_hint}, which is not one of its parameters")

    def visit_constant(self, expr: Constant) -> list[Entry]:
        """A parameter; equal constants are one."""
        array = numpy_view(expr.data)
        known = self._constants.setdefault((expr.data.shape, str(expr.data.dtype), _sample(array)), [])
        for entry, other in known:
            if _same_bytes(array, other):
                return [entry]
        name = self._unique(f"p{len(self.params)}")
        self.params[name] = expr.data
        self.nodes.append(GraphNode("null", name, (expr.tensor_type,)))
        known.append((Entry(len(self.nodes) - 1), array))
        return [known[-1][0]]

    def visit_tuple(self, expr: Tuple) -> list[Entry]:
        return [entry for item in expr.fields for entry in self.visit(item)]

    def visit_tuple_getitem(self, expr: TupleGetItem) -> list[Entry]:
        entries = self.visit(expr.tuple_value)
        type_ = expr.tuple_value.checked_type
        assert isinstance(type_, TupleType)
        start = sum(_num_tensors(t) for t in type_.fields[: expr.index])
        return entries[start : start + _num_tensors(type_.fields[expr.index])]

    def visit_let(self, expr: Let) -> list[Entry]:
        body: RelayExpr = expr
        while isinstance(body, Let):
            self.memo_map[body.var] = self.visit(body.value)
            body = body.body
        return self.visit(body)

    def visit_call(self, expr: Call) -> list[Entry]:
        func = expr.op
        inputs = [entry for arg in expr.args for entry in self.visit(arg)]
        if not isinstance(func, Function) or not func.attrs.get("Primitive"):
            raise UnsupportedError(f"the graph executor runs fused operators only; found {_describe_callee(func)}")
        types = tuple(_tensor_types(expr.checked_type))
        if len(inputs) == len(types) == 1 and self._is_reshape(func) and self.nodes[inputs[0].node].op == "tvm_op":
            node = GraphNode("tvm_op", self._unique("reshape_nop"), types, inputs, _op_attrs("__nop", 1, 1), alias=True)
        else:
            lowered = self.compiler.lower(func)
            self.functions[lowered.name] = lowered
            attrs = _op_attrs(lowered.name, len(inputs), len(types)) | lowered.layout_attrs | {"hash": lowered.hash}
            node = GraphNode("tvm_op", self._unique(lowered.name), types, inputs, attrs)
        self.nodes.append(node)
        self._calls += 1
        report_progress("lower", self._calls, self._total_calls, node.name)
        return [Entry(len(self.nodes) - 1, i) for i in range(len(types))]

    def default(self, expr: RelayExpr) -> list[Entry]:
        """Control flow, closures and data types need an executor that has them."""
        raise UnsupportedError(
            f"the graph executor cannot run a {type(expr).__name__} expression: it runs data flow only"
        )

    def _input(self, param: Var) -> list[Entry]:
        entries: list[Entry] = []
        types = list(_tensor_types(param.checked_type))
        for i, type_ in enumerate(types):
            if type_.is_dynamic:
                raise UnsupportedError(
                    f"input {param.name_hint!r} has the shape {type_}, which is not fully known; "
                    "give its shape when importing the model"
                )
            name = self._unique(param.name_hint if len(types) == 1 else f"{param.name_hint}_{i}")
            self.nodes.append(GraphNode("null", name, (type_,)))
            entries.append(Entry(len(self.nodes) - 1))
        return entries

    def _unique(self, name: str) -> str:
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        return name if count == 0 else self._unique(f"{name}{count}")

    @staticmethod
    def _is_reshape(func: Function) -> bool:
        body, calls = func.body, 0
        while isinstance(body, Call):
            if not isinstance(body.op, Op) or body.op.name not in _RESHAPE_OPS:
                return False
            body, calls = body.args[0], calls + 1
        return calls > 0 and isinstance(body, Var)

    def _is_argument_entry(self, source: Entry) -> bool:
        return self.nodes[source.node].op == "null"

    def _lifetimes(self, heads: Sequence[Entry]) -> tuple[dict[Entry, Lifetime], list[Entry]]:
        """Lifetime of each memory-owning entry, and for every entry in order the one whose memory it uses."""
        owner: dict[Entry, Entry] = {}
        lifetimes: dict[Entry, Lifetime] = {}
        order: list[Entry] = []
        end = len(self.nodes)
        for step, node in enumerate(self.nodes):
            for entry in node.inputs:
                source = lifetimes[owner[entry]]
                source.last = max(source.last, step)
            for i, type_ in enumerate(node.types):
                entry = Entry(step, i)
                owner[entry] = owner[node.inputs[0]] if node.alias else entry
                order.append(owner[entry])
                if owner[entry] is entry:
                    lifetimes[entry] = Lifetime(_nbytes(type_), step, step, dedicated=node.op == "null")
        for entry in heads:
            lifetimes[owner[entry]].last = end
        return lifetimes, order


def _sample(array: Array) -> bytes:
    """A few of an array's bytes, which tell most different arrays apart."""
    flat = array.reshape(-1).view(np.uint8)
    return flat[:: max(1, flat.size // 256) | 1].tobytes()


def _same_bytes(a: Array, b: Array) -> bool:
    """Whether two arrays of one shape and type hold the same bits; compared in parts, to use little memory."""
    x, y = (array.reshape(-1).view(np.uint8) for array in (a, b))
    step = 1 << 22
    return all(np.array_equal(x[i : i + step], y[i : i + step]) for i in range(0, x.size, step))


def _op_attrs(func_name: str, num_inputs: int, num_outputs: int) -> dict[str, str]:
    return {
        "num_outputs": str(num_outputs),
        "num_inputs": str(num_inputs),
        "flatten_data": "0",
        "func_name": func_name,
    }


def _tensor_types(type_: Type) -> list[TensorType]:
    if isinstance(type_, TensorType):
        return [type_]
    if isinstance(type_, TupleType):
        return [t for item in type_.fields for t in _tensor_types(item)]
    raise UnsupportedError(f"the graph executor handles tensors and tuples of tensors, not {type_}")


def _num_tensors(type_: Type) -> int:
    return len(_tensor_types(type_))


def _nbytes(type_: TensorType) -> int:
    count = 1
    for extent in type_.concrete_shape:
        count *= extent
    return count * dt.nbytes(type_.dtype)


def _describe_callee(func: RelayExpr) -> str:
    if isinstance(func, GlobalVar):
        return f"a call of the global function @{func.name_hint}"
    if isinstance(func, Op):
        return f"the operator {func.name} outside a fused function (run relay.transform.FuseOps)"
    return f"a call of a {type(func).__name__}"


def _data_flow_children(expr: RelayExpr) -> Sequence[RelayExpr]:
    """What is evaluated before ``expr``; callees are kernels, not walked into."""
    return expr.args if isinstance(expr, Call) else direct_children(expr)


def _count_primitive_calls(body: RelayExpr) -> int:
    return sum(isinstance(e, Call) for e in post_order(body, _data_flow_children))
