"""Schedules find the computations that they are written for by kinds, which both import."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilewright import te, topi
from tilewright.ir.errors import TilewrightError
from tilewright.topi.kinds import DENSE_STRASSEN, SOFTMAX, Kind

TOPI = Path(topi.__file__).parent
_YET = {"conv2d.py", "conv2d_int8.py", "dense.py"}  # of the schedules for processors


def _literal_tags(tree: ast.Module) -> Iterator[str]:
    """Comparisons of a tag with texts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute) and node.left.attr == "tag":
            if any(isinstance(part, ast.Constant) for side in node.comparators for part in ast.walk(side)):
                yield ast.unparse(node)


def test_schedules_compare_no_tags_with_texts() -> None:
    files = [f for f in TOPI.rglob("*.py") if not (f.parent.name == "cpu" and f.name in _YET)]
    found = [f"{f.name}: {text}" for f in files for text in _literal_tags(ast.parse(f.read_text()))]
    assert not found, f"declare a Kind in topi/kinds.py: {found}"
    assert list(_literal_tags(ast.parse('op.tag == "conv" or op.tag in ("a", B)')))


def test_a_kind_is_the_tag_that_others_read() -> None:
    made = topi.nn.softmax(te.placeholder((2, 3)))
    assert made.op.tag == "softmax_output" and SOFTMAX(made.op) and not DENSE_STRASSEN(made.op)
    assert SOFTMAX.among([topi.exp(made)]) is made.op


def test_a_schedule_for_another_computation_says_so() -> None:
    out = topi.exp(te.placeholder((2, 3), name="x"))
    with pytest.raises(TilewrightError, match=f"computations of the kind dense_pack; found {out.op.name}, x"):
        Kind("dense_pack").among([out])
