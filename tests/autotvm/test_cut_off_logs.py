"""Logs of tuners that were killed within a line."""

from __future__ import annotations

import pytest

from tilewright.autotvm.whole_records import whole_records
from tilewright.ir.errors import TilewrightError


def decode(row: str) -> int:
    try:
        return int(row)
    except ValueError:
        raise TilewrightError(f"not a number: {row!r}") from None


def test_a_last_line_that_is_cut_off_is_left_out_with_one_warning() -> None:
    with pytest.warns(UserWarning, match="the last line of the records is cut off.* the 2 before it are used") as told:
        assert list(whole_records(["1\n", "2\n", "x"], decode)) == [1, 2]
    assert len(told) == 1


@pytest.mark.parametrize("rows", [["x"], ["1\n", "x", "2\n"], ["1\n", "x\n"]])
def test_other_rows_that_are_no_records_are_refused(rows: list[str]) -> None:
    with pytest.raises(TilewrightError, match="not a number: 'x"):
        list(whole_records(rows, decode))
