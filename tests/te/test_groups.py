"""Groups of stages, and what a schedule offers under TVM's names: ``InferBound``, ``ScheduleOps``."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from tests.te.support import compute

from tilewright import te, tir
from tilewright.ir.errors import TilewrightError
from tilewright.te.schedule import Fuse, InferBound, ScheduleOps
from tilewright.te.schedule.stage import AttachType


def chain(length: int, rows: int = 5, columns: int = 7) -> list[te.Tensor]:
    tensors = [te.placeholder((rows, columns), name="A")]
    for step in range(length):
        last = tensors[-1]
        tensors.append(te.compute(last.shape, lambda i, j, t=last, n=step: t[i, j] * (n + 2.0), name=f"B{step}"))
    return tensors


def test_a_group_is_computed_at_a_loop_as_one() -> None:
    a, b0, b1, b2 = chain(3)
    s = te.create_schedule(b2.op)
    group = s.create_group(outputs=b1, inputs=b0, include_inputs=True)
    group.compute_at(s[b2], b2.op.axis[0])
    assert s[b0].group is group and s[b1].group is group and group.num_child_stages == 2
    bounds = InferBound(s)
    assert bounds[b0.op.axis[0]].extent == 1 and bounds[b1.op.axis[0]].extent == 1
    assert bounds[b0.op.axis[1]].extent == 7
    data = np.random.default_rng(0).standard_normal((5, 7)).astype("float32")
    np.testing.assert_allclose(compute(s, [a, b2], [data], [(5, 7)])[0], data * 24, rtol=1e-6)


def test_a_stage_in_a_group_may_be_computed_at_another_of_the_group() -> None:
    a, b0, b1, b2 = chain(3)
    s = te.create_schedule(b2.op)
    group = s.create_group(outputs=b1, inputs=b0, include_inputs=True)
    group.compute_at(s[b2], b2.op.axis[0])
    s[b0].compute_at(s[b1], b1.op.axis[1])
    assert InferBound(s)[b0.op.axis[1]].extent == 1
    data = np.ones((5, 7), "float32")
    np.testing.assert_allclose(compute(s, [a, b2], [data], [(5, 7)])[0], data * 24)


def test_groups_contain_one_another() -> None:
    _, b0, b1, b2 = chain(3)
    s = te.create_schedule(b2.op)
    inner = s.create_group(outputs=b1, inputs=b0)
    outer = s.create_group(outputs=b1, inputs=b0, include_inputs=True)
    assert s[b1].group is inner and inner.group is outer and s[b0].group is outer
    assert outer.num_child_stages == 2 and inner.num_child_stages == 1
    assert set(s.groups) == {inner, outer}
    copy = s.copy()
    assert copy[b1].group is copy.groups[0] and copy.groups[0].group is copy.groups[1]


def test_a_stage_cannot_be_computed_outside_of_its_group() -> None:
    _, b0, b1, b2 = chain(3)
    s = te.create_schedule(b2.op)
    s.create_group(outputs=b1, inputs=b0, include_inputs=True)
    with pytest.raises(TilewrightError, match="outside the group"):
        s[b0].compute_at(s[b2], b2.op.axis[0])


def test_a_group_cannot_cut_another_one() -> None:
    _, b0, b1, b2, b3 = chain(4)
    s = te.create_schedule(b3.op)
    s.create_group(outputs=b1, inputs=b0, include_inputs=True)
    with pytest.raises(TilewrightError, match="another group has operations inside and outside"):
        s.create_group(outputs=b2, inputs=b1, include_inputs=True)


def test_what_a_scan_s_beginning_reads_too_is_not_computed_in_each_step() -> None:
    x = te.compute((4, 3), lambda i, j: (i + j).astype("float32"), name="x")
    state = te.placeholder((4, 3), name="S")
    init = te.compute((1, 3), lambda _, i: x[0, i], name="init")
    update = te.compute((4, 3), lambda t, i: state[t - 1, i] + x[t, i], name="update")
    result = te.scan(init, update, state)
    s = te.create_schedule(result.op)
    assert s[x].group is None and s[update].group is not None
    step = np.add.outer(np.arange(4), np.arange(3)).astype("float32")
    np.testing.assert_array_equal(compute(s, [result], [], [(4, 3)])[0], step.cumsum(0))


def test_schedule_ops_realizes_what_is_computed() -> None:
    _, _, b1 = chain(2)
    s = te.create_schedule(b1.op)
    stmt = ScheduleOps(s, InferBound(s))
    found: list[str] = []
    tir.post_order_visit(stmt, lambda n: found.append(n.buffer.name) if isinstance(n, tir.BufferRealize) else None)
    assert sorted(found) == ["B0", "B1"]


@pytest.mark.parametrize(("keep", "loops"), [(False, 0), (True, 1)])
def test_schedule_ops_keeps_loops_that_run_once_on_demand(keep: bool, loops: int) -> None:
    a = te.placeholder((1,), name="A")
    s = te.create_schedule(te.compute((1,), lambda i: a[i] + 1.0, name="B").op)
    found: list[tir.For] = []
    stmt = ScheduleOps(s, None, debug_keep_trivial_loop=keep)
    tir.post_order_visit(stmt, lambda n: found.append(n) if isinstance(n, tir.For) else None)
    assert len(found) == loops


def test_relations_pragmas_and_places_can_be_asked_for() -> None:
    _, b0, b1 = chain(2)
    s = te.create_schedule(b1.op)
    fused = s[b1].fuse(*b1.op.axis)
    s[b1].pragma(fused, "mark", 3)
    s[b1].unroll(fused)
    assert any(isinstance(r, Fuse) for r in s[b1].relations)
    assert [k.value for k in s[b1].iter_var_attrs[fused].pragma_keys] == ["mark"]
    assert s[b1].iter_var_attrs[fused].iter_type == te.schedule.IterVar.Unrolled
    assert s[b0].attach_type == AttachType.ROOT == 1
    s[b0].compute_inline()
    assert s[b0].attach_type == AttachType.INLINE == 2


def test_the_only_element_of_a_dimension_is_broadcast() -> None:
    a, b = te.placeholder((1,), name="A"), te.placeholder((3, 4), name="B")
    c = te.compute((3, 4), lambda i, j: a[0] * b[i, j], name="C")
    s = te.create_schedule(te.compute((3, 4), lambda i, j: c[i, j] + 1.0, name="D").op)
    te.schedule.AutoInlineBroadcast(s)
    assert s[c].attach_type is AttachType.INLINE


def test_a_reducer_and_a_reduction_s_end_may_depend_on_the_element() -> None:
    a = te.placeholder((6,), name="A", dtype="int32")

    def element(n: tir.Var) -> tir.PrimExpr:
        k = te.reduce_axis((0, n + 1), "k")
        largest = te.comm_reducer(lambda x, y: te.max(x, y) + 0 * n, lambda dtype: n * 0 - 100, name="largest")
        return largest(a[k], axis=k)

    b = te.compute((6,), element, name="B")
    s = te.create_schedule(b.op)
    s.cache_write(b, "local")
    data = np.array([-3, -7, 2, -1, 5, 0], "int32")
    np.testing.assert_array_equal(compute(s, [a, b], [data], [(6,)])[0], np.maximum.accumulate(data))


def test_rfactor_keeps_the_axes_that_are_left() -> None:
    a = te.placeholder((4, 6, 8), name="A")
    k1, k2 = te.reduce_axis((0, 6), "k1"), te.reduce_axis((0, 8), "k2")
    b = te.compute((4,), lambda i: te.sum(a[i, k1, k2], axis=[k1, k2]), name="B")
    s = te.create_schedule(b.op)
    partial = s.rfactor(b, k1)
    assert partial.op.body[0].axis == (k2,)
    data = np.random.default_rng(0).integers(-9, 9, (4, 6, 8)).astype("float32")
    np.testing.assert_array_equal(compute(s, [a, b], [data], [(4,)])[0], data.sum((1, 2)))


def test_a_scalar_may_stand_left_of_a_tensor() -> None:
    n, a = te.var("n"), te.placeholder((3,), name="A", dtype="int32")
    for result in (n + a, n - a, n * a):
        assert isinstance(result, te.Tensor)
    with pytest.raises(TypeError, match="cannot use a dict"):
        n * {}  # type: ignore[operator]


def test_a_schedule_can_be_pickled() -> None:
    a = te.placeholder((6, 8), name="A")
    k = te.reduce_axis((0, 8), "k")
    b = te.compute((6,), lambda i: te.sum(te.exp(a[i, k]), axis=k), name="B")
    s = te.create_schedule(b.op)
    outer, _ = s[b].split(b.op.axis[0], 4)
    s[b].parallel(outer)
    again = pickle.loads(pickle.dumps(s))
    (op,) = again.outputs
    a_again, b_again = op.input_tensors[0], op.output(0)
    assert b_again is not b and again[b_again].op is op and str(op.body) == str(b.op.body)
    data = np.random.default_rng(0).standard_normal((6, 8)).astype("float32")
    first = compute(s, [a, b], [data], [(6,)])[0]
    np.testing.assert_array_equal(compute(again, [a_again, b_again], [data], [(6,)])[0], first)
