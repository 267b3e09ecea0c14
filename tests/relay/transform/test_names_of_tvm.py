"""Passes and helpers that stand in TVM 0.8 under names of their own."""

from __future__ import annotations

import numpy as np

import tilewright as tvm
from tilewright import relay
from tilewright.ir import assert_structural_equal
from tilewright.relay import transform


def test_an_expression_is_folded_by_itself() -> None:
    x = relay.var("x", shape=(2,))
    folded = transform.FoldConstantExpr(x + (relay.const(1.0) + relay.const(2.0)), tvm.IRModule())
    assert_structural_equal(folded, relay.add(x, relay.const(3.0)), map_free_vars=True)
    function = transform.FoldConstantExpr(
        relay.Function([x], relay.const([1.0, 2.0]) * relay.const(2.0)), tvm.IRModule()
    )
    assert function.body.data.numpy().tolist() == [2, 4]


def test_an_expression_gets_names_for_its_values() -> None:
    x = relay.var("x", shape=(2,))
    named = transform.ToANormalFormExpr(relay.Function([x], relay.exp(relay.exp(x))))
    assert isinstance(named.body, relay.Let)


def test_every_function_of_a_module_becomes_its_gradient() -> None:
    x = relay.var("x", shape=(3,))
    mod = transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], x * x)))
    made = transform.FirstOrderGradient()(mod)
    data = np.array([1, -2, 3], "float32")
    result, (gradient,) = relay.create_executor("debug", made).evaluate()(data)
    np.testing.assert_allclose(result.numpy(), data * data)
    np.testing.assert_allclose(gradient.numpy(), 2 * data)


def test_three_kinds_of_products_are_combined() -> None:
    x = relay.var("x", shape=(4, 8))
    weights = [relay.var(f"w{i}", shape=(16, 8)) for i in range(3)]
    out = relay.Tuple([relay.nn.dense(x, w) for w in weights])
    mod = transform.InferType()(tvm.IRModule.from_expr(relay.Function([x, *weights], out)))
    with tvm.transform.PassContext(opt_level=4):
        counts = relay.analysis.list_op_freqs(transform.BatchingOps()(mod))
    assert counts["nn.batch_matmul"] == 1 and "nn.dense" not in counts


def test_layers_that_are_left_out_are_counted_again_after_a_reset() -> None:
    config = transform.LayoutConfig(skip_layers=[0])
    assert [config.check_skip(), config.check_skip()] == [True, False]
    config.reset()
    assert config.check_skip()


def test_types_stand_in_scopes_before_they_are_known() -> None:
    scope = relay.ScopeBuilder()
    x = relay.var("x", shape=(2,))
    assert scope.type_of(x) == relay.TensorType((2,))
    hole = scope.type_of(relay.exp(x))
    scope.ret(x)
    assert isinstance(hole, tvm.ir.IncompleteType)
    inferred = transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], scope.get())))
    assert inferred["main"].body.var.checked_type == relay.TensorType((2,))
