"""``tvm.build``: compilation of schedules or TIR to a runtime module.

    inputs -> te.lower -> the code generator of each function's target (code_generator.py) -> runtime.Module

Each function is a compilation unit of its own, so that the units of a large module compile in parallel.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tilewright.target.codegen.c.generator
import tilewright.target.codegen.llvm.generator  # noqa: F401  (these register themselves)
from tilewright.ir.errors import TilewrightError
from tilewright.ir.function_attributes import GLOBAL_SYMBOL, TARGET
from tilewright.ir.module import IRModule
from tilewright.runtime.module import Module
from tilewright.target.code_generator import (
    CodeGenerator,
    code_generator,
    find_code_generator,
    functions_of,
    register_code_generator,
)
from tilewright.target.device_build import split_device
from tilewright.target.target import Target
from tilewright.tir.function import PrimFunc
from tilewright.tir.transform.make_packed_api import CPU
from tilewright.tir.transform.split_host_device import has_device_regions
from tilewright.tir.transform.verify_memory import check_memory


def _on_use(module: str, name: str) -> Callable[[Target], CodeGenerator]:
    """Return the maker of code generators that imports its module when it is first called."""

    def make(target: Target) -> CodeGenerator:
        made: CodeGenerator = getattr(importlib.import_module(f"tilewright.target.codegen.{module}"), name)(target)
        return made

    return make


register_code_generator("opencl", _on_use("opencl.generator", "OpenCLGenerator"))
for _kind in ("cuda", "nvptx"):
    register_code_generator(_kind, _on_use("nvptx.generator", "PTXGenerator"))


class ModuleBuilder:
    """Builds one runtime module from functions added one at a time, for one target or several.

    A function goes to the code generator of its attribute ``target``, or else of the builder's target, which may start
    to compile it while the caller lowers the next one::

        builder = ModuleBuilder(target)
        for func in functions:
            builder.add(func)
        module = builder.finish()

    Parameters
    ----------
    target : the target of functions that do not name their own. The host, which launches device functions
        (``SplitHostDevice``), is its ``host``, or else the target itself if it is a CPU's, or else ``llvm``
    target_host : another host for it

    Attributes
    ----------
    added : the functions that were added, by target

    Raises
    ------
    UnsupportedError : the target's kind has no code generator
    """

    def __init__(self, target: Target | str, target_host: Target | str | None = None) -> None:
        self.target = Target(target).with_host(target_host)
        self.host = host_of(self.target)
        find_code_generator(self.target)  # said now, not after everything was lowered
        self.added: dict[Target, IRModule] = {}
        self._names: set[str] = set()
        self._generators: dict[Target, CodeGenerator] = {}

    def add(self, func: PrimFunc | IRModule, target: Target | None = None) -> None:
        """Add a lowered function, or every function of a module; a ``target`` overrides their attributes."""
        mod = func
        if isinstance(mod, PrimFunc):
            mod = IRModule()
            mod[GLOBAL_SYMBOL.get(func, "main")] = func
        for item in functions_of(mod, target or self.target, override=target is not None):
            self._add(item)
            self.added.setdefault(TARGET.of(item), IRModule())[GLOBAL_SYMBOL.of(item)] = item

    def _add(self, func: PrimFunc) -> None:
        for part in self._parts(func):
            name = GLOBAL_SYMBOL.of(part)
            if name in self._names:
                raise TilewrightError(f"the module has two functions named {name}")
            self._names.add(name)
            self._generator(TARGET.of(part)).add(part)

    def _parts(self, func: PrimFunc) -> list[PrimFunc]:
        """A function of a device that has threads is the host's code and the kernels that it launches."""
        if _is_host(TARGET.of(func)):
            return [func]
        check_memory(func)
        if not has_device_regions(func):
            return [func]
        return split_device(func, self.host)

    def _generator(self, target: Target) -> CodeGenerator:
        if target not in self._generators:
            self._generators[target] = code_generator(target)
        return self._generators[target]

    def finish(self) -> Module:
        """The module; the function added first is its entry.

        With several targets it is the host's module, or the first target's when the host has no function, and imports
        the others.
        """
        if not self._generators:
            self._generator(self.target)
        in_order = sorted(self._generators, key=lambda target: target != self.host)
        module, *others = [self._generators[target].finish() for target in in_order]
        for other in others:
            module.import_module(other)
        return module


def host_of(target: Target) -> Target:
    """Return the target of the host code: the target's own host, or itself if it is a CPU's, or llvm."""
    return target.host or (target if _is_host(target) else Target("llvm"))


def _is_host(target: Target) -> bool:
    """Return whether the code of ``target`` is a CPU's, which needs no other code to launch it."""
    return target.device_type == CPU and "cpu" in target.keys


class OperatorModule(Module):
    """The result of ``tvm.build``: a module, its name, and the functions that it was made from, by target."""

    __slots__ = ("ir_module_by_target", "name")

    def __init__(
        self, handle: int, ir_module_by_target: Mapping[Target, IRModule] | None = None, name: str | None = None
    ) -> None:
        super().__init__(handle)
        self.ir_module_by_target, self.name = dict(ir_module_by_target or {}), name

    @classmethod
    def from_module(
        cls, mod: Module, ir_module_by_target: Mapping[Target, IRModule] | None = None, name: str | None = None
    ) -> OperatorModule:
        """Return the module with a name and functions; ``mod`` must not be used any more."""
        handle, mod.handle = mod.handle, 0
        return cls(handle, ir_module_by_target, name)


def build(
    inputs: Any,
    args: Sequence[Any] | None = None,
    target: Any = None,
    target_host: Any = None,
    name: str = "default_function",
    binds: Mapping[Any, Any] | None = None,
) -> OperatorModule:
    """Compile to a module that runs in this process and can be exported.

    Parameters
    ----------
    inputs : a schedule (with ``args``), a PrimFunc, an IRModule of PrimFuncs, a list of these, or {target: IRModule} of
        functions that are lowered already
    args : tensors, buffers and scalar variables, in the order of the function's parameters
    target : a target or its text, for functions without an attribute ``target``; by default the current one, or "llvm"
    target_host : the target of the code that launches kernels; a target that is a CPU's is its own
    name : name of the function that a schedule becomes
    binds : buffers of tensors

    Returns
    -------
    A module of the target's type (``llvm``, ``c``, ...); ``module(...)`` calls the entry function, ``module["name"]``
    returns one by name. For several targets it imports the modules of the others. ``ir_module_by_target`` has the
    lowered functions.
    """
    from tilewright.te.lower import lower

    if isinstance(inputs, Mapping):
        return _build_parts({Target(t): mod for t, mod in inputs.items()}, target_host, name)
    chosen = Target(target) if target is not None else Target.current() or Target("llvm")
    if isinstance(inputs, (list, tuple)):
        merged = IRModule()
        for item in inputs:
            merged.update(item if isinstance(item, IRModule) else lower(item))
        inputs = merged
    builder = ModuleBuilder(chosen, target_host)
    with chosen:
        builder.add(lower(inputs, args, name=name, binds=binds))
    return OperatorModule.from_module(builder.finish(), builder.added, name)


def _build_parts(parts: Mapping[Target, Any], target_host: Any, name: str) -> OperatorModule:
    """Build lowered functions by target; the host is ``target_host``, or else the first target's."""
    if not parts:
        raise TilewrightError("build was given an empty dictionary of targets")
    builder = ModuleBuilder(next(iter(parts)), target_host)
    for target, mod in parts.items():
        builder.add(mod, target)
    return OperatorModule.from_module(builder.finish(), builder.added, name)
