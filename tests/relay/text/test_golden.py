"""Texts that TVM 0.8 printed: read, type-checked and printed again they are the same, byte for byte."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tilewright.ir.module import IRModule
from tilewright.ir.structural import assert_structural_equal
from tilewright.relay.expr import const
from tilewright.relay.text.parser import parse
from tilewright.relay.transform import InferType

GOLDEN = Path(__file__).parents[2] / "golden"
LIST = "type List[A] { Cons(A, List[A]), Nil }\n"
# Passes that leave their result without types.
UNTYPED = {"a_normal_form.after.txt"}
TEXTS = sorted(p for d in ("relay", "passes") for p in (GOLDEN / d).glob("*.txt"))
MODULES = [p for p in TEXTS if p.name not in ("adt_match_main.txt", "byoc_module_without_metadata.txt")]


def reprint(mod: IRModule, recorded: str) -> str:
    """Print as the recording was made: with or without version line and metadata."""
    if "#[metadata]" in recorded:
        return mod.astext()
    return mod.astext(show_meta_data=False) if recorded.startswith("#[version") else str(mod)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.stem)
def test_recorded_module_prints_as_it_was_read(path: Path) -> None:
    recorded = path.read_text()
    mod = parse(recorded, source_name=path.name)
    if path.name not in UNTYPED:
        mod = InferType()(mod)
    assert reprint(mod, recorded) == recorded
    assert_structural_equal(parse(mod.astext()), mod)


def test_recorded_match_prints_as_it_was_read() -> None:
    recorded = (GOLDEN / "relay" / "adt_match_main.txt").read_text()
    body = recorded.split("\n", 1)[1].replace("fn (", "def @main(", 1)
    mod = InferType()(parse(LIST + body))
    assert mod["main"].astext(show_meta_data=False) == recorded.rstrip("\n")


def test_recorded_module_with_metadata_left_out() -> None:
    recorded = (GOLDEN / "relay" / "byoc_module_without_metadata.txt").read_text()
    weight = const(np.zeros((4, 4, 3, 3), "float32"))
    mod = InferType()(parse(recorded, init_meta_table={"relay.Constant": [weight]}))
    assert mod.astext(show_meta_data=False) == recorded
