"""Tables of patterns by compiler: what ``relay.transform.MergeComposite`` looks for.

A table is a list of ``(name, pattern)`` or ``(name, pattern, check)``, in the order in which they are tried; names
begin with the compiler's, as in ``"dnnl.conv2d_relu"``. ``check(match)`` says whether the compiler takes a match.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.runtime.plugins import load_plugins

PLUGINS = "tilewright.compilers"

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


def get_pattern_table(compiler: str) -> PatternTable | None:
    """The table of ``compiler``; None where there is none.

    An installed package's is found by the entry point of the compiler's name in the group ``tilewright.compilers``.
    """
    if compiler not in _TABLES:
        load_plugins(PLUGINS, compiler)
    return _TABLES.get(compiler)
