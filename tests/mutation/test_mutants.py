"""Mutants are small changes of whole lines that parse, the same for the same seed, and find their lines again."""

from __future__ import annotations

import ast
import random
from pathlib import Path

import pytest
from tests.mutation.mutants import AREAS, Mutant, draw_area, draw_mutants, mutant, sites

SOURCE = '''
def clip(x: "a < b", low, high=1 + 2):
    """Between low < high."""
    for y in x:
        if y < low and not x:
            continue
        low += f(y,
                 high)
        note(f"{y + 1}")
    return low
'''


def changes(text: str) -> dict[str, set[str]]:
    """What each kind of change makes of a text's lines."""
    draw, found = random.Random(1), {}
    for kind, node, change in sites(ast.parse(text), rules=False):
        new = mutant("a.py", text, kind, node, change(draw))
        assert new is not None and new.before.count("\n") == new.after.count("\n")
        found.setdefault(kind, set()).add(new.after.strip())
    return found


def test_every_kind_of_change_is_made_outside_annotations_and_formatted_texts() -> None:
    found = changes(SOURCE)
    assert found == {
        "arithmetic": {'def clip(x: "a < b", low, high=(1 - 2)):'},
        "constant": found["constant"],  # one more or one less
        "condition": {"if (not (y < low and (not x))):"},
        "and/or": {"if (y < low or not x):"},
        "comparison": found["comparison"],
        "negation": {"if y < low and (x):"},
        "break": {"break"},
        "assignment": {"low -= f(y, high)"},
        "arguments": {"low += (f(high, y)\n)"},
        "removal": {"pass"},
        "return": {"return None"},
    }
    assert len(found["constant"]) == 2 and found["comparison"] < {
        "if (y <= low) and not x:",
        "if (y >= low) and not x:",
    }


@pytest.mark.parametrize("before", ["", "import a\n\n"])
def test_a_mutant_finds_its_line_where_it_has_moved_to(before: str) -> None:
    change = Mutant("a.py", 2, "constant", "b = 2", "b = 3")
    assert change.apply(f"{before}a = 1\nb = 2\nc = 3") == f"{before}a = 1\nb = 3\nc = 3"


def test_of_equal_lines_the_nearest_is_changed() -> None:
    assert (
        Mutant("a.py", 4, "return", "return 1", "return 2").apply("return 1\n\n\nreturn 1") == "return 1\n\n\nreturn 2"
    )


def test_a_mutant_of_lines_that_went_is_none() -> None:
    assert Mutant("a.py", 2, "constant", "b = 2", "b = 3").apply("a = 1\n") is None


def test_the_seed_says_which_mutants_are_drawn(tmp_path: Path) -> None:
    (tmp_path / "area").mkdir()
    (tmp_path / "area" / "a.py").write_text(SOURCE)
    first, again, other = (draw_area(tmp_path, "area", 8, random.Random(seed)) for seed in (1, 1, 2))
    assert first == again != other and len(set(first)) == 8


def test_areas_take_turns(tmp_path: Path) -> None:
    for area in AREAS:
        (tmp_path / area).mkdir(parents=True)
        (tmp_path / area / "a.py").write_text(SOURCE)
    drawn = draw_mutants(tmp_path, 33, 19)
    assert [str(Path(m.path).parent) for m in drawn] == [AREAS[i % len(AREAS)] for i in range(19)]
