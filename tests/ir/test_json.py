"""The JSON form of nodes: TVM's layout, round trips, and refusal of what is damaged."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tilewright import te
from tilewright.ir.attrs import DictAttrs
from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import GlobalVar
from tilewright.ir.json import load_json, save_json
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import Any as AnyDim
from tilewright.ir.prim_expr import FloatImm, IntImm, Select, SizeVar
from tilewright.ir.span import SourceName, Span
from tilewright.ir.structural import assert_structural_equal
from tilewright.ir.type import FuncType, GlobalTypeVar, RefType, TensorType, TupleType, TypeCall, TypeVar
from tilewright.parser import parse
from tilewright.relay.expr import Call, Constant, Function, Var, const
from tilewright.te.lower import lower
from tilewright.testing.tir_interpreter import run

GOLDEN = Path(__file__).parents[1] / "golden" / "relay" / "constant_with_metadata.txt"
ADD = Op.get_or_register("add")


def round_trip(value: object) -> object:
    again = load_json(save_json(value))
    assert_structural_equal(again, value, map_free_vars=True)
    assert save_json(again) == save_json(value)
    return again


def test_the_metadata_section_has_tvm_s_layout() -> None:
    recorded = GOLDEN.read_text().split("#[metadata]\n")[1]
    values = np.arange(6, dtype="float32").reshape(2, 3)
    constant = const(values).with_checked_type(TensorType((2, 3)))
    assert save_json({"relay.Constant": [constant]}) == recorded


def test_tvm_s_own_metadata_is_read() -> None:
    table = load_json(GOLDEN.read_text().split("#[metadata]\n")[1])
    (constant,) = table["relay.Constant"]
    assert isinstance(constant, Constant)
    np.testing.assert_array_equal(constant.data.numpy(), np.arange(6, dtype="float32").reshape(2, 3))
    assert constant.checked_type == TensorType((2, 3))


def test_types_round_trip() -> None:
    a, n = TypeVar("a"), SizeVar("n")
    tensor = TensorType((1, n, AnyDim()), "int8")
    box = TypeCall(GlobalTypeVar("Box"), [a])
    round_trip(FuncType([tensor, RefType(box)], TupleType([tensor, a]), [a]))


def test_scalar_expressions_round_trip() -> None:
    n = SizeVar("n")
    round_trip((Select(n < 3, n * 2 + 1, n // 2), FloatImm("float32", 0.1), IntImm("int64", 5)))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8", "int64", "bool", "bfloat16"])
def test_constants_of_every_dtype_round_trip(dtype: str) -> None:
    round_trip(const(np.array([[0, 1, 1]]), dtype))


def test_empty_and_scalar_arrays_round_trip() -> None:
    round_trip(const(np.zeros((0, 3), "float32")))
    round_trip(const(1.5))


def test_modules_round_trip() -> None:
    text = """
type List[A] { Cons(A, List[A]), Nil }
def @length[A](%xs: List[A]) -> int32 {
  match (%xs) { Cons(_, %rest) => { add(1, @length(%rest)) }, Nil => { 0 } }
}
def @main(%x: int32, Primitive=1, Compiler="c") {
  let %cell = ref(%x);
  if (True) { (ref_read(%cell), %x).0 } else { ref_write(%cell, 2); %x }
}
"""
    mod = parse(text)
    again = round_trip(mod)
    assert isinstance(again, IRModule)
    assert str(again) == str(mod)


def test_sharing_and_inferred_types_survive() -> None:
    tensor = TensorType((2,))
    x = Var("x", tensor)
    once = Call(ADD, [x, x]).with_checked_type(tensor)
    again = load_json(save_json(Function([x], Call(ADD, [once, once]))))
    assert again.body.args[0] is again.body.args[1]
    assert again.body.args[0].checked_type == tensor


def test_attributes_of_functions_are_plain_values() -> None:
    attrs = DictAttrs(
        {"a": 1, "b": True, "c": 0.25, "d": "text", "e": (1, (2, "x")), "f": None, "g": 2**40, "h": {"i": 3}}
    )
    again = load_json(save_json(attrs))
    assert dict(again.items()) == dict(attrs.items())
    assert type(again["b"]) is bool


def test_spans_are_kept() -> None:
    span = Span(SourceName("file"), 3, 4, 5, 6)
    again = load_json(save_json(GlobalVar("f", span)))
    assert again.span.source_name.name == "file"
    assert (again.span.line, again.span.end_column) == (3, 6)


def test_copies_of_a_variable_that_share_its_identifier_are_one_variable() -> None:
    x = Var("x", TensorType((2,)))
    document = json.loads(save_json((x, x)))
    nodes = document["nodes"]
    copy = next(dict(n) for n in nodes if n["type_key"] == "relay.Var")
    nodes.append(copy)
    nodes[document["root"]]["data"][1] = len(nodes) - 1
    first, second = load_json(json.dumps(document))
    assert first is second


def test_long_chains_do_not_recurse() -> None:
    x = Var("x")
    body: object = x
    for _ in range(4_000):
        body = Call(ADD, [body, x])  # type: ignore[list-item]
    func = Function([x], body)  # type: ignore[arg-type]
    assert_structural_equal(load_json(save_json(func)), func)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "not a graph of nodes"),
        ('{"root": 1, "nodes": [{"type_key": ""}]}', "damaged"),
        (
            '{"root": 1, "nodes": [{"type_key": ""}, {"type_key": "os.system", "attrs": {}}]}',
            "'os.system' is not known",
        ),
        ('{"root": 1, "nodes": [{"type_key": ""}, {"type_key": "Array", "data": [1]}]}', "contains itself"),
        ('{"root": 1, "nodes": [{"type_key": ""}, {"type_key": "relay.Constant", "attrs": {"data": "0"}}]}', "damaged"),
        (
            '{"root": 1, "nodes": [{"type_key": ""}, {"type_key": "relay.Constant", "attrs": {"data": "0"}}],'
            ' "b64ndarrays": ["AAAA"]}',
            "cut short",
        ),
    ],
)
def test_damaged_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(TilewrightError, match=message):
        load_json(text)


def test_what_cannot_be_written_is_named() -> None:
    with pytest.raises(TilewrightError, match=r"a set .* cannot be written"):
        save_json(DictAttrs({"a": {1, 2}}))


def document(version: str, *nodes: dict) -> str:
    return json.dumps({"root": 1, "nodes": [{"type_key": ""}, *nodes], "attrs": {"tvm_version": version}})


def test_names_are_nodes_as_in_tvm() -> None:
    text = save_json(GlobalVar("f"))
    nodes = json.loads(text)["nodes"]
    assert nodes[int(nodes[1]["attrs"]["name_hint"])] == {"type_key": "runtime.String", "repr_str": "f"}
    assert load_json(save_json(Var("7"))).name_hint == "7"


def test_names_in_place_of_nodes_are_read_too() -> None:
    assert load_json(document("0.8.0", {"type_key": "GlobalVar", "attrs": {"name_hint": "f"}})).name_hint == "f"


def test_documents_of_tvm_06_are_read() -> None:
    variable = {"type_key": "Variable", "attrs": {"dtype": "int32", "name": "n"}}
    assert load_json(document("0.6.0", variable)).name == "n"
    type_var = {"type_key": "relay.TypeVar", "attrs": {"kind": "0", "span": "0", "var": "2"}}
    assert load_json(document("0.6.0", type_var, variable)).name_hint == "n"
    assert load_json(document("0.6.0", {"type_key": "relay.Op", "global_key": "nn.relu"})).name == "nn.relu"
    pair, name = {"type_key": "StrMap", "keys": ["b"], "data": [2]}, {"name_hint": "g"}
    loaded = load_json(document("0.6.0", pair, {"type_key": "relay.GlobalVar", "attrs": name}))
    assert loaded["b"].name_hint == "g"
    total = {"type_key": "Max", "attrs": {"a": "2", "b": "2", "dtype": "int32"}}
    assert repr(load_json(document("0.6.0", total, variable))) == "max(n, n)"


def test_tensors_and_what_computes_them() -> None:
    a = te.placeholder((3, 5), name="A")
    k = te.reduce_axis((0, 5), name="k")
    b = te.compute((3,), lambda i: te.sum(a[i, k], axis=k), name="B", attrs={"layout": "N", "sizes": [1, 2]})
    again = load_json(save_json(b))
    assert again is again.op.output(0)
    assert again.op.attrs["sizes"] == (1, 2) and again.op.input_tensors[0].name == "A"
    assert str(again.op.body) == str(b.op.body)
    assert again.op.body[0].axis == again.op.reduce_axis


def test_functions_of_loops() -> None:
    a = te.placeholder((10,), name="A")
    b = te.compute((10,), lambda i: te.if_then_else(i < 7, a[i] * 2.0, 1.0), name="B")
    s = te.create_schedule(b.op)
    s[b].vectorize(s[b].split(b.op.axis[0], 4)[1])
    func = lower(s, [a, b])["main"]
    again = load_json(save_json(func))
    assert_structural_equal(again, func)
    data, result = np.arange(10, dtype="float32"), np.zeros(10, "float32")
    run(again, data, result)
    np.testing.assert_array_equal(result, np.where(np.arange(10) < 7, data * 2, 1))
