"""Loops by strides: where axes are cut, and which parts are joined."""

from __future__ import annotations

import pytest

from tilewright import te, topi
from tilewright.topi.cpu.accesses import Reads
from tilewright.topi.cpu.strides import Nest, strided_loops

pytestmark = pytest.mark.usefixtures("processor")


def _nest(out: te.Tensor) -> Nest:
    nest = strided_loops(list(out.op.axis), Reads.of(out.op).reads)
    assert nest is not None
    return nest


def _extents(nest: Nest) -> list[int]:
    return [loop.extent for loop in nest.loops]


def test_rows_and_columns_are_one_loop() -> None:
    x = te.placeholder((2, 4, 7, 5, 16), name="x")
    nest = _nest(topi.layout_transform(x, "NCHW16c", "NCHW"))
    assert nest.cuts == ((2,), (4, 16), (7,), (5,))
    assert [(loop.extent, loop.strides) for loop in nest.loops] == [(8, (560,)), (16, (1,)), (35, (16,))]


def test_divisions_that_remain_depend_on_few_loops() -> None:
    x = te.placeholder((1, 6, 7, 5, 16), name="x")
    nest = _nest(topi.layout_transform(x, "NCHW16c", "NCHW24c"))
    assert nest.cuts == ((1,), (2, 2), (7,), (5,), (3, 8))
    assert [loop.strides for loop in nest.loops] == [(1680,), (None,), (16,), (None,), (1,)]


def test_flat_results_are_cut() -> None:
    x = te.placeholder((6, 5, 7), name="x")
    assert _extents(_nest(topi.reshape(topi.transpose(x, (2, 0, 1)), (210,)))) == [7, 30]
    assert _extents(_nest(topi.reshape(x, (210,)))) == [210]


def test_a_last_part_that_is_not_full_is_not_exact() -> None:
    x = te.placeholder((1, 2, 7, 5, 16), name="x")
    nest = _nest(topi.strided_slice(topi.layout_transform(x, "NCHW16c", "NCHW"), (0, 0, 0, 0), (1, 18, 7, 5)))
    assert nest.cuts[1] == (2, 16) and not nest.exact
    assert _extents(nest) == [2, 16, 35]


def test_axes_apart_stay_apart() -> None:
    x = te.placeholder((6, 5, 7), name="x")
    y = topi.nn.relu(x)
    nest = strided_loops(list(y.op.axis), Reads.of(y.op).reads, {y.op.axis[1].var})
    assert nest is not None and _extents(nest) == [6, 5, 7]


@pytest.mark.parametrize("shape", [(0, 5), (te.var("n"), 5)])
def test_unknown_and_empty_shapes(shape: tuple[object, ...]) -> None:
    y = topi.nn.relu(te.placeholder(shape, name="x"))
    assert strided_loops(list(y.op.axis), Reads.of(y.op).reads) is None


def test_picked_elements_have_no_stride() -> None:
    x, i = te.placeholder((50, 8), name="x"), te.placeholder((20,), "int32", name="i")
    nest = _nest(topi.take(x, i, axis=0, mode="fast"))
    assert any(None in loop.strides for loop in nest.loops)
