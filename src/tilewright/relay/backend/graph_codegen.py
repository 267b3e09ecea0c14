"""From a fused Relay function to the graph that the executor runs, in TVM 0.8's graph JSON.

A graph is a list of nodes: ``null`` nodes are inputs and parameters, ``tvm_op`` nodes call kernels. Every node
output has an entry with shape, dtype, storage id and offset. A kernel that only reshapes becomes ``__nop``: its output
shares its input's storage. A concatenation or split that needs no copying becomes ``__view``: see ``views``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.ir.errors import UnsupportedError
from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.op import Op
from tilewright.ir.transform import PassContext
from tilewright.ir.type import TensorType, TupleType, Type
from tilewright.relay.backend.memory_plan import Lifetime, Placed, plan_arena, plan_storage
from tilewright.relay.backend.progress import report_progress
from tilewright.relay.backend.te_compiler import LoweredFunction, TECompiler
from tilewright.relay.backend.views import Buffers, view_of_kernel
from tilewright.relay.expr import Call, Constant, Function, Let, Tuple, TupleGetItem, Var
from tilewright.relay.op.views import View, is_reshape, tensor_bytes
from tilewright.relay.transform.fold_constant import grows_at_load
from tilewright.relay.visitor import ExprFunctor, direct_children, post_order
from tilewright.runtime.ndarray import NDArray, numpy_view

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """Output ``index`` of node ``node``."""

    node: int
    index: int = 0


@dataclass(slots=True)
class GraphNode:
    """A node of the graph; ``alias`` marks a ``__nop`` or ``__view``, whose memory is that of other tensors.

    ``func`` is the function of a node that may become the ``view`` of ``parts``, or a kernel after all. ``once`` marks
    a kernel that makes a parameter ready for use: one run serves all runs of the graph.
    """

    op: str
    name: str
    types: tuple[TensorType, ...]
    inputs: list[Entry] = field(default_factory=list)
    attrs: dict[str, str] = field(default_factory=dict)
    alias: bool = False
    view: View | None = None
    parts: list[Entry] = field(default_factory=list)
    func: Function | None = None
    once: bool = False


@dataclass(frozen=True)
class Placement:
    """Storage, and offset there, of every entry; the bytes of what is neither input nor parameter."""

    storage: list[int]
    offsets: list[int] | None
    activation_bytes: int


@dataclass
class Graph:
    """What code generation gives: the nodes, parameters, kernels and the storage plan."""

    nodes: list[GraphNode]
    heads: list[Entry]
    params: dict[str, NDArray]
    functions: list[LoweredFunction]
    placement: Placement

    def to_json(self) -> str:
        """TVM 0.8's graph JSON."""
        row_ptr = [0]
        for node in self.nodes:
            row_ptr.append(row_ptr[-1] + len(node.types))
        types = [t for node in self.nodes for t in node.types]
        offsets = self.placement.offsets
        # A type of list that TVM 0.8's executor does not know: it must not run a graph whose offsets it would ignore.
        offset_attr = {"storage_offset": ["list_int64", offsets]} if offsets is not None and any(offsets) else {}
        document = {
            "nodes": [self._node_json(n) for n in self.nodes],
            "arg_nodes": [i for i, n in enumerate(self.nodes) if n.op == "null"],
            "heads": [[e.node, e.index, 0] for e in self.heads],
            "attrs": {
                "dltype": ["list_str", [t.dtype for t in types]],
                "device_index": ["list_int", [1] * len(types)],
                "storage_id": ["list_int", self.placement.storage],
                "shape": ["list_shape", [list(t.concrete_shape) for t in types]],
                **offset_attr,
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
        self._use_offsets: bool = PassContext.current().option("relay.graph.storage_offset")

    def codegen(self, func: Function) -> Graph:
        """The graph of a typed, fused function."""
        for param in func.params:
            self.memo_map[param] = self._input(param)
        self._total_calls = _count_primitive_calls(func.body)
        heads = self.visit(func.body)
        buffers = Buffers()
        heads = self._place_views(heads, buffers)
        placement = self._placement(heads, buffers)
        return Graph(self.nodes, heads, self.params, list(self.functions.values()), placement)

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
        elif self._use_offsets and (found := view_of_kernel(func, len(inputs))) is not None:
            view, order = found
            node = GraphNode("tvm_op", "", types, inputs, view=view, parts=[inputs[i] for i in order], func=func)
        else:
            node = self._kernel(func, types, inputs)
        self.nodes.append(node)
        self._calls += 1
        report_progress("lower", self._calls, self._total_calls, node.name)
        return [Entry(len(self.nodes) - 1, i) for i in range(len(types))]

    def _kernel(self, func: Function, types: tuple[TensorType, ...], inputs: list[Entry]) -> GraphNode:
        lowered = self.compiler.lower(func)
        self.functions[lowered.name] = lowered
        attrs = _op_attrs(lowered.name, len(inputs), len(types)) | lowered.layout_attrs | {"hash": lowered.hash}
        once = _makes_ready(func) and all(self.nodes[e.node].name in self.params for e in inputs)
        if once:
            attrs["run_once"] = "1"
        return GraphNode("tvm_op", self._unique(lowered.name), types, inputs, attrs, once=once)

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
            if not is_reshape(body):
                return False
            body, calls = body.args[0], calls + 1
        return calls > 0 and isinstance(body, Var)

    def _place_views(self, heads: Sequence[Entry], buffers: Buffers) -> list[Entry]:
        """Make views or kernels of the nodes that have none yet, and find out which buffer each tensor is in.

        Nodes move, since copies are inserted; gives the outputs' new entries.
        """
        before, self.nodes = self.nodes, []
        moved: dict[Entry, Entry] = {}
        outputs = _with_reshaped(heads, before)
        for index, node in enumerate(before):
            entries = [Entry(index, i) for i in range(len(node.types))]
            own = [e not in outputs for e in (node.parts if node.view and node.view.joins else entries)]
            node.inputs = [moved[e] for e in node.inputs]
            node.parts = [moved[e] for e in node.parts]
            if node.view is not None:
                node = self._join(node, own, buffers) if node.view.joins else self._cut(node, own, buffers)
            self.nodes.append(node)
            moved.update((e, Entry(len(self.nodes) - 1, e.index)) for e in entries)
            for entry, type_ in zip((moved[e] for e in entries), node.types, strict=True):
                if not node.alias:
                    buffers.add(entry, tensor_bytes(type_), fixed=node.op == "null" or node.once)
                elif node.attrs["func_name"] == "__nop":
                    buffers.view(entry, node.inputs[0])
        return [moved[e] for e in heads]

    def _cut(self, node: GraphNode, own: Sequence[bool], buffers: Buffers) -> GraphNode:
        """A split or slice as views of its input; as a kernel where the input or a result must have its own memory."""
        assert node.view is not None and node.func is not None
        source = node.parts[0]
        if buffers.is_fixed(source) or not all(own):
            return self._kernel(node.func, node.types, node.inputs)
        for i, offset in enumerate(node.view.offsets):
            buffers.view(Entry(len(self.nodes), i), source, offset)
        return self._view(node)

    def _join(self, node: GraphNode, own: Sequence[bool], buffers: Buffers) -> GraphNode:
        """A concatenation as a view of its inputs, those that must be elsewhere copied; else as a kernel."""
        assert node.view is not None and node.func is not None
        sizes = [tensor_bytes(self._type_of(e)) for e in node.parts]
        parts = list(zip(node.parts, node.view.offsets, sizes, strict=True))
        result = Entry(-1, len(self.nodes))  # a name until it is known how many copies come first
        placed = buffers.join(result, parts, keep=[i for i, mine in enumerate(own) if not mine])
        if not any(placed):
            return self._kernel(node.func, node.types, node.inputs)
        for i, (entry, offset, nbytes) in enumerate(parts):
            if nbytes and not placed[i]:
                node.parts[i] = self._copy(entry)
                buffers.place(node.parts[i], result, offset, nbytes)
        buffers.view(Entry(len(self.nodes)), result)
        return self._view(node)

    def _view(self, node: GraphNode) -> GraphNode:
        attrs = _op_attrs("__view", len(node.parts), len(node.types))
        return GraphNode("tvm_op", self._unique("view"), node.types, node.parts, attrs, alias=True)

    def _copy(self, source: Entry) -> Entry:
        """A node that copies a tensor."""
        type_ = self._type_of(source)
        param = Var("p0", type_).with_checked_type(type_)
        body = Call(Op.get("copy"), [param]).with_checked_type(type_)
        self.nodes.append(self._kernel(Function([param], body, type_, attrs={"Primitive": 1}), (type_,), [source]))
        return Entry(len(self.nodes) - 1)

    def _type_of(self, entry: Entry) -> TensorType:
        return self.nodes[entry.node].types[entry.index]

    def _placement(self, heads: Sequence[Entry], buffers: Buffers) -> Placement:
        """Where each entry lives."""
        lifetimes = self._lifetimes(heads, buffers)
        entries = [Entry(step, i) for step, node in enumerate(self.nodes) for i in range(len(node.types))]
        if not self._use_offsets:
            owners = [e for e in entries if e in lifetimes]
            plan = plan_storage([lifetimes[e] for e in owners])
            storage: dict[Any, int] = dict(zip(owners, plan.storage, strict=True))
            arguments = {storage[e] for e in owners if lifetimes[e].dedicated}
            activation = sum(size for i, size in enumerate(plan.sizes) if i not in arguments)
            return Placement([storage[buffers.find(e)[0]] for e in entries], None, activation)
        places = [buffers.find(e) for e in entries]
        roots = list(dict.fromkeys(root for root, _ in places))
        shared = [root for root in roots if not buffers.is_fixed(root)]
        arena = plan_arena([[Placed(o.start, lifetimes[o.tensor]) for o in buffers.owners[root]] for root in shared])
        start: dict[Any, int] = dict(zip(shared, arena.starts, strict=True))
        names = ["arena" if root in start else root for root, _ in places]
        number = {name: i for i, name in enumerate(dict.fromkeys(names))}
        offsets = [start.get(root, 0) + at for root, at in places]
        return Placement([number[name] for name in names], offsets, arena.nbytes)

    def _lifetimes(self, heads: Sequence[Entry], buffers: Buffers) -> dict[Entry, Lifetime]:
        """Lifetime of each tensor that owns memory: from its kernel to the last use of any tensor that lies there."""
        lifetimes = {
            owner.tensor: Lifetime(owner.nbytes, owner.tensor.node, owner.tensor.node, root in buffers.fixed)
            for root, owners in buffers.owners.items()
            for owner in owners
        }
        uses = [(step, entry) for step, node in enumerate(self.nodes) for entry in node.inputs]
        for step, entry in (*uses, *((len(self.nodes), head) for head in heads)):
            for owner in buffers.under(entry, tensor_bytes(self._type_of(entry))):
                lifetimes[owner].last = max(lifetimes[owner].last, step)
        return lifetimes


def _makes_ready(func: Function) -> bool:
    """Whether a kernel is an operator alone that waits until the library is loaded."""
    return isinstance(func.body, Call) and isinstance(func.body.op, Op) and grows_at_load(func.body.op)


def _with_reshaped(heads: Sequence[Entry], nodes: Sequence[GraphNode]) -> set[Entry]:
    """The outputs, and what they are reshapes of: the same memory."""
    found = set(heads)
    pending = list(heads)
    while pending:
        node = nodes[pending.pop().node]
        if node.alias and node.inputs[0] not in found:
            found.add(node.inputs[0])
            pending.append(node.inputs[0])
    return found


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
