"""``tvm.relay.backend.Runtime``: the runtime of a library and its options, as a checked value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.ir.prim_expr import IntImm

_OPTIONS: dict[str, dict[str, str]] = {"c": {"system-lib": "IntImm"}, "cpp": {}}


class Runtime:
    """The runtime ``name`` ("c" or "cpp") with ``options``; ``runtime["system-lib"]`` reads one.

    Raises:
        TilewrightError: there is no such runtime or option, or an option has a value of another type.
    """

    def __init__(self, name: str, options: Mapping[str, Any] | None = None) -> None:
        known = self.list_runtime_options(name)
        for key, value in (options or {}).items():
            if key not in known:
                raise TilewrightError(f'Attribute "{key}" is not available on this Runtime; {name} has {list(known)}')
            if (found := _type_key(value)) != known[key]:
                raise TilewrightError(f'Attribute "{key}" should have type "{known[key]}" but instead found "{found}"')
        self.name = str(name)
        self.options = dict(options or {})

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Runtime({self.name!r}, {self.options})"

    def __contains__(self, name: str) -> bool:
        return name in self.options

    def __getitem__(self, name: str) -> Any:
        return self.options[name]

    @staticmethod
    def list_runtimes() -> list[str]:
        """Return the names of all runtimes."""
        return sorted(_OPTIONS)

    @staticmethod
    def list_runtime_options(runtime: str | Runtime) -> dict[str, str]:
        """Return the options of a runtime, each with the type of its value; raise TilewrightError where there is
        none.
        """
        if str(runtime) not in _OPTIONS:
            raise TilewrightError(f'Runtime "{runtime}" is not defined; there are {", ".join(_OPTIONS)}')
        return dict(_OPTIONS[str(runtime)])


def _type_key(value: Any) -> str:
    if isinstance(value, (bool, int, IntImm)):
        return "IntImm"
    return {str: "runtime.String", float: "FloatImm"}.get(type(value), type(value).__name__)
