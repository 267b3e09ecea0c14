"""Compiles many cases as one module, and compares what its outputs are with what they should be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tests.processors.random_cases import Case

import tilewright as tvm
from tilewright import relay


def compile_cases(cases: Sequence[Case], target: str, opt_level: int = 3, **config: Any) -> Any:
    """One module whose output number i is that of case i; input k of case i is named ``c<i>_<k>``."""
    params: list[Any] = []
    fields: list[Any] = []
    for i, case in enumerate(cases):
        mine = [relay.var(f"c{i}_{k}", shape=a.shape, dtype=str(a.dtype)) for k, a in enumerate(case.inputs)]
        params += mine
        fields.append(case.build(*mine))
    mod = tvm.IRModule.from_expr(relay.Function(params, relay.Tuple(fields)))
    with tvm.transform.PassContext(opt_level=opt_level, config=config):
        return relay.build(mod, target)


def values(cases: Sequence[Case]) -> dict[str, np.ndarray]:
    """The module's inputs by name."""
    return {f"c{i}_{k}": array for i, case in enumerate(cases) for k, array in enumerate(case.inputs)}


def wrong(cases: Sequence[Case], found: Sequence[np.ndarray]) -> list[str]:
    """What is wrong with the outputs ``found``: a line for each bad one."""
    complaints = []
    for case, have in zip(cases, found, strict=True):
        if have.shape != case.expected.shape:
            complaints.append(f"{case.what}: shape {have.shape}, expected {case.expected.shape}")
            continue
        scale = float(np.abs(case.expected).max(initial=0.0)) or 1.0
        difference = float(np.abs(have - case.expected).max(initial=0.0)) / scale
        if not difference <= case.tolerance:
            complaints.append(f"{case.what}: off by {difference:.2g} of the largest value")
    return complaints
