"""``tvm.runtime.convert`` with the compiler loaded: numbers are literals, containers know TVM's type keys."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import tilewright as tvm
from tilewright import tir


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (3, "int32"),
        (2**40, "int64"),
        (1.5, "float32"),
        (True, "bool"),
        (np.uint8(7), "uint8"),
        (np.float64(2), "float64"),
    ],
)
def test_numbers_become_literals(value: object, dtype: str) -> None:
    made = tvm.runtime.convert(value)
    assert made.dtype == dtype
    assert made.value == value


def test_containers_hold_literals() -> None:
    x = tir.Var("x")
    array = tvm.convert([1, [2, x], "text"])
    assert array.type_key == "Array"
    assert array[0].value == 1
    assert array[1][0].value == 2
    assert array[1][1] is x
    assert array[2] == "text"
    table = tvm.convert({"a": 2, x: [3]})
    assert table.type_key == "Map"
    assert table["a"].value == 2
    assert table[x][0].value == 3
    assert tvm.ir.load_json(tvm.ir.save_json(array))[1][0].value == 2


def test_functions_and_nodes_stay_what_they_are() -> None:
    x = tir.Var("x")
    assert tvm.convert(x) is x
    assert isinstance(tvm.convert([lambda: 4])[0], tvm.runtime.PackedFunc)
    assert tvm.convert(None) is None


def test_literals_are_arguments_of_packed_functions() -> None:
    assert tvm.get_global_func("runtime.GetADTSize")(tvm.runtime.container.ADT(tvm.convert(1), [])) == 0
    a = tvm.te.placeholder((tvm.convert(4),), name="a")
    assert [int(d) for d in a.shape] == [4]


def test_a_runtime_alone_keeps_pythons_values() -> None:
    script = "import tilewright.runtime as r; assert r.convert([1]) == [1] and type(r.convert(1)) is int"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_pairs_of_a_mapping_are_counted() -> None:
    mapping = tvm.runtime.convert({"a": 1, "b": 2})
    assert mapping.items()[1] == ("b", 2)
    assert dict(mapping.items()) == mapping
    assert len(mapping.items()) == 2


def test_functions_of_a_module_are_counted() -> None:
    func = tir.PrimFunc([], tir.Evaluate(0))
    mod = tvm.IRModule({"f": func})
    assert mod.functions.items()[0] == (mod.get_global_var("f"), func)
    assert mod._move() is mod


def test_integers_of_free_form_attributes_are_read_as_literals_too() -> None:
    attrs = tvm.ir.make_node("DictAttrs", kind=1, names=["a", "b"], sizes=[3, [4]], exact=True)
    assert attrs["kind"] == 1
    assert attrs["kind"].value == attrs.kind.value == attrs.get("kind").value == 1
    assert attrs["sizes"][1][0].value == 4
    assert attrs["exact"] is True
    assert next(iter(attrs.items())) == ("kind", 1)
    assert not hasattr(attrs, "kinds")


def test_the_text_of_free_form_attributes_is_json() -> None:
    given = {"kind": 1, "text": 'a "b"', "sizes": [3, [4.5]], "exact": True, "nothing": None}
    assert json.loads(str(tvm.ir.make_node("DictAttrs", **given))) == given


def test_attributes_are_made_by_name_and_refused_by_field() -> None:
    made = tvm.ir.make_node("attrs.TestAttrs", name="xx", padding=(3, 4))
    assert (made.name, made.axis, [p.value for p in made.padding]) == ("xx", 10, [3, 4])
    assert tvm.ir.structural_equal(tvm.ir.load_json(tvm.ir.save_json(made)), made)
    with pytest.raises(AttributeError, match=r"TestAttrs has no field 'axes'; it has axis, name, padding, func"):
        tvm.ir.make_node("attrs.TestAttrs", axes=1)
    with pytest.raises(AttributeError, match=r"axis is 11; it is at most 10"):
        tvm.ir.make_node("attrs.TestAttrs", axis=11)


def test_compiled_code_takes_what_packed_functions_give() -> None:
    assert tvm.testing.echo("a") == "a"
    assert tvm.get_global_func("tir.const_true")("int8", None).dtype == "int8"


def test_type_definitions_of_a_module_are_counted() -> None:
    mod = tvm.IRModule()
    kind = tvm.relay.GlobalTypeVar("Kind")
    data = tvm.relay.TypeData(kind, [], [])
    mod[kind] = data
    assert mod.type_definitions.items()[0] == (kind, data)


def test_a_value_may_hold_what_only_python_knows() -> None:
    one = tvm.relay.const(1)
    inner = tvm.nd.array(np.float32([1, 2]))
    value = tvm.runtime.container.tuple_object([one, tvm.runtime.container.ADT(3, [inner])])
    assert value[0] is one
    assert (len(value), value.tag, value[1].tag) == (2, 0, 3)
    np.testing.assert_array_equal(value[-1][0].numpy(), inner.numpy())
    with pytest.raises(tvm.TVMError, match="expected a tensor"):
        tvm.get_global_func("runtime.GetADTSize")(value)
