"""Types, literals and identifiers of C."""

from __future__ import annotations

import math
import re

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.target.codegen.common.names import UniqueNames
from tilewright.tir.expr import Var

KEYWORDS = frozenset(
    [
        "auto",
        "break",
        "case",
        "char",
        "const",
        "continue",
        "default",
        "do",
        "double",
        "else",
        "enum",
        "extern",
        "float",
        "for",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "register",
        "restrict",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "struct",
        "switch",
        "typedef",
        "union",
        "unsigned",
        "void",
        "volatile",
        "while",
        "bool",
        "true",
        "false",
        "args",
        "arg_type_ids",
        "main",
        "exp",
        "log",
        "sin",
        "cos",
        "tan",
        "pow",
        "floor",
        "ceil",
        "round",
        "trunc",
        "class",
        "new",
        "delete",
        "this",
        "template",
        "typename",
        "and",
        "or",
        "not",
        "xor",
        "index",
        "y0",
        "y1",
        "yn",
        "j0",
        "j1",
        "jn",
        "gamma",
        "signgam",
    ]
)


def c_type(dtype: str) -> str:
    """The C type of one lane of a value."""
    info = dt.parse(dtype)
    if info.kind in ("int", "uint"):
        return f"{info.kind}{max(info.bits, 8)}_t"
    if info.kind == "float":
        return {16: "_Float16", 32: "float", 64: "double"}[info.bits]
    return {"bool": "uint8_t", "bfloat": "uint16_t", "small": "uint8_t", "handle": "void*", "void": "void"}[info.kind]


def int_literal(dtype: str, value: int) -> str:
    """An integer or bool literal."""
    info = dt.parse(dtype)
    if info.kind == "bool":
        return str(int(bool(value)))
    if info.kind == "uint":
        return (
            f"((uint8_t){value}U)"
            if info.bits <= 8
            else {16: f"((uint16_t){value}U)", 32: f"{value}U"}.get(info.bits, f"UINT64_C({value})")
        )
    if value == -(1 << (info.bits - 1)) and info.bits >= 32:
        return f"INT{info.bits}_MIN"
    text = f"INT64_C({abs(value)})" if info.bits == 64 else str(abs(value))
    return f"(-{text})" if value < 0 else text


def float_literal(dtype: str, value: float) -> str:
    """Return a floating literal; bfloat16 is written as its float32 value."""
    info = dt.parse(dtype)
    if math.isnan(value):
        text = "NAN"
    elif math.isinf(value):
        text = "INFINITY" if value > 0 else "(-INFINITY)"
    elif info.bits == 64:
        text = repr(float(value))
    else:
        with np.errstate(over="ignore"):
            single = float(np.float32(value))
        if math.isinf(single):
            return float_literal(dtype, single)
        text = f"{np.float32(value)!s}"
        if "." not in text and "e" not in text:
            text += ".0"
        text += "f"
    if text.startswith("-"):
        text = f"({text})"
    return f"((_Float16){text})" if info.kind == "float" and info.bits == 16 else text


class Names(UniqueNames):
    """Identifiers of variables: their own names if the language allows, numbered when they repeat."""

    def __init__(self, keywords: frozenset[str] = KEYWORDS) -> None:
        super().__init__()
        self._keywords = keywords
        self._of: dict[Var, str] = {}

    def of(self, var: Var) -> str:
        """The identifier of ``var``."""
        name = self._of.get(var)
        if name is None:
            name = self._of[var] = self.fresh(var.name)
        return name

    def set(self, var: Var, name: str) -> None:
        """Have ``var`` called ``name``."""
        self._of[var] = name

    def fresh(self, wanted: str) -> str:
        """Return an unused identifier made from ``wanted``."""
        base = re.sub(r"\W", "_", wanted) or "v"
        if base[0].isdigit() or base in self._keywords or base.startswith("__"):
            base = f"v_{base}"
        return super().fresh(base)


def string_literal(text: str) -> str:
    """A C string literal."""
    special = {34: '\\"', 92: "\\\\", 10: "\\n"}
    return '"' + "".join(special.get(b) or (chr(b) if 32 <= b < 127 else f"\\{b:03o}") for b in text.encode()) + '"'
