"""Files of tuning records: the lines themselves are in ``lines.py``, records in force in ``history.py``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TextIO

from tilewright.autotvm.history import ApplyHistoryBest
from tilewright.autotvm.lines import (
    AUTOTVM_LOG_VERSION,
    decode,
    encode,
    load_from_buffer,
    load_from_file,
    measure_str_key,
    write_records,
)  # fmt: skip
from tilewright.autotvm.measurement import MeasureErrorNo, MeasureInput, MeasureResult
from tilewright.runtime.partial_files import whole_file

Record = tuple[MeasureInput, MeasureResult]


def best_records(records: list[Record]) -> list[Record]:
    """The fastest record of each workload and target that did not fail, in the order of their workloads."""
    best: dict[str, Record] = {}
    for inp, result in records:
        key = measure_str_key(inp, include_config=False)
        if result.error_no == 0 and (key not in best or _cost(result) < _cost(best[key][1])):
            best[key] = inp, result
    return list(best.values())


def pick_best(in_file: str | os.PathLike[str], out_file: str | os.PathLike[str] | TextIO) -> None:
    """Write the fastest record of each workload and target in ``in_file`` to ``out_file``.

    What ``out_file`` has already takes part. The file appears whole or not at all.
    """
    records = list(load_from_file(in_file))
    if isinstance(out_file, (str, os.PathLike)):
        if os.path.isfile(out_file):
            records += load_from_file(out_file)
        save_records(out_file, best_records(records))
    else:
        write_records(out_file, best_records(records))


def save_records(path: str | os.PathLike[str], records: list[Record]) -> None:
    """Write a file of records, which appears whole or not at all."""
    with whole_file(path) as partial, partial.open("w") as file:
        write_records(file, records)


def split_workload(in_file: str | os.PathLike[str], clean: bool = True) -> list[Path]:
    """Write the records of each workload to a file of its own, ``IN_FILE.NNN.wkl``; ``clean`` drops repeated inputs."""
    workloads: dict[str, dict[str, Record]] = {}
    for number, (inp, result) in enumerate(load_from_file(in_file)):
        key = measure_str_key(inp) if clean else str(number)
        workloads.setdefault(measure_str_key(inp, include_config=False), {}).setdefault(key, (inp, result))
    paths = []
    for number, records in enumerate(workloads.values()):
        paths.append(Path(f"{os.fspath(in_file)}.{number:03d}.wkl"))
        save_records(paths[-1], list(records.values()))
    return paths


def _cost(result: MeasureResult) -> float:
    return sum(result.costs) / len(result.costs)


__all__ = [
    "AUTOTVM_LOG_VERSION", "ApplyHistoryBest", "MeasureErrorNo", "MeasureInput", "MeasureResult", "best_records",
    "decode", "encode", "load_from_buffer", "load_from_file", "measure_str_key", "pick_best", "save_records",
    "split_workload", "write_records",
]  # fmt: skip
