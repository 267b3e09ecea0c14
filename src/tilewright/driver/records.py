"""``tilewright records``: files of tuning records."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tilewright.autotvm.lines import load_from_file
from tilewright.autotvm.record import Record, best_records, save_records
from tilewright.autotvm.task.task import task_in_words
from tilewright.autotvm.utils import mean
from tilewright.driver.options import check_is_file, check_writable
from tilewright.driver.report import print_table, print_text


def merge_records(files: list[Path], output: Path) -> None:
    """Write the records of several files to one, equal ones once."""
    check_writable(output)
    records = _read(files)
    seen = {(str(i.target), i.task.workload, str(i.config), r.costs, r.timestamp): (i, r) for i, r in records}
    save_records(output, list(seen.values()))
    print_text(f"{len(seen)} records of {len(files)} files in {output}")


def keep_best(files: list[Path], output: Path) -> None:
    """Write the fastest record of each workload to a file."""
    check_writable(output)
    best = best_records(_read(files))
    save_records(output, best)
    print_text(f"{len(best)} records in {output}")


def show_records(files: list[Path]) -> None:
    """Print each workload: its trials, the fastest, and its choices."""
    import tilewright.relay.backend.kernel_task  # noqa: F401  kernels are named by their operators

    records = _read(files)
    trials = Counter((str(i.target), i.task.workload) for i, _ in records)
    failed = Counter((str(i.target), i.task.workload) for i, r in records if r.error_no != 0)
    rows = []
    for inp, result in best_records(records):
        key = str(inp.target), inp.task.workload
        words = task_in_words(inp.task.name, inp.task.args)
        cells = [inp.task.name, words, f"{mean(result.costs) * 1e3:.4f}", str(trials[key]), str(failed[key])]
        rows.append([*cells, inp.config.summary(), str(inp.target)])
    print_table(["template", "of", "best (ms)", "trials", "failed", "choices", "target"], rows)


def _read(files: list[Path]) -> list[Record]:
    records: list[Record] = []
    for file in files:
        check_is_file(file)
        records += load_from_file(file)
    return records
