"""Passes that a user asks for: EtaExpand, SplitArgs, ChangeBatch, recast; and what fusion makes of a network."""

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.relay.interpreter import interpret


def test_eta_expansion_wraps_functions_that_are_values():
    mod = relay.fromtext(
        """
        def @aux(%x: int32) -> int32 { %x }
        def @main() -> fn (int32) -> int32 { let %f = @aux; %f }
        """
    )
    expanded = relay.transform.EtaExpand(expand_global_var=True)(mod)
    assert "fn (%eta_expand_param: int32) -> int32" in str(expanded)
    call = relay.Call(relay.Call(expanded.get_global_var("main"), []), [relay.const(3)])
    assert relay.create_executor("debug", expanded).evaluate(call).numpy() == 3


def test_eta_expansion_leaves_what_is_called():
    mod = relay.fromtext("type Box { Full(int32), }\ndef @main() -> Box { Full(1) }")
    assert tvm.ir.structural_equal(relay.transform.EtaExpand(True, True)(mod), relay.transform.InferType()(mod))


def test_eta_expansion_of_a_polymorphic_constructor():
    mod = relay.fromtext("type Box[A] { Full(A), }\ndef @main[A]() -> fn (A) -> Box[A] { Full }")
    body = relay.transform.EtaExpand(expand_constructor=True)(mod)["main"].body
    assert isinstance(body, relay.Function) and isinstance(body.body.op, relay.Constructor)


@pytest.mark.parametrize("limit", [3, 4, 31])
@pytest.mark.parametrize("count", [2, 5, 23])
def test_concatenations_are_split_into_kernels_of_few_arguments(count, limit):
    parts = [relay.var(f"x{i}", shape=(1, i % 3)) for i in range(count)]
    mod = tvm.IRModule.from_expr(relay.concatenate(relay.Tuple(parts), 1))
    split = relay.transform.SplitArgs(limit)(mod)
    calls = [e for e in relay.analysis.nodes(split) if isinstance(e, relay.Call) and e.op.name == "concatenate"]
    assert max(len(call.args[0].fields) for call in calls) < limit
    values = [np.random.default_rng(i).random((1, i % 3), "float32") for i in range(count)]
    np.testing.assert_array_equal(interpret(split, values), np.concatenate(values, 1))


def test_no_limit_splits_nothing():
    parts = [relay.var(f"x{i}", shape=(1, 2)) for i in range(40)]
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.concatenate(relay.Tuple(parts), 1)))
    assert tvm.ir.structural_equal(relay.transform.SplitArgs(tvm.target.Target("llvm").max_function_args)(mod), mod)
    with pytest.raises(ValueError, match="max_function_args is 2"):
        relay.transform.SplitArgs(2)


def test_another_batch():
    x, w = relay.var("x", shape=(1, 3, 7, 7)), relay.var("w", shape=(5, 3, 3, 3))
    mod = tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.relu(relay.nn.conv2d(x, w))))
    changed = relay.transform.ChangeBatch({x: 0}, batch_size=13)(mod)
    assert changed["main"].checked_type.ret_type.concrete_shape == (13, 5, 5, 5)
    assert changed["main"].params[1].checked_type.concrete_shape == (5, 3, 3, 3)


def _two_layers():
    x, w1, w2 = (relay.var(n, shape=(4, 4)) for n in ("x", "w1", "w2"))
    return relay.Function([x, w1, w2], relay.nn.dense(relay.nn.relu(relay.nn.dense(x, w1)), w2))


@pytest.mark.parametrize(("skipped", "casts"), [((), 6), ((0,), 3), ((-1,), 3), ((0, 1), 0)])
def test_recast_leaves_the_layers_that_are_skipped(skipped, casts):
    result = relay.transform.recast(_two_layers(), "int8", "int32", ["nn.dense"], skipped)
    assert relay.analysis.list_op_freqs(result).get("cast", 0) == casts
    assert relay.transform.InferTypeLocal(result).ret_type.dtype == "float32"


def test_recast_computes_in_the_other_type():
    values = [np.full((4, 4), v, "float32") for v in (1.5, 2.75, 3.0)]
    mod = relay.transform.recast(tvm.IRModule.from_expr(_two_layers()), "int8", "int32", ["nn.dense"])
    x, w1, w2 = (v.astype("int8").astype("int64") for v in values)
    hidden = np.maximum(x @ w1.T, 0).astype("int8").astype("int64")
    np.testing.assert_array_equal(interpret(mod, values), (hidden @ w2.T).astype("float32"))


def test_the_kernels_of_a_network_once_each():
    x = relay.var("x", shape=(1, 4, 8, 8))
    convs = [relay.nn.relu(relay.nn.conv2d(x, relay.var(f"w{i}", shape=(4, 4, 3, 3)))) for i in range(3)]
    kernels = relay.analysis.extract_fused_functions(tvm.IRModule.from_expr(relay.Tuple(convs)))
    assert [sorted(relay.analysis.list_op_freqs(k)) for k in kernels.values()] == [["nn.conv2d", "nn.relu"]]
