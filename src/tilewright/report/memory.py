"""The memory of a graph over time: which tensor lies where from which kernel to which."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tilewright.ir import dtype as dt


class Tenancy(NamedTuple):
    """A tensor's memory: ``nbytes`` from ``offset``, from node ``first`` of the graph to node ``last``."""

    name: str
    first: int
    last: int
    offset: int
    nbytes: int
    device: int


def tenancies(graph: Mapping[str, Any]) -> list[Tenancy]:
    """Return the storages of the tensors that a graph computes, in the order in which they are first written.

    Args:
        graph: the graph JSON of the executor. Tensors that share memory, as the result of a reshape with its argument,
            are one storage. What one run computes for all runs is there from beginning to end. Arenas, and tensors
            outside of them, lie one behind the other.
    """
    nodes, rows, attrs = graph["nodes"], graph["node_row_ptr"], graph["attrs"]
    storage, offsets = attrs["storage_id"][1], attrs.get("storage_offset", [None, None])[1] or [0] * rows[-1]
    devices = attrs.get("device_index", [None, [1] * rows[-1]])[1]
    last, sizes = _last_uses(graph), _storage_sizes(graph, offsets)
    starts = dict(zip(sizes, itertools.accumulate(sizes.values(), initial=0), strict=False))
    current: dict[tuple[int, int], Tenancy] = {}
    found: list[Tenancy] = []
    for number, node in enumerate(nodes):
        once = "run_once" in node.get("attrs", ())
        for entry in range(rows[number], rows[number + 1]):
            if storage[entry] not in sizes:
                continue
            span = (0, len(nodes)) if once else (number, last[entry])
            at = starts[storage[entry]] + offsets[entry]
            new = Tenancy(node["name"], *span, at, _nbytes(attrs, entry), devices[entry])
            before = current.get((storage[entry], offsets[entry]))
            if before is not None and before.last >= number:  # one memory, such as that of a reshape and its argument
                new = before._replace(last=max(before.last, new.last), nbytes=max(before.nbytes, new.nbytes))
            elif before is not None:
                found.append(before)
            current[storage[entry], offsets[entry]] = new
    return sorted([*found, *current.values()], key=lambda tenancy: (tenancy.first, tenancy.offset))


def _nbytes(attrs: Mapping[str, Any], entry: int) -> int:
    return math.prod(attrs["shape"][1][entry]) * dt.nbytes(attrs["dltype"][1][entry])


def _storage_sizes(graph: Mapping[str, Any], offsets: Sequence[int]) -> dict[int, int]:
    """Return the bytes of each storage that is no input or parameter."""
    attrs, rows = graph["attrs"], graph["node_row_ptr"]
    given = {attrs["storage_id"][1][rows[i]] for i in graph["arg_nodes"]}
    sizes: dict[int, int] = {}
    for entry, storage in enumerate(attrs["storage_id"][1]):
        if storage not in given:
            sizes[storage] = max(sizes.get(storage, 0), offsets[entry] + _nbytes(attrs, entry))
    return sizes


def _last_uses(graph: Mapping[str, Any]) -> list[int]:
    """Return the last node that reads each entry; for outputs of the graph the node behind the last."""
    rows = graph["node_row_ptr"]
    last = [number for number in range(len(graph["nodes"])) for _ in range(rows[number], rows[number + 1])]
    for number, node in enumerate(graph["nodes"]):
        for source, index, *_ in node.get("inputs", ()):
            last[rows[source] + index] = max(last[rows[source] + index], number)
    for source, index, *_ in graph["heads"]:
        last[rows[source] + index] = len(graph["nodes"])
    return last


def peak(tenants: list[Tenancy]) -> tuple[int, int]:
    """Return the most bytes that are in use at one step, and that step."""
    change: dict[int, int] = {}
    for tenant in tenants:
        change[tenant.first] = change.get(tenant.first, 0) + tenant.nbytes
        change[tenant.last + 1] = change.get(tenant.last + 1, 0) - tenant.nbytes
    most, at, now = 0, 0, 0
    for step in sorted(change):
        now += change[step]
        if now > most:
            most, at = now, step
    return most, at
