"""Memory over time, of graphs written by hand."""

from __future__ import annotations

from typing import Any

from tilewright.report.memory import Tenancy, peak, tenancies


def graph(
    storage: list[int], offsets: list[int] | None, sizes: list[int], once: tuple[int, ...] = ()
) -> dict[str, Any]:
    """An input and a chain of kernels behind it; tensors of ``sizes`` bytes."""
    nodes: list[dict[str, Any]] = [{"op": "null", "name": "x", "inputs": []}]
    for i in range(1, len(sizes)):
        attrs = {"func_name": f"k{i}"} | ({"run_once": "1"} if i in once else {})
        nodes.append({"op": "tvm_op", "name": f"k{i}", "attrs": attrs, "inputs": [[i - 1, 0, 0]]})
    attributes: dict[str, Any] = {
        "storage_id": ["list_int", storage], "shape": ["list_shape", [[n] for n in sizes]],
        "dltype": ["list_str", ["int8"] * len(sizes)],
    }  # fmt: skip
    if offsets is not None:
        attributes["storage_offset"] = ["list_int64", offsets]
    rows = list(range(len(sizes) + 1))
    return {
        "nodes": nodes, "arg_nodes": [0], "heads": [[len(sizes) - 1, 0, 0]], "attrs": attributes, "node_row_ptr": rows,
    }  # fmt: skip


def test_tensors_of_an_arena_live_until_their_last_use() -> None:
    found = tenancies(graph([0, 1, 1, 1], [0, 0, 64, 0], [8, 16, 32, 8]))
    assert found == [Tenancy("k1", 1, 2, 0, 16, 1), Tenancy("k2", 2, 3, 64, 32, 1), Tenancy("k3", 3, 4, 0, 8, 1)]
    assert peak(found) == (48, 2)


def test_a_result_in_its_arguments_memory_is_one_storage() -> None:
    assert tenancies(graph([0, 1, 1], [0, 0, 0], [8, 16, 16])) == [Tenancy("k1", 1, 3, 0, 16, 1)]


def test_storages_without_offsets_lie_one_behind_the_other() -> None:
    found = tenancies(graph([0, 1, 2], None, [8, 16, 32]))
    assert [(t.offset, t.nbytes) for t in found] == [(0, 16), (16, 32)]


def test_what_is_computed_once_is_there_all_the_time() -> None:
    found = tenancies(graph([0, 1, 2], None, [8, 16, 32], once=(1,)))
    assert [(t.name, t.first, t.last) for t in found] == [("k1", 0, 3), ("k2", 2, 3)]


def test_a_graph_without_kernels_takes_nothing() -> None:
    assert tenancies(graph([0], None, [8])) == [] and peak([]) == (0, 0)
