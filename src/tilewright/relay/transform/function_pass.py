"""Passes that users make of functions of Relay functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir import transform
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Function
from tilewright.relay.transform.infer_type import InferType


@dataclass(frozen=True, repr=False)
class _TypedFunctionPass(transform.FunctionPass):
    """A function pass whose result has types, as TVM's."""

    def transform(self, mod: IRModule, ctx: transform.PassContext) -> IRModule:
        """Apply the function, and infer the types."""
        return InferType()(super().transform(mod, ctx))


def function_pass(
    pass_func: Callable[..., Any] | None = None,
    opt_level: int = 0,
    name: str | None = None,
    required: Sequence[str] | None = None,
) -> Any:
    """Make a pass of a function ``(func, mod, ctx) -> func`` of Relay functions, or of a class with
    ``transform_function``; the resulting functions have types.

    Usable as ``@relay.transform.function_pass(opt_level=1)`` on a function or class, as in TVM.
    """
    return transform.function_pass(pass_func, opt_level, name, required, Function, _TypedFunctionPass)
