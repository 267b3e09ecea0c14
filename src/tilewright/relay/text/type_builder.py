"""From the parse tree to types, and the base of both builders: spans, errors, the metadata table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir.attrs import Attrs
from tilewright.ir.diagnostics import DiagnosticContext, SourceText
from tilewright.ir.json_schema import attribute_class
from tilewright.ir.module import IRModule
from tilewright.ir.prim_expr import Any as AnyDim
from tilewright.ir.prim_expr import IntImm, PrimExpr
from tilewright.ir.prim_expr import Var as ScalarVar
from tilewright.ir.span import Span
from tilewright.ir.trampoline import Steps
from tilewright.ir.type import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeVar,
)
from tilewright.relay.text.lexer import Token
from tilewright.relay.text.literals import literal_number
from tilewright.relay.text.syntax import Tree

Node = Any  # a Tree of the parser; its children are trees or tokens as the grammar says


class TypeBuilder:
    """Builder of types; resolves type variables, names of data types, and symbolic dimensions."""

    def __init__(
        self, source: SourceText, module: IRModule, meta: Mapping[str, Sequence[Any]], diagnostics: DiagnosticContext
    ) -> None:
        self.source = source
        self.module = module
        self.meta = meta
        self.diagnostics = diagnostics
        self.defined: set[str] = set()
        self.type_scopes: list[dict[str, TypeVar]] = []
        self.type_names = {v.name_hint: v for v in module.type_definitions}
        self.sizes: dict[str, ScalarVar] = {}
        self.attribute_places: dict[str, Node] = {}

    def span(self, place: Node | Token) -> Span:
        """Return the span of a part of the tree."""
        return self.source.span(place.start, place.stop) if place.start >= 0 else Span(self.source)

    def error(self, place: Node | Token, message: str) -> None:
        """Report a problem."""
        self.diagnostics.error(self.span(place), message)

    def meta_node(self, tree: Node) -> Any:
        """Return ``meta[key][index]``, or None after reporting that the section has no such entry."""
        key, index = str(tree.children[0]), int(literal_number(tree.children[1])[0])
        entries = self.meta.get(key, ())
        if not 0 <= index < len(entries):
            found = f"it has {len(entries)} of {key}" if self.meta else "there is no metadata section"
            self.error(tree, f"meta[{key}][{index}] is not in the metadata: {found}")
            return None
        return entries[index]

    def attributes_class(self, tree: Node, key: str) -> type[Attrs] | None:
        """Return the attributes class called ``key``."""
        try:
            return attribute_class(key)
        except ValueError as error:
            self.error(tree, str(error))
            return None

    @contextmanager
    def type_variables(self, tree: Node | None) -> Iterator[list[TypeVar]]:
        """Declare the variables ``[A, B]``, in scope while the context lasts."""
        variables = [] if tree is None else [TypeVar(str(name)) for name in tree.children]
        self.type_scopes.append({v.name_hint: v for v in variables})
        try:
            yield variables
        finally:
            self.type_scopes.pop()

    def global_type_var(self, name: str) -> GlobalTypeVar:
        """Return the unique GlobalTypeVar of that name."""
        if name not in self.type_names:
            self.type_names[name] = GlobalTypeVar(name)
        return self.type_names[name]

    def any_dimension(self) -> PrimExpr:
        """Build ``?``."""
        return AnyDim()

    def type(self, tree: Node) -> Steps[Type]:
        """Build any type, as steps for the trampoline."""
        span = self.span(tree)
        match tree.data:
            case "tensor_type":
                *dimensions, dtype = tree.children
                return TensorType([self.dimension(d) for d in dimensions], self.dtype(dtype), span)
            case "named_type":
                return self.named_type(tree.children[0], span)
            case "tuple_type":
                return TupleType((yield self.types(tree.children)), span)
            case "type_call":
                arguments = yield self.types(tree.children[1:])
                return TypeCall(self.named_type(tree.children[0], span), arguments, span)
            case "function_type":
                parts = list(tree.children)
                variables = parts.pop(0) if parts[0].data == "type_params" else None
                with self.type_variables(variables) as bound:
                    *params, returned = yield self.types(parts)
                return FuncType(params, returned, bound, span=span)
            case _:
                return RefType((yield self.type(tree.children[0])), span)

    def types(self, trees: Sequence[Node]) -> Steps[list[Type]]:
        """Build several types, in order."""
        result = []
        for tree in trees:
            result.append((yield self.type(tree)))
        return result

    def named_type(self, token: Token, span: Span) -> Type:
        """Build a type variable in scope, a scalar data type, ``_``, or an algebraic data type."""
        name = str(token)
        for scope in reversed(self.type_scopes):
            if name in scope:
                return scope[name]
        if name == "_":
            return IncompleteType(span=span)
        if _is_dtype(name):
            return TensorType((), name, span)
        return self.global_type_var(name)

    def dtype(self, token: Token) -> str:
        """Return an element type."""
        if not _is_dtype(str(token)):
            self.error(token, f"{token} is no data type; expected for example float32, int8 or bool")
            return "float32"
        return str(token)

    def dimension(self, item: Node | Token) -> PrimExpr:
        """Build ``3``, ``?``, a symbolic size by name, or an expression of the metadata."""
        if isinstance(item, Tree):
            found = self.meta_node(item)
            if isinstance(found, PrimExpr):
                return found
            if found is not None:
                self.error(item, f"the metadata holds a {type(found).__name__} here, a dimension is wanted")
            return AnyDim()
        if item.type == "ANY":
            return AnyDim()
        if item.type == "NAME":
            return self.sizes.setdefault(str(item), ScalarVar(str(item), "int32"))
        value, dtype = literal_number(item)
        if dtype == "int32" or value >= 2**31:
            return IntImm("int32" if value < 2**31 else "int64", value)
        return IntImm(dtype, value)


def _is_dtype(name: str) -> bool:
    try:
        return dt.parse(name).kind not in ("void", "handle")
    except ValueError:
        return False
