"""The tensors that a type consists of."""

from __future__ import annotations

import tilewright as tvm
from tilewright.ir.type import RefType, TupleType, flat_types, is_dynamic, known_tensors, tensors_of
from tilewright.relay.ty import TensorType

A, B = TensorType((2, 3), "float32"), TensorType((4,), "int64")
OPEN = TensorType((tvm.relay.Any(), 3), "float32")
CELL = RefType(A)


def test_nested_tuples_are_flattened_in_order() -> None:
    assert flat_types(TupleType([A, TupleType([B, CELL])])) == [A, B, CELL]
    assert flat_types(A) == [A]


def test_tensors_of_leaves_other_types_out() -> None:
    assert tensors_of(TupleType([A, CELL, B])) == [A, B]
    assert tensors_of(CELL) == []


def test_known_tensors_is_none_where_an_extent_or_a_type_is_unknown() -> None:
    assert known_tensors(TupleType([A, B])) == [A, B]
    assert known_tensors(TupleType([])) == []
    assert known_tensors(TupleType([A, OPEN])) is None
    assert known_tensors(CELL) is None
    assert known_tensors(None) is None


def test_a_type_is_dynamic_where_one_of_its_tensors_is() -> None:
    assert is_dynamic(TupleType([A, TupleType([OPEN])]))
    assert not is_dynamic(TupleType([A, B]))
