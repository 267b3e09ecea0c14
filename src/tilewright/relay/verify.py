"""The verifier of modules, and an instrument that runs it after each pass.

Relay functions must satisfy: they type-check; the types recorded on expressions are those that inference finds from
scratch, and none is recorded before those of its parts; every variable is bound once and used in its scope; callees
exist; attributes are as ``relay.function_attributes`` declares them. PrimFuncs must satisfy ``tir.verify``.
"""

from __future__ import annotations

from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import BaseFunc
from tilewright.ir.function_attributes import Carrier, Stage, attribute_problems
from tilewright.ir.instrument import PassInstrument
from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassInfo
from tilewright.relay.analysis import well_formed_problems
from tilewright.relay.expr import Function
from tilewright.relay.function_attributes import COMPILER, IMPLEMENTATION, PRIMITIVE
from tilewright.relay.type_infer import type_problems
from tilewright.relay.visitor import post_order
from tilewright.tir.function import PrimFunc
from tilewright.tir.verify import verify_well_formed


class IllFormedModuleError(TilewrightError, ValueError):
    """A module that breaks a rule; a bug of the pass that made it."""


def verify_module(mod: IRModule) -> None:
    """Check a module.

    Raises:
        TilewrightError: it breaks a rule; the message lists every problem.
    """
    _verify_relay(mod)
    verify_well_formed(mod)


def _verify_relay(mod: IRModule) -> None:
    problems = well_formed_problems(mod) or type_problems(mod) or module_attribute_problems(mod)
    if problems:
        lines = "\n".join(f"  {problem}" for problem in dict.fromkeys(problems))
        raise IllFormedModuleError(f"the module is not well-formed:\n{lines}")


def stage_of(mod: IRModule) -> Stage:
    """Return LOWERED for a module that LowerTE made, else RELAY."""
    lowered = any(isinstance(func, PrimFunc) and IMPLEMENTATION.has(func) for func in mod.functions.values())
    return Stage.LOWERED if lowered else Stage.RELAY


def module_attribute_problems(mod: IRModule) -> list[str]:
    """Return the problems of declared attributes of the module and of its Relay functions, inner ones too."""
    stage = stage_of(mod)
    problems = attribute_problems(mod.attrs, Carrier.MODULE, stage)
    for var, func in mod.functions.items():
        if isinstance(func, Function):
            inner = (e for e in post_order(func) if isinstance(e, Function) and e.attrs)
            found = [text for e in inner for text in attribute_problems(e.attrs, _carrier_of(e), stage)]
            problems += [f"in @{var.name_hint}: {text}" for text in found]
    return problems


def _carrier_of(func: Function) -> Carrier:
    if COMPILER.on(func):
        return Carrier.EXTERNAL
    return Carrier.PRIMITIVE if PRIMITIVE.on(func) else Carrier.OPEN


class VerifyIR(PassInstrument):
    """Instrument that verifies the result of every pass, and names the pass that broke a module.

    A module that was broken before a pass is not verified after it. A verified module is not verified again while no
    pass has changed it.
    """

    def __init__(self) -> None:
        self._relay: tuple[BaseFunc, ...] | None = None
        self._kernels: dict[int, PrimFunc] = {}
        self._given_well: list[bool] = []

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Record whether the pass's input is valid."""
        try:
            self._verify(mod)
        except TilewrightError:
            self._given_well.append(False)
        else:
            self._given_well.append(True)

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Verify the module; raise IllFormedModuleError that names the pass."""
        if not self._given_well.pop():
            return
        try:
            self._verify(mod)
        except TilewrightError as error:
            raise IllFormedModuleError(f"the pass {info.name} broke its module: {error}") from error

    def _verify(self, mod: IRModule) -> None:
        relay = tuple(func for func in mod.functions.values() if not isinstance(func, PrimFunc))
        if self._relay is None or len(relay) != len(self._relay) or any(map(_differ, relay, self._relay)):
            self._relay = None
            _verify_relay(mod)
            self._relay = relay
        kernels = {id(func): func for func in mod.functions.values() if isinstance(func, PrimFunc)}
        for key, func in kernels.items():
            if key not in self._kernels:
                verify_well_formed(func)
        self._kernels = kernels


def _differ(one: BaseFunc, other: BaseFunc) -> bool:
    return one is not other
