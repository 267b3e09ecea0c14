"""Logs of tuners that were killed within a line, and went on behind it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tilewright import auto_scheduler
from tilewright.autotvm.history import ApplyHistoryBest
from tilewright.autotvm.lines import load_from_file
from tilewright.autotvm.whole_records import whole_records
from tilewright.ir.errors import TilewrightError


def decode(row: str) -> int:
    try:
        return int(json.loads(row)["n"])
    except (ValueError, TypeError):
        raise TilewrightError(f"not a number: {row!r}") from None


def numbers(rows: list[str]) -> list[int]:
    return list(whole_records(rows, decode, '{"n"'))


def row(number: int) -> str:
    return f'{{"n": {number}}}\n'


@pytest.mark.parametrize(
    ("rows", "found", "lost"),
    [
        ([row(1), row(2), '{"n": 3'], [1, 2], "1 line of the records is"),
        ([row(1), '{"n": 3\n', "\0garbled", row(2)], [1, 2], "2 lines of the records are"),
        (['{"n": 3\n', row(1)], [1], "1 line of the records is"),
        ([row(1), '{"n": 3' + row(4), row(2)], [1, 4, 2], "1 line of the records is"),
    ],
    ids=["last", "middle", "first", "continued behind a part"],
)
def test_lines_that_are_cut_off_or_garbled_are_counted_in_one_warning(
    rows: list[str], found: list[int], lost: str
) -> None:
    with pytest.warns(UserWarning, match=rf"{lost} cut off or garbled.*the {len(found)} whole ones") as told:
        assert numbers(rows) == found
    assert len(told) == 1


def test_a_file_of_no_records_is_refused() -> None:
    with pytest.raises(TilewrightError, match="not a number: 'x"):
        numbers(["x", "y"])


_AUTOTVM = json.dumps(
    {
        "input": ["llvm", "exp.cpu", [], {}],
        "config": {"index": 0, "code_hash": None, "entity": [["threads", "ot", False]]},
        "result": [[0.25], 0, 0.5, 1], "version": 0.2, "tvm_version": "0.8.0",
    }
)  # fmt: skip
_PARAMETERS = "[1, 64, 64, 0, 0, 0, 0, 0]"
_AUTO_SCHEDULER = (
    '{"i": [["[\\"f\\"]", "llvm", PARAMETERS, "", 1], [[], []]], "r": [[0.5], 0, 1, 2], "v": "v0.6"}'.replace(
        "PARAMETERS", _PARAMETERS
    )
)


@pytest.mark.parametrize(
    ("record", "read"),
    [
        (_AUTOTVM, lambda path: list(load_from_file(path))),
        (_AUTOTVM, lambda path: list(ApplyHistoryBest(path).best_by_targetkey)),
        (_AUTO_SCHEDULER, lambda path: list(auto_scheduler.load_records(str(path)))),
        (_AUTO_SCHEDULER, lambda path: list(filter(None, auto_scheduler.load_best_record(str(path))))),
    ],
    ids=["load_from_file", "apply_history_best", "load_records", "load_best_record"],
)
def test_every_reader_uses_what_is_whole(record: str, read: Callable[[Path], list], tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.write_text(f"{record}\n{record}\n")
    half = record[: len(record) // 2]
    cut.write_bytes(f"{record}\n{half}\n".encode() + b"\xff\0\xfe\n" + f"{half}{record}\n".encode())
    expected = read(whole)
    assert expected
    with pytest.warns(UserWarning, match="3 lines of the records are cut off or garbled") as told:
        assert len(read(cut)) == len(expected)
    assert sum("cut off" in str(warning.message) for warning in told) == 1
