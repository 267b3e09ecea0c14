"""Which parts of a graph Tilewright computes, and which stay in PyTorch.

Operators without a converter stay, and those that could not be compiled. The rest are grouped into parts, as large as
the order of the graph allows.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from tilewright.relay.frontend.torch.complex_numbers import computes_complex
from tilewright.relay.frontend.torch.graph import unconverted

PREFIX = "tilewright_"

_aten = torch.ops.aten
_NO_WORK = {  # parts of these alone stay in PyTorch, where they move no data
    _aten.view, _aten.permute, _aten.t, _aten.transpose, _aten.unsqueeze, _aten.squeeze, _aten.expand, _aten.alias,
    _aten.detach, _aten.empty,
}  # fmt: skip


class _Support(OperatorSupportBase):
    def __init__(self, refused: Mapping[str, str]) -> None:
        self._refused = refused

    def is_node_supported(self, submodules: Any, node: torch.fx.Node) -> bool:
        """Return whether a node may be in a part."""
        return node.op == "call_function" and node.name not in self._refused


def refusals(gm: torch.fx.GraphModule) -> dict[str, str]:
    """Return the nodes without a converter, by name, with why they stay in PyTorch."""
    found = {node.name: "there is no converter" for node in unconverted(gm)}
    of_complex = [node for node in gm.graph.nodes if computes_complex(node)]
    # Parts take and return real numbers, so either all that is complex is in parts, or nothing.
    if any(node.op != "call_function" or node.name in found for node in of_complex):
        found |= {node.name: "complex numbers" for node in of_complex if node.op == "call_function"}
    for node in gm.graph.nodes:
        if node.op == "call_function" and _off_host(node):
            found.setdefault(node.name, "a tensor on another device than the CPU")
        if node.op == "call_function" and _draws(node):
            found.setdefault(node.name, "numbers of torch's generator")
    return found


def split(gm: torch.fx.GraphModule, refused: Mapping[str, str]) -> torch.fx.GraphModule:
    """Return the graph with calls of submodules named ``tilewright_N`` for its parts, which are graphs themselves."""
    support = _Support(_with_getitems(gm, refused))
    partitions = CapabilityBasedPartitioner(gm, support, allows_single_node_partition=True).propose_partitions()
    kept = [p for p in partitions if any(_works(node) for node in p.nodes)]
    from torch.fx.passes.utils.fuser_utils import fuse_by_partitions

    return fuse_by_partitions(gm, [p.nodes for p in kept], PREFIX, always_return_tuple=True)


def _works(node: torch.fx.Node) -> bool:
    return node.target is not operator.getitem and getattr(node.target, "overloadpacket", None) not in _NO_WORK


def _with_getitems(gm: torch.fx.GraphModule, refused: Mapping[str, str]) -> Mapping[str, str]:
    """Return refusals that hold for the selection of a refused operator's results too."""
    found = dict(refused)
    for node in gm.graph.nodes:
        if node.target is operator.getitem and node.args[0].name in found:
            found[node.name] = found[node.args[0].name]
    return found


def _values(node: torch.fx.Node) -> list[Any]:
    values = [node.meta.get("val")] + [source.meta.get("val") for source in node.all_input_nodes]
    return [leaf for value in values for leaf in (value if isinstance(value, (list, tuple)) else [value])]


def _draws(node: torch.fx.Node) -> bool:
    """Return whether an operator draws random numbers; attention does unless it drops nothing."""
    if not isinstance(node.target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    arguments = node.target._schema.arguments
    given = {a.name: a.default_value for a in arguments if a.has_default_value()}
    given |= dict(zip((a.name for a in arguments), node.args, strict=False)) | node.kwargs
    return bool(given.get("dropout_p", 1.0))


def _off_host(node: torch.fx.Node) -> bool:
    return any(isinstance(value, torch.Tensor) and value.device.type != "cpu" for value in _values(node))
