"""ToMixedPrecision: rules, casts, and what keeps its data type."""

import numpy as np
import pytest

from tilewright import relay
from tilewright.ir.errors import TilewrightError
from tilewright.ir.module import IRModule
from tilewright.relay.transform import ToMixedPrecision, mixed_precision


def _dense(rows: int = 2) -> relay.Call:
    return relay.nn.dense(relay.var("x", shape=(rows, 8)), relay.var("w", shape=(4, 8)))


def _converted(expr: relay.Expr, dtype: str = "float16", mode: int = 2) -> str:
    return str(ToMixedPrecision(dtype, mode)(IRModule.from_expr(expr))["main"])


def test_an_operator_with_another_rule_follows_it() -> None:
    mark = relay.op.register_mixed_precision_conversion
    before = mixed_precision.generic_never_op
    mark("nn.softmax", lambda call, dtype: [mixed_precision.MIXED_PRECISION_ALWAYS, dtype, dtype], 11)
    try:
        text = _converted(relay.nn.softmax(relay.var("x", shape=(2, 3))))
    finally:
        relay.op.get("nn.softmax").reset_attr("FTVMMixedPrecisionConversionType")
        mark("nn.softmax", before, 0)
    assert 'dtype="float16"' in text


def test_sums_in_another_type_than_the_result_are_cast_once() -> None:
    mark, rule = relay.op.register_mixed_precision_conversion, mixed_precision.generic_always_op
    mark("nn.dense", lambda call, dtype: [mixed_precision.MIXED_PRECISION_ALWAYS, "float32", dtype], 11)
    try:
        text = _converted(_dense())
    finally:
        relay.op.get("nn.dense").reset_attr("FTVMMixedPrecisionConversionType")
        mark("nn.dense", rule, 0)
    assert 'out_dtype="float32"' in text
    assert text.count("cast(") == 3


def test_an_operator_without_a_rule_is_reported() -> None:
    program = relay.nn.depth_to_space(relay.var("x", shape=(1, 4, 2, 2)), 2)
    with pytest.warns(UserWarning, match="depth_to_space"):
        _converted(program, mode=1)
    with pytest.raises(TilewrightError, match="depth_to_space"):
        _converted(program, mode=0)


@pytest.mark.parametrize(("dtype", "mode"), [("int8", 1), ("float16", 3)])
def test_wrong_arguments_are_errors(dtype: str, mode: int) -> None:
    with pytest.raises(TilewrightError):
        ToMixedPrecision(dtype, mode)


def test_integers_keep_their_type() -> None:
    data, indices = _dense(), relay.var("i", shape=(3,), dtype="int32")
    text = _converted(relay.take(data, indices + indices, axis=0))
    assert "int32" in text
    assert text.rstrip().endswith("}")
    assert "Tensor[(3, 4), float16]" in text


def test_branches_keep_the_type_of_both() -> None:
    x = relay.var("x", shape=(2, 4))
    condition = relay.var("c", shape=(), dtype="bool")
    program = relay.If(condition, _dense(), relay.nn.softmax(x))
    mod = ToMixedPrecision("bfloat16", 2)(IRModule.from_expr(program))
    assert mod["main"].ret_type.dtype == "float32"


def test_tuples_are_converted_by_field() -> None:
    data = _dense()
    program = relay.nn.softmax(relay.concatenate([data, data], axis=0))
    text = _converted(program)
    assert "concatenate" in text
    assert "Tensor[(4, 4), float16]" in text


def test_another_function_keeps_its_signature() -> None:
    x = relay.var("x", shape=(2, 8))
    mod = IRModule()
    mod["product"] = relay.Function([x], relay.nn.dense(x, relay.const(np.ones((4, 8), "float32"))))
    y = relay.var("y", shape=(2, 8))
    mod["main"] = relay.Function([y], relay.Call(mod.get_global_var("product"), [y]))
    made = ToMixedPrecision()(mod)
    assert made["product"].ret_type.dtype == made["main"].ret_type.dtype == "float32"
    assert 'dtype="float16"' in str(made["product"])


def test_data_types_are_refused() -> None:
    mod = IRModule()
    mod.import_from_std("prelude.rly")
    with pytest.raises(TilewrightError, match="match data types"):
        ToMixedPrecision("float16", 2)(mod)
