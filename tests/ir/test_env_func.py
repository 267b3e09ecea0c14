"""Functions that IR names, and the relations between types that use them."""

import pytest

import tilewright as tvm
from tilewright import relay

BROADCAST = "tvm.relay.type_relation.Broadcast"


def test_a_name_is_one_function():
    tvm.register_func("test.env_func.twice", lambda x: 2 * x, override=True)
    func = tvm.ir.EnvFunc.get("test.env_func.twice")
    assert func is tvm.ir.EnvFunc.get("test.env_func.twice")
    assert func(21) == 42 and func.func(4) == 8
    assert tvm.ir.load_json(tvm.ir.save_json(func)) is func


def test_an_unknown_name_says_what_there_is():
    with pytest.raises(ValueError, match=r"no global function 'test.none'.*type_relation.Broadcast"):
        tvm.ir.EnvFunc.get("test.none")


def _relation(name=BROADCAST, count=1, dtype="float32"):
    parts = [relay.TensorType((2, 3), dtype), relay.TypeVar("a")]
    return relay.TypeRelation(tvm.ir.EnvFunc.get(name), parts, count)


def test_relations_compare_by_their_parts():
    same = {"map_free_vars": True}
    assert tvm.ir.structural_equal(_relation(), _relation(), **same)
    for other in (_relation("tvm.relay.type_relation.Identity"), _relation(count=2), _relation(dtype="int8")):
        assert not tvm.ir.structural_equal(_relation(), other, **same)


def test_relations_are_constraints():
    relation = _relation()
    assert relay.analysis.check_kind(relation) == relay.TypeKind.Constraint
    variable = relation.args[1]
    func = relay.FuncType([variable], variable, [variable], [relation])
    assert relay.analysis.check_kind(func) == relay.TypeKind.Type
    assert relay.TypeMutator().visit(func) is func
    shape = relay.TypeVar("n", relay.TypeKind.ShapeVar)
    with pytest.raises(tvm.TVMError, match="ShapeVar stands where a type should be"):
        relay.analysis.check_kind(relation.replace(args=(shape,)))


def test_relations_go_through_json():
    relation = _relation()
    read = tvm.ir.load_json(tvm.ir.save_json(relation))
    assert tvm.ir.structural_equal(read, relation, map_free_vars=True)
