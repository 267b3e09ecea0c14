"""Random loop nests compute the same after every pass of lowering, and no pass touches memory it must not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.tir.interpret import run

from tilewright import tir
from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext
from tilewright.tir import transform as T
from tilewright.tir.verify import verify_well_formed

SETTINGS = settings(deadline=None, suppress_health_check=list(HealthCheck))
KINDS = [tir.ForKind.SERIAL, tir.ForKind.PARALLEL, tir.ForKind.VECTORIZED, tir.ForKind.UNROLLED]
PASSES = [
    T.StorageFlatten(64), T.BF16Legalize(), T.NarrowDataType(32), T.Simplify(), T.LoopPartition(), T.SpecializeTails(),
    T.VectorizeLoop(), T.InjectVirtualThread(), T.InjectDoubleBuffer(), T.StorageRewrite(), T.UnrollLoop(),
    T.Simplify(), T.RemoveNoOp(), T.RewriteUnsafeSelect(), T.HoistIfThenElse(),
]  # fmt: skip


@st.composite
def programs(draw):
    """out[i, j] = f(a[i, j]) through a local buffer, tiled with factors that need not divide the extents."""
    rows, cols = draw(st.integers(1, 13)), draw(st.integers(1, 19))
    dynamic = draw(st.booleans())
    n = tir.SizeVar("n") if dynamic else tir.const(rows)
    a = tir.decl_buffer((n, cols), "float32", "A")
    out = tir.decl_buffer((n, cols), "float32", "B")
    factor_i, factor_j = draw(st.sampled_from([1, 2, 3, 4])), draw(st.sampled_from([1, 2, 4, 5, 8]))
    io, ii, jo, ji = (tir.Var(name) for name in ("i.outer", "i.inner", "j.outer", "j.inner"))
    i, j = io * factor_i + ii, jo * factor_j + ji
    local = tir.decl_buffer((n, cols), "float32", "C", scope="local")
    index_dtype_guard = tir.likely(i < n), tir.likely(j < cols)

    def guarded(body):
        for guard in reversed(index_dtype_guard) if draw(st.booleans()) else index_dtype_guard:
            body = tir.IfThenElse(guard, body)
        return body

    value = tir.BufferLoad(a, [i, j])
    operation = draw(st.sampled_from(["copy", "exp", "select", "scale", "shifted"]))
    if operation == "exp":
        value = tir.exp(value)
    elif operation == "select":
        value = tir.Select(tir.Cast("bool", j % 2), value, value * 2.0)
    elif operation == "scale":
        value = value * tir.Cast("float32", i + j * 3) + 1.0
    elif operation == "shifted":
        value = tir.if_then_else(j >= 1, tir.BufferLoad(a, [i, j - 1]), 0.0)
    inner_kind, outer_kind = draw(st.sampled_from(KINDS)), draw(st.sampled_from(KINDS[:2]))
    row_kind = draw(st.sampled_from([KINDS[0], KINDS[3]]))
    fill = tir.For(ji, 0, factor_j, inner_kind, guarded(tir.BufferStore(local, value, [i, j])))
    j2 = tir.Var("j.inner.2")
    result = tir.BufferLoad(local, [i, jo * factor_j + j2]) + 1.0
    use = tir.BufferStore(out, result, [i, jo * factor_j + j2])
    use = tir.IfThenElse(tir.likely(tir.all(i < n, jo * factor_j + j2 < cols)), use)
    use = tir.For(j2, 0, factor_j, draw(st.sampled_from([KINDS[0], KINDS[2]])), use)
    region = [tir.Range.from_min_extent(i, tir.const(1)), tir.Range.from_min_extent(jo * factor_j, tir.const(factor_j))]
    body = tir.BufferRealize(local, region, tir.const(True, "bool"), tir.SeqStmt([fill, use]))
    body = tir.For(jo, 0, (cols + factor_j - 1) // factor_j, KINDS[0], body)
    body = tir.For(ii, 0, factor_i, row_kind, body)
    body = tir.For(io, 0, (n + (factor_i - 1)) // factor_i, outer_kind, body)
    pa, pb = tir.Var("A", "handle"), tir.Var("B", "handle")
    func = tir.PrimFunc([pa, pb], body, None, {pa: a, pb: out}, {"global_symbol": "main"})
    return func, (rows, cols)


def check_every_pass(program: tuple[tir.PrimFunc, tuple[int, int]], partition_const_loop: bool) -> None:
    func, shape = program
    data = np.random.default_rng(0).standard_normal(shape).astype("float32")
    expected = np.zeros(shape, "float32")
    run(func, A=data.copy(), B=expected)
    mod = IRModule.from_expr(func)
    with PassContext(config={"tir.LoopPartition": {"partition_const_loop": partition_const_loop}}):
        for step in PASSES:
            mod = step(mod)
            verify_well_formed(mod)
            found = np.zeros(shape, "float32")
            run(mod["main"], A=data.copy(), B=found)
            assert np.array_equal(expected, found, equal_nan=True), f"{step.info.name}: found {found}\n{mod}"


@settings(SETTINGS, max_examples=10)
@given(programs(), st.booleans())
def test_every_pass_keeps_what_a_program_computes(program, partition_const_loop: bool) -> None:
    check_every_pass(program, partition_const_loop)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@settings(SETTINGS, max_examples=800)
@given(programs(), st.booleans())
def test_many_programs(program, partition_const_loop: bool) -> None:
    check_every_pass(program, partition_const_loop)
