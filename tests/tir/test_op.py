"""Intrinsics and helpers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tilewright import tir
from tilewright.ir.errors import TilewrightError
from tilewright.ir.op import Op
from tilewright.tir.analysis import is_pure, side_effect

X = tir.Var("x", "float32")
IV = tir.Var("i")


FLOAT_INTRINSICS = """
    exp exp2 exp10 erf normal_tail tanh sigmoid log log2 log10 log1p sqrt rsqrt sin cos tan sinh cosh asin acos
    atan
"""


@pytest.mark.parametrize("name", FLOAT_INTRINSICS.split())
def test_float_intrinsics_keep_the_dtype_and_are_pure(name: str) -> None:
    for dtype in ("float16", "float32", "float64", "float32x8"):
        call = getattr(tir, name)(tir.Var("x", dtype))
        assert call.dtype == dtype
        assert call.op is Op.get(f"tir.{name}")
        assert is_pure(call)


def test_an_integer_argument_becomes_float() -> None:
    assert tir.exp(IV).dtype == "float32"


def test_rounding_of_literals_and_of_integers() -> None:
    assert tir.floor(tir.const(-1.5)).value == -2
    assert tir.ceil(tir.const(-1.5)).value == -1
    assert tir.trunc(tir.const(-1.5)).value == -1
    assert [tir.round(tir.const(v)).value for v in (0.5, 1.5, 2.5, -2.5, -0.4)] == [1, 2, 3, -3, 0]
    assert [tir.nearbyint(tir.const(v)).value for v in (0.5, 1.5, 2.5, -2.5)] == [0, 2, 2, -2]
    assert math.copysign(1, tir.ceil(tir.const(-0.5)).value) == -1
    assert tir.floor(IV) is IV


def test_predicates_of_integers_are_known() -> None:
    assert int(tir.isnan(IV)) == 0
    assert int(tir.isfinite(IV)) == 1
    assert tir.isinf(X).dtype == "bool"
    assert int(tir.isnan(tir.const(math.nan))) == 1


def test_if_then_else_with_a_known_condition_is_its_value() -> None:
    assert tir.if_then_else(tir.const(True), X, 0.0) is X
    assert tir.if_then_else(IV < 3, X, X) is X
    assert tir.if_then_else(IV < 3, X, 0).dtype == "float32"


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "float16", "float32", "float64", "bfloat16"])
def test_extreme_values_fit_their_dtype(dtype: str) -> None:
    assert tir.max_value(dtype).dtype == dtype
    assert tir.min_value(dtype).value < tir.max_value(dtype).value


def test_reducers_make_reduce_or_fold() -> None:
    k = tir.reduce_axis((0, 8), "k")
    total = tir.sum(X, axis=k)
    assert isinstance(total, tir.Reduce)
    assert total.combiner.identity_element[0].value == 0
    assert tir.max(1, 2) is tir.const(2)
    argmax = tir.comm_reducer(
        lambda a, b: (tir.Select(a[1] >= b[1], a[0], b[0]), tir.Select(a[1] >= b[1], a[1], b[1])),
        lambda t0, t1: (tir.const(-1, t0), tir.min_value(t1)),
        name="argmax",
    )
    index, value = argmax((k.var, X), axis=k)
    assert (index.dtype, value.dtype, value.value_index) == ("int32", "float32", 1)


def test_effects() -> None:
    assert side_effect(X + 1.0) == "pure"
    assert side_effect(tir.Load("float32", tir.Var("A", "handle"), IV)) == "read"
    assert side_effect(tir.call_extern("int32", "f")) == "opaque"


def test_all_and_any_take_at_least_one_condition() -> None:
    assert tir.all(IV < 3) is tir.LT(IV, tir.const(3))
    assert repr(tir.any(IV < 3, IV > 5)) == "((i < 3) || (i > 5))"
    with pytest.raises(ValueError, match="at least one"):
        tir.all()


def test_call_packed_passes_buffers_as_tensors() -> None:
    call = tir.call_packed("f", tir.decl_buffer((4,), name="A"))
    assert call.args[1].op.name == "tir.tvm_stack_make_array"


def test_operators_refuse_what_has_no_meaning() -> None:
    for apply in (lambda: X << 1, lambda: X | X, lambda: ~X):
        with pytest.raises(TilewrightError, match="integer"):
            apply()
    for count in (-1, 32):
        with pytest.raises(TilewrightError, match="int32 is shifted by 0 to 31 bits"):
            IV >> count
    with pytest.raises(TilewrightError, match="division"):
        tir.floormod(tir.const(5), 0)
    assert (IV << 31).dtype == "int32"
    with pytest.raises(TilewrightError, match="the text 's' cannot be converted to int32"):
        tir.StringImm("s").astype("int32")


def test_a_let_keeps_the_dtype_of_its_value() -> None:
    with pytest.raises(TilewrightError, match="the variable is int32, the value float32"):
        tir.Let(IV, X, IV)
    assert tir.Let(IV, 1, IV).value.value == 1
    with pytest.raises(TilewrightError, match="name of a variable is a string"):
        tir.Var(1)  # type: ignore[arg-type]


def test_constructors_take_plain_numbers() -> None:
    assert isinstance(tir.EQ(IV, 5).b, tir.IntImm) and tir.Add(1, IV).dtype == "int32"
    assert tir.const(np.uint8(3)).dtype == "uint8" and tir.const(np.float64(3)).dtype == "float64"
    assert tir.const(3).dtype == "int32" and tir.const(3.0).dtype == "float32"
    assert tir.LetStmt(IV, 10, tir.Evaluate(IV)).value.value == 10
