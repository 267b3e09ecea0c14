"""Graphs of operations and recurrences, by TVM's names: who reads what, loops around stages, bodies of scans."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from tilewright.ir.iter_var import IterVar
from tilewright.ir.memory import ProducerLoad
from tilewright.ir.prim_expr import IntImm
from tilewright.te.operation import ComputeOp, Operation, ScanOp
from tilewright.te.schedule.bounds import attach_path
from tilewright.te.schedule.schedule import Schedule
from tilewright.te.tensor import Tensor
from tilewright.tir.visitor import post_order_visit, uses_var

ReadGraph = dict[Operation, list[Tensor]]


def CreateReadGraph(ops: Iterable[Operation]) -> ReadGraph:
    """Return the tensors that each operation reads, for ``ops`` and all that they depend on."""
    graph: ReadGraph = {}
    stack = list(ops)
    while stack:
        op = stack.pop()
        if op not in graph:
            graph[op] = list(op.input_tensors)
            stack += [tensor.op for tensor in graph[op]]
    return graph


def PostDFSOrder(roots: Iterable[Operation], graph: Mapping[Operation, list[Tensor]]) -> list[Operation]:
    """Return the operations of a graph, each after those that it reads."""
    order: dict[Operation, None] = {}
    stack = [(op, False) for op in reversed(list(roots))]
    while stack:
        op, done = stack.pop()
        if done:
            order[op] = None
        elif op not in order:
            stack.append((op, True))
            stack += [(tensor.op, False) for tensor in reversed(graph[op])]
    return list(order)


def CreateAttachPath(schedule: Schedule) -> dict[Operation, list[IterVar]]:
    """Return the loops of other stages around each stage, innermost first, by operation."""
    return {stage.op: [axis for _, axis in attach_path(stage)] for stage in schedule.stages}


def ScanGetBody(scan: ScanOp) -> list[Operation]:
    """Return the operations of a recurrence that depend on its state, the scan itself at the end."""
    graph = CreateReadGraph(tensor.op for tensor in scan.update)
    states = {state.op for state in scan.state_placeholder}
    inside: dict[Operation, None] = {}
    for op in PostDFSOrder([tensor.op for tensor in scan.update], graph):
        if op not in states and any(tensor.op in states or tensor.op in inside for tensor in graph[op]):
            inside[op] = None
    return [*inside, scan]


def ScanFixPointAnalysis(scan: ScanOp) -> dict[IterVar, IntImm]:
    """Return 1 for each spatial axis along which every element depends on the state's element at its index alone.

    Such an axis can be outside of the recurrence: no part of the state is handed on along it. Other axes have 0.
    """
    found = {}
    for number in range(len(scan.update)):
        for dimension, axis in enumerate(scan.state_axes(number), 1):
            found[axis] = IntImm("int32", int(_stays(scan, number, dimension)))
    return found


def _stays(scan: ScanOp, number: int, dimension: int) -> bool:
    """Return whether ``dimension`` of a state reaches the same dimension of states, and no other."""
    body, updates = set(ScanGetBody(scan)), dict(zip(scan.state_placeholder, scan.update, strict=True))
    work = [(scan.update[number], dimension)]
    reached: dict[Tensor, int] = {}
    while work:
        tensor, place = work.pop()
        if tensor in reached:
            if reached[tensor] != place:
                return False
            continue
        reached[tensor] = place
        if tensor in updates:
            if place != dimension:
                return False
            work.append((updates[tensor], place))
        elif not isinstance(tensor.op, ComputeOp):
            return False
        else:
            places = _places(tensor.op, place, body, updates)
            if places is None:
                return False
            work += places
    return True


def _places(
    op: ComputeOp, axis: int, body: set[Operation], updates: Container[Tensor]
) -> list[tuple[Tensor, int]] | None:
    """Return at which dimension of which tensors of the recurrence ``op`` uses an axis as it is.

    None where it computes with the axis, or reads such a tensor without it.
    """
    var, found = op.axis[axis].var, []
    for load in _loads(op):
        if load.producer not in updates and load.producer.op not in body:
            continue
        places = [k for k, index in enumerate(load.indices) if uses_var(index, var)]
        if not places or any(load.indices[k] is not var for k in places):
            return None
        found += [(load.producer, k) for k in places]
    return found


def _loads(op: ComputeOp) -> list[ProducerLoad]:
    loads: dict[ProducerLoad, None] = {}

    def note(node: object) -> None:
        if isinstance(node, ProducerLoad):
            loads[node] = None

    for value in op.body:
        post_order_visit(value, note)
    return list(loads)


__all__ = ["CreateAttachPath", "CreateReadGraph", "PostDFSOrder", "ScanFixPointAnalysis", "ScanGetBody"]
