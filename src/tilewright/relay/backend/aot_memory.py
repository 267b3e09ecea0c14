"""Which layers of an ahead-of-time program need most of its workspace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tilewright.ir.errors import UnsupportedError
from tilewright.relay.backend.graph_codegen import Graph, GraphNode
from tilewright.relay.data_flow import Entry
from tilewright.relay.op.views import tensor_bytes
from tilewright.runtime.executor.aot import AotLayout

SHOWN = 3


def crowded_layers(graph: Graph, kernel_bytes: Mapping[str, int]) -> list[tuple[int, str]]:
    """Return bytes of workspace that are in use while a layer runs, and its name, of the layers with most of them.

    Parameters
    ----------
    graph : nodes with planned storage
    kernel_bytes : by kernel the bytes that it takes for itself
    """
    entries, last = _arena(graph), _last_uses(graph)
    found = []
    for step, node in enumerate(graph.nodes):
        if node.op == "null" or node.alias:
            continue
        live = [(low, high) for entry, low, high in entries if entry.node <= step <= last.get(entry, entry.node)]
        nbytes = _union(live) + kernel_bytes.get(node.attrs["func_name"], 0)
        found.append((nbytes, _name(node)))
    return sorted(found, key=lambda item: -item[0])[:SHOWN]


def check_pools(layout: AotLayout, limits: Mapping[str, int | None], crowded: Sequence[tuple[int, str]]) -> None:
    """Raise UnsupportedError for a workspace whose parts are too small, with the layers that need most."""
    last = layout.pools[-1]
    limit = limits[last.name]
    if limit is not None and last.nbytes > limit:
        given = ", ".join(f"{name} {size}" for name, size in limits.items())
        layers = ", ".join(f"{name} ({nbytes} bytes)" for nbytes, name in crowded)
        raise UnsupportedError(
            f"the workspace does not fit into its parts ({given} bytes): {last.name} would need {last.nbytes}, "
            f"{last.nbytes - limit} more. The most have {layers}"
        )


def _arena(graph: Graph) -> list[tuple[Entry, int, int]]:
    """Return the tensors in the shared memory, with where each begins and ends."""
    rows, plan = graph.rows(), graph.storage
    arenas = plan.arenas
    found = []
    for index, node in enumerate(graph.nodes):
        for i, type_ in enumerate(node.types):
            row = rows[index] + i
            if plan.storage[row] in arenas and plan.offsets is not None:
                found.append((Entry(index, i), plan.offsets[row], plan.offsets[row] + tensor_bytes(type_)))
    return found


def _last_uses(graph: Graph) -> dict[Entry, int]:
    uses = {entry: step for step, node in enumerate(graph.nodes) for entry in node.inputs}
    return uses | dict.fromkeys(graph.heads, len(graph.nodes))


def _union(spans: Iterable[tuple[int, int]]) -> int:
    total = end = 0
    for low, high in sorted(spans):
        total += max(0, high - max(low, end))
        end = max(end, high)
    return total


def _name(node: GraphNode) -> str:
    return ", ".join(node.sources) or node.name
