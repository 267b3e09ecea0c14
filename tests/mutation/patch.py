"""Changing functions of loaded modules to what a mutant's text says, which spares loading the compiler again."""

from __future__ import annotations

import gc
import inspect
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from types import CodeType, FrameType, FunctionType
from typing import Any


class Calls:
    """Which code has run since ``start``: what it left behind is the original's."""

    def __init__(self) -> None:
        self.codes: dict[int, CodeType] = {}

    def start(self) -> None:
        """Note calls until ``stop``."""
        sys.settrace(self._note)

    def stop(self) -> None:
        """Note no more calls."""
        sys.settrace(None)

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:  # None: no event but calls
        self.codes[id(frame.f_code)] = frame.f_code


def _frame(code: CodeType) -> tuple[Any, ...]:
    """What code does itself, without the functions in it."""
    constants = [(type(c), c) for c in code.co_consts if not isinstance(c, CodeType)]
    return code.co_code, constants, code.co_names, len(code.co_consts)


def changed_functions(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType | None]]:
    """Yield the outermost functions that differ, and a module or class with None where something else in it does."""
    if _frame(old) != _frame(new):
        yield old, None
        return
    for a, b in zip(old.co_consts, new.co_consts, strict=True):
        if isinstance(a, CodeType) and isinstance(b, CodeType) and a != b:
            if a.co_flags & inspect.CO_OPTIMIZED:
                yield a, b
            else:
                yield from changed_functions(a, b)


class LoadedFunctions:
    """The functions of loaded modules below a folder."""

    def __init__(self, folder: str) -> None:
        self.of_code: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
        self.files: set[str] = {
            os.path.realpath(f) for m in sys.modules.values() if (f := getattr(m, "__file__", None))
        }
        for function in gc.get_objects():
            if type(function) is FunctionType and function.__code__.co_filename.startswith(folder):
                self.of_code[self._key(function.__code__)].append(function)

    @staticmethod
    def _key(code: CodeType) -> tuple[str, str, int]:
        return os.path.realpath(code.co_filename), code.co_qualname, code.co_firstlineno

    def find(self, path: str, old: str, new: str) -> list[tuple[FunctionType, CodeType]] | None:
        """Return the functions of a file that are to have other code; None where that is not enough."""
        if path not in self.files:
            return []  # it is loaded from the mutant's text, should it be loaded
        found = []
        for a, b in changed_functions(compile(old, path, "exec"), compile(new, path, "exec")):
            functions = self.of_code.get(self._key(a), [])
            if b is None or not functions or any(f.__code__.co_freevars != b.co_freevars for f in functions):
                return None
            found += [(f, b) for f in functions]
        return found
