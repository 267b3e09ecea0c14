"""Tuning records: one JSON line for each measured configuration, in TVM 0.8's form (version 0.2)."""

from __future__ import annotations

import enum
import json
import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TextIO

from tilewright.autotvm.space import ConfigEntity
from tilewright.autotvm.task import Task
from tilewright.ir.errors import TilewrightError
from tilewright.target.target import Target

AUTOTVM_LOG_VERSION = 0.2
_TVM_VERSION = "0.8.0"


class MeasureErrorNo(enum.IntEnum):
    """What went wrong in a measurement."""

    NO_ERROR = 0
    INSTANTIATION_ERROR = 1
    COMPILE_HOST = 2
    COMPILE_DEVICE = 3
    RUNTIME_DEVICE = 4
    WRONG_ANSWER = 5
    BUILD_TIMEOUT = 6
    RUN_TIMEOUT = 7
    UNKNOWN_ERROR = 8


class MeasureInput(NamedTuple):
    """A configuration of a task on a target."""

    target: Target
    task: Any
    config: ConfigEntity


class MeasureResult(NamedTuple):
    """Run times in seconds, the error, the whole measurement's duration in seconds, and when it was made."""

    costs: tuple[float, ...]
    error_no: int
    all_cost: float
    timestamp: float


def _jsonable(value: Any) -> Any:
    return [_jsonable(v) for v in value] if isinstance(value, (list, tuple)) else value


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value


def encode(inp: MeasureInput, result: MeasureResult, protocol: str = "json") -> str:
    """The record line of a measurement."""
    if protocol != "json":
        raise TilewrightError(f"records are written as json, found protocol {protocol!r}")
    record = {
        "input": [str(inp.target), inp.task.name, _jsonable(inp.task.args), {}],
        "config": inp.config.to_json_dict(),
        "result": [list(result.costs), int(result.error_no), result.all_cost, result.timestamp],
        "version": AUTOTVM_LOG_VERSION,
        "tvm_version": _TVM_VERSION,
    }
    return json.dumps(record)


def decode(row: str, protocol: str = "json") -> tuple[MeasureInput, MeasureResult] | None:
    """The measurement of a record line; None for records older than version 0.2."""
    try:
        record = json.loads(row)
        if "v" in record or record.get("version", 0) < AUTOTVM_LOG_VERSION:
            return None
        target_text, name, args, _ = record["input"]
        costs, error_no, all_cost, timestamp = record["result"]
        config = ConfigEntity.from_json_dict(record["config"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TilewrightError(f"not a tuning record ({error}): {row[:120]!r}") from None
    task = Task(name, _tuples(args))
    inp = MeasureInput(Target(str(target_text)), task, config)
    return inp, MeasureResult(tuple(costs), int(error_no), all_cost, timestamp)


def load_from_buffer(file: TextIO) -> Iterator[tuple[MeasureInput, MeasureResult]]:
    """The measurements of an open file of record lines; empty lines and comments (#) are skipped."""
    for row in file:
        if row.strip() and not row.startswith("#"):
            found = decode(row)
            if found is not None:
                yield found


def load_from_file(filepath: str | os.PathLike[str]) -> Iterator[tuple[MeasureInput, MeasureResult]]:
    """The measurements of a file of record lines."""
    with open(filepath) as file:
        yield from load_from_buffer(file)


def pick_best(in_file: str | os.PathLike[str], out_file: str | os.PathLike[str]) -> None:
    """Write the fastest record of each workload and target in ``in_file`` to ``out_file``."""
    best: dict[tuple[str, Any], tuple[MeasureInput, MeasureResult]] = {}
    for inp, result in load_from_file(in_file):
        key = (str(inp.target), inp.task.workload)
        if result.error_no == 0 and (key not in best or sum(result.costs) / len(result.costs) < _cost(best[key][1])):
            best[key] = (inp, result)
    write_records(out_file, best.values())


def _cost(result: MeasureResult) -> float:
    return sum(result.costs) / len(result.costs)


def write_records(path: str | os.PathLike[str], records: Iterable[tuple[MeasureInput, MeasureResult]]) -> None:
    """Write record lines to the file ``path``."""
    with open(path, "w") as file:
        for inp, result in records:
            file.write(encode(inp, result) + "\n")
