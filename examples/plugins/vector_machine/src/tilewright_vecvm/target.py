"""Registers the target kind ``vecvm`` and its code generator; the package's entry point calls it."""

from __future__ import annotations

import tilewright as tvm
from tilewright.ir.module import IRModule
from tilewright.target import Target, register_target_kind
from tilewright_vecvm.codegen import program_of
from tilewright_vecvm.machine import module_of


def build(mod: IRModule, target: Target) -> tvm.runtime.Module:
    """The code generator: a runtime module of the lowered functions of ``mod``."""
    return module_of([program_of(func) for func in mod.functions.values()])


def register() -> None:
    """Make ``Target("vecvm")`` known, and what builds for it."""
    register_target_kind("vecvm", options={"lanes": int}, defaults={"lanes": 64}, override=True)
    tvm.register_func("target.build.vecvm", build, override=True)
