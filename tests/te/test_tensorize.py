"""Tensor intrinsics: tensorize, and computes written with intrinsic calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.te.support import compute, loops

from tilewright import te, tir
from tilewright.arith import simplify
from tilewright.ir import structural_equal
from tilewright.ir.errors import TilewrightError
from tilewright.runtime.registry import get_global_func
from tilewright.te.schedule import Schedule
from tilewright.testing.tir_interpreter import Pointer
from tilewright.tir.visitor import substitute

A = np.random.default_rng(0).integers(-4, 5, (8, 32)).astype("float32")
B = np.random.default_rng(1).integers(-4, 5, (16, 32)).astype("float32")


def gemv(m: int, n: int, with_reset: bool = True) -> te.TensorIntrin:
    """``c[i] = sum_k a[k] * b[i, k]``, with ``b`` of any row stride."""
    a = te.placeholder((n,), name="a")
    b = te.placeholder((m, n), name="b")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((m,), lambda i: te.sum(a[k] * b[i, k], axis=k), name="c")
    binds = {
        a: tir.decl_buffer(a.shape, a.dtype, "a", offset_factor=1, strides=[1]),
        b: tir.decl_buffer(b.shape, b.dtype, "b", offset_factor=1, strides=[te.var("row"), 1]),
        c: tir.decl_buffer(c.shape, c.dtype, "c", offset_factor=1, strides=[1]),
    }

    def emit(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
        x, y, z = ins[0].access_ptr("r"), ins[1].access_ptr("r"), outs[0].access_ptr("w")
        row = ins[1].strides[0]
        body = tir.call_extern("int32", "gemv", z, x, y, m, n, row)
        update = tir.call_extern("int32", "gemv_add", z, x, y, m, n, row)
        reset = tir.Evaluate(tir.call_extern("int32", "reset", z, m)) if with_reset else None
        return body, reset, update

    return te.decl_tensor_intrin(c.op, emit, binds=binds)


def _gemv_add(c: Pointer, a: Pointer, b: Pointer, m: int, n: int, row: int) -> None:
    matrix = np.lib.stride_tricks.as_strided(b.array(), (m, n), (4 * row, 4))
    c.array()[:m] += matrix @ a.array()[:n]


def _reset(c: Pointer, m: int) -> None:
    c.array()[:m] = 0


def _gemv(c: Pointer, *rest: Any) -> None:
    _reset(c, rest[2])
    _gemv_add(c, *rest)


EXTERNS: dict[str, Callable[..., Any]] = {"gemv": _gemv, "gemv_add": _gemv_add, "reset": _reset}


def matmul() -> tuple[te.Tensor, te.Tensor, te.Tensor, Schedule]:
    a, b = te.placeholder((8, 32), name="A"), te.placeholder((16, 32), name="B")
    k = te.reduce_axis((0, 32), name="k")
    c = te.compute((8, 16), lambda i, j: te.sum(a[i, k] * b[j, k], axis=k), name="C")
    return a, b, c, te.create_schedule(c.op)


def assert_matmul(s: Schedule, args: list[te.Tensor]) -> None:
    found = compute(s, args, [A, B], [(8, 16)], externs=EXTERNS)
    np.testing.assert_array_equal(found[0], A @ B.T)


def test_whole_reduction_in_the_block() -> None:
    a, b, c, s = matmul()
    _, inner = s[c].split(c.op.axis[1], factor=4)
    s[c].tensorize(inner, gemv(4, 32))
    assert '"gemv"' in loops(s, [a, b, c])
    assert_matmul(s, [a, b, c])


@pytest.mark.parametrize("with_reset", [True, False])
def test_reduction_goes_on_outside_the_block(with_reset: bool) -> None:
    a, b, c, s = matmul()
    i, j = c.op.axis
    outer, inner = s[c].split(j, factor=4)
    ko, ki = s[c].split(c.op.reduce_axis[0], factor=8)
    s[c].reorder(i, outer, ko, inner, ki)
    s[c].tensorize(inner, gemv(4, 8, with_reset))
    assert ('"reset"' in loops(s, [a, b, c])) is with_reset
    assert_matmul(s, [a, b, c])


@pytest.mark.parametrize("with_reset", [True, False])
def test_loops_outside_the_block_need_not_divide_their_axes(with_reset: bool) -> None:
    a, b, c, s = matmul()
    i, j = c.op.axis
    tile, row = s[c].split(i, factor=3)
    outer, inner = s[c].split(j, factor=4)
    ko, ki = s[c].split(c.op.reduce_axis[0], factor=8)
    s[c].reorder(tile, outer, ko, row, inner, ki)
    s[c].tensorize(inner, gemv(4, 8, with_reset))
    assert_matmul(s, [a, b, c])


def test_region_of_the_block_may_start_at_a_remainder() -> None:
    """Tiles whose loop runs below the divisor need no remainder, which has to be known to see what is computed."""
    a, b = te.placeholder((8, 32), name="A"), te.placeholder((2, 8, 32), name="B")
    k = te.reduce_axis((0, 32), name="k")
    c = te.compute((8, 16), lambda i, j: te.sum(a[i, k] * b[j // 8, j % 8, k], axis=k), name="C")
    s = te.create_schedule(c.op)
    sums = s.cache_write(c, "local")
    block, _ = s[c].split(c.op.axis[1], factor=8)
    s[sums].compute_at(s[c], block)
    _, inner = s[sums].split(sums.op.axis[1], factor=4)
    s[sums].tensorize(inner, gemv(4, 32))
    found = compute(s, [a, b, c], [A, B.reshape(2, 8, 32)], [(8, 16)], externs=EXTERNS)
    np.testing.assert_array_equal(found[0], A @ B.T)


def test_block_in_cached_and_padded_memory() -> None:
    a, b, c, s = matmul()
    cache = s.cache_write(c, "local")
    outer, _ = s[c].split(c.op.axis[1], factor=8)
    s[cache].compute_at(s[c], outer)
    rows = s.cache_read(b, "local", [cache])
    s[rows].compute_at(s[c], outer)
    s[rows].storage_align(rows.op.axis[0], 16, 4)
    i, j = cache.op.axis
    jo, ji = s[cache].split(j, factor=4)
    ko, ki = s[cache].split(cache.op.reduce_axis[0], factor=8)
    s[cache].reorder(i, jo, ko, ji, ki)
    s[cache].tensorize(ji, gemv(4, 8))
    assert_matmul(s, [a, b, c])


def test_intrinsic_of_vector_loads_and_stores() -> None:
    def vector_add(n: int) -> te.TensorIntrin:
        x, y = te.placeholder((n,), name="x"), te.placeholder((n,), name="y")
        z = te.compute((n,), lambda i: x[i] + y[i], name="z")
        kind = f"float32x{n}"
        return te.decl_tensor_intrin(
            z.op, lambda ins, outs: outs[0].vstore([0], ins[0].vload([0], kind) + ins[1].vload([0], kind))
        )

    a, b = te.placeholder((4, 16), name="A"), te.placeholder((4, 16), name="B")
    c = te.compute((4, 16), lambda i, j: a[i, j] + b[i, j], name="C")
    s = te.create_schedule(c.op)
    _, inner = s[c].split(c.op.axis[1], factor=8)
    s[c].tensorize(inner, vector_add(8))
    x, y = A[:4, :16].copy(), B[:4, :16].copy()
    np.testing.assert_array_equal(compute(s, [a, b, c], [x, y], [(4, 16)])[0], x + y)


@pytest.mark.parametrize("cached", [False, True])
def test_compute_written_with_an_intrinsic_call(cached: bool) -> None:
    a, b = te.placeholder((8, 32), name="A"), te.placeholder((16, 32), name="B")
    block = gemv(4, 8)
    k = te.reduce_axis((0, 4), name="k")
    c = te.compute(
        (8, 4, 4),
        lambda i, j: block(a[i, k * 8 : k * 8 + 8], b[j * 4 : j * 4 + 4, k * 8 : k * 8 + 8], reduce_axis=k),
        name="C",
    )
    s = te.create_schedule(c.op)
    if cached:
        cache = s.cache_write(c, "local")
        s[cache].compute_at(s[c], c.op.axis[0])
    found = compute(s, [a, b, c], [A, B], [(8, 4, 4)], externs=EXTERNS)
    np.testing.assert_array_equal(found[0].reshape(8, 16), A @ B.T)


def test_scalars_of_an_intrinsic_stand_between_its_slices() -> None:
    n, scale = te.size_var("n"), te.var("scale", "float32")
    x = te.placeholder((n,), name="x")
    y = te.compute((n,), lambda i: x[i] * scale, name="y")

    def body(ins: list[tir.Buffer], outs: list[tir.Buffer], scalars: list[tir.PrimExpr]) -> tir.Stmt:
        return outs[0].vstore([0], ins[0].vload([0]) * scalars[0])

    intrin = te.decl_tensor_intrin(y.op, body, scalar_params=[scale])
    a = te.placeholder((3, 4), name="A")
    b = te.compute((3, 4), lambda i, j: intrin((i + j).astype("float32"), a[i, j]), name="B")
    data = A[:3, :4].copy()
    found = compute(te.create_schedule(b.op), [a, b], [data], [(3, 4)])[0]
    np.testing.assert_array_equal(found, data * np.add.outer(np.arange(3), np.arange(4)))


def _tensorized(factor: int, intrin: te.TensorIntrin, combine: Callable[[Any, Any], Any] | None = None) -> None:
    a, b = te.placeholder((8, 32), name="A"), te.placeholder((16, 32), name="B")
    k = te.reduce_axis((0, 32), name="k")
    op = combine or (lambda x, y: x * y)
    c = te.compute((8, 16), lambda i, j: te.sum(op(a[i, k], b[j, k]), axis=k), name="C")
    s = te.create_schedule(c.op)
    _, inner = s[c].split(c.op.axis[1], factor=factor)
    s[c].tensorize(inner, intrin)
    loops(s, [a, b, c])


def test_region_and_meaning_of_a_block() -> None:
    a, b, c, s = matmul()
    i, j = c.op.axis
    outer, inner = s[c].split(j, factor=4)
    ko, ki = s[c].split(c.op.reduce_axis[0], factor=8)
    s[c].reorder(i, outer, ko, inner, ki)
    intrin = gemv(4, 8)
    s[c].tensorize(inner, intrin)
    normal = s.normalize()
    region, meaning = (get_global_func(f"test.op.{n}") for n in ("InferTensorizeRegion", "MatchTensorizeBody"))
    written, read = region(normal[c], te.schedule.InferBound(normal))
    place = {i.var: 5, outer.var: 3, ko.var: 2}  # row 5, columns 12 to 15, of the sum the terms 16 to 23

    def at(r: tir.Range) -> tuple[int, int]:
        return tuple(simplify(substitute(e, place)).value for e in (r.min, r.extent))

    assert [at(written[iv]) for iv in (i, j, c.op.reduce_axis[0])] == [(5, 1), (12, 4), (16, 8)]
    assert [at(r) for t in (a, b) for r in read[t]] == [(5, 1), (16, 8), (12, 4), (16, 8)]
    (found,) = meaning(normal[c], written, read, intrin)
    assert structural_equal(found, intrin.op.body[0])
    with pytest.raises(TilewrightError, match="has no tensorized loop"):
        region(normal[a], te.schedule.InferBound(normal))


def test_a_padded_block_is_told_which_it_is() -> None:
    """A copy in whole tiles tests whether an element is there; an intrinsic may use the axis of the tiles."""
    x = te.placeholder((13,), name="x")
    y = te.compute((13,), lambda i: x[i] * 2.0, name="y")
    s = te.create_schedule(y.op)
    s[y].split(y.op.axis[0], factor=4)
    tiles = s.cache_write(y, "global")
    tile, inner = tiles.op.axis
    source = te.placeholder((4,), name="source")
    doubled = te.compute((4,), lambda i: tir.Select(tile * 4 + i < 13, source[i] * 2.0, tir.const(0.0)), name="d")

    def emit(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
        count = tir.min(4, 13 - tile * 4)
        return tir.call_extern("int32", "double", outs[0].access_ptr("w"), ins[0].access_ptr("r"), count)

    s[tiles].tensorize(inner, te.decl_tensor_intrin(doubled.op, emit, default_buffer_params={"offset_factor": 1}))
    counts = []

    def double(to: Pointer, of: Pointer, count: int) -> None:
        counts.append(int(count))
        to.array()[:count] = of.array()[:count] * 2

    data = np.arange(13, dtype="float32")
    found = compute(s, [x, y], [data], [(13,)], externs={"double": double})
    np.testing.assert_array_equal(found[0], data * 2)
    assert counts[:4] == [4, 4, 4, 1]


def test_block_of_another_size_is_refused() -> None:
    with pytest.raises(TilewrightError, match="axis j has extent 4 in the block, 8 in the intrinsic"):
        _tensorized(4, gemv(8, 32))


def test_block_that_computes_something_else_is_refused() -> None:
    with pytest.raises(TilewrightError, match=r"the block computes \(a\[k\] \+ b\[i, k\]\)"):
        _tensorized(4, gemv(4, 32), lambda x, y: x + y)


def test_blocks_that_do_not_divide_the_loop_are_refused() -> None:
    with pytest.raises(TilewrightError, match="choose split factors that divide"):
        _tensorized(5, gemv(5, 32))


def test_missing_update_is_explained() -> None:
    a, b, c, s = matmul()
    i, j = c.op.axis
    outer, inner = s[c].split(j, factor=4)
    ko, ki = s[c].split(c.op.reduce_axis[0], factor=8)
    s[c].reorder(i, outer, ko, inner, ki)
    intrin = gemv(4, 8)
    s[c].tensorize(inner, intrin.replace(reduce_update=None))
    with pytest.raises(TilewrightError, match="does not give its reduce_update"):
        loops(s, [a, b, c])


def test_part_of_a_block_is_computed_as_the_whole_block() -> None:
    """Readers that cut off what is padding need 5 of 8 columns, the intrinsic computes 8."""
    a, b = te.placeholder((8, 32), name="A"), te.placeholder((16, 32), name="B")
    k = te.reduce_axis((0, 32), name="k")
    c = te.compute((8, 16), lambda i, j: te.sum(a[i, k] * b[j, k], axis=k), name="C")
    part = te.compute((8, 5), lambda i, j: c[i, j] + 1, name="part")
    s = te.create_schedule(part.op)
    s[c].compute_at(s[part], part.op.axis[0])
    _, inner = s[c].split(c.op.axis[1], factor=4)
    s[c].tensorize(inner, gemv(4, 32))
    found = compute(s, [a, b, part], [A, B], [(8, 5)], externs=EXTERNS)
    np.testing.assert_array_equal(found[0], (A @ B.T)[:, :5] + 1)
