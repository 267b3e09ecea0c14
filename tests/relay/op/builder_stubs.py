"""Writes the ``__init__.pyi`` of the packages of operators: their builders as type checkers and editors see them.

Run ``python -m tests.relay.op.builder_stubs`` after a change of a builder's parameters. A builder that is derived from
its declaration gets its signature, one a line; everything else is imported from the module that has it.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from tilewright.relay.op.builder import is_derived

PACKAGES = [f"tilewright.relay.op{part}" for part in ("", ".annotation", ".image", ".nn", ".random", ".vision")]
_HEAD = "# Written by `python -m tests.relay.op.builder_stubs`; a test compares it.\n"
_TYPES = {
    "collections.abc": ["Sequence"],
    "tilewright.ir.expr": ["RelayExpr"],
    "tilewright.relay.expr": ["Call", "TupleWrapper"],
    "tilewright.relay.op.attributes": ["Axes", "Floats", "Ints", "Operand", "Shape"],
}


def _parameter(parameter: inspect.Parameter) -> str:
    if parameter.default is parameter.empty:
        return f"{parameter.name}: {parameter.annotation}"
    takes_none = parameter.annotation == "Axes" or "None" in parameter.annotation
    optional = " | None" if parameter.default is None and not takes_none else ""
    return f"{parameter.name}: {parameter.annotation}{optional} = {parameter.default!r}"


def _definition(name: str, function: Callable[..., Any]) -> str:
    """The function's head and the first line of its docstring, in one line."""
    parameters = ", ".join(map(_parameter, inspect.signature(function).parameters.values()))
    doc = (function.__doc__ or "").split("\n")[0]
    return f"def {name}({parameters}) -> {function.__annotations__['return']}: {doc!r}"


def _imports(path: Path) -> dict[str, str]:
    """What the package's ``__init__.py`` imports for users, and from where."""
    found = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module != "tilewright.relay.op.builder":
            found |= {alias.asname or alias.name: str(node.module) for alias in node.names}
    return {name: source for name, source in found.items() if not name.startswith("_")}


def stub(package: str) -> tuple[Path, str]:
    """The path and the text of the package's stub."""
    module: Any = importlib.import_module(package)
    path = Path(module.__file__)
    names = [name for name in sorted({*module.__all__, *_imports(path)}) if not _is_own_module(module, name)]
    sources, definitions = _imports(path), []
    imports: dict[str, list[str]] = defaultdict(list)
    for name in names:
        value = getattr(module, name)
        if is_derived(value):
            definitions.append(_definition(name, value))
        else:
            imports[sources.get(name, getattr(value, "__module__", ""))].append(f"{name} as {name}")
    for source, types in _TYPES.items():
        imports[source] += [t for t in types if re.search(rf": [^'\"]*\b{t}\b|> {t}:", "\n".join(definitions))]
    lines = [f"from {source} import {', '.join(found)}" for source, found in sorted(imports.items()) if found]
    public = f"__all__ = {sorted(module.__all__)!r}"
    return path.with_suffix(".pyi"), _HEAD + "\n".join([*lines, "", public, "", *definitions]) + "\n"


def _is_own_module(package: Any, name: str) -> bool:
    """Whether the name is a file of a package whose builders alone are public."""
    return package.__name__ != PACKAGES[0] and isinstance(getattr(package, name), ModuleType)


if __name__ == "__main__":
    for one in PACKAGES:
        target, content = stub(one)
        target.write_text(content)
