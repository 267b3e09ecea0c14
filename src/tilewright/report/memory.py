"""The memory of a graph over time: which tensor lies where from which kernel to which."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from tilewright.ir import dtype as dt


class Tenancy(NamedTuple):
    """A storage of intermediate tensors: bytes from ``offset``, from step ``first`` to step ``last`` (nodes of the graph)."""

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
            are one storage; those without offsets are laid one behind the other.
    """
    nodes, rows, attrs = graph["nodes"], graph["node_row_ptr"], graph["attrs"]
    storage, offsets = attrs["storage_id"][1], attrs.get("storage_offset", [None, None])[1]
    devices = attrs.get("device_index", [None, [1] * len(storage)])[1]
    given = {storage[rows[i]] for i in graph["arg_nodes"]}
    last = _last_uses(graph)
    current: dict[tuple[int, int], Tenancy] = {}
    found: list[Tenancy] = []
    made: dict[int, int] = {}  # offsets of storages that have none of their own
    total = 0
    for number, node in enumerate(nodes):
        for entry in range(rows[number], rows[number + 1]):
            if storage[entry] in given:
                continue
            nbytes = math.prod(attrs["shape"][1][entry]) * dt.nbytes(attrs["dltype"][1][entry])
            if offsets is None and storage[entry] not in made:
                made[storage[entry]], total = total, total + nbytes
            offset = made[storage[entry]] if offsets is None else offsets[entry]
            key, new = (storage[entry], offset), Tenancy(node["name"], number, last[entry], offset, nbytes, devices[entry])
            before = current.get(key)
            if before is not None and before.last >= number:  # one memory, such as that of a reshape and its argument
                new = before._replace(last=max(before.last, new.last), nbytes=max(before.nbytes, nbytes))
            elif before is not None:
                found.append(before)
            current[key] = new
    found += current.values()
    return sorted(found, key=lambda tenancy: (tenancy.first, tenancy.offset))


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
