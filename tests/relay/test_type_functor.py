"""Visitors and mutators of types."""

import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.relay.prelude import Prelude

A = relay.TypeVar("a")
TENSOR = relay.TensorType((2, 3), "float32")
TYPES = [
    A, TENSOR, relay.IncompleteType(), relay.TupleType([TENSOR, A]), relay.RefType(TENSOR),
    relay.FuncType([TENSOR, A], A, [A]), relay.TypeCall(relay.GlobalTypeVar("List"), [TENSOR]),
    Prelude().mod.type_definitions[next(iter(Prelude().mod.type_definitions))],
]  # fmt: skip


@pytest.mark.parametrize("typ", TYPES, ids=lambda t: type(t).__name__)
def test_every_class_of_types_is_walked(typ: relay.Type) -> None:
    relay.TypeVisitor().visit(typ)
    assert relay.TypeMutator().visit(typ) is typ
    with pytest.raises(NotImplementedError, match=type(typ).__name__):
        relay.TypeFunctor().visit(typ)


def test_a_visitor_sees_the_parts() -> None:
    class Tensors(relay.TypeVisitor):
        def __init__(self) -> None:
            self.found: list[relay.Type] = []

        def visit_tensor_type(self, typ: relay.TensorType) -> None:
            self.found.append(typ)

    tensors = Tensors()
    tensors.visit(relay.FuncType([relay.TupleType([TENSOR, A]), relay.RefType(TENSOR)], TENSOR, [A]))
    assert tensors.found == [TENSOR] * 3


def test_a_mutator_builds_what_holds_a_changed_part() -> None:
    class Halve(relay.TypeMutator):
        def visit_tensor_type(self, typ: relay.TensorType) -> relay.Type:
            return relay.TensorType(typ.shape, "float16")

    half = relay.TensorType((2, 3), "float16")
    made = Halve().visit(relay.FuncType([relay.TupleType([TENSOR, A])], TENSOR, [A]))
    tvm.ir.assert_structural_equal(made, relay.FuncType([relay.TupleType([half, A])], half, [A]), map_free_vars=True)
