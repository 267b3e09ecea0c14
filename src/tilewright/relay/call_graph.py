"""References between the global functions of a module: ``relay.analysis.CallGraph``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tilewright.ir import walk
from tilewright.ir.expr import GlobalVar
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Function
from tilewright.relay.visitor import post_order


class CallGraph:
    """The Relay functions of ``module`` by name, and for each the functions that it names, once each.

    Raises TilewrightError where a function names one that the module does not have.
    """

    module: IRModule

    def __init__(self, module: IRModule) -> None:
        self.module = module
        self.callees: dict[str, list[str]] = {}
        for var, func in module.items():
            if isinstance(func, Function):
                named = [e for e in post_order(func) if isinstance(e, GlobalVar)]
                self.callees[var.name_hint] = [module.get_global_var(e.name_hint).name_hint for e in named]
        self._counts = Counter(callee for callees in self.callees.values() for callee in callees)

    def _name(self, var: str | GlobalVar) -> str:
        if isinstance(var, GlobalVar):
            var = var.name_hint
        elif not isinstance(var, str):
            raise TypeError("var should be either a string or GlobalVar")
        return self.module.get_global_var(var).name_hint

    def ref_count(self, var: str | GlobalVar) -> int:
        """Return how many functions name the function, itself included."""
        return self._counts[self._name(var)]

    def global_call_count(self, var: str | GlobalVar) -> int:
        """Return how many functions the function names."""
        return len(self.callees.get(self._name(var), ()))

    def is_recursive(self, var: str | GlobalVar) -> bool:
        """Return whether the function names itself."""
        name = self._name(var)
        return name in self.callees.get(name, ())

    def reached(self, starts: Iterable[str]) -> list[str]:
        """Return ``starts`` and every function reachable from them; callees before callers."""
        return walk.post_order(starts, lambda name: [*self.callees.get(name, ())])

    def leads_to_itself(self, name: str) -> bool:
        """Return whether the function names itself, or reaches one that names it."""
        return any(name in self.callees.get(other, ()) for other in self.reached([name]))

    def print_var(self, var: str | GlobalVar) -> str:
        """Return one function as text: how often it is named, and the functions that it names."""
        name = self._name(var)
        lines = [f"Call graph node: {name},  #refs = {self.ref_count(name)}"]
        lines += [f"  call site: <{name}> calls {callee}" for callee in self.callees.get(name, ())]
        return "\n".join(lines) + "\n"

    def __str__(self) -> str:
        """Return all functions as text, callers before callees."""
        return "\n".join(map(self.print_var, reversed(self.reached(self.callees))))
