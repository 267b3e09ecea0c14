"""Tuning records: one JSON line for each measured configuration, in TVM 0.8's form (version 0.2)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

from tilewright.autotvm.measurement import MeasureInput, MeasureResult
from tilewright.autotvm.task.space import ConfigEntity
from tilewright.autotvm.task.task import Task
from tilewright.autotvm.utils import mean
from tilewright.autotvm.whole_records import whole_records
from tilewright.ir.errors import TilewrightError
from tilewright.target.target import Target

AUTOTVM_LOG_VERSION = 0.2
_TVM_VERSION = "0.8.0"
_FAILED = 1e9  # seconds, in records of what failed


def _jsonable(value: Any) -> Any:
    return [_jsonable(v) for v in value] if isinstance(value, (list, tuple)) else value


def args_from_json(value: Any) -> Any:
    """Arguments of a task as they were before JSON made lists of their tuples."""
    return tuple(args_from_json(v) for v in value) if isinstance(value, list) else value


def measure_str_key(inp: MeasureInput, include_config: bool = True) -> str:
    """Return the lookup key of an input: target, task and, if requested, configuration."""
    config = str(inp.config) if include_config else ""
    return "".join([str(inp.target), inp.task.name, str(inp.task.args), str(inp.task.kwargs), config])


def encode(inp: MeasureInput, result: MeasureResult, protocol: str = "json") -> str:
    """The record line of a measurement."""
    _check(protocol)
    failed = result.error_no != 0
    record = {
        "input": [str(inp.target), inp.task.name, _jsonable(inp.task.args), {}],
        "config": inp.config.to_json_dict(),
        "result": [
            [_FAILED] if failed else list(result.costs), int(result.error_no), result.all_cost, result.timestamp
        ],
        "version": AUTOTVM_LOG_VERSION,
        "tvm_version": _TVM_VERSION,
    }  # fmt: skip
    return json.dumps(record)


def _check(protocol: str) -> None:
    if protocol != "json":
        raise TilewrightError(f"records are written as json, found protocol {protocol!r}; no code runs from data here")


def decode(row: str, protocol: str = "json") -> tuple[MeasureInput, MeasureResult] | None:
    """Return the measurement of a record line; None for records older than version 0.2."""
    _check(protocol)
    try:
        record = json.loads(row)
        if "v" in record or record.get("version", 0) < AUTOTVM_LOG_VERSION:
            return None
        target_text, name, args, _ = record["input"]
        costs, error_no, all_cost, timestamp = record["result"]
        config = ConfigEntity.from_json_dict(record["config"])
        target = Target(str(target_text).replace("-target=", "-mtriple="))
        task = Task(name, args_from_json(args))
        config.cost = mean(costs)
        result = MeasureResult(tuple(costs), int(error_no), float(all_cost), float(timestamp))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise TilewrightError(f"not a tuning record ({error}): {row[:120]!r}") from None
    return MeasureInput(target, task, config), result


def load_from_buffer(file: Iterable[str]) -> Iterator[tuple[MeasureInput, MeasureResult]]:
    """The measurements of an open file of record lines; empty lines and comments (#) are skipped.

    Lines that are cut off or garbled, as a tuner leaves them that is killed, are left out with one warning.
    """
    rows = (row for row in file if row.strip() and not row.startswith("#"))
    yield from (found for found in whole_records(rows, decode, '{"input"') if found is not None)


def load_from_file(filename: str | os.PathLike[str]) -> Iterator[tuple[MeasureInput, MeasureResult]]:
    """The measurements of a file of record lines."""
    with open(filename, encoding="utf-8", errors="replace") as file:
        yield from load_from_buffer(file)


def write_records(file: TextIO, records: Iterable[tuple[MeasureInput, MeasureResult]]) -> None:
    """Write record lines."""
    for inp, result in records:
        file.write(encode(inp, result) + "\n")
