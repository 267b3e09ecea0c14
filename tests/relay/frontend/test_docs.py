"""docs/onnx.md: its examples run as they stand, and its list of converters is complete."""

from __future__ import annotations

import re
from pathlib import Path

from tilewright.relay.frontend.onnx.registry import supported_operators

TEXT = (Path(__file__).parents[3] / "docs" / "onnx.md").read_text()


def test_examples_run_in_order() -> None:
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) >= 4
    namespace: dict[str, object] = {"__name__": "docs"}
    for block in blocks:
        exec(compile(block, "docs/onnx.md", "exec"), namespace)


def test_list_of_converters_is_complete() -> None:
    listed = TEXT.split("## Converters")[1].replace("\n", " ").strip().removesuffix(".")
    assert [name.strip() for name in listed.split(",")] == supported_operators()
