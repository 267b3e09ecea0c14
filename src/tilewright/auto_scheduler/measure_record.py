"""Files of records: one measurement a line.

``python -m tilewright.auto_scheduler.measure_record --mode distill -i records.json`` keeps the best of each workload.
"""

from __future__ import annotations

import argparse
import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tilewright.auto_scheduler.measure_pair import (
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    dump_record_to_string,
    load_record_from_string,
    serialize_input,
)
from tilewright.auto_scheduler.utils import calc_workload_dis_factor, decode_workload_key
from tilewright.autotvm.whole_records import whole_records
from tilewright.runtime.partial_files import whole_file
from tilewright.target.target import Target

logger = logging.getLogger("auto_scheduler")

Pair = tuple[MeasureInput, MeasureResult]


class MeasureCallback:
    """Is called after each batch of measurements."""

    def callback(self, policy: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Handle measured inputs that ``policy`` chose."""
        raise NotImplementedError


class RecordToFile(MeasureCallback):
    """Appends the measurements to a file."""

    def __init__(self, filename: str) -> None:
        Path(filename).absolute().parent.mkdir(parents=True, exist_ok=True)
        self.filename = str(filename)

    def callback(self, policy: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        save_records(self.filename, inputs, results)


class RecordReader:
    """Reads a file of records; iterating yields pairs of input and result."""

    def __init__(self, filename: str) -> None:
        self.filename = str(filename)
        if not Path(filename).exists():
            logger.warning("%s does not exist!", filename)

    def read_lines(
        self, max_lines: int | None = None, skip_lines: int = 0
    ) -> tuple[list[MeasureInput], list[MeasureResult]]:
        """Return inputs and results of at most ``max_lines`` records after the first ``skip_lines``.

        States have their steps only; ``measure.recover_measure_input`` makes the rest.
        """
        inputs: list[MeasureInput] = []
        results: list[MeasureResult] = []
        for number, (inp, res) in enumerate(self):
            if max_lines is not None and number >= skip_lines + max_lines >= 0 and max_lines >= 0:
                break
            if number >= skip_lines:
                inputs.append(inp)
                results.append(res)
        return inputs, results

    def __iter__(self) -> Iterator[Pair]:
        if not Path(self.filename).exists():
            return
        with open(self.filename, encoding="utf-8", errors="replace") as file:
            lines = (line for line in file if line.strip() and not line.startswith(("#", " ")))
            yield from whole_records(lines, load_record_from_string, '{"i"')


def load_records(filename: str) -> Iterator[Pair]:
    """The pairs of input and result in a file."""
    return iter(RecordReader(filename))


def save_records(filename: str, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
    """Append records to a file."""
    Path(filename).absolute().parent.mkdir(parents=True, exist_ok=True)
    with open(filename, "a", encoding="utf-8") as file:
        file.writelines(dump_record_to_string(inp, res) for inp, res in zip(inputs, results, strict=True))


def load_best_record(
    filename: str, workload_key: str | None = None, target: Target | None = None, include_compatible: bool = False
) -> tuple[MeasureInput | None, MeasureResult | None]:
    """Return the fastest measurement in a file, or (None, None).

    Parameters
    ----------
    workload_key : of this workload only, None of any
    target : of this kind of target only, None of any
    include_compatible : also of workloads that this one is a multiple of, whose time counts as many times
    """
    best_cost = math.inf
    best: tuple[MeasureInput | None, MeasureResult | None] = None, None
    for inp, res in RecordReader(filename):
        if res.error_no != MeasureErrorNo.NO_ERROR:
            continue
        if target is not None and inp.task.target.kind.name != target.kind.name:
            continue
        cost = res.mean
        if workload_key is not None:
            wanted, given = decode_workload_key(workload_key), decode_workload_key(inp.task.workload_key)
            factor = calc_workload_dis_factor(wanted, given)
            if math.isinf(factor) or (factor != 1 and not include_compatible):
                continue
            cost *= factor
        if cost < best_cost:
            best_cost, best = cost, (inp, res)
    return best


def distill_record_file(in_file: str, out_file: str) -> None:
    """Write the best record of each workload and target, of both files if ``out_file`` exists, to ``out_file``."""
    pairs: Iterable[Pair] = list(load_records(in_file))
    if Path(out_file).is_file():
        pairs = [*pairs, *load_records(out_file)]
    best: dict[tuple[str, str], Pair] = {}
    for inp, res in pairs:
        key = inp.task.workload_key, str(inp.task.target)
        if res.error_no == MeasureErrorNo.NO_ERROR and (key not in best or res.mean < best[key][1].mean):
            best[key] = inp, res
    kept = {serialize_input(inp): (inp, res) for inp, res in best.values()}
    with whole_file(out_file) as partial:
        save_records(str(partial), [inp for inp, _ in kept.values()], [res for _, res in kept.values()])
    logger.info("Extract %d best records from %s to %s", len(kept), in_file, out_file)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="works on files of the auto-scheduler's records")
    parser.add_argument("--mode", choices=["distill"], default="distill")
    parser.add_argument("-i", "--input", required=True, help="input file")
    parser.add_argument("-o", "--output", help="output file, by default INPUT.best.json")
    args = parser.parse_args()
    distill_record_file(args.input, args.output or f"{args.input}.best.json")


if __name__ == "__main__":
    main()

__all__ = [
    "MeasureCallback",
    "RecordReader",
    "RecordToFile",
    "distill_record_file",
    "dump_record_to_string",
    "load_best_record",
    "load_record_from_string",
    "load_records",
    "save_records",
]
