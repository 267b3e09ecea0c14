"""Schedules find computations by the kinds of ``topi.kinds``, not by literal tags."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tilewright import te, topi
from tilewright.ir.errors import TilewrightError
from tilewright.topi.kinds import CONVOLUTIONS, CONVOLUTIONS_CHANNELS_LAST, PAD, Kind, Kinds

ROOMS = [Path(topi.__file__).parent, Path(__file__).parents[2] / "plugins"]


def _literal_tags(tree: ast.AST) -> list[int]:
    """Lines that compare the tag of an operation with a literal, or look for one in it."""
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
            tags = any(isinstance(p, ast.Attribute) and p.attr == "tag" for p in parts)
            if tags and any(isinstance(n, ast.Constant) for p in parts for n in ast.walk(p)):
                lines.append(node.lineno)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of = node.func.value
            if node.func.attr == "startswith" and isinstance(of, ast.Attribute) and of.attr == "tag":
                lines.append(node.lineno)
    return lines


def test_no_schedule_compares_a_tag_with_a_literal() -> None:
    found = {str(path): _literal_tags(ast.parse(path.read_text())) for room in ROOMS for path in room.rglob("*.py")}
    assert not {path: lines for path, lines in found.items() if lines}


@pytest.mark.parametrize("text", ['op.tag == "dense"', '"pad" in op.tag', 'op.tag.startswith("pool")'])
def test_a_literal_tag_is_found(text: str) -> None:
    assert _literal_tags(ast.parse(text)) == [1]


def test_a_kind_is_told_from_others_and_found_below_a_result() -> None:
    data = te.placeholder((1, 4, 4, 3))
    padded = topi.nn.pad(data, (0, 1, 1, 0), name="padded")
    conv = topi.nn.conv2d_nhwc(padded, te.placeholder((3, 3, 3, 2)), 1, 0, 1, "float32")
    out = topi.nn.relu(conv)
    assert CONVOLUTIONS_CHANNELS_LAST.among([out]) is CONVOLUTIONS.among([out]) is conv.op
    assert PAD(padded.op) and not PAD(conv.op) and CONVOLUTIONS(conv.op) and not CONVOLUTIONS(out.op)
    with pytest.raises(TilewrightError, match=r"kind no_kind or other; found .*conv2d_nhwc"):
        Kinds(Kind("no_kind"), "other").among([out])
