"""From a graph of AOTAutograd to a function of torch's tensors."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from tilewright.ir.budget import BudgetError
from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.relay.frontend.torch.context import place_of
from tilewright.torch_compile.library import build_library
from tilewright.torch_compile.options import Options
from tilewright.torch_compile.partition import PREFIX, refusals, split
from tilewright.torch_compile.plan import Plan, plan_of
from tilewright.torch_compile.run import Runner

Compiled = Callable[[list[Any]], Sequence[Any]]
_TRIES = 16  # how many operators of a graph may turn out not to compile, until all of it stays in PyTorch


class CompileWarning(RuntimeWarning):
    """A part of a model runs in PyTorch."""


def compile_graph(
    options: Options,
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    constants: Mapping[int, torch.Tensor] | None = None,
) -> Compiled:
    """Return a function for a graph: it takes a list of the graph's inputs, which it empties, and gives its outputs.

    Args:
        gm: a functional graph of ATen's operators.
        example_inputs: torch's fake inputs, symbolic integers among them.
        constants: tensors of inputs by their place, which the program keeps; these inputs are not read.

    Raises:
        UnsupportedError: ``options.fallback`` is off, and an operator has no converter or does not compile.
    """
    places = [node for node in gm.graph.nodes if node.op == "placeholder"]
    bound = {places[i].name: tensor for i, tensor in (constants or {}).items()}
    refused = refusals(gm)
    for _ in range(_TRIES):
        if refused and not options.fallback:
            raise _refusal(gm, refused)
        try:
            with _disable_current_modes():  # constants are no fake tensors
                run = _parts(options, gm, refused, bound) if refused else _whole(options, gm, bound)
            return _boxed(run)
        except _NodeError as error:
            refused[error.node] = str(error)
    refused |= {node.name: "the graph has too many that fail" for node in gm.graph.nodes if node.op == "call_function"}
    return _boxed(_Mixed(gm, gm, refused))


class _NodeError(Exception):
    """An operator could not be compiled."""

    def __init__(self, node: str, why: str) -> None:
        super().__init__(why)
        self.node = node


def _boxed(run: Callable[..., Sequence[Any]]) -> Compiled:
    def call(args: list[Any]) -> Sequence[Any]:
        given = tuple(args)
        args.clear()
        return run(*given)

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


# ---- all of a graph, or a part ----


def _whole(options: Options, gm: fx.GraphModule, constants: Mapping[str, torch.Tensor]) -> Callable[..., Sequence[Any]]:
    """Return the function of a graph without operators that are refused."""
    plan = plan_of(gm, constants)
    if not plan.computed:
        return plan.passed
    return Runner(plan, *_library(options, plan))


def _library(options: Options, plan: Plan) -> tuple[Any, list[str]]:
    try:
        function, arrays = plan.convert()
        return build_library(options, function, arrays)
    except BudgetError:
        raise
    except (TilewrightError, RecursionError) as error:
        node = _culprit(plan.graph, error)
        if node is None or not options.fallback:
            raise
        raise _NodeError(node, str(error).splitlines()[0]) from error


def _culprit(gm: fx.GraphModule, error: BaseException) -> str | None:
    """Return the name of the node that an error of the front end, or of a pass, names."""
    text = str(error)
    for node in gm.graph.nodes:
        if node.op == "call_function" and f"({node.name})" in text:
            return str(node.name)
    return None


def _parts(
    options: Options, gm: fx.GraphModule, refused: Mapping[str, str], constants: Mapping[str, torch.Tensor]
) -> Callable[..., Sequence[Any]]:
    """Return the function of a graph that PyTorch runs, with parts of it compiled."""
    mixed = split(_copy(gm), refused)
    for node in list(mixed.graph.nodes):
        if node.op == "call_module" and str(node.target).startswith(PREFIX):
            part = getattr(mixed, str(node.target))
            given = [p.name for p in part.graph.nodes if p.op == "placeholder"]
            known = {
                name: constants[source.name]
                for name, source in zip(given, node.args, strict=True)
                if isinstance(source, fx.Node) and source.name in constants
            }
            setattr(mixed, str(node.target), _Part(_whole(options, part, known)))
    mixed.recompile()
    return _Mixed(mixed, gm, refused)


def _copy(gm: fx.GraphModule) -> fx.GraphModule:
    graph = fx.Graph()
    output = graph.graph_copy(gm.graph, {})
    graph.output(output)
    return fx.GraphModule(gm, graph)


class _Part(torch.nn.Module):
    """A compiled part, as a graph of torch calls it."""

    def __init__(self, run: Callable[..., Sequence[Any]]) -> None:
        super().__init__()
        self._run = run

    def forward(self, *args: Any) -> tuple[Any, ...]:
        """Return the results of the part."""
        return tuple(self._run(*args))


class _Mixed:
    """A graph of which PyTorch runs a part. The first call tells which, and how long that took."""

    def __init__(self, gm: fx.GraphModule, original: fx.GraphModule, refused: Mapping[str, str]) -> None:
        self._gm, self._warned = gm, False
        self._count = sum(node.op == "call_function" for node in original.graph.nodes)
        self._refused = {name: why for name, why in refused.items() if any(n.name == name for n in gm.graph.nodes)}

    def __call__(self, *args: Any) -> Sequence[Any]:
        if self._warned:
            results: Sequence[Any] = self._gm.forward(*args)
            return results
        self._warned = True
        timed = _Timed(self._gm, self._refused)
        results = timed.run(*args)
        warnings.warn(self._message(timed), CompileWarning, stacklevel=2)
        return results

    def _message(self, timed: _Timed) -> str:
        lines: dict[str, list[str]] = {}
        for node in self._gm.graph.nodes:
            if node.name in self._refused:
                lines.setdefault(f"{node.target}: {self._refused[node.name]}", []).append(place_of(node) or node.name)
        shown = [f"  {head}; at {'; '.join(list(dict.fromkeys(p))[:3])}" for head, p in lines.items()]
        return (
            f"torch.compile(backend='tilewright'): {len(self._refused)} of {self._count} operators run in PyTorch, "
            f"{1e3 * timed.eager:.2f} ms of {1e3 * timed.total:.2f} ms of the first call:\n" + "\n".join(shown)
        )


class _Timed(fx.Interpreter):
    """Runs a graph once; ``eager`` are the seconds of the named nodes, ``total`` those of all."""

    def __init__(self, gm: fx.GraphModule, names: Mapping[str, str]) -> None:
        super().__init__(gm)
        self._names = names
        self.eager = self.total = 0.0

    def run_node(self, n: fx.Node) -> Any:
        """Run a node, and note its time."""
        start = time.perf_counter()
        result = super().run_node(n)
        spent = time.perf_counter() - start
        self.total += spent
        if n.name in self._names:
            self.eager += spent
        return result


def _refusal(gm: fx.GraphModule, refused: Mapping[str, str]) -> UnsupportedError:
    lines = [
        f"  {node.target} ({node.name}): {refused[node.name]}" + (f"; at {place_of(node)}" if place_of(node) else "")
        for node in gm.graph.nodes
        if node.name in refused
    ]
    return UnsupportedError(
        "torch.compile(backend='tilewright', options={'fallback': False}) cannot compile operators:\n"
        + "\n".join(lines)
    )
