"""The inputs that a compiled graph reads, and where each of its outputs comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from tilewright.relay.analysis import free_vars
from tilewright.relay.expr import Function, Tuple, TupleGetItem
from tilewright.relay.frontend.torch.graph import function_of


@dataclass(frozen=True)
class Output:
    """The source of one output.

    Attributes:
        kind: "value" (always the same), "input" (an input as it is), "computed" (a tensor), or "number" (the number in
            a computed tensor).
        value: the value; or the place of the input, or of the computed tensor.
        order: of a tensor whose elements lie in another order than its dimensions', the dimensions by their strides.
    """

    kind: str
    value: Any
    order: tuple[int, ...] | None = None


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
    results = graph.graph_copy(gm.graph, copies)
    originals = gm.graph.find_nodes(op="output")[0].args[0]
    originals = originals if isinstance(originals, (list, tuple)) else [originals]
    copied = results if isinstance(results, (list, tuple)) else [results]
    inputs = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
    places = {node: i for i, node in enumerate(n for n in gm.graph.nodes if n.op == "placeholder")}
    computed: dict[fx.Node, int] = {}
    outputs = [_output(old, new, places, computed, graph) for old, new in zip(originals, copied, strict=True)]
    stated = [node.meta.get("val") for node in computed]
    graph.output(tuple(computed))
    graph.eliminate_dead_code()
    known = {name: tensor for name, tensor in constants.items() if name in inputs}
    fakes = [value if isinstance(value, torch.Tensor) else None for value in stated]
    return Plan(fx.GraphModule(gm, graph), inputs, known, outputs, fakes)


def _output(old: Any, new: Any, places: Mapping[fx.Node, int], computed: dict[fx.Node, int], graph: fx.Graph) -> Output:
    if not isinstance(old, fx.Node):
        return Output("value", old)
    if old in places:
        return Output("input", places[old])
    value = old.meta.get("val")
    if not isinstance(value, torch.Tensor):
        if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return Output("value", value)
        return Output("number", computed.setdefault(new, len(computed)))
    order = order_of_strides(value)
    if order is None:
        return Output("computed", computed.setdefault(new, len(computed)))
    if "in_order" not in new.meta:
        moved = graph.call_function(torch.ops.aten.permute.default, (new, list(order)))
        moved.meta["val"] = value.permute(order)
        new.meta["in_order"] = moved
    moved = new.meta["in_order"]
    return Output("computed", computed.setdefault(moved, len(computed)), order)


def order_of_strides(value: torch.Tensor) -> tuple[int, ...] | None:
    """Return the dimensions of a dense tensor from the largest stride to the smallest; None where that is their order.

    Also None for a tensor with gaps or symbolic sizes: a copy in order of its dimensions stands for it then.
    """
    if any(not isinstance(n, int) for n in (*value.shape, *value.stride())) or value.is_contiguous():
        return None
    order = tuple(sorted(range(value.dim()), key=lambda i: (-value.stride(i), -value.shape[i])))
    return order if value.permute(order).is_contiguous() else None


def back(order: Sequence[int]) -> tuple[int, ...]:
    """Return the permutation that undoes ``order``."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))
