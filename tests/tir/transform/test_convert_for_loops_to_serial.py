"""Loops that several threads share, or that become vectors, become plain ones; what is computed stays."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir


def kinds(func: tir.PrimFunc) -> set[tir.ForKind]:
    found: set[tir.ForKind] = set()
    tir.stmt_functor.post_order_visit(
        func.body, lambda node: found.add(node.kind) if isinstance(node, tir.For) else None
    )
    return found


@pytest.mark.parametrize("extents", [(2, 5), (3, 8), (13, 7)])
def test_every_loop_is_plain_and_computes_the_same(extents: tuple[int, int]) -> None:
    a = te.placeholder(extents, name="a")
    b = te.compute(extents, lambda i, j: a[i, j] * 2.0, name="b")
    s = te.create_schedule(b.op)
    i, j = b.op.axis
    outer, inner = s[b].split(j, 4)
    s[b].parallel(i)
    s[b].unroll(outer)
    s[b].vectorize(inner)
    mod = tvm.driver.build_module.schedule_to_module(s, [a, b], "main", None)
    assert {tir.ForKind.PARALLEL, tir.ForKind.UNROLLED, tir.ForKind.VECTORIZED} <= kinds(mod["main"])
    serial = tir.transform.ConvertForLoopsToSerial()(mod)
    assert kinds(serial["main"]) == {tir.ForKind.SERIAL}
    again = tir.transform.ConvertForLoopsToSerial()(serial)
    assert again["main"].body is serial["main"].body
    flat = tir.transform.StorageFlatten(64)(serial)
    x = np.random.default_rng(0).uniform(size=extents).astype("float32")
    result = tvm.nd.empty(extents)
    tvm.build(flat, target="llvm")(tvm.nd.array(x), result)
    np.testing.assert_array_equal(result.numpy(), x * 2)


def test_loops_over_threads_stay() -> None:
    a = te.placeholder((64,), name="a")
    b = te.compute((64,), lambda i: a[i] + 1.0, name="b")
    s = te.create_schedule(b.op)
    s[b].bind(b.op.axis[0], te.thread_axis("threadIdx.x"))
    mod = tvm.driver.build_module.schedule_to_module(s, [a, b], "main", None)
    assert tir.transform.ConvertForLoopsToSerial()(mod)["main"].body is mod["main"].body
