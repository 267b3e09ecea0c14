"""Passes made from functions: ``Apply(f)``, ``Filter(f)`` and the decorator ``prim_func_pass``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass as PrimFuncPass
from tilewright.ir.transform import ModulePass, Pass, PassContext, PassInfo
from tilewright.ir.transform import function_pass as make_function_pass
from tilewright.tir.function import PrimFunc
from tilewright.tir.transform.common import function_pass

__all__ = ["Apply", "Filter", "PrimFuncPass", "prim_func_pass"]


def Apply(ftransform: Callable[[PrimFunc], PrimFunc]) -> Pass:
    """A pass that maps each PrimFunc with ``ftransform``."""
    return function_pass("Apply", ftransform)


def Filter(fcond: Callable[[PrimFunc], bool]) -> Pass:
    """A pass that keeps the functions for which ``fcond`` holds."""

    def keep(mod: IRModule, ctx: PassContext) -> IRModule:
        functions = {v: f for v, f in mod.items() if not isinstance(f, PrimFunc) or fcond(f)}
        return IRModule(functions, mod.type_definitions, mod.attrs)

    return ModulePass(keep, PassInfo(0, "tir.Filter"))


def prim_func_pass(
    pass_func: Callable[..., Any] | None = None,
    opt_level: int = 0,
    name: str | None = None,
    required: Sequence[str] | None = None,
) -> Any:
    """Make a pass of a function ``(func, mod, ctx) -> func`` on PrimFuncs; also a decorator."""
    return make_function_pass(pass_func, opt_level, name, required, func_type=PrimFunc)
