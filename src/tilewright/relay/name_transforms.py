"""Names of generated functions and variables, as TVM 0.8 forms them. ``relay.backend.name_transforms``."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.errors import TilewrightError

_PREFIX = "TVM"


def _need(condition: bool, message: str) -> None:
    if not condition:
        raise TilewrightError(message)


def to_c_function_style(original_name: str) -> str:
    """Convert ``TVM_my_name`` to ``TVMMyName``."""
    _need(bool(original_name), "Function name is empty")
    _need(original_name.startswith(_PREFIX), f"Function not TVM prefixed: {original_name!r}")
    words = original_name.removeprefix(_PREFIX).split("_")
    letters = ["".join(c for c in word if c.isalpha()) for word in words]
    return _PREFIX + "".join(word[:1].upper() + word[1:].lower() for word in letters)


def to_c_variable_style(original_name: str) -> str:
    """Convert ``TVM_my_Name`` to ``tvm_my_name``."""
    _need(bool(original_name), "Variable name is empty")
    _need(original_name.startswith(_PREFIX), f"Variable not TVM prefixed: {original_name!r}")
    return original_name.lower()


def to_c_constant_style(original_name: str) -> str:
    """Convert ``TVM_my_Name`` to ``TVM_MY_NAME``."""
    _need(original_name.startswith(_PREFIX), f"Constant not TVM prefixed: {original_name!r}")
    return original_name.upper()


def _combine(prefix: str, names: str | Sequence[str]) -> str:
    if isinstance(names, str):
        _need(bool(names), "Name is empty")
        return f"{prefix}_{names}"
    _need(bool(names), "Name segments empty")
    for name in names:
        _need(bool(name), "Name segment is empty")
    return "_".join([prefix, *names])


def prefix_name(names: str | Sequence[str]) -> str:
    """Prefix a name, or segments joined by underscores, with ``TVM_``."""
    return _combine(_PREFIX, names)


def prefix_generated_name(names: str | Sequence[str]) -> str:
    """Prefix a name, or segments joined by underscores, with ``TVMGen_``."""
    return _combine(f"{_PREFIX}Gen", names)


def sanitize_name(original_name: str) -> str:
    """Replace every character that C does not allow in names by an underscore."""
    _need(bool(original_name), "Name is empty")
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in original_name)


def mangle_module_name(mod_name: str) -> str:
    """Return the prefix of generated names for a module: ``tvmgen_default`` for ``default``.

    Raises:
        ValueError: the name holds letters that C does not know.
    """
    if mod_name and not mod_name.isascii():
        raise ValueError(f"the module name {mod_name!r} becomes part of names in C; take ASCII letters, digits and _")
    return f"tvmgen_{mod_name}" if mod_name else "tvmgen"
