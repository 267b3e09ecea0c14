"""A model to compare with eager torch, and what became of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

import tilewright
from tilewright.relay.frontend.torch.exported import exported

TOLERANCE = 1e-4  # of the largest result
EQUAL, DIFFERENT, FAILED, NOT_EXPORTED, NOT_MADE = "equal", "different", "failed", "not exported", "not made"


@dataclass
class Example:
    """A module in evaluation mode with inputs: a tuple, or a mapping by name; ``others`` are of other sizes.

    ``integers``: its convolutions and dense layers have to be computed on integers.
    """

    module: torch.nn.Module
    inputs: Any
    dynamic_shapes: Any = None
    others: Sequence[Any] = ()
    integers: bool = False


@dataclass(frozen=True)
class Subject:
    """A model by name, which is made when it is its turn."""

    name: str
    make: Callable[[], Example]


@dataclass(frozen=True)
class Outcome:
    """What became of a model: its kind, the error relative to the largest result, or the message; seconds of CPU."""

    name: str
    kind: str
    text: str
    seconds: float = 0.0

    def line(self) -> str:
        """Return the outcome as a line of JSON."""
        return json.dumps(asdict(self))


def awake(module: torch.nn.Module) -> None:
    """Give random numbers to parameters that begin as zeros: their layers say nothing."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.is_floating_point() and not parameter.any():
                parameter.normal_(std=0.1)


def outcome_of(subject: Subject, export_only: bool = False) -> Outcome:
    """Make a model, export and compile it, and compare its results with eager's."""
    try:
        example = subject.make()
        eager = [_eager(example.module, given) for given in (example.inputs, *example.others)]
    except Exception as problem:
        return Outcome(subject.name, NOT_MADE, _message(problem))
    try:
        program = exported(example.module, example.inputs, example.dynamic_shapes)
    except Exception as problem:
        return Outcome(subject.name, NOT_EXPORTED, _message(problem))
    if export_only:
        return Outcome(subject.name, EQUAL, "exported")
    try:
        model = tilewright.compile(program)
        error = max(
            _error(_called(model, given), wanted)
            for given, wanted in zip((example.inputs, *example.others), eager, strict=True)
        )
    except Exception as problem:
        return Outcome(subject.name, FAILED, _message(problem))
    if example.integers and (left := _in_float32(model)):
        return Outcome(subject.name, FAILED, left)
    return Outcome(subject.name, EQUAL if error <= TOLERANCE else DIFFERENT, f"{error:.1e}")


def _in_float32(model: tilewright.Model) -> str:
    """Return which products of a quantized model are computed in float32."""
    report = model.build_report
    products = [d for d in report.quantized if d.operator in ("nn.conv2d", "nn.dense")]
    left = [d.node for d in products if d.reason]
    return "" if products and not left else f"computed in float32: {left or 'all'}"


def _called(module: Any, given: Any) -> Any:
    return module(**given) if isinstance(given, dict) else module(*given)


def _eager(module: torch.nn.Module, given: Any) -> list[torch.Tensor]:
    with torch.no_grad():
        return [leaf.clone() for leaf in tree_leaves(_called(module, given)) if isinstance(leaf, torch.Tensor)]


def _error(found: Any, expected: Sequence[torch.Tensor]) -> float:
    errors = [0.0]
    for own, wanted in zip(tree_leaves(found), expected, strict=True):
        assert own.shape == wanted.shape, (own.shape, wanted.shape)
        if wanted.numel():
            largest = max(wanted.double().abs().max().item(), 1e-6)
            difference = (own.double() - wanted.double()).abs().max().item() / largest
            errors.append(float("inf") if difference != difference else difference)
    return max(errors)


def _message(problem: Exception) -> str:
    return f"{type(problem).__name__}: {' '.join(str(problem).split())[:700]}"
