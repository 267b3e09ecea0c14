"""Graphs of operations and recurrences, by TVM's names."""

from __future__ import annotations

import pytest

from tilewright import te, tir
from tilewright.te.schedule import (
    CreateAttachPath,
    CreateReadGraph,
    PostDFSOrder,
    ScanFixPointAnalysis,
    ScanGetBody,
)

N, M = 7, 5


def chain() -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    a = te.placeholder((N, M), name="a")
    b = te.compute((N, M), lambda i, j: a[i, j], name="b")
    return a, b, te.compute((N, M), lambda i, j: b[i, j] + a[i, j], name="c")


def test_a_read_graph_has_what_each_operation_reads() -> None:
    a, b, c = chain()
    assert CreateReadGraph([c.op]) == {c.op: [b, a], b.op: [a], a.op: []}


def test_operations_come_after_what_they_read() -> None:
    a, b, c = chain()
    assert PostDFSOrder([c.op], CreateReadGraph([c.op])) == [a.op, b.op, c.op]


def recurrence(update: object) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """Return a scan whose state is 4 times 7 by 7, its update and the tensor that the update reads beside the state."""
    x = te.compute((4, N, N), lambda t, i, j: tir.const(1.0), name="x")
    state = te.placeholder((4, N, N), name="state")
    init = te.compute((1, N, N), lambda t, i, j: x[0, i, j], name="init")
    step = te.compute((4, N, N), lambda t, i, j: update(x, state, t, i, j), name="step")  # type: ignore[operator]
    return te.scan(init, step, state), step, x


def test_the_body_of_a_scan_depends_on_its_state() -> None:
    scan, step, _ = recurrence(lambda x, state, t, i, j: x[t, j, i] + state[t - 1, i, j])
    assert ScanGetBody(scan.op) == [step.op, scan.op]


def test_paths_of_attached_stages_go_outwards() -> None:
    scan, step, x = recurrence(lambda x, state, t, i, j: x[t, j, i] + state[t - 1, i, j])
    schedule = te.create_schedule(scan.op)
    schedule[x].compute_at(schedule[step], step.op.axis[1])
    path = CreateAttachPath(schedule)
    assert path[step.op] == [scan.op.scan_axis]
    assert path[x.op] == [step.op.axis[1], step.op.axis[0], scan.op.scan_axis]


FIXED = {
    "the same place": (lambda x, state, t, i, j: x[t, j, i] + state[t - 1, i, j], (1, 1)),
    "transposed": (lambda x, state, t, i, j: state[t - 1, j, i], (0, 0)),
    "a column": (lambda x, state, t, i, j: state[t - 1, i, j] + state[t - 1, i, 3], (1, 0)),
    "the diagonal": (lambda x, state, t, i, j: state[t - 1, j, j], (0, 0)),
    "a neighbour": (lambda x, state, t, i, j: state[t - 1, i, tir.max(j - 1, 0)], (1, 0)),
}


@pytest.mark.parametrize("name", FIXED)
def test_axes_along_which_a_recurrence_hands_nothing_on(name: str) -> None:
    update, fixed = FIXED[name]
    scan, _, _ = recurrence(update)
    found = ScanFixPointAnalysis(scan.op)
    assert tuple(found[axis].value for axis in scan.op.spatial_axis_) == fixed


def test_a_state_that_is_transposed_twice_stays() -> None:
    state = te.placeholder((4, N, N), name="state")
    init = te.compute((1, N, N), lambda t, i, j: tir.const(0.0))
    turned = te.compute((4, N, N), lambda t, j, i: state[t - 1, i, j], name="turned")
    step = te.compute((4, N, N), lambda t, i, j: turned[t, j, i] + 1.0, name="step")
    found = ScanFixPointAnalysis(te.scan(init, step, state).op)
    assert [one.value for one in found.values()] == [1, 1]
