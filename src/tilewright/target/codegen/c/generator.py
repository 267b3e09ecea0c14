"""The code generator of the kind ``c``."""

from __future__ import annotations

from tilewright.runtime.module import Module, from_compiled
from tilewright.target.code_generator import register_code_generator, to_packed_form
from tilewright.target.codegen.c.code import CCode
from tilewright.target.codegen.options import refuse_unsupported
from tilewright.target.features import features
from tilewright.target.target import Target
from tilewright.tir.function import PrimFunc


@register_code_generator("c")
class CGenerator:
    """C source, which is compiled when somebody runs it, or exports the module."""

    def __init__(self, target: Target) -> None:
        refuse_unsupported(target, features(target))
        self._target = target
        self._functions: list[PrimFunc] = []

    def add(self, func: PrimFunc) -> None:
        """Bring the function to C's level."""
        self._functions += to_packed_form(func)

    def finish(self) -> Module:
        """A module of type ``c``."""
        code = CCode(self._functions, self._target)
        module = from_compiled(code, "c")
        code.module_handle = module.handle
        return module
