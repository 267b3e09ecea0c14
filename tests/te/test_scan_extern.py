"""Scans and hand-written stages."""

from __future__ import annotations

import numpy as np
import pytest
from tests.te.support import compute, loops, text

from tilewright import te, tir
from tilewright.ir.errors import TilewrightError
from tilewright.te.lower import schedule_to_primfunc
from tilewright.te.schedule import Schedule

X = np.random.default_rng(0).integers(-4, 5, (7, 5)).astype("float32")


def recurrence() -> tuple[te.Tensor, te.Tensor, te.Tensor, te.Tensor, Schedule]:
    """``state[t] = 2 * state[t - 1] + x[t]``, in two stages."""
    steps = te.var("steps")
    x = te.placeholder((steps, 5), name="X")
    state = te.placeholder((steps, 5), name="state")
    init = te.compute((1, 5), lambda _, i: x[0, i], name="init")
    twice = te.compute((steps, 5), lambda t, i: state[t - 1, i] * 2.0, name="twice")
    update = te.compute((steps, 5), lambda t, i: twice[t, i] + x[t, i], name="update")
    out = te.scan(init, update, state, inputs=[x], name="S")
    return x, twice, update, out, te.create_schedule(out.op)


def expected() -> np.ndarray:
    rows = [X[0]]
    for t in range(1, 7):
        rows.append(rows[-1] * 2 + X[t])
    return np.array(rows)


def test_scan_stores_in_the_states_memory() -> None:
    x, twice, _, out, s = recurrence()
    s[twice].compute_inline()
    assert loops(s, [x, out]) == text("""
        for (i: int32, 0, 5) {
          S[0, i] = X[0, i]
        }
        for (S.idx: int32, 0, (steps - 1)) {
          for (i_1: int32, 0, 5) {
            S[(S.idx + 1), i_1] = ((S[((S.idx + 1) - 1), i_1]*2f32) + X[(S.idx + 1), i_1])
          }
        }
    """)


@pytest.mark.parametrize("place", ["root", "inline", "at", "split"])
def test_scan_of_two_stages(place: str) -> None:
    x, twice, update, out, s = recurrence()
    if place == "inline":
        s[twice].compute_inline()
    elif place == "at":
        s[twice].compute_at(s[update], update.op.axis[1])
    elif place == "split":
        s[update].split(update.op.axis[1], factor=2)
        s[twice].vectorize(twice.op.axis[1])
    np.testing.assert_array_equal(compute(s, [x, out], [X], [(7, 5)])[0], expected())


def test_scan_with_two_states() -> None:
    a, b = te.placeholder((7, 5), name="a"), te.placeholder((7, 5), name="b")
    init = [te.compute((1, 5), lambda t, i: i.astype("float32")) for _ in range(2)]
    update = [
        te.compute((7, 5), lambda t, i: a[t - 1, i] + b[t - 1, i]),
        te.compute((7, 5), lambda t, i: b[t - 1, i] + 1.0),
    ]
    first, second = te.scan(init, update, [a, b])
    found = compute(te.create_schedule(first.op), [first, second], [], [(7, 5), (7, 5)])
    rows = [(np.arange(5.0), np.arange(5.0))]
    for _ in range(6):
        rows.append((rows[-1][0] + rows[-1][1], rows[-1][1] + 1))
    np.testing.assert_array_equal(found[0], [r[0] for r in rows])
    np.testing.assert_array_equal(found[1], [r[1] for r in rows])


def test_scan_update_cannot_be_moved() -> None:
    _, _, update, out, s = recurrence()
    with pytest.raises(TilewrightError, match="update of a scan"):
        s[update].compute_at(s[out], out.op.scan_axis)


def test_extern_gets_the_tensors_own_buffers() -> None:
    x = te.placeholder((7, 5), name="X")
    before = te.compute((7, 5), lambda i, j: x[i, j] + 1.0, name="before")
    sums = te.extern((7,), [before], lambda ins, outs: tir.call_packed("row_sum", ins[0], outs[0]), name="sums")
    after = te.compute((7,), lambda i: sums[i] * 2.0, name="after")

    def row_sum(source: np.ndarray, target: np.ndarray) -> None:
        target[:] = source.sum(1)

    s = te.create_schedule(after.op)
    found = compute(s, [x, after], [X], [(7,)], externs={"row_sum": row_sum})
    np.testing.assert_array_equal(found[0], (X + 1).sum(1) * 2)


def test_extern_written_with_loads_and_stores() -> None:
    x = te.placeholder((7, 5), name="X")

    def emit(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> tir.Stmt:
        i = te.var("i")
        body = outs[0].vstore([i], ins[0].vload([i, 2]) - 1.0)
        return tir.For(i, 0, 7, tir.ForKind.SERIAL, body)

    column = te.extern((7,), [x], emit, name="column")
    found = compute(te.create_schedule(column.op), [x, column], [X], [(7,)])
    np.testing.assert_array_equal(found[0], X[:, 2] - 1)


def test_extern_with_two_outputs() -> None:
    x = te.placeholder((7, 5), name="X")
    low, high = te.extern(
        [(7,), (7,)], [x], lambda ins, outs: tir.call_packed("extremes", ins[0], *outs), dtype=["float32"] * 2
    )

    def extremes(source: np.ndarray, lowest: np.ndarray, highest: np.ndarray) -> None:
        lowest[:], highest[:] = source.min(1), source.max(1)

    spread = te.compute((7,), lambda i: high[i] - low[i])
    s = te.create_schedule(spread.op)
    found = compute(s, [x, spread], [X], [(7,)], externs={"extremes": extremes})
    np.testing.assert_array_equal(found[0], X.max(1) - X.min(1))


def test_scan_inside_threads() -> None:
    x, twice, _, out, s = recurrence()
    s[twice].compute_inline()
    s[out].env_threads(te.thread_axis((0, 5), "threadIdx.x"))
    assert loops(s, [x, out]).startswith('attr [IterVar(threadIdx.x: int32, [0:5], "ThreadIndex", "threadIdx.x")]')
    with pytest.raises(TilewrightError, match=r"threadIdx\.y has no extent"):
        s[out].env_threads(te.thread_axis("threadIdx.y"))


def test_extern_from_a_function() -> None:
    a = te.placeholder((7, 5), name="A")
    b = te.compute((7, 5), lambda i, j: a[i, j] * 3.0, name="B")
    func = schedule_to_primfunc(te.create_schedule(b.op), [a, b])
    x = te.placeholder((7, 5), name="X")
    before = te.compute((7, 5), lambda i, j: x[i, j] + 1.0, name="before")
    after = te.extern_primfunc([before], func, name="after")
    found = compute(te.create_schedule(after.op), [x, after], [X], [(7, 5)])
    np.testing.assert_array_equal(found[0], (X + 1) * 3)
