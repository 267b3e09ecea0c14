"""An operator is one typed declaration, from which its builder is derived: the counts that hold it."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tilewright.ir.attrs import Attrs
from tilewright.ir.op import Op
from tilewright.relay.op.builder import READERS

OPERATORS = Path(__file__).parents[2] / "src" / "tilewright" / "relay" / "op"
MOST_ANY = 0.08
_READERS = {"int", "float", "bool", "str", "ints", "floats", "pair", "pairs", "padding", "padding_of", "axes", "dims",
            "whole_int", "static_ints", "tuple_operand", "operand"}  # fmt: skip


@cache
def trees() -> dict[str, ast.Module]:
    """The syntax tree of every file of operators."""
    return {str(p.relative_to(OPERATORS)): ast.parse(p.read_text()) for p in OPERATORS.rglob("*.py")}


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Every function of a file."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def parameters(function: ast.FunctionDef) -> list[ast.arg]:
    """The parameters that a caller gives."""
    found = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return [p for p in found if p.arg not in ("self", "cls")]


def _argument(node: ast.expr) -> str | None:
    """The parameter that the expression hands on, read as its type says; None for another expression."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.BoolOp(op=ast.Or(), values=[first, ast.Constant()]):
            return _argument(first)
        case ast.IfExp(body=ast.Constant(value=None), orelse=value):
            return _argument(value)
        case ast.Call(func=ast.Name(id=reader), args=[value, *_]) if reader in _READERS:
            return _argument(value)
    return None


def restates_fields(function: ast.FunctionDef) -> bool:
    """Whether the function only hands its parameters, under their own names, to a declared operator."""
    body = [n for n in function.body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))]
    if not body or not isinstance(body[-1], ast.Return) or (len(body) > 1 and not isinstance(body[0], ast.Assign)):
        return False
    match body[-1].value:
        case ast.Call(func=ast.Name(id="call"), args=[ast.Constant(value=name), ast.List(elts=arguments), *_]):
            operands = [_argument(e) for e in arguments]
        case _:
            return False
    made = [n for b in body for n in ast.walk(b) if isinstance(n, ast.Call) and ast.unparse(n.func).endswith("Attrs")]
    values = [_argument(e) for n in made for e in [*n.args, *(k.value for k in n.keywords)]]
    declared = Op.get(str(name)).get_attr("OpDef")
    fields = () if declared.attrs_type is None else declared.attrs_type._fields
    known = set(declared.inputs or ()) | set(fields)
    return len(body) <= 2 and {*operands, *values} <= known


def test_few_parameters_are_plain_any() -> None:
    found = [p for tree in trees().values() for f in functions(tree) for p in parameters(f)]
    plain = sum(p.annotation is not None and ast.unparse(p.annotation) in ("Any", "AnyType") for p in found)
    what = f"{plain} of {len(found)} parameters are Any: name the class of the attributes, TypeSolver, Target, ..."
    assert plain < MOST_ANY * len(found), what


def test_no_builder_restates_the_fields_of_a_declaration() -> None:
    found = [f"{file}: {f.name}" for file, tree in trees().items() for f in functions(tree) if restates_fields(f)]
    assert not found, f"write name = builder(Declaration) instead: {found}"


@pytest.mark.parametrize(
    ("text", "restates"),
    [
        ('def prelu(data, alpha, axis=1):\n    return call("nn.prelu", [data, alpha], PReluAttrs(int(axis)))', True),
        ('def floor(data):\n    """Floor."""\n    return call("floor", [data])', True),
        ('def relu6(data):\n    return call("clip", [data], ClipAttrs(0.0, 6.0))', False),
        ('def twice(data):\n    return call("add", [data, data])', False),
    ],
)
def test_a_builder_that_restates_fields_is_found(text: str, restates: bool) -> None:
    assert any(map(restates_fields, functions(ast.parse(text)))) == restates


def _declared_name(line: ast.stmt) -> str | None:
    match line:
        case ast.Assign(targets=[ast.Name(id="name")], value=ast.Constant(value=str(name))) if name in Op.registry:
            return name
    return None


def test_each_operator_is_declared_once() -> None:
    classes = [node for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    names = Counter(name for node in classes for line in node.body if (name := _declared_name(line)))
    assert len(names) > 100 and [name for name, count in names.items() if count > 1] == []


def test_builders_read_only_types_that_some_declaration_has() -> None:
    fields = {kind for cls in _attribute_classes(Attrs) for kind in vars(cls).get("__annotations__", {}).values()}
    assert set(READERS) - fields == set()


def _attribute_classes(base: type[Attrs]) -> Iterator[type[Attrs]]:
    for cls in base.__subclasses__():
        yield cls
        yield from _attribute_classes(cls)
