"""Roofline of a machine: peak multiply-adds and memory bandwidth, measured by two kernels.

S. Williams, A. Waterman and D. Patterson, "Roofline: An Insightful Visual Performance Model", CACM 52(4), 2009.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilewright import te, topi
from tilewright.ir.errors import TilewrightError
from tilewright.target.build import build
from tilewright.target.features import features
from tilewright.target.target import Target
from tilewright.tuning.processes import LocalRuns, RunRequest

_ROWS, _INNER, _COLUMNS = 384, 512, 512  # of a product whose operands stay in caches
_PRODUCT_SHARE = 0.95  # of the peak that our product reaches (docs/performance.md: 93 to 97 %)
_COPIED = 1 << 24  # floats, more than caches hold
_REPEATS = 40  # of which the fastest counts


@dataclass(frozen=True)
class Machine:
    """Peak operations and bytes per second, of all cores; data in caches is not read from memory."""

    flops: float
    bytes_per_second: float
    cache_bytes: int = 0

    def least_seconds(self, flop: float, arguments: Sequence[tuple[Sequence[int], str]]) -> float:
        """Return a lower bound of a kernel's time: its operations at the peak; its arguments from memory if
        uncached.
        """
        size = sum(math.prod(shape) * np.dtype(_known(dtype)).itemsize for shape, dtype in arguments)
        reading = size / self.bytes_per_second if size > self.cache_bytes else 0.0
        return max(flop / self.flops, reading)


def _known(dtype: str) -> str:
    return {"bfloat16": "uint16", "bool": "uint8"}.get(dtype, dtype)


def measure_machine(target: Target) -> Machine:
    """The peak and the bandwidth of this machine, with the code that ``target`` gets."""
    with tempfile.TemporaryDirectory(prefix="tilewright-machine-") as folder, target:
        product, flop = _product(target, Path(folder) / "product.so")
        copy, size = _copy(target, Path(folder) / "copy.so")
        runs = LocalRuns(timeout=60.0)
        try:
            outcomes = runs.run([product, copy])
        finally:
            runs.close()
    for outcome in outcomes:
        if outcome.status != "done":
            raise TilewrightError(f"this machine's speed cannot be measured: {outcome.error}")
    seconds = [min(outcome.value.costs) for outcome in outcomes]
    cpu = features(target)
    caches = cpu.cores * cpu.l2_bytes + cpu.l3_bytes
    return Machine(flop / seconds[0] / _PRODUCT_SHARE, size / seconds[1], caches)


def _product(target: Target, path: Path) -> tuple[RunRequest, float]:
    block = topi.cpu.dense_block(_ROWS, _COLUMNS, _INNER, "float32", target) or 16
    data, weight = te.placeholder((_ROWS, _INNER)), te.placeholder((_COLUMNS // block, _INNER, block))
    out = topi.cpu.dense_pack(data, weight, None, "float32")
    _write(topi.cpu.schedule_dense_pack([out]), [data, weight, out], target, path)
    shapes = [(_ROWS, _INNER), (_COLUMNS // block, _INNER, block), (_ROWS, _COLUMNS)]
    return _request(path, shapes), 2.0 * _ROWS * _INNER * _COLUMNS


def _copy(target: Target, path: Path) -> tuple[RunRequest, float]:
    data = te.placeholder((_COPIED,))
    out = topi.identity(data)
    _write(topi.cpu.schedule_injective([out]), [data, out], target, path)
    return _request(path, [(_COPIED,), (_COPIED,)]), 8.0 * _COPIED


def _request(path: Path, shapes: Sequence[tuple[int, ...]]) -> RunRequest:
    return RunRequest(str(path), [(shape, "float32") for shape in shapes], number=1, repeat=_REPEATS)


def _write(schedule: te.Schedule, arguments: Sequence[te.Tensor], target: Target, path: Path) -> None:
    build(schedule, arguments, target).export_library(str(path))
