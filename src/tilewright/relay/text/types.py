"""Text of types, attribute values and literals, and the table of nodes that only the metadata section can hold."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tilewright.ir import trampoline
from tilewright.ir.json import type_key_of
from tilewright.ir.node import Node
from tilewright.ir.prim_expr import Any as AnyDim
from tilewright.ir.prim_expr import FloatImm, IntImm, PrimExpr
from tilewright.ir.trampoline import Steps
from tilewright.ir.type import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    PointerType,
    PrimType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeVar,
)
from tilewright.relay.adt import TypeData

# The scalar dtypes whose constants have a literal, and the suffix of the dtype.
LITERAL_SUFFIX = {
    "bool": "", "int16": "i16", "int32": "", "int64": "i64", "float16": "f16", "float32": "f", "float64": "f64",
}  # fmt: skip


class MetaTable:
    """Nodes that have no text of their own, numbered within their type: ``meta[relay.Constant][0]``."""

    def __init__(self) -> None:
        self.nodes: dict[str, list[Any]] = {}
        self._references: dict[int, str] = {}

    def __bool__(self) -> bool:
        return bool(self.nodes)

    def reference(self, node: Any) -> str:
        """Return the reference to ``node``; the same for the same object."""
        found = self._references.get(id(node))
        if found is None:
            key = type_key_of(node)
            listed = self.nodes.setdefault(key, [])
            listed.append(node)
            found = self._references[id(node)] = f"meta[{key}][{len(listed) - 1}]"
        return found


def quote(text: str) -> str:
    """Return ``text`` as a string literal."""
    return json.dumps(text, ensure_ascii=False)


_FLOAT_TYPES: dict[str, Any] = {"float16": np.float16, "float32": np.float32}


def float_text(value: float, dtype: str = "float64") -> str:
    """Return the shortest text of at least 6 digits, TVM's precision, that reads back as the same ``dtype`` value.

    TVM always writes 6 digits and loses the others.
    """
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    cast = _FLOAT_TYPES.get(dtype, np.float64)
    with np.errstate(all="ignore"):
        exact = cast(value)
        for digits in range(6, 18):
            text = f"{value:.{digits}g}"
            if cast(float(text)) == exact:
                return text
    return repr(value)


def scalar_literal(value: Any, dtype: str) -> str:
    """Return the text of a scalar constant: ``1``, ``1i64``, ``0.5f``, ``True``."""
    if dtype == "bool":
        return "True" if value else "False"
    text = float_text(float(value), dtype) if dtype.startswith("float") else str(int(value))
    return text + LITERAL_SUFFIX[dtype]


def attribute_value(value: Any, meta: MetaTable, exact: bool) -> str:
    """Return the text of an attribute's value; nodes without a text of their own go to the metadata section."""
    return trampoline.run(_attribute_value(value, meta, exact))


def _attribute_value(value: Any, meta: MetaTable, exact: bool) -> Steps[str]:
    if isinstance(value, (bool, np.bool_)):
        return "True" if value else "False"
    if value is None or isinstance(value, (int, np.integer)):
        return str(value)
    if isinstance(value, (float, np.floating)):
        return float_text(float(value)) + "f"
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, (tuple, list)):
        parts = []
        for item in value:
            parts.append((yield _attribute_value(item, meta, exact)))
        return f"[{', '.join(parts)}]"
    if isinstance(value, dict):
        parts = []
        for key, item in value.items():
            parts.append(f"{quote(str(key))}: " + (yield _attribute_value(item, meta, exact)))
        return "{" + ", ".join(parts) + "}"
    if isinstance(value, PrimExpr):
        return dimension(value, meta, exact)
    if isinstance(value, Node) or type(value).__name__ == "NDArray":
        return meta.reference(value)
    return quote(str(value))


def dimension(value: PrimExpr, meta: MetaTable, exact: bool) -> str:
    """Return the text of a dimension: a number, ``?``, or a symbolic expression, exact only through metadata."""
    if isinstance(value, IntImm) and value.dtype in ("int32", "int64"):
        return f"{value.value}{LITERAL_SUFFIX[value.dtype]}"
    if isinstance(value, AnyDim):
        return "?"
    if exact or isinstance(value, (IntImm, FloatImm)):
        return meta.reference(value)
    return repr(value)


def comma_separated(parts: Iterable[str], count: int = 0) -> str:
    """Return ``a, b, c``; a single item of a tuple (``count`` 1) keeps a comma."""
    return ", ".join(parts) + ("," if count == 1 else "")


def type_steps(value: Type, meta: MetaTable, exact: bool) -> Steps[str]:
    """Return the text of a type, as steps for ``trampoline.run``."""
    match value:
        case TensorType():
            if not value.shape:
                return value.dtype
            return f"Tensor[({', '.join(dimension(d, meta, exact) for d in value.shape)}), {value.dtype}]"
        case TupleType():
            return f"({comma_separated((yield _type_list(value.fields, meta, exact)), len(value.fields))})"
        case FuncType():
            params = yield _type_list(value.arg_types, meta, exact)
            returned = yield type_steps(value.ret_type, meta, exact)
            variables = f"[{', '.join(v.name_hint for v in value.type_params)}]" if value.type_params else ""
            return f"fn {variables}({', '.join(params)}) -> {returned}"
        case RefType():
            return f"ref({(yield type_steps(value.value, meta, exact))})"
        case TypeVar() | GlobalTypeVar():
            return value.name_hint
        case TypeCall():
            function = yield type_steps(value.func, meta, exact)
            return f"{function}[{', '.join((yield _type_list(value.args, meta, exact)))}]"
        case TypeData():
            return (yield _type_data(value, meta, exact))
        case IncompleteType():
            return "_"
        case PrimType():
            return value.dtype
        case PointerType():
            scope = f"{value.storage_scope} " if value.storage_scope else ""
            return f"Pointer({scope}{(yield type_steps(value.element_type, meta, exact))})"
        case _:
            return meta.reference(value)


def _type_list(values: Sequence[Type], meta: MetaTable, exact: bool) -> Steps[list[str]]:
    parts = []
    for value in values:
        parts.append((yield type_steps(value, meta, exact)))
    return parts


def _type_data(data: TypeData, meta: MetaTable, exact: bool) -> Steps[str]:
    name = data.header.name_hint
    variables = f"[{', '.join(v.name_hint for v in data.type_vars)}]" if data.type_vars else ""
    if not data.constructors:
        return f"extern type {name}{variables}"
    lines = []
    for constructor in data.constructors:
        inputs = yield _type_list(constructor.inputs, meta, exact)
        lines.append(f"  {constructor.name_hint}{'(' + ', '.join(inputs) + ')' if inputs else ''},\n")
    return f"type {name}{variables} {{\n{''.join(lines)}}}"


def type_text(value: Type) -> str:
    """Return the text of a type standing alone."""
    return trampoline.run(type_steps(value, MetaTable(), exact=False))
