"""From a lowered module to the graph that the executor runs, in TVM 0.8's graph JSON.

A graph is a list of nodes: ``null`` nodes are inputs and parameters, ``tvm_op`` nodes call kernels. Every node
output has an entry with shape, dtype, storage id and offset. A call for which ``PlanViews`` found that no kernel is
needed is a ``__nop`` (a reshape: its output shares its input's storage) or a ``__view`` (a concatenation or split).
``device_index`` is the device of each entry, by DLPack's type number; a ``__copy`` node copies between devices, and no
two devices share storage.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.ir.attrs import DictAttrs
from tilewright.ir.errors import UnsupportedError
from tilewright.ir.expr import BaseFunc, GlobalVar, RelayExpr
from tilewright.ir.function_attributes import FunctionAttribute
from tilewright.ir.module import IRModule
from tilewright.ir.span import source_names
from tilewright.ir.transform import PassContext
from tilewright.ir.type import TensorType
from tilewright.relay.analysis import device_types
from tilewright.relay.data_flow import DataFlow, Entry, refuse_callee, tensor_types
from tilewright.relay.expr import Call, Constant, Function, Var
from tilewright.relay.facts import ByBits
from tilewright.relay.function_attributes import HASH, IN_PLACE, LAYOUTS, OFFSETS, RESULT_DEVICE_TYPE, RUN_ONCE, VIEW
from tilewright.relay.op.annotation.devices import DeviceCopy
from tilewright.relay.op.views import ALIGNMENT, tensor_bytes
from tilewright.relay.transform.common import call_of
from tilewright.relay.transform.memory.graph_plan import Lifetime, Placed, plan_arena, plan_storage
from tilewright.relay.transform.memory.views import Buffers
from tilewright.relay.visitor import is_closed
from tilewright.runtime.ndarray import NDArray, numpy_view
from tilewright.tir.function import PrimFunc

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class GraphNode:
    """A node of the graph.

    ``alias`` marks a ``__nop`` or ``__view``, whose memory is that of other tensors; ``view`` is the function of a
    ``__view``. ``once``: one run of the kernel serves all runs of the graph. ``in_place``: the kernel writes into the
    view that takes its result. ``device`` is DLPack's type of the device of the outputs. ``sources`` are the names of
    the model's nodes that the kernel computes.
    """

    op: str
    name: str
    types: tuple[TensorType, ...]
    inputs: list[Entry] = field(default_factory=list)
    attrs: dict[str, str] = field(default_factory=dict)
    alias: bool = False
    view: Function | None = None
    once: bool = False
    in_place: bool = False
    device: int = 1
    sources: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ArenaOptions:
    """How intermediate tensors lie in arenas.

    Attributes
    ----------
    alignment : bytes that offsets are multiples of
    limits : for each arena of a device its largest size in bytes; None where it has none
    own : by kernel the bytes in an arena that it takes for itself while it runs
    """

    alignment: int = ALIGNMENT
    limits: tuple[int | None, ...] = (None,)
    own: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Arena:
    """A storage that holds many tensors: its number among the arenas of its device, and its size in bytes."""

    number: int
    nbytes: int


@dataclass(frozen=True)
class StoragePlan:
    """Storage of every entry and its offset there, and by device the bytes of all but inputs and parameters.

    ``arenas`` are the storages that hold many tensors; none in a plan without offsets. ``own`` are storage and offset
    of what a node's kernel takes for itself, by the node's number.
    """

    storage: list[int]
    offsets: list[int] | None
    bytes_by_device: dict[int, int]
    arenas: dict[int, Arena] = field(default_factory=dict)
    own: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def activation_bytes(self) -> int:
        """Return the bytes on all devices."""
        return sum(self.bytes_by_device.values())


@dataclass
class Graph:
    """The nodes, parameters and storage plan of a program."""

    nodes: list[GraphNode]
    heads: list[Entry]
    params: dict[str, NDArray]
    storage: StoragePlan
    metadata: dict[str, Any] = field(default_factory=dict)

    def rows(self) -> list[int]:
        """Return the number of each node's first entry, and the number of entries."""
        return [0, *itertools.accumulate(len(node.types) for node in self.nodes)]

    def to_json(self) -> str:
        """Return TVM 0.8's graph JSON."""
        types = [t for node in self.nodes for t in node.types]
        offsets = self.storage.offsets
        # A type of list that TVM 0.8's executor does not know: it must not run a graph whose offsets it would ignore.
        offset_attr = {"storage_offset": ["list_int64", offsets]} if offsets is not None and any(offsets) else {}
        document = {
            "nodes": [self._node_json(n) for n in self.nodes],
            "arg_nodes": [i for i, n in enumerate(self.nodes) if n.op == "null"],
            "heads": [[e.node, e.index, 0] for e in self.heads],
            "attrs": {
                "dltype": ["list_str", [t.dtype for t in types]],
                "device_index": ["list_int", [n.device for n in self.nodes for _ in n.types]],
                "storage_id": ["list_int", self.storage.storage],
                "shape": ["list_shape", [list(t.concrete_shape) for t in types]],
                **offset_attr,
            },
            "node_row_ptr": self.rows(),
            # TVM 0.8's executor stops reading here: the last member, and none that a run depends on
            "metadata": {
                "inputs": [n.name for n in self.nodes if n.op == "null" and n.name not in self.params],
                "sources": {n.name: n.sources for n in self.nodes if n.sources},
            }
            | self.metadata,
        }
        return json.dumps(document, indent=2)

    @staticmethod
    def _node_json(node: GraphNode) -> dict[str, Any]:
        result: dict[str, Any] = {"op": node.op, "name": node.name}
        if node.op != "null":
            result["attrs"] = node.attrs
        result["inputs"] = [[e.node, e.index, 0] for e in node.inputs]
        return result


class GraphCodegen(DataFlow):
    """Walk ``main`` of a lowered module (``relay.backend.lowered``) and emit nodes in execution order.

    ``device`` is the device of all nodes, by DLPack's device type, in a module that was not planned for several. With
    ``separate_results`` each result that is a whole buffer has a storage of its own, which a caller may own.
    ``arenas`` says how tensors lie in arenas.
    """

    def __init__(
        self, mod: IRModule, device: int = 1, separate_results: bool = False, arenas: ArenaOptions | None = None
    ) -> None:
        super().__init__()
        self.mod, self._arenas = mod, arenas or ArenaOptions()
        self.device = device
        self._separate_results = separate_results
        self._devices: dict[RelayExpr, int] = {}
        self.nodes: list[GraphNode] = []
        self.params: dict[str, NDArray] = {}
        self._constants: ByBits[Entry] = ByBits()
        self._names: dict[str, int] = {}
        self._use_offsets: bool = PassContext.current().option("relay.graph.storage_offset")

    def codegen(self, name: str = "main") -> Graph:
        """Return the graph of a function of the module."""
        func: Function = self.mod[name]
        if RESULT_DEVICE_TYPE.has(func):
            self._devices = device_types(func)
        for param in func.params:
            self.memo_map[param] = self._input(param)
        heads = self.visit(func.body)
        buffers = self._buffers()
        if self._separate_results:
            buffers.fixed.update(root for head in heads if (root := self._whole_buffer(head, buffers)) is not None)
        return Graph(self.nodes, heads, self.params, self._planned(heads, buffers))

    def _whole_buffer(self, head: Entry, buffers: Buffers) -> Any:
        """Return the buffer that ``head`` fills, or None where the buffer is larger."""
        root, start = buffers.find(head)
        ends = [owner.end for owner in buffers.owners[root]]
        starts = [owner.start for owner in buffers.owners[root]]
        whole = start == min(starts) == 0 and max(ends) <= tensor_bytes(self._type_of(head))
        return root if whole else None

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        """Visit the sources of copies into a view before the first copy."""
        if isinstance(expr, Call) and isinstance(expr.op, GlobalVar):
            return [
                *(a.args[0] if isinstance(a, Call) and _marked(a, IN_PLACE) else a for a in expr.args),
                *expr.args,
            ]
        return super().children(expr)

    def visit_constant(self, expr: Constant) -> list[Entry]:
        """Add a parameter; equal constants on one device share one."""
        device = self._device_of(expr)
        return [self._constants.find(numpy_view(expr.data), device, lambda: self._parameter(expr, device))]

    def _parameter(self, constant: Constant, device: int) -> Entry:
        name = self._unique(f"p{len(self.params)}")
        self.params[name] = constant.data
        self.nodes.append(GraphNode("null", name, (constant.tensor_type,), device=device))
        return Entry(len(self.nodes) - 1)

    def visit_call(self, expr: Call) -> list[Entry]:
        inputs = [entry for arg in expr.args for entry in self.visit(arg)]
        types = tuple(tensor_types(expr.checked_type))
        if call_of(expr, DeviceCopy.op):
            node = GraphNode("tvm_op", self._unique("__copy"), types, inputs, _op_attrs("__copy", 1, 1))
            return self._append(node, expr)
        if not isinstance(expr.op, GlobalVar) or not _is_lowered(callee := self.mod[expr.op]):
            raise refuse_callee(expr.op)
        view = VIEW.get(callee)
        name, label = {None: (expr.op.name_hint,) * 2, "reshape": ("__nop", "reshape_nop")}.get(
            view, ("__view", "view")
        )
        node = GraphNode("tvm_op", self._unique(label), types, inputs, _op_attrs(name, len(inputs), len(types)))
        if view is not None:
            node.alias, node.view = True, callee if view != "reshape" else None
        else:
            node.once, node.in_place = _marked(expr, RUN_ONCE), _marked(expr, IN_PLACE)
            node.attrs |= dict(LAYOUTS.get(callee, ()))
            node.attrs |= {HASH.key: HASH.of(callee)} if HASH.has(callee) else {}
            node.attrs |= {"run_once": "1"} if node.once else {}
            node.sources = source_names(expr.span)
        return self._append(node, expr)

    def _append(self, node: GraphNode, expr: RelayExpr) -> list[Entry]:
        node.device = self._device_of(expr)
        self.nodes.append(node)
        return [Entry(len(self.nodes) - 1, i) for i in range(len(node.types))]

    def _device_of(self, expr: RelayExpr) -> int:
        return self._devices.get(expr, self.device)

    def _input(self, param: Var) -> list[Entry]:
        entries: list[Entry] = []
        types = tensor_types(param.checked_type)
        for i, type_ in enumerate(types):
            if type_.is_dynamic:
                raise UnsupportedError(
                    f"input {param.name_hint!r} has the shape {type_}, which is not fully known; "
                    "give its shape when importing the model"
                )
            name = self._unique(param.name_hint if len(types) == 1 else f"{param.name_hint}_{i}")
            self.nodes.append(GraphNode("null", name, (type_,), device=self._device_of(param)))
            entries.append(Entry(len(self.nodes) - 1))
        return entries

    def _unique(self, name: str) -> str:
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        return name if count == 0 else self._unique(f"{name}{count}")

    def _buffers(self) -> Buffers:
        """Assign each tensor to a buffer."""
        buffers = Buffers()
        for index, node in enumerate(self.nodes):
            if node.view is not None:
                self._place_view(index, node, buffers)
            elif node.alias:
                buffers.view(Entry(index), node.inputs[0])
            elif not node.in_place:
                for i, type_ in enumerate(node.types):
                    buffers.add(Entry(index, i), tensor_bytes(type_), fixed=node.op == "null" or node.once)
            if own := self._own_bytes(node):
                buffers.add(_own_memory(index, node), own)
        return buffers

    def _own_bytes(self, node: GraphNode) -> int:
        """Return the bytes in an arena that the kernel of a node takes for itself."""
        return self._arenas.own.get(node.attrs["func_name"], 0) if node.op != "null" and not node.alias else 0

    def _place_view(self, index: int, node: GraphNode, buffers: Buffers) -> None:
        assert node.view is not None
        offsets: Sequence[int] = OFFSETS.of(node.view)
        if VIEW.of(node.view) == "cut":
            for i, offset in enumerate(offsets):
                buffers.view(Entry(index, i), node.inputs[0], offset)
            return
        parts = [(e, at, tensor_bytes(self._type_of(e))) for e, at in zip(node.inputs, offsets, strict=True)]
        copies = [i for i, entry in enumerate(node.inputs) if self.nodes[entry.node].in_place]
        buffers.join(Entry(index), parts, keep=copies)
        for i in copies:
            buffers.place(parts[i][0], Entry(index), *parts[i][1:])

    def _type_of(self, entry: Entry) -> TensorType:
        return self.nodes[entry.node].types[entry.index]

    def _planned(self, heads: Sequence[Entry], buffers: Buffers) -> StoragePlan:
        """Plan the storage of each entry."""
        lifetimes = self._lifetimes(heads, buffers)
        entries = [Entry(step, i) for step, node in enumerate(self.nodes) for i in range(len(node.types))]
        if not self._use_offsets:
            return self._in_storages(entries, lifetimes, buffers)
        own = {i: _own_memory(i, node) for i, node in enumerate(self.nodes) if self._own_bytes(node)}
        places: list[tuple[Any, int]] = [buffers.find(e) for e in (*entries, *own.values())]
        roots = list(dict.fromkeys(root for root, _ in places))
        start: dict[Any, int] = {}
        arena_of: dict[Any, tuple[int, int]] = {}  # device and number
        sizes: dict[int, list[int]] = {}
        for device in self._all_devices():
            shared = [r for r in roots if not buffers.is_fixed(r) and self.nodes[r.node].device == device]
            lives = [[Placed(o.start, lifetimes[o.tensor]) for o in buffers.owners[root]] for root in shared]
            plan = plan_arena(lives, self._arenas.alignment, self._arenas.limits)
            start |= zip(shared, plan.starts, strict=True)
            arena_of |= {root: (device, place) for root, place in zip(shared, plan.places, strict=True)}
            sizes[device] = plan.sizes
        names = [arena_of.get(root, root) for root, _ in places]
        number = {name: i for i, name in enumerate(dict.fromkeys(names))}
        storage = [number[name] for name in names]
        offsets = [start.get(root, 0) + at for root, at in places]
        arenas = {number[name]: Arena(name[1], sizes[name[0]][name[1]]) for name in dict.fromkeys(arena_of.values())}
        count = len(entries)
        at = dict(zip(own, zip(storage[count:], offsets[count:], strict=True), strict=True))
        return StoragePlan(storage[:count], offsets[:count], {d: sum(s) for d, s in sizes.items()}, arenas, at)

    def _in_storages(self, entries: Sequence[Entry], lifetimes: dict[Entry, Lifetime], buffers: Buffers) -> StoragePlan:
        """Plan storage without offsets: every entry is at the beginning of its storage."""
        storage: dict[Any, tuple[int, int]] = {}  # by device
        nbytes: dict[int, int] = {}
        for device in self._all_devices():
            owners = [e for e in entries if e in lifetimes and self.nodes[e.node].device == device]
            plan = plan_storage([lifetimes[e] for e in owners])
            storage |= {e: (device, number) for e, number in zip(owners, plan.storage, strict=True)}
            arguments = {storage[e][1] for e in owners if lifetimes[e].dedicated}
            nbytes[device] = sum(size for i, size in enumerate(plan.sizes) if i not in arguments)
        places = [storage[buffers.find(e)[0]] for e in entries]
        number = {place: i for i, place in enumerate(dict.fromkeys(places))}
        return StoragePlan([number[place] for place in places], None, nbytes)

    def _all_devices(self) -> list[int]:
        return list(dict.fromkeys(node.device for node in self.nodes))

    def _lifetimes(self, heads: Sequence[Entry], buffers: Buffers) -> dict[Entry, Lifetime]:
        """Return the lifetime of each tensor that owns memory: from its kernel to the last use of any tensor in
        that memory.
        """
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


def _own_memory(index: int, node: GraphNode) -> Entry:
    """Return what stands for the memory that a node's kernel takes for itself: an entry behind those of its results."""
    return Entry(index, len(node.types))


def _is_lowered(callee: BaseFunc) -> bool:
    """Return whether a function is a kernel, a view or an external function."""
    return isinstance(callee, PrimFunc) or is_closed(callee)


def _marked(call: Call, mark: FunctionAttribute[int]) -> bool:
    return isinstance(call.attrs, DictAttrs) and mark.key in call.attrs


def _op_attrs(func_name: str, num_inputs: int, num_outputs: int) -> dict[str, str]:
    return {
        "num_outputs": str(num_outputs),
        "num_inputs": str(num_inputs),
        "flatten_data": "0",
        "func_name": func_name,
    }
