"""Names and types of C for tensors."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tilewright.runtime.error import TVMError
from tilewright.target.codegen.source.names import KEYWORDS

_TYPES = {"float32": "float", "float64": "double", "bool": "uint8_t", "float16": "uint16_t", "bfloat16": "uint16_t"}
_INTEGER = re.compile(r"u?int(8|16|32|64)")


def c_element(dtype: str) -> str:
    """Return the C type of a tensor's elements; half precision is its bits.

    Raises
    ------
    TVMError : C has none
    """
    if dtype in _TYPES:
        return _TYPES[dtype]
    if _INTEGER.fullmatch(dtype):
        return f"{dtype}_t"
    raise TVMError(f"tensors of {dtype} have no C type; make it an input or output of another type")


def plain_name(name: str) -> str:
    """Return an identifier of C for a name."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII) or "tensor"
    if plain[0].isdigit():
        return f"_{plain}"
    return f"{plain}_" if plain in KEYWORDS else plain


def c_names(names: Sequence[str]) -> list[str]:
    """Return identifiers of C for names, each another."""
    found: list[str] = []
    for name in names:
        plain = plain_name(name)
        unique, number = plain, 1
        while unique in found:
            unique, number = f"{plain}_{number}", number + 1
        found.append(unique)
    return found


def check_identifier(name: str) -> None:
    """Raise TVMError for a network's name that cannot begin C symbols."""
    if not re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII) or name in KEYWORDS:
        raise TVMError(f"the name {name!r} cannot begin symbols of C: letters, digits and _, a letter first")
