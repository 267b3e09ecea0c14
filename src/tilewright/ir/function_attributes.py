"""Declarations of the attributes that functions carry through the compiler, and those that every level shares.

The IR keeps attributes under string keys; programs may write them as strings and add keys of their own. The compiler
itself names a declaration::

    GLOBAL_SYMBOL.of(func)                      # its value, typed; an error that names the key where there is none
    TARGET.get(func)                            # its value or None
    func.with_attr(GLOBAL_SYMBOL.key, "relu")   # the key, where the IR wants a string

Declarations stand in three files: here, ``tir.function_attributes`` and ``relay.function_attributes``, which has the
table of all. Verifiers check types, carriers and stages by them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

from tilewright.ir.attrs import DictAttrs
from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import BaseFunc
from tilewright.ir.prim_expr import IntImm

T = TypeVar("T")
D = TypeVar("D")


class Stage(enum.IntEnum):
    """Until when an attribute lives."""

    PASS = 0
    RELAY = 1
    LOWERED = 2
    CODE = 3

    @property
    def end(self) -> str:
        """The end of the attribute's life, in words."""
        return _ENDS[self]


_ENDS = {
    Stage.PASS: "the pass that writes it ends",
    Stage.RELAY: "LowerTE makes kernels",
    Stage.LOWERED: "the executor's code generator has read it",
    Stage.CODE: "code is made",
}


class Carrier(enum.Flag):
    """Kinds of carriers of attributes."""

    OPEN = enum.auto()  # a Relay function whose body passes change, main among them
    PRIMITIVE = enum.auto()  # a Relay function that becomes one kernel
    EXTERNAL = enum.auto()  # a Relay function that another compiler takes
    KERNEL = enum.auto()  # a PrimFunc
    MODULE = enum.auto()
    RELAY = OPEN | PRIMITIVE | EXTERNAL
    FUNCTION = RELAY | KERNEL


CARRIER_NAMES = {
    Carrier.OPEN: "an open function of Relay",
    Carrier.PRIMITIVE: "a primitive function of Relay",
    Carrier.EXTERNAL: "an external function of Relay",
    Carrier.KERNEL: "a PrimFunc",
    Carrier.MODULE: "a module",
}


@dataclass(frozen=True)
class Kind(Generic[T]):
    """A type of values: its name in messages, and whether a value is one."""

    name: str
    holds: Callable[[Any], bool]


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, IntImm))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _all(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, (tuple, list)) and all(map(holds, value))


def _pair(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, (tuple, list)) and len(value) == 2 and all(map(holds, value))


MARK: Kind[int] = Kind("0 or 1", lambda value: _is_int(value) and int(value) in (0, 1))
INTEGER: Kind[int] = Kind("an integer", _is_int)
TEXT: Kind[str] = Kind("a string", _is_text)
INTEGERS: Kind[tuple[int, ...]] = Kind("a list of integers", _all(_is_int))
TEXTS: Kind[tuple[str, ...]] = Kind("a list of strings", _all(_is_text))
INTEGER_PAIRS: Kind[tuple[tuple[int, int], ...]] = Kind("a list of pairs of integers", _all(_pair(_is_int)))
TEXT_PAIRS: Kind[tuple[tuple[str, str], ...]] = Kind("a list of pairs of strings", _all(_pair(_is_text)))
A_TARGET: Kind[Any] = Kind("a Target or its text", lambda value: _is_text(value) or hasattr(value, "kind"))
NODES: Kind[tuple[Any, ...]] = Kind("a list of nodes", lambda value: isinstance(value, (tuple, list)))


@dataclass(frozen=True)
class FunctionAttribute(Generic[T]):
    """One attribute: key, kind of values, meaning, who writes and reads it, and until when it lives."""

    key: str
    kind: Kind[T]
    meaning: str
    writers: str
    readers: str
    carriers: Carrier
    last: Stage

    def of(self, func: Any) -> T:
        """Return the value on ``func``; raises TilewrightError if it has none."""
        attrs = _attributes(func)
        if self.key not in attrs:
            raise TilewrightError(
                f"the function has no attribute {self.key!r}; {self.writers} gives it: {self.meaning}"
            )
        value: T = attrs[self.key]
        return value

    @overload
    def get(self, func: Any) -> T | None: ...
    @overload
    def get(self, func: Any, default: D) -> T | D: ...
    def get(self, func: Any, default: Any = None) -> Any:
        """The value on ``func``, or ``default``."""
        return _attributes(func).get(self.key, default)

    def has(self, func: Any) -> bool:
        """Return whether ``func`` has the attribute, whatever its value."""
        return self.key in _attributes(func)

    def on(self, func: Any) -> bool:
        """Return whether ``func`` has the attribute and its value is not zero or empty."""
        return bool(_attributes(func).get(self.key))


def _attributes(func: Any) -> Mapping[str, Any]:
    """Return the attributes of a function or module; empty if it has none."""
    attrs = func.get_attrs() if isinstance(func, BaseFunc) else getattr(func, "attrs", None)
    data: Mapping[str, Any] = getattr(attrs, "data", None) or {}
    return data


_declared: dict[str, FunctionAttribute[Any]] = {}


def declare(
    key: str, kind: Kind[T], meaning: str, *, writers: str, readers: str, carriers: Carrier, last: Stage
) -> FunctionAttribute[T]:
    """Declare an attribute, once for each key.

    Args:
        key: the string that the IR keeps.
        kind: the type of its values.
        meaning: what it says, a phrase.
        writers: the passes and parts that write it.
        readers: the passes and parts that read it.
        carriers: what may carry it.
        last: the stage after which nobody reads it.
    """
    if key in _declared:
        raise TilewrightError(f"the function attribute {key!r} is declared already: {_declared[key].meaning}")
    made = FunctionAttribute(key, kind, meaning, writers, readers, carriers, last)
    _declared[key] = made
    return made


def declared_attributes() -> dict[str, FunctionAttribute[Any]]:
    """Every declared attribute by its key, plug-ins' too."""
    return dict(_declared)


def attribute_problems(attrs: DictAttrs, carrier: Carrier, stage: Stage) -> list[str]:
    """Return the problems of the attributes of a function or module at a stage; undeclared keys are free."""
    problems = []
    for key, value in attrs.items():
        declared = _declared.get(key)
        if declared is None:
            continue
        if not declared.kind.holds(value):
            problems.append(f"the attribute {key!r} is {value!r}; expected {declared.kind.name}: {declared.meaning}")
        if not carrier & declared.carriers:
            allowed = ", ".join(name for kind, name in CARRIER_NAMES.items() if kind & declared.carriers)
            problems.append(f"{CARRIER_NAMES[carrier]} has the attribute {key!r}, which belongs on {allowed}")
        elif stage > declared.last:
            problems.append(f"the attribute {key!r} is left over: it lives until {declared.last.end}")
    return problems


GLOBAL_SYMBOL = declare(
    "global_symbol",
    TEXT,
    "the function's name in the library",
    writers="PartitionGraph, LowerTE, te.lower, SplitHostDevice, users",
    readers="code generators, external compilers, reports",
    carriers=Carrier.FUNCTION,
    last=Stage.CODE,
)
TARGET = declare(
    "target",
    A_TARGET,
    "the target that the kernel is compiled for",
    writers="ForEachDevice (text), LowerTE, target.build",
    readers="MergeRows, LowerTE, tir passes, code generators",
    carriers=Carrier.PRIMITIVE | Carrier.EXTERNAL | Carrier.KERNEL,
    last=Stage.CODE,
)
DEVICE_TYPE = declare(
    "device_type",
    INTEGER,
    "DLPack's number of the device that the tensors are on, where it is not the target's own",
    writers="ForEachDevice, LowerTE",
    readers="LowerTE, MakePackedAPI",
    carriers=Carrier.PRIMITIVE | Carrier.EXTERNAL | Carrier.KERNEL,
    last=Stage.CODE,
)
SKIP_OPTIMIZATION = declare(
    "SkipOptimization",
    MARK,
    "passes over functions leave this one as it is",
    writers="users",
    readers="every function pass",
    carriers=Carrier.FUNCTION,
    last=Stage.CODE,
)
