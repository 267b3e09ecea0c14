"""Tables of patterns by compiler: what ``relay.transform.MergeComposite`` looks for.

A table is a list of ``(name, pattern)`` or ``(name, pattern, check)``, in the order in which they are tried; names
begin with the compiler's, as in ``"dnnl.conv2d_relu"``. ``check(match)`` says whether the compiler takes a match; it
may answer with a ``Refusal``, as may a rule ``target.NAME``.

What the compilers of this package take is registered by their modules, which are loaded when somebody asks for a table
or a rule (``target.NAME`` of an operator); installed packages are asked by their entry points.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.op import Op
from tilewright.runtime.plugins import load_plugins

PLUGINS = "tilewright.compilers"

COMPILERS = ("ccompiler", "dnnl")
"""Those whose rules and patterns are modules beside this one."""

Op.providers.update({f"target.{name}": f"{__package__}.{name}" for name in COMPILERS})


class Refusal:
    """What a rule or check may answer instead of False, so that ``explain_partition`` can say why."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"Refusal({self.reason!r})"


PatternTable = Sequence[tuple[Any, ...]]

_TABLES: dict[str, PatternTable] = {}


def register_pattern_table(
    compiler: str, table: Callable[[], PatternTable] | None = None
) -> Callable[[Any], Any] | Any:
    """Set the table of ``compiler`` to what ``table()`` gives; without ``table``, a decorator."""

    def register(make: Callable[[], PatternTable]) -> Callable[[], PatternTable]:
        _TABLES[compiler] = make()
        return make

    return register if table is None else register(table)


def load_compiler(compiler: str) -> None:
    """Have the rules and patterns of ``compiler`` registered: of this package, or of those that are installed.

    They name it in an entry point of the group ``tilewright.compilers``.
    """
    if compiler in COMPILERS:
        importlib.import_module(f"{__package__}.{compiler}")
    load_plugins(PLUGINS, compiler)


def get_pattern_table(compiler: str) -> PatternTable | None:
    """The table of ``compiler``; None where there is none."""
    if compiler not in _TABLES:
        load_compiler(compiler)
    return _TABLES.get(compiler)
