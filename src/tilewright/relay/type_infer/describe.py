"""Types as text for error messages, in the form that the Relay text uses."""

from __future__ import annotations

from tilewright.ir.prim_expr import Any, IntImm, PrimExpr
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


def describe_dim(dim: PrimExpr) -> str:
    """Return the text of a dimension: its number, ``?`` when it is unknown, else the expression."""
    if isinstance(dim, IntImm):
        return str(dim.value)
    return "?" if isinstance(dim, Any) else repr(dim)


def describe_shape(shape: tuple[PrimExpr, ...]) -> str:
    """Return a shape as ``(1, 3, ?)``."""
    return f"({', '.join(describe_dim(d) for d in shape)})"


def describe(type_: Type | None, depth: int = 12) -> str:
    """Return a type as ``Tensor[(1, 3), float32]``, ``fn (int32) -> bool``, ``List[int32]``; a hole is ``?``.

    Types nested deeper than ``depth`` are left out, so that messages stay short.
    """
    if depth == 0 and isinstance(type_, (TupleType, FuncType, RefType, TypeCall)):
        return "..."

    def inner(part: Type) -> str:
        return describe(part, depth - 1)

    match type_:
        case TensorType():
            return f"Tensor[{describe_shape(type_.shape)}, {type_.dtype}]" if type_.shape else type_.dtype
        case TupleType():
            return f"({', '.join(map(inner, type_.fields))}{',' if len(type_.fields) == 1 else ''})"
        case FuncType():
            params = f"[{', '.join(v.name_hint for v in type_.type_params)}]" if type_.type_params else ""
            return f"fn {params}({', '.join(map(inner, type_.arg_types))}) -> {inner(type_.ret_type)}"
        case RefType():
            return f"ref({inner(type_.value)})"
        case TypeCall():
            args = f"[{', '.join(map(inner, type_.args))}]" if type_.args else ""
            return f"{inner(type_.func)}{args}"
        case TypeVar() | GlobalTypeVar():
            return type_.name_hint
        case IncompleteType() | None:
            return "?"
        case _:
            return str(type_)
