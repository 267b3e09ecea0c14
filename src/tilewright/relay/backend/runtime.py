"""``tvm.relay.backend.Executor`` and ``Runtime``: what runs a library and its options, as checked values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from tilewright.ir.errors import TilewrightError
from tilewright.ir.prim_expr import IntImm

_INTEGER, _TEXT = "IntImm", "runtime.String"


class _Choice:
    """A name with options, ``choice["option"]`` reads one; ``known`` are their types, ``defaults`` values by name."""

    known: ClassVar[dict[str, dict[str, str]]]
    defaults: ClassVar[dict[str, dict[str, Any]]] = {}

    def __init__(self, name: str, options: Mapping[str, Any] | None = None) -> None:
        kind, known = type(self).__name__, self._options(name)
        for key, value in (options or {}).items():
            if key not in known:
                raise TilewrightError(f'Attribute "{key}" is not available on this {kind}; {name} has {list(known)}')
            if (found := _type_key(value)) != known[key]:
                raise TilewrightError(f'Attribute "{key}" should have type "{known[key]}" but instead found "{found}"')
        self.name = str(name)
        self.options = dict(options or {})

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.options})"

    def __contains__(self, name: str) -> bool:
        return name in self.options

    def __getitem__(self, name: str) -> Any:
        return self.options[name] if name in self.options else self.defaults[self.name][name]

    @classmethod
    def _options(cls, name: str | Self) -> dict[str, str]:
        if str(name) not in cls.known:
            raise TilewrightError(f'{cls.__name__} "{name}" is not defined; there are {", ".join(cls.known)}')
        return dict(cls.known[str(name)])


class Runtime(_Choice):
    """The runtime ``name`` ("c" or "cpp") with ``options``, as ``relay.build(..., runtime=...)`` takes it.

    Raises:
        TilewrightError: there is no such runtime or option, or an option has a value of another type.
    """

    known: ClassVar[dict[str, dict[str, str]]] = {"c": {"system-lib": _INTEGER}, "cpp": {}}

    @staticmethod
    def list_runtimes() -> list[str]:
        """Return the names of all runtimes."""
        return sorted(Runtime.known)

    @staticmethod
    def list_runtime_options(runtime: str | Runtime) -> dict[str, str]:
        """Return the options of a runtime, each with the type of its value; raise TilewrightError where there is
        none.
        """
        return Runtime._options(runtime)


class Executor(_Choice):
    """The executor ``name`` ("aot", "graph" or "vm") with ``options``, as ``relay.build(..., executor=...)`` takes it.

    Raises:
        TilewrightError: there is no such executor or option, or an option has a value of another type.
    """

    known: ClassVar[dict[str, dict[str, str]]] = {
        "aot": {
            "link-params": _INTEGER,
            "unpacked-api": _INTEGER,
            "interface-api": _TEXT,
            "workspace-byte-alignment": _INTEGER,
            "workspace-pools": _TEXT,
        },
        "graph": {"link-params": _INTEGER},
        "vm": {},
    }
    defaults: ClassVar[dict[str, dict[str, Any]]] = {"aot": {"link-params": True}, "graph": {"link-params": False}}

    @staticmethod
    def list_executors() -> list[str]:
        """Return the names of all executors."""
        return sorted(Executor.known)

    @staticmethod
    def list_executor_options(executor: str | Executor) -> dict[str, str]:
        """Return the options of an executor, each with the type of its value; raise TilewrightError where there is
        none.
        """
        return Executor._options(executor)


def target_options(executor: str | Executor | None, runtime: Runtime | None) -> dict[str, Any]:
    """Return the options of targets that say the same."""
    options = dict(executor.options) if isinstance(executor, Executor) else {}
    if runtime is not None:
        options |= {"runtime": "c" if runtime.name == "c" else "c++", **runtime.options}
    return {name: value.value if isinstance(value, IntImm) else value for name, value in options.items()}


def _type_key(value: Any) -> str:
    if isinstance(value, (bool, int, IntImm)):
        return _INTEGER
    return {str: _TEXT, float: "FloatImm"}.get(type(value), type(value).__name__)
