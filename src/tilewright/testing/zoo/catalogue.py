"""The zoo's names, and for each the builder and a small variant for tests. Imports no framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .workload import Workload


@dataclass(frozen=True)
class Entry:
    """One network: its builder's `module` and `function`, and the options of a small variant for unit tests."""

    module: str
    function: str
    small: Mapping[str, Any]


CATALOGUE: Mapping[str, Entry] = {
    "resnet18": Entry("classifiers", "resnet18", {"image_size": 32, "width": 8, "classes": 10}),
    "resnet50": Entry("classifiers", "resnet50", {"image_size": 32, "width": 8, "layers": (1, 2, 1, 1), "classes": 10}),
    "vgg16": Entry("classifiers", "vgg16", {"image_size": 32, "width": 4, "classes": 10}),
    "mobilenet_v2": Entry("classifiers", "mobilenet_v2", {"image_size": 32, "width": 0.25, "classes": 10}),
    "squeezenet1_1": Entry("classifiers", "squeezenet1_1", {"image_size": 48, "width": 16, "classes": 10}),
    "densenet121": Entry(
        "multibranch", "densenet121", {"image_size": 32, "growth": 8, "layers": (2, 2, 2), "classes": 10}
    ),
    "inception_v3": Entry("multibranch", "inception_v3", {"image_size": 75, "width": 0.125, "classes": 10}),
    "unet": Entry("multibranch", "unet", {"image_size": 32, "width": 4, "layers": 2}),
    "bert_base": Entry(
        "transformers", "bert_base", {"tokens": 9, "layers": 2, "hidden": 24, "heads": 3, "vocabulary": 101}
    ),
    "distilbert": Entry(
        "transformers", "distilbert", {"tokens": 9, "layers": 2, "hidden": 24, "heads": 3, "vocabulary": 101}
    ),
    "vit_b16": Entry(
        "transformers",
        "vit_b16",
        {"image_size": 24, "patch": 8, "layers": 2, "hidden": 24, "heads": 2, "classes": 10},
    ),
    "gpt2_decode": Entry(
        "transformers", "gpt2_decode", {"past": 7, "layers": 2, "hidden": 24, "heads": 3, "vocabulary": 101}
    ),
    "bilstm": Entry("recurrent", "bilstm", {"steps": 5, "inputs": 12, "hidden": 8}),
}


def names() -> tuple[str, ...]:
    """The networks' names, in the order of the catalogue."""
    return tuple(CATALOGUE)


def small_options(name: str) -> dict[str, Any]:
    """Options of `build` and `export` for a variant of network `name` that a unit test can afford."""
    return dict(entry(name).small)


def entry(name: str) -> Entry:
    """The catalogue's line for `name`; raises KeyError naming the known ones."""
    if name not in CATALOGUE:
        raise KeyError(f"no network {name!r} in the zoo; it has: {', '.join(CATALOGUE)}")
    return CATALOGUE[name]


def builder(name: str) -> Callable[..., Workload]:
    """The function that builds network `name`, its weights not yet initialized. Imports torch."""
    found = entry(name)
    function: Callable[..., Workload] = getattr(import_module(f"{__package__}.{found.module}"), found.function)
    return function


def build(name: str, **options: Any) -> Workload:
    """Build network `name` with its random weights and inputs, the same on every call.

    `options` are those of the builder (sizes smaller than the published network's). Imports torch.
    """
    import torch

    from .workload import initialize

    make = builder(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        workload = make(**options)
        initialize(workload)
    return workload
