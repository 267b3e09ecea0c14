"""Writes the table of all operators in docs/operators.md from their declarations.

Run ``python -m tests.relay.op.operator_table`` after a change of a declaration.
"""

from __future__ import annotations

import re
from pathlib import Path

import tilewright.relay  # declares the operators
import tilewright.relay.quantize  # noqa: F401  # and its own
from tilewright.ir.op import Op
from tilewright.relay.op.definition import HOOKS, TRAITS, OpDef
from tilewright.relay.op.gradients import no_gradient

PAGE = Path(__file__).parents[3] / "docs" / "operators.md"
_BEGIN = "<!-- Written by `python -m tests.relay.op.operator_table`; a test compares it. -->\n"
_HEAD = ["| operator | operands | attributes | level | fusion | gradient | traits |", "|---|---|---|---|---|---|---|"]


def _is_ours(declared: type[OpDef]) -> bool:
    """Whether Tilewright declares the operator: tests of the same process declare some, too."""
    hooks = [getattr(declared, key) for key in HOOKS if hasattr(declared, key)]
    modules = [declared.__module__, *(getattr(hook, "__module__", None) or "tilewright.relay" for hook in hooks)]
    return all(module.startswith("tilewright.") for module in modules)


def _attributes(declared: type[OpDef]) -> str:
    kind = declared.attrs_type
    if kind is None:
        return ""
    fields = [name for name in kind._fields if name not in kind.internal]
    return ", ".join(f"{name}={kind._defaults[name]!r}" if name in kind._defaults else name for name in fields)


def _trait(declared: type[OpDef], name: str) -> str | None:
    value = getattr(declared, name)
    if value == getattr(OpDef, name):
        return None
    if value is True or callable(value):
        return name
    return f"{name}={getattr(value, 'name', value)}"


def row(name: str) -> str:
    """The operator's line of the table."""
    op = Op.get(name)
    declared = op.get_attr("OpDef")
    operands = "any number" if declared.inputs is None else ", ".join(declared.inputs)
    traits = ", ".join(filter(None, (_trait(declared, key) for key in TRAITS)))
    gradient = {None: "", no_gradient: "zero"}.get(getattr(declared, "gradient", None), "yes")
    cells = [
        f"`{name}`",
        operands,
        _attributes(declared),
        str(op.support_level),
        declared.pattern.name.lower(),
        gradient,
    ]
    return "| " + " | ".join([*(cell.replace("|", "\\|") for cell in cells), traits]) + " |"


def table() -> str:
    """The table, one operator a line, in the order of their names."""
    names = [name for name, op in Op.registry.items() if op.has_attr("OpDef") and _is_ours(op.get_attr("OpDef"))]
    return "\n".join([*_HEAD, *map(row, sorted(names))]) + "\n"


def page(text: str) -> str:
    """The page's text with its table as the declarations are now."""
    return re.sub(re.escape(_BEGIN) + r"\n\|.*\Z", lambda _: f"{_BEGIN}\n{table()}", text, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
