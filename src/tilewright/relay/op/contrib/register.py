"""Tables of patterns by compiler, which ``relay.transform.MergeComposite`` reads.

A table is a list of ``(name, pattern)`` or ``(name, pattern, check)``, in the order in which they are tried; names
begin with the compiler's, as in ``"dnnl.conv2d_relu"``. ``check(match)`` returns whether the compiler takes a match; it
may return a ``Refusal``, as may a rule ``target.NAME``. A check that fails on unknown shapes counts as a refusal; any
other failure, and None, is an error.

The tables of this package's compilers are registered by their modules, which are loaded when a table or a rule
(``target.NAME`` of an operator) is first asked for; those of installed packages are found by their entry points.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.op import Op
from tilewright.ir.type import is_dynamic
from tilewright.relay.visitor import direct_children
from tilewright.runtime.plugins import load_plugins

PLUGINS = "tilewright.compilers"

COMPILERS = ("ccompiler", "dnnl")
"""Those whose rules and patterns are modules beside this one."""

Op.providers.update({f"target.{name}": f"{__package__}.{name}" for name in COMPILERS})


class Refusal:
    """A false answer of a rule or check with its reason, for ``explain_partition``."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"Refusal({self.reason!r})"


def answer_of(check: Callable[[Any], object], expr: RelayExpr, depth: int, what: str, where: str = "") -> object:
    """Return the answer of a check or rule for an expression: true, false, or a ``Refusal``, which is false.

    Args:
        depth: how many calls below ``expr`` the check may look.
        what: the check's name, for messages.
        where: " on ...": the expression, for messages.

    Raises:
        TilewrightError: it returned None, or failed where all shapes are known.
    """
    try:
        answer = check(expr)
    except Exception as error:
        refusal = refused_shape(expr, depth)
        if refusal is None:
            raise TilewrightError(f"{what} failed{where}: {type(error).__name__}: {error}") from error
        return Refusal(f"{refusal.reason}, and the check failed ({type(error).__name__}: {error})")
    if answer is None:
        text = "expected True, False or a Refusal: a return may be missing"
        raise TilewrightError(f"{what} gave None{where}; {text}")
    return answer


def refused_shape(expr: RelayExpr, depth: int = 1) -> Refusal | None:
    """Return a refusal where ``expr``, or an operand at most ``depth`` calls below it, has an unknown shape."""
    level = [expr]
    for _ in range(depth + 1):
        for node in level:
            if is_dynamic(node.checked_type):
                return Refusal(f"the shape of {node.checked_type} is not known")
        parts = (part for node in level for part in direct_children(node))
        level = list(dict.fromkeys(part for part in parts if not isinstance(part, Op)))
    return None


PatternTable = Sequence[tuple[Any, ...]]

_TABLES: dict[str, PatternTable] = {}


def register_pattern_table(
    compiler: str, table: Callable[[], PatternTable] | None = None
) -> Callable[[Any], Any] | Any:
    """Register the table of ``compiler`` that ``table()`` returns; without ``table``, return a decorator."""

    def register(make: Callable[[], PatternTable]) -> Callable[[], PatternTable]:
        _TABLES[compiler] = make()
        return make

    return register if table is None else register(table)


def load_compiler(compiler: str) -> None:
    """Load the rules and patterns of ``compiler``, from this package or from an installed one.

    Installed packages name theirs in an entry point of the group ``tilewright.compilers``.
    """
    if compiler in COMPILERS:
        importlib.import_module(f"{__package__}.{compiler}")
    load_plugins(PLUGINS, compiler)


def get_pattern_table(compiler: str) -> PatternTable | None:
    """Return the table of ``compiler``, or None."""
    if compiler not in _TABLES:
        load_compiler(compiler)
    return _TABLES.get(compiler)
