"""``relay.create_executor``: evaluate Relay functions from Python, by compiling them or by interpreting them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.type import TupleType
from tilewright.relay.expr import Function
from tilewright.relay.interpreter import interpret, to_value
from tilewright.runtime import ndarray as nd
from tilewright.runtime.device import Device, cpu
from tilewright.runtime.executor.graph import GraphModule


class Executor(Protocol):
    """Evaluates functions of a module."""

    def evaluate(self, expr: RelayExpr | None = None, **binds: Any) -> Callable[..., Any]:
        """A Python function that runs ``expr``, or the module's main."""


class _Base:
    def __init__(self, mod: IRModule, device: Device, target: Any, params: Mapping[str, Any] | None) -> None:
        self.mod = mod
        self.device = device
        self.target = target
        self.params = dict(params or {})

    def _module_for(self, expr: RelayExpr | None) -> IRModule:
        mod = self.mod.copy()
        if isinstance(expr, GlobalVar):
            mod["main"] = mod[expr]
        elif expr is not None:
            mod["main"] = expr if isinstance(expr, Function) else Function([], expr)
        if "main" not in mod:
            raise TilewrightError("there is nothing to evaluate: the module has no main and no expression was given")
        return mod

    def _arguments(self, func: Function, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        given = {**self.params, **kwargs}
        rest = iter(args)
        values: list[Any] = []
        for param in func.params:
            if param.name_hint in given:
                values.append(given[param.name_hint])
                continue
            try:
                values.append(next(rest))
            except StopIteration:
                raise TilewrightError(f"no value for the parameter {param.name_hint!r}") from None
        if (extra := len(list(rest))) > 0:
            raise TilewrightError(f"{extra} more arguments than main has parameters")
        return values


class DebugExecutor(_Base):
    """Interprets: every construct, nothing compiled."""

    def evaluate(self, expr: RelayExpr | None = None, **binds: Any) -> Callable[..., Any]:
        """A Python function that interprets ``expr``; gives NDArrays."""
        mod = self._module_for(expr)

        def run(*args: Any, **kwargs: Any) -> Any:
            return _to_ndarray(interpret(mod, self._arguments(mod["main"], args, {**binds, **kwargs})))

        return run


class GraphExecutor(_Base):
    """Compiles for the graph executor: data flow only."""

    def evaluate(self, expr: RelayExpr | None = None, **binds: Any) -> Callable[..., Any]:
        """A Python function that runs the compiled ``expr``; gives NDArrays."""
        from tilewright.relay.build_module import build
        from tilewright.relay.transform.infer_type import InferType

        mod = InferType()(self._module_for(expr))
        library = build(mod, self.target)
        executor = GraphModule(library["default"](self.device))
        result = mod["main"].body.checked_type

        def run(*args: Any, **kwargs: Any) -> Any:
            values = self._arguments(mod["main"], args, {**binds, **kwargs})
            for index, value in enumerate(values):
                executor.set_input(index, to_value(value))
            executor.run()
            outputs = [executor.get_output(i).copyto(self.device) for i in range(executor.get_num_outputs())]
            return outputs if isinstance(result, TupleType) else outputs[0]

        return run


def _to_ndarray(value: Any) -> Any:
    return tuple(_to_ndarray(v) for v in value) if isinstance(value, tuple) else nd.array(value)


def create_executor(
    kind: str = "debug",
    mod: IRModule | None = None,
    device: Device | None = None,
    target: Any = "llvm",
    params: Mapping[str, Any] | None = None,
) -> DebugExecutor | GraphExecutor:
    """An executor of kind "debug" (interprets every construct) or "graph" (compiles data flow).

    ``create_executor("graph", mod).evaluate()(x, y)`` gives NDArrays.
    """
    kinds: dict[str, type[DebugExecutor | GraphExecutor]] = {"debug": DebugExecutor, "graph": GraphExecutor}
    if kind not in kinds:
        raise TilewrightError(f"there is no executor of kind {kind!r}; there are {', '.join(sorted(kinds))}")
    return kinds[kind](mod or IRModule(), device or cpu(0), target, params)
