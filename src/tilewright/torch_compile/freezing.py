"""Weights as constants of programs that need no gradients.

A program is compiled for weights as they are. Each call looks whether they are still the same tensors, and whether
anything was written to them since; for others the graph is compiled anew, and after some of these with the weights as
inputs.
"""

from __future__ import annotations

import operator
import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from tilewright.torch_compile.compiler import Compiled, CompileWarning, compile_graph
from tilewright.torch_compile.options import Options

_MOST_VARIANTS = 4
_versions = operator.attrgetter("_version")


def constant_inputs(gm: fx.GraphModule, inputs: Sequence[Any]) -> dict[int, torch.Tensor]:
    """Return the inputs of a graph of TorchDynamo that are a module's parameters or buffers, by their place."""
    places = [node for node in gm.graph.nodes if node.op == "placeholder"]
    return {
        i: value
        for i, (node, value) in enumerate(zip(places, inputs, strict=False))
        if isinstance(value, torch.Tensor)
        and type(value) in (torch.Tensor, torch.nn.Parameter)
        and _is_static(node, value)
    }


def _is_static(node: fx.Node, value: torch.Tensor) -> bool:
    if isinstance(value, torch.nn.Parameter):
        return True
    return "_dynamo_static_input_type" in (node.meta.get("tensor_dict") or {})


def compile_frozen(
    options: Options, constants: Mapping[int, torch.Tensor], gm: fx.GraphModule, example_inputs: Sequence[Any]
) -> Compiled:
    """Return a function for a graph, compiled with these inputs as constants."""
    known = {i: t for i, t in constants.items() if i < len(example_inputs) and _same_kind(t, example_inputs[i])}
    return _Frozen(options, gm, example_inputs, known) if known else compile_graph(options, gm, example_inputs)


def _same_kind(tensor: torch.Tensor, example: Any) -> bool:
    return isinstance(example, torch.Tensor) and tensor.shape == example.shape and tensor.dtype == example.dtype


class _Frozen:
    """The programs of a graph for the weights that it met."""

    _boxed_call = True

    def __init__(
        self, options: Options, gm: fx.GraphModule, example_inputs: Sequence[Any], known: Mapping[int, torch.Tensor]
    ) -> None:
        self._options, self._gm, self._examples = options, gm, example_inputs
        self._places = list(known)
        self._pick = operator.itemgetter(*self._places) if len(known) > 1 else None
        self._variants: list[tuple[tuple[Any, ...], list[int], Compiled]] = []
        self._general: Compiled | None = None
        self._lock = threading.Lock()
        self._add(tuple(known.values()))

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        weights = self._pick(args) if self._pick is not None else (args[self._places[0]],)
        for frozen, versions, run in self._variants:
            if all(map(operator.is_, weights, frozen)) and list(map(_versions, weights)) == versions:
                return run(args)
        return self._other(weights)(args)

    def _add(self, weights: tuple[Any, ...]) -> Compiled:
        with _disable_current_modes():
            constants = {i: w.detach() for i, w in zip(self._places, weights, strict=True)}
        versions = list(map(_versions, weights))
        run = compile_graph(self._options, self._gm, self._examples, constants)
        self._variants.append((weights, versions, run))
        return run

    def _other(self, weights: tuple[Any, ...]) -> Compiled:
        """Return the program for weights that are not known yet."""
        with self._lock:
            stale = [v for v in self._variants if all(map(operator.is_, weights, v[0]))]
            for variant in stale:
                self._variants.remove(variant)
            if self._general is None and not stale and len(self._variants) < _MOST_VARIANTS:
                return self._add(weights)
            if self._general is None:
                why = "weights have changed since they became constants" if stale else "many modules share one graph"
                warnings.warn(
                    f"torch.compile(backend='tilewright', options={{'freezing': True}}): {why}; "
                    "they are inputs from now on",
                    CompileWarning,
                    stacklevel=3,
                )
                self._general = compile_graph(self._options, self._gm, self._examples)
            return self._general
