"""``relay.vm``: programs for the virtual machine, which runs all of Relay (``runtime.vm``, docs/vm.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Sequential
from tilewright.relay.backend.executor import VMExecutor as VMExecutor
from tilewright.relay.backend.executors import codegen_for
from tilewright.relay.backend.target_map import TargetMap
from tilewright.relay.backend.vm_build import NAME
from tilewright.relay.build_module import build, fusion_passes, optimization_passes
from tilewright.relay.expr import Function
from tilewright.relay.transform.bind_params import with_params
from tilewright.runtime.ndarray import NDArray, array
from tilewright.runtime.vm import Executable


def compile(
    mod: IRModule | Function,
    target: Any = None,
    target_host: Any = None,
    params: Mapping[str, Any] | None = None,
) -> Executable:
    """Compile a module for the virtual machine.

    Parameters
    ----------
    mod : the module, whose ``main`` and all that it calls are compiled; or ``main``
    target, target_host : as of ``relay.build``
    params : arrays for parameters of ``main`` by name, which become constants

    Raises
    ------
    TilewrightError : the module does not type-check, or uses what the target cannot run
    """
    made: Executable = build(_as_module(mod), target, target_host, params, executor=NAME)
    return made


def _as_module(mod: IRModule | Function) -> IRModule:
    module = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)
    if "main" not in module:
        raise TilewrightError("the module has no function main, where a program begins")
    return module


class VMCompiler:
    """Compiler in steps, by TVM 0.8's interface."""

    def __init__(self) -> None:
        self._params: dict[str, Any] = {}
        self._made: Executable | None = None

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Set parameters of main by name, for the next compilation."""
        self._params = dict(params)

    def get_params(self) -> dict[str, NDArray]:
        """Return the parameters that were set."""
        return {name: p if isinstance(p, NDArray) else array(p) for name, p in self._params.items()}

    def optimize(
        self,
        mod: IRModule | Function,
        target: Any = None,
        target_host: Any = None,
        params: Mapping[str, Any] | None = None,
    ) -> tuple[IRModule, dict[str, NDArray]]:
        """Return the module after all passes, with global functions in A-normal form, and the parameters."""
        if params:
            self.set_params(params)
        targets = TargetMap.of(target, target_host)
        module = _as_module(mod).copy()
        if self._params:
            module["main"] = with_params(module["main"], self._params)
        codegen = codegen_for(NAME)
        passes = codegen.optimization_passes(optimization_passes())
        with targets.default:
            done = Sequential([*passes, *fusion_passes(), *codegen.prepare_passes()], name="vm.optimize")(module)
        return done, self.get_params()

    def lower(self, mod: IRModule | Function, target: Any = None, target_host: Any = None) -> None:
        """Compile a module."""
        self._made = compile(mod, target, target_host, self._params)

    def codegen(self) -> None:
        """Do nothing: ``lower`` has made the library of kernels."""

    def get_exec(self) -> Executable:
        """Return the executable that was compiled."""
        if self._made is None:
            raise TilewrightError("nothing has been compiled; call lower(mod, target) first")
        return self._made
