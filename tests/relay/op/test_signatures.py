"""Names, order and defaults of the parameters of every public constructor of an operator, as users call them.

``signatures.txt`` is the record: a change of it is a change for users. To write it anew::

    python -c "from tests.relay.op.test_signatures import *; RECORD.write_text(recorded_form())"
"""

from __future__ import annotations

import inspect
from pathlib import Path

from tilewright import relay

RECORD = Path(__file__).with_name("signatures.txt")
FAMILIES = ("", "nn", "image", "vision", "random", "annotation")


def _signature(function: object) -> str:
    parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    return ", ".join(str(p.replace(annotation=inspect.Parameter.empty)) for p in parameters)


def recorded_form() -> str:
    """A line for each constructor."""
    lines = []
    for family in FAMILIES:
        module = getattr(relay, family) if family else relay
        for name in sorted(set(dir(module))):
            found = getattr(module, name)
            origin = str(getattr(found, "__module__", ""))
            if name.startswith("_") or not inspect.isfunction(found) or not origin.startswith("tilewright.relay.op."):
                continue
            lines.append(f"{family}{'.' if family else ''}{name}({_signature(found)})")
    return "\n".join(lines) + "\n"


def test_constructors_are_called_as_before() -> None:
    assert recorded_form() == RECORD.read_text()


def test_constructors_tell_their_name_and_what_they_do() -> None:
    for family in FAMILIES:
        module = getattr(relay, family) if family else relay
        for line in RECORD.read_text().splitlines():
            owner, _, name = line.partition("(")[0].rpartition(".")
            if owner == family:
                function = getattr(module, name)
                assert function.__doc__, line
                assert callable(function) and function.__name__
