"""Operators that a program registers itself: arguments, type relation, fusion, meaning."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.ir.op import Op
from tilewright.ir.type import TensorType
from tilewright.relay.op import op as registry

NAMES = (f"test.own_operator_{i}" for i in itertools.count())


@pytest.fixture
def own() -> Iterator[Op]:
    op = registry.register(next(NAMES), "For a test.")
    yield op
    del Op.registry[op.name]


def infer(op: Op, *shapes: tuple[int, ...]) -> object:
    args = [relay.var(f"x{i}", shape=shape) for i, shape in enumerate(shapes)]
    mod = tvm.IRModule.from_expr(relay.Function(args, relay.Call(op, args)))
    return relay.transform.InferType()(mod)["main"].ret_type


def test_an_operator_of_ones_own_has_the_type_that_its_relation_says(own: Op) -> None:
    own.add_type_rel("Broadcast")
    assert infer(own, (3, 1), (4,)) == TensorType((3, 4))


def test_a_type_relation_may_be_a_function(own: Op) -> None:
    own.add_type_rel("Twice", lambda types, attrs: TensorType((2, *types[0].shape), types[0].dtype))
    assert infer(own, (3, 0)) == TensorType((2, 3, 0))


def test_a_relation_refuses_by_an_assertion(own: Op) -> None:
    def relation(types: Any, attrs: object) -> None:
        assert len(types) == 2, "two operands are wanted"

    own.add_type_rel("Two", relation)
    with pytest.raises(tvm.TVMError, match="two operands are wanted"):
        infer(own, (3,))


def test_a_name_is_registered_once(own: Op) -> None:
    with pytest.raises(tvm.TVMError, match=f"{own.name} is registered already"):
        registry.register(own.name)


def test_the_number_of_arguments_is_checked_and_they_are_named(own: Op) -> None:
    own.set_num_inputs(2)
    own.add_argument("left", "Tensor", "One.")
    own.add_argument("right", "Tensor", "Another.")
    own.add_type_rel("Broadcast")
    own.set_support_level(1)
    assert (own.num_inputs, own.support_level) == (2, 1)
    with pytest.raises(tvm.TVMError, match="takes 2 arguments, got 1"):
        infer(own, (3,))
    with pytest.raises(tvm.TVMError, match=r"left: Tensor.*right: Tensor"):
        infer(own, (3,), (4,))


def test_an_unknown_relation_is_an_error_that_names_the_known_ones(own: Op) -> None:
    with pytest.raises(tvm.TVMError, match=r"'Nonsense'.*Broadcast, BroadcastComp, Identity"):
        own.add_type_rel("Nonsense")


def test_stateful_operators_are_not_merged(own: Op) -> None:
    own.add_type_rel("Identity")
    registry.register_pattern(own.name, registry.OpPattern.ELEMWISE)
    x = relay.var("x", shape=(2,))
    twice = relay.Function([x], relay.add(relay.Call(own, [x]), relay.Call(own, [x])))
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(twice))
    for stateful, same in ((False, True), (True, False)):
        registry.register_stateful(own.name, stateful)
        with tvm.transform.PassContext(opt_level=3):
            body = relay.transform.EliminateCommonSubexpr()(mod)["main"].body
        assert (body.args[0] is body.args[1]) == same


def test_declared_operators_know_their_number_of_inputs() -> None:
    assert [registry.get(name).num_inputs for name in ("log", "add", "nn.batch_norm")] == [1, 2, 5]
