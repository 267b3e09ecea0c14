"""TypeSolver: types made to agree, and relations between them, without a program."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.relay.analysis import TypeSolver

RELATION = "tvm.relay.type_relation."


def _state(solver: TypeSolver, relation: str, inputs: list, output: relay.ty.Type | None = None) -> relay.ty.Type:
    output = output or relay.IncompleteType()
    func = tvm.ir.EnvFunc.get(RELATION + relation)
    solver.add_constraint(relay.TypeRelation(func, [*inputs, output], len(inputs), None))
    return output


@pytest.mark.parametrize("shapes", [((7, 1), (1, 5)), ((3,), (2, 1, 3)), ((), (4,)), ((0, 1), (1, 6))])
def test_a_relation_gives_its_result(shapes: tuple) -> None:
    solver = TypeSolver()
    a, b = (relay.TensorType(shape, "int8") for shape in shapes)
    wanted = relay.TensorType(np.broadcast_shapes(*shapes), "int8")
    assert solver.resolve(_state(solver, "Broadcast", [a, b])) != wanted
    result = _state(solver, "Identity", [_state(solver, "Broadcast", [a, b])])
    assert solver.solve() and solver.resolve(result) == wanted


def test_what_is_known_later_decides_what_waits() -> None:
    solver = TypeSolver()
    left, right = relay.IncompleteType(), relay.IncompleteType()
    total = _state(solver, "Broadcast", [left, right])
    assert not solver.solve()
    _state(solver, "Identity", [left], relay.TensorType((5, 1), "float32"))  # the input by the result
    assert not solver.solve()
    solver.unify(relay.TupleType([right]), relay.TupleType([relay.TensorType((3,), "float32")]))
    assert solver.solve() and solver.resolve(total) == relay.TensorType((5, 3), "float32")


def test_holes_inside_of_types_are_filled() -> None:
    solver, hole = TypeSolver(), relay.IncompleteType()
    tensor = relay.TensorType((2, relay.Any()), "float32")
    func = relay.FuncType([hole, relay.RefType(hole)], relay.TupleType([]))
    known = relay.FuncType([tensor, relay.IncompleteType()], relay.IncompleteType())
    assert solver.unify(func, known) == relay.FuncType([tensor, relay.RefType(tensor)], relay.TupleType([]))
    assert solver.resolve(hole) == tensor


def test_contradictions_are_told() -> None:
    solver, hole = TypeSolver(), relay.IncompleteType()
    with pytest.raises(tvm.TVMError, match=r"Tensor\[\(2\), float32\] is not Tensor\[\(3\), float32\]"):
        solver.unify(*(relay.TensorType((n,), "float32") for n in (2, 3)))
    with pytest.raises(tvm.TVMError, match="a type would contain itself"):
        solver.unify(hole, relay.TupleType([hole, hole]))
    _state(solver, "Broadcast", [relay.TensorType((2,), "float32"), relay.TensorType((3,), "float32")])
    with pytest.raises(tvm.TVMError, match=r"the shapes \(2\) and \(3\) do not broadcast"):
        solver.solve()


def test_relations_that_are_none() -> None:
    solver, hole = TypeSolver(), relay.IncompleteType()
    with pytest.raises(ValueError, match="got 2 inputs of 2 types"):
        solver.add_constraint(relay.TypeRelation(tvm.ir.EnvFunc.get(RELATION + "Identity"), [hole, hole], 2))
    with pytest.raises(ValueError, match="is an EnvFunc, not a str"):
        solver.add_constraint(relay.TypeRelation("Identity", [hole, hole], 1))
