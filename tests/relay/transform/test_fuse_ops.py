"""What fused functions take as parameters."""

import numpy as np

import tilewright as tvm
from tilewright import relay
from tilewright.ir.type import TupleType
from tilewright.relay.analysis import post_order_visit
from tilewright.relay.expr import Function


def test_a_field_of_a_tuple_is_passed_alone() -> None:
    x = relay.var("x", shape=(6, 4))
    parts = relay.split(x, 3, axis=0)
    left = relay.nn.relu(relay.add(parts[0], parts[2]))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.multiply(left, relay.exp(parts[1]))))
    fused = relay.transform.FuseOps(0)(relay.transform.InferType()(mod))
    functions: list[Function] = []
    post_order_visit(fused["main"].body, lambda e: functions.append(e) if isinstance(e, Function) else None)
    assert len(functions) == 5  # at level 0 every operator is a function of its own
    for func in functions:
        assert not any(isinstance(p.type_annotation, TupleType) for p in func.params)
    assert max(len(func.params) for func in functions) == 2


def _layer(x: relay.Expr, name: str) -> relay.Expr:
    """A convolution whose sums become bytes, and the numbers that these stand for."""
    sums = relay.nn.conv2d(x, relay.var(name, shape=(4, 4, 1, 1)), channels=4, kernel_size=(1, 1))
    steps = relay.cast(relay.clip(relay.nearbyint(sums), 0.0, 255.0), "uint8")
    return relay.multiply(relay.cast(steps, "float32"), relay.const(0.5))


def _fused_calls(body: relay.Expr) -> list[relay.Call]:
    func = relay.Function(relay.analysis.free_vars(body), body)
    fused = relay.transform.FuseOps(2)(relay.transform.InferType()(tvm.IRModule.from_expr(func)))
    calls: list[relay.Call] = []
    post_order_visit(fused["main"].body, lambda e: calls.append(e) if isinstance(e, relay.Call) else None)
    return [call for call in calls if isinstance(call.op, Function)]


def test_what_a_sum_reads_of_another_convolution_stays_bytes() -> None:
    x = relay.var("x", shape=(1, 4, 8, 8))
    other, last = _fused_calls(relay.nn.relu(relay.add(_layer(x, "w1"), _layer(x, "w2"))))
    assert other.op.ret_type.dtype == "uint8"
    assert sorted(p.type_annotation.dtype for p in last.op.params) == ["float32", "float32", "uint8"]


def test_a_lone_convolution_is_fused_up_to_its_end() -> None:
    x = relay.var("x", shape=(1, 4, 8, 8))
    (only,) = _fused_calls(relay.nn.relu(relay.add(_layer(x, "w1"), relay.var("y", shape=(1, 4, 8, 8)))))
    assert only.op.ret_type.dtype == "float32"


def test_sums_of_convolutions_in_one_type_are_fused_as_before() -> None:
    x = relay.var("x", shape=(1, 4, 8, 8))
    sides = [
        relay.nn.relu(relay.nn.conv2d(x, relay.var(w, shape=(4, 4, 1, 1)), channels=4, kernel_size=(1, 1)))
        for w in ("w1", "w2")
    ]
    other, last = _fused_calls(relay.add(*sides))
    assert (len(other.op.params), len(last.op.params)) == (2, 3)
    assert other.op.body.op.name == "nn.relu"


def _operators(call: relay.Call) -> list[str]:
    found: list[str] = []
    post_order_visit(call.op.body, lambda e: found.append(e.op.name) if isinstance(e, relay.Call) else None)
    return found


def _rotated(x: relay.Expr, turn: relay.Expr) -> relay.Expr:
    """Both halves of each row, turned by an angle."""
    a, b = relay.split(x, 2, axis=1)
    cos, sin = relay.cos(turn), relay.sin(turn)
    sides = [relay.subtract(a * cos, b * sin), relay.add(a * sin, b * cos)]
    return relay.concatenate(sides, axis=1)


def test_computed_parts_of_a_concatenation_are_fused_into_it() -> None:
    calls = _fused_calls(_rotated(relay.var("x", shape=(3, 8)), relay.var("turn", shape=(1, 4))))
    assert {"split", "multiply", "subtract", "add", "concatenate"} <= set(_operators(calls[-1]))


def test_concatenations_one_after_the_other_stay_apart() -> None:
    """Each would read both halves of the one before: 2 ** 12 expressions."""
    x: relay.Expr = relay.var("x", shape=(3, 8))
    for _ in range(12):
        x = _rotated(x, relay.var("turn", shape=(1, 4)))
    assert all(_operators(call).count("concatenate") <= 1 for call in _fused_calls(x))


def test_a_module_that_is_fused_already_builds() -> None:
    x = relay.var("x", shape=(1, 16, 16, 16))
    joined = relay.concatenate([relay.exp(x), relay.negative(x)], axis=1)
    fused = relay.transform.FuseOps(2)(tvm.IRModule.from_expr(relay.Function([x], relay.add(joined, joined))))
    data = np.random.default_rng(0).standard_normal((1, 16, 16, 16)).astype("float32")
    executor = tvm.contrib.graph_executor.GraphModule(relay.build(fused, "llvm")["default"](tvm.cpu()))
    executor.run(x=data)
    wanted = 2 * np.concatenate([np.exp(data), -data], axis=1)
    np.testing.assert_allclose(executor.get_output(0).numpy(), wanted, rtol=1e-5)
