"""Every pass takes nests as deep, and sequences as long, as users make them."""

from __future__ import annotations

import pytest

from tilewright import tir
from tilewright.ir.module import IRModule
from tilewright.tir import transform as T
from tilewright.tir.verify import verify_well_formed

PASSES = [
    T.InjectPrefetch(), T.StorageFlatten(64), T.BF16Legalize(), T.NarrowDataType(32), T.Simplify(), T.LoopPartition(),
    T.VectorizeLoop(), T.InjectVirtualThread(), T.InjectDoubleBuffer(), T.StorageRewrite(), T.UnrollLoop(),
    T.RemoveNoOp(), T.RewriteUnsafeSelect(), T.HoistIfThenElse(), T.CombineContextCall(),
]  # fmt: skip

A = tir.decl_buffer((100,), name="A")
PARAM = tir.Var("A", "handle")


def lets(count: int) -> tir.Stmt:
    names = [tir.Var(f"x{i}") for i in range(count)]
    body: tir.Stmt = tir.BufferStore(A, tir.Cast("float32", names[-1]), [names[0] % 100])
    for i in range(count - 1, -1, -1):
        value = tir.call_extern("int32", "f", i) if i == 0 else names[i - 1] + i
        body = tir.LetStmt(names[i], value, tir.AttrStmt(tir.const(0), "key", i, body))
    return body


def branches(count: int) -> tir.Stmt:
    n = tir.Var("n")
    body: tir.Stmt = tir.BufferStore(A, 0.0, [0])
    for i in range(count):
        body = tir.IfThenElse(n.equal(i), tir.BufferStore(A, 1.0, [i % 100]), body)
    return tir.LetStmt(n, tir.call_extern("int32", "f"), body)


def deep_sum(count: int) -> tir.Stmt:
    total: tir.PrimExpr = tir.BufferLoad(A, [0])
    for i in range(count):
        total = tir.Add(total, tir.BufferLoad(A, [i % 100]))
    return tir.BufferStore(A, total, [0])


def sequence(count: int) -> tir.Stmt:
    return tir.SeqStmt([tir.BufferStore(A, 1.0, [i % 100]) for i in range(count)])


BODIES = {"lets": lets(2_000), "branches": branches(300), "deep sum": deep_sum(3_000), "sequence": sequence(3_000)}


@pytest.mark.parametrize("name", BODIES)
def test_all_passes(name: str) -> None:
    func = tir.PrimFunc([PARAM], BODIES[name], None, {PARAM: A}, {"global_symbol": "main"})
    mod = IRModule.from_expr(func)
    for step in PASSES:
        mod = step(mod)
    verify_well_formed(mod)
    assert len(str(mod)) > 1_000
