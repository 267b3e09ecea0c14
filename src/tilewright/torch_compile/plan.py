"""The inputs that a compiled graph reads, and where each of its outputs comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._prims_common import is_contiguous_or_false

from tilewright.relay.analysis import free_vars
from tilewright.relay.expr import Function, Tuple, TupleGetItem
from tilewright.relay.frontend.torch.graph import function_of
from tilewright.relay.frontend.torch.strides import order_of_strides
from tilewright.torch_compile.aliases import Geometry, bases, geometry


@dataclass(frozen=True)
class Output:
    """The source of one output.

    Attributes:
        kind: "value" (always the same), "input" (an input as it is), "computed" (a tensor), "view" (of a computed
            tensor), or "number" (the number in a computed tensor).
        value: the value; or the place of the input, or of the computed tensor.
        order: of a tensor whose elements lie in another order than its dimensions', the dimensions by their strides.
        geometry: of a view, where it lies in the memory of the tensor.
    """

    kind: str
    value: Any
    order: tuple[int, ...] | None = None
    geometry: Geometry | None = None


@dataclass
class Plan:
    """A graph of what has to be computed.

    Attributes:
        graph: the graph, without outputs that are inputs or known.
        inputs: the names of its placeholders.
        constants: tensors for placeholders by name.
        outputs: of the original graph.
        computed: the fake tensors of what the graph computes; None for a number.
    """

    graph: fx.GraphModule
    inputs: list[str]
    constants: Mapping[str, torch.Tensor]
    outputs: list[Output]
    computed: list[torch.Tensor | None]

    def passed(self, *args: Any) -> list[Any]:
        """Return the outputs of a graph that computes nothing."""
        return [args[o.value] if o.kind == "input" else o.value for o in self.outputs]

    def convert(self) -> tuple[Function, dict[str, Any]]:
        """Return the Relay function of the graph, which reads its used inputs alone, and its parameters' arrays."""
        function, arrays, known = function_of(self.graph, self.constants)
        fields = iter(_fields(function.body, sum(k is None for k in known)))
        for place, value in enumerate(known):
            if value is not None:
                raise AssertionError(f"the output {place} is known while compiling: {value!r}")
        body = list(fields)
        used = set(free_vars(function.body))
        params = [p for p in function.params if p in used]
        return Function(params, body[0] if len(body) == 1 else Tuple(body)), arrays


def _fields(body: Any, count: int) -> list[Any]:
    if count == 1 and not isinstance(body, Tuple):
        return [body]
    return list(body.fields) if isinstance(body, Tuple) else [TupleGetItem(body, i) for i in range(count)]


def plan_of(gm: fx.GraphModule, constants: Mapping[str, torch.Tensor]) -> Plan:
    """Return the plan of a graph."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    graph.graph_copy(gm.graph, copies)
    results = gm.graph.find_nodes(op="output")[0].args[0]
    results = results if isinstance(results, (list, tuple)) else [results]
    places = [node for node in gm.graph.nodes if node.op == "placeholder"]
    inputs = [node.name for node in places]
    planner = _Planner(graph, copies, places, bases(gm.graph, results))
    outputs = [planner.output(result) for result in results]
    stated = [node.meta.get("val") for node in planner.computed]
    graph.output(tuple(planner.computed))
    graph.eliminate_dead_code()
    known = {name: tensor for name, tensor in constants.items() if name in inputs}
    fakes = [value if isinstance(value, torch.Tensor) else None for value in stated]
    return Plan(fx.GraphModule(gm, graph), inputs, known, outputs, fakes)


class _Planner:
    """Collects what a graph has to compute for its outputs."""

    def __init__(
        self, graph: fx.Graph, copies: Mapping[fx.Node, fx.Node], inputs: Sequence[fx.Node],
        viewed: Mapping[fx.Node, fx.Node],
    ) -> None:  # fmt: skip
        self._graph, self._copies, self._inputs, self._bases = graph, copies, inputs, viewed
        self._places = {node: i for i, node in enumerate(inputs)}
        self.computed: dict[fx.Node, int] = {}

    def output(self, node: Any) -> Output:
        """Return the source of an output."""
        if not isinstance(node, fx.Node):
            return Output("value", node)
        if node in self._places:
            return Output("input", self._places[node])
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                return Output("value", value)
            return Output("number", self._place(self._copies[node]))
        return self._view(node, value) or self._tensor(node, value)

    def _place(self, node: fx.Node) -> int:
        return self.computed.setdefault(node, len(self.computed))

    def _tensor(self, node: fx.Node, value: torch.Tensor) -> Output:
        copy, order = self._copies[node], order_of_strides(value)
        if order is None:
            return Output("computed", self._place(copy))
        if "in_order" not in copy.meta:
            moved = self._graph.call_function(torch.ops.aten.permute.default, (copy, list(order)))
            moved.meta["val"] = value.permute(order)
            copy.meta["in_order"] = moved
        return Output("computed", self._place(copy.meta["in_order"]), order)

    def _view(self, node: fx.Node, value: torch.Tensor) -> Output | None:
        """Return an output as a view; None of one that is not, or of a tensor that has gaps."""
        base = self._bases.get(node, node)
        whole = base.meta["val"]
        if base is node or whole.dtype != value.dtype:
            return None
        if order_of_strides(whole) is None and not is_contiguous_or_false(whole):
            return None
        where = geometry(value, self._inputs)
        return None if where is None else Output("view", self._tensor(base, whole).value, None, where)
