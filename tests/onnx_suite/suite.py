"""Runs cases of the suite through ``tilewright.relay.frontend.onnx.backend``, and says why some fail."""

from __future__ import annotations

import functools
import json
import os
import tempfile
import unittest
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
from onnx.backend.test.case import base
from onnx.reference.ops import op_pool_common

from tilewright.relay.frontend.onnx import backend

ROOT = Path(__file__).parents[2]
ONNX_POOL = op_pool_common.pool
KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")


@dataclass(frozen=True)
class Outcome:
    """What came of a case: ``passed``, or the kind of error and the first lines of its message."""

    name: str
    kind: str
    message: str = ""

    @property
    def passed(self) -> bool:
        """Whether the outputs were the expected ones."""
        return self.kind == "passed"


class _Backend(backend.TilewrightBackend):
    opt_level = 3

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> backend.PreparedModel:
        return super().prepare(model, device, opt_level=cls.opt_level)


def whole_windows(padded: np.ndarray, kernel: Sequence[int], strides: Sequence[int], kind: str, p: int) -> np.ndarray:
    """Return a pool whose windows all lie inside of ``padded``, (N, C, spatial...)."""
    axes = range(2, padded.ndim)
    windows = np.lib.stride_tricks.sliding_window_view(padded, tuple(kernel), tuple(axes))
    windows = windows[(..., *(slice(None, None, step) for step in strides), *(slice(None) for _ in axes))]
    inner = tuple(range(padded.ndim, windows.ndim))
    if kind == "LPPOOL":
        return np.asarray((np.abs(windows) ** p).sum(inner) ** (1.0 / p))
    return np.asarray(windows.mean(inner) if kind == "AVG" else windows.max(inner))


def _pool(padded: Any, x_shape: Any, kernel: Any, strides: Any, out: Any, kind: str, *rest: Any, **named: Any) -> Any:
    """Compute what ONNX's function does; it takes seconds for the large inputs, which have no padding."""
    if rest or named.keys() - {"p"}:
        return ONNX_POOL(padded, x_shape, kernel, strides, out, kind, *rest, **named)
    strides = strides or [1] * len(kernel)
    return whole_windows(padded, kernel, strides, kind, named.get("p", 1)).astype(padded.dtype)


@functools.cache
def cases() -> dict[str, Callable[[], None]]:
    """Every case for CPUs by its name, without the runner's ``_cpu``."""
    from onnx.backend.test.loader import load_model_tests
    from onnx.backend.test.runner import Runner

    class Light(Runner):
        def __init__(self) -> None:
            self.backend, self._parent_module, self._test_kwargs = _Backend, __name__, {}
            self._include_patterns, self._exclude_patterns, self._xfail_patterns = set(), set(), set()
            self._test_items = {}
            for kind in KINDS:
                for case in load_model_tests(kind=kind):
                    category = "Node" if kind == "node" else "Other" + kind
                    self._test_items.setdefault(category + "Model", {})
                    self._add_model_test(case, category)

    with (
        warnings.catch_warnings(),
        mock.patch.object(op_pool_common, "pool", _pool),
        mock.patch.object(base, "process_snippet", lambda *names: ("", "")),
    ):  # the texts of ONNX's documents
        warnings.simplefilter("ignore")
        runner = Light()
    found = {}
    for items in runner._test_items.values():
        for name, item in items.items():
            if name.endswith("_cpu"):
                found[name.removesuffix("_cpu")] = functools.partial(item.func, unittest.TestCase())
    return found


def names() -> list[str]:
    """Return the names of the cases; kept in ``build/tests``, since onnx computes each case to name it, for seconds."""
    kept = ROOT / "build" / "tests" / f"onnx-{onnx.__version__}.json"
    if not kept.is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=kept.parent, delete=False) as unfinished:
            json.dump(list(cases()), unfinished)
        os.replace(unfinished.name, kept)
    return json.loads(kept.read_text())  # type: ignore[no-any-return]


def run(name: str, opt_level: int = 3) -> Outcome:
    """Run one case."""
    _Backend.opt_level = opt_level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            cases()[name]()
        except unittest.SkipTest as error:
            return Outcome(name, "skipped", str(error))
        except Exception as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            return Outcome(name, type(error).__name__, " | ".join(lines[:4])[:300])
    return Outcome(name, "passed")


def summary(outcomes: Iterable[Outcome]) -> str:
    """How many passed, and those that did not, by reason."""
    outcomes = list(outcomes)
    reasons: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if not outcome.passed:
            reasons.setdefault(outcome.kind, []).append(outcome)
    lines = []
    for kind, those in sorted(reasons.items(), key=lambda item: -len(item[1])):
        lines.append(f"{len(those):5d} {kind}")
        lines.extend(f"        {outcome.name}: {outcome.message}" for outcome in those)
    passed = sum(outcome.passed for outcome in outcomes)
    return "\n".join([*lines, f"{passed} of {len(outcomes)} passed"])
