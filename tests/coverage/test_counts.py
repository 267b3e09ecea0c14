"""Coverage is counted for each package and folder."""

from __future__ import annotations

from tests.coverage.__main__ import native_counts, python_counts, table


def test_branches_are_added_up_by_package() -> None:
    files = {"ir/node.py": (1, 4), "ir/deep/expr.py": (2, 2), "version.py": (0, 1)}
    summaries = {f"src/tilewright/{f}": {"covered_branches": c, "num_branches": n} for f, (c, n) in files.items()}
    report = {"files": {path: {"summary": summary} for path, summary in summaries.items()}}
    assert python_counts(report) == {"ir": (3, 6), "tilewright": (0, 1)}


def test_a_line_of_c_ran_if_it_ran_in_any_object() -> None:
    def report(file: str, **counts: int) -> dict[str, object]:
        lines = [{"line_number": int(n[1:]), "count": count} for n, count in counts.items()]
        return {"files": [{"file": file, "lines": lines}]}

    header = "/root/native/src/vm/loop.h"
    reports = [report(header, n1=0, n2=0), report(header, n1=3, n2=0), report("/usr/include/stdio.h", n1=1)]
    assert native_counts(reports, "/root/native/src") == {"vm": (1, 2)}


def test_the_table_ends_with_all() -> None:
    assert table("lines", {"b": (1, 2), "a": (3, 3), "none": (0, 0)}).splitlines()[2:] == [
        "| `a` | 3 of 3 | 100.0 |",
        "| `b` | 1 of 2 | 50.0 |",
        "| `all` | 4 of 5 | 80.0 |",
    ]
