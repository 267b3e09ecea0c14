"""``tvm.build``: from schedules or TIR to a runtime module.

    inputs -> te.lower -> TransposeLoads (LLVM), MakePackedAPI, LowerTVMBuiltin, LowerIntrin
           -> LLVM IR or C -> object code -> runtime.Module

Each function is a compilation unit of its own, so that the units of a large module compile in parallel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext
from tilewright.runtime.module import Module, from_compiled
from tilewright.target.codegen.llvm.code import LLVMCode
from tilewright.target.codegen.llvm.module import UnitText, emit_function
from tilewright.target.features import features
from tilewright.target.target import Target
from tilewright.target.workers import Batch, CompileJob, pool
from tilewright.tir.function import PrimFunc
from tilewright.tir.transform.lower_intrin import LowerIntrin
from tilewright.tir.transform.lower_tvm_builtin import LowerTVMBuiltin
from tilewright.tir.transform.make_packed_api import MakePackedAPI
from tilewright.tir.transform.transpose_loads import TransposeLoads


def codegen_passes(target: Target) -> list[Any]:
    """The passes that bring lowered functions to the form that the code generator of ``target`` takes."""
    in_registers = [TransposeLoads()] if target.kind.name == "llvm" else []  # C has no vectors
    return [*in_registers, MakePackedAPI(), LowerTVMBuiltin(), LowerIntrin()]


class ModuleBuilder:
    """Builds one runtime module from functions that come one after another.

    A function starts to compile as soon as it is added, while the caller goes on lowering the next one::

        builder = ModuleBuilder(target)
        for func in functions:
            builder.add(func)
        module = builder.finish()
    """

    def __init__(self, target: Target | str) -> None:
        self.target = Target(target)
        if self.target.kind.name not in ("llvm", "c"):
            raise UnsupportedError(
                f"there is no code generator for the target kind {self.target.kind.name!r}; use llvm or c"
            )
        self._cpu = features(self.target)
        self._level = int(self.target.attrs.get("opt-level", PassContext.current().option("target.opt_level")))
        self._functions: list[PrimFunc] = []
        self._units: list[UnitText] = []
        self._batch = Batch(pool())

    def add(self, func: PrimFunc | IRModule) -> None:
        """Add a lowered function, or every function of a module."""
        if isinstance(func, PrimFunc):
            mod = IRModule()
            mod[str(func.attrs.get("global_symbol", "main"))] = func
        else:
            mod = func
        for var, item in mod.items():
            if not isinstance(item, PrimFunc):
                raise TilewrightError(
                    f"{var.name_hint} is a {type(item).__name__}, not a TIR function; "
                    "build a Relay module with relay.build"
                )
        bound = IRModule()
        for var, item in mod.items():
            named = item if "global_symbol" in item.get_attrs() else item.with_attr("global_symbol", var.name_hint)
            bound[var] = named.with_attr("target", self.target)
        for step in codegen_passes(self.target):
            bound = step(bound)
        for item in bound.functions.values():
            if isinstance(item, PrimFunc):
                self._add_lowered(item)

    def _add_lowered(self, func: PrimFunc) -> None:
        if self.target.kind.name == "c":
            self._functions.append(func)
            return
        unit = emit_function(func, self._cpu)
        if any(unit.name == u.name for u in self._units):
            raise TilewrightError(f"the module has two functions named {unit.name}")
        self._units.append(unit)
        self._batch.add(CompileJob(unit.name, unit.text, self._cpu, self._level))

    def finish(self) -> Module:
        """The module; the function added first is its entry."""
        if self.target.kind.name == "c":
            from tilewright.target.codegen.c.code import CCode

            code = CCode(self._functions, self.target)
            module = from_compiled(code, "c")
            code.module_handle = module.handle
            return module
        system_lib = bool(self.target.attrs.get("system-lib", False))
        compiled = LLVMCode(self._units, self._batch.results(), self._cpu, self._level, system_lib)
        compiled.load()  # now, because an error has no way out of the runtime's look-up
        return from_compiled(compiled, "llvm")


def build(
    inputs: Any,
    args: Sequence[Any] | None = None,
    target: Any = None,
    target_host: Any = None,
    name: str = "default_function",
    binds: Mapping[Any, Any] | None = None,
) -> Module:
    """Compile to a module that runs in this process and can be exported.

    Parameters
    ----------
    inputs : a schedule (with ``args``), a PrimFunc, an IRModule of PrimFuncs, or {target: IRModule} of functions that
        are lowered already
    args : tensors, buffers and scalar variables, in the order of the function's parameters
    target : a target or its text; the current target, or "llvm", when it is not given
    target_host : accepted as in TVM; the host code of a CPU target is the target's own
    name : name of the function that a schedule becomes
    binds : buffers of tensors

    Returns
    -------
    A module of type ``llvm`` or ``c``; ``module(...)`` calls the entry function, ``module["name"]`` gives one by name.
    """
    from tilewright.te.lower import lower

    if isinstance(inputs, Mapping):
        parts = [(Target(t), mod) for t, mod in inputs.items()]
        if not parts:
            raise TilewrightError("build was given an empty dictionary of targets")
    else:
        chosen = Target(target) if target is not None else Target.current() or Target("llvm")
        if isinstance(inputs, (list, tuple)):
            merged = IRModule()
            for item in inputs:
                merged.update(item if isinstance(item, IRModule) else lower(item))
            inputs = merged
        with chosen:
            parts = [(chosen, lower(inputs, args, name=name, binds=binds))]
    modules = []
    for part_target, mod in parts:
        builder = ModuleBuilder(part_target.with_host(target_host))
        builder.add(mod)
        modules.append(builder.finish())
    for extra in modules[1:]:
        modules[0].import_module(extra)
    return modules[0]
