"""BF16Promote and BF16CastElimination: computing in float32, with and without roundings in between."""

from __future__ import annotations

import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.module import IRModule
from tilewright.tir.transform import BF16CastElimination, BF16Promote


def lowered(body: object, dtypes: tuple[str, ...] = ("bfloat16", "bfloat16")) -> IRModule:
    tensors = [te.placeholder((8,), dtype=d, name=n) for d, n in zip(dtypes, "AB", strict=True)]
    result = te.compute((8,), lambda i: body(*[t[i] for t in tensors]), name="C")  # type: ignore[operator]
    return tvm.driver.build_module.schedule_to_module(te.create_schedule(result.op), [*tensors, result], "main", None)


def wide(x: tir.PrimExpr) -> tir.PrimExpr:
    return tir.Cast("float32", x)


def narrow(x: tir.PrimExpr) -> tir.PrimExpr:
    return tir.Cast("bfloat16", x)


@pytest.mark.parametrize("node", [tir.Add, tir.Sub, tir.Mul, tir.Div, tir.Min, tir.Max])
def test_each_operation_is_rounded(node: type) -> None:
    before = lowered(lambda a, b: node(node(a, b), b))
    after = lowered(lambda a, b: narrow(node(wide(narrow(node(wide(a), wide(b)))), wide(b))))
    tvm.ir.assert_structural_equal(BF16Promote()(before), after)


def test_comparisons_are_of_float32() -> None:
    before = lowered(lambda a, b: tir.Select(a < b, a, b))
    after = lowered(lambda a, b: tir.Select(wide(a) < wide(b), a, b))
    tvm.ir.assert_structural_equal(BF16Promote()(before), after)


def test_other_types_stay() -> None:
    mod = lowered(lambda a, b: a * b + a, ("float32", "float32"))
    tvm.ir.assert_structural_equal(BF16CastElimination()(BF16Promote()(mod)), mod)


def test_roundings_in_between_are_left_out() -> None:
    before = lowered(lambda a, b: a * b + a)
    after = lowered(lambda a, b: narrow(wide(a) * wide(b) + wide(a)))
    tvm.ir.assert_structural_equal(BF16CastElimination()(BF16Promote()(before)), after)


def test_roundings_to_be_stored_or_compared_in_another_type_stay() -> None:
    mod = lowered(lambda a, b: tir.Cast("float64", narrow(a + b)), ("float32", "float32"))
    tvm.ir.assert_structural_equal(BF16CastElimination()(mod), mod)
