"""Parts of Relay's library are taken over by TVM's names of their files."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay


def test_a_module_takes_over_a_part_of_the_library() -> None:
    mod = tvm.parser.fromtext('#[version = "0.0.5"]\ndef @main(%x: int32) { %x }')
    mod.import_from_std("core.rly")
    mod.import_from_std("prelude.rly")
    assert {"Storage", "List", "Option"} <= {v.name_hint for v in mod.type_definitions}
    assert mod.contains_global_var("main") and mod.contains_global_var("map")
    with pytest.raises(ValueError, match=r"no 'nowhere.rly'; it has prelude.rly, core.rly, nat.rly, gradient.rly"):
        mod.import_from_std("nowhere.rly")


def test_the_library_has_types() -> None:
    mod = tvm.IRModule()
    mod.import_from_std("nat.rly")
    nat, items = mod.get_type("nat")[0], mod.get_type("List")[0]
    assert mod["nat_add"].checked_type == relay.FuncType([nat(), nat()], nat())
    a = relay.TypeVar("a")
    assert mod["length"].checked_type == relay.FuncType([items(a)], relay.scalar_type("int32"), [a])
    assert relay.Prelude().mod["map"].checked_type.type_params


def test_programs_use_types_that_are_defined_elsewhere() -> None:
    core = tvm.IRModule()
    core.import_from_std("core.rly")
    mod = tvm.parser.parse('#[version = "0.0.5"]\ndef @main(%s: Storage[]) { %s }', "from_string", core)
    assert "%s: Storage[]" in str(mod)


def _list(prelude: relay.Prelude, values: list) -> relay.RelayExpr:
    found = prelude.nil()
    for value in reversed(values):
        found = prelude.cons(relay.const(value), found)
    return found


def _python(value: object) -> object:
    """What an interpreter's value is in Python: lists and pairs of numbers."""
    if isinstance(value, (tuple, list, tvm.runtime.ADT)):
        return tuple(_python(item) for item in value)
    if isinstance(value, tvm.nd.NDArray):
        return int(value.numpy())
    fields = [_python(item) for item in value.fields]
    return [fields[0], *fields[1]] if fields else []


FUNCTIONS = """
def @plus(%a: int32, %b: int32) -> int32 { add(%a, %b) }
def @minus(%a: int32, %b: int32) -> int32 { subtract(%a, %b) }
def @both(%a: int32, %b: int32) -> (int32, int32) { (add(%a, %b), multiply(%a, %b)) }
def @twice(%a: int32) -> int32 { add(%a, %a) }
def @down(%n: int32) -> Option[(int32, int32)] {
  if (equal(%n, 0)) { None } else { Some((subtract(%n, 1), multiply(%n, %n))) }
}
"""


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("@foldr1(@minus, %xs)", 3 - (1 - 4)),
        ("@sum(%xs)", 8),
        ("@update(%xs, 1, 7)", [3, 7, 4]),
        ("@zip(%xs, @tl(%xs))", [(3, 1), (1, 4)]),
        ("@map_accuml(@both, 1, %xs)", (9, [20, 4, 3])),
        ("@map_accumr(@both, 1, %xs)", (9, [18, 5, 4])),
        ("@unfoldr(@down, 3)", [9, 4, 1]),
        ("@unfoldl(@down, 3)", [1, 4, 9]),
        ("@iterate(@twice, 5)(3)", 96),
        ("@flip(@minus)(3, 10)", 7),
        ("@size(@tmap(@twice, Rose(1, Cons(Rose(2, Nil), Cons(Rose(3, Nil), Nil)))))", 3),
    ],
)
def test_functions_on_lists_and_trees(program: str, expected: object) -> None:
    mod = tvm.IRModule()
    prelude = relay.Prelude(mod)
    result = tvm.parser.parse(f"def @main(%xs: List[int32]) {{ {program} }}{FUNCTIONS}", "test", mod)
    call = relay.Call(result.get_global_var("main"), [_list(prelude, [3, 1, 4])])
    assert _python(relay.create_executor("debug", result).evaluate(call)) == expected


def test_numbers_by_counting() -> None:
    mod = tvm.IRModule()
    mod.import_from_std("nat.rly")
    _, zero, succ = mod.get_type("nat")
    two = succ(succ(zero()))
    program = "def @twice(%x: int32) { add(%x, %x) }\ndef @main(%n: nat) { @nat_iterate(@twice, @nat_double(%n))(3) }"
    result = tvm.parser.parse(program, "test", mod)
    call = relay.Call(result.get_global_var("main"), [two])
    assert relay.create_executor("debug", result).evaluate(call).numpy() == 48


@pytest.mark.parametrize(("left", "right", "expected"), [("Zero", "Raw", 0), ("One", "Raw", 3), ("Raw", "Raw", 9)])
def test_products_of_gradients_that_are_zero_or_one(left: str, right: str, expected: int) -> None:
    mod = tvm.IRModule()
    mod.import_from_std("gradient.rly")
    cells = {"Zero": "Zero(fn () { 0 })", "One": "One(fn () { 1 })", "Raw": "Raw(3)"}
    program = f"""
    def @times(%a: int32, %b: int32) -> int32 {{ multiply(%a, %b) }}
    def @main() -> int32 {{ @FromGradCell(@MultiplyGradCell(@times, {cells[left]}, {cells[right]})) }}
    """
    result = tvm.parser.parse(program, "test", mod)
    np.testing.assert_equal(relay.create_executor("debug", result).evaluate()().numpy(), expected)


def test_tags_tell_constructors_apart() -> None:
    first, second = (relay.Prelude(tvm.IRModule()).mod for _ in range(2))
    constructors = [c for data in first.type_definitions.values() for c in data.constructors]
    assert len({c.tag for c in constructors}) == len(constructors)
    assert [second.get_constructor(c.tag).name_hint for c in constructors] == [c.name_hint for c in constructors]
    with pytest.raises(tvm.TVMError, match="no data constructor with the tag 1"):
        first.get_constructor(1)


def test_constructors_made_by_hand_match_by_their_name() -> None:
    header = relay.GlobalTypeVar("Sign")
    plus, minus = (relay.Constructor(name, [], header) for name in ("Plus", "Minus"))
    mod = tvm.IRModule()
    mod[header] = relay.TypeData(header, [], [plus, minus])
    clauses = [relay.Clause(relay.PatternConstructor(c), relay.const(v)) for c, v in ((plus, 1), (minus, -1))]
    mod["main"] = relay.Function([], relay.Match(minus(), clauses))
    assert relay.create_executor("debug", mod).evaluate()().numpy() == -1
